"""subscription.create: a cursor that lasts."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import SubscriptionCreated
from holdfast.broker.state import BrokerState, SubscriptionState
from holdfast.errors import Exists
from holdfast.ids import require_left
from holdfast.ledger.acks import AckState
from holdfast.names import checked_name


@register
class SubscriptionCreate(Event, frozen=True):
    """Make a subscription that begins at an ordinal."""

    kind: ClassVar[int] = 30

    topic: int
    name: str
    start: int = -1
    """−1: at the end, as it is when this is applied. Else the nearest that the topic has."""
    properties: dict[str, str] = msgspec.field(default_factory=dict)

    def apply(self, state: BrokerState, context: Context) -> SubscriptionCreated:
        topic = state.require_topic(self.topic)
        checked_name(self.name, "a subscription")
        if self.name in topic.subscriptions:
            raise Exists(f"{topic.name} has a subscription {self.name!r} already")
        require_left(state.next_subscription, "ids of subscriptions")
        ledgers = topic.ledgers
        start = ledgers.end if self.start < 0 else min(max(self.start, ledgers.first), ledgers.end)
        subscription = SubscriptionState(
            state.next_subscription, topic.id, self.name, AckState(start), owner_epoch=state.views
        )
        subscription.properties = dict(sorted(self.properties.items()))
        state.next_subscription += 1
        state.subscriptions[subscription.id] = subscription
        topic.subscriptions[self.name] = subscription
        state.touch(subscription)
        return SubscriptionCreated(subscription.id, start)
