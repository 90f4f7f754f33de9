"""fence: a reset whose outcome is not known is given up."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Revised
from holdfast.broker.state import BrokerState


@register
class Fence(Event, frozen=True):
    """The reset with this token, if it has not happened up to here, must not happen any more.

    It moves nothing, and acknowledgements stay valid; the owner epoch rises, so that reads that are under way
    are dropped. If the number is another than expected, a reset did happen: the outcome tells where it led.
    """

    kind: ClassVar[int] = 34

    subscription: int
    token: bytes
    expected: int

    def apply(self, state: BrokerState, context: Context) -> Revised:
        subscription = state.require_subscription(self.subscription)
        if self.expected == subscription.reset_number and self.token != subscription.fenced:
            subscription.fenced = self.token
            subscription.owner_epoch += 1
            state.touch(subscription)
        return Revised(subscription.reset_number, subscription.acks.acked_to)
