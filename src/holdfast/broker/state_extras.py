"""Encode uptime, permissions and compactions, parts of a snapshot that most brokers do not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from holdfast.broker.compaction.state import CompactedView, Compaction, CompactionRun
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


class CompactionPart(msgspec.Struct, array_like=True, frozen=True, tag="compaction"):
    """Stands after the topics. A topic that was never compacted has no such part."""

    topic: int
    views: int
    view: CompactedView | None
    before: CompactedView | None
    floor: int
    requested: int
    error: str
    error_time: int
    run: CompactionRun | None


ExtraPart: TypeAlias = UptimePart | PermissionsPart | CompactionPart
Extra: TypeAlias = Uptime | Permissions | Compaction


def extras(state: BrokerState) -> Iterator[Extra]:
    """Yield those of these parts that a state has."""
    if state.uptime:
        yield state.uptime
    if state.permissions:
        yield state.permissions
    yield from (each for _, each in sorted(state.compactions.items()))


def extra_part(part: Extra) -> ExtraPart:
    if isinstance(part, Compaction):
        return CompactionPart(
            part.topic,
            part.views,
            part.view,
            part.before,
            part.floor,
            part.requested,
            part.error,
            part.error_time,
            part.run,
        )
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
    if isinstance(part, CompactionPart):
        _load_compaction(state, part)
        return
    permissions = state.permissions
    permissions.namespaces, permissions.topics = part.namespaces, part.topics
    permissions.subscriptions, permissions.prefixed = part.subscriptions, set(part.prefixed)


def _load_compaction(state: BrokerState, part: CompactionPart) -> None:
    compaction = Compaction(part.topic)
    compaction.views, compaction.view, compaction.before = part.views, part.view, part.before
    compaction.floor, compaction.requested = part.floor, part.requested
    compaction.error, compaction.error_time, compaction.run = part.error, part.error_time, part.run
    state.compactions[part.topic] = state.topics[part.topic].compaction = compaction
    if (run := part.run) is not None:
        state.log.add_topic(run.hidden, run.count)
        if run.file:
            state.log.open_ledger(run.hidden, run.file, 0, run.count, run.file_size)
