"""topic.terminate: nothing more can be published."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import NO_ID, TopicTerminated
from holdfast.broker.state import BrokerState


@register
class TopicTerminate(Event, frozen=True):
    """Close a topic for good. What it holds can be read."""

    kind: ClassVar[int] = 12

    topic: int

    def apply(self, state: BrokerState, context: Context) -> TopicTerminated:
        topic = state.require_topic(self.topic)
        if not topic.terminated:
            topic.terminated = True
            state.log.set_topic(topic.id, closed=True)
            state.touch(topic)
        ledgers = topic.ledgers
        return TopicTerminated(
            ledgers.end, ledgers.id_of(ledgers.end - 1) if ledgers.end > ledgers.first else NO_ID
        )
