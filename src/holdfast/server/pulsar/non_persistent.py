"""Non-persistent topics: messages go to attached consumers with permits, or are dropped and counted.

Promises upward: each subscription hands a message to at most one consumer, within its permits, or counts it
as dropped (**I285**). Nothing is stored. In a cluster only the owner of a topic serves it, so that producers
and consumers meet (**I286**). Another member refuses clients, and they look the topic up again. Needs from
below: the owner of a name (`Membership.serves`).

A topic exists while clients are attached, and `IDLE_S` longer.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.broker import Sample
from holdfast.errors import Busy, Fenced, Misuse, NotFound
from holdfast.formatting import plural
from holdfast.names import namespace_of, no_subscription, partition_of
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.budget import SESSION_BYTES
from holdfast.server.pulsar import commands
from holdfast.server.pulsar.commands import partition_index
from holdfast.server.pulsar.listing import EMPTY, Listing

if TYPE_CHECKING:
    from holdfast.broker import PartitionsChanged, SubscriptionType
    from holdfast.server.pulsar.connection import Connection
    from holdfast.server.pulsar.listener import Server

IDLE_S = 60.0
"""Time for which a topic without clients keeps its counts."""

PRIORITY_MAX = 1000
"""The largest priority number: such a consumer is served last."""

WINDOW_S = 30.0
"""The shortest time over which rates are computed."""


class Meter:
    """Counts of messages, bytes and drops; their rates over 30 to 60 seconds."""

    def __init__(self, now: float) -> None:
        self.messages = self.bytes = self.dropped = 0
        self._looks = [(now, (0, 0, 0)), (now, (0, 0, 0))]

    def counts(self) -> tuple[int, int, int]:
        return self.messages, self.bytes, self.dropped

    def tick(self, now: float) -> None:
        """Remember the counts, if the last time is a window ago."""
        if now - self._looks[-1][0] >= WINDOW_S:
            self._looks = [self._looks[-1], (now, self.counts())]

    def rates(self, now: float) -> tuple[float, float, float]:
        """Return messages, bytes and dropped messages per second."""
        then, before = self._looks[0]
        seconds = max(1.0, now - then)
        messages, size, dropped = ((b - a) / seconds for a, b in zip(before, self.counts(), strict=True))
        return messages, size, dropped


class PassingProducer:
    """A producer of a non-persistent topic."""

    def __init__(
        self, connection: Connection, command: pb.CommandProducer, topic: NonPersistentTopic, name: str
    ) -> None:
        self.connection = connection
        self.id = command.producer_id
        self.topic = topic
        self.name = name
        self.attempt = 0 if command.user_provided_producer_name else command.epoch
        """A later attempt of one client takes the place of an earlier one."""
        self.exclusive = command.producer_access_mode == pb.Exclusive
        self.metadata = {each.key: each.value for each in command.metadata}
        self.opened_ns = connection.broker.clock.now_ns()
        self.meter = Meter(connection.loop.time())


class PassingConsumer:
    """A consumer of a non-persistent topic."""

    joined: PassingSubscription | None = None
    """Its subscription, while it is attached."""
    waits = False
    """It is in the turn of its subscription."""
    _permits = 0

    def __init__(
        self,
        connection: Connection,
        command: pb.CommandSubscribe,
        topic: NonPersistentTopic,
        type_: SubscriptionType,
    ) -> None:
        self.connection = connection
        self.id = command.consumer_id
        self.topic = topic
        self.subscription = command.subscription
        self.name = command.consumer_name
        self.type: SubscriptionType = type_
        self.priority = min(max(0, command.priority_level), PRIORITY_MAX)
        self.metadata = {each.key: each.value for each in command.metadata}
        self.opened_ns = connection.broker.clock.now_ns()
        self.meter = Meter(connection.loop.time())
        self._partition = partition_index(topic.name)

    @property
    def permits(self) -> int:
        """How many messages its client has asked for, and did not get yet."""
        return self._permits

    @permits.setter
    def permits(self, permits: int) -> None:
        self._permits = permits
        self.wait()

    def wait(self) -> None:
        """Wait for a message, if its client has asked for some."""
        if self._permits > 0 and self.joined is not None and not self.waits:
            self.joined.offer(self)

    @property
    def ready(self) -> bool:
        """Whether it takes a message now: its client has asked for some, and reads."""
        return self.permits > 0 and not self.connection.stalled

    def told_active(self) -> bytes:
        """Return the frame that tells whether it is the one that is served."""
        is_active = self.joined is not None and self.joined.active is self
        return commands.active_consumer_change(self.id, is_active)

    def deliver(self, number: int, messages: int, entry: bytes) -> None:
        self._permits -= messages
        self.meter.messages += messages
        self.meter.bytes += len(entry)
        self.connection.send(delivery(self.id, number, entry, self._partition))


class PassingSubscription:
    """The consumers of one name. It exists while one is attached."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.consumers: list[PassingConsumer] = []
        """In the order of joining; of type failover the best priority first."""
        self.meter = Meter(now)
        self._levels: list[int] = []
        """The priorities of consumers that wait for a message, the best first."""
        self._turns: dict[int, deque[PassingConsumer]] = {}
        """By priority, consumers that wait for a message. Those that cannot take one leave it when met."""

    @property
    def type(self) -> SubscriptionType:
        return self.consumers[0].type

    @property
    def active(self) -> PassingConsumer | None:
        """The only consumer that is served; None: all are."""
        return None if self.type == "shared" else self.consumers[0]

    def attach(self, consumer: PassingConsumer) -> None:
        """Add a consumer.

        Raises:
            Busy: the subscription is exclusive and has a consumer.
            Misuse: it has consumers of another type.
        """
        if self.consumers and self.type != consumer.type:
            raise Misuse(
                f"the subscription {self.name!r} has {self.type} consumers; use that type, or another name"
            )
        if self.consumers and consumer.type == "exclusive":
            raise Busy(f"the subscription {self.name!r} is exclusive, and has a consumer")
        if consumer.type == "shared":
            self.consumers.append(consumer)
        else:
            insort(self.consumers, consumer, key=lambda each: each.priority)
        consumer.joined = self
        consumer.wait()

    def offer(self, consumer: PassingConsumer) -> None:
        """Let a consumer wait for a message."""
        turn = self._turns.get(consumer.priority)
        if turn is None:
            turn = self._turns[consumer.priority] = deque()
            insort(self._levels, consumer.priority)
        turn.append(consumer)
        consumer.waits = True

    def pass_on(self, number: int, messages: int, entry: bytes) -> bool:
        """Hand an entry to a ready consumer, or count it as dropped; return which.

        True: a consumer has it. A delivery may close other clients: memory for clients has a limit. So the
        last consumer may be gone.
        """
        chosen = self._next() if self.consumers else None
        if chosen is None:
            self.meter.dropped += messages
            return False
        self.meter.messages += messages
        self.meter.bytes += len(entry)
        chosen.deliver(number, messages, entry)
        return True

    def _next(self) -> PassingConsumer | None:
        active = self.active
        if active is not None:
            return active if active.ready else None
        while self._levels:
            turn = self._turns[self._levels[0]]
            while turn:
                consumer = turn.popleft()
                if consumer.joined is self and consumer.ready:
                    turn.append(consumer)
                    return consumer
                consumer.waits = False  # with permits, or when its client reads again, it comes back
            del self._turns[self._levels.pop(0)]
        return None


class NonPersistentTopic:
    """A topic that keeps no message."""

    def __init__(self, name: str, now: float) -> None:
        self.name = name
        self.producers: list[PassingProducer] = []
        self.subscriptions: dict[str, PassingSubscription] = {}
        self.created_by_admin = False
        """It stays until it is deleted."""
        self.told_of_schemas = False
        """The log has that schemas have no effect here."""
        self.meter = Meter(now)
        """Messages that came in. Dropped: those for which no subscription had a consumer, too."""
        self.idle_since = now
        self._number = 0

    def publish(self, entries: list[tuple[int, bytes]], messages: int, size: int) -> int:
        """Pass on entries, each with its number of messages; return the number of the first."""
        first = self._number
        self._number += len(entries)
        self.meter.messages += messages
        self.meter.bytes += size
        if not self.subscriptions:
            self.meter.dropped += messages
        for subscription in [*self.subscriptions.values()]:
            before = subscription.meter.dropped
            for at, (count, entry) in enumerate(entries):
                if subscription.pass_on(first + at, count, entry) is False:  # nor is one for the others
                    subscription.meter.dropped += sum(each for each, _ in entries[at + 1 :])
                    break
            self.meter.dropped += subscription.meter.dropped - before
        return first

    def earlier(self, producer: PassingProducer) -> PassingProducer | None:
        """Return an earlier attempt of the same client, in whose place this one comes."""
        there = next((each for each in self.producers if each.name == producer.name), None)
        return there if there is not None and there.attempt < producer.attempt else None

    def open(self, producer: PassingProducer) -> None:
        """Add a producer.

        Raises:
            Busy: the name is taken, or another producer is exclusive.
            Fenced: it is to be exclusive, and there are others.
        """
        if any(each.name == producer.name for each in self.producers):
            raise Busy(f"{self.name} has a producer {producer.name!r} already; use another name")
        if self.producers and producer.exclusive:
            raise Fenced(f"{self.name} has other producers; close them, or open this one as Shared")
        if self.producers and self.producers[0].exclusive:
            raise Busy(f"{self.name} has the exclusive producer {self.producers[0].name!r}; close it first")
        self.producers.append(producer)

    def join(self, consumer: PassingConsumer, now: float) -> PassingConsumer | None:
        """Add a consumer; its subscription begins with the first.

        Returns the failover consumer whose place it takes, if any.
        """
        found = self.subscriptions.get(consumer.subscription)
        subscription = found or PassingSubscription(consumer.subscription, now)
        before = subscription.active if found is not None else None
        subscription.attach(consumer)
        self.subscriptions[consumer.subscription] = subscription
        return None if before is subscription.active else before

    def leave(self, consumer: PassingConsumer) -> PassingConsumer | None:
        """Remove a consumer; return the failover consumer that is served in its place."""
        subscription = self.subscriptions.get(consumer.subscription)
        if subscription is None or consumer not in subscription.consumers:
            return None
        before = subscription.active
        subscription.consumers.remove(consumer)
        consumer.joined = None
        if not subscription.consumers:
            del self.subscriptions[consumer.subscription]
            return None
        return None if subscription.active is before else subscription.active

    def subscription(self, name: str) -> PassingSubscription:
        """Return a subscription, or raise NotFound."""
        found = self.subscriptions.get(name)
        if found is None:
            raise NotFound(no_subscription(self.name, name, self.subscriptions))
        return found

    @property
    def unused(self) -> bool:
        return not self.producers and not self.subscriptions

    def meters(self) -> Iterator[Meter]:
        yield self.meter
        yield from (each.meter for each in self.producers)
        for subscription in self.subscriptions.values():
            yield subscription.meter
            yield from (each.meter for each in subscription.consumers)


class NonPersistentTopics:
    """The non-persistent topics that this server serves, by full name."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.topics: dict[str, NonPersistentTopic] = {}
        self.gone = (0, 0, 0)
        """Messages, bytes and drops of topics that are no more."""
        self._listings: dict[str, Listing] = {}
        """By namespace, until a topic comes or goes."""
        self._with: dict[str, tuple[Listing, Listing, Listing]] = {}
        """By namespace: its persistent topics, its others, and both together."""

    def ensure(self, full: str, now: float) -> NonPersistentTopic:
        """Return a topic, and create it if it is missing.

        Raises:
            TooManyConnections: limits.held_bytes is reached.
        """
        found = self.topics.get(full)
        if found is None:
            self._server.budget.require(SESSION_BYTES, "a topic")
            found = self.topics[full] = NonPersistentTopic(full, now)
            self._server.budget.hold(found, SESSION_BYTES)
            self.changed(full)
        return found

    def require(self, full: str) -> NonPersistentTopic:
        """Return a topic.

        Raises:
            NotFound: it does not exist.
        """
        found = self.topics.get(full)
        if found is None:
            if count := self._server.broker.partitioned.count(full):
                words = f"{full} has {plural(count, 'partition')}, and this needs a single topic"
                raise NotFound(f"{words}; use partitioned-stats, DELETE partitions, or name a partition")
            raise NotFound(f"there is no topic {full} here; it exists while clients are attached")
        return found

    def listing(self, namespace: str) -> Listing:
        """Return the topics of a namespace: those served here, and all partitions."""
        found = self._listings.get(namespace)
        if found is None:
            names = {each for each in self.topics if namespace_of(each) == namespace}
            names |= set(self._server.broker.partitioned.non_persistent(namespace))
            if not names:  # clients may ask for any namespace
                return EMPTY
            found = self._listings[namespace] = Listing(sorted(names))
        return found

    def listing_with(self, namespace: str, persistent: Listing) -> Listing:
        """Return the topics of a namespace together with its persistent ones."""
        passing = self.listing(namespace)
        if not passing.names or not persistent.names:
            return passing if passing.names else persistent
        known = self._with.get(namespace)
        if known is None or known[0] is not persistent or known[1] is not passing:
            both = Listing(sorted([*persistent.names, *passing.names]))
            known = self._with[namespace] = (persistent, passing, both)
        return known[2]

    def changed(self, full: str) -> None:
        """Note that a topic has come or gone, or its partitions."""
        self._listings.pop(namespace_of(full), None)
        self._with.pop(namespace_of(full), None)

    def tick(self, now: float) -> None:
        """Remember counts, drop idle topics, and close those that another member owns now."""
        serves = self._server.broker.membership.serves
        for topic in list(self.topics.values()):
            for meter in topic.meters():
                meter.tick(now)
            if not topic.unused:
                topic.idle_since = now
                if not serves(topic.name):
                    self.expel(topic)
            elif now - topic.idle_since > IDLE_S and not topic.created_by_admin:
                self.drop(topic)

    def drop(self, topic: NonPersistentTopic) -> None:
        """Forget a topic; its counts stay in the sums."""
        del self.topics[topic.name]
        self.changed(topic.name)
        self._server.budget.hold(topic, 0)
        before, now = self.gone, topic.meter.counts()
        self.gone = (before[0] + now[0], before[1] + now[1], before[2] + now[2])

    def expel(self, topic: NonPersistentTopic) -> int:
        """Close all clients of a topic, which look it up again; return their number."""
        consumers = [each for every in topic.subscriptions.values() for each in every.consumers]
        producers = list(topic.producers)
        for producer in producers:
            producer.connection.passing.expel_producer(producer)
        for consumer in consumers:
            consumer.connection.passing.expel_consumer(consumer)
        return len(producers) + len(consumers)

    def partitions_changed(self, notice: PartitionsChanged) -> None:
        """End topics that have partitions now, and the partitions of deleted topics."""
        self.changed(notice.name)
        for topic in list(self.topics.values()):
            found = partition_of(topic.name)
            is_gone = not notice.count and found is not None and found[0] == notice.name
            if is_gone or (notice.count and topic.name == notice.name):
                self.expel(topic)
                self.drop(topic)

    def samples(self) -> Iterator[Sample]:
        """Yield the figures for the page of metrics, if there was such a topic."""
        if not self.topics and not any(self.gone):
            return
        counts = [self.gone, *(each.meter.counts() for each in self.topics.values())]
        sums = [sum(each) for each in zip(*counts, strict=True)]
        yield "holdfast_non_persistent_topics", len(self.topics)
        yield "holdfast_non_persistent_in_messages_total", sums[0]
        yield "holdfast_non_persistent_in_bytes_total", sums[1]
        yield "holdfast_non_persistent_dropped_messages_total", sums[2]


def delivery(consumer: int, number: int, entry: bytes, partition: int | None = None) -> bytes:
    """Return the frame of a MESSAGE; `partition` is the index of its topic."""
    place = pb.MessageIdData(ledgerId=0, entryId=number, partition=partition)
    message = pb.CommandMessage(consumer_id=consumer, message_id=place, redelivery_count=0)
    command = pb.BaseCommand(type=pb.BaseCommand.MESSAGE, message=message).SerializeToString()
    return struct.pack(">II", 4 + len(command) + len(entry), len(command)) + command + entry
