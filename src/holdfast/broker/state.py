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
- I66: a subscription has an owner, one of the members with consumers that are ready; without such, none.
- I67: idle members, and members that hold entries, have consumers and are not the owner.
- I250: members that lack ledgers of a topic are in the view, and own none of its subscriptions.
- I263: what members of a Key_Shared subscription hold has a hash for each entry.
- I264: consumers without permits are attached, and not at the owner.
- I303: a topic is quiet at its end or before, and since a time that has passed.
- I272: counts of deliveries are of entries that the topic has had, and not too many.
- I310: a compacted view is complete, and lies below the end of its topic.
- I311: entries that compaction needs are not trimmed.
- I304: only namespaces that exist have properties and permissions.
- I230: views of the past rise, and so do the numbers of their first events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Literal

import msgspec

from holdfast import _core
from holdfast.broker.compaction.state import Compaction, check_compaction
from holdfast.broker.exchanges import Exchanges
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.member_state import Announced, Decided, Unreplicated
from holdfast.broker.part import Part as Part  # also for those that import it from here
from holdfast.broker.partitions import Partitioned, check_partitions
from holdfast.broker.permissions import Permissions
from holdfast.broker.state_check import COUNTS_MAX as COUNTS_MAX
from holdfast.broker.state_check import check_stage, check_subscription
from holdfast.broker.topic_kinds import Thinned
from holdfast.broker.topic_policies import SILENT as SILENT  # also for those that import them from here
from holdfast.broker.topic_policies import STRATEGIES as STRATEGIES
from holdfast.broker.topic_policies import Policies as Policies
from holdfast.broker.topic_policies import Strategy as Strategy
from holdfast.broker.uptime import GAP_NS, Quiet, Uptime
from holdfast.errors import Misuse, NotFound
from holdfast.group import BEGINNING, Member
from holdfast.ledger import AckState, LedgerTable
from holdfast.names import namespace_of

Access = Literal["shared", "exclusive", "wait-for-exclusive", "exclusive-with-fencing"]
SubscriptionType = Literal["exclusive", "failover", "shared", "key_shared"]


class ViewMark(msgspec.Struct, array_like=True, frozen=True):
    """A view of the past. Equal marks are one view, with one past."""

    view: int
    d: int
    """The D of the event with which it began."""
    nodes: tuple[int, ...]
    """The nodes of its members: no other node can have held its events in it."""
    check: int
    """Checksum of its members: a view id alone may be used twice, by members that never met."""
    votes: tuple[int, ...] = ()
    """The nodes of which a majority confirms its events; empty: not known, or a broker alone."""


VIEWS_KEPT = 64
"""How many views of the past the state remembers."""


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
    keys: KeyShared | None = None
    """Of a key_shared consumer."""


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
        self.merged: tuple[Policies, Policies, Policies] | None = None
        """Derived: own policies, those of the namespace, and the former over the latter."""
        self.over = ("", "")
        """Actions of the exceeded backlog quotas, by size and by age; empty: not exceeded."""
        self.terminated = False
        self.epoch = 0
        """Rises with every exclusive producer: a former one that returns is fenced."""
        self.ledgers = LedgerTable()
        self.producers: dict[int, Producer] = {}
        """By session."""
        self.waiting: dict[int, Producer] = {}
        """By session, in the order in which they asked for exclusive access."""
        self.named: dict[str, Producer] = {}
        """All of these producers, by name: a name is attached once."""
        self.subscriptions: dict[str, SubscriptionState] = {}
        self.schemas: list[bytes] = []
        """By version."""
        self.unready: set[Member] = set()
        """Members that do not have all its ledgers yet: they own none of its subscriptions (**I250**)."""
        self.quiet: Quiet | None = None
        """Since when it is unused, if a policy asks for that."""
        self.properties: dict[str, str] = {}
        self.compaction: Compaction | None = None
        """Its part of `BrokerState.compactions`."""

    @property
    def lowest(self) -> int:
        """The lowest ordinal at which a subscription may stand: a compacted view has trimmed entries."""
        has_view = self.compaction is not None and self.compaction.view is not None
        return 0 if has_view else self.ledgers.first

    @property
    def exceeded(self) -> dict[str, str]:
        """The quotas that stop its producers, `size` and `age`, with their actions."""
        return {name: action for name, action in zip(("size", "age"), self.over, strict=True) if action}

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
        if self.compaction is not None:
            acked_to = self.compaction.keeps(acked_to)
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
        self.delivered: list[tuple[int, int]] = []
        """Entries between them that were delivered since, as owners said when they released it."""
        self.owner_epoch = owner_epoch
        """Rises with every view, every owner and every fenced reset: earlier reads are dropped."""
        self.owner: Member | None = None
        """The member that dispatches; None while no consumer is attached."""
        self.taken = 0
        """The owner epoch under which the owner was decided last."""
        self.idle: set[Member] = set()
        """Members whose consumers have no permits. They do not take turns until they ask."""
        self.held: dict[Member, list[tuple[int, int]]] = {}
        """By member that is not the owner: entries that its consumers hold. Acknowledged ones may be left."""
        self.hashes: dict[Member, bytes] = {}
        """Key_Shared: of each entry in `held`, in order, two bytes: the hash of its key."""
        self.full: set[int] = set()
        """Key_Shared: consumers without permits, by session, at members that are not the owner."""
        self.counts: dict[int, int] = {}
        """By ordinal: earlier deliveries, as far as they were noted. Acknowledged entries may be left."""
        self.token = b""
        """Token of the last change that had one. The same change again returns `answer` and does nothing."""
        self.answer = (0, 0)
        """Outcome of that change: the reset number, and the position of the subscription."""
        self.fenced = b""
        """The token of a reset that was fenced: it must not happen any more."""
        self.consumers: dict[int, Consumer] = {}
        """By session, in the order in which they joined."""
        self.attached: dict[Member, int] = {}
        """Number of consumers by member."""
        self.unready: set[Member] = set()  # the set of its topic: members that lack ledgers
        self.used = 0
        """Uptime of its last use without a consumer: creation, reset, taken entries, end of a consumer."""

    def attach(self, consumer: Consumer) -> None:
        """Add a consumer."""
        self.consumers[consumer.session] = consumer
        self.attached[consumer.member] = self.attached.get(consumer.member, 0) + 1

    def detach(self, session: int) -> Consumer:
        """Remove and return a consumer."""
        gone = self.consumers.pop(session)
        self.attached[gone.member] -= 1
        if not self.attached[gone.member]:
            del self.attached[gone.member]
        self.full.discard(session)
        return gone

    @property
    def type(self) -> SubscriptionType | None:
        """The type of its consumers; None while no consumer is attached."""
        return next((each.type for each in self.consumers.values()), None)

    @property
    def takes_turns(self) -> bool:
        """Whether members with consumers take turns; else the active consumer's member dispatches."""
        return self.type in ("shared", "key_shared")

    def keep_held(self, member: Member, ranges: list[tuple[int, int]], hashes: bytes = b"") -> None:
        """Note what consumers of a member hold; nothing: forget it."""
        if ranges:
            self.held[member] = ranges
        else:
            self.held.pop(member, None)
        if ranges and hashes:
            self.hashes[member] = hashes
        else:
            self.hashes.pop(member, None)


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
        self.properties: dict[str, dict[str, str]] = {}
        """By namespace that has some."""

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
        self.history: list[ViewMark] = []
        """The last views, oldest first. Stores are compared by it, never by bare positions."""
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
        self.announced = Announced()
        self.decided = Decided()
        self.unreplicated = Unreplicated()
        self.exchanges = Exchanges()
        self.partitioned = Partitioned()
        self.topic_counts: Counter[str] | None = None
        """Derived: topics by namespace, counted when it is asked first."""
        self.uptime = Uptime()
        self.permissions = Permissions()
        self.thinned: dict[int, Thinned] = {}
        """Entries that ring topics and last-value topics have dropped, by topic."""
        self.compactions: dict[int, Compaction] = {}
        """Of topics that are compacted, by topic."""
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

    def effective(self, topic: TopicState) -> Policies:
        """Return the policies of a topic over those of its namespace."""
        own, above, merged = topic.policies, self.inherited(topic), topic.merged
        if merged is None or merged[0] is not own or merged[1] is not above:
            merged = topic.merged = (own, above, own.over(above))
        return merged[2]

    def count_topics(self, namespace: str) -> int:
        """Return the number of topics of a namespace, without exchanges."""
        if self.topic_counts is None:
            plain = (each.namespace for key, each in self.topics.items() if key not in self.exchanges)
            self.topic_counts = Counter(plain)
        return self.topic_counts[namespace]

    def require_plain(self, topic: TopicState, what: str) -> None:
        """Raise Misuse if the topic is that of an exchange."""
        if topic.id in self.exchanges:
            raise Misuse(f"{topic.name} is an exchange and {what}; use a topic that is bound to it")

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
        thinned = self.thinned.get(topic.id)
        if thinned is not None and thinned.superseded.acked_to < topic.ledgers.first:
            thinned.superseded.advance(topic.ledgers.first)
            self.touch(thinned)
        return [info.id for info in gone]

    def dropped(self, topic: int) -> int:
        """Return how many entries a ring or last-value topic has dropped from backlogs."""
        thinned = self.thinned.get(topic)
        return 0 if thinned is None else thinned.dropped

    def wake(self, topic: TopicState) -> None:
        """Note that a topic is used."""
        if topic.quiet is not None:
            topic.quiet = None
            self.touch(topic)

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
        for compaction in self.compactions.values():
            yield from compaction.files()

    def check(self) -> None:
        """Assert every invariant. A failure names the invariant and the object."""
        for one, two in pairwise(self.history):
            assert (one.view, one.d) < (two.view, two.d), f"I230: view {two.view} after view {one.view}"
        for name, id in self.names.items():  # noqa: A001
            assert self.topics[id].name == name, f"I44: {name} leads to {self.topics[id].name}"
        assert len(self.names) == len(self.topics), "I44: a topic that its name does not lead to"
        for topic in self.topics.values():
            self.refresh(topic)
            self._check_topic(topic)
        for subscription in self.subscriptions.values():
            check_subscription(self, subscription)
        for stage in self.stages.values():
            check_stage(self, stage)
        for compaction in self.compactions.values():
            check_compaction(self, compaction)
        plain = (each for each in self.topics.values() if not each.ledgers.end and not each.subscriptions)
        self.exchanges.check(self.topics, self.subscriptions, (each.id for each in plain))
        for id, thinned in self.thinned.items():  # noqa: A001
            assert id in self.topics, f"I44: topic {id} is gone, and what it dropped is known"
            thinned.superseded.check(self.topics[id].ledgers.first, self.topics[id].ledgers.end)
        for name in self.namespaces.policies:
            assert name.partition("/")[0] in self.namespaces.tenants, f"I44: {name} has no tenant"
        named = [*self.namespaces.properties, *self.permissions.of_namespaces()]
        lost = sorted({*named} - self.namespaces.policies.keys())
        assert not lost, f"I304: {lost} have properties or permissions, and do not exist"
        check_partitions(self)
        for node, info in self.announced.info.items():
            assert info.node == node, f"I44: node {node} leads to the facts of member {info.member}"
        twice = sorted(self.names.keys() & self.unreplicated.places.keys())
        assert not twice, f"I245: {twice} are replicated and unreplicated"
        held = [
            *(each for topic in self.topics.values() for each in topic.producers),
            *(session for topic in self.topics.values() for session in topic.waiting),
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
        assert topic.unready <= set(self.members), f"I250: {where} waits for members that are gone"
        exclusive = [each for each in topic.producers.values() if each.access != "shared"]
        assert not exclusive or len(topic.producers) == 1, f"I45: {where} has an exclusive producer and more"
        assert topic.producers or not topic.waiting, f"I45: producers of {where} wait, and none is attached"
        attached = {each.name: each for each in (*topic.producers.values(), *topic.waiting.values())}
        quiet, now = topic.quiet, self.uptime.now(self.log.time)
        sound = quiet is None or (0 <= quiet.end <= topic.ledgers.end and 0 <= quiet.since <= now + GAP_NS)
        assert sound, f"I303: {where} is quiet since {quiet}, at {now}"
        assert topic.named == attached, f"I44: names of {where} do not lead to its producers"
        for name, subscription in topic.subscriptions.items():
            found = self.subscriptions.get(subscription.id)
            assert found is subscription, f"I44: {where} has a subscription that is not known"
            assert subscription.name == name, f"I44: {name} leads to {subscription.name}"
