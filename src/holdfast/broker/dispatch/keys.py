"""The keys of one Key_Shared subscription, as the tables of this member have them.

Promises upward: the tables know to which consumer each hash belongs, also to consumers of other members.
Needs from below: the consumers in the order in which they joined, which is the same for all members.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from holdfast._core import Dispatch
from holdfast.broker.dispatch.attached import Attached
from holdfast.broker.dispatch.types import Cursor, DrainingHash, KeyStats
from holdfast.broker.key_shared import KeyShared, split
from holdfast.formatting import plural
from holdfast.group import Member

LISTED_MAX = 1000
"""Draining hashes and ranges that stats list; the counts are exact."""
LOOKED_MAX = 10_000
"""Entries of each other member that are looked at for its draining hashes."""
AT_ONCE = 100
"""Consumers for which the hashes are split again in the next turn of the loop; for more, later."""
SEAT_S = 20e-6
"""Time between two splits for each consumer above `AT_ONCE`: a split takes some 5 µs for each."""


@dataclass(frozen=True)
class _Seat:
    name: str
    keys: KeyShared
    consumer: int
    """Its id in the tables; 0: it is at another member, or not attached."""
    session: int


class Keys:
    """The split of one subscription's keys."""

    def __init__(self, table: Dispatch, cursor: Cursor, member: Member | None = None) -> None:
        self._table = table
        self._cursor = cursor
        self._member = member
        self._seats: list[_Seat] = []
        self._ranges: list[tuple[int, int, int]] = []
        self._of_seats: dict[int, tuple[tuple[int, int], ...]] = {}
        """The ranges by seat, as stats show them; empty: not collected since the last split."""
        self._attached: Mapping[int, Attached] = {}
        self._coming: asyncio.Handle | None = None
        """The next split."""
        self._stale = False
        """Consumers have joined or left since the last split."""

    def begin(self, keys: KeyShared, ahead_max: int) -> None:
        """Make the tables those of a Key_Shared subscription."""
        self._table.set_keyed(keys.unordered)
        self._table.set_ahead_max(ahead_max)

    def prepare(self, ahead_max: int) -> None:
        """Follow the replicated state before a consumer is attached here, which comes a moment later."""
        first = next(iter(self._cursor.consumers.values()), None)
        if first is not None and first.keys is not None and not self._table.keyed:
            self.begin(first.keys, ahead_max)

    def follow(self, attached: Mapping[int, Attached], then: Callable[[], None]) -> None:
        """Split soon, once for all consumers that join or leave until then; call `then` afterwards.

        Of a thousand consumers a lost connection takes all in one turn, and a split costs some ms. Until then
        the old split holds, without those that have left: safety does not depend on it.
        """
        if not self._table.keyed:
            return
        self._attached, self._stale = attached, True
        if self._coming is not None:
            return

        def due() -> None:
            self._coming = None
            self._settle()
            then()

        loop, seats = asyncio.get_running_loop(), max(len(attached), len(self._seats))
        if seats <= AT_ONCE:
            self._coming = loop.call_soon(due)
        else:
            self._coming = loop.call_later(SEAT_S * seats, due)

    def stop(self) -> None:
        """Split no more."""
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def _settle(self) -> None:
        """Split now, if that is to come: stats show the consumers of this moment."""
        if self._stale:
            self.split(self._attached)

    def split(self, attached: Mapping[int, Attached]) -> None:
        """Follow consumers that have joined or left, or that may have permits again."""
        if not self._table.keyed:
            return
        self._attached, self._stale = attached, False
        here = {each.session: each.id for each in attached.values() if each.session}
        full = self._cursor.full
        if here or self._cursor.consumers:
            seats = [
                _Seat(each.name, each.keys or KeyShared(), here.get(session, 0), session)
                for session, each in self._cursor.consumers.items()
            ]
        else:  # a volatile subscription: all its consumers are here
            seats = [_Seat(each.name, each.keys or KeyShared(), each.id, 0) for each in attached.values()]
        if [(each.name, each.keys) for each in seats] != [(each.name, each.keys) for each in self._seats]:
            self._ranges = split([(each.name, each.keys) for each in seats])
            self._of_seats = {}
        self._seats = seats
        self._table.assign(self._ranges, [(each.consumer, each.session not in full) for each in seats])

    # -- other members ---------------------------------------------------------------------------------

    def members_due(self) -> list[Member]:
        """Return other members for whose consumers there are entries, as far as those have permits."""
        due = {self._member_of(self._seats[at]) for at in self._table.due_elsewhere()}
        return sorted(each for each in due if each is not None and each != self._member)

    def full(self) -> list[int]:
        """Return sessions of this member's consumers that can take nothing now."""
        return [each.session for each in self._seats if self._is_mine(each) and not self._may_take(each)]

    def opened(self) -> list[int]:
        """Return sessions of this member's consumers that were full, and are not any more."""
        full = self._cursor.full
        return [each.session for each in self._seats if each.session in full and self._may_take(each)]

    def _member_of(self, seat: _Seat) -> Member | None:
        found = self._cursor.consumers.get(seat.session)
        return None if found is None else found.member

    def _is_mine(self, seat: _Seat) -> bool:
        return self._member_of(seat) == self._member

    def _may_take(self, seat: _Seat) -> bool:
        return seat.consumer in self._attached and self._table.may_take(seat.consumer)

    @property
    def sharing(self) -> KeyShared | None:
        """How the consumers share keys; None: they are not of type key_shared."""
        self._settle()
        return self._seats[0].keys if self._table.keyed and self._seats else None

    # -- looking ---------------------------------------------------------------------------------------

    def text(self) -> str:
        """Say which keys wait for which consumers."""
        self._settle()
        names = {each.consumer: each.name for each in self._seats if each.consumer}
        draining = [
            (hash_, entries, names.get(holder, "another consumer"))
            for hash_, entries, _, holder, _ in self._table.draining()
        ]
        draining += [
            (each.hash, each.entries, f"another member, {each.holder},") for each in self.elsewhere()
        ]
        shown = [
            f"hash {hash_} waits until {holder} has acknowledged {plural(entries, 'entry')}"
            for hash_, entries, holder in draining[:3]
        ]
        if len(draining) > 3:
            shown.append(f"{len(draining) - 3} more hashes wait")
        return "; ".join(shown) or "their consumers have no permits, hold earlier messages, or are not here"

    def elsewhere(self) -> list[DrainingHash]:
        """Return hashes that drain at other members, for consumers of this or a third one.

        The replicated state has the entries that members held when they released the subscription, so the
        owner knows those of all others. The stats of a member list what drains between its own consumers.
        """
        sharing = self.sharing
        if sharing is None or sharing.unordered:
            return []
        found = []
        for member, ranges in self._cursor.held.items():
            if member == self._member:
                continue
            for hash_, entries in sorted(self._open_of(ranges, self._cursor.hashes.get(member, b"")).items()):
                seat = self._seat_of(hash_)
                if seat is None or self._member_of(seat) != member:
                    waiting = "" if seat is None else seat.name
                    found.append(DrainingHash(hash_, entries, 0, waiting, f"node {member.node}"))
        return found

    def _open_of(self, ranges: Sequence[tuple[int, int]], hashes: bytes) -> Counter[int]:
        """Count unacknowledged entries by hash."""
        every = (ordinal for first, end in ranges for ordinal in range(first, end))
        ordinals = islice(every, LOOKED_MAX)
        of_each = (int.from_bytes(hashes[at : at + 2], "little") for at in range(0, len(hashes), 2))
        acks = self._cursor.acks
        return Counter(
            hash_ for ordinal, hash_ in zip(ordinals, of_each, strict=False) if not acks.is_acked(ordinal)
        )

    def _seat_of(self, hash_: int) -> _Seat | None:
        at = bisect_right(self._ranges, hash_, key=lambda each: each[0]) - 1
        found = at >= 0 and self._ranges[at][1] >= hash_
        return self._seats[self._ranges[at][2]] if found else None

    def stats(self) -> dict[int, KeyStats]:
        """Return the stats of each consumer here, by its id in the tables."""
        self._settle()
        if not self._of_seats:  # once for a split: a thousand consumers have 50,000 ranges
            ranges: dict[int, list[tuple[int, int]]] = {}
            for first, last, at in self._ranges:
                ranges.setdefault(at, []).append((first, last))
            self._of_seats = {at: tuple(each) for at, each in ranges.items()}
        draining: dict[int, list[DrainingHash]] = {}
        for hash_, entries, blocked, holder, seat in self._table.draining():
            waiting = "" if seat is None else self._seats[seat].name
            draining.setdefault(holder, []).append(DrainingHash(hash_, entries, blocked, waiting))
        found = {}
        for at, each in enumerate(self._seats):
            if each.consumer:
                drains = draining.get(each.consumer, [])
                found[each.consumer] = KeyStats(
                    self._of_seats.get(at, ()),
                    tuple(drains[:LISTED_MAX]),
                    len(drains),
                    sum(one.entries for one in drains),
                    self._table.drained(each.consumer),
                )
        return found
