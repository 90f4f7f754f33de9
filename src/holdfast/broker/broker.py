"""The broker: topics, producers, consumers and administration in one embeddable object."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast._core import Frame
from holdfast.arguments import checked_patience
from holdfast.broker.api.admin import Admin
from holdfast.broker.api.blocking import BlockingBroker, Runner
from holdfast.broker.api.consumer import Consumer, Reader, Start
from holdfast.broker.api.producer import Producer
from holdfast.broker.api.sessions import Sessions
from holdfast.broker.api.stage import Stage, StageReceipt, Stages
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.types import Cursor, DispatchOptions, Submit
from holdfast.broker.dispatch.volatile import VolatileSubscriptions
from holdfast.broker.effects import Effects
from holdfast.broker.engine import Engine, Transfer
from holdfast.broker.events import Advance, Notice, Revised, SchemaAdd, SubscriptionCreate, TopicCreate
from holdfast.broker.housekeeping import Housekeeping
from holdfast.broker.machine import Machine
from holdfast.broker.options import BrokerOptions, age_ns
from holdfast.broker.quota import Quota
from holdfast.broker.state import SILENT, Access, Policies, SubscriptionState, SubscriptionType
from holdfast.broker.telemetry.metrics import Page, Sample, collect, metrics
from holdfast.broker.telemetry.stats import BrokerStats
from holdfast.broker.telemetry.traffic import Rates
from holdfast.broker.topic import Topic
from holdfast.errors import Closed, Exists, HoldfastError, Misuse, NotFound
from holdfast.group import Group, LocalGroup, Position
from holdfast.ledger import FORMAT, Closing, Files, NativeFiles, Recovered, Store, require_no_strangers
from holdfast.ledger.files import Publications
from holdfast.names import namespace_of, topic_name
from holdfast.system import Clock, Disk, Randomness, SystemClock, SystemDisk, SystemRandomness

CLOSE_S = 30.0
"""Time that a closing broker waits for events under way. After that their futures fail."""


Watcher: TypeAlias = Callable[[Sequence[Notice]], None]
Meter: TypeAlias = Callable[[], Iterable[Sample]]


class Opening:
    """The result of `Broker.open`: `async with` enters a `Broker`, `with` a `BlockingBroker`."""

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
    """A broker on a directory that it holds alone. `Broker.open` creates one.

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
        self._housekeeping = Housekeeping(self)
        self.engine = Engine(
            machine,
            store,
            group,
            clock,
            Effects(self, self._housekeeping),
            at=recovered.position,
            # In a cluster only stable entries were ever visible, and the state is the same on every member.
            unclean=not recovered.clean and transfer is None,
            transfer=transfer,
        )
        self.publications = publications
        self.unshown: dict[int, str] = {}
        """Topics whose table for readers of the files could not be written, and why."""
        self.admin = Admin(self)
        self.sessions = Sessions(self)
        self.stages = Stages(self)
        self.quota: Quota | None = None
        """The limits of durable state, if a server sets them."""
        self.rates = Rates(self)
        self._dispatch = DispatchOptions.of(options)
        self.volatile = VolatileSubscriptions(self, self._serve)
        self.watchers: list[Watcher] = []
        """Called with the notices of every stable frame."""
        self.meters: list[tuple[Meter, str]] = []
        """Sources of further figures for the page of metrics."""
        self._closing = Closing("close")

    # -- open and close --------------------------------------------------------------------------------

    @staticmethod
    def open(path: str | Path, **options: Any) -> Opening:
        """Open the broker of a directory, or create it. Options are those of `BrokerOptions`.

        Raises:
            Locked: another process has the directory open; the text names it.
            Corrupt: a file is damaged; the text names file and position. See `holdfast doctor`.
            LayoutMismatch: the directory is of another version.
        """
        return Opening(path, BrokerOptions(**options))

    @staticmethod
    def require_directory(path: Path) -> None:
        """Refuse a file, or a directory with other files, as data directory."""
        lowest = next((each for each in (path, *path.absolute().parents) if each.exists()), path)
        if not lowest.is_dir():
            raise Misuse(f"{lowest} is not a directory; use a new directory")
        names = {each.name for each in path.iterdir()} if path.exists() else set()
        if FORMAT not in names:
            try:
                require_no_strangers(names)
            except Misuse as error:
                raise Misuse(f"{path}: {error}") from None

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
        """Recover a directory and start to serve. Simulations pass their own disk, clock and group."""
        options.require_sound()
        clock, random = clock or SystemClock(), random or SystemRandomness()
        if disk is None:
            assert path is not None
            cls.require_directory(path)
            path.mkdir(parents=True, exist_ok=True)
            disk = SystemDisk(path)
        native = files or NativeFiles(str(path))
        try:
            store = await Store.open(
                disk, options=options, clock=clock, randomness=random, files=native, upto=upto
            )
        except Misuse as error:
            raise Misuse(f"{path}: {error}" if path is not None else str(error)) from None
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
        """Close consumers and producers, write a snapshot, release the directory; also if cancelled."""
        await self._closing(self._close)

    async def _close(self) -> None:
        clean, reason = False, Closed("the broker was closed")
        try:
            await self._housekeeping.stop()
            for topic in self.topics.values():
                topic.close(reason)
            self.volatile.close()
            with contextlib.suppress(HoldfastError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self.engine.settle()
                    self.engine.refuse(reason)  # also events of other threads
                    await self.engine.settle()
                    await self.group.leave()
            clean = self.engine.ended is None
        finally:  # also if the loop stops and cancels this
            self.engine.end(reason)
            await self.store.close(clean=clean)
        if clean:
            self._housekeeping.show_all("closed")

    # -- producers, consumers, readers -----------------------------------------------------------------

    def producer(
        self, topic: str, *, name: str | None = None, access: Access = "shared", batch: int = 1
    ) -> Producer:
        """Return a producer for a topic.

        Deduplication identifies a producer by `name`; without one the broker chooses a name. `access` says
        whether other producers may publish. With `batch` above 1, `send_many` packs that many messages into
        an entry.
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
        """Return a consumer of a subscription, which begins at `start` if it is new.

        Args:
            receiver_queue: number of messages that may wait in this consumer.
            priority: consumers with a lower number are served first.
            ack_timeout: seconds after which an unacknowledged message is redelivered.
            receipts: every acknowledgement waits until it is durable.
            durable: if False, the subscription ends with its last consumer.
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
        """Return a reader of a topic, from any place. It creates no subscription."""
        return Reader(self, topic, start, receiver_queue)

    async def stage(self) -> Stage:
        """Open a stage: its entries are durable, and invisible until `sink_commit`."""
        id = self.random.token(16)  # noqa: A001
        await self.stages.open(id)
        return Stage(self, id)

    async def sink_commit(self, key: str, batch: int, receipts: Sequence[StageReceipt]) -> bool:
        """Publish all stages at once, exactly once per key and batch.

        Returns False if that batch was committed before. Call it again when its outcome is not known.

        Raises:
            NotFound: a stage is missing; nothing was published.
            Corrupt: a stage differs from its receipt; nothing was published.
        """
        parts = [part for each in receipts for part in each.encode()]
        return (await self.stages.commit(key, batch, parts)).committed

    # -- stats -----------------------------------------------------------------------------------------

    def stats(self) -> BrokerStats:
        """Return stats of the whole broker."""
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
        """Seconds by which log time is ahead of the clock; it stands still meanwhile."""
        return max(0, self.machine.log.time - self.clock.now_ns()) / 1e9

    def metrics(self) -> str:
        """Return metrics in the Prometheus text format."""
        return metrics(self)

    # -- for front ends: its state ---------------------------------------------------------------------

    @property
    def incarnation(self) -> bytes:
        """The random id of the data directory."""
        return self.store.incarnation

    @property
    def failure(self) -> HoldfastError | None:
        """The error that stopped the broker; None while it serves."""
        return self.engine.ended

    async def settle(self) -> None:
        """Wait until everything that was submitted so far is durable.

        Raises:
            Closed: the broker stopped meanwhile.
        """
        await self.engine.settle()

    def log_time_now(self) -> int:
        """Return the log time that an event would have now, in ns."""
        return self.engine.log_time_now()

    def watch(self, watcher: Watcher) -> None:
        """Call `watcher` with the notices of every stable frame."""
        self.watchers.append(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        """Undo `watch`."""
        self.watchers.remove(watcher)

    def add_meter(self, meter: Meter, labels: str = "") -> None:
        """Put a front end's own figures on the page of metrics, with these labels."""
        self.meters.append((meter, labels))

    def remove_meter(self, meter: Meter) -> None:
        """Undo `add_meter`."""
        self.meters = [each for each in self.meters if each[0] != meter]

    def collect(self, page: Page) -> Iterator[None]:
        """Put all metrics on a page; pauses after each topic and each subscription."""
        return collect(self, page)

    # -- for front ends: publishing --------------------------------------------------------------------

    def admit_now(self, size: int) -> None:
        """Promise room on the disk for a publish, without a wait.

        Raises:
            NoSpace: the disk is full.
            Closed: the broker has stopped.
        """
        self.store.admit(size)

    async def admit(self, size: int) -> None:
        """Promise room on the disk for a publish; wait while the disk is behind."""
        self.store.admit(size)
        await self.engine.room()

    @property
    def behind(self) -> bool:
        """Whether the disk is behind: publishers should wait in `room`."""
        return self.engine.behind

    async def room(self) -> None:
        """Wait while the disk is behind; calls return in their order."""
        await self.engine.room()

    @property
    def frame(self) -> Frame:
        """This turn's frame, to be filled in the core. Call `added` in the same callback.

        Raises:
            Closed: the broker has stopped.
        """
        return self.engine.frame

    def added(self, count: int) -> list[asyncio.Future[Any]]:
        """Return the futures of the last `count` events that were put into `frame`."""
        return self.engine.added(count)

    def publish_entries(
        self, topic: Topic, session: int, epoch: int, producer: str, entries: list[tuple[int, int, bytes]]
    ) -> asyncio.Future[Any]:
        """Publish ready entries, each with its sequence number and span, as one event."""
        return self.engine.add(lambda frame: frame.publish(topic.id, session, epoch, producer, entries))

    def producers_known(self, topic: Topic) -> list[str]:
        """Return the names of producers whose sequences a topic remembers."""
        return [] if self.is_deleted(topic) else [name for name, _ in self.machine.log.sequences(topic.id)]

    def is_deleted(self, topic: Topic) -> bool:
        """Return whether a deletion was applied; `topics` has the topic until it is stable."""
        return topic.id not in self.machine.state.topics

    async def add_schema(self, topic: Topic, schema: bytes) -> int:
        """Add a schema to a topic, and return its version."""
        return int((await self.engine.submit(SchemaAdd(topic.id, schema))).version)

    # -- for front ends: topics and subscriptions ------------------------------------------------------

    def has_topic(self, full: str) -> bool:
        """Return whether a topic of this full name exists."""
        return full in self.machine.state.names

    def deduplicates(self, topic: Topic) -> bool:
        """Return whether a topic drops messages that it has already."""
        return self.machine.state.deduplicates(topic.state)

    def topic(self, name: str) -> Topic:
        """Return the topic of a full name.

        Raises:
            NotFound: the topic does not exist.
        """
        state = self.machine.state.topic(name)
        if state is None or state.id not in self.topics:
            raise NotFound(f"there is no topic {name}; create it, or publish to it")
        return self.topics[state.id]

    async def ensure_topic(self, name: str) -> Topic:
        """Return a topic; create it if it does not exist and the options allow it."""
        full = topic_name(name)
        try:
            return self.topic(full)
        except NotFound:
            if not self.options.create_topics:
                raise
        with contextlib.suppress(Exists):  # created by another caller meanwhile
            await self.create_topic(full, Policies())
        return self.topic(full)

    async def create_topic(self, full: str, policies: Policies) -> None:
        above = self.machine.state.namespaces.policies.get(namespace_of(full), SILENT)
        if self.options.deduplication and policies.deduplication is above.deduplication is None:
            policies = msgspec.structs.replace(policies, deduplication=True)
        managed = self.options.require_namespaces
        await self.engine.submit(TopicCreate(full, self.random.token(16), policies, managed))

    def require_namespace(self, full: str) -> None:
        """Raise NotFound if the namespace of a new topic has to exist, and does not."""
        if self.options.require_namespaces:
            self.machine.state.namespaces.require(namespace_of(full))

    async def ensure_subscription(
        self, topic: Topic, name: str, start: Start, properties: Mapping[str, str] | None = None
    ) -> SubscriptionState:
        """Return a durable subscription; create it at `start` if it does not exist."""
        while (found := topic.subscriptions.get(name)) is None:  # again if it was deleted meanwhile
            with contextlib.suppress(Exists):  # created by another caller meanwhile
                await self.create_subscription_at(topic, name, await topic.place(start), properties)
        return found

    async def create_subscription_at(
        self, topic: Topic, name: str, ordinal: int, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a durable subscription that begins at an ordinal.

        Raises:
            Exists: the topic has a subscription of that name.
        """
        await self.engine.submit(SubscriptionCreate(topic.id, name, ordinal, dict(properties or {})))

    async def advance(self, subscription: SubscriptionState, reset_number: int, to: int) -> Revised:
        """Acknowledge everything below an ordinal, unless the subscription was reset since.

        Raises:
            CursorModifying: the subscription has another reset number.
        """
        revised: Revised = await self.engine.submit(Advance(subscription.id, reset_number, to=to))
        return revised

    async def reset(
        self,
        topic: Topic,
        dispatcher: Dispatcher,
        to: Start,
        timeout: float | None = None,
        *,
        exact: bool = False,
        after: bool = False,
    ) -> int:
        """Reset a subscription to a place of `Topic.place`, and return its ordinal.

        `timeout` None: the option `reset_timeout_s`.

        Raises:
            Misuse: `to` or the timeout is invalid.
            CursorModifying: another reset was under way until the timeout. Nothing was changed.
            Timeout: it is not known whether the reset happened; call again, or look at the stats.
        """
        limit_s = None if timeout is None else checked_patience(timeout)
        target = await topic.place(to, exact=exact, after=after)
        await dispatcher.reset(target, limit_s)
        return target

    def dispatcher(self, topic: Topic, subscription: SubscriptionState) -> Dispatcher:
        """Return the dispatcher of a subscription, or raise NotFound if that was deleted."""
        dispatcher = topic.dispatcher_of(subscription)
        if dispatcher is None:
            if self.machine.state.subscriptions.get(subscription.id) is not subscription:
                raise NotFound(
                    f"subscription {subscription.name!r} of {topic.name} was deleted; open it again"
                )
            dispatcher = self._serve(topic, subscription, self.engine.submit)
        return dispatcher

    def _serve(self, topic: Topic, cursor: Cursor, submit: Submit) -> Dispatcher:
        dispatcher = Dispatcher(topic, cursor, submit, self.clock, self.random, self._dispatch)
        topic.dispatchers[cursor.id] = dispatcher
        return dispatcher

    async def expire(self, topic: Topic, subscription: SubscriptionState, older_than_s: float) -> None:
        """Advance a subscription past messages that are older."""
        to = await topic.ordinal_at(self.engine.log_clock.now_ns() - age_ns(older_than_s))
        if to > subscription.acks.acked_to:
            await self.dispatcher(topic, subscription).advance(to=to)

    def show(self, topic: Topic, state: str = "live") -> None:
        """Publish what processes that read the files may read of a topic.

        If that fails (a full disk, no descriptors), the broker continues, and housekeeping retries.
        """
        if self.publications is None:
            return
        of = topic.state
        try:
            self.publications.show(of.id, of.name, of.incarnation, of.ledgers, topic.visible, state)
            self.unshown.pop(of.id, None)
        except (OSError, HoldfastError) as error:
            self.unshown[of.id] = str(error)
