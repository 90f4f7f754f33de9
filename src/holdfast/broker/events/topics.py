"""Events of topics: create, delete, terminate, truncate, and their policies."""

from __future__ import annotations

import msgspec

from holdfast.broker.compaction.state import forget_compaction, remove_compaction
from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.cursors import advance_all, delete_subscription, require_drained
from holdfast.broker.events.maximums import require_topics
from holdfast.broker.events.notices import (
    CompactionChanged,
    ExchangeGone,
    LedgersGone,
    PoliciesChanged,
    TopicAdded,
    TopicClosed,
    TopicGone,
)
from holdfast.broker.events.outcomes import NO_ID, Done, TopicCreated, TopicTerminated, Trimmed
from holdfast.broker.events.sessions import end_producers
from holdfast.broker.permissions import place_of
from holdfast.broker.state import BrokerState, Policies, TopicState
from holdfast.errors import Busy, Exists, Misuse
from holdfast.formatting import plural
from holdfast.ids import require_left
from holdfast.names import namespace_of, topic_name


@event(10, version=7, base=7)
class TopicCreate(Event, frozen=True):
    """Create a topic. The incarnation is 16 random bytes from the sender."""

    name: str
    """In full."""
    incarnation: bytes
    policies: Policies = Policies()
    managed: bool = False
    """Only in a namespace that was created."""
    topics_max: int = 0
    """The option of the broker, for a namespace without the policy."""
    properties: dict[str, str] = msgspec.field(default_factory=dict)

    def apply(self, state: BrokerState, context: Context) -> TopicCreated:
        if topic_name(self.name) != self.name:
            raise Misuse(f"{self.name!r} is short for {topic_name(self.name)!r}; say it in full")
        if len(self.incarnation) != 16:
            raise Misuse(f"an incarnation of {len(self.incarnation)} bytes; it has 16")
        self.policies.require_sound()
        if self.name in state.names:
            what = "exchange" if state.names[self.name] in state.exchanges else "topic"
            raise Exists(f"the {what} {self.name} exists already; use another name")
        state.unreplicated.require_free(self.name)
        state.partitioned.require_free(self.name)
        if self.managed:
            state.namespaces.require(namespace_of(self.name))
        require_topics(state, namespace_of(self.name), 1, self.topics_max)
        require_left(state.next_topic, "ids of topics")
        topic = add_topic(state, context, self.name, self.incarnation, self.policies)
        topic.properties = dict(sorted(self.properties.items()))
        return TopicCreated(topic.id)


def add_topic(
    state: BrokerState, context: Context, name: str, incarnation: bytes, policies: Policies
) -> TopicState:
    """Create a topic whose name is free."""
    topic = TopicState(state.next_topic, name, incarnation, context.time)
    topic.policies = policies
    state.next_topic += 1
    state.topics[topic.id] = topic
    state.names[topic.name] = topic.id
    if state.topic_counts is not None:
        state.topic_counts[topic.namespace] += 1
    state.log.add_topic(topic.id, deduplicate=state.deduplicates(topic))
    state.touch(topic)
    context.notices.append(TopicAdded(topic))
    return topic


def delete_topic(state: BrokerState, context: Context, topic: TopicState) -> None:
    """Delete a topic with its entries, subscriptions and sessions."""
    state.refresh(topic)
    end_producers(state, context, topic, "the topic was deleted")
    for _, subscription in sorted(topic.subscriptions.items()):
        delete_subscription(state, context, subscription, "the topic was deleted")
    state.drop_ledgers(topic, len(topic.ledgers))
    remove_compaction(state, topic)
    if state.partitioned.parent(topic.name) is None:
        forget_permissions(state, topic.name)
    state.log.remove_topic(topic.id)
    del state.topics[topic.id]
    del state.names[topic.name]
    if topic.id in state.exchanges:
        forget_exchange(state, topic.id)
        context.notices.append(ExchangeGone(topic))
    else:
        forget_bindings(state, topic.id)
        if state.topic_counts is not None:
            state.topic_counts[topic.namespace] -= 1
        context.notices.append(TopicGone(topic))


def forget_permissions(state: BrokerState, full: str) -> None:
    """Remove the permissions on a deleted topic: they do not go to its next life."""
    if state.permissions.topics.pop(place_of(full), None) is not None:
        state.touch(state.permissions)


def forget_bindings(state: BrokerState, topic: int) -> None:
    """Remove all bindings to a topic, its alternate, and what it dropped."""
    for exchange in state.exchanges.bound_to(topic):
        exchange.unbind(topic)
        state.touch(exchange)
    if state.exchanges.alternates.topics.pop(topic, None) is not None:
        state.touch(state.exchanges.alternates)
    if state.thinned.pop(topic, None) is not None:
        state.touch()


def forget_exchange(state: BrokerState, gone: int) -> None:
    """Remove an exchange, also as the alternate of others."""
    exchanges = state.exchanges
    del exchanges.all[gone]
    for exchange in exchanges.all.values():
        if exchange.alternate == gone:
            exchange.alternate = 0
            state.touch(exchange)
    for owners in (exchanges.alternates.topics, exchanges.alternates.subscriptions):
        for owner in [each for each, alternate in owners.items() if alternate == gone]:
            del owners[owner]
            state.touch(exchanges.alternates)


@event(11, version=2, base=2)
class TopicDelete(Event, frozen=True):
    """Delete a topic. Without `force` only if it has no subscription and no producer."""

    topic: int
    force: bool = False
    drained: bool = False
    """Only if no subscription has a backlog."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        topic = state.require_topic(self.topic)
        if topic.id in state.exchanges:
            raise Misuse(f"{topic.name} is an exchange, not a topic; delete it as an exchange")
        if (parent := state.partitioned.parent(topic.name)) is not None:
            raise Misuse(f"{topic.name} is a partition of {parent[0]}; delete that topic with all partitions")
        if self.drained:
            for _, each in sorted(topic.subscriptions.items()):
                require_drained(each, topic.ledgers.end)
        if not self.force:
            require_unused(topic)
        delete_topic(state, context, topic)
        return Done()


def require_unused(topic: TopicState) -> None:
    """Raise Busy if a topic has producers or subscriptions."""
    counts = (len(topic.producers) + len(topic.waiting), len(topic.subscriptions))
    if any(counts):
        there_are = f"{plural(counts[0], 'producer')} and {plural(counts[1], 'subscription')}"
        raise Busy(f"{topic.name} has {there_are}; close and delete all of them first, or force")


@event(12)
class TopicTerminate(Event, frozen=True):
    """Refuse all further publishes. Entries stay readable."""

    topic: int

    def apply(self, state: BrokerState, context: Context) -> TopicTerminated:
        topic = state.require_topic(self.topic)
        if not topic.terminated:
            topic.terminated = True
            state.log.set_topic(topic.id, closed=True)
            state.touch(topic)
            context.notices.append(TopicClosed(topic))
        ledgers = topic.ledgers
        return TopicTerminated(
            ledgers.end, ledgers.id_of(ledgers.end - 1) if ledgers.end > ledgers.first else NO_ID
        )


@event(13)
class TopicTruncate(Event, frozen=True):
    """Delete all entries, also those of compacted views. Every subscription advances to the end."""

    topic: int

    def apply(self, state: BrokerState, context: Context) -> Trimmed:
        topic = state.require_topic(self.topic)
        gone: list[int] = []
        before = topic.ledgers.first
        compacted = forget_compaction(state, topic)
        if compacted:
            context.notices.append(CompactionChanged(topic))
        if len(topic.ledgers) or compacted:
            advance_all(state, context, topic, topic.ledgers.end)
            state.seal(topic)
            gone = state.drop_ledgers(topic, len(topic.ledgers))
            context.notices.append(LedgersGone(topic, gone))
        return Trimmed(gone, topic.ledgers.first, topic.ledgers.first - before)


@event(14, version=7, base=7)
class PolicySet(Event, frozen=True):
    """Change a topic's policies. Without deduplication, producers' sequences are forgotten."""

    topic: int
    policies: Policies
    fields: list[str] | None = None
    """Names of the policies that change; None: all. Two senders may change different ones."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        self.policies.require_sound()
        topic = state.require_topic(self.topic)
        policies = changed(topic.policies, self.policies, self.fields)
        if topic.policies == policies:
            return Done(changed=False)
        topic.policies = policies
        state.log.set_topic(topic.id, deduplicate=state.deduplicates(topic))
        state.touch(topic)
        context.notices.append(PoliciesChanged(topic.namespace, topic))
        return Done()


def changed(policies: Policies, wanted: Policies, fields: list[str] | None) -> Policies:
    """Return policies with the named fields as wanted.

    Raises:
        Misuse: a field does not exist.
    """
    if fields is None:
        return wanted
    values = wanted.fields()
    for name in fields:
        if name not in values:
            raise Misuse(f"there is no policy {name!r}; there are: {', '.join(sorted(values))}")
    return msgspec.structs.replace(policies, **{name: values[name] for name in fields})
