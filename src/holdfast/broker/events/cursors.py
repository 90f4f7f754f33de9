"""Events of subscriptions and their cursors: create, delete, acknowledge, reset, fence, advance."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.maximums import require_subscriptions
from holdfast.broker.events.notices import SubscriptionGone, SubscriptionMoved
from holdfast.broker.events.outcomes import Done, Revised, SubscriptionCreated
from holdfast.broker.events.redeliveries import forget_counts
from holdfast.broker.events.sessions import remove_consumer
from holdfast.broker.state import BrokerState, SubscriptionState, TopicState
from holdfast.errors import Busy, CursorModifying, Exists, Outdated
from holdfast.formatting import plural
from holdfast.ids import require_left
from holdfast.ledger import AckState
from holdfast.names import checked_name


@event(30)
class SubscriptionCreate(Event, frozen=True):
    """Create a subscription that begins at an ordinal."""

    topic: int
    name: str
    start: int = -1
    """−1: the topic's end when this is applied. Else the nearest ordinal that the topic has."""
    properties: dict[str, str] = msgspec.field(default_factory=dict)

    def apply(self, state: BrokerState, context: Context) -> SubscriptionCreated:
        topic = state.require_topic(self.topic)
        require_creatable(state, topic, self.name)
        require_subscriptions(state, topic)
        subscription = create_subscription(state, topic, self.name, self.start, self.properties)
        return SubscriptionCreated(subscription.id, subscription.acks.acked_to)


def require_creatable(state: BrokerState, topic: TopicState, name: str) -> None:
    """Refuse a new subscription whose name is invalid or known, or of an exchange."""
    state.require_plain(topic, "has no subscriptions")
    checked_name(name, "a subscription")
    if name in topic.subscriptions:
        raise Exists(f"{topic.name} has a subscription {name!r} already")


def create_subscription(
    state: BrokerState, topic: TopicState, name: str, start: int, properties: Mapping[str, str]
) -> SubscriptionState:
    """Create a subscription that begins at an ordinal; −1: the topic's end."""
    require_creatable(state, topic, name)
    require_left(state.next_subscription, "ids of subscriptions")
    ledgers = topic.ledgers
    start = ledgers.end if start < 0 else min(max(start, topic.lowest), ledgers.end)
    subscription = SubscriptionState(
        state.next_subscription, topic.id, name, AckState(start), owner_epoch=state.views
    )
    subscription.unready = topic.unready
    subscription.properties = dict(sorted(properties.items()))
    subscription.used = state.uptime.now(state.log.time)
    state.wake(topic)
    state.next_subscription += 1
    state.subscriptions[subscription.id] = subscription
    topic.subscriptions[name] = subscription
    leave_superseded(state, subscription)
    state.touch(subscription)
    return subscription


def leave_superseded(state: BrokerState, subscription: SubscriptionState) -> None:
    """Acknowledge entries of a last-value topic that newer ones have superseded."""
    thinned = state.thinned.get(subscription.topic)
    if thinned is not None and state.effective(topic := state.topics[subscription.topic]).last_value:
        subscription.acks.ack_ranges(thinned.superseded_ranges(), topic.ledgers.end)


def require_drained(subscription: SubscriptionState, end: int) -> None:
    """Raise Busy if a subscription has a backlog."""
    if backlog := subscription.acks.count(end):
        raise Busy(
            f"the subscription {subscription.name!r} has a backlog of {plural(backlog, 'entry')}; "
            "move or acknowledge it first"
        )


def delete_subscription(
    state: BrokerState, context: Context, subscription: SubscriptionState, reason: str
) -> None:
    """Delete a subscription with its consumers."""
    for session in sorted(subscription.consumers):
        remove_consumer(state, context, subscription, session, reason)
    topic = state.topics[subscription.topic]
    del topic.subscriptions[subscription.name]
    del state.subscriptions[subscription.id]
    state.wake(topic)
    if state.exchanges.alternates.subscriptions.pop(subscription.id, None) is not None:
        state.touch(state.exchanges.alternates)
    state.touch(subscription)
    context.notices.append(SubscriptionGone(subscription))


@event(31, version=2, base=2)
class SubscriptionDelete(Event, frozen=True):
    """Delete a subscription. Without `force` only if it has no consumer."""

    subscription: int
    force: bool = False
    drained: bool = False
    """Only if it has no backlog."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        subscription = state.require_subscription(self.subscription)
        if subscription.consumers and not self.force:
            count = plural(len(subscription.consumers), "consumer")
            raise Busy(f"the subscription {subscription.name!r} has {count}; close all of them, or force")
        if self.drained:
            require_drained(subscription, state.topics[subscription.topic].ledgers.end)
        delete_subscription(state, context, subscription, "the subscription was deleted")
        return Done()


_ACKED = Done()


@event(32, guarded=False)  # the dispatcher makes it, many times a second
class Ack(Event, frozen=True):
    """Acknowledge what consumers of a subscription acknowledged in one turn, in all forms.

    The reset number is the one under which the messages were delivered. Nothing else is compared: a client
    that reconnects acknowledges messages of its earlier session.
    """

    subscription: int
    reset_number: int
    ranges: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """Whole entries, by ordinals, half-open."""
    cumulative: int = 0
    """Everything below this ordinal; 0: nothing."""
    bits: list[tuple[int, bytes]] = msgspec.field(default_factory=list)
    """Of a batch, by its ordinal: the mask of the messages that this leaves open."""
    receipt: bool = False
    """A consumer waits until it is durable."""

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
        if subscription.counts:
            forget_counts(subscription, self.ranges)
        state.touch(subscription)
        return _ACKED


@event(33)
class Reset(Event, frozen=True):
    """Move the mark-delete position, forward or back; forget acknowledgements above it.

    The reset number rises, so earlier acknowledgements have no effect. The caller says which number it
    expects, so that one of two resets is refused. The token makes it safe to submit the reset again.
    """

    subscription: int
    token: bytes
    expected: int
    target: int
    """An ordinal; the nearest one that the topic has is used."""

    def apply(self, state: BrokerState, context: Context) -> Revised:
        subscription = state.require_subscription(self.subscription)
        if self.token and self.token == subscription.token:
            return Revised(*subscription.answer)
        if self.token and self.token == subscription.fenced:
            raise mismatch(subscription, "this reset was given up")
        require_number(subscription, self.expected)
        require_left(subscription.reset_number + 1, f"resets of {subscription.name!r}")
        topic = state.topics[subscription.topic]
        ledgers = topic.ledgers
        target = min(max(self.target, topic.lowest), ledgers.end)
        subscription.acks.reset(target)
        leave_superseded(state, subscription)
        subscription.reset_number += 1
        subscription.target, subscription.reach = target, ledgers.end
        subscription.held.clear()  # what consumers hold is void
        subscription.hashes.clear()
        subscription.delivered = []
        subscription.counts.clear()
        note_use(state, subscription, context.time)
        return revised(state, context, subscription, self.token)


def note_use(state: BrokerState, subscription: SubscriptionState, time: int) -> None:
    """Note that a subscription is used: it and its topic begin to age anew."""
    subscription.used = state.uptime.now(time)
    state.wake(state.topics[subscription.topic])


def require_number(subscription: SubscriptionState, expected: int) -> None:
    """Raises CursorModifying if another reset came first."""
    if expected != subscription.reset_number:
        raise mismatch(subscription, f"its reset number is {subscription.reset_number}, not {expected}")


def mismatch(subscription: SubscriptionState, why: str) -> CursorModifying:
    """Return the refusal of a change that another one overtook."""
    error = CursorModifying(
        f"the subscription {subscription.name!r} was not moved: {why}; look, then ask again"
    )
    error.number = subscription.reset_number
    return error


def revised(state: BrokerState, context: Context, subscription: SubscriptionState, token: bytes) -> Revised:
    """Remember the outcome of a move, and notify the subscription's dispatcher."""
    outcome = Revised(subscription.reset_number, subscription.acks.acked_to)
    if token:
        subscription.token = token
        subscription.answer = (outcome.reset_number, outcome.target)
    state.touch(subscription)
    context.notices.append(SubscriptionMoved(subscription, outcome.reset_number, outcome.target))
    return outcome


@event(34)
class Fence(Event, frozen=True):
    """Forbid the reset with this token, unless it has happened already.

    A fence moves nothing, and acknowledgements stay valid. The owner epoch rises, so that reads under way
    are dropped. If the number is not the expected one, a reset has happened; the outcome says where it led.
    """

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


@event(35)
class Advance(Event, frozen=True):
    """Acknowledge everything below a position; never moves back.

    It is not a reset: acknowledgements stay valid. The caller names the reset number that it saw, so that a
    position computed before a reset does not undo the reset.
    """

    subscription: int
    expected: int
    to: int = -1
    """An ordinal, at most the end; −1: see `skip`."""
    skip: int = 0
    """Number of unacknowledged entries to skip, counted when this is applied."""
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
        forget_counts(subscription)
        return revised(state, context, subscription, self.token)


def advance_all(state: BrokerState, context: Context, topic: TopicState, floor: int) -> int:
    """Advance the subscriptions that are behind an ordinal; return the number of entries dropped."""
    dropped = 0
    for _, each in sorted(topic.subscriptions.items()):
        if each.acks.acked_to < floor:
            dropped += each.acks.count(floor)
            each.acks.advance(floor)
            state.touch(each)
            context.notices.append(SubscriptionMoved(each, each.reset_number, each.acks.acked_to))
    return dropped
