"""Events of stages and sinks: publish entries in all topics at once, exactly once."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.outcomes import Committed, Done, Staged
from holdfast.broker.state import BrokerState, Sink, StageState, StageTopic
from holdfast.errors import Corrupt, Misuse, NotFound, Terminated
from holdfast.formatting import plural
from holdfast.ids import require_left


@event(60)
class StageOpen(Event, frozen=True):
    """Create a stage. Its id is 16 random bytes from the sender."""

    stage: bytes

    def apply(self, state: BrokerState, context: Context) -> Done:
        if len(self.stage) != 16:
            raise Misuse(f"a stage's id of {len(self.stage)} bytes; it has 16")
        if self.stage in state.stages:
            return Done(changed=False)
        stage = StageState(self.stage, context.time)
        state.stages[stage.id] = stage
        state.touch(stage)
        return Done()


SPILL_BYTES = 64 << 10
"""Bytes of a stage for a topic that stay in the state; more go to a ledger of the stage's own."""


ENTRY_BYTES_MAX = 1 << 30
"""Size limit of an entry: readers of ledgers refuse larger ones."""


def stage_digest(entries: Iterable[bytes], before: int = 0) -> int:
    """Return the digest of entries after those with the digest `before`, as clients do.

    Example:
        >>> stage_digest([b"a", b"b"]) == stage_digest([b"b"], before=stage_digest([b"a"]))
        True
        >>> stage_digest([b"ab"]) == stage_digest([b"a", b"b"])
        False
    """
    for entry in entries:
        before = zlib.crc32(entry, zlib.crc32(len(entry).to_bytes(4, "little"), before))
    return before


@event(61)
class StageAppend(Event, frozen=True):
    """Append entries that are ready to be published. `at` makes it safe to repeat."""

    stage: bytes
    topic: int
    at: int
    """Number of entries that the stage has for this topic already."""
    entries: list[bytes]

    def apply(self, state: BrokerState, context: Context) -> Staged:
        stage = require_stage(state, self.stage)
        topic = state.require_topic(self.topic)
        state.require_plain(topic, "takes no staged entries")
        if topic.terminated:
            raise Terminated(f"{topic.name} was terminated; nothing can be published")
        part = stage.topics.get(self.topic) or StageTopic(self.topic)
        if not self.entries or self.at + len(self.entries) == part.count:
            return Staged(part.count, part.digest)  # a repetition
        if self.at != part.count:
            raise Misuse(f"the stage has {plural(part.count, 'entry')} for {topic.name}, not {self.at}")
        require_left(state.next_topic, "ids of topics")
        if max(map(len, self.entries)) > ENTRY_BYTES_MAX:
            raise Misuse(
                f"an entry of more than {ENTRY_BYTES_MAX} bytes for {topic.name}; publish it in parts"
            )
        stage.topics[self.topic] = part
        stage.time = context.time
        part.count += len(self.entries)
        part.size += sum(map(len, self.entries))
        part.digest = stage_digest(self.entries, part.digest)
        if part.hidden or part.size > SPILL_BYTES:
            self._spill(state, part)
        else:
            part.entries = [*part.entries, *self.entries]
        state.touch(stage)
        return Staged(part.count, part.digest)

    def _spill(self, state: BrokerState, part: StageTopic) -> None:
        if not part.hidden:
            part.hidden = state.next_topic
            state.next_topic += 1
            state.log.add_topic(part.hidden)
        state.log.append(part.hidden, [*part.entries, *self.entries])
        part.entries = []
        _, part.file, _, _, part.file_size = state.log.tail(part.hidden)


def require_stage(state: BrokerState, stage: bytes) -> StageState:
    """Return a stage; raise NotFound if it was dropped, committed, or never opened."""
    found = state.stages.get(stage)
    if found is None:
        raise NotFound(f"there is no stage {stage.hex()}: it was dropped or committed; stage the batch again")
    return found


@event(62)
class StageDrop(Event, frozen=True):
    """Drop a stage; do nothing if it was committed or dropped."""

    stage: bytes
    older_than: int = 0
    """Log time: drop only if nothing was appended since. 0: in any case."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        stage = state.stages.get(self.stage)
        if stage is None or (self.older_than and stage.time >= self.older_than):
            return Done(changed=False)
        state.drop_stage(stage)
        return Done()


@event(63)
class SinkCommit(Event, frozen=True):
    """Publish what stages hold, as batch number `batch` of the sink `key`.

    If the sink has committed this batch or a later one, the stages are dropped and nothing is published. If a
    stage is missing or differs from its receipt, nothing changes. In each topic small stages are appended
    first, in the order of the receipts. Each larger one is adopted as a ledger.
    """

    key: str
    batch: int
    receipts: list[tuple[bytes, int, int, int]]
    """Stage, topic, number of entries, their digest."""

    def apply(self, state: BrokerState, context: Context) -> Committed:
        if not self.key:
            raise Misuse("a sink has a key that is not empty")
        sink = state.sinks.last.get(self.key)
        if sink is not None and self.batch <= sink.batch:
            for stage in dict.fromkeys(receipt[0] for receipt in self.receipts):
                if stage in state.stages:
                    state.drop_stage(state.stages[stage])
            return Committed(False, sink.batch)
        parts = [self._claim(state, *receipt) for receipt in self.receipts]
        self._require_whole(state)
        self._require_room(state)

        for part in parts:
            if not part.hidden:
                state.log.append(part.topic, part.entries)
        for part in parts:
            if part.hidden:
                self._adopt(state, context, part)
        for stage in dict.fromkeys(receipt[0] for receipt in self.receipts):
            del state.stages[stage]
        context.grown += dict.fromkeys(part.topic for part in parts)
        state.sinks.last[self.key] = Sink(self.batch, context.time)
        state.touch(state.sinks)
        return Committed(True, self.batch)

    def _claim(self, state: BrokerState, id: bytes, topic: int, count: int, digest: int) -> StageTopic:  # noqa: A002
        """Return the entries of a receipt, if they can be published."""
        stage = require_stage(state, id)
        where = state.require_topic(topic)
        if where.terminated:
            raise Terminated(f"{where.name} was terminated; nothing can be published")
        part = stage.topics.get(topic) or StageTopic(topic)
        if (part.count, part.digest) != (count, digest):
            raise Corrupt(
                f"stage {id.hex()} has {plural(part.count, 'entry')} for {where.name} with digest "
                f"{part.digest}; its receipt says {count} with {digest}; stage the batch again"
            )
        return part

    def _require_whole(self, state: BrokerState) -> None:
        """Refuse stages that are named in part or twice: entries would be lost or doubled."""
        claimed = {(receipt[0], receipt[1]) for receipt in self.receipts}
        if len(claimed) < len(self.receipts):
            raise Misuse("a stage stands twice in this commit for the same topic; name it once")
        for stage in dict.fromkeys(receipt[0] for receipt in self.receipts):
            for topic in state.stages[stage].topics:
                if (stage, topic) not in claimed:
                    raise Misuse(f"stage {stage.hex()} holds entries for topic {topic}, too; name them all")

    def _require_room(self, state: BrokerState) -> None:
        added = Counter[int]()
        for _, topic, count, _ in self.receipts:
            added[topic] += count
        for topic, count in added.items():
            where = state.topics[topic]
            require_left(where.ledgers.end + count, f"positions of {where.name}")

    def _adopt(self, state: BrokerState, context: Context, part: StageTopic) -> None:
        topic = state.require_topic(part.topic)
        file, _, entries, size = state.log.adopt(topic.id, part.hidden)
        state.log.remove_topic(part.hidden)
        # Its file is older than ledgers that the topic opened since; ids rise along a topic.
        ledger = state.log.next_ledger
        state.log.next_ledger += 1
        topic.ledgers.adopt(ledger, file, entries, size, context.time)
        state.touch(topic)


@event(64, urgent=False)
class SinkForget(Event, frozen=True):
    """Forget sinks whose last commit is older: keys of batch writes are not used again."""

    older_than: int
    """Log time."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        last = state.sinks.last
        old = [key for key, sink in sorted(last.items()) if sink.time < self.older_than]
        for key in old:
            del last[key]
        if old:
            state.touch(state.sinks)
        return Done(changed=bool(old))
