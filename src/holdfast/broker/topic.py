"""A topic as this broker serves it: what of it may be seen, and who reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from holdfast._core import Batch, Entries, TopicMessage
from holdfast.broker.telemetry.traffic import Handed, TopicTraffic
from holdfast.errors import Corrupt, Misuse, NotFound
from holdfast.ids import EARLIEST, LATEST, MessageId

if TYPE_CHECKING:
    from holdfast.broker.dispatch.dispatcher import Dispatcher
    from holdfast.broker.state import Policies, Producer, SubscriptionState, TopicState
    from holdfast.ledger.ledgers import LedgerInfo, LedgerTable


DAMAGED_MAX = 1000
"""Damaged entries of a topic that are remembered."""


def time_of(place: object) -> int:
    """Return the ns of a place that is a time.

    Raises:
        Misuse: it is no time.
    """
    if isinstance(place, int):
        return place
    if isinstance(place, datetime):
        return round(place.timestamp() * 1e9)
    raise Misuse(
        f"{place!r} is not a place in a topic; use 'earliest', 'latest', a MessageId, a datetime, "
        "or nanoseconds since 1970"
    )


class LedgerReader(Protocol):
    """What a topic needs of the store."""

    async def read(
        self, ledger: int, first_ordinal: int, entry: int, count_max: int, size_max: int, label: int = 0
    ) -> Entries:
        """A run of entries of one ledger; `label` is the id that users see, where it differs."""

    async def time(self, ledger: int, entry: int) -> int:
        """The log time of an entry."""


class Topic:
    """The readers' side of a topic. Nothing here shows what a crash could take back (**I63**).

    Positions are ordinals, half-open: everything in `[first, visible)` can be read.
    """

    def __init__(self, state: TopicState, visible: int, store: LedgerReader) -> None:
        self.state = state
        self.name = state.name
        self.visible = visible
        self._store = store
        self.dispatchers: dict[int, Dispatcher] = {}
        """By subscription id; those of volatile subscriptions have negative ones."""
        self.volatile: dict[str, Dispatcher] = {}
        """Of subscriptions without a durable cursor, by name."""
        self.traffic = TopicTraffic()
        self.last_index = (-1, -1)
        """The last entry, and the index of its last message if it is a batch, as they were asked for last."""
        self.damaged: set[int] = set()
        """Entries that could not be read."""

    # -- what it is ------------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        return self.state.id

    @property
    def incarnation(self) -> bytes:
        """16 random bytes: a topic that was deleted and created again has others."""
        return self.state.incarnation

    @property
    def created(self) -> int:
        """Log time."""
        return self.state.created

    @property
    def policies(self) -> Policies:
        """The topic's own."""
        return self.state.policies

    @property
    def terminated(self) -> bool:
        return self.state.terminated

    @property
    def schemas(self) -> Sequence[bytes]:
        """By version."""
        return self.state.schemas

    @property
    def ledgers(self) -> LedgerTable:
        """All of them, also entries that are not visible yet: compare with `visible`."""
        return self.state.ledgers

    @property
    def subscriptions(self) -> Mapping[str, SubscriptionState]:
        """The durable ones, by name."""
        return self.state.subscriptions

    @property
    def producers(self) -> Mapping[int, Producer]:
        """Those that may publish, by session."""
        return self.state.producers

    @property
    def producers_waiting(self) -> int:
        """How many wait for exclusive access."""
        return len(self.state.waiting)

    @property
    def acked_to(self) -> int:
        """All subscriptions have acknowledged every ordinal below."""
        return self.state.acked_to

    @property
    def first(self) -> int:
        return self.state.ledgers.first

    # -- who serves it ---------------------------------------------------------------------------------

    def dispatcher_of(self, subscription: SubscriptionState) -> Dispatcher | None:
        """Return the dispatcher of a subscription, if it has had consumers here."""
        return self.dispatchers.get(subscription.id)

    @property
    def served(self) -> Sequence[Dispatcher]:
        """The dispatchers of all subscriptions, volatile ones included."""
        return list(self.dispatchers.values())

    def close(self, reason: Exception) -> None:
        """Close all dispatchers."""
        for dispatcher in self.served:
            dispatcher.close(reason)

    def grow(self, visible: int) -> None:
        """More may be seen: wake who waits for it."""
        if visible <= self.visible:
            return
        self.visible = visible
        for dispatcher in self.dispatchers.values():
            dispatcher.wake()

    def forget(self, subscription: int) -> Dispatcher | None:
        """A subscription is there no more: whoever served it. What it handed out stays counted."""
        gone = self.dispatchers.pop(subscription, None)
        if gone is not None:
            before, more = self.traffic.gone, gone.handed
            self.traffic.gone = Handed(before.messages + more.messages, before.bytes + more.bytes)
        return gone

    async def read(self, ordinal: int, count_max: int, size_max: int) -> Entries:
        """A run from this ordinal on, of one ledger, at least one entry.

        Raises:
            NotFound: nothing to see there: it was trimmed, or is not visible yet.
        """
        if not self.first <= ordinal < self.visible:
            raise NotFound(
                f"{self.state.name} has nothing at {ordinal}: it shows [{self.first}, {self.visible})"
            )
        info = self.state.ledgers.at(ordinal)
        count = min(count_max, info.end - ordinal, self.visible - ordinal)
        entries = await self._store.read(
            info.file, info.first, ordinal - info.first, count, size_max, label=info.id
        )
        self.traffic.read += len(entries)
        return entries

    async def read_on(self, ordinal: int, count_max: int, size_max: int) -> Entries | None:
        """Read a run at this ordinal or behind it: entries may be trimmed meanwhile. `None` at the end."""
        while (ordinal := max(ordinal, self.first)) < self.visible:
            try:
                return await self.read(ordinal, count_max, size_max)
            except (NotFound, FileNotFoundError):
                if ordinal >= self.first:
                    raise  # not trimmed
        return None

    def note_batches(self, messages: int, entries: int) -> None:
        """Count messages that were published in batches: the core counts entries."""
        self.traffic.batched += messages - entries

    def note_damage(self, ordinal: int) -> None:
        """An entry could not be read. Of very many, those that were found first are known."""
        if len(self.damaged) < DAMAGED_MAX:
            self.damaged.add(ordinal)

    async def require_whole(self, ordinal: int) -> None:
        """Read an entry that was found damaged once more: it may have been mended.

        Raises:
            Corrupt: it is damaged; the text names file and position.
        """
        try:
            await self.read(ordinal, 1, 1)
        except Corrupt as error:
            self.note_damage(ordinal)
            raise Corrupt(
                f"{self.name}, position {ordinal}: {error}; restore a backup, or skip the entry, reset the "
                "subscription behind it, or set broker.skip_damaged"
            ) from error
        except NotFound:
            pass  # trimmed meanwhile
        self.damaged.discard(ordinal)

    def messages(
        self, entries: Entries, wanted: Sequence[int], subscription: SubscriptionState | None
    ) -> list[TopicMessage]:
        """The messages of some of these entries; of a batch those that the subscription has yet to see."""
        first = entries.first_ordinal
        bits = {} if subscription is None else subscription.acks.bits_in(first, first + len(entries))
        open_ = [bits.get(first + at) for at in wanted] if bits else None
        return list(Batch(entries, list(wanted), open=open_, topic=self.name))

    def backlog(self, subscription: SubscriptionState) -> int:
        """Entries that are visible and that the subscription has yet to acknowledge, exactly."""
        return subscription.acks.count(self.visible)

    def size_behind(self, ordinal: int) -> int:
        """How many bytes lie from an ordinal on; of the ledger that it is in, by the mean of its entries."""
        total = 0
        for info in reversed(self.state.ledgers):
            if info.end <= ordinal:
                break
            total += info.size * (info.end - max(info.first, ordinal)) // info.entries
        return total

    async def messages_at(self, ordinal: int) -> int:
        """How many messages an entry has: more than one, if it is a batch.

        Raises:
            NotFound: nothing to see there.
        """
        return (await self.read(ordinal, 1, 1)).messages(0)

    async def time_on(self, ordinal: int) -> int | None:
        """Return when the entry at this ordinal or the next one that is kept was published, in log time.

        Entries may be trimmed meanwhile. `None` at the end.
        """
        while (ordinal := max(ordinal, self.first)) < self.visible:
            info = self.state.ledgers.at(ordinal)
            found = await self._time(info, ordinal - info.first)
            if found is not None:
                return found
        return None

    async def _time(self, info: LedgerInfo, entry: int) -> int | None:
        """Return the time of an entry; `None` if its ledger is trimmed meanwhile.

        It is at most its ledger's: adopted files are older, and a wrong clock may have written some.
        """
        try:
            time_ns = await self._store.time(info.file, entry)
        except (NotFound, FileNotFoundError):
            if info.end > self.first:
                raise  # not trimmed
            return None
        return min(max(time_ns, info.opened_time), info.last_time)

    # -- positions -------------------------------------------------------------------------------------

    def id_of(self, ordinal: int) -> MessageId:
        """The id that users know for an ordinal."""
        return self.state.ledgers.id_of(ordinal)

    def id_text(self, ordinal: int) -> str:
        """For people: the id at an ordinal, or just before or after all that is kept."""
        if self.first <= ordinal < self.state.ledgers.end:
            return str(self.id_of(ordinal))
        return "end" if ordinal >= self.first else "start"

    def last_id(self) -> MessageId:
        """Of the last visible entry; `EARLIEST` where there is none."""
        return self.id_of(self.visible - 1) if self.visible > self.first else EARLIEST

    def ordinal_of(self, position: MessageId) -> int:
        """The first ordinal at or after an id: of a trimmed one the first that is left, at most `visible`."""
        if position == EARLIEST:
            return self.first
        if position == LATEST:
            return self.visible
        return min(max(self.state.ledgers.ordinal(position.ledger, position.entry), self.first), self.visible)

    async def ordinal_at(self, time_ns: int) -> int:
        """The first ordinal that was published at or after a time: by halving the table, then a ledger.

        What was staged counts from its commit: the blocks of an adopted ledger are older than the ledger.
        Ledgers that are trimmed meanwhile are passed over.
        """
        for info in self.state.ledgers.since(time_ns):
            low, high = 0, min(info.end, self.visible) - info.first
            while low < high:
                middle = (low + high) // 2
                found = await self._time(info, middle)
                if found is None:
                    low = high = info.entries
                elif found < time_ns:
                    low = middle + 1
                else:
                    high = middle
            if info.first + low < min(info.end, self.visible):
                return max(info.first + low, self.first)
        return self.visible
