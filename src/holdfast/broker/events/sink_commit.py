"""sink.commit: stages become visible, in all topics at once, exactly once."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Committed
from holdfast.broker.events.stage_append import require_stage
from holdfast.broker.state import BrokerState, Sink, StageTopic
from holdfast.errors import Corrupt, Misuse, Terminated
from holdfast.ids import require_left


@register
class SinkCommit(Event, frozen=True):
    """Publish what stages hold, as batch number `batch` of the sink `key`.

    If the sink has come so far already, the stages are dropped and nothing is published. If one of them is
    missing or not what its receipt says, nothing changes at all. In each topic what is small is appended
    first, in the order of the receipts; each larger one is adopted as a ledger of its own.
    """

    kind: ClassVar[int] = 63

    key: str
    batch: int
    receipts: list[tuple[bytes, int, int, int]]
    """Stage, topic, how many entries, their digest."""

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
        """What a receipt stands for, if it can be published."""
        stage = require_stage(state, id)
        where = state.require_topic(topic)
        if where.terminated:
            raise Terminated(f"{where.name} was terminated; nothing can be published")
        part = stage.topics.get(topic) or StageTopic(topic)
        if (part.count, part.digest) != (count, digest):
            raise Corrupt(
                f"stage {id.hex()} has {part.count} entries for {where.name} with digest {part.digest}; "
                f"its receipt says {count} with {digest}; stage the batch again"
            )
        return part

    def _require_whole(self, state: BrokerState) -> None:
        """A stage that was committed in part would be lost for the rest, and one twice is published twice."""
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
        # Its file is older than ledgers that the topic has opened since; ids rise along a topic.
        ledger = state.log.next_ledger
        state.log.next_ledger += 1
        topic.ledgers.adopt(ledger, file, entries, size, context.time)
        state.touch(topic)
