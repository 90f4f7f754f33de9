"""producer.close: a producer's session ends."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.sessions import promote, remove_producer
from holdfast.broker.state import BrokerState, TopicState


@register
class ProducerClose(Event, frozen=True):
    """End a session. Whoever waits for exclusive access has its turn."""

    kind: ClassVar[int] = 41

    session: int

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.sessions.get(self.session)
        if not isinstance(topic, TopicState):
            return Done(changed=False)
        remove_producer(state, context, topic, self.session)
        promote(state, context, topic)
        return Done()
