"""Keep the compaction of a topic: its views, and the run of the next one.

```
 requested ──► Begin: run ──► Append … ──► Done: view ──► Settle: entries below its horizon may be trimmed
     ▲            │   ▲          │                │
     │            │   └──────────┘                └─► the view before it stays until then
     └── a new owner begins anew                  Drop: the run failed; the views stay
```

A view is a ledger file with the surviving entries, and the ordinals of these entries. It is complete in the
moment in which it exists: one event replaces the former view (**I310**). Entries from `floor` on are not
trimmed: the next run, and readers of the view before, need them (**I311**).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
from pyroaring import BitMap64

from holdfast.broker.part import Part
from holdfast.errors import Misuse

if TYPE_CHECKING:
    from holdfast.broker.state import BrokerState, TopicState
    from holdfast.ledger import LedgerTable


class Place(msgspec.Struct, array_like=True, frozen=True):
    """A ledger with entries of a view. The topic may have trimmed it since."""

    ledger: int
    """The id for users."""
    first: int
    """The ordinal of its entry 0."""
    entries: int
    """How many of its entries are below the horizon."""
    last_time: int
    """Log time of the last of them, or of a later one."""

    @property
    def end(self) -> int:
        return self.first + self.entries


class CompactedView(msgspec.Struct, array_like=True, frozen=True):
    """A compacted view of a topic: of each key the newest message below the horizon."""

    number: int
    """Rises with each view of a topic, and is never used again."""
    horizon: int
    """The ordinal below which the view stands for the topic."""
    file: int
    """The ledger file with the surviving entries, in order; 0: there are none."""
    entries: int
    size: int
    """Bytes of the file."""
    survivors: bytes
    """The ordinals of its entries, in order: a 64-bit Roaring bitmap in its portable format."""
    places: tuple[Place, ...]
    """The ledgers of these entries, in order: their ids stay those of the topic."""
    time: int
    """Log time at which it was complete."""
    read: int = 0
    """Messages that were read to make it."""
    kept: int = 0
    """Messages in it."""
    duration_ms: int = 0


class CompactionRun(msgspec.Struct, array_like=True):
    """A view that is being written."""

    token: bytes
    """16 random bytes from the member that writes it."""
    base: int
    """Number of the view that it continues; 0: none."""
    start: int
    """Where the topic's entries begin that it reads."""
    horizon: int
    hidden: int
    """The id of its ledger's owner in the log, without a topic."""
    count: int = 0
    size: int = 0
    """Bytes of the entries."""
    digest: int = 0
    file: int = 0
    file_size: int = 0


class Compaction(Part):
    """The compaction of one topic."""

    def __init__(self, topic: int) -> None:
        self.topic = topic
        self.views = 0
        """Number of the last view."""
        self.view: CompactedView | None = None
        self.before: CompactedView | None = None
        """The view before it, for readers that began in it."""
        self.floor = -1
        """Entries of the topic from here on are not trimmed; −1: compaction keeps none."""
        self.requested = 0
        """Log time of a request that is not carried out yet; 0: without one."""
        self.error = ""
        """Why the last run failed; empty: it succeeded."""
        self.error_time = 0
        self.run: CompactionRun | None = None

    @property
    def kept(self) -> tuple[CompactedView, ...]:
        """The views that are kept, the newest first."""
        return tuple(each for each in (self.view, self.before) if each is not None)

    @property
    def is_settled(self) -> bool:
        """Whether only the newest view is kept, and nothing below its horizon."""
        return self.view is None or (self.before is None and self.floor >= self.view.horizon)

    @property
    def is_idle(self) -> bool:
        """Whether nothing has to be remembered but a failure."""
        return self.view is None and self.run is None and not self.requested

    def keeps(self, end: int) -> int:
        """Return up to where entries below `end` may be trimmed (**I311**)."""
        return end if self.floor < 0 else min(end, self.floor)

    def files(self) -> Iterator[tuple[int, int, int]]:
        """Yield file, size of the data and number of entries of every live ledger."""
        for view in self.kept:
            if view.file:
                yield view.file, view.size, view.entries
        if self.run is not None and self.run.file:
            yield self.run.file, self.run.file_size, self.run.count


def decode_survivors(survivors: bytes, count: int, horizon: int) -> BitMap64:
    """Decode the ordinals of a view's entries.

    Raises:
        Misuse: the bytes are not the ordinals of so many entries below the horizon.
    """
    try:
        found = BitMap64.deserialize(survivors)
    except (ValueError, IndexError) as error:
        raise Misuse(f"the ordinals of a compacted view do not decode: {error}; compact again") from error
    if len(found) != count or (count and found.max() >= horizon):
        raise Misuse(
            f"a compacted view of {count} entries below {horizon} has {len(found)} ordinals; compact again"
        )
    return found


def places_of(
    ledgers: LedgerTable, before: CompactedView | None, survivors: BitMap64, horizon: int
) -> tuple[Place, ...]:
    """Return the ledgers of surviving entries; the last view knows trimmed ones."""
    first = ledgers.first
    known = [] if before is None else [each for each in before.places if each.end <= first]
    known += [
        Place(each.id, each.first, min(each.end, horizon) - each.first, each.last_time)
        for each in ledgers
        if each.first < horizon
    ]
    return tuple(each for each in known if survivors.range_cardinality(each.first, each.end))


def end_run(state: BrokerState, compaction: Compaction) -> None:
    """Remove the run with what it has written."""
    if compaction.run is not None:
        state.log.remove_topic(compaction.run.hidden)
        compaction.run = None


def forget_compaction(state: BrokerState, topic: TopicState) -> bool:
    """Remove views, run and request of a topic. Returns whether it had any.

    The counter of views stays: readers of a view that is gone must not take a later one for it.
    """
    compaction = topic.compaction
    if compaction is None or (compaction.is_idle and not compaction.error):
        return False
    end_run(state, compaction)
    compaction.view = compaction.before = None
    compaction.floor, compaction.requested, compaction.error = -1, 0, ""
    state.touch(compaction)
    return True


def remove_compaction(state: BrokerState, topic: TopicState) -> None:
    """Remove the compaction of a topic that is deleted."""
    compaction = state.compactions.pop(topic.id, None)
    topic.compaction = None
    if compaction is not None:
        end_run(state, compaction)


def check_compaction(state: BrokerState, compaction: Compaction) -> None:
    """Assert the invariants of one topic's compaction."""
    where = f"compaction of topic {compaction.topic}"
    topic = state.topics[compaction.topic]
    assert topic.compaction is compaction, f"I44: {where} is not with its topic"
    end, view, before = topic.ledgers.end, compaction.view, compaction.before
    for each in compaction.kept:
        assert each.horizon <= end, f"I310: {where}: view {each.number} ends behind the topic"
        assert (each.entries > 0) == (each.file > 0), f"I310: {where}: view {each.number} and its file"
        decode_survivors(each.survivors, each.entries, each.horizon)
        assert each.number <= compaction.views, f"I42: {where} above its counter"
    assert compaction.floor < 0 or topic.ledgers.first <= compaction.floor, f"I311: {where}: entries are gone"
    if before is not None:
        assert view is not None, f"I310: {where} has only the view before"
        assert before.number < view.number, f"I310: {where}: {before.number} before {view.number}"
        assert before.horizon <= view.horizon, f"I310: {where} has moved back"
        assert compaction.floor <= before.horizon, f"I311: {where} keeps entries from {compaction.floor}"
    if view is not None:
        assert 0 <= compaction.floor <= view.horizon, f"I311: {where} keeps entries from {compaction.floor}"
    run = compaction.run
    if run is not None:
        assert run.hidden < state.next_topic, f"I42: {where} above its counter"
        assert state.log.tail(run.hidden)[0] == run.count, f"I310: {where}: entries of its run"
        assert run.base == (0 if view is None else view.number), f"I310: {where} continues another view"
        assert run.start <= run.horizon <= end, f"I310: {where}: its range"
