"""topic.delete: a topic with its subscriptions and all that it holds."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.sessions import remove_topic
from holdfast.broker.state import BrokerState
from holdfast.errors import Busy


@register
class TopicDelete(Event, frozen=True):
    """Delete a topic. Without `force` only if it has no subscription and nobody is attached."""

    kind: ClassVar[int] = 11

    topic: int
    force: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        if not self.force:
            counts = (len(topic.producers) + len(topic.waiting), len(topic.subscriptions))
            if any(counts):
                raise Busy(
                    f"{topic.name} has {counts[0]} producers and {counts[1]} subscriptions; "
                    "remove them first, or force"
                )
        remove_topic(state, context, topic)
        return Done()
