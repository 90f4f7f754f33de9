"""Open and close producers of a connection, and confirm their messages.

Messages do not pass through here: the core puts them into the turn's frame of events, one event per run of
SENDs. This module sends the receipts in the order of the SENDs, because outcomes come in the order of their
events (I61).
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

from holdfast._core import WireReader, encode_receipts
from holdfast.broker import ProducerOpened, Published, Topic
from holdfast.errors import (
    Busy,
    Closed,
    Denied,
    Fenced,
    HoldfastError,
    Misuse,
    NoSpace,
    NotFound,
    Terminated,
    Unsupported,
)
from holdfast.ids import MessageId
from holdfast.names import INGEST, checked_name, is_persistent
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.budget import SESSION_BYTES
from holdfast.server.pulsar import commands, lookup, schemas
from holdfast.server.pulsar.commands import Refused, refusal
from holdfast.server.pulsar.held_sends import HeldSends
from holdfast.server.pulsar.non_persistent import PassingProducer

if TYPE_CHECKING:
    from holdfast.broker import Access, Bucket
    from holdfast.server.pulsar.connection import Connection

_ACCESS: dict[int, Access] = {
    pb.Shared: "shared",
    pb.Exclusive: "exclusive",
    pb.WaitForExclusive: "wait-for-exclusive",
    pb.ExclusiveWithFencing: "exclusive-with-fencing",
}

NOWHERE = MessageId(0, 0)
"""The first id of a run of duplicates: their receipts have no id."""

CHECKSUM = 1
_REFUSALS = {
    CHECKSUM: Refused(pb.ChecksumError, "the checksum does not match the message; nothing was published"),
    3: Refused(
        pb.NotAllowedError,
        "the message's metadata cannot be parsed, or its sequence numbers are above 2^63-2; nothing was "
        "published",
    ),
    4: Refused(pb.NotAllowedError, "transactions are not supported; nothing was published"),
    5: Refused(
        pb.NotAllowedError,
        "the message's delay is longer than the topic's policy delayed_most_s allows; nothing was published",
    ),
    6: Refused(
        pb.NotAllowedError,
        "the message is larger than the topic's policy message_bytes_max allows; nothing was published",
    ),
}
_FINAL = _REFUSALS.keys() - {CHECKSUM}
"""Refusals that a message meets again when its client repeats it."""
_NO_SPACE = Refused(pb.PersistenceError, "the broker's disk is full; nothing was published")


class WireProducer:
    """An open producer."""

    __slots__ = (
        "access",
        "bucket",
        "bytes_in",
        "connection",
        "epoch",
        "failed",
        "id",
        "last",
        "last_sequence",
        "messages_in",
        "metadata",
        "name",
        "opened_ns",
        "schema_version",
        "session",
        "topic",
        "under_way",
    )

    def __init__(
        self, connection: Connection, command: pb.CommandProducer, topic: Topic, name: str, session: int
    ) -> None:
        self.connection = connection
        self.id = command.producer_id
        self.topic = topic
        self.name = name
        self.session = session
        self.epoch = -1
        self.last_sequence = -1
        """The last stored sequence number of this name: the client continues from there."""
        self.access: Access = _ACCESS[command.producer_access_mode]
        self.metadata = {each.key: each.value for each in command.metadata}
        self.opened_ns = connection.broker.clock.now_ns()
        self.schema_version = b""
        """The version of its schema; empty: it has none."""
        self.bucket: Bucket | None = None
        """The publish rate of its topic; None: it has none."""
        self.under_way = 0
        """Runs of SENDs that were accepted and not yet answered."""
        self.last: asyncio.Future[Published] | None = None
        """The outcome of the last accepted run."""
        self.messages_in = 0
        self.bytes_in = 0
        self.failed = False
        """A message was refused: later ones must be refused, too, to keep the order."""


class Producers:
    """The producers of one connection, by the ids of its client."""

    def __init__(self, connection: Connection) -> None:
        self._on = connection
        self._open: dict[int, WireProducer] = {}
        self._opening: dict[int, asyncio.Task[Any]] = {}
        self._blocked = False
        """The disk is full: the reader refuses their messages."""
        self.held = HeldSends(connection)

    def __len__(self) -> int:
        return len(self._open)

    @property
    def under_way(self) -> int:
        """Runs of SENDs that were accepted and not yet answered."""
        return sum(each.under_way for each in self._open.values())

    # -- opening and closing ---------------------------------------------------------------------------

    async def open(self, command: pb.CommandProducer) -> bytes | None:
        """PRODUCER: open a session."""
        passing = self._on.passing
        known = self._open.get(command.producer_id) or passing.producers.get(command.producer_id)
        if known is not None:  # the client did not get the first answer
            if known.topic.name != lookup.full_name(command.topic):
                raise Refused(
                    pb.NotAllowedError,
                    f"producer {known.id} of this connection is open for {known.topic.name}; close it first",
                )
            if isinstance(known, PassingProducer):
                return passing.opened(command, known)
            return self._success(command, known, known.last_sequence)
        if command.producer_id in self._opening:
            raise Refused(
                pb.ServiceNotReady,
                f"producer {command.producer_id} is already being opened; wait for the answer",
            )
        most = self._on.options.producers_per_connection
        if len(self._open) + len(self._opening) + len(passing.producers) >= most:
            raise Refused(
                pb.NotAllowedError,
                f"this connection has {most} producers, the most that limits.producers_per_connection "
                "allows; close some, use another connection, or raise the limit",
            )
        task = asyncio.current_task()
        assert task is not None
        self._opening[command.producer_id] = task
        try:
            if not is_persistent(command.topic):
                return await passing.produce(command)
            return await self._opened(command)
        finally:
            if self._opening.get(command.producer_id) is task:
                del self._opening[command.producer_id]

    async def _opened(self, command: pb.CommandProducer) -> bytes | None:
        broker = self._on.broker
        if command.producer_name.startswith(INGEST):
            raise Refused(
                pb.NotAllowedError,
                f"producer names that begin with {INGEST} are reserved for local ingest; use another",
            )
        if command.producer_name:
            checked_name(command.producer_name, "a producer")
        if command.initial_subscription_name:  # it retains messages, so the role needs the grant of consume
            full = lookup.full_name(command.topic)
            checked_name(command.initial_subscription_name, "a subscription")
            self._on.authorize("consume", full, command.initial_subscription_name)
        size = SESSION_BYTES + commands.require_properties(self._on, command.metadata, "a producer")
        self._on.server.budget.require(size, "a producer")
        name = command.producer_name or f"{broker.options.cluster}-{broker.random.token(6).hex()}"
        try:
            topic, schema_version, entered = await self._admitted(command, name)
        except NotFound:  # it was deleted in this moment, as unused: the new one needs all of it again
            topic, schema_version, entered = await self._admitted(command, name)
        producer = WireProducer(self._on, command, topic, name, entered.session)
        producer.schema_version = schema_version
        if entered.waiting:
            self._on.send(commands.producer_success(command.request_id, name, -1, None, ready=False))
        opened = await broker.sessions.exclusive(entered)
        try:
            self._on.authorize("produce", topic.name)  # again: it may have waited for long
        except Denied:
            broker.sessions.drop_producer(opened.session)
            raise
        if not broker.sessions.is_open(opened.session):
            raise Fenced(f"another producer has taken over {topic.name}; open a new one to take it back")
        producer.epoch, producer.last_sequence = opened.epoch, opened.last_sequence
        self._open[producer.id] = producer
        self._on.server.producers[producer.session] = producer
        self._on.server.budget.hold(producer, size)
        self._take(producer)
        return self._success(command, producer, opened.last_sequence)

    async def _admitted(self, command: pb.CommandProducer, name: str) -> tuple[Topic, bytes, ProducerOpened]:
        """Open a session on the topic, after its initial subscription and its schema are there."""
        broker = self._on.broker
        topic = await lookup.topic_for(self._on, command.topic, "produce")
        broker.admit_now(0)  # a client that cannot publish is refused at once
        if command.initial_subscription_name:
            await broker.ensure_subscription(topic, command.initial_subscription_name, "earliest")
        schema_version = await schemas.admit_producer(self._on, topic, command)
        unroutable = self._on.server.unroutable.pop((topic.id, name), None)
        if unroutable is not None and command.epoch > 0:
            raise Fenced(unroutable)
        return topic, schema_version, await self._enter(command, topic, name)

    def _success(self, command: pb.CommandProducer, producer: WireProducer, last: int) -> bytes:
        epoch = None if producer.access == "shared" else producer.epoch
        return commands.producer_success(
            *(command.request_id, producer.name, last, epoch),
            ready=True,
            schema_version=producer.schema_version,
        )

    async def _enter(self, command: pb.CommandProducer, topic: Topic, name: str) -> ProducerOpened:
        """Open the session; ping producers that prevent it, and retry if one is dead."""
        broker = self._on.broker
        access = _ACCESS[command.producer_access_mode]
        # A generated name belongs to one client: its later attempt replaces the earlier one. Two programs
        # may use the same chosen name by mistake.
        attempt = 0 if command.user_provided_producer_name else command.epoch
        epoch = command.topic_epoch if command.HasField("topic_epoch") else -1
        try:
            return await broker.sessions.open_producer(topic, name, access, attempt, epoch)
        except Busy:
            exclusive = access != "shared"
            sessions = self._on.server.producers
            there = [sessions[session] for session in topic.producers if session in sessions]
            holders = [each for each in there if exclusive or each.name == name or each.access != "shared"]
            if await self._on.server.all_live({each.connection for each in holders} - {self._on}):
                taken = any(each.name == name for each in topic.producers.values())
                if access == "exclusive" and not taken:
                    # As in Pulsar, a client that asks for exclusive access does not retry.
                    raise Fenced(
                        f"{topic.name} has other producers; close them, or use the mode WaitForExclusive"
                    ) from None
                raise
        return await broker.sessions.open_producer(topic, name, access, attempt, epoch)

    async def close(self, command: pb.CommandCloseProducer) -> bytes:
        """CLOSE_PRODUCER: answer after the receipts of its messages."""
        if self._on.passing.close_producer(command.producer_id):
            return commands.success(command.request_id)
        opening = self._opening.pop(command.producer_id, None)
        if opening is not None:
            opening.cancel()
        await self.held.drained(command.producer_id)
        producer = self._open.get(command.producer_id)
        if producer is not None:
            self._ended(producer)
            await self._on.broker.sessions.close_producer(producer.session)
        return commands.success(command.request_id)

    def _ended(self, producer: WireProducer) -> None:
        if self._open.get(producer.id) is producer:
            del self._open[producer.id]
            self._on.reader.drop_producer(producer.id)
            self.held.drop(producer.id)
        self._on.server.producers.pop(producer.session, None)
        self._on.server.budget.hold(producer, 0)

    def expel(self, producer: WireProducer, ended: bool = True) -> None:
        """Close a producer at its client; its session has `ended` or ends now."""
        if self._open.get(producer.id) is producer:
            self._ended(producer)
            if not ended:
                self._on.broker.sessions.drop_producer(producer.session)
            same = any(each.name == producer.name for each in producer.topic.producers.values())
            if not (ended and same):  # else its client has opened it again on another connection
                self._on.send(commands.close_producer(producer.id))

    def gone(self) -> None:
        """Close all producers at the end of the connection."""
        for producer in list(self._open.values()):
            self._ended(producer)
            self._on.broker.sessions.drop_producer(producer.session)

    def shut(self) -> None:
        """Close all producers when the server stops."""
        for producer in list(self._open.values()):
            self._on.send(commands.close_producer(producer.id))
        self.gone()

    # -- publishing ------------------------------------------------------------------------------------

    def heed_space(self, size: int) -> None:
        """Check that the disk has room for bytes that arrived; if not, block all producers."""
        if not self._open:
            return
        try:
            self._on.broker.admit_now(size)
        except NoSpace:
            self._blocked = True
            for producer in self._open.values():
                self._on.reader.drop_producer(producer.id)
        except Closed as error:
            self._on.close(refusal(error))
        else:
            if self._blocked:
                self._blocked = False
                for producer in self._open.values():
                    self.resume(producer)

    def resume(self, producer: WireProducer) -> None:
        """Accept the producer's SENDs again, if nothing prevents it."""
        if self._open.get(producer.id) is producer and not producer.failed and not self._blocked:
            self._take(producer)

    def _take(self, producer: WireProducer) -> None:
        """Accept the producer's SENDs from now on, with the limits of its topic."""
        self.set_on(self._on.reader, producer)
        self.held.limited(producer)
        if producer.id in self.held:
            self._on.reader.set_passing_producer(producer.id)

    def limited(self, producer: WireProducer) -> None:
        """Follow changed limits of the producer's topic."""
        self.resume(producer)
        self.held.look(producer)

    def set_on(self, reader: WireReader, producer: WireProducer) -> None:
        """Let a reader publish the producer's SENDs."""
        sessions, topic = self._on.broker.sessions, producer.topic
        producer.bucket = sessions.publish_bucket(topic)
        reader.set_producer(
            *(producer.id, topic.id, producer.session, producer.epoch, producer.name),
            delay_max_ms=sessions.delay_most_ms(topic),
            entry_bytes_max=sessions.entry_bytes_max(topic),
        )

    def published(
        self,
        future: asyncio.Future[Published],
        producer_id: int,
        entries: int,
        messages: int,
        size: int,
        sequences: bytes,
    ) -> None:
        """Note an accepted run of SENDs, and count it for the rate of its topic."""
        self.accepted(future, producer_id, entries, messages, size, sequences)
        producer = self._open[producer_id]
        if producer.bucket is None or producer.id in self.held or producer_id not in self._open:
            return
        if (delay_s := producer.bucket.take(messages, size)) > 0:
            self.held.hold(producer, delay_s)

    def accepted(
        self,
        future: asyncio.Future[Published],
        producer_id: int,
        entries: int,
        messages: int,
        size: int,
        sequences: bytes,
    ) -> None:
        """Note an accepted run of SENDs, to confirm it later."""
        producer = self._open[producer_id]
        producer.under_way += 1
        producer.last = future
        producer.messages_in += messages
        producer.bytes_in += size
        settled = functools.partial(self._settled, producer, entries, messages, sequences)
        future.add_done_callback(settled)

    def _settled(
        self,
        producer: WireProducer,
        entries: int,
        messages: int,
        sequences: bytes,
        future: asyncio.Future[Published],
    ) -> None:
        producer.under_way -= 1
        error = future.exception()
        if error is None:
            published = future.result()
            if not published.duplicates:
                producer.topic.note_batches(messages, published.count)
            ledger, entry, _ = published.first if published.count else NOWHERE
            nowhere = published.duplicates
            if ledger < 0:  # an exchange has no positions: a receipt says that the message is stored
                (ledger, entry, _), nowhere = NOWHERE, tuple(range(entries))
            self._on.send(encode_receipts(producer.id, sequences, ledger, entry, nowhere))
        elif not isinstance(error, Fenced):  # of which the end of its session notifies the client
            self._fail(producer, int.from_bytes(sequences[:8], "little"), error)

    def refused(self, producer_id: int, sequence: int, code: int) -> None:
        """Answer a SEND that the reader refused."""
        reason = _REFUSALS.get(code, _NO_SPACE)
        failed, final = code != CHECKSUM, code in _FINAL
        if self._on.passing.refused(producer_id, sequence, reason, failed, final):
            return
        producer = self._open.get(producer_id)
        if producer is None or producer.failed:
            return  # closed before; the client is notified of that
        if failed:  # not a wrong checksum, after which the client skips the message and continues
            producer.failed = True
            self._on.reader.drop_producer(producer.id)
            self.held.drop(producer.id)
        commands.tell_refused(
            self._on, "message refused", reason, topic=producer.topic.name, producer=producer.name
        )
        if final:
            self._give_up(producer, str(reason))
        answer = commands.send_error(producer_id, sequence, reason)
        if producer.under_way and producer.last is not None:  # after the receipts of earlier messages
            producer.last.add_done_callback(lambda _: self._on.send(answer))
        else:
            self._on.send(answer)

    def _give_up(self, producer: WireProducer, reason: str) -> None:
        """Fence the producer at its next attempt: its client would resend without end."""
        self._on.server.give_up(producer.topic.id, producer.name, reason)

    def _fail(self, producer: WireProducer, sequence: int, error: BaseException) -> None:
        if producer.failed:
            return
        producer.failed = True
        self._on.reader.drop_producer(producer.id)
        self.held.drop(producer.id)
        if isinstance(error, Misuse | Unsupported):
            self._give_up(producer, str(error))
        if isinstance(error, Terminated):
            reason = Refused(pb.TopicTerminatedError, str(error))
        elif isinstance(error, HoldfastError):
            reason = Refused(pb.PersistenceError, str(error))
        else:
            reason = Refused(pb.UnknownError, repr(error))
        commands.tell_refused(
            self._on, "message refused", reason, topic=producer.topic.name, producer=producer.name
        )
        self._on.send(commands.send_error(producer.id, sequence, reason))
