"""A broker and its model, side by side: each operation goes to both.

Before an operation the model is told what may happen from now on, and after the broker's answer what has
happened. If a crash interrupts the operation, the model is left in doubt, as it should be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from holdfast._core import Batch, TopicMessage
from holdfast.broker.api.consumer import Consumer, Inbox, Reader, Start
from holdfast.broker.api.producer import Producer
from holdfast.broker.broker import Broker
from holdfast.broker.key_shared import KeyShared
from holdfast.errors import Busy, CursorModifying, HoldfastError, Outdated
from holdfast.ids import MessageId
from tests.kit.broker.model import Client, Key, Shown, Stored, Subscription, Topic, Type, Wrong
from tests.kit.broker.worlds import World

Where = tuple[str, str]
"""A subscription: its topic, and its name."""
STICKY = ("b", "t")
"""A subscription whose consumers name their hashes."""
ALL = 1 << 20
"""More messages than any test has."""
PATIENCE = 1.0
"""Seconds to wait for what must happen; less where the broker is known to be broken."""


class Watched(Inbox):
    """A consumer's inbox that reports deliveries to the bench."""

    def __init__(self, bench: Bench, subscription: Subscription, client: Client) -> None:
        super().__init__(client.queue)
        self._bench: Bench | None = bench
        self._of = subscription
        self._client = client

    def deliver(self, batch: Batch) -> None:
        if self._bench is not None:
            self._bench.judge(lambda bench: bench.handed(self._of, self._client, list(batch)))
        super().deliver(batch)

    def cleared(self, reset_number: int) -> None:
        if self._bench is not None:
            self._bench.judge(lambda bench: bench.cleared(self._of, self._client, reset_number))
        super().cleared(reset_number)

    def active(self, active: bool) -> None:
        self._of.excused |= self._client.active and not active  # another consumer takes over
        self._client.active = active
        super().active(active)

    def blind(self) -> None:
        """Report nothing any longer: the broker has crashed."""
        self._bench = None


class Attached:
    """A consumer of the test."""

    def __init__(self, where: Where, consumer: Consumer, client: Client, inbox: Watched) -> None:
        self.where = where
        self.consumer = consumer
        self.client = client
        self.inbox = inbox


class Held:
    """A message that the test has received and may acknowledge."""

    def __init__(self, where: Where, message: TopicMessage, by: Client) -> None:
        self.where = where
        self.message = message
        self.key = key_of(message)
        self.by = by


def key_of(message: TopicMessage) -> Key:
    return Key(message.ordinal, max(0, message.batch_index))


def shown(message: TopicMessage) -> Shown:
    return Shown(
        key_of(message),
        (message.id.ledger, message.id.entry),
        bytes(message.data),
        message.key,
        message.producer,
        message.sequence,
        message.redelivery_count,
        message.reset_number,
    )


class Bench:
    """The broker, the model, and the clients and messages of the test."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker: Broker | None = None
        self.topics: dict[str, Topic] = {}
        self.subscriptions: dict[Where, Subscription] = {}
        self.attached: list[Attached] = []
        self.held: list[Held] = []
        self.producers: dict[tuple[str, str], Producer] = {}
        self.sequences: dict[tuple[str, str], int] = {}
        self.wrongs: list[Exception] = []
        self._serial = 0
        self._names = 0

    # -- judging ---------------------------------------------------------------------------------------

    def judge(self, what: Callable[[Bench], None]) -> None:
        """Record what a check finds: it runs inside the broker, which would swallow an error."""
        try:
            what(self)
        except Exception as error:
            self.wrongs.append(error)

    def handed(self, of: Subscription, client: Client, messages: list[TopicMessage]) -> None:
        self._must_be_safe(of.topic, [shown(message) for message in messages])
        found = [shown(message) for message in messages]
        of.require_due(client.name, found, self.world.clock.now_ns())
        of.handed(client.name, found, self.world.clock.monotonic_ns())

    def cleared(self, of: Subscription, client: Client, reset_number: int) -> None:
        of.cleared(client, reset_number, self.world.clock.monotonic_ns())

    def _must_be_safe(self, topic: Topic, messages: list[Shown]) -> None:
        """Require that a shown id is durable."""
        for message in messages:
            at = message.key.ordinal
            if (at >= topic.end or not topic.entries[at].sure) and not self.world.holds(message.data):
                raise Wrong(f"{message.id} is shown, and a crash could take it back")

    def check_ends(self) -> None:
        """Require that no counted entry can be lost by a crash."""
        for name, topic in self.topics.items():
            visible = self.admin._topic(name).visible
            for entry in topic.entries[:visible]:
                if not entry.sure and not self.world.holds(entry.messages[0]):
                    raise Wrong(f"{name} shows {visible} entries, and a crash could take back the last")

    def check(self) -> None:
        if self.wrongs:
            raise self.wrongs[0]

    @property
    def admin(self) -> Any:
        assert self.broker is not None
        return self.broker.admin

    async def settle(self) -> None:
        """Wait until all that must happen has happened; then all figures are exact."""
        limit_ns = self.world.clock.monotonic_ns() + int(PATIENCE * self.world.patience_s * 1e9)
        pause_s = 0.0001
        while True:
            self.check()
            self.check_ends()
            for of in self.subscriptions.values():
                of.expire(self.world.clock.monotonic_ns())
            problem = next(self._unsettled(), None)
            if problem is None:
                break
            if self.world.clock.monotonic_ns() > limit_ns:
                raise Wrong(problem)
            await self.world.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)
        assert self.broker is not None
        self.broker.machine.state.check()

    def _unsettled(self) -> Any:
        for name, topic in self.topics.items():
            if not all(entry.sure for entry in topic.entries):
                continue
            stats = self.admin.topic_stats(name)
            self._trimmed(topic, topic.end - stats.entries)
            last = topic.entries[-1].id if topic.end > topic.first else None
            if last is not None and str(MessageId(*last)) != stats.last:
                yield f"{name}: the last id is {stats.last}; it is {last}"
        for where, of in self.subscriptions.items():
            active = [client.name for client in of.clients.values() if client.active]
            if of.clients and of.is_ordered and len(active) != 1:
                yield f"{where} has consumers, and {active} are active"
            stuck = of.stuck(self.world.clock.now_ns(), self.world.clock.monotonic_ns())
            if stuck:
                names = [client.name for client in of.ready()]
                yield f"{where} is stuck: {stuck} are due, {names} have room; {self._stats(where)}"
            stats = self._stats(where)
            said = (stats.backlog, stats.individually_acknowledged, stats.partly_acknowledged)
            if all(entry.sure for entry in of.topic.entries) and said != of.figures():
                yield f"{where}: backlog, holes, partial are {said}; by the model {of.figures()}"
            if (stats.reset_number, stats.under_revision) != (of.reset_number, False):
                yield f"{where}: reset {stats.reset_number}, {stats.under_revision}; {of.reset_number}"

    def _stats(self, where: Where) -> Any:
        return self.admin.subscription_stats(*where)

    # -- life ------------------------------------------------------------------------------------------

    async def open(self) -> None:
        self.broker = await self.world.open()

    async def create(self, name: str, deduplicate: bool) -> None:
        await self.admin.create_topic(name, deduplication=deduplicate)
        self.topics[name] = Topic(deduplicate)

    async def restart(self) -> None:
        """Close and open the broker; everything must hold."""
        assert self.broker is not None
        self.harden()
        self._forget_clients()
        await self.broker.close()
        await self.open()
        await self.audit()

    def crash(self, power: bool) -> None:
        assert self.broker is not None
        self._forget_clients()
        self.world.crash(self.broker, power)
        self.world.run(self._recover())

    async def _recover(self) -> None:
        await self.open()
        await self.audit()
        assert self.broker is not None
        if self.broker.recovered.clean:
            return  # the crashed broker had not made anything durable
        for topic in self.topics.values():
            topic.sealed.add(topic.end)

    def _forget_clients(self) -> None:
        for each in self.attached:
            each.inbox.blind()
        self.attached.clear()
        self.producers.clear()

    async def audit(self) -> None:
        """After a restart, compare the contents with what must exist and what may exist."""
        for name, topic in self.topics.items():
            found = [shown(message) for message in await self.admin.examine(name, "earliest", ALL)]
            self._audit_topic(name, topic, found)
        for where, of in self.subscriptions.items():
            left = await self.admin.peek(*where, ALL)
            of.recovered(self._stats(where).reset_number, {key_of(message) for message in left})

    def _audit_topic(self, name: str, topic: Topic, found: list[Shown]) -> None:
        first, end = self.admin._topic(name).first, self.admin._topic(name).visible
        if topic.first_sure <= first < topic.first:
            topic.first = first
        self._trimmed(topic, first)
        lost = [at for at in range(end, topic.end) if topic.entries[at].sure]
        if lost or end > topic.end:
            raise Wrong(f"{name} has [{first}, {end}); confirmed or shown, and gone: {lost}")
        del topic.entries[end:]
        topic.sealed = {at for at in topic.sealed if at <= end}
        topic.recount()
        expected = [
            (at, place, data)
            for at in range(topic.first, end)
            for place, data in enumerate(topic.entries[at].messages)
        ]
        if [(*message.key, message.data) for message in found] != expected:
            raise Wrong(f"{name} has {[(*m.key, m.data) for m in found]}; it should have {expected}")
        self._must_be_safe(topic, found)
        for message in found:
            topic.confirm(message.key.ordinal, message.id)

    def _trimmed(self, topic: Topic, first: int) -> None:
        """Require that only entries which every subscription has acknowledged were trimmed."""
        needed = [of.mark() for of in self.subscriptions.values() if of.topic is topic]
        if first < topic.first or (first > topic.first and first > min(needed, default=topic.first)):
            raise Wrong(f"the topic begins at {first}; it began at {topic.first}, needed from {needed} on")
        topic.first = first

    # -- publishing ------------------------------------------------------------------------------------

    async def producer(self, topic: str, name: str, batch: int) -> Producer:
        assert self.broker is not None
        producer = self.producers.get((topic, name))
        if producer is None:
            producer = self.broker.producer(topic, name=name, batch=batch)
            await producer.open()
            self.producers[topic, name] = producer
            if self.topics[topic].deduplicate and all(each.sure for each in self.topics[topic].entries):
                known = self.topics[topic].last.get(name, -1)
                if producer.last_sequence != known:
                    raise Wrong(f"{name} was last at {known}; it is told {producer.last_sequence}")
        return producer

    def payload(self, size: int) -> bytes:
        self._serial += 1
        return b"<%06d>" % self._serial + b"." * size

    async def publish(
        self,
        topic: str,
        name: str,
        batch: int,
        messages: list[bytes],
        key: str | None,
        at: int,
        post: bool,
        delay_ms: int = 0,
    ) -> None:
        """Publish messages of one producer from a sequence number on; `post` does not wait.

        A key "k|o" is the key k and the ordering key o, which single messages have.
        """
        producer = await self.producer(topic, name, batch)
        model = self.topics[topic]
        key, ordering = (None, None) if key is None else (*key.split("|"), None)[:2]
        at = producer._sequence if post else at
        now_ns = self.world.clock.now_ns()
        due_ns = (now_ns // 1_000_000 + delay_ms) * 1_000_000 if delay_ms else 0
        places: list[int | None] = []
        for start in range(0, len(messages), batch):
            part = tuple(messages[start : start + batch])
            stored = Stored(part, key, name, at + start, now_ns, due_ns=due_ns, ordering=ordering)
            places.append(model.publish(stored))
        self.sequences[topic, name] = max(self.sequences.get((topic, name), 0), at + len(messages))
        if post:
            await producer.post(messages, key=key)
            return
        if len(messages) == 1 and batch == 1 and not delay_ms:
            order = None if ordering is None else ordering.encode()
            ids = [await producer.send(messages[0], key=key, ordering_key=order, sequence=at)]
        else:
            after_s = delay_ms / 1000 if delay_ms else None
            ids = await producer.send_many(messages, key=key, sequence=at, deliver_after=after_s)
        self.harden()
        if len(ids) != len(messages):
            raise Wrong(f"{len(messages)} messages were sent, and {len(ids)} ids came back")
        for number, id in enumerate(ids):  # noqa: A001  # as everywhere
            ordinal = places[number // batch]
            if (ordinal is None) != (id.ledger == -1):
                raise Wrong(f"sequence {at + number}: the id is {id}; duplicate is {ordinal is None}")
            if ordinal is not None:
                if not self.world.holds(messages[number]):
                    raise Wrong(f"{id} is told to the producer, and a crash could take it back")
                model.confirm(ordinal, (id.ledger, id.entry))

    async def flush(self) -> None:
        for (topic, name), producer in self.producers.items():
            await producer.flush()
            for entry in self.topics[topic].entries:
                if entry.producer == name:
                    entry.sure = True

    def harden(self) -> None:
        """Mark all entries as durable, because a later one is."""
        for of in self.subscriptions.values():
            of.doubtful.clear()
        for topic in self.topics.values():
            topic.first_sure = topic.first

    # -- consuming -------------------------------------------------------------------------------------

    async def subscribe(self, where: Where, type: Type, start: Start) -> None:  # noqa: A002
        await self.flush()
        topic = self.topics[where[0]]
        await self.admin.create_subscription(*where, start=start)
        of = Subscription(topic, type)
        of.acked = of.keys_below(self.target(topic, start))
        self.subscriptions[where] = of

    def target(self, topic: Topic, to: Start) -> int:
        """Return the ordinal that a start position means."""
        if isinstance(to, MessageId):
            ids = [entry.id for entry in topic.entries[: topic.end]]
            return max(topic.first, ids.index((to.ledger, to.entry)))
        if isinstance(to, int):
            return topic.at_time(to)
        return topic.first if to == "earliest" else topic.end

    async def join(
        self, where: Where, queue: int, priority: int = 0, ack_timeout_s: float | None = None
    ) -> None:
        assert self.broker is not None
        of = self.subscriptions[where]
        self._names += 1
        sharing = self.sharing(where)
        client = Client(f"c{self._names}", queue, int((ack_timeout_s or 0.0) * 1e9), sharing or KeyShared())
        consumer = self.broker.consumer(
            *where,
            type=of.type,
            receiver_queue=queue,
            priority=priority,
            name=client.name,
            ack_timeout=ack_timeout_s,
            keys=sharing,
        )
        taken = {each for other in of.clients.values() for each in other.sharing.ranges}
        if (of.type == "exclusive" and of.clients) or taken & {*client.sharing.ranges}:
            try:
                await consumer.open()
            except Busy:
                return
            raise Wrong(f"{where} is exclusive, or its hashes are, and it has two consumers")
        consumer._inbox = inbox = Watched(self, of, client)
        of.joined(client)
        self.attached.append(Attached(where, consumer, client, inbox))
        await consumer.open()

    def sharing(self, where: Where) -> KeyShared | None:
        """Return the half of the hashes that the next sticky consumer names."""
        if where != STICKY:
            return None
        return KeyShared(ranges=((0, 32767),) if self._names % 2 else ((32768, 65535),))

    async def leave(self, each: Attached) -> None:
        self.attached.remove(each)
        self.subscriptions[each.where].left(each.client.name)
        await each.consumer.close()

    async def take(self, each: Attached, count: int) -> None:
        if not each.client.inbox:
            return
        messages = await each.consumer.receive_many(count, timeout=self.world.patience_s)
        self.subscriptions[each.where].took(each.client.name, [key_of(message) for message in messages])
        self.held += [Held(each.where, message, each.client) for message in messages]

    async def ack(self, each: Attached, chosen: list[Held], receipt: bool) -> None:
        of = self.subscriptions[each.where]
        keys = {held.key for held in chosen}
        # The messages are in doubt until the receipt arrives, also if none was asked for.
        self._each_ack(of, chosen, keys, receipt=False)
        messages = [held.message for held in chosen]
        done = each.consumer.ack(messages[0], receipt) if len(chosen) == 1 else None
        await self._acked(done or each.consumer.ack_many(messages, receipt), of, chosen)
        if receipt:
            self._each_ack(of, chosen, keys, receipt=True)

    @staticmethod
    def _each_ack(of: Subscription, chosen: list[Held], keys: set[Key], receipt: bool) -> None:
        for number in {held.message.reset_number for held in chosen}:
            same = {held.key for held in chosen if held.message.reset_number == number}
            of.ack(keys & same, number, receipt)

    async def _acked(self, done: Coroutine[Any, Any, None], of: Subscription, chosen: list[Held]) -> None:
        """Await an acknowledgement; only one from before a reset may be refused."""
        try:
            await done
        except (Outdated, CursorModifying):
            if all(held.message.reset_number == of.reset_number for held in chosen):
                raise

    async def ack_cumulative(self, each: Attached, held: Held, receipt: bool) -> None:
        of = self.subscriptions[each.where]
        keys = of.keys_to(held.key)
        of.ack(keys, held.message.reset_number, receipt=False)
        await self._acked(each.consumer.ack_cumulative(held.message, receipt), of, [held])
        if receipt:
            of.ack(keys, held.message.reset_number, receipt=True)

    async def ack_as_session(self, held: Held, receipt: bool) -> None:
        """Acknowledge as a network client does, with the reset number that its session knows.

        In ordered subscriptions, acknowledge this message and all before it.
        """
        assert self.broker is not None
        of, message, number = (
            self.subscriptions[held.where],
            held.message,
            self._stats(held.where).reset_number,
        )
        topic = self.admin._topic(held.where[0])
        dispatcher = self.broker.dispatcher(topic, topic.state.subscriptions[held.where[1]])
        ordinal, index, size = message.ordinal, message.batch_index, message.batch_size
        cumulative, keys = of.is_ordered, {held.key}
        if cumulative:
            keys = of.keys_to(held.key)
            whole = index < 0 or index + 1 >= size
            end = ordinal if whole else ordinal - 1
            before = {key for key in keys if key.ordinal <= end}
            if end >= 0:
                send = partial(dispatcher.ack_up_to, end, number, receipt)
                await self._ack_as_session(held, number, end, before, send)
            if whole:
                return
            keys -= before
        acked = (2 << index) - 1 if cumulative else 1 << max(0, index)
        still_open = ((1 << size) - 1) & ~acked
        send = partial(dispatcher.ack_all_but, ordinal, still_open, number, receipt)
        if index < 0:
            send = partial(dispatcher.ack_ranges, [(ordinal, ordinal + 1)], number, receipt)
        await self._ack_as_session(held, number, ordinal, keys, send)

    async def _ack_as_session(
        self,
        held: Held,
        number: int,
        ordinal: int,
        keys: set[Key],
        send: Callable[[], asyncio.Future[None] | None],
    ) -> None:
        """Send one acknowledgement; compare its effect with the reference."""
        of = self.subscriptions[held.where]
        counts = of.takes_word_of_a_session(ordinal)
        changes = any(key.ordinal >= of.topic.first for key in keys - of.acked)  # the others were trimmed
        if counts:
            of.ack(keys, number, receipt=False)
        done = send()
        if done is None:
            return
        try:
            await done
        except Outdated:
            if counts:
                raise
            return
        if changes and not counts:
            raise Wrong(
                f"{held.where}: {held.key} was received before reset {number}, and is acknowledged; "
                f"it reaches to {of.reach}, since then were handed out {sorted(of.seen)}"
            )
        if counts:
            of.ack(keys, number, receipt=True)

    def nack(self, each: Attached, held: Held, delay_s: float) -> None:
        now_ns = self.world.clock.monotonic_ns()
        self.subscriptions[each.where].nacked(
            held.key.ordinal, each.client.name, now_ns + int(delay_s * 1e9), now_ns
        )
        each.consumer.nack(held.message, delay_s)

    def redeliver(self, each: Attached) -> None:
        self.subscriptions[each.where].redelivers(each.client)
        each.consumer.redeliver()

    async def read(self, name: str, start: Start, then: Start | None) -> None:
        """Let a reader read everything from `start` on, and again from `then` on."""
        assert self.broker is not None
        topic = self.topics[name]
        async with self.broker.reader(name, start=start, receiver_queue=3) as reader:
            await self._read_all(reader, topic, self.target(topic, start))
            if then is not None:
                await reader.seek(then)
                await self._read_all(reader, topic, self.target(topic, then))

    async def _read_all(self, reader: Reader, topic: Topic, first: int) -> None:
        found = []
        while await reader.has_more():
            found.append(shown(await reader.read(timeout=self.world.patience_s)))
        expected = [data for entry in topic.entries[first:] for data in entry.messages]
        if [message.data for message in found] != expected:
            raise Wrong(f"a reader from {first} on sees {[message.key for message in found]}; {topic.end}")
        for message in found:
            topic.confirm(message.key.ordinal, message.id)

    # -- going elsewhere -------------------------------------------------------------------------------

    async def reset(self, where: Where, to: Start, by: Attached | None) -> None:
        of = self.subscriptions[where]
        number = of.reset_number
        of.resetting = self.target(of.topic, to)
        try:
            await (self.admin.reset(*where, to) if by is None else by.consumer.seek(to))
        except HoldfastError:
            of.resetting = None
            raise
        if of.reset_number == number:
            assert of.resetting is not None
            of.reset(of.resetting)
        self.harden()

    async def advance(self, where: Where, keys: set[Key], work: Coroutine[Any, Any, None]) -> None:
        """Skip, clear or expire: acknowledge these messages."""
        of = self.subscriptions[where]
        changes = bool(keys - of.acked)
        of.ack(keys, of.reset_number, receipt=False)
        await work
        of.ack(keys, of.reset_number, receipt=True)
        if changes:  # otherwise the disk is not written
            self.harden()

    # -- ledgers ---------------------------------------------------------------------------------------

    async def roll(self, name: str) -> None:
        await self.flush()
        await self.admin.roll(name)
        self.topics[name].sealed.add(self.topics[name].end)

    async def trim(self, name: str) -> None:
        """Trim; require that exactly the sealed ledgers go that all subscriptions have acknowledged."""
        topic = self.topics[name]
        needed = min(of.mark() for of in self.subscriptions.values() if of.topic is topic)
        expected = max([topic.first, *(end for end in topic.ledgers() if end <= needed)])
        first = self._first(name, await self.admin.trim(name))
        if first != expected and all(entry.id is not None for entry in topic.entries):
            raise Wrong(f"{name} was trimmed to {first}; needed from {needed}: {expected}")
        self._trimmed(topic, first)

    def _first(self, name: str, gone: int) -> int:
        return self.topics[name].first + gone
