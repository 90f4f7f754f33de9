"""advance: a subscription skips forward, for skip, clear and expire."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Revised
from holdfast.broker.events.reset import require_number, revised
from holdfast.broker.state import BrokerState


@register
class Advance(Event, frozen=True):
    """Acknowledge everything below a position. Never goes back, and is no reset: acknowledgements stay valid.

    The caller says which reset number it has looked at, so that what was worked out before a reset does not
    undo it.
    """

    kind: ClassVar[int] = 35

    subscription: int
    expected: int
    to: int = -1
    """An ordinal, at most the end; −1: see `skip`."""
    skip: int = 0
    """So many unacknowledged entries, counted when this is applied."""
    token: bytes = b""

    def apply(self, state: BrokerState, context: Context) -> Revised:
        subscription = state.require_subscription(self.subscription)
        if self.token and self.token == subscription.token:
            return Revised(*subscription.answer)
        require_number(subscription, self.expected)
        acks, end = subscription.acks, state.topics[subscription.topic].ledgers.end
        to = min(self.to, end) if self.to >= 0 else acks.after_unacked(self.skip, end)
        if to <= acks.acked_to and not self.token:
            return Revised(subscription.reset_number, acks.acked_to)
        acks.advance(to)
        return revised(state, context, subscription, self.token)
