"""State of a cluster: facts about members, shared options, names of single members.

A broker alone does not have them: no event, and no byte in its snapshots.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from holdfast.broker.part import Part
from holdfast.errors import Exists
from holdfast.group import Member


class MemberInfo(msgspec.Struct, array_like=True, frozen=True):
    """Facts that a member of a cluster has announced about itself.

    Example:
        >>> MemberInfo(Member(2, 7), "rack2", url="pulsar://rack2:6650").node
        2
    """

    member: Member
    name: str
    url: str = ""
    """`pulsar://host:port` for clients; empty: none."""
    tls_url: str = ""
    http_url: str = ""
    https_url: str = ""
    transfer: str = ""
    """`host:port`, at which other members fetch state."""
    program: str = ""
    """The version of holdfast."""
    versions: dict[int, int] = msgspec.field(default_factory=dict)
    """The newest version of each kind of event that it knows."""
    listeners: dict[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    """Its addresses for clients that name a listener: without TLS, and with it."""
    unreplicated_ports: tuple[int, int] = (0, 0)
    """Its ports for unreplicated topics, on the same hosts: without TLS, and with it; 0: none."""

    @property
    def node(self) -> int:
        return self.member.node


class Announced(Part):
    """Facts about members, by node. A node that left keeps its entry."""

    def __init__(self) -> None:
        self.info: dict[int, MemberInfo] = {}
        """Replaced as a whole by a change: what is derived from it compares the identity."""


Setting: TypeAlias = bool | int | float | str


class Decided(Part):
    """Options that decide about data: in a cluster they are the same for all members.

    Without values for a broker alone, whose own configuration decides.
    """

    def __init__(self) -> None:
        self.values: dict[str, Setting] = {}
        """By name. Replaced as a whole by a change."""
        self.changed: dict[str, Setting] = {}
        """Options that were changed while a broker alone was running. A cluster ignores them."""


class Place(msgspec.Struct, array_like=True, frozen=True):
    """Where an unreplicated topic or exchange is."""

    node: int
    exchange: bool = False


class Unreplicated(Part):
    """The names of unreplicated topics and exchanges, which one node alone has.

    All members know these names, so that no other topic gets one. The content is in that node's own log.
    """

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        """By full name."""

    def require_free(self, name: str) -> None:
        """Raise Exists if an unreplicated topic or exchange has this full name."""
        found = self.places.get(name)
        if found is not None:
            what = "exchange" if found.exchange else "topic"
            raise Exists(
                f"the {what} {name} exists already, unreplicated on node {found.node}; use another name"
            )
