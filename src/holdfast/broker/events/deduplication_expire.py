"""deduplication.expire: producers that have not published for long are forgotten."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState


@register
class DeduplicationExpire(Event, frozen=True):
    """Forget the last sequences of producers of a topic that were last used before a time.

    A producer that is attached is kept, and so is local ingest, whose positions end with their segment.
    """

    kind: ClassVar[int] = 43

    topic: int
    older_than: int
    """Log time."""

    @property
    def urgent(self) -> bool:
        return False

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        if not state.log.forget_older(topic.id, max(0, self.older_than)):
            return Done(changed=False)
        state.touch(topic)
        return Done()
