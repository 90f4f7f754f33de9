"""reset: a subscription begins again somewhere else."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.notices import SubscriptionMoved
from holdfast.broker.events.outcomes import Revised
from holdfast.broker.state import BrokerState, SubscriptionState
from holdfast.errors import CursorModifying
from holdfast.ids import require_left


@register
class Reset(Event, frozen=True):
    """Set the mark-delete position, forward or back, and forget what is acknowledged above it.

    The reset number rises: no acknowledgement from before has an effect any more. The caller says which
    number it expects, so that of two resets one is refused; the token makes it safe to ask again.
    """

    kind: ClassVar[int] = 33

    subscription: int
    token: bytes
    expected: int
    target: int
    """An ordinal; the nearest one that the topic has is taken."""

    def apply(self, state: BrokerState, context: Context) -> Revised:
        subscription = state.require_subscription(self.subscription)
        if self.token and self.token == subscription.token:
            return Revised(*subscription.answer)
        if self.token and self.token == subscription.fenced:
            raise mismatch(subscription, "this reset was given up")
        require_number(subscription, self.expected)
        require_left(subscription.reset_number + 1, f"resets of {subscription.name!r}")
        ledgers = state.topics[subscription.topic].ledgers
        target = min(max(self.target, ledgers.first), ledgers.end)
        subscription.acks.reset(target)
        subscription.reset_number += 1
        subscription.target, subscription.reach = target, ledgers.end
        return revised(state, context, subscription, self.token)


def require_number(subscription: SubscriptionState, expected: int) -> None:
    """Raises CursorModifying where another reset came first."""
    if expected != subscription.reset_number:
        raise mismatch(subscription, f"its reset number is {subscription.reset_number}, not {expected}")


def mismatch(subscription: SubscriptionState, why: str) -> CursorModifying:
    """The refusal of a change that another one has overtaken."""
    error = CursorModifying(
        f"the subscription {subscription.name!r} was not moved: {why}; look, then ask again"
    )
    error.number = subscription.reset_number
    return error


def revised(state: BrokerState, context: Context, subscription: SubscriptionState, token: bytes) -> Revised:
    """The subscription has moved: remember the answer, tell whoever serves it."""
    outcome = Revised(subscription.reset_number, subscription.acks.acked_to)
    if token:
        subscription.token = token
        subscription.answer = (outcome.reset_number, outcome.target)
    state.touch(subscription)
    context.notices.append(
        SubscriptionMoved(subscription.topic, subscription.id, outcome.reset_number, outcome.target)
    )
    return outcome
