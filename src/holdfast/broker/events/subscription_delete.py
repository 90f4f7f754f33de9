"""subscription.delete: a cursor is given up, and what it had not acknowledged with it."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.sessions import remove_subscription
from holdfast.broker.state import BrokerState
from holdfast.errors import Busy


@register
class SubscriptionDelete(Event, frozen=True):
    """Delete a subscription. Without `force` only if it has no consumer."""

    kind: ClassVar[int] = 31

    subscription: int
    force: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        subscription = state.require_subscription(self.subscription)
        if subscription.consumers and not self.force:
            count = len(subscription.consumers)
            raise Busy(f"the subscription {subscription.name!r} has {count} consumers; close them, or force")
        remove_subscription(state, context, subscription, "the subscription was deleted")
        return Done()
