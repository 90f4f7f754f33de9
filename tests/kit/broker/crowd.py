"""A group whose other members exist only in its view, for tests."""

from __future__ import annotations

from typing import Any

from holdfast import _core
from holdfast.broker.events import Event, MemberAnnounce, kinds
from holdfast.broker.member_state import MemberInfo
from holdfast.group import FRAME_BYTES, Listener, LocalGroup, Member, View

A, B, C = Member(1, 1), Member(2, 1), Member(3, 1)


class CrowdedGroup(LocalGroup):
    """A group of one real member; the others say what a test lets them say."""

    alone = False
    frame_bytes = FRAME_BYTES

    def __init__(self, me: Member = A, others: tuple[Member, ...] = (B, C), view_id: int = 1) -> None:
        super().__init__(me.node, view_id, explicit_holds=True)
        self._member = me
        self._others = others
        self.frames: list[bytes] = []
        """Frames that the real member sent."""

    async def start(self, listener: Listener) -> None:
        self._begin(listener)
        self.enter(*self._others)

    def enter(self, *others: Member) -> None:
        """Enter a view with these other members."""
        self._others = others
        members = tuple(sorted((self._member, *others)))
        view = View(self._view_id, members=members, joined=members, left=(), quorate=True)
        self._view_id += 1
        self._install(view)

    def mcast(self, event: bytes) -> None:
        self.frames.append(bytes(event))
        super().mcast(event)

    def say(self, member: Member, *events: Event) -> None:
        """Let another member send a frame of events."""
        frame = _core.Frame()
        for event in events:
            frame.event(event.kind, event.version, event.encode())
        self._deliver(member, frame.take(0))

    def announce(self, *members: Member, **facts: str) -> None:
        """Let other members announce themselves, each with addresses that tell its node."""
        for member in members:
            self.say(member, MemberAnnounce(info_of(member, **facts)))


def info_of(member: Member, **facts: str) -> MemberInfo:
    """Facts about a member with addresses that tell its node."""
    host = f"node{member.node}"
    own: dict[str, Any] = {
        "name": host,
        "url": f"pulsar://{host}:6650",
        "tls_url": f"pulsar+ssl://{host}:6651",
        "http_url": f"http://{host}:8080",
        "program": "1.0",
    }
    return MemberInfo(
        member,
        **(own | facts),
        versions={number: kind.version for number, kind in kinds().items()},
        listeners={"inside": (f"pulsar://{host}.local:6650", "")},
    )
