"""deduplication.forget: a producer's name may begin its sequence anew."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState
from holdfast.errors import Busy


@register
class DeduplicationForget(Event, frozen=True):
    """Forget the last sequence of a producer that is not attached."""

    kind: ClassVar[int] = 42

    topic: int
    producer: str

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        if self.producer in topic.named:
            raise Busy(f"the producer {self.producer!r} is attached to {topic.name}; close it first")
        if not state.log.forget_sequence(topic.id, self.producer):
            return Done(changed=False)
        state.touch(topic)
        return Done()
