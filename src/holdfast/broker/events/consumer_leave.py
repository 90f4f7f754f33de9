"""consumer.leave: a consumer is detached."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.sessions import remove_consumer
from holdfast.broker.state import BrokerState, SubscriptionState


@register
class ConsumerLeave(Event, frozen=True):
    """Detach a consumer."""

    kind: ClassVar[int] = 51

    session: int

    def apply(self, state: BrokerState, context: Context) -> Done:
        subscription = state.sessions.get(self.session)
        if not isinstance(subscription, SubscriptionState):
            return Done(changed=False)
        remove_consumer(state, context, subscription, self.session)
        return Done()
