"""Requests to the owner of a subscription, and its answers. They change no state.

```
 member B: AckOffer or MoveAsk (ask 7) ─► apply: who answers? ─► the owner A: Ack or Move ─► stable
 B: ask 7 is done ◄──────────────────── OwnerAnswer(B, 7) ◄──────────────────────────────────┘
```

The member that owns the subscription when the request is applied answers it, also if it has released the
subscription since. If there is no owner, the sender answers itself.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.notices import AckOffered, MoveAsked, OwnerAnswered
from holdfast.broker.events.outcomes import Asked, Done
from holdfast.broker.ranges import require_ranges
from holdfast.broker.state import BrokerState, SubscriptionState
from holdfast.errors import Outdated
from holdfast.group import Member

Errand = Literal["move", "take", "reject"]


def _answerer(subscription: SubscriptionState, sender: Member) -> Member:
    return sender if subscription.owner is None else subscription.owner


def _require_number(subscription: SubscriptionState, number: int) -> None:
    if number != subscription.reset_number:
        raise Outdated(
            f"the subscription {subscription.name!r} was reset: this was asked under number {number}, it is "
            f"{subscription.reset_number} now; look, then ask again"
        )


@event(55)
class AckOffer(Event, frozen=True):
    """Offer acknowledgements to the owner, which alone knows what it has delivered since a reset."""

    subscription: int
    member: Member
    """The sender."""
    ask: int
    """The number of the request at its sender; 0: no answer is wanted."""
    reset_number: int
    ranges: list[tuple[int, int]] = msgspec.field(default_factory=list)
    bits: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    """Of a batch, by its ordinal: the mask of the messages that this leaves open."""

    def apply(self, state: BrokerState, context: Context) -> Asked:
        context.require_sender(self.member)
        subscription = state.require_subscription(self.subscription)
        require_ranges(self.ranges, "an offer of acknowledgements")
        _require_number(subscription, self.reset_number)
        answerer = _answerer(subscription, self.member)
        context.notices.append(AckOffered(subscription, self, answerer))
        return Asked(answerer)


@event(56)
class MoveAsk(Event, frozen=True):
    """Ask the owner to take messages out of a backlog: it knows the free ones."""

    subscription: int
    member: Member
    """The sender."""
    ask: int
    """The number of the request at its sender."""
    reset_number: int
    errand: Errand
    to: int = 0
    """As in `Move`."""
    count: int = 0
    """Of a move: entries at most."""
    ordinal: int = 0
    """Of a reject: the entry. Of a move: the end of what is moved."""
    index: int = -1
    """Of a reject: the message of a batch; −1: the whole entry."""

    def apply(self, state: BrokerState, context: Context) -> Asked:
        context.require_sender(self.member)
        subscription = state.require_subscription(self.subscription)
        _require_number(subscription, self.reset_number)
        answerer = _answerer(subscription, self.member)
        context.notices.append(MoveAsked(subscription, self, answerer))
        return Asked(answerer)


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """The answer of an owner to a request."""

    error: str = ""
    """The name of an error; empty: it is done."""
    text: str = ""
    count: int = 0
    """Entries of a move; 1 or 0 of a take or a reject."""
    ordinal: int = -1
    """Of a take: where the message is."""
    ledger: int = 0
    entry: int = 0
    index: int = -1
    time: int = 0
    data: bytes = b""
    """Of a take: the bytes of the entry, which may be trimmed already."""


@event(57)
class OwnerAnswer(Event, frozen=True):
    """Answer a request of another member."""

    member: Member
    """The member that asked."""
    ask: int
    answer: Answer

    def apply(self, state: BrokerState, context: Context) -> Done:
        context.notices.append(OwnerAnswered(self.member, self.ask, self.answer))
        return Done(changed=False)
