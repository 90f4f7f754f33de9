"""A topic as this broker serves it: its visible entries and its dispatchers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from holdfast._core import Batch, Entries, TopicMessage
from holdfast.broker.compaction.reading import ViewIndex
from holdfast.broker.dispatch.stuck import Look, diagnose
from holdfast.broker.events.schemas import applying
from holdfast.broker.telemetry.traffic import Handed, TopicTraffic
from holdfast.broker.topic_kinds import size_behind
from holdfast.errors import Corrupt, Misuse, NotFound
from holdfast.group import Member
from holdfast.ids import EARLIEST, LATEST, MessageId
from holdfast.names import no_subscription

if TYPE_CHECKING:
    from holdfast.broker.api.consumer import Start
    from holdfast.broker.compaction.state import CompactedView
    from holdfast.broker.dispatch.dispatcher import Dispatcher
    from holdfast.broker.dispatch.types import Diagnosis
    from holdfast.broker.state import Policies, Producer, SubscriptionState, TopicState
    from holdfast.ledger import LedgerInfo, LedgerTable


DAMAGED_MAX = 1000
"""Damaged entries of a topic that are remembered; others are not."""


def time_of(place: object) -> int:
    """Return the ns of a place that is a time.

    Raises:
        Misuse: the place is not a time.
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
    """The store, as topics use it."""

    async def read(
        self, ledger: int, first_ordinal: int, entry: int, count_max: int, size_max: int, label: int = 0
    ) -> Entries:
        """Read a run of entries of one ledger, under the id `label` if given."""

    async def time(self, ledger: int, entry: int) -> int:
        """Return the log time of an entry."""

    @property
    def missing(self) -> Set[int]:
        """The numbers of ledgers that are not here yet."""


class Topic:
    """The readers' side of a topic: ordinals in `[first, visible)` can be read.

    An entry that a crash could take back is not visible (**I63**).
    """

    def __init__(self, state: TopicState, visible: int, store: LedgerReader) -> None:
        self.state = state
        self.name = state.name
        self.visible = visible
        self._store = store
        self.dispatchers: dict[int, Dispatcher] = {}
        """By subscription id; volatile subscriptions have negative ids."""
        self.volatile: dict[str, Dispatcher] = {}
        """Dispatchers of subscriptions without a durable cursor, by name."""
        self.limits: tuple[Policies, Policies, Policies] | None = None
        """Derived, see `Limiting.of`: own policies, the broker's options, and the former over the latter."""
        self.traffic = TopicTraffic()
        self.damaged: set[int] = set()
        """Ordinals of entries that could not be read."""
        self._timed: tuple[int, int] | None = None
        """The last ordinal whose log time was asked for, and that time."""
        self._indexes: dict[int, ViewIndex] = {}
        """Of the compacted views that are kept, by number."""

    # -- properties ------------------------------------------------------------------------------------

    @property
    def id(self) -> int:
        return self.state.id

    @property
    def incarnation(self) -> bytes:
        """16 random bytes: a topic that was deleted and created again has others."""
        return self.state.incarnation

    @property
    def created(self) -> int:
        """When it was created, in log time."""
        return self.state.created

    @property
    def is_whole(self) -> bool:
        """Whether all its ledgers are here: a member that joins fetches them while it serves."""
        missing = self._store.missing
        return not missing or not any(info.file in missing for info in self.state.ledgers)

    @property
    def updating(self) -> list[Member]:
        """The members that lack ledgers of it, in ascending order."""
        return sorted(self.state.unready)

    @property
    def missing_bytes(self) -> int:
        """Bytes of its ledgers that are not here yet."""
        missing = self._store.missing
        return sum(info.size for info in self.state.ledgers if info.file in missing) if missing else 0

    @property
    def policies(self) -> Policies:
        """The topic's own policies, without those of its namespace."""
        return self.state.policies

    @property
    def has_compaction(self) -> bool:
        """Whether a compaction was requested, or left a view."""
        return self.state.compaction is not None

    @property
    def terminated(self) -> bool:
        return self.state.terminated

    @property
    def schemas(self) -> Sequence[bytes]:
        """Its schemas, by version."""
        return self.state.schemas

    @property
    def schemas_applying(self) -> list[tuple[int, bytes]]:
        """Versions and schemas since the last deletion: those that apply to new clients."""
        return applying(self.state.schemas)

    @property
    def ledgers(self) -> LedgerTable:
        """All ledgers, also of entries that are not visible yet."""
        return self.state.ledgers

    @property
    def subscriptions(self) -> Mapping[str, SubscriptionState]:
        """The durable subscriptions, by name."""
        return self.state.subscriptions

    @property
    def producers(self) -> Mapping[int, Producer]:
        """Producers that may publish, by session."""
        return self.state.producers

    @property
    def producers_waiting(self) -> int:
        """Number of producers that wait for exclusive access."""
        return len(self.state.waiting)

    @property
    def acked_to(self) -> int:
        """The ordinal below which all subscriptions have acknowledged everything."""
        return self.state.acked_to

    @property
    def first(self) -> int:
        return self.state.ledgers.first

    # -- dispatchers and reads -------------------------------------------------------------------------

    def subscription(self, name: str) -> SubscriptionState:
        """Return a durable subscription.

        Raises:
            NotFound: the topic has no subscription of that name; the text lists some that it has.
        """
        found = self.subscriptions.get(name)
        if found is None:
            raise NotFound(no_subscription(self.name, name, self.subscriptions))
        return found

    def dispatcher_of(self, subscription: SubscriptionState) -> Dispatcher | None:
        """Return the dispatcher of a subscription, if it has had consumers here."""
        return self.dispatchers.get(subscription.id)

    def diagnose(self, subscription: SubscriptionState) -> Diagnosis:
        """Say why a subscription makes no progress, also before its first consumer."""
        dispatcher = self.dispatcher_of(subscription)
        if dispatcher is not None:
            return dispatcher.diagnose()
        return diagnose(Look(backlog=self.backlog(subscription), idle_s=0.0), stuck_after_s=math.inf)

    @property
    def served(self) -> Sequence[Dispatcher]:
        """The dispatchers of all subscriptions, volatile ones included."""
        return list(self.dispatchers.values())

    @property
    def readers(self) -> int:
        """Number of attached consumers of volatile subscriptions."""
        return sum(each.consumers for id_, each in self.dispatchers.items() if id_ < 0)

    def close(self, reason: Exception) -> None:
        """Close all dispatchers."""
        for dispatcher in self.served:
            dispatcher.close(reason)

    def grow(self, visible: int) -> None:
        """Make more entries visible, and wake the dispatchers."""
        if visible <= self.visible:
            return
        self.visible = visible
        for dispatcher in self.dispatchers.values():
            dispatcher.wake()

    def forget(self, subscription: int) -> Dispatcher | None:
        """Remove and return the dispatcher of a deleted subscription. Its counts stay in the total."""
        gone = self.dispatchers.pop(subscription, None)
        if gone is not None:
            before, more = self.traffic.gone, gone.handed
            self.traffic.gone = Handed(before.messages + more.messages, before.bytes + more.bytes)
        return gone

    async def read(self, ordinal: int, count_max: int, size_max: int) -> Entries:
        """Read a run of at least one entry from an ordinal on, within one ledger.

        Raises:
            NotFound: the entry was trimmed, or is not visible yet.
        """
        if not self.first <= ordinal < self.visible:
            raise NotFound(
                f"{self.name} has no visible entry at {ordinal}: positions are {self.first} to "
                f"{self.visible - 1}"
            )
        info = self.state.ledgers.at(ordinal)
        count = min(count_max, info.end - ordinal, self.visible - ordinal)
        entries = await self._store.read(
            info.file, info.first, ordinal - info.first, count, size_max, label=info.id
        )
        self.traffic.read += len(entries)
        return entries

    def index_of(self, view: CompactedView) -> ViewIndex:
        """Return the ordinals of a compacted view; all its readers share them."""
        found = self._indexes.get(view.number)
        if found is None:
            kept = () if self.state.compaction is None else self.state.compaction.kept
            numbers = {each.number for each in kept}
            self._indexes = {key: each for key, each in self._indexes.items() if key in numbers}
            found = self._indexes[view.number] = ViewIndex(view)
        return found

    async def read_view(self, view: CompactedView, rank: int, count_max: int, size_max: int) -> Entries:
        """Read a run of a compacted view, from this entry of its file on.

        Raises:
            NotFound: the view was removed.
        """
        entries = await self._store.read(view.file, 0, rank, min(count_max, view.entries - rank), size_max)
        self.traffic.read += len(entries)
        return entries

    async def read_on(self, ordinal: int, count_max: int, size_max: int) -> Entries | None:
        """Read a run at the first kept ordinal from `ordinal` on; `None` at the end."""
        while (ordinal := max(ordinal, self.first)) < self.visible:
            try:
                return await self.read(ordinal, count_max, size_max)
            except (NotFound, FileNotFoundError):
                if ordinal >= self.first:
                    raise  # not trimmed
        return None

    def note_batches(self, messages: int, entries: int) -> None:
        """Count messages that were published in batches; the core counts only entries."""
        self.traffic.batched += messages - entries

    def note_damage(self, ordinal: int) -> None:
        """Remember an entry that could not be read, up to `DAMAGED_MAX` of them."""
        if len(self.damaged) < DAMAGED_MAX:
            self.damaged.add(ordinal)

    async def require_whole(self, ordinal: int) -> None:
        """Read an entry again that was found damaged: it may have been repaired.

        Raises:
            Corrupt: the entry is damaged; the text names file and position.
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
        """Return messages of some of these entries, without those that the subscription acknowledged."""
        first = entries.first_ordinal
        bits = {} if subscription is None else subscription.acks.bits_in(first, first + len(entries))
        open_ = [bits.get(first + at) for at in wanted] if bits else None
        return list(Batch(entries, list(wanted), open=open_, topic=self.name))

    def backlog(self, subscription: SubscriptionState) -> int:
        """Return the exact number of visible entries that the subscription has not acknowledged."""
        acks = subscription.acks
        total = acks.count(self.visible)
        if acks.acked_to >= self.first:
            return total
        # It may read a compacted view, which has some of the entries that the topic has trimmed.
        trimmed, compaction = acks.count(self.first), self.state.compaction
        view = None if compaction is None else compaction.view
        kept = 0 if view is None else self.index_of(view).count(acks.acked_to, self.first)
        return total - trimmed + min(trimmed, kept)

    def size_behind(self, ordinal: int) -> int:
        """Return the bytes from an ordinal on; its own ledger's are estimated."""
        return size_behind(self.state.ledgers, ordinal)

    async def messages_at(self, ordinal: int) -> int:
        """Return the number of messages of an entry, which may be a batch.

        Raises:
            NotFound: the entry was trimmed, or is not visible yet.
        """
        return (await self.read(ordinal, 1, 1)).messages(0)

    async def time_on(self, ordinal: int) -> int | None:
        """Return the log time of the first kept entry from an ordinal on.

        Entries may be trimmed meanwhile. `None` at the end. The last answer is kept: housekeeping asks again
        for the same entry of an idle topic.
        """
        while (ordinal := max(ordinal, self.first)) < self.visible:
            if self._timed is not None and self._timed[0] == ordinal:
                return self._timed[1]
            info = self.state.ledgers.at(ordinal)
            found = await self._time(info, ordinal - info.first)
            if found is not None:
                self._timed = (ordinal, found)
                return found
        return None

    async def _time(self, info: LedgerInfo, entry: int) -> int | None:
        """Return the time of an entry; `None` if its ledger is trimmed meanwhile.

        The result is within the times of its ledger. Blocks of adopted files are older, and a wrong clock may
        have written some.
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
        """Return the id of the entry at an ordinal."""
        return self.state.ledgers.id_of(ordinal)

    def id_text(self, ordinal: int) -> str:
        """Return the id at an ordinal as text; "start" or "end" outside the kept entries."""
        if self.first <= ordinal < self.state.ledgers.end:
            return str(self.id_of(ordinal))
        return "end" if ordinal >= self.first else "start"

    def last_id(self) -> MessageId:
        """Return the id of the last visible entry; `EARLIEST` for an empty topic."""
        return self.id_of(self.visible - 1) if self.visible > self.first else EARLIEST

    def ordinal_of(self, position: MessageId) -> int:
        """Return the first ordinal at or after an id, within `[first, visible]`."""
        if position == EARLIEST:
            return self.first
        if position == LATEST:
            return self.visible
        return min(max(self.state.ledgers.ordinal(position.ledger, position.entry), self.first), self.visible)

    async def place(self, to: Start, *, exact: bool = False, after: bool = False) -> int:
        """Return the ordinal of a place.

        It is the target of a reset, or the start of a subscription. An id that the topic does not have stands
        for the next message that it has. With `exact` such an id is refused. With `after`, the place is
        behind the message of the id.

        Raises:
            Misuse: `to` is not a place; or with `exact`, the topic has no such position.
        """
        if to == "earliest" or to == EARLIEST:
            return self.state.lowest
        if to == "latest":
            return self.visible
        if not isinstance(to, MessageId):
            return await self.ordinal_at(time_of(to))
        if to.ledger in (EARLIEST.ledger, LATEST.ledger):  # clients differ in the entry
            return self.ordinal_of(to)
        info = self.ledgers.find(to.ledger)
        known = info is not None and -1 <= to.entry < min(info.end, self.visible) - info.first
        if exact and not known:
            raise Misuse(f"{self.name} has no position {to.ledger}:{to.entry}; {self._messages_kept()}")
        return self.ordinal_of(to) + (after and known and to.entry >= 0)

    def _messages_kept(self) -> str:
        if self.visible <= self.first:
            return "it has no messages"
        return f"its messages are {self.id_of(self.first)} to {self.last_id()}"

    async def ordinal_at(self, time_ns: int) -> int:
        """Return the first ordinal that was published at or after a time, by binary search.

        Staged entries count from their commit: the blocks of an adopted ledger are older than the ledger.
        Ledgers that are trimmed meanwhile are skipped.
        """
        for info in self.state.ledgers.since(time_ns):
            low = high = 0
            if info.opened_time < time_ns:  # else its first entry is the one, without a read
                high = min(info.end, self.visible) - info.first
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
