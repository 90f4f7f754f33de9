"""consumer.join: somebody wants to consume."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import ConsumerJoined
from holdfast.broker.state import BrokerState, Consumer, SubscriptionType
from holdfast.errors import Busy, Misuse
from holdfast.group import Member
from holdfast.ids import require_left
from holdfast.names import checked_name


@register
class ConsumerJoin(Event, frozen=True):
    """Attach a consumer. The first decides the type of the subscription for as long as any is attached."""

    kind: ClassVar[int] = 50

    subscription: int
    name: str
    type: SubscriptionType
    priority: int
    """0 is served first."""
    member: Member
    """The sender."""

    def apply(self, state: BrokerState, context: Context) -> ConsumerJoined:
        context.require_sender(self.member)
        subscription = state.require_subscription(self.subscription)
        checked_name(self.name, "a consumer")
        require_left(state.next_session, "ids of sessions")
        attached = subscription.type
        if attached is not None and attached != self.type:
            raise Misuse(
                f"the subscription {subscription.name!r} is {attached} while consumers are attached, "
                f"not {self.type}"
            )
        if attached == "exclusive":
            (other,) = subscription.consumers.values()
            raise Busy(f"the subscription {subscription.name!r} is exclusive, and {other.name!r} has it")
        consumer = Consumer(state.next_session, self.name, self.type, self.priority, self.member)
        state.next_session += 1
        subscription.consumers[consumer.session] = consumer
        state.sessions[consumer.session] = subscription
        state.touch(subscription)
        return ConsumerJoined(consumer.session, subscription.reset_number)
