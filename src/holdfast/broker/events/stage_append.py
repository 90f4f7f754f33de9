"""stage.append: entries for a topic, durable and invisible."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Staged
from holdfast.broker.state import BrokerState, StageState, StageTopic
from holdfast.errors import Misuse, NotFound, Terminated
from holdfast.ids import require_left

SPILL_BYTES = 64 << 10
"""What a stage has for a topic stays in the state up to this; more goes to a ledger that no topic has."""


ENTRY_BYTES_MAX = 1 << 30
"""Of an entry: no reader of a ledger takes a larger one."""


def stage_digest(entries: Iterable[bytes], before: int = 0) -> int:
    """The digest of entries behind those that `before` is the digest of. Whoever stages can work it out, too.

    Example:
        >>> stage_digest([b"a", b"b"]) == stage_digest([b"b"], before=stage_digest([b"a"]))
        True
        >>> stage_digest([b"ab"]) == stage_digest([b"a", b"b"])
        False
    """
    for entry in entries:
        before = zlib.crc32(entry, zlib.crc32(len(entry).to_bytes(4, "little"), before))
    return before


@register
class StageAppend(Event, frozen=True):
    """Append entries that are ready to be published. `at` makes it safe to ask again."""

    kind: ClassVar[int] = 61

    stage: bytes
    topic: int
    at: int
    """How many the stage has for this topic already."""
    entries: list[bytes]

    def apply(self, state: BrokerState, context: Context) -> Staged:
        stage = require_stage(state, self.stage)
        topic = state.require_topic(self.topic)
        if topic.terminated:
            raise Terminated(f"{topic.name} was terminated; nothing can be published")
        part = stage.topics.get(self.topic) or StageTopic(self.topic)
        if not self.entries or self.at + len(self.entries) == part.count:
            return Staged(part.count, part.digest)  # asked again
        if self.at != part.count:
            raise Misuse(f"the stage has {part.count} entries for {topic.name}, not {self.at}")
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
    """Raises NotFound where there is none: dropped, committed, or never opened."""
    found = state.stages.get(stage)
    if found is None:
        raise NotFound(f"there is no stage {stage.hex()}: it was dropped or committed; stage the batch again")
    return found
