"""ack: consumers have handled messages."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState
from holdfast.errors import Outdated

_ACKED = Done()


@register
class Ack(Event, frozen=True):
    """All that was acknowledged in a subscription in one turn, in any mixture of forms.

    The reset number is the one that the messages were delivered under, and the only thing that is compared:
    who has reconnected acknowledges what an earlier session has received.
    """

    kind: ClassVar[int] = 32
    guarded: ClassVar[bool] = False  # it is made by the dispatcher, many times a second

    subscription: int
    reset_number: int
    ranges: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Whole entries, by ordinals, half-open."""
    cumulative: int = 0
    """Everything below this ordinal; 0: nothing."""
    bits: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    """Of a batch, by its ordinal: the mask of the messages that this leaves open (`open_bits`)."""
    receipt: bool = False
    """Somebody waits until it is durable."""

    @property
    def urgent(self) -> bool:
        return self.receipt

    def apply(self, state: BrokerState, context: Context) -> Done:
        subscription = state.require_subscription(self.subscription)
        if self.reset_number != subscription.reset_number:
            raise Outdated(
                f"the subscription {subscription.name!r} was reset: these messages were delivered under "
                f"number {self.reset_number}, it is {subscription.reset_number} now"
            )
        acks, end = subscription.acks, state.topics[subscription.topic].ledgers.end
        if self.cumulative:
            acks.ack_cumulative(self.cumulative, end)
        if self.ranges:
            acks.ack_ranges(self.ranges, end)
        for ordinal, still_open in self.bits:
            acks.ack_batch(ordinal, int.from_bytes(still_open, "little"), end)
        state.touch(subscription)
        return _ACKED
