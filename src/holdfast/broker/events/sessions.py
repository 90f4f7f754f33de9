"""Events of sessions: producers open and close, consumers join and leave.

A session belongs to a member of the group. It ends when it is closed, when it is fenced, or with a view that
does not have its member. Sessions are in the journal like everything else: a member that returns must know
whose publishes to accept.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast._core import crc32c
from holdfast.broker.events import ownership
from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.joining import forget_absent
from holdfast.broker.events.maximums import require_consumers, require_producers, require_quota
from holdfast.broker.events.notices import ConsumerGone, ProducerGone, ProducerReady
from holdfast.broker.events.outcomes import ConsumerJoined, Done, ProducerOpened
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.state import (
    VIEWS_KEPT,
    Access,
    BrokerState,
    Consumer,
    Producer,
    SubscriptionState,
    SubscriptionType,
    TopicState,
    ViewMark,
)
from holdfast.errors import Busy, Fenced, Misuse, Terminated
from holdfast.formatting import plural
from holdfast.group import Member
from holdfast.ids import require_left
from holdfast.names import checked_name


def attach_producer(state: BrokerState, topic: TopicState, producer: Producer) -> int:
    """Let a producer publish. Returns the last sequence of its name."""
    topic.producers[producer.session] = topic.named[producer.name] = producer
    state.wake(topic)
    state.sessions[producer.session] = topic
    state.touch(topic)
    return state.log.open_session(producer.session, topic.id, producer.name, producer.epoch)


def remove_producer(
    state: BrokerState, context: Context, topic: TopicState, session: int, reason: str | None = None
) -> None:
    """End a producer's session, waiting or not. With a reason, its owner is notified."""
    gone = topic.producers.pop(session, None)
    if gone is None:
        gone = topic.waiting.pop(session)
    del topic.named[gone.name]
    state.log.close_session(session)
    del state.sessions[session]
    state.touch(topic)
    if reason is not None:
        context.notices.append(ProducerGone(topic, gone, reason))


def promote(state: BrokerState, context: Context, topic: TopicState) -> None:
    """Give exclusive access to the next producer that waits, if no other is attached."""
    if topic.producers or not topic.waiting:
        return
    waited = topic.waiting.pop(next(iter(topic.waiting)))
    topic.epoch += 1
    ready = Producer(waited.session, waited.name, waited.access, waited.member, topic.epoch, waited.attempt)
    last = attach_producer(state, topic, ready)
    context.notices.append(ProducerReady(topic, ready, last))


def end_producers(state: BrokerState, context: Context, topic: TopicState, reason: str) -> None:
    """End all sessions of a topic's producers."""
    for session in sorted([*topic.producers, *topic.waiting]):
        remove_producer(state, context, topic, session, reason)


def remove_consumer(
    state: BrokerState,
    context: Context,
    subscription: SubscriptionState,
    session: int,
    reason: str | None = None,
) -> None:
    """End a consumer's session. With a reason, its owner is notified."""
    gone = subscription.detach(session)
    subscription.used = state.uptime.now(state.log.time)
    del state.sessions[session]
    state.touch(subscription)
    if reason is not None:
        context.notices.append(ConsumerGone(subscription, gone, reason))


def end_sessions(state: BrokerState, context: Context, sessions: Iterable[int], reason: str) -> None:
    """End sessions of any kind; then producers that waited for them are promoted."""
    topics: dict[int, TopicState] = {}
    for session in sessions:
        where = state.sessions[session]
        if isinstance(where, TopicState):
            remove_producer(state, context, where, session, reason)
            topics[where.id] = where
        else:
            remove_consumer(state, context, where, session, reason)
    for _, topic in sorted(topics.items()):
        promote(state, context, topic)


@event(40, version=2, base=2)
class ProducerOpen(Event, frozen=True):
    """Open a producer's session.

    Without other producers, it is attached. With other producers it depends on the access:

    - shared: attached, unless one of them is exclusive or waits for that.
    - exclusive: refused.
    - wait-for-exclusive: waits for its turn.
    - exclusive-with-fencing: fences them, and is attached.

    An exclusive producer begins a new epoch, unless the same one returns.

    A name is attached once. A later attempt of the same client replaces an earlier one, whose session ends.
    Publishes of the earlier session are refused; the last sequence says where the new one continues.
    """

    topic: int
    name: str
    """Empty: the broker chooses one."""
    access: Access
    member: Member
    """The sender."""
    attempt: int = 0
    epoch: int = -1
    """The epoch that a returning exclusive producer had. It is fenced if there is a newer one."""
    producers_max: int = 0
    """The option of the broker, for a topic without the policy."""

    def apply(self, state: BrokerState, context: Context) -> ProducerOpened:
        context.require_sender(self.member)
        topic = state.require_topic(self.topic)
        if topic.terminated:
            raise Terminated(f"{topic.name} was terminated; nothing can be published")
        require_left(state.next_session, "ids of sessions")
        require_left(topic.epoch + 1, f"epochs of {topic.name}")
        name = checked_name(self.name or self._made_up(state, topic), "a producer")
        before = self._replaced(topic, name)
        attached = before is not None and before.session in topic.producers
        others = len(topic.producers) - attached
        had_it = before is not None and before.access != "shared" and attached
        waiting = 0 if had_it else len(topic.waiting) - (before is not None and not attached)
        self._require_access(topic, others, waiting)
        require_quota(topic)
        if self.access != "exclusive-with-fencing":  # which ends all others
            there = len(topic.producers) + len(topic.waiting) - (before is not None)
            require_producers(state, topic, there, self.producers_max)
        waits = self.access == "wait-for-exclusive" and others > 0
        # An exclusive producer that returns is for the others the same as before.
        anew = others > 0 or not (had_it or self.epoch == topic.epoch)

        if before is not None:
            remove_producer(state, context, topic, before.session, "a later attempt took its place")
        if self.access == "exclusive-with-fencing":
            end_producers(state, context, topic, "fenced by an exclusive producer")
        if self.access != "shared" and not waits and anew:
            topic.epoch += 1
        producer = Producer(
            state.next_session, name, self.access, self.member, -1 if waits else topic.epoch, self.attempt
        )
        state.next_session += 1
        if waits:
            topic.waiting[producer.session] = producer
            topic.named[name] = producer
            state.sessions[producer.session] = topic
            state.touch(topic)
            return ProducerOpened(producer.session, name, -1, -1, waiting=True)
        last = attach_producer(state, topic, producer)
        return ProducerOpened(producer.session, name, topic.epoch, last)

    def _made_up(self, state: BrokerState, topic: TopicState) -> str:
        name = f"producer-{state.next_session}"
        while name in topic.named:
            name += "-"
        return name

    def _replaced(self, topic: TopicState, name: str) -> Producer | None:
        """Return the session of this name that the new one replaces."""
        there = topic.named.get(name)
        if there is not None and self.attempt <= there.attempt:
            raise Busy(f"{topic.name} has a producer {name!r} already; close it, or take another name")
        return there

    def _require_access(self, topic: TopicState, others: int, waiting: int) -> None:
        """Refuse an access that the other producers exclude; the replaced session does not count."""
        # An exclusive producer is alone (I45), so one of them tells the access of all.
        some = next(iter(topic.producers.values()), None)
        exclusive = waiting > 0 or (others > 0 and some is not None and some.access != "shared")
        if self.access == "shared" and exclusive:
            raise Busy(f"{topic.name} has an exclusive producer, or one that waits to be; wait for its end")
        if self.access == "exclusive" and (others or waiting):
            there_are = f"{plural(others, 'attached producer')} and {waiting} waiting"
            raise Busy(f"{topic.name} has {there_are}; wait, or fence")
        if self.access != "shared" and 0 <= self.epoch < topic.epoch:
            raise Fenced(
                f"{topic.name} had another exclusive producer since: its epoch is {topic.epoch}, "
                f"not {self.epoch}; open without one to begin anew"
            )


@event(41)
class ProducerClose(Event, frozen=True):
    """End a producer's session. The next that waits for exclusive access gets it."""

    session: int

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.sessions.get(self.session)
        if not isinstance(topic, TopicState):
            return Done(changed=False)
        remove_producer(state, context, topic, self.session)
        promote(state, context, topic)
        return Done()


@event(50, version=3, base=3)
class ConsumerJoin(Event, frozen=True):
    """Attach a consumer. The first one decides the subscription's type while any is attached."""

    subscription: int
    name: str
    type: SubscriptionType
    priority: int
    """0 is served first."""
    member: Member
    """The sender."""
    keys: KeyShared | None = None
    """Of a key_shared consumer, and only of one: how it shares keys."""
    consumers_max: int = 0
    """The option of the broker, for a topic without the policy; likewise the next one."""
    subscription_consumers_max: int = 0

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
        if (self.keys is not None) != (self.type == "key_shared"):
            raise Misuse(f"a {self.type} consumer {self.name!r} with keys {self.keys}")
        if self.keys is not None:
            self.keys.require_sound()
            self.keys.require_fits(subscription.name, subscription.consumers.values())
        require_consumers(state, subscription, self.consumers_max, self.subscription_consumers_max)
        consumer = Consumer(state.next_session, self.name, self.type, self.priority, self.member, self.keys)
        state.next_session += 1
        subscription.attach(consumer)
        state.wake(state.topics[subscription.topic])
        state.sessions[consumer.session] = subscription
        state.touch(subscription)
        ownership.joined(state, context, subscription, self.member)
        return ConsumerJoined(consumer.session, subscription.reset_number)


@event(51)
class ConsumerLeave(Event, frozen=True):
    """Detach a consumer."""

    session: int

    def apply(self, state: BrokerState, context: Context) -> Done:
        subscription = state.sessions.get(self.session)
        if not isinstance(subscription, SubscriptionState):
            return Done(changed=False)
        remove_consumer(state, context, subscription, self.session)
        ownership.left(state, context, subscription)
        return Done()


SKIP = 1000
SKIP_PER_TOPIC = 10
"""Ledger ids that an unclean start skips, in total and for each topic."""


@event(2, version=2, base=2)
class ViewChange(Event, frozen=True):
    """Begin a view, at position (view, 0): end sessions of absent members, replace absent owners.

    `unclean`: this broker was not stopped in order. Under `sync = os` it may have shown entries of ledgers
    that are not durable. So open ledgers are sealed, and ledger ids continue well above those in use.
    """

    members: list[Member]
    unclean: bool = False
    votes: tuple[int, ...] = ()
    """The nodes with a vote; empty for a broker alone."""

    def mark(self, view: int, d: int) -> ViewMark:
        """Return how the history remembers this view."""
        nodes = tuple(sorted({member.node for member in self.members}))
        return ViewMark(view, d, nodes, crc32c(msgspec.msgpack.encode(self.members)), self.votes)

    def apply(self, state: BrokerState, context: Context) -> Done:
        state.members = tuple(self.members)
        state.views += 1
        state.history = [*state.history, self.mark(context.position.view, state.log.next_d)][-VIEWS_KEPT:]
        gone = [
            session for session in sorted(state.sessions) if member_of(state, session) not in self.members
        ]
        end_sessions(state, context, gone, "its member has left the group")
        forget_absent(state)
        for _, subscription in sorted(state.subscriptions.items()):
            ownership.viewed(state, context, subscription)
        if self.unclean:
            for id in sorted(state.topics):  # noqa: A001
                topic = state.require_topic(id)
                if topic.ledgers.open_ledger is not None:
                    state.seal(topic)
            state.log.next_ledger += SKIP + SKIP_PER_TOPIC * len(state.topics)
        state.touch()
        return Done()


def member_of(state: BrokerState, session: int) -> Member:
    """Return the member that owns a session."""
    where = state.sessions[session]
    if not isinstance(where, TopicState):
        return where.consumers[session].member
    return (where.producers.get(session) or where.waiting[session]).member
