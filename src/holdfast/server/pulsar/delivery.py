"""Connect a dispatcher with a consumer at the other end of a connection.

The client has its own queue, which the broker can empty only by closing the consumer. So after a reset by
another client the consumer is closed. Its client drops its queue, and subscribes again under the new reset
number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast._core import AckIds, Batch, encode_deliveries
from holdfast.broker import (
    ConsumerStats,
    Dispatcher,
    KeyShared,
    SubscriptionType,
    Topic,
    messages_at,
    properties_size,
)
from holdfast.errors import HoldfastError, LimitReached, Outdated
from holdfast.ids import MessageId
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.budget import SESSION_BYTES
from holdfast.server.pulsar import commands
from holdfast.server.pulsar.commands import refusal

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection

SLICE_IDS = 2000
"""Ids of one command that are processed before other connections have a turn."""

_PAUSE = "ids"

MASK_BITS = 1024
"""Messages in the longest mask that is stored unchecked: clients' batches have at most 1000 by default."""

CHECKS_MAX = 4
"""Longer masks of one consumer that are checked at once. If there are more, its client is not read."""

DAMAGE_S = 60.0
"""Time for a consumer to acknowledge its messages before it is closed because the next entry is damaged."""

LOG = logging.getLogger("holdfast.server")
_CLOSES_AT_END = "Pulsar-CPP-"
"""The beginning of versions of clients that close their connection at REACHED_END_OF_TOPIC."""
_SHORT = (1 << MASK_BITS) - 1
_Part = tuple[int, int, int, int]
_Places = dict[int, tuple[int, int]]
_Ranges = list[tuple[int, int]]


class WireConsumer:
    """A consumer of a subscription: the endpoint of its dispatcher."""

    def __init__(
        self,
        connection: Connection,
        command: pb.CommandSubscribe,
        topic: Topic,
        dispatcher: Dispatcher,
        type: SubscriptionType,  # noqa: A002  # the word that users know
        priority: int,
        session: int,
        keys: KeyShared | None = None,
    ) -> None:
        self.connection = connection
        self.id = command.consumer_id
        self.topic = topic
        self.dispatcher = dispatcher
        self.subscription = command.subscription
        self.name = command.consumer_name
        self.type: SubscriptionType = type
        self.priority = priority
        self.keys = keys
        self.metadata = {each.key: each.value for each in command.metadata}
        self.partition = commands.partition_index(topic.name)
        """The index of the topic, if it is a partition: clients read it in ids of messages."""
        self.compacted = command.read_compacted
        """It reads the compacted view of the topic."""
        self.session = session
        """The session at the broker; 0: none, because the subscription is volatile."""
        self.opened_ns = connection.broker.clock.now_ns()
        self.reset_number = dispatcher.reset_number
        """The reset under which messages are delivered to it, and acknowledged by it."""
        self.messages_out = 0
        self._epoch: int | None = command.consumer_epoch if command.HasField("consumer_epoch") else None
        """The number of a client's last rewind: the client drops messages of earlier epochs."""
        self.ticket = 0
        """Its number at the dispatcher."""
        self._attached = False
        self._told_of_end = False
        self._told_of_damage = ""
        self._damaged_since = 0.0
        self._answered = False
        self._is_active: bool | None = None
        self._checking = 0
        """Masks of acknowledgements that are being checked, or wait for that."""
        self._checks = asyncio.Semaphore(CHECKS_MAX)

    # -- joining and leaving ---------------------------------------------------------------------------

    def attach(self) -> None:
        """Join the dispatcher.

        Raises:
            Busy: the subscription is exclusive and has a consumer.
            TooManyConnections: limits.held_bytes is reached.
            Misuse: the subscription has consumers of another type.
        """
        budget, size = self.connection.server.budget, SESSION_BYTES + properties_size(self.metadata)
        budget.require(size, "a consumer")
        self.ticket = self.dispatcher.add_consumer(
            self,
            self.name,
            self.priority,
            self.type,
            keys=self.keys,
            session=self.session,
            compacted=self.compacted,
        )
        self._attached = True
        if self.connection.stalled:
            self.hold()
        budget.hold(self, size)
        self.connection.server.attached.setdefault(self.dispatcher, {})[self] = None

    def answered(self) -> None:
        """Send what had to wait for the answer to SUBSCRIBE."""
        self._answered = True
        if self._is_active is not None:
            self.connection.send(commands.active_consumer_change(self.id, self._is_active))
        self.look_for_end()

    def detach(self, keep: bool = False, counted: bool = True) -> None:
        """Leave the dispatcher; with `keep` a volatile subscription stays for a while.

        Unless `counted`, the messages that it held do not count as redelivered.
        """
        if not self._attached:
            return
        self._attached = False
        server, broker = self.connection.server, self.connection.broker
        server.budget.hold(self, 0)
        self.dispatcher.remove_consumer(self.ticket, counted)
        if self.session:
            broker.sessions.drop_consumer(self.session)
        others = server.attached.get(self.dispatcher, {})
        others.pop(self, None)
        if not others:
            server.attached.pop(self.dispatcher, None)
        if self.session == 0:
            keep_s = server.options.volatile_s if keep else None
            broker.volatile.release(self.topic, self.dispatcher, keep_s)

    def expel(self, keep: bool = False) -> None:
        """Close the consumer at its client, which subscribes again."""
        if self._attached:
            self.detach(keep, counted=False)  # the client is not at fault
            self.connection.consumers.drop(self)
            self.connection.send(commands.close_consumer(self.id))

    # -- what the dispatcher calls ---------------------------------------------------------------------

    def deliver(self, batch: Batch) -> None:
        self.messages_out += batch.permits
        self.connection.send(encode_deliveries(self.id, batch, self._epoch, self.partition))

    def cleared(self, reset_number: int) -> None:
        if reset_number != self.reset_number:
            self.expel()  # else it is a rewind: the client drops its queue, and sends permits for it

    def active(self, active: bool) -> None:
        if self.type == "failover":
            self._is_active = active
            if self._answered:
                self.connection.send(commands.active_consumer_change(self.id, active))

    def failed(self, error: Exception) -> None:
        """Close the consumer because of damage, after it has acknowledged its messages.

        The protocol has no other message for this. The client subscribes again, and that is refused.
        """
        now = self.connection.loop.time()
        if str(error) != self._told_of_damage:
            self._told_of_damage, self._damaged_since = str(error), now
            LOG.error("consumer %s of %s stops at damage: %s", self.name, self.subscription, error)
        stats = self.stats()
        if stats is None or not stats.pending_messages or now - self._damaged_since > DAMAGE_S:
            self.expel()

    def closed(self, reason: Exception) -> None:
        self.expel()

    # -- flow ------------------------------------------------------------------------------------------

    def flow(self, permits: int) -> None:
        """Add permits."""
        self.dispatcher.flow(self.ticket, permits)

    def hold(self) -> None:
        """Stop delivery until the unsent bytes have left."""
        self.dispatcher.pause(self.ticket)

    def release(self) -> None:
        self.dispatcher.resume(self.ticket)

    # -- acknowledgements ------------------------------------------------------------------------------

    def acked(self, cumulative: bool, ids: AckIds, request: int) -> None:
        """ACK: acknowledge entries, parts of batches, or all up to an entry."""
        receipt = request >= 0 or self.topic.terminated
        futures: list[asyncio.Future[None] | None] = []
        refused: HoldfastError | None = None
        try:
            futures = self._ack_up_to(ids, receipt) if cumulative else self._ack_each(ids, receipt)
        except HoldfastError as error:
            refused = error
            if not receipt:  # nothing tells the client
                self._tell_refused(error)
        if receipt:
            waiting = [each for each in futures if each is not None]
            if waiting:
                asyncio.gather(*waiting, return_exceptions=True).add_done_callback(
                    lambda done: self._acknowledged(request, refused, done.result())
                )
            else:
                self._acknowledged(request, refused, [])

    def _ack_each(self, ids: AckIds, receipt: bool) -> list[asyncio.Future[None] | None]:
        places = self._places(ids.ledgers)
        futures = list[asyncio.Future[None] | None]()
        ranges, parts = ids.ordinals(places), ids.parts
        futures += self._ack_slice(0, ranges, parts, places, receipt)
        if max(len(ranges), len(parts)) > SLICE_IDS:
            self.connection.pause(_PAUSE)
            rest = self.connection.spawn(self._ack_rest(ranges, parts, places, receipt))
            rest.add_done_callback(lambda _: self.connection.go_on(_PAUSE))
            futures.append(rest)
        return futures

    async def _ack_rest(
        self, ranges: _Ranges, parts: Sequence[_Part], places: _Places, receipt: bool
    ) -> None:
        """Acknowledge further slices, with turns of other connections between them."""
        for at in range(SLICE_IDS, max(len(ranges), len(parts)), SLICE_IDS):
            await asyncio.sleep(0)
            waiting = self._ack_slice(at, ranges, parts, places, receipt)
            await asyncio.gather(*(each for each in waiting if each is not None), return_exceptions=True)

    def _ack_slice(
        self, at: int, ranges: _Ranges, parts: Sequence[_Part], places: _Places, receipt: bool
    ) -> list[asyncio.Future[None] | None]:
        some, futures = ranges[at : at + SLICE_IDS], list[asyncio.Future[None] | None]()
        if some:
            futures.append(self.dispatcher.ack_ranges(some, self.reset_number, receipt))
        return futures + self._ack_parts(parts[at : at + SLICE_IDS], places, receipt)

    def _ack_parts(
        self, parts: Sequence[_Part], places: _Places, receipt: bool
    ) -> list[asyncio.Future[None] | None]:
        futures = list[asyncio.Future[None] | None]()
        short, long = list[tuple[int, int]](), dict[int, int]()
        for ledger, entry, _, still_open in parts:
            place = places.get(ledger)
            if place is not None and entry < place[1]:
                ordinal = place[0] + entry
                if still_open <= _SHORT:
                    short.append((ordinal, still_open))
                else:
                    long[ordinal] = long.get(ordinal, still_open) & still_open
        room = max(0, self.connection.options.partial_batches - self.dispatcher.partial_batches)
        if kept := short[:room]:
            futures.append(self.dispatcher.ack_all_but_many(kept, self.reset_number, receipt))
        if len(short) > room:
            futures.append(self._too_many(receipt))
        return futures + [self._ack_part(ordinal, mask, receipt) for ordinal, mask in long.items()]

    def _ack_up_to(self, ids: AckIds, receipt: bool) -> list[asyncio.Future[None] | None]:
        """Acknowledge everything before an entry, and the entry or a part of it."""
        self.dispatcher.require_order()
        still_open = 0
        if ids.parts:
            ledger, end, _, still_open = ids.parts[-1]
        elif ids.ranges:
            ledger, _, end = ids.ranges[-1]
        else:
            return []
        place = self._places([ledger]).get(ledger)
        if place is None or end + bool(still_open) > place[1]:
            return []
        ordinal, futures = place[0] + end, list[asyncio.Future[None] | None]()
        if ordinal > 0:
            futures.append(self.dispatcher.ack_up_to(ordinal - 1, self.reset_number, receipt))
        if still_open:
            futures.append(self._ack_part(ordinal, still_open, receipt))
        return futures

    def _ack_part(self, ordinal: int, still_open: int, receipt: bool) -> asyncio.Future[None] | None:
        """Acknowledge all messages of a batch except those of a mask.

        The batch's size is not known here, and clients may send a wrong one. So a long mask is compared with
        the batch before it becomes durable. Beyond a limit it is refused: the whole batch is redelivered.
        """
        if self._has_many_parts:
            return self._too_many(receipt)
        if still_open.bit_length() <= MASK_BITS:
            return self.dispatcher.ack_all_but(ordinal, still_open, self.reset_number, receipt)
        self._checking += 1
        if self._checking > CHECKS_MAX:
            self.connection.pause(f"masks of {self.id}")
        task = self.connection.loop.create_task(self._ack_checked(ordinal, still_open, receipt))
        task.add_done_callback(self._checked)
        return task

    async def _ack_checked(self, ordinal: int, still_open: int, receipt: bool) -> None:
        async with self._checks:
            size = await messages_at(self.topic, self.dispatcher.compacted, ordinal)
            if self._has_many_parts:
                done: asyncio.Future[None] | None = self._too_many(receipt)
            else:
                known = still_open & ((1 << size) - 1)
                done = self.dispatcher.ack_all_but(ordinal, known, self.reset_number, receipt)
        if done is not None:
            await done

    def _checked(self, task: asyncio.Task[None]) -> None:
        self._checking -= 1
        if self._checking <= CHECKS_MAX:
            self.connection.go_on(f"masks of {self.id}")
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it

    @property
    def _has_many_parts(self) -> bool:
        return self.dispatcher.partial_batches >= self.connection.options.partial_batches

    def _too_many(self, receipt: bool) -> asyncio.Future[None]:
        """Refuse to acknowledge parts of further batches."""
        most = self.connection.options.partial_batches
        error = LimitReached(
            f"{self.subscription!r} has parts of {most} batches acknowledged, the most that "
            "limits.partial_batches allows; acknowledge whole batches, or raise the limit"
        )
        if not receipt:  # nothing tells the client
            self._tell_refused(error)
        refused: asyncio.Future[None] = self.connection.loop.create_future()
        refused.set_exception(error)
        refused.exception()  # retrieved, or asyncio would log it
        return refused

    def _acknowledged(
        self, request: int, refused: HoldfastError | None, outcomes: Sequence[BaseException | None]
    ) -> None:
        for outcome in outcomes:
            # An acknowledgement that a reset has overtaken is not a failure: the reset decides.
            if isinstance(outcome, HoldfastError) and not isinstance(outcome, Outdated):
                refused = outcome
        reason = None if refused is None else refusal(refused)
        if reason is not None:
            self._tell_refused(reason)
        if request >= 0:
            self.connection.send(commands.ack_response(self.id, request, reason))
        self.look_for_end()

    def _tell_refused(self, reason: Exception) -> None:
        named = {"topic": self.topic.name, "subscription": self.subscription, "consumer": self.name}
        commands.tell_refused(self.connection, "acknowledgement refused", reason, **named)

    def _places(self, ledgers: Iterable[int]) -> _Places:
        """Return the first position of each ledger, and its number of visible entries."""
        table, visible, view = self.topic.ledgers, self.topic.visible, self.dispatcher.compacted
        places: dict[int, tuple[int, int]] = {}
        for ledger in ledgers:
            info = table.find(ledger)
            if info is not None:
                places[ledger] = (info.first, max(0, min(info.end, visible) - info.first))
            elif view is not None and (place := view.extent(ledger)) is not None:
                places[ledger] = place
        return places

    def redeliver(self, command: pb.CommandRedeliverUnacknowledgedMessages) -> None:
        """REDELIVER_UNACKNOWLEDGED_MESSAGES: with one active consumer, all messages in order."""
        if command.HasField("consumer_epoch"):
            self._epoch = max(self._epoch or 0, command.consumer_epoch)
        if self.type not in ("shared", "key_shared") or not command.message_ids:
            self.dispatcher.redeliver(self.ticket, None)
            return
        self._redeliver(command.message_ids[:SLICE_IDS])
        if len(command.message_ids) > SLICE_IDS:
            self.connection.pause(_PAUSE)
            self.connection.spawn(self._redeliver_rest(command.message_ids)).add_done_callback(
                lambda _: self.connection.go_on(_PAUSE)
            )

    async def _redeliver_rest(self, ids: Sequence[pb.MessageIdData]) -> None:
        """Redeliver further slices, with turns of other connections between them."""
        for at in range(SLICE_IDS, len(ids), SLICE_IDS):
            await asyncio.sleep(0)
            self._redeliver(ids[at : at + SLICE_IDS])

    def _redeliver(self, ids: Sequence[pb.MessageIdData]) -> None:
        places = self._places({each.ledgerId for each in ids})
        ordinals = []
        for each in ids:
            first, count = places.get(each.ledgerId, (0, 0))
            if each.entryId < count:
                ordinals.append(first + each.entryId)
        self.dispatcher.redeliver(self.ticket, ordinals)

    # -- looking ---------------------------------------------------------------------------------------

    def look_for_end(self) -> None:
        """Notify the client once when a terminated topic is fully acknowledged.

        The client for C++, which is that for Python, does not know the notice: it closes its connection.
        Then it reconnects, gets the notice again, and no producer or consumer of it works any more.
        """
        topic = self.topic
        if (
            topic.terminated
            and self._attached
            and self._answered
            and not self._told_of_end
            and not self.connection.client_version.startswith(_CLOSES_AT_END)
            and topic.visible >= topic.ledgers.end
            and self.dispatcher.backlog == 0
        ):
            self._told_of_end = True
            self.connection.send(commands.reached_end_of_topic(self.id))

    def stats(self) -> ConsumerStats | None:
        """Return the stats of its dispatcher."""
        return self.dispatcher.consumer_stats(self.ticket)

    def mark_delete(self) -> MessageId:
        """Return the id up to which everything is acknowledged; entry −1 is before the ledger."""
        topic, acked_to = self.topic, self.dispatcher.acked_to
        if acked_to > topic.first:
            return topic.id_of(acked_to - 1)
        front = next(iter(topic.ledgers), None)
        return MessageId(-1, -1) if front is None else MessageId(front.id, -1)
