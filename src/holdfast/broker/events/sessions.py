"""Who is attached: the rules of access, and what happens when somebody goes.

A session belongs to a member of the group, and ends when it is closed, when it is fenced, or with a view that
leaves its member out. Sessions are in the journal like everything else: a member that comes back must know
whose publishes to take.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.broker.events.base import Context
from holdfast.broker.events.notices import (
    ConsumerGone,
    ProducerGone,
    ProducerReady,
    SubscriptionGone,
    TopicGone,
)
from holdfast.broker.state import BrokerState, Producer, SubscriptionState, TopicState


def admit(state: BrokerState, topic: TopicState, producer: Producer) -> int:
    """Let a producer publish. Answers the last sequence of its name."""
    topic.producers[producer.session] = topic.named[producer.name] = producer
    state.sessions[producer.session] = topic
    state.touch(topic)
    return state.log.open_session(producer.session, topic.id, producer.name, producer.epoch)


def remove_producer(
    state: BrokerState, context: Context, topic: TopicState, session: int, reason: str | None = None
) -> None:
    """End a producer's session, waiting or not. With a reason, its owner did not ask for it and is told."""
    gone = topic.producers.pop(session, None)
    if gone is None:
        gone = next(each for each in topic.waiting if each.session == session)
        topic.waiting.remove(gone)
    del topic.named[gone.name]
    state.log.close_session(session)
    del state.sessions[session]
    state.touch(topic)
    if reason is not None:
        context.notices.append(ProducerGone(topic.id, session, reason))


def promote(state: BrokerState, context: Context, topic: TopicState) -> None:
    """When nobody is left, the next in the queue for exclusive access has it."""
    if topic.producers or not topic.waiting:
        return
    waited = topic.waiting.pop(0)
    topic.epoch += 1
    ready = Producer(waited.session, waited.name, waited.access, waited.member, topic.epoch, waited.attempt)
    last = admit(state, topic, ready)
    context.notices.append(ProducerReady(topic.id, ready.session, ready.epoch, last))


def end_producers(state: BrokerState, context: Context, topic: TopicState, reason: str) -> None:
    """End all sessions of a topic's producers."""
    for session in sorted([*topic.producers, *(each.session for each in topic.waiting)]):
        remove_producer(state, context, topic, session, reason)


def remove_consumer(
    state: BrokerState,
    context: Context,
    subscription: SubscriptionState,
    session: int,
    reason: str | None = None,
) -> None:
    """A consumer has left. With a reason, its owner did not ask for it and is told."""
    del subscription.consumers[session]
    del state.sessions[session]
    state.touch(subscription)
    if reason is not None:
        context.notices.append(ConsumerGone(subscription.id, session, reason))


def remove_subscription(
    state: BrokerState, context: Context, subscription: SubscriptionState, reason: str
) -> None:
    """A subscription goes, and its consumers with it."""
    for session in sorted(subscription.consumers):
        remove_consumer(state, context, subscription, session, reason)
    topic = state.topics[subscription.topic]
    del topic.subscriptions[subscription.name]
    del state.subscriptions[subscription.id]
    state.touch(subscription)
    context.notices.append(SubscriptionGone(topic.id, subscription.id))


def remove_topic(state: BrokerState, context: Context, topic: TopicState) -> None:
    """A topic goes with all that it holds, and whoever is attached with it."""
    state.refresh(topic)
    end_producers(state, context, topic, "the topic was deleted")
    for _, subscription in sorted(topic.subscriptions.items()):
        remove_subscription(state, context, subscription, "the topic was deleted")
    state.drop_ledgers(topic, len(topic.ledgers))
    state.log.remove_topic(topic.id)
    del state.topics[topic.id]
    del state.names[topic.name]
    context.notices.append(TopicGone(topic.id))


def end_sessions(state: BrokerState, context: Context, sessions: Iterable[int], reason: str) -> None:
    """End sessions of any kind; then those who waited for them have their turn."""
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
