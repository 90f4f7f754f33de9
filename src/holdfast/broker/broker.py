"""The broker: topics, producers, consumers and administration in one embeddable object."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from holdfast._core import Frame
from holdfast.arguments import checked_patience
from holdfast.broker.api.admin import Admin
from holdfast.broker.api.consumer import Consumer, Reader, Start
from holdfast.broker.api.moving import Mover
from holdfast.broker.api.producer import Producer
from holdfast.broker.api.sessions import Sessions
from holdfast.broker.api.stage import Stage, StageReceipt, Stages
from holdfast.broker.compaction.reading import CompactedReading
from holdfast.broker.compaction.worker import Compactions
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.ownership import Ownership, Tenure
from holdfast.broker.dispatch.types import Cursor, DispatchOptions, Submit
from holdfast.broker.dispatch.volatile import VolatileSubscriptions
from holdfast.broker.effects import Effects
from holdfast.broker.ending import CLOSE_S, require_room, settle_and_leave
from holdfast.broker.engine import Engine, Joined
from holdfast.broker.events import Advance, Notice, Revised, SchemaAdd, SubscriptionCreate, TopicCreate
from holdfast.broker.housekeeping import Housekeeping
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.limiting import Limiting
from holdfast.broker.machine import Machine
from holdfast.broker.membership import Membership
from holdfast.broker.opening import Opening
from holdfast.broker.options import BrokerOptions, age_ns
from holdfast.broker.partitioned import PartitionedTopics
from holdfast.broker.policy import delivery_times, policies_of_new
from holdfast.broker.quota import Quota
from holdfast.broker.showing import show
from holdfast.broker.state import Access, Policies, SubscriptionState, SubscriptionType
from holdfast.broker.subscribing import subscribed
from holdfast.broker.telemetry.metrics import Page, Sample, collect, metrics
from holdfast.broker.telemetry.stats import BrokerStats
from holdfast.broker.telemetry.traffic import Rates
from holdfast.broker.topic import Topic
from holdfast.broker.unreplicated import UnreplicatedTopics
from holdfast.errors import Closed, HoldfastError, Misuse, NotFound
from holdfast.group import Group, LocalGroup
from holdfast.ledger import FORMAT, Closing, Files, NativeFiles, Recovered, Store, require_no_strangers
from holdfast.ledger.files import Publications
from holdfast.names import namespace_of, topic_name
from holdfast.system import Clock, Disk, Randomness, SystemClock, SystemDisk, SystemRandomness

Watcher: TypeAlias = Callable[[Sequence[Notice]], None]
Meter: TypeAlias = Callable[[], Iterable[Sample]]


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
        foreign: int | None = None,
        publications: Publications | None = None,
    ) -> None:
        self.machine = machine
        self.store = store
        self.group = group
        self.options = options
        self.clock = clock
        self.random = random
        self.recovered = recovered
        routed = machine.state.exchanges
        known = {each.id: Topic(each, each.ledgers.end, store) for each in machine.state.topics.values()}
        self.topics = {key: topic for key, topic in known.items() if key not in routed}
        self.exchanges = {key: topic for key, topic in known.items() if key in routed}
        """The identities of exchanges, by id: producers open sessions there."""
        self.housekeeping = Housekeeping(self)
        self.engine = Engine(
            machine,
            store,
            group,
            clock,
            Effects(self, self.housekeeping),
            at=recovered.position,
            # In a cluster only stable entries were ever visible, and the state is the same on every member.
            unclean=not recovered.clean and foreign is None,
            foreign=foreign or 0,
            complete=not store.missing,
        )
        self.quota: Quota | None = None
        """The limits of durable state, if a server sets them."""
        self.membership = Membership(self)
        self.limiting = Limiting(self)
        self.compactions = Compactions(self)
        self.unreplicated = UnreplicatedTopics(self)
        self.partitioned = PartitionedTopics(self)
        self.publications = publications
        self.unshown: dict[int, str] = {}
        """Topics whose table for readers of the files could not be written, and why."""
        self.admin = Admin(self)
        self.sessions = Sessions(self)
        self.stages = Stages(self)
        self.rates = Rates(self)
        self._dispatch = DispatchOptions.of(options)
        self.volatile = VolatileSubscriptions(self, self._serve)
        self.ownership = Ownership(self, Mover(self).carry_out)
        self.watchers: list[Watcher] = []
        """Called with the notices of every stable frame."""
        self.meters: list[tuple[Meter, str]] = []
        """Sources of further figures for the page of metrics."""
        self.is_member = foreign is not None
        """Whether it is a member of a cluster."""
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
        return Opening(Broker.start, path, BrokerOptions(**options))

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
        joined: Joined | None = None,
    ) -> Broker:
        """Recover a directory and start to serve. Simulations pass their own disk, clock and group.

        `joined`: the group of a member that is in its cluster already, and the lock of its directory.
        """
        options.require_sound()
        clock, random = clock or SystemClock(), random or SystemRandomness()
        if disk is None:
            assert path is not None
            cls.require_directory(path)
            path.mkdir(parents=True, exist_ok=True)
            disk = SystemDisk(path)
        native, lock = files or NativeFiles(str(path)), None if joined is None else joined.lock
        try:
            store = await Store.open(
                disk,
                options=options,
                clock=clock,
                randomness=random,
                files=native,
                lock=lock,
                missing=None if joined is None else joined.missing,
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
            foreign = None if joined is None else joined.foreign()
            broker = cls(machine, store, group, options, clock, random, recovered, foreign, publications)
            store.start(machine, broker.engine.on_durable, broker.engine.end)
            if joined is None:
                await group.start(broker.engine)
                broker.begin()
            else:  # in one step, so that no frame comes between
                store.set_stable(recovered.stable)
                joined.attach(broker.engine)
        except BaseException:
            await store.close(clean=False)
            raise
        return broker

    def begin(self) -> None:
        """Start housekeeping. A member of a cluster begins when its state is stable."""
        self.housekeeping.start()

    async def close(self, within_s: float = CLOSE_S) -> None:
        """Close consumers and producers, write a snapshot, release the directory; also if cancelled.

        Steps that are not done within the time are left to the next start, which recovers. Nothing confirmed
        is lost. On a disk that is too full for the events under way, no step waits.
        """
        await self._closing(lambda: self._close(within_s))

    async def _close(self, within_s: float = CLOSE_S) -> None:
        clean, reason = False, Closed("the broker was closed")
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + within_s
        try:
            await self.housekeeping.stop()
            await self.limiting.stop()
            await self.compactions.stop()
            for topic in self.topics.values():
                topic.close(reason)
            self.volatile.close()
            clean = await settle_and_leave(self, reason, ends_s)
        finally:  # also if the loop stops and cancels this
            self.engine.end(reason)
            await self.store.close(clean=clean, within_s=ends_s - loop.time())
        if clean:
            self.housekeeping.show_all("closed")

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
        keys: KeyShared | None = None,
        compacted: bool = False,
    ) -> Consumer:
        """Return a consumer of a subscription, which begins at `start` if it is new.

        Args:
            receiver_queue: number of messages that may wait in this consumer.
            priority: consumers with a lower number are served first.
            ack_timeout: seconds after which an unacknowledged message is redelivered.
            receipts: every acknowledgement waits until it is durable.
            durable: if False, the subscription ends with its last consumer.
            keys: of type key_shared: the hashes of keys that it gets, and whether order matters.
            compacted: of type exclusive or failover: it reads the topic's compacted view.
        """
        of = (start, receiver_queue, priority, name, ack_timeout, receipts, durable, keys, compacted)
        return Consumer(self, topic, subscription, type, *of)

    def reader(
        self, topic: str, *, start: Start = "earliest", receiver_queue: int = 1000, compacted: bool = False
    ) -> Reader:
        """Return a reader of a topic, from any place. It creates no subscription.

        `compacted`: it reads the compacted view, and then what is not compacted yet.
        """
        return Reader(self, topic, start, receiver_queue, compacted)

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
    def decided(self) -> BrokerOptions:
        """The options that apply; in a cluster all members share those that decide about data."""
        return self.membership.options

    @property
    def failure(self) -> HoldfastError | None:
        """The error that stopped the broker; None while it serves."""
        return self.engine.ended

    @property
    def stalled_s(self) -> float:
        """Seconds for which events wait for room on a full disk; 0.0: none waits."""
        return self.store.stalled_s

    async def settle(self) -> None:
        """Wait until all that was submitted or applied is durable on a majority of members.

        Raises:
            Closed: the broker stopped meanwhile.
            NoSpace: the disk is full, so this could take for ever.
        """
        require_room(self)
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

    async def add_schema(self, topic: Topic, schema: bytes, expected: int | None = None) -> int:
        """Add a schema to a topic, and return its version.

        Raises:
            Outdated: the topic has other versions than the expected number.
        """
        return int((await self.engine.submit(SchemaAdd(topic.id, schema, expected))).version)

    # -- for front ends: topics and subscriptions ------------------------------------------------------

    def has_topic(self, full: str) -> bool:
        """Return whether a topic of this full name exists, at any member."""
        return full in self.machine.state.names or full in self.unreplicated.places()

    def deduplicates(self, topic: Topic) -> bool:
        """Return whether a topic drops messages that it has already."""
        return self.machine.state.deduplicates(topic.state)

    def effective_policies(self, topic: Topic) -> Policies:
        """Return what applies to a topic, or an exchange: its policies, its namespace's, the options."""
        return self.limiting.of(topic)

    def topic(self, name: str) -> Topic:
        """Return the topic of a full name.

        Raises:
            NotFound: the topic does not exist.
            Misuse: it is an exchange, partitioned, or unreplicated.
        """
        state = self.machine.state.topic(name)
        if state is not None and state.id in self.exchanges:
            raise Misuse(f"{name} is an exchange, not a topic; use a topic that is bound to it")
        if state is None or state.id not in self.topics:
            self.unreplicated.require_other(name)
            self.partitioned.require_other(name)
            raise NotFound(f"there is no topic {name}; create it, or publish to it")
        return self.topics[state.id]

    async def ensure_destination(self, name: str) -> Topic:
        """Return the exchange of a name, else the topic as `ensure_topic` does: to publish to."""
        found = self.exchanges.get(self.machine.state.names.get(topic_name(name), 0))
        return found or await self.ensure_topic(name)

    async def ensure_topic(self, name: str) -> Topic:
        """Return a topic; create it if it does not exist and the options allow it."""
        full = topic_name(name)
        try:
            return self.topic(full)
        except NotFound:
            await self.partitioned.create_missing(full)
        return self.topic(full)

    async def create_topic(
        self, full: str, policies: Policies, properties: Mapping[str, str] | None = None
    ) -> None:
        policies, managed = policies_of_new(self, full, policies), self.decided.require_namespaces
        most, kept = self.decided.topics_max, dict(properties or {})
        await self.engine.submit(TopicCreate(full, self.random.token(16), policies, managed, most, kept))

    def require_namespace(self, full: str) -> None:
        """Raise NotFound if the namespace of a new topic has to exist, and does not."""
        if self.decided.require_namespaces:
            self.machine.state.namespaces.require(namespace_of(full))

    async def ensure_subscription(
        self,
        topic: Topic,
        name: str,
        start: Start,
        properties: Mapping[str, str] | None = None,
        compacted: bool = False,
    ) -> SubscriptionState:
        """Return a durable subscription; create a missing one at `start` if policies allow it."""
        return await subscribed(self, topic, name, start, properties, compacted)

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
        target = await (dispatcher.compacted or topic).place(to, exact=exact, after=after)
        await dispatcher.reset(target, limit_s)
        return target

    def dispatcher(self, topic: Topic, subscription: SubscriptionState) -> Dispatcher:
        """Return the dispatcher of a subscription, or raise NotFound if that was deleted."""
        dispatcher = topic.dispatcher_of(subscription)
        if dispatcher is None:
            if self.machine.state.subscriptions.get(subscription.id) is not subscription:
                whose = f"subscription {subscription.name!r} of {topic.name}"
                raise NotFound(f"{whose} was deleted; open it again")
            tenure = self.ownership.tenure(subscription)
            dispatcher = self._serve(topic, subscription, self.engine.submit, tenure)
        return dispatcher

    def _serve(
        self, topic: Topic, cursor: Cursor, submit: Submit, tenure: Tenure | None = None
    ) -> Dispatcher:
        parts = (topic, cursor, submit, self.clock, self.random, self._dispatch, None, tenure)
        more = (delivery_times(self, topic), lambda: CompactedReading(topic))
        dispatcher = topic.dispatchers[cursor.id] = Dispatcher(*parts, *more)
        self.limiting.serve(topic, dispatcher)
        return dispatcher

    async def expire(self, topic: Topic, subscription: SubscriptionState, older_than_s: float) -> None:
        """Advance a subscription past messages that are older."""
        to = await topic.ordinal_at(self.engine.log_clock.now_ns() - age_ns(older_than_s))
        if to > subscription.acks.acked_to:
            await self.dispatcher(topic, subscription).advance(to=to)

    def show(self, topic: Topic, state: str = "live") -> None:
        """Publish what processes that read the files may read of a topic."""
        show(self, topic, state)
