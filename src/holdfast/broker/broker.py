"""The broker: topics, producers, consumers and administration in one embeddable object."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from holdfast.broker.api.admin import Admin
from holdfast.broker.api.blocking import BlockingBroker, Runner
from holdfast.broker.api.consumer import Consumer, Reader, Start, SubscriptionType
from holdfast.broker.api.producer import Access, Producer
from holdfast.broker.api.stage import Stage, StageReceipt
from holdfast.broker.dispatch.dispatcher import Dispatcher, DispatchOptions
from holdfast.broker.dispatch.volatile import VolatileSubscription
from holdfast.broker.engine import Engine, Transfer
from holdfast.broker.events import (
    Ack,
    Event,
    LedgersGone,
    Notice,
    ProducerClose,
    ProducerGone,
    ProducerOpened,
    ProducerReady,
    SinkCommit,
    StageOpen,
    SubscriptionCreate,
    SubscriptionGone,
    SubscriptionMoved,
    TopicAdded,
    TopicCreate,
    TopicGone,
    ViewChange,
)
from holdfast.broker.housekeeping import Housekeeping
from holdfast.broker.machine import Applied, Machine
from holdfast.broker.options import BrokerOptions, age_ns
from holdfast.broker.state import SILENT, Policies, SubscriptionState
from holdfast.broker.telemetry.metrics import Sample, metrics
from holdfast.broker.telemetry.stats import BrokerStats
from holdfast.broker.telemetry.traffic import Rates
from holdfast.broker.topic import Topic, time_of
from holdfast.errors import Closed, Exists, Fenced, HoldfastError, NotFound
from holdfast.group import Group, LocalGroup, Position
from holdfast.ids import EARLIEST, LATEST, MessageId
from holdfast.ledger.closing import Closing
from holdfast.ledger.files.table import Publications
from holdfast.ledger.store import Files, NativeFiles, Recovered, Store, StoreOptions
from holdfast.names import namespace_of, topic_name
from holdfast.system import Clock, Disk, Randomness, SystemClock, SystemDisk, SystemRandomness

CLOSE_S = 30.0
"""How long a closing broker waits for what is under way to settle: then it is not told any more."""


class Opening:
    """What `Broker.open` answers: `async with` gives a `Broker`, plain `with` a `BlockingBroker`."""

    def __init__(self, path: str | Path, options: BrokerOptions) -> None:
        self._path = Path(path)
        self._options = options
        self._broker: Broker | None = None
        self._runner: Runner | None = None

    async def __aenter__(self) -> Broker:
        self._broker = await Broker.start(self._path, self._options)
        return self._broker

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._broker is not None
        await self._broker.close()

    def __enter__(self) -> BlockingBroker:
        self._runner = Runner()
        try:
            self._broker = self._runner(Broker.start(self._path, self._options))
        except BaseException:
            self._runner.stop()
            raise
        return BlockingBroker(self._runner, self._broker)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._broker is not None
        assert self._runner is not None
        self._runner.finish(self._broker.close())


class Broker:
    """A broker on a directory, which it alone has open. `Broker.open` makes one.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         async with broker.consumer("orders", "billing", start="earliest") as c:
        ...             async with broker.producer("orders") as p:
        ...                 await p.send(b"nails", key="smith")
        ...             async for message in c:
        ...                 print(message.key, message.data)
        ...                 await c.ack(message)
        ...                 break
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        smith b'nails'
    """

    def __init__(
        self,
        machine: Machine,
        store: Store,
        group: Group,
        options: BrokerOptions,
        clock: Clock,
        random: Randomness,
        recovered: Recovered,
        transfer: Transfer | None = None,
        publications: Publications | None = None,
    ) -> None:
        self.machine = machine
        self.store = store
        self.group = group
        self.options = options
        self.clock = clock
        self.random = random
        self.recovered = recovered
        self.topics: dict[int, Topic] = {
            state.id: Topic(state, state.ledgers.end, store) for state in machine.state.topics.values()
        }
        self.engine = Engine(
            machine,
            store,
            group,
            clock,
            self,
            at=recovered.position,
            # In a cluster nothing above stable was ever shown, and the state must not know who crashed.
            unclean=not recovered.clean and transfer is None,
            transfer=transfer,
        )
        self.publications = publications
        self.unshown: dict[int, str] = {}
        """Topics of which readers of the files could not be told, and why."""
        self.admin = Admin(self)
        self._housekeeping = Housekeeping(self)
        self.rates = Rates(self)
        self._dispatch = DispatchOptions(
            guard_s=options.reset_timeout_s,
            nack_first_s=options.nack_first_s,
            nack_most_s=options.nack_most_s,
            unacked_max=options.unacked_max,
            skip_damaged=options.skip_damaged,
        )
        self._volatile = 0
        self.watchers: list[Callable[[Applied], None]] = []
        """Told of every frame that is settled: what became of sessions, topics and subscriptions."""
        self.meters: list[Callable[[], Iterable[Sample]]] = []
        """What stands beside the broker, and has figures of its own for the page of metrics."""
        self._waiting: dict[int, asyncio.Future[ProducerReady]] = {}
        """Producers that wait for exclusive access, by session."""
        self._closing = Closing("close")

    # -- its life --------------------------------------------------------------------------------------

    @staticmethod
    def open(path: str | Path, **options: Any) -> Opening:
        """Open the broker of a directory, which is made if it is not there; options as in `BrokerOptions`.

        Raises:
            Busy: another process has it open.
            Corrupt: something durable is damaged; the text names file and position. See `holdfast doctor`.
            LayoutMismatch: the directory is of another version.
        """
        return Opening(path, BrokerOptions(**options))

    @classmethod
    async def start(
        cls,
        path: Path | None,
        options: BrokerOptions,
        *,
        disk: Disk | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        random: Randomness | None = None,
        group: Group | None = None,
        transfer: Transfer | None = None,
        upto: Position | Literal["stable"] | None = None,
    ) -> Broker:
        """Recover what the directory holds and begin to serve. Simulations bring their own world."""
        options.require_sound()
        clock, random = clock or SystemClock(), random or SystemRandomness()
        if disk is None:
            assert path is not None
            path.mkdir(parents=True, exist_ok=True)
            disk = SystemDisk(path)
        settings = StoreOptions(
            sync=options.sync,
            snapshot_bytes=options.snapshot_bytes,
            snapshot_s=options.snapshot_s,
            reserve_bytes=options.reserve_bytes,
            journal_bytes=options.journal_bytes,
        )
        native = files or NativeFiles(str(path))
        store = await Store.open(
            disk, options=settings, clock=clock, randomness=random, files=native, upto=upto
        )
        try:
            machine = Machine()
            recovered = await store.recover(machine)
            if group is None:
                group = LocalGroup(view_id=recovered.position.view + 1, explicit_holds=True)
            publications = None
            if path is not None:
                publications = Publications(str(path), store.incarnation, store.generation, store.rewritten)
            broker = cls(machine, store, group, options, clock, random, recovered, transfer, publications)
            store.start(machine, broker.engine.on_durable, broker.engine.end)
            await group.start(broker.engine)
            broker._housekeeping.start()
        except BaseException:
            await store.close(clean=False)
            raise
        return broker

    async def close(self) -> None:
        """Tell consumers and producers, write a snapshot, and let the directory go, also if cancelled."""
        await self._closing(self._close)

    async def _close(self) -> None:
        clean, reason = False, Closed("the broker was closed")
        try:
            await self._housekeeping.stop()
            for topic in self.topics.values():
                self._close_dispatchers(topic, reason)
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self.engine.settle()
                    self.engine.refuse(reason)  # of other threads, too, which know nothing of this yet
                    await self.engine.settle()
                    await self.group.leave()
            clean = self.engine.ended is None
        finally:  # also where the loop ends and cancels this
            self.engine.end(reason)
            await self.store.close(clean=clean)
        if clean:
            self._housekeeping.show_all("closed")

    # -- producers, consumers, readers -----------------------------------------------------------------

    def producer(
        self, topic: str, *, name: str | None = None, access: Access = "shared", batch: int = 1
    ) -> Producer:
        """A producer for a topic.

        `name` is what deduplication goes by; without one the broker makes one up. `access` says who else may
        publish. With `batch` above 1, `send_many` packs that many messages into an entry.
        """
        return Producer(self, topic, name, access, batch)

    def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        type: SubscriptionType = "exclusive",  # noqa: A002  # the word that users know
        start: Start = "latest",
        receiver_queue: int = 1000,
        priority: int = 0,
        name: str | None = None,
        ack_timeout: float | None = None,
        receipts: bool = False,
        durable: bool = True,
    ) -> Consumer:
        """A consumer on a subscription, which begins at `start` if it is new.

        `receiver_queue` is how many messages may wait here; a lower `priority` number is served first;
        `ack_timeout` seconds after delivery an unacknowledged message comes again; with `receipts` every
        acknowledgement waits until it is durable; without `durable` the subscription ends with its last
        consumer.
        """
        return Consumer(
            self,
            topic,
            subscription,
            type,
            start,
            receiver_queue,
            priority,
            name,
            ack_timeout,
            receipts,
            durable,
        )

    def reader(self, topic: str, *, start: Start = "earliest", receiver_queue: int = 1000) -> Reader:
        """A reader of a topic, from any place; it leaves no trace."""
        return Reader(self, topic, start, receiver_queue)

    async def stage(self) -> Stage:
        """A stage: what is appended to it is durable and invisible until `sink_commit`."""
        id = self.random.token(16)  # noqa: A001
        await self.engine.submit(StageOpen(id))
        return Stage(self, id)

    async def sink_commit(self, key: str, batch: int, receipts: Sequence[StageReceipt]) -> bool:
        """Publish all stages at once, exactly once per key and batch; False when that batch was before.

        Send it again when its outcome is not known.

        Raises:
            NotFound: a stage is missing; nothing was published.
            Corrupt: a stage is not what its receipt says; nothing was published.
        """
        await self.admit(0)
        parts = [part for each in receipts for part in each.encode()]
        committed = await self.engine.submit(SinkCommit(key, batch, parts))
        return bool(committed.committed)

    # -- looks -----------------------------------------------------------------------------------------

    def stats(self) -> BrokerStats:
        """A look at the broker as a whole."""
        return BrokerStats(
            topics=len(self.topics),
            subscriptions=sum(len(topic.state.subscriptions) for topic in self.topics.values()),
            events=self.machine.log.next_d - 1,
            stable=str(self.engine.stable),
            pending_bytes=self.machine.log.pending_bytes,
            store=self.store.stats(),
            log_time_ahead_s=self.log_time_ahead_s,
        )

    @property
    def log_time_ahead_s(self) -> float:
        """How far log time is ahead of the clock: so long it stands still."""
        return max(0, self.machine.log.time - self.clock.now_ns()) / 1e9

    def metrics(self) -> str:
        """Metrics in the Prometheus text format."""
        return metrics(self)

    # -- for producers, consumers and the administration -----------------------------------------------

    def topic(self, name: str) -> Topic:
        """The topic of a full name.

        Raises:
            NotFound: there is none.
        """
        state = self.machine.state.topic(name)
        if state is None or state.id not in self.topics:
            raise NotFound(f"there is no topic {name}; create it, or publish to it")
        return self.topics[state.id]

    async def ensure_topic(self, name: str) -> Topic:
        """The topic, made if it is not there and the options allow it."""
        full = topic_name(name)
        try:
            return self.topic(full)
        except NotFound:
            if not self.options.create_topics:
                raise
        with contextlib.suppress(Exists):  # somebody was quicker
            await self.create_topic(full, Policies())
        return self.topic(full)

    async def create_topic(self, full: str, policies: Policies) -> None:
        above = self.machine.state.namespaces.policies.get(namespace_of(full), SILENT)
        if self.options.deduplication and policies.deduplication is above.deduplication is None:
            policies = msgspec.structs.replace(policies, deduplication=True)
        managed = self.options.require_namespaces
        await self.engine.submit(TopicCreate(full, self.random.token(16), policies, managed))

    def require_namespace(self, full: str) -> None:
        """Raises NotFound where a topic of this name could not be made: its namespace was not."""
        name = namespace_of(full)
        if self.options.require_namespaces and name not in self.machine.state.namespaces.policies:
            raise NotFound(f"there is no namespace {name}; create it first")

    async def ensure_subscription(self, topic: Topic, name: str, start: Start) -> SubscriptionState:
        if name not in topic.state.subscriptions:
            with contextlib.suppress(Exists):  # somebody was quicker
                await self.create_subscription(topic, name, start)
        found = topic.state.subscriptions.get(name)
        if found is None:
            raise NotFound(f"the subscription {name!r} of {topic.name} was deleted meanwhile; open it again")
        return found

    async def create_subscription(self, topic: Topic, name: str, start: Start) -> None:
        await self.engine.submit(SubscriptionCreate(topic.state.id, name, await self.place(topic, start)))

    async def place(self, topic: Topic, to: Start) -> int:
        """The ordinal of a place that a user named."""
        if to == "earliest":
            return topic.ordinal_of(EARLIEST)
        if to == "latest":
            return topic.ordinal_of(LATEST)
        if isinstance(to, MessageId):
            return topic.ordinal_of(to)
        return await topic.ordinal_at(time_of(to))

    async def admit(self, size: int) -> None:
        """Is there room for a publish? Waits while the disk is behind, refuses when it is full."""
        self.store.admit(size)
        await self.engine.room()

    def dispatcher(self, topic: Topic, subscription: SubscriptionState) -> Dispatcher:
        """The one that serves a subscription here. Raises NotFound where the subscription was deleted."""
        dispatcher = topic.dispatchers.get(subscription.id)
        if dispatcher is None:
            if self.machine.state.subscriptions.get(subscription.id) is not subscription:
                raise NotFound(
                    f"subscription {subscription.name!r} of {topic.name} was deleted; open it again"
                )
            dispatcher = Dispatcher(
                topic, subscription, self.engine.submit, self.clock, self.random, self._dispatch
            )
            topic.dispatchers[subscription.id] = dispatcher
        return dispatcher

    async def volatile_dispatcher(self, topic: Topic, name: str | None, start: Start) -> Dispatcher:
        """One for a subscription that ends with its last consumer; without a name, for one reader alone."""
        if name is not None and name in topic.volatile:
            return topic.volatile[name]
        place = await self.place(topic, start)
        if topic.state.id not in self.topics:
            raise NotFound(f"{topic.name} was deleted meanwhile; open it again")
        if name is not None and name in topic.volatile:
            return topic.volatile[name]  # another was quicker
        self._volatile -= 1
        subscription = VolatileSubscription(topic, self._volatile, name or f"reader-{-self._volatile}", place)
        dispatcher = Dispatcher(
            topic, subscription, subscription.submit, self.clock, self.random, self._dispatch
        )
        topic.dispatchers[subscription.id] = dispatcher
        if name is not None:
            topic.volatile[name] = dispatcher
        return dispatcher

    def abandoned(self, topic: Topic, dispatcher: Dispatcher) -> None:
        """A consumer left: a volatile subscription goes with its last one."""
        if dispatcher.consumers:
            return
        id, name = dispatcher.subscription  # noqa: A001
        if id < 0 and topic.dispatchers.get(id) is dispatcher:
            topic.forget(id)
            dispatcher.close(Closed("its last consumer has left"))
        if topic.volatile.get(name) is dispatcher:
            del topic.volatile[name]

    async def enter(self, event: Event, leave: Callable[[int], Event]) -> Any:
        """Open a session. If the caller gives up meanwhile, the session does not stay behind."""
        future = self.engine.submit(event)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: self._undo(done, leave))
            raise

    def _undo(self, opened: asyncio.Future[Any], leave: Callable[[int], Event]) -> None:
        if not opened.cancelled() and opened.exception() is None and self.engine.is_open:
            self.engine.submit(leave(opened.result().session))

    async def admitted(self, opened: ProducerOpened) -> ProducerOpened | ProducerReady:
        """Wait until a producer that asked for exclusive access has it."""
        if not opened.waiting:
            return opened
        try:
            return await self._admitted(opened.session)
        except asyncio.CancelledError:
            if self.engine.is_open:
                self.engine.submit(ProducerClose(opened.session))
            raise
        finally:
            self._waiting.pop(opened.session, None)

    def _admitted(self, session: int) -> asyncio.Future[ProducerReady]:
        if session not in self._waiting:
            self._waiting[session] = asyncio.get_running_loop().create_future()
        return self._waiting[session]

    async def expire(self, topic: Topic, subscription: SubscriptionState, older_than_s: float) -> None:
        """Advance a subscription past what is older."""
        to = await topic.ordinal_at(self.engine.log_clock.now_ns() - age_ns(older_than_s))
        if to > subscription.acks.acked_to:
            await self.dispatcher(topic, subscription).advance(to=to)

    # -- what the engine tells -------------------------------------------------------------------------

    def settled(self, applied: Applied) -> None:
        for notice in applied.notices:
            if isinstance(notice, TopicAdded) and notice.topic.id in self.machine.state.topics:
                self.topics.setdefault(notice.topic.id, Topic(notice.topic, 0, self.store))
        for topic_id, end in applied.tails:
            topic = self.topics.get(topic_id)
            if topic is not None:
                topic.traffic.wrote(end - topic.visible, self.engine.settling_ms)
                topic.grow(end)
                self.show(topic)
                self._housekeeping.grown(topic)
        for notice in applied.notices:
            self._noticed(notice)
        for event in applied.events:
            if isinstance(event, Ack):
                self._look_for_done(self.machine.state.subscriptions.get(event.subscription))
            elif isinstance(event, ProducerClose):
                self._waiting.pop(event.session, None)  # it gave up, and its turn came all the same
            elif isinstance(event, ViewChange):
                for topic in self.topics.values():
                    for dispatcher in topic.dispatchers.values():
                        dispatcher.owned()
        for watcher in self.watchers:
            watcher(applied)

    def _noticed(self, notice: Notice) -> None:
        match notice:
            case SubscriptionMoved():
                subscription = notice.subscription
                topic = self.topics.get(subscription.topic)
                dispatcher = None if topic is None else topic.dispatchers.get(subscription.id)
                if dispatcher is not None:
                    dispatcher.moved(notice.reset_number, notice.acked_to)
                self._look_for_done(subscription)
            case SubscriptionGone():
                topic = self.topics.get(notice.subscription.topic)
                dispatcher = None if topic is None else topic.forget(notice.subscription.id)
                if dispatcher is not None:
                    dispatcher.close(Closed("the subscription was deleted"))
            case TopicGone():
                gone = self.topics.pop(notice.topic.id, None)
                self._housekeeping.gone(notice.topic.id)
                self.unshown.pop(notice.topic.id, None)
                if gone is not None:
                    self._close_dispatchers(gone, Closed(f"{gone.name} was deleted"))
                if self.publications is not None:
                    with contextlib.suppress(OSError, HoldfastError):  # its readers find no files
                        self.publications.gone(notice.topic.id)
            case LedgersGone():
                if notice.topic.id in self.topics:
                    self.show(self.topics[notice.topic.id])
            case ProducerReady():
                ready = self._admitted(notice.session)
                if not ready.done():
                    ready.set_result(notice)
            case ProducerGone():
                waiting = self._waiting.pop(notice.producer.session, None)
                if waiting is not None and not waiting.done():
                    waiting.set_exception(Fenced(f"the producer does not wait any more: {notice.reason}"))
            case _:
                pass

    def show(self, topic: Topic, state: str = "live") -> None:
        """Tell processes that read the files what they may read of a topic.

        That it cannot be told (a full disk, no descriptors) is no reason to stop: housekeeping tries again.
        """
        if self.publications is None:
            return
        of = topic.state
        try:
            self.publications.show(of.id, of.name, of.incarnation, of.ledgers, topic.visible, state)
            self.unshown.pop(of.id, None)
        except (OSError, HoldfastError) as error:
            self.unshown[of.id] = str(error)

    def _look_for_done(self, moved: SubscriptionState | None) -> None:
        """Look for ledgers that no subscription needs after a cursor has moved."""
        topic = None if moved is None else self.topics.get(moved.topic)
        if topic is not None:
            self._housekeeping.acknowledged(topic)

    def ended(self, reason: HoldfastError) -> None:
        for topic in self.topics.values():
            self._close_dispatchers(topic, reason)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(reason)

    @staticmethod
    def _close_dispatchers(topic: Topic, reason: Exception) -> None:
        for dispatcher in list(topic.dispatchers.values()):
            dispatcher.close(reason)
