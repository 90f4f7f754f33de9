"""Join consumers of a connection to subscriptions, and detach them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from holdfast._core import AckIds
from holdfast.broker import (
    Dispatcher,
    KeyShared,
    Start,
    SubscriptionState,
    SubscriptionType,
    Topic,
    require_type,
)
from holdfast.errors import Busy, Denied, HoldfastError, Misuse, NotFound
from holdfast.ids import LATEST, MessageId
from holdfast.names import checked_name, is_persistent
from holdfast.protocol import framed
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar import commands, lookup
from holdfast.server.pulsar.commands import Refused, id_of
from holdfast.server.pulsar.delivery import WireConsumer
from holdfast.server.pulsar.non_persistent import PRIORITY_MAX
from holdfast.server.registry import versions

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection

_TYPES: dict[int, SubscriptionType] = {
    pb.CommandSubscribe.Exclusive: "exclusive",
    pb.CommandSubscribe.Shared: "shared",
    pb.CommandSubscribe.Failover: "failover",
    pb.CommandSubscribe.Key_Shared: "key_shared",
}
_SUB_TYPES = {
    "exclusive": "Exclusive",
    "shared": "Shared",
    "failover": "Failover",
    "key_shared": "Key_Shared",
}


class Consumers:
    """The consumers of one connection, by the ids of its client."""

    def __init__(self, connection: Connection) -> None:
        self._on = connection
        self._joined: dict[int, WireConsumer] = {}
        self._joining: dict[int, asyncio.Task[Any]] = {}
        self._later: dict[int, list[bytes]] = {}
        """Answers that the client must get after that to its SUBSCRIBE."""

    def require(self, id: int) -> WireConsumer:  # noqa: A002  # as in the protocol
        """Return the consumer of this id.

        Raises:
            Refused: this connection has no such consumer.
        """
        consumer = self._joined.get(id)
        if consumer is None:
            self._on.passing.require_kept(id)
            raise Refused(pb.MetadataError, f"this connection has no consumer {id}; subscribe first")
        return consumer

    # -- joining ---------------------------------------------------------------------------------------

    async def subscribe(self, command: pb.CommandSubscribe) -> bytes | None:
        """SUBSCRIBE: join a subscription, and create it if it is new."""
        id, passing = command.consumer_id, self._on.passing  # noqa: A001
        known = self._joined.get(id) or passing.consumers.get(id)
        if known is not None:  # the client did not get the first answer
            if (known.topic.name, known.subscription) != (
                lookup.full_name(command.topic),
                command.subscription,
            ):
                raise Refused(
                    pb.NotAllowedError,
                    f"consumer {id} of this connection has {known.subscription!r} of {known.topic.name}; "
                    "close it first",
                )
            return commands.success(command.request_id)
        if id in self._joining:
            raise Refused(pb.ServiceNotReady, f"consumer {id} is already joining; wait for the answer")
        most = self._on.options.consumers_per_connection
        if len(self._joined) + len(self._joining) + len(passing.consumers) >= most:
            raise Refused(
                pb.NotAllowedError,
                f"this connection has {most} consumers, the most that limits.consumers_per_connection "
                "allows; close some, use another connection, or raise the limit",
            )
        task = asyncio.current_task()
        assert task is not None
        self._joining[id] = task
        try:
            if not is_persistent(command.topic):
                return await passing.subscribe(command)
            consumer = await self._join_or_again(command)
        except BaseException:
            self._on.loop.call_soon(self._send_later, id)
            raise
        finally:
            if self._joining.get(id) is task:
                del self._joining[id]
        self._joined[id] = consumer
        self._on.send(commands.success(command.request_id))
        self._send_later(id)
        consumer.answered()
        return None

    def answer(self, id: int, answer: bytes) -> None:  # noqa: A002
        """Send an answer; while a SUBSCRIBE of this id is pending, after its answer."""
        if id in self._joining:
            self._later.setdefault(id, []).append(answer)
        else:
            self._on.send(answer)

    def _send_later(self, id: int) -> None:  # noqa: A002
        for answer in self._later.pop(id, ()):
            self._on.send(answer)

    async def _join_or_again(self, command: pb.CommandSubscribe) -> WireConsumer:
        """Join; once more if the subscription expired in this moment, or its topic was deleted."""
        try:
            return await self._join(command)
        except NotFound:
            return await self._join(command)  # if it cannot be created, this says so

    async def _join(self, command: pb.CommandSubscribe) -> WireConsumer:
        type_ = _TYPES[command.subType]
        keys = _keys(command) if type_ == "key_shared" else None
        checked_name(command.subscription, "a subscription")
        if not command.consumer_name:
            command.consumer_name = f"consumer-{self._on.broker.random.token(4).hex()}"
        checked_name(command.consumer_name, "a consumer")
        topic = await lookup.topic_for(
            self._on, command.topic, "consume", command.subscription, create=command.force_topic_creation
        )
        require_type(self._on.broker, topic, type_)
        if command.HasField("schema"):
            await versions.admit_consumer(self._on.broker, topic, command.schema)
        commands.require_properties(self._on, command.metadata, "a consumer")
        commands.require_properties(self._on, command.subscription_properties, "a subscription")
        who = f"{self._on.address.rpartition(':')[0]}/{command.consumer_name}/{command.consumer_id}"
        self._on.broker.limiting.admit_subscribe(topic, who)
        join = self._join_durable if command.durable else self._join_volatile
        consumer = await join(command, topic, type_, keys)
        try:
            self._on.authorize("consume", topic.name, command.subscription)  # again: the grant may have ended
        except Denied:
            consumer.detach()
            raise
        return consumer

    async def _join_durable(
        self,
        command: pb.CommandSubscribe,
        topic: Topic,
        type_: SubscriptionType,
        keys: KeyShared | None,
    ) -> WireConsumer:
        broker = self._on.broker
        properties = {each.key: each.value for each in command.subscription_properties}
        subscription = await broker.ensure_subscription(
            topic, command.subscription, self._start(command), properties, command.read_compacted
        )
        dispatcher = broker.dispatcher(topic, subscription)
        await dispatcher.reset_ended()
        await self._require_whole(topic, dispatcher)
        session = await self._enter(subscription, command, type_, dispatcher, keys)
        consumer: WireConsumer | None = None
        try:
            # A consumer that joins during a reset would be closed at its end without a message.
            await dispatcher.reset_ended()
            priority = _priority(command)
            consumer = WireConsumer(self._on, command, topic, dispatcher, type_, priority, session, keys)
            consumer.attach()
        except BaseException:
            broker.sessions.drop_consumer(session)
            raise
        return consumer

    async def _enter(
        self,
        subscription: SubscriptionState,
        command: pb.CommandSubscribe,
        type_: SubscriptionType,
        dispatcher: Dispatcher,
        keys: KeyShared | None,
    ) -> int:
        """Join the subscription; ping consumers that prevent it, and retry if one is dead."""
        broker, name, priority = self._on.broker, command.consumer_name, _priority(command)

        async def join() -> int:
            topic = broker.topics.get(subscription.topic)
            if topic is not None:
                broker.limiting.require_beside_readers(topic)
            return await broker.sessions.join(subscription, name, type_, priority, keys)

        try:
            return await join()
        except (Busy, Misuse) as error:
            holders = self._on.server.attached.get(dispatcher, {})
            if await self._on.server.all_live({each.connection for each in holders} - {self._on}):
                raise Busy(str(error)) if holders else error from None
        return await join()

    async def _join_volatile(
        self,
        command: pb.CommandSubscribe,
        topic: Topic,
        type_: SubscriptionType,
        keys: KeyShared | None,
    ) -> WireConsumer:
        if command.subscription in topic.subscriptions:
            raise Misuse(
                f"{topic.name} has a durable subscription {command.subscription!r}; use another name for a "
                "reader"
            )
        broker, keep_s = self._on.broker, self._on.server.options.volatile_s
        broker.limiting.require_consumers(topic)
        dispatcher = broker.volatile.find(topic, command.subscription)
        known = dispatcher is not None
        if dispatcher is None:
            start = self._start(command)
            place = await topic.place(start)  # also of a compacted reader: what lies below is in its view
            # A reader names its last message; the next one may be damaged, too.
            for each in {place, place + isinstance(start, MessageId)} & topic.damaged:
                await topic.require_whole(each)
            compacted = command.read_compacted
            dispatcher = await broker.volatile.open(topic, command.subscription, start, compacted)
        try:
            await dispatcher.reset_ended()
            consumer = WireConsumer(
                self._on, command, topic, dispatcher, type_, _priority(command), session=0, keys=keys
            )
            consumer.attach()
        except asyncio.CancelledError:
            broker.volatile.release(topic, dispatcher, keep_s)  # no other consumer may be there to do it
            raise
        except (Busy, Misuse) as error:
            holders = self._on.server.attached.get(dispatcher, {})
            if await self._on.server.all_live({each.connection for each in holders} - {self._on}):
                raise Busy(str(error)) from error
            reason = f"the consumer of {command.subscription!r} has just disconnected; try again"
            raise Refused(pb.ServiceNotReady, reason) from error
        except BaseException:  # no memory, say; without a consumer the subscription would stay forever
            broker.volatile.release(topic, dispatcher, keep_s if known else None)
            raise
        return consumer

    async def _require_whole(self, topic: Topic, dispatcher: Dispatcher) -> None:
        """Raise Corrupt if the next entry of the subscription is damaged.

        Its consumers were closed for that, and a new one would wait forever.
        """
        found = dispatcher.damage
        next_ = dispatcher.read_position if found is None else found[0]
        if found is not None or next_ in topic.damaged:
            await topic.require_whole(next_)

    def _start(self, command: pb.CommandSubscribe) -> Start:
        """Return the start of a new subscription."""
        if command.start_message_rollback_duration_sec:
            # Log time, as in the entries: the wall clock may be a year from it.
            now_ns = self._on.broker.log_time_now()
            return max(0, now_ns - command.start_message_rollback_duration_sec * 1_000_000_000)
        if command.HasField("start_message_id") and not command.durable:
            start = id_of(command.start_message_id)
            if start.ledger != LATEST.ledger:  # the entry differs by client
                # Start at the entry itself, although readers mean "after it". They may still need a part of
                # its batch, and they skip the messages that they have.
                return "earliest" if start.ledger < 0 else start._replace(batch=-1)
        earliest = command.initialPosition == pb.CommandSubscribe.Earliest
        return "earliest" if earliest else "latest"

    # -- leaving ---------------------------------------------------------------------------------------

    async def close(self, command: pb.CommandCloseConsumer) -> bytes:
        """CLOSE_CONSUMER."""
        if self._on.passing.close_consumer(command.consumer_id):
            return commands.success(command.request_id)
        joining = self._joining.pop(command.consumer_id, None)
        if joining is not None:
            joining.cancel()
        consumer = self._joined.pop(command.consumer_id, None)
        if consumer is not None:
            consumer.detach()
        return commands.success(command.request_id)

    async def unsubscribe(self, command: pb.CommandUnsubscribe) -> bytes:
        """UNSUBSCRIBE: delete the subscription, by its only consumer or by force."""
        if self._on.passing.unsubscribe(command.consumer_id, command.force):
            return commands.success(command.request_id)
        consumer = self.require(command.consumer_id)
        if consumer.session == 0:
            attached = self._on.server.attached.get(consumer.dispatcher, {})
            volatile = [each for each in attached if each is not consumer]
            if volatile and not command.force:
                raise commands.in_use(consumer.subscription, len(volatile))
            for each in volatile:
                each.expel()
            consumer.detach()
            self.drop(consumer)
            return commands.success(command.request_id)
        subscription = consumer.topic.subscription(consumer.subscription)
        others = [each for each in subscription.consumers if each != consumer.session]
        if others and not command.force:
            raise commands.in_use(subscription.name, len(others))
        self.drop(consumer)
        consumer.detach()
        try:
            await self._on.broker.admin.delete_subscription(
                consumer.topic.name, subscription.name, force=command.force
            )
        except HoldfastError:  # another consumer joined meanwhile; this one was detached, and must rejoin
            self._on.send(commands.close_consumer(consumer.id))
            raise
        return commands.success(command.request_id)

    def drop(self, consumer: WireConsumer) -> None:
        """Drop a detached consumer."""
        if self._joined.get(consumer.id) is consumer:
            del self._joined[consumer.id]

    def gone(self) -> None:
        """Detach all consumers at the end of the connection."""
        self._on.passing.gone()
        joined, self._joined = self._joined, {}
        for consumer in joined.values():
            consumer.detach()

    def shut(self) -> None:
        """Close all consumers when the server stops."""
        self._on.passing.shut()
        for consumer in list(self._joined.values()):
            consumer.expel()

    # -- what clients say without a request ------------------------------------------------------------

    def flow(self, id: int, permits: int) -> None:  # noqa: A002
        consumer = self._joined.get(id)
        if consumer is not None:
            consumer.flow(permits)
        else:
            self._on.passing.flow(id, permits)

    def acked(self, id: int, cumulative: int, ids: AckIds, request: int, transaction: bool) -> None:  # noqa: A002
        consumer = self._joined.get(id)
        reason: Refused | None = None
        if transaction:
            reason = Refused(pb.NotAllowedError, "transactions are not supported; nothing was acknowledged")
        elif id in self._on.passing.consumers:
            if request >= 0:  # the message is gone, and nothing is left to acknowledge
                self._on.send(commands.ack_response(id, request, None))
        elif consumer is None:
            reason = Refused(
                pb.ConsumerNotFound,
                f"consumer {id} was closed; nothing was acknowledged, and the messages are redelivered",
            )
        else:
            consumer.acked(bool(cumulative), ids, request)
        if reason is not None:
            commands.tell_refused(self._on, "acknowledgement refused", reason, consumer=id)
            if request >= 0:
                self._on.send(commands.ack_response(id, request, reason))

    def redeliver(self, command: pb.CommandRedeliverUnacknowledgedMessages) -> None:
        consumer = self._joined.get(command.consumer_id)
        if consumer is not None:
            consumer.redeliver(command)

    def hold(self) -> None:
        """Stop delivery to a client that is slow to read."""
        for consumer in self._joined.values():
            consumer.hold()

    def release(self) -> None:
        """Resume delivery to a client that has caught up."""
        self._on.passing.release()
        for consumer in list(self._joined.values()):
            consumer.release()

    # -- looking ---------------------------------------------------------------------------------------

    async def stats(self, command: pb.CommandConsumerStats) -> bytes:
        """CONSUMER_STATS."""
        consumer = self.require(command.consumer_id)
        stats = consumer.stats()
        return framed(
            pb.CommandConsumerStatsResponse(
                request_id=command.request_id,
                consumerName=consumer.name,
                availablePermits=0 if stats is None else max(0, stats.permits),
                unackedMessages=0 if stats is None else stats.pending_messages,
                blockedConsumerOnUnackedMsgs=False,
                address=self._on.address,
                connectedSince=datetime.fromtimestamp(consumer.opened_ns / 1e9, UTC).isoformat(),
                type=_SUB_TYPES[consumer.type],
                msgBacklog=consumer.dispatcher.backlog,
            )
        )


def _keys(command: pb.CommandSubscribe) -> KeyShared:
    """Return how a consumer shares keys.

    Raises:
        Misuse: it is sticky without ranges, or its ranges are not sound.
    """
    meta = command.keySharedMeta
    sticky = meta.keySharedMode == pb.STICKY
    if sticky and not meta.hashRanges:
        raise Misuse("a sticky Key_Shared consumer without ranges of hashes; give some of 0 to 65535")
    ranges = tuple((each.start, each.end) for each in meta.hashRanges) if sticky else ()
    keys = KeyShared(ranges, meta.allowOutOfOrderDelivery)
    keys.require_sound()
    return keys


def _priority(command: pb.CommandSubscribe) -> int:
    return min(max(0, command.priority_level), PRIORITY_MAX)
