"""Encode uptime and permissions, parts of a snapshot that most brokers do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.broker.permissions import Permissions, Roles
from holdfast.broker.uptime import Uptime

if TYPE_CHECKING:
    from holdfast.broker.state import BrokerState


class UptimePart(msgspec.Struct, array_like=True, frozen=True, tag="uptime"):
    """A broker without a policy of ages has no such part."""

    ran: int
    ticked: int


class PermissionsPart(msgspec.Struct, array_like=True, frozen=True, tag="permissions"):
    """A broker without permissions has no such part."""

    namespaces: dict[str, Roles]
    topics: dict[str, Roles]
    subscriptions: dict[str, Roles]
    prefixed: list[str]


ExtraPart: TypeAlias = UptimePart | PermissionsPart


def extras(state: BrokerState) -> Iterator[Uptime | Permissions]:
    """Yield those of these parts that a state has."""
    if state.uptime:
        yield state.uptime
    if state.permissions:
        yield state.permissions


def extra_part(part: Uptime | Permissions) -> ExtraPart:
    if isinstance(part, Uptime):
        return UptimePart(part.ran, part.ticked)
    return PermissionsPart(
        dict(sorted(part.namespaces.items())),
        dict(sorted(part.topics.items())),
        dict(sorted(part.subscriptions.items())),
        sorted(part.prefixed),
    )


def load_extra(state: BrokerState, part: ExtraPart) -> None:
    """Take over a part of a snapshot."""
    if isinstance(part, UptimePart):
        state.uptime = Uptime()
        state.uptime.ran, state.uptime.ticked = part.ran, part.ticked
        return
    permissions = state.permissions
    permissions.namespaces, permissions.topics = part.namespaces, part.topics
    permissions.subscriptions, permissions.prefixed = part.subscriptions, set(part.prefixed)
