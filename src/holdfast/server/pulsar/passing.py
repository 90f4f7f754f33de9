"""Sessions of a connection with non-persistent topics: open, close, publish, permits.

The rules of the topics themselves are in `non_persistent`. Acknowledgements have no effect here: a message
that was handed over is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._core import encode_receipts
from holdfast.broker import SubscriptionType
from holdfast.errors import Busy, Fenced, Misuse, Unsupported
from holdfast.names import checked_name
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.budget import SESSION_BYTES
from holdfast.server.logs import Log
from holdfast.server.pulsar import commands, lookup
from holdfast.server.pulsar.commands import Refused
from holdfast.server.pulsar.non_persistent import NonPersistentTopic, PassingConsumer, PassingProducer
from holdfast.server.registry.versions import has_definition

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection
    from holdfast.server.pulsar.setup import PulsarAction

LOG = Log("holdfast.wire")

_TYPES: dict[int, SubscriptionType] = {
    pb.CommandSubscribe.Exclusive: "exclusive",
    pb.CommandSubscribe.Shared: "shared",
    pb.CommandSubscribe.Failover: "failover",
}


class Passing:
    """A connection's producers and consumers at non-persistent topics, by their ids."""

    def __init__(self, connection: Connection) -> None:
        self._on = connection
        self.producers: dict[int, PassingProducer] = {}
        self.consumers: dict[int, PassingConsumer] = {}

    # -- opening and closing ---------------------------------------------------------------------------

    def _topic(self, name: str, action: PulsarAction, subscription: str = "") -> NonPersistentTopic:
        """Return the topic that a client names, created if it is missing.

        Raises:
            Refused: another member owns it.
            NotFound: it is missing, and is not created; or it is partitioned.
        """
        on, full = self._on, lookup.full_name(name)
        on.authorize(action, full, subscription)
        broker, own = on.broker, on.server.non_persistent
        if not broker.membership.serves(full):
            owner = broker.membership.owner_words(full)
            raise Refused(pb.ServiceNotReady, f"{owner} alone serves {full}; look it up again")
        if full not in own.topics and broker.partitioned.parent(full) is None:
            broker.require_namespace(full)
            broker.partitioned.require_other(full)
            broker.partitioned.require_creatable(full)
        return own.ensure(full, on.loop.time())

    async def produce(self, command: pb.CommandProducer) -> bytes:
        """PRODUCER: open a producer. Its id is free."""
        on = self._on
        if command.producer_access_mode not in (pb.Shared, pb.Exclusive):
            raise Unsupported(
                f"{command.topic} keeps no state of its producers; use the access mode Shared or Exclusive"
            )
        if command.initial_subscription_name:
            raise Unsupported(f"{command.topic} keeps no message for an initial subscription; leave it out")
        name = command.producer_name or f"{on.broker.options.cluster}-{on.broker.random.token(6).hex()}"
        checked_name(name, "a producer")
        size = SESSION_BYTES + commands.require_properties(on, command.metadata, "a producer")
        on.server.budget.require(size, "a producer")
        topic = self._topic(command.topic, "produce")
        given_up = on.server.unroutable.pop((topic.name, name), None)
        if given_up is not None and command.epoch > 0:
            raise Fenced(given_up)
        producer = PassingProducer(on, command, topic, name)
        try:
            self._open(topic, producer)
        except (Busy, Fenced):
            holders = {each.connection for each in topic.producers if each.name == name or producer.exclusive}
            holders |= {each.connection for each in topic.producers if each.exclusive}
            if await on.server.all_live(holders - {on}):
                raise
            topic = self._topic(command.topic, "produce")  # it may have ended meanwhile
            producer.topic = topic
            self._open(topic, producer)
        _note_schema(topic, command)
        self.producers[producer.id] = producer
        on.server.budget.hold(producer, size)
        on.reader.set_passing_producer(producer.id)
        return self.opened(command, producer)

    def _open(self, topic: NonPersistentTopic, producer: PassingProducer) -> None:
        """Open a producer; an earlier attempt of the same client ends."""
        earlier = topic.earlier(producer)
        if earlier is not None:
            earlier.connection.passing.close_producer(earlier.id)
        topic.open(producer)

    def opened(self, command: pb.CommandProducer, producer: PassingProducer) -> bytes:
        """Return the answer to a PRODUCER, also to one that is sent again."""
        epoch = 0 if producer.exclusive else None
        return commands.producer_success(command.request_id, producer.name, -1, epoch, ready=True)

    async def subscribe(self, command: pb.CommandSubscribe) -> bytes:
        """SUBSCRIBE: join a subscription, which exists while it has consumers. The consumer's id is free."""
        on = self._on
        type_ = _TYPES.get(command.subType)
        if type_ is None:
            raise Unsupported(
                f"Key_Shared is not supported for {command.topic}, which is not persistent; use Exclusive, "
                "Shared or Failover"
            )
        if command.read_compacted:
            raise Unsupported(f"{command.topic} keeps no message, so it is not compacted; read it as it is")
        checked_name(command.subscription, "a subscription")
        if not command.consumer_name:
            command.consumer_name = f"consumer-{on.broker.random.token(4).hex()}"
        checked_name(command.consumer_name, "a consumer")
        size = SESSION_BYTES + commands.require_properties(on, command.metadata, "a consumer")
        on.server.budget.require(size, "a consumer")
        topic = self._topic(command.topic, "consume", command.subscription)
        consumer = PassingConsumer(on, command, topic, type_)
        try:
            displaced = topic.join(consumer, on.loop.time())
        except (Busy, Misuse):
            there = topic.subscriptions[command.subscription].consumers
            if await on.server.all_live({each.connection for each in there} - {on}):
                raise
            consumer.topic = topic = self._topic(command.topic, "consume", command.subscription)
            displaced = topic.join(consumer, on.loop.time())
        _note_schema(topic, command)
        self.consumers[consumer.id] = consumer
        on.server.budget.hold(consumer, size)
        _tell_active(displaced)
        told = consumer.told_active() if type_ == "failover" else b""
        return commands.success(command.request_id) + told

    def close_producer(self, id: int) -> bool:  # noqa: A002  # as in the protocol
        """Close a producer; return whether it was one of these."""
        producer = self.producers.pop(id, None)
        if producer is None:
            return False
        self._on.reader.drop_producer(id)
        producer.topic.producers.remove(producer)
        self._on.server.budget.hold(producer, 0)
        return True

    def close_consumer(self, id: int) -> bool:  # noqa: A002
        """Close a consumer; return whether it was one of these."""
        consumer = self.consumers.pop(id, None)
        if consumer is None:
            return False
        _tell_active(consumer.topic.leave(consumer))
        self._on.server.budget.hold(consumer, 0)
        return True

    def unsubscribe(self, id: int, force: bool) -> bool:  # noqa: A002
        """End the subscription of a consumer; return whether it is one of these.

        Raises:
            Refused: it has other consumers.
        """
        consumer = self.consumers.get(id)
        if consumer is None:
            return False
        attached = consumer.topic.subscription(consumer.subscription).consumers
        others = [each for each in attached if each is not consumer]
        if others and not force:
            raise commands.in_use(consumer.subscription, len(others))
        for each in others:
            each.connection.passing.expel_consumer(each)
        return self.close_consumer(id)

    def expel_producer(self, producer: PassingProducer) -> None:
        """Close a producer at its client, which opens it again."""
        if self.close_producer(producer.id):
            self._on.send(commands.close_producer(producer.id))

    def expel_consumer(self, consumer: PassingConsumer) -> None:
        """Close a consumer at its client, which subscribes again."""
        if self.close_consumer(consumer.id):
            self._on.send(commands.close_consumer(consumer.id))

    def gone(self) -> None:
        """Close everything at the end of the connection."""
        for producer in list(self.producers):
            self.close_producer(producer)
        for consumer in list(self.consumers):
            self.close_consumer(consumer)

    def release(self) -> None:
        """Let consumers of a client that reads again wait for messages."""
        for consumer in self.consumers.values():
            consumer.wait()

    def shut(self) -> None:
        """Close everything at the client when the server stops."""
        for producer in list(self.producers.values()):
            self.expel_producer(producer)
        for consumer in list(self.consumers.values()):
            self.expel_consumer(consumer)

    # -- messages --------------------------------------------------------------------------------------

    def published(
        self,
        id: int,  # noqa: A002
        messages: int,
        size: int,
        sequences: bytes,
        entries: list[tuple[int, bytes]],
    ) -> None:
        """Pass on a run of SENDs, and confirm it: it was received."""
        producer = self.producers.get(id)
        if producer is None:
            return
        producer.meter.messages += messages
        producer.meter.bytes += size
        before = producer.topic.meter.dropped
        first = producer.topic.publish(entries, messages, size)
        producer.meter.dropped += producer.topic.meter.dropped - before
        self._on.send(encode_receipts(id, sequences, 0, first))

    def refused(self, id: int, sequence: int, reason: Refused, failed: bool, final: bool) -> bool:  # noqa: A002
        """Answer a SEND that the reader refused; return whether its producer is one of these."""
        producer = self.producers.get(id)
        if producer is None:
            return False
        commands.tell_refused(self._on, "message refused", reason, producer=id)
        self._on.send(commands.send_error(id, sequence, reason))
        if final:
            self._on.server.give_up(producer.topic.name, producer.name, str(reason))
        if failed:
            self.close_producer(id)
        return True

    def flow(self, id: int, permits: int) -> None:  # noqa: A002
        """FLOW: add permits."""
        consumer = self.consumers.get(id)
        if consumer is not None:
            consumer.permits += permits

    def require_kept(self, id: int) -> None:  # noqa: A002
        """Refuse a request that needs stored messages.

        Raises:
            Refused: the consumer is at a non-persistent topic.
        """
        consumer = self.consumers.get(id)
        if consumer is not None:
            raise Refused(
                pb.NotAllowedError,
                f"{consumer.topic.name} keeps no message: nothing is found or sought",
            )


def _tell_active(consumer: PassingConsumer | None) -> None:
    """Tell a failover consumer that it is served from now on, or not any more."""
    if consumer is not None:
        consumer.connection.send(consumer.told_active())


def _note_schema(topic: NonPersistentTopic, command: pb.CommandProducer | pb.CommandSubscribe) -> None:
    """Log once for each topic that the schema of a client has no effect."""
    if command.HasField("schema") and has_definition(command.schema) and not topic.told_of_schemas:
        topic.told_of_schemas = True
        LOG.warning(
            "a client brings a schema, and a non-persistent topic has none: it is not compared with others",
            topic=topic.name,
        )
