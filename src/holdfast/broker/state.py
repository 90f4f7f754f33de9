"""The state of a broker: what all its events together have made of it.

Only events change it (`holdfast.broker.events`), in the one order, on every member alike. Whatever an event
decides, it decides from what stands here, so nothing here may depend on a clock, on chance, on a local
failure or on the order in which a dictionary was filled: who iterates, sorts.

Topic tails, sessions and deduplication live in the core (`_core.Log`), because publishes are applied there.
A topic that is asked for through `BrokerState` has caught up with its tail.

Invariants, asserted by `check()`: I40 and I41 of the ledgers and acknowledgements, and

- I42: ids are below their counters, and are never given twice.
- I43: state and log agree on every topic's end and open ledger.
- I44: names lead to their topics, subscriptions to theirs, sessions to theirs.
- I45: an exclusive producer is alone; who waits, waits for somebody.
- I46: consumers of one subscription are of one type, and an exclusive one is alone.
- I47: a stage holds as many entries as it says, in memory or in a ledger of its own.
- I48: every ledger's file has one owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from holdfast import _core
from holdfast.broker.options import COUNT_MOST, SECONDS_MOST
from holdfast.errors import Misuse, NotFound
from holdfast.group import BEGINNING, Member
from holdfast.ledger.acks import AckState
from holdfast.ledger.ledgers import LedgerTable
from holdfast.names import namespace_of

Access = Literal["shared", "exclusive", "wait-for-exclusive", "exclusive-with-fencing"]
SubscriptionType = Literal["exclusive", "failover", "shared"]


class Policies(msgspec.Struct, array_like=True, frozen=True):
    """What a topic or a namespace says. None: whatever stands above it says, a topic's namespace or the
    broker's options. Nothing can be below zero but −1.

    Example:
        >>> Policies(ttl_s=60.0).fields()["ttl_s"]
        60.0
    """

    retention_bytes: int | None = None
    """How much is kept of what all subscriptions have acknowledged; −1: everything."""
    retention_s: float | None = None
    """How long it is kept; −1: for ever. What is within either limit stays."""
    ttl_s: float | None = None
    """After that a message counts as acknowledged."""
    roll_bytes: int | None = None
    roll_entries: int | None = None
    roll_age_s: float | None = None
    deduplication: bool | None = None
    retention_both: bool | None = None
    """Only what is within both limits stays, as Pulsar's administrators know it; −1 is then no limit."""

    def fields(self) -> dict[str, int | float | bool | None]:
        """By name."""
        return msgspec.structs.asdict(self)

    def over(self, inherited: Policies) -> Policies:
        """These, and where they say nothing, those."""
        if inherited is SILENT:
            return self
        own = ((name, value) for name, value in self.fields().items() if value is not None)
        return msgspec.structs.replace(inherited, **dict(own))

    def require_sound(self) -> None:
        """Raises Misuse where a limit makes no sense."""
        for name, value in self.fields().items():
            if value is None or (name.startswith("retention_") and value == -1):
                continue
            most = SECONDS_MOST if name.endswith("_s") else COUNT_MOST
            if not 0 <= value <= most or (value == 0 and name.startswith("roll_")):
                raise Misuse(f"{name} cannot be {value}")


SILENT = Policies()
"""Says nothing."""


class Part:
    """Something that a snapshot keeps as one piece. Its bytes are made again only when it has changed."""

    packed: bytes | None = None


class Producer(msgspec.Struct, array_like=True, frozen=True):
    """A producer's session. It belongs to a member and ends with it."""

    session: int
    name: str
    access: Access
    member: Member
    epoch: int
    """The topic's, when it was let in; −1 while it waits."""
    attempt: int
    """How often its client has connected: a later attempt takes the place of an earlier one."""


class Consumer(msgspec.Struct, array_like=True, frozen=True):
    """A consumer that has joined a subscription. It belongs to a member and ends with it."""

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
        """A random id: a topic that is deleted and made again under its name is another."""
        self.created = created
        """Log time."""
        self.policies = Policies()
        self.terminated = False
        self.epoch = 0
        """Rises with every exclusive producer: a former one that comes back is told."""
        self.ledgers = LedgerTable()
        self.producers: dict[int, Producer] = {}
        """By session."""
        self.waiting: list[Producer] = []
        """In the order in which they asked for exclusive access."""
        self.named: dict[str, Producer] = {}
        """All of these, by name: a name is attached once."""
        self.subscriptions: dict[str, SubscriptionState] = {}
        self.schemas: list[bytes] = []
        """By their versions."""

    @property
    def acked_to(self) -> int:
        """Everything below is acknowledged by all subscriptions."""
        return min((each.acks.acked_to for each in self.subscriptions.values()), default=self.ledgers.end)

    def trimmable(
        self, time: int, retention_bytes: int = 0, retention_ns: int = 0, inherited: Policies = SILENT
    ) -> int:
        """How many of the oldest ledgers may go: sealed, acknowledged by all, and beyond retention.

        The arguments are for a topic that says nothing of it: what its namespace says, else those limits.
        Without a subscription nobody has said that it needs no more: then everything stays, unless the topic
        or its namespace sets a limit.
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
        """How many resets there were. An acknowledgement of another number is void."""
        self.target = 0
        self.reach = 0
        """Of the last reset: where it led, and the topic's end at that moment. What lies between may have
        been delivered before. An acknowledgement of it is void until the entry is delivered again (**I58**),
        also after a restart and at another owner."""
        self.owner_epoch = owner_epoch
        """Rises with every view and every reset that was given up: reads of before are dropped."""
        self.token = b""
        """Of the last change that carried one: asked again, it is answered again and not done again."""
        self.answer = (0, 0)
        """What that change was answered: the reset number, and where the subscription then stood."""
        self.fenced = b""
        """The token of a reset that was given up: it must not happen any more."""
        self.consumers: dict[int, Consumer] = {}
        """By session, in the order in which they joined."""

    @property
    def type(self) -> SubscriptionType | None:
        """That of its consumers; None while it has none."""
        return next((each.type for each in self.consumers.values()), None)


class StageTopic(msgspec.Struct, array_like=True):
    """What a stage holds for one topic."""

    topic: int
    count: int = 0
    size: int = 0
    digest: int = 0
    entries: list[bytes] = msgspec.field(default_factory=list)
    """While they are few. More of them go to a ledger that no topic has."""
    hidden: int = 0
    """The id under which the log knows that ledger's owner; 0: it is all in `entries`."""
    file: int = 0
    file_size: int = 0


class StageState(Part):
    """Entries that are durable and invisible until a sink commits them."""

    def __init__(self, id: bytes, time: int) -> None:  # noqa: A002
        self.id = id
        self.time = time
        """Log time of its last append: one that nobody comes back to is dropped some day."""
        self.topics: dict[int, StageTopic] = {}


class Sink(msgspec.Struct, array_like=True, frozen=True):
    """How far a sink has come."""

    batch: int
    time: int
    """Log time of the last commit."""


class Sinks(Part):
    """All sinks, by key."""

    def __init__(self) -> None:
        self.last: dict[str, Sink] = {}


class Tenant(msgspec.Struct, array_like=True, frozen=True):
    """Who has namespaces."""

    admin_roles: list[str] = msgspec.field(default_factory=list)
    """Who may change them."""
    allowed_clusters: list[str] = msgspec.field(default_factory=list)
    """Empty: every one."""


class Namespaces(Part):
    """All tenants and their namespaces. `public` and `public/default` are there without an event.

    Topics need not be in one of them: a program that embeds a broker names its topics as it likes. Whoever
    wants it otherwise says so with each topic that is made (`TopicCreate.managed`).
    """

    def __init__(self) -> None:
        self.tenants: dict[str, Tenant] = {"public": Tenant()}
        self.policies: dict[str, Policies] = {"public/default": SILENT}
        """Of each namespace, `tenant/namespace`: for its topics that say nothing themselves."""

    def require_tenant(self, name: str) -> Tenant:
        """Return a tenant, or raise NotFound."""
        found = self.tenants.get(name)
        if found is None:
            raise NotFound(f"there is no tenant {name}; create it first")
        return found

    def require(self, name: str) -> Policies:
        """Return the policies of a namespace, or raise NotFound."""
        found = self.policies.get(name)
        if found is None:
            raise NotFound(f"there is no namespace {name}; create it first")
        return found

    def of(self, tenant: str) -> list[str]:
        """The namespaces of a tenant, sorted."""
        return sorted(name for name in self.policies if name.partition("/")[0] == tenant)


class BrokerState:
    """Everything. Ask it through its methods: what they answer has caught up with the log.

    Example:
        >>> state = BrokerState(_core.Log())
        >>> state.topic("persistent://public/default/orders") is None
        True
        >>> state.check()
    """

    def __init__(self, log: _core.Log) -> None:
        self.log = log
        self.position = BEGINNING
        """Of the last frame that was applied."""
        self.members: tuple[Member, ...] = ()
        self.views = 0
        """How many there were."""
        self.next_topic = 1
        self.next_subscription = 1
        self.next_session = 1
        self.topics: dict[int, TopicState] = {}
        self.names: dict[str, int] = {}
        self.subscriptions: dict[int, SubscriptionState] = {}
        self.sessions: dict[int, TopicState | SubscriptionState] = {}
        """Where each session is: a producer's at a topic, a consumer's at a subscription."""
        self.stages: dict[bytes, StageState] = {}
        self.sinks = Sinks()
        self.namespaces = Namespaces()
        self.changes = 0
        """Counts: an event that changed nothing is not durable."""

    # -- looking ---------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicState | None:
        """The topic of a full name."""
        id = self.names.get(name)  # noqa: A001
        return None if id is None else self.require_topic(id)

    def require_topic(self, id: int) -> TopicState:  # noqa: A002
        """The topic of an id, as it is just now.

        Raises:
            NotFound: there is none.
        """
        topic = self.topics.get(id)
        if topic is None:
            raise NotFound(f"there is no topic of id {id} (any more)")
        self.refresh(topic)
        return topic

    def inherited(self, topic: TopicState) -> Policies:
        """What a topic's namespace says."""
        return self.namespaces.policies.get(topic.namespace, SILENT)

    def deduplicates(self, topic: TopicState) -> bool:
        """Does it leave out what a producer has published before?"""
        own = topic.policies.deduplication
        return bool(self.inherited(topic).deduplication if own is None else own)

    def require_subscription(self, id: int) -> SubscriptionState:  # noqa: A002
        """The subscription of an id; its topic is as it is just now.

        Raises:
            NotFound: there is none.
        """
        subscription = self.subscriptions.get(id)
        if subscription is None:
            raise NotFound(f"there is no subscription of id {id} (any more)")
        self.refresh(self.topics[subscription.topic])
        return subscription

    def refresh(self, topic: TopicState) -> None:
        """Take over what publishes have appended. Ledgers are sealed by events alone, and each event looks
        first, so it is always only the open one that has grown."""
        end, ledger, first, entries, size = self.log.tail(topic.id)
        if end != topic.ledgers.end:
            topic.ledgers.grow(ledger, first, entries, size, self.log.time)
            topic.packed = None

    # -- changing --------------------------------------------------------------------------------------

    def touch(self, part: Part | None = None) -> None:
        """This changed: the event that did it is durable, and the next snapshot encodes it again."""
        self.changes += 1
        if part is not None:
            part.packed = None

    def seal(self, topic: TopicState) -> None:
        """The next entry opens a new ledger."""
        topic.ledgers.seal()
        self.log.seal_ledger(topic.id)
        self.touch(topic)

    def drop_ledgers(self, topic: TopicState, count: int) -> list[int]:
        """Forget the oldest ledgers; the store deletes files that no snapshot names. Answers their ids."""
        gone = topic.ledgers.drop(count)
        self.touch(topic)
        return [info.id for info in gone]

    def drop_stage(self, stage: StageState) -> None:
        """Forget a stage with all that it still holds."""
        for part in stage.topics.values():
            if part.hidden:
                self.log.remove_topic(part.hidden)
        del self.stages[stage.id]
        self.touch()

    # -- the truth -------------------------------------------------------------------------------------

    def files(self) -> Iterator[tuple[int, int, int]]:
        """Every live ledger's file, with the size of its data and its entries."""
        for topic in self.topics.values():
            yield from ((info.file, info.size, info.entries) for info in topic.ledgers)
        for stage in self.stages.values():
            for part in stage.topics.values():
                if part.hidden:
                    yield part.file, part.file_size, part.count

    def check(self) -> None:
        """Assert every invariant. A failure names its number and what it met."""
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
        assert topic.producers or not topic.waiting, f"I45: {where} lets producers wait for nobody"
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
