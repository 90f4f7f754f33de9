"""Events of deduplication: forget producers' sequences."""

from __future__ import annotations

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState
from holdfast.errors import Busy


@event(42)
class DeduplicationForget(Event, frozen=True):
    """Forget the last sequence of a producer that is not attached."""

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


@event(43, urgent=False)
class DeduplicationExpire(Event, frozen=True):
    """Forget last sequences of a topic's producers that were used before a time.

    Attached producers are kept, and so is local ingest, whose positions end with their segment.
    """

    topic: int
    older_than: int
    """Log time."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        if not state.log.forget_older(topic.id, max(0, self.older_than)):
            return Done(changed=False)
        state.touch(topic)
        return Done()
