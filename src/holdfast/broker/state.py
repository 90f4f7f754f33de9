"""The state of a broker: the result of all its events.

Only events change it (`holdfast.broker.events`), in the one order, on every member alike. An event decides by
this state alone. So nothing here depends on a clock, on chance, on a local failure or on the order of a
dictionary: loops sort.

Topic tails, sessions and deduplication are in the core (`_core.Log`), because publishes are applied there.
A topic that `BrokerState` returns has caught up with its tail.

Invariants, asserted by `check()`: I40 and I41 of the ledgers and acknowledgements, and

- I42: ids are below their counters, and are never used twice.
- I43: state and log agree on every topic's end and open ledger.
- I44: names lead to their topics, subscriptions to theirs, sessions to theirs.
- I45: an exclusive producer is alone; producers wait only while another one is attached.
- I46: consumers of one subscription are of one type, and an exclusive one is alone.
- I47: a stage holds as many entries as it says, in memory or in a ledger of its own.
- I48: every ledger's file has one owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from holdfast import _core
from holdfast.broker.options import range_missed
from holdfast.errors import Misuse, NotFound
from holdfast.group import BEGINNING, Member
from holdfast.ledger import AckState, LedgerTable
from holdfast.names import namespace_of

Access = Literal["shared", "exclusive", "wait-for-exclusive", "exclusive-with-fencing"]
SubscriptionType = Literal["exclusive", "failover", "shared"]


class Policies(msgspec.Struct, array_like=True, frozen=True):
    """The settings of a topic or a namespace.

    None: the value from above applies, of the topic's namespace or of the broker's options. Values below zero
    are refused, except −1.

    Example:
        >>> Policies(ttl_s=60.0).fields()["ttl_s"]
        60.0
    """

    retention_bytes: int | None = None
    """Bytes kept of entries that all subscriptions have acknowledged; −1: no limit."""
    retention_s: float | None = None
    """Time for which acknowledged entries are kept; −1: no limit. An entry within either limit stays."""
    ttl_s: float | None = None
    """Age at which a message counts as acknowledged."""
    roll_bytes: int | None = None
    roll_entries: int | None = None
    roll_age_s: float | None = None
    deduplication: bool | None = None
    retention_both: bool | None = None
    """Only entries within both limits stay, as in Pulsar; a limit of −1 is then not applied."""

    def fields(self) -> dict[str, int | float | bool | None]:
        """Return the values by name."""
        return msgspec.structs.asdict(self)

    def over(self, inherited: Policies) -> Policies:
        """Return these policies, with inherited values in place of None."""
        if inherited is SILENT:
            return self
        own = ((name, value) for name, value in self.fields().items() if value is not None)
        return msgspec.structs.replace(inherited, **dict(own))

    def require_sound(self) -> None:
        """Raise Misuse for a value that is out of its range."""
        for name, value in self.fields().items():
            zero = not name.startswith("roll_")
            if value is not None and (possible := range_missed(name, value, zero)):
                raise Misuse(f"the policy {name} cannot be {value}; use {possible}")


SILENT = Policies()
"""Policies without any value."""


class Part:
    """One part of a snapshot. It is encoded again only when it has changed."""

    packed: bytes | None = None


class Producer(msgspec.Struct, array_like=True, frozen=True):
    """A producer's session. It belongs to a member and ends with it."""

    session: int
    name: str
    access: Access
    member: Member
    epoch: int
    """The topic's epoch when the producer was attached; −1 while it waits."""
    attempt: int
    """How often its client has connected: a later attempt replaces an earlier one."""


class Consumer(msgspec.Struct, array_like=True, frozen=True):
    """A consumer's session. It belongs to a member and ends with it."""

    session: int
    name: str
    type: SubscriptionType
    priority: int
    member: Member


class TopicState(Part):
    """A topic."""

    def __init__(self, id: int, name: str, incarnation: bytes, created: int) -> None:  # noqa: A002
        self.id = id
        self.name = name
        self.namespace = namespace_of(name)
        self.incarnation = incarnation
        """A random id: a topic that is deleted and created again has another one."""
        self.created = created
        """In log time."""
        self.policies = Policies()
        self.terminated = False
        self.epoch = 0
        """Rises with every exclusive producer: a former one that returns is fenced."""
        self.ledgers = LedgerTable()
        self.producers: dict[int, Producer] = {}
        """By session."""
        self.waiting: list[Producer] = []
        """In the order in which they asked for exclusive access."""
        self.named: dict[str, Producer] = {}
        """All of these producers, by name: a name is attached once."""
        self.subscriptions: dict[str, SubscriptionState] = {}
        self.schemas: list[bytes] = []
        """By version."""

    @property
    def acked_to(self) -> int:
        """The ordinal below which all subscriptions have acknowledged everything."""
        return min((each.acks.acked_to for each in self.subscriptions.values()), default=self.ledgers.end)

    def trimmable(
        self, time: int, retention_bytes: int = 0, retention_ns: int = 0, inherited: Policies = SILENT
    ) -> int:
        """Count the oldest ledgers that are sealed, acknowledged by all, and beyond retention.

        The arguments apply where the topic has no policy: first its namespace's, then the limits. A topic
        without subscriptions keeps everything, unless it or its namespace sets a limit.
        """
        own = self.policies.over(inherited)
        if not self.subscriptions and own.retention_bytes is None and own.retention_s is None:
            return 0
        bytes_max = retention_bytes if own.retention_bytes is None else own.retention_bytes
        age_max = retention_ns if own.retention_s is None else int(own.retention_s * 1e9)
        acked_to = self.acked_to
        done = [info for info in self.ledgers if info.sealed and info.end <= acked_to]
        kept, count = sum(info.size for info in done), 0
        for info in done:
            kept -= info.size
            over = (0 <= bytes_max <= kept, 0 <= age_max <= time - info.last_time)
            if not (any(over) if own.retention_both else all(over)):
                break
            count += 1
        return count


class SubscriptionState(Part):
    """A durable subscription."""

    def __init__(self, id: int, topic: int, name: str, acks: AckState, owner_epoch: int) -> None:  # noqa: A002
        self.id = id
        self.topic = topic
        self.name = name
        self.acks = acks
        self.properties: dict[str, str] = {}
        self.reset_number = 0
        """Number of resets. An acknowledgement with another number has no effect."""
        self.target = 0
        self.reach = 0
        """Target of the last reset, and the topic's end at that moment.

        Entries between them may have been delivered before the reset. An acknowledgement of such an entry has
        no effect until it is delivered again (**I58**), also after a restart and at another owner.
        """
        self.owner_epoch = owner_epoch
        """Rises with every view and every fenced reset: earlier reads are dropped."""
        self.token = b""
        """Token of the last change that had one. The same change again returns `answer` and does nothing."""
        self.answer = (0, 0)
        """Outcome of that change: the reset number, and the position of the subscription."""
        self.fenced = b""
        """The token of a reset that was fenced: it must not happen any more."""
        self.consumers: dict[int, Consumer] = {}
        """By session, in the order in which they joined."""

    @property
    def type(self) -> SubscriptionType | None:
        """The type of its consumers; None while no consumer is attached."""
        return next((each.type for each in self.consumers.values()), None)


class StageTopic(msgspec.Struct, array_like=True):
    """The entries of a stage for one topic."""

    topic: int
    count: int = 0
    size: int = 0
    digest: int = 0
    entries: list[bytes] = msgspec.field(default_factory=list)
    """The entries, while they are few. More of them go to a ledger that belongs to no topic."""
    hidden: int = 0
    """The id of that ledger's owner in the log; 0: all entries are in `entries`."""
    file: int = 0
    file_size: int = 0


class StageState(Part):
    """A stage: entries that are durable, and invisible until a sink commits them."""

    def __init__(self, id: bytes, time: int) -> None:  # noqa: A002
        self.id = id
        self.time = time
        """Log time of its last append: an abandoned stage is dropped some day."""
        self.topics: dict[int, StageTopic] = {}


class Sink(msgspec.Struct, array_like=True, frozen=True):
    """The last batch that a sink has committed."""

    batch: int
    time: int
    """Log time of the last commit."""


class Sinks(Part):
    """All sinks, by key."""

    def __init__(self) -> None:
        self.last: dict[str, Sink] = {}


class Tenant(msgspec.Struct, array_like=True, frozen=True):
    """An owner of namespaces."""

    admin_roles: list[str] = msgspec.field(default_factory=list)
    """Roles that may administer the tenant."""
    allowed_clusters: list[str] = msgspec.field(default_factory=list)
    """Empty: all clusters."""


class Namespaces(Part):
    """All tenants and their namespaces. `public` and `public/default` exist without an event.

    A topic can be in a namespace that was not created: programs that embed a broker are free in their names.
    `TopicCreate.managed` excludes that for one topic.
    """

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {"public": Tenant()}
        self.policies: dict[str, Policies] = {"public/default": SILENT}
        """By namespace (`tenant/namespace`): the policies that its topics inherit."""

    def require_tenant(self, name: str) -> Tenant:
        """Return a tenant, or raise NotFound."""
        found = self.tenants.get(name)
        if found is None:
            raise NotFound(f"there is no tenant {name}; check its name, or create it")
        return found

    def require(self, name: str) -> Policies:
        """Return the policies of a namespace, or raise NotFound."""
        found = self.policies.get(name)
        if found is None:
            raise NotFound(f"there is no namespace {name}; check its name, or create it")
        return found

    def of(self, tenant: str) -> list[str]:
        """Return the namespaces of a tenant, sorted."""
        return sorted(name for name in self.policies if name.partition("/")[0] == tenant)


class BrokerState:
    """The whole state of a broker. Its methods return topics as the log has them.

    Example:
        >>> state = BrokerState(_core.Log())
        >>> state.topic("persistent://public/default/orders") is None
        True
        >>> state.check()
    """

    def __init__(self, log: _core.Log) -> None:
        self.log = log
        self.position = BEGINNING
        """Position of the last frame that was applied."""
        self.members: tuple[Member, ...] = ()
        self.views = 0
        """Number of views so far."""
        self.next_topic = 1
        self.next_subscription = 1
        self.next_session = 1
        self.topics: dict[int, TopicState] = {}
        self.names: dict[str, int] = {}
        self.subscriptions: dict[int, SubscriptionState] = {}
        self.sessions: dict[int, TopicState | SubscriptionState] = {}
        """The owner of each session: a topic for a producer, a subscription for a consumer."""
        self.stages: dict[bytes, StageState] = {}
        self.sinks = Sinks()
        self.namespaces = Namespaces()
        self.changes = 0
        """Number of changes. An event that changed nothing is not durable."""

    # -- looking ---------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicState | None:
        """Return the topic of a full name, or None."""
        id = self.names.get(name)  # noqa: A001
        return None if id is None else self.require_topic(id)

    def require_topic(self, id: int) -> TopicState:  # noqa: A002
        """Return the topic of an id, caught up with the log.

        Raises:
            NotFound: the topic does not exist.
        """
        topic = self.topics.get(id)
        if topic is None:
            raise NotFound(f"there is no topic with id {id}; it may have been deleted")
        self.refresh(topic)
        return topic

    def inherited(self, topic: TopicState) -> Policies:
        """Return the policies of a topic's namespace."""
        return self.namespaces.policies.get(topic.namespace, SILENT)

    def deduplicates(self, topic: TopicState) -> bool:
        """Return whether a topic drops messages that a producer has published before."""
        own = topic.policies.deduplication
        return bool(self.inherited(topic).deduplication if own is None else own)

    def require_subscription(self, id: int) -> SubscriptionState:  # noqa: A002
        """Return the subscription of an id; its topic has caught up with the log.

        Raises:
            NotFound: the subscription does not exist.
        """
        subscription = self.subscriptions.get(id)
        if subscription is None:
            raise NotFound(f"there is no subscription with id {id}; it may have been deleted")
        self.refresh(self.topics[subscription.topic])
        return subscription

    def refresh(self, topic: TopicState) -> None:
        """Take over the entries that publishes have appended.

        Only the open ledger can have grown: ledgers are sealed by events, and each event refreshes first.
        """
        end, ledger, first, entries, size = self.log.tail(topic.id)
        if end != topic.ledgers.end:
            topic.ledgers.grow(ledger, first, entries, size, self.log.time)
            topic.packed = None

    # -- changing --------------------------------------------------------------------------------------

    def touch(self, part: Part | None = None) -> None:
        """Note a change: the event becomes durable, and the next snapshot encodes the part."""
        self.changes += 1
        if part is not None:
            part.packed = None

    def seal(self, topic: TopicState) -> None:
        """Seal the open ledger of a topic: its next entry opens a new one."""
        topic.ledgers.seal()
        self.log.seal_ledger(topic.id)
        self.touch(topic)

    def drop_ledgers(self, topic: TopicState, count: int) -> list[int]:
        """Remove the oldest ledgers, and return their ids.

        The store deletes the files when no snapshot names them.
        """
        gone = topic.ledgers.drop(count)
        self.touch(topic)
        return [info.id for info in gone]

    def drop_stage(self, stage: StageState) -> None:
        """Remove a stage with its entries."""
        for part in stage.topics.values():
            if part.hidden:
                self.log.remove_topic(part.hidden)
        del self.stages[stage.id]
        self.touch()

    # -- the truth -------------------------------------------------------------------------------------

    def files(self) -> Iterator[tuple[int, int, int]]:
        """Yield file, size of the data and number of entries of every live ledger."""
        for topic in self.topics.values():
            yield from ((info.file, info.size, info.entries) for info in topic.ledgers)
        for stage in self.stages.values():
            for part in stage.topics.values():
                if part.hidden:
                    yield part.file, part.file_size, part.count

    def check(self) -> None:
        """Assert every invariant. A failure names the invariant and the object."""
        for name, id in self.names.items():  # noqa: A001
            assert self.topics[id].name == name, f"I44: {name} leads to {self.topics[id].name}"
        assert len(self.names) == len(self.topics), "I44: a topic that its name does not lead to"
        for topic in self.topics.values():
            self.refresh(topic)
            self._check_topic(topic)
        for subscription in self.subscriptions.values():
            self._check_subscription(subscription)
        for stage in self.stages.values():
            self._check_stage(stage)
        for name in self.namespaces.policies:
            assert name.partition("/")[0] in self.namespaces.tenants, f"I44: {name} has no tenant"
        held = [
            *(each for topic in self.topics.values() for each in topic.producers),
            *(each.session for topic in self.topics.values() for each in topic.waiting),
            *(each for subscription in self.subscriptions.values() for each in subscription.consumers),
        ]
        assert sorted(held) == sorted(self.sessions), "I44: sessions that are nowhere, or twice"
        assert all(each < self.next_session for each in held), "I42: a session above its counter"
        files = [file for file, _, _ in self.files()]
        assert len(files) == len(set(files)), "I48: two ledgers in one file"
        assert all(file < self.log.next_ledger for file in files), "I42: a ledger above its counter"

    def _check_topic(self, topic: TopicState) -> None:
        where = f"topic {topic.id}"
        assert topic.id < self.next_topic, f"I42: {where} above its counter"
        topic.ledgers.check()
        tail = self.log.tail(topic.id)
        mine = (topic.ledgers.end, topic.ledgers.open_ledger or 0)
        assert tail[:2] == mine, f"I43: {where} ends at {mine}, in the log at {tail[:2]}"
        exclusive = [each for each in topic.producers.values() if each.access != "shared"]
        assert not exclusive or len(topic.producers) == 1, f"I45: {where} has an exclusive producer and more"
        assert topic.producers or not topic.waiting, f"I45: producers of {where} wait, and none is attached"
        attached = {each.name: each for each in (*topic.producers.values(), *topic.waiting)}
        assert topic.named == attached, f"I44: names of {where} do not lead to its producers"
        for name, subscription in topic.subscriptions.items():
            found = self.subscriptions.get(subscription.id)
            assert found is subscription, f"I44: {where} has a subscription that is not known"
            assert subscription.name == name, f"I44: {name} leads to {subscription.name}"

    def _check_subscription(self, subscription: SubscriptionState) -> None:
        where = f"subscription {subscription.id}"
        assert subscription.id < self.next_subscription, f"I42: {where} above its counter"
        topic = self.topics[subscription.topic]
        assert topic.subscriptions[subscription.name] is subscription, f"I44: {where} is not with its topic"
        subscription.acks.check(topic.ledgers.first, topic.ledgers.end)
        types = {each.type for each in subscription.consumers.values()}
        assert len(types) <= 1, f"I46: {where} has consumers of types {sorted(types)}"
        alone = types != {"exclusive"} or len(subscription.consumers) == 1
        assert alone, f"I46: {where} is exclusive and has {len(subscription.consumers)} consumers"

    def _check_stage(self, stage: StageState) -> None:
        for part in stage.topics.values():
            where = f"stage {stage.id.hex()} for topic {part.topic}"
            if part.hidden:
                assert part.hidden < self.next_topic, f"I42: {where} above its counter"
                expected = (part.count, part.file, 0, part.count, part.file_size)
                tail = self.log.tail(part.hidden)
                assert tail == expected, f"I47: {where}: {expected}, in the log {tail}"
                assert not part.entries, f"I47: {where}: entries in memory and in a ledger"
            else:
                sizes = (len(part.entries), sum(map(len, part.entries)))
                assert sizes == (part.count, part.size), f"I47: {where} has {sizes}"
