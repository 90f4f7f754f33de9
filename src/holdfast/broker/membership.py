"""The membership of a broker in a cluster: announcement, shared options, owners of topics, versions.

Promises upward: each topic has one owner among the present members, the same on every member with an equal
state. An event is sent in a version that all members of the view know. Needs from below: the view in the
state, and the facts that each member has announced.

A broker alone owns everything, and its own options decide. It announces nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from holdfast.broker.events import Event, MemberAnnounce, OptionsChange, OptionsSet, kinds
from holdfast.broker.member_state import MemberInfo, Setting
from holdfast.broker.options import COUNT_MOST, BrokerOptions, shown
from holdfast.errors import HoldfastError, Misuse, NotFound, Unannounced, Unsupported
from holdfast.group import GroupStats, Member

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.state import BrokerState, SubscriptionState
    from holdfast.broker.telemetry.metrics import Sample
    from holdfast.broker.topic import Topic

LOG = logging.getLogger("holdfast.cluster")

DECIDING = (
    *("create_topics", "create_partitions", "require_namespaces", "deduplication", "deduplication_age_s"),
    *("roll_bytes", "roll_entries", "roll_age_s", "retention_bytes", "retention_s"),
    *("producers_max", "consumers_max", "subscription_consumers_max", "topics_max"),
    *("backlog_bytes", "backlog_age_s", "backlog_action", "unacked_max", "subscription_unacked_max"),
    *("publish_rate_messages", "publish_rate_bytes", "dispatch_rate_messages", "dispatch_rate_bytes"),
    *("subscription_rate_messages", "subscription_rate_bytes", "subscribe_rate", "subscribe_rate_period_s"),
    *("stage_age_s", "sink_age_s", "create_subscriptions", "subscription_expiry_s"),
    *("inactive_topic_s", "inactive_topic_caught_up"),
    *("compaction_threshold", "compaction_keep_keyless", "compaction_grace_s"),
    *("ttl_s", "delayed_most_s", "schema_strategy", "schema_auto_update", "schema_enforced"),
    "subscription_types",
)
"""Options of a broker that decide about data. The others concern one member: its disk and its deliveries."""

LIMITS = (
    *("topics", "subscriptions", "subscriptions_per_topic", "schemas_per_topic", "schema_bytes"),
    *("properties_bytes", "namespaces", "stages", "sinks", "metadata_bytes"),
)
"""Settings `limits.*` that refuse durable state: see `holdfast.broker.quota`."""


# -- from the state alone -------------------------------------------------------------------------------


def owner_of(subscription: SubscriptionState) -> Member | None:
    """Return the member that owns a subscription; None: no member does."""
    return subscription.owner


def present(state: BrokerState) -> tuple[Member, ...]:
    """Return the members of the view that can serve clients, in ascending order.

    These are the members that have announced themselves: one that is still being updated has not. If no
    member has, all members of the view count.

    Example:
        >>> from holdfast.broker.machine import Machine
        >>> present(Machine().state)
        ()
    """
    known = state.announced.info
    announced = [each for each in state.members if each.node in known and known[each.node].member == each]
    return tuple(sorted(announced or state.members))


def owner_of_topic(state: BrokerState, name: str) -> Member | None:
    """Return the member that owns a topic (full name); None: no member is present.

    It is the member that owns most of the topic's subscriptions. Where several own as many, or none owns any,
    a hash of node and name decides. So a change of members moves only topics of those that came or went.
    Members that lack ledgers of the topic are left out.
    """
    members = present(state)
    topic = state.topics.get(state.names.get(name, 0))
    if topic is not None and topic.unready:
        members = tuple(each for each in members if each not in topic.unready) or members
    owners = Counter(map(owner_of, topic.subscriptions.values())) if topic is not None else Counter[Any]()
    most = max((owners[each] for each in members), default=0)
    tied = [each for each in members if owners[each] == most]
    return max(tied, key=lambda each: _weight(each.node, name), default=None)


def _weight(node: int, name: str) -> bytes:
    return blake2b(f"{node}:{name}".encode(), digest_size=8).digest()


def agreed_version(state: BrokerState, kind: type[Event]) -> int:
    """Return the newest version of a kind that all members know; 0: not all do.

    A member that has not announced itself is one of the first cluster's programs, until it tells more.
    """
    return min((_known_version(state, each, kind) for each in state.members), default=kind.version)


def _known_version(state: BrokerState, member: Member, kind: type[Event]) -> int:
    info = state.announced.info.get(member.node)
    if info is None or info.member != member:
        return kind.base
    return min(kind.version, info.versions.get(kind.kind, 0))


def require_version(state: BrokerState, kind: type[Event]) -> int:
    """Return the agreed version of a kind.

    Raises:
        Unannounced: a member that joins has not told whether it knows the kind.
        Unsupported: a member does not know the kind; the text names it and its program.
    """
    version = agreed_version(state, kind)
    if not version:
        member = next(each for each in state.members if not _known_version(state, each, kind))
        info = state.announced.info.get(member.node)
        if info is None or info.member != member:
            raise Unannounced(
                f"member {member} has not announced itself, and may not know {kind.__name__}; retry later"
            )
        raise Unsupported(
            f"member {member} ({info.name}) runs holdfast {info.program}, which does not know "
            f"{kind.__name__}; update it"
        )
    return version


# -- of one broker --------------------------------------------------------------------------------------


class Membership:
    """The part that a broker has in its cluster. `broker.membership` is one.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         print(broker.membership.alone, broker.membership.node, broker.membership.leads)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        True 0 True
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.alone = broker.group.alone
        """Whether the broker is outside of any cluster."""
        self._facts: MemberInfo | None = None
        self._under_way: set[type[Event]] = set()
        self._versions: tuple[object, object, dict[type[Event], int]] = (None, None, {})
        """Agreed versions, and the members and facts from which they were derived."""
        self._shared: tuple[object, BrokerOptions] = (None, broker.options)
        self._said: dict[str, tuple[Setting, Setting]] = {}
        """Differences of the configuration that were logged."""
        if not self.alone:
            broker.engine.version_of = self.version_of

    @property
    def _state(self) -> BrokerState:
        return self._broker.machine.state

    @property
    def node(self) -> int:
        """The node of this member; 0: it is alone."""
        return 0 if self.alone else self._broker.group.member.node

    @property
    def leads(self) -> bool:
        """Whether this member does what one member does for all: the lowest present one."""
        return self.alone or self._broker.group.member in present(self._state)[:1]

    @property
    def leader(self) -> MemberInfo | None:
        """Facts about the lowest present member; None: it has not announced any."""
        first = present(self._state)[:1]
        return self.info_of(first[0]) if first else None

    def info_of(self, member: Member) -> MemberInfo | None:
        """Return what a member has announced in this life of it; None: nothing."""
        info = self._state.announced.info.get(member.node)
        return info if info is not None and info.member == member else None

    def members(self) -> list[MemberInfo]:
        """Return facts about the present members, in ascending order; a broker alone has none."""
        found = (self.info_of(each) for each in present(self._state))
        return [each for each in found if each is not None]

    @property
    def view(self) -> tuple[Member, ...]:
        """All members of the last quorate view, also those that cannot serve clients yet."""
        return self._state.members

    def group_stats(self) -> GroupStats:
        """Return the positions of this member in its group."""
        return self._broker.group.stats()

    def absent(self) -> list[MemberInfo]:
        """Return what absent nodes announced before they left."""
        here = {each.node for each in self._state.members}
        return [info for node, info in sorted(self._state.announced.info.items()) if node not in here]

    def evict(self, node: int) -> None:
        """Let the cluster continue without a node, which may come back as a new member.

        Raises:
            NotFound: no such node is in the view.
            Misuse: the rest would be no majority.
        """
        found = next((each for each in self._state.members if each.node == node), None)
        if found is None:
            raise NotFound(f"node {node} is not in the view; see `holdfast cluster members`")
        self._broker.group.evict(found)

    # -- owners ----------------------------------------------------------------------------------------

    def owns(self, topic: Topic) -> bool:
        """Return whether this member does a topic's housekeeping."""
        return self.alone or owner_of_topic(self._state, topic.name) == self._broker.group.member

    def owner(self, full: str) -> Member | None:
        """Return the owner of a topic, which need not exist; None: this broker is alone."""
        return None if self.alone else owner_of_topic(self._state, full)

    def serves(self, full: str) -> bool:
        """Return whether this member owns a topic, which need not exist."""
        return self.alone or owner_of_topic(self._state, full) == self._broker.group.member

    def owner_words(self, full: str) -> str:
        """Name the owner of a topic for people."""
        owner = self.owner(full)
        return "this broker" if owner is None else f"node {owner.node}"

    def elsewhere(self, full: str) -> MemberInfo | None:
        """Return facts about the owner of a topic, if it is another known member."""
        owner = self.owner(full)
        return None if owner is None or owner == self._broker.group.member else self.info_of(owner)

    @property
    def missing_ledgers(self) -> int:
        """Number of ledgers that this member still fetches from others."""
        return len(self._broker.store.missing)

    def lacking_topics(self, member: Member) -> int:
        """Return the number of topics of which a member lacks ledgers."""
        return sum(member in topic.unready for topic in self._state.topics.values())

    @property
    def owned_subscriptions(self) -> int:
        """Number of subscriptions that this member owns."""
        me = self._broker.group.member
        return sum(owner_of(each) == me for each in self._state.subscriptions.values())

    # -- announcing ------------------------------------------------------------------------------------

    def announce(self, name: str, **facts: Any) -> None:
        """Announce this member with its facts, the fields of `MemberInfo`; again after each failure.

        A server calls this when it can serve clients. A broker alone keeps silent.
        """
        from holdfast import __version__

        versions = {number: kind.version for number, kind in kinds().items()}
        given = {"program": __version__, "versions": versions} | facts
        self._facts = MemberInfo(self._broker.group.member, name, **given)
        self.tend()

    def repeat(self) -> None:
        """Announce the same facts again: an event that changes nothing."""
        if self._facts is not None and not self.alone:
            self._submit(MemberAnnounce(self._facts))

    def tend(self) -> None:
        """Submit what the state lacks: facts about this member, and values of shared options.

        Called after each view, and by housekeeping.
        """
        state = self._state
        if self.alone:
            if self._broker.quota is not None:  # a server, not a program that visits a directory
                self._tell_differences()
            return
        if self._broker.group.member not in state.members:
            return
        if self._facts is not None and state.announced.info.get(self.node) != self._facts:
            self._submit(MemberAnnounce(self._facts))
        missing = {name: value for name, value in self._own().items() if name not in state.decided.values}
        if missing and self.leads:
            self._submit(OptionsSet(missing, first=True))
        self._tell_differences()

    def _submit(self, event: Event) -> None:
        """Submit an event unless one of its kind is under way. `tend` retries."""
        kind = type(event)
        if kind in self._under_way:
            return

        def done(future: asyncio.Future[Any]) -> None:
            self._under_way.discard(kind)
            if not future.cancelled() and future.exception() is None:
                self.tend()  # there may be more; after a failure housekeeping tries again

        try:
            future = self._broker.engine.submit(event)
        except HoldfastError:
            return
        self._under_way.add(kind)
        future.add_done_callback(done)

    # -- options ---------------------------------------------------------------------------------------

    @property
    def options(self) -> BrokerOptions:
        """The options that apply: the cluster's where they decide about data, else own ones."""
        values, own = self._shared_values(), self._broker.options
        if not values:
            return own
        if self._shared[0] is not values:
            given: dict[str, Any] = {name: values[name] for name in DECIDING if name in values}
            self._shared = (values, replace(own, **given))
        return self._shared[1]

    def limit(self, setting: str, own: int) -> int:
        """Return a limit of durable state: the one that applies, else this broker's own."""
        return int(self._shared_values().get(f"limits.{setting}", own))

    def _shared_values(self) -> dict[str, Setting]:
        """Return the options that apply instead of the configuration."""
        return self._state.decided.changed if self.alone else self._state.decided.values

    def shared(self) -> dict[str, Setting]:
        """Return the options that apply instead of the configuration, by name.

        In a cluster these are all that its members share, alone those that were changed at run time.
        """
        return dict(sorted(self._shared_values().items()))

    def differing(self) -> dict[str, tuple[Setting, Setting]]:
        """Return options whose value is not that of this configuration: (the one that applies, own)."""
        shared = self.shared()
        return {
            name: (shared[name], value)
            for name, value in self._own().items()
            if name in shared and shared[name] != value
        }

    async def set_options(self, values: Mapping[str, Setting]) -> None:
        """Change options of this broker, or of all members of its cluster; they outlive restarts.

        Raises:
            Misuse: a name or a value is not possible.
        """
        require_options(values, self._broker.options)
        changed = OptionsChange(dict(values), []) if self.alone else OptionsSet(dict(values))
        await self._broker.engine.submit(changed)

    async def restore_options(self, names: Sequence[str]) -> None:
        """Let the values of this broker's configuration apply again, in a cluster for all members.

        Raises:
            Misuse: a name is not possible.
        """
        own = self._own()
        for name in names:
            if name not in own:
                require_options({name: 0}, self._broker.options)  # raises for an unknown name
                raise Misuse(f"{name} has no value in this broker's configuration")
        if self.alone:
            await self._broker.engine.submit(OptionsChange({}, list(names)))
        else:
            await self._broker.engine.submit(OptionsSet({name: own[name] for name in names}))

    def changeable(self) -> dict[str, Setting]:
        """Return the options that can be changed at run time, with the values that apply."""
        return dict(sorted({**self._own(), **self._shared_values()}.items()))

    def _own(self) -> dict[str, Setting]:
        """Return the values of this broker's configuration."""
        own: dict[str, Setting] = {name: getattr(self._broker.options, name) for name in DECIDING}
        if self._broker.quota is not None:
            own |= {f"limits.{name}": value for name, value in self._broker.quota.configured().items()}
        return own

    def _tell_differences(self) -> None:
        now = self.differing()
        for name, (shared, own) in now.items():
            if self._said.get(name) != (shared, own):
                LOG.warning(
                    "the configuration has %s = %s, and %s %s, which applies; to end the difference, write "
                    "that into the configuration, or set the option back (`holdfast %s`)",
                    *(name, shown(own)),
                    "it was changed at run time to" if self.alone else "the cluster",
                    *(
                        shown(shared),
                        f"broker options --restore {name}"
                        if self.alone
                        else f"cluster options {name}={shown(own)}",
                    ),
                )
        self._said = now

    # -- versions --------------------------------------------------------------------------------------

    def version_of(self, event: Event) -> int:
        """Return the version in which an event is sent.

        Raises:
            Unsupported: a member does not know the kind; the text names it and its program.
        """
        state, kind = self._state, type(event)
        if self._versions[0] is not state.members or self._versions[1] is not state.announced.info:
            self._versions = (state.members, state.announced.info, {})
        known = self._versions[2]
        if kind not in known:
            known[kind] = require_version(state, kind)
        return known[kind]

    # -- figures ---------------------------------------------------------------------------------------

    def samples(self) -> Iterator[Sample]:
        """Yield the figures for the page of metrics; a broker alone has none."""
        if self.alone:
            return
        stats = self._broker.group.stats()
        yield "holdfast_cluster_members", len(present(self._state))
        yield "holdfast_cluster_quorate", int(stats.view is not None and stats.view.quorate)
        yield "holdfast_cluster_view", 0 if stats.view is None else stats.view.id
        yield "holdfast_cluster_owned_subscriptions", self.owned_subscriptions
        yield "holdfast_cluster_stable_lag_events", self.stable_lag
        yield "holdfast_cluster_lacking_topics", self.lacking_topics(self._broker.group.member)

    @property
    def stable_lag(self) -> int:
        """Events of this view that were delivered here, and that no majority holds."""
        stats = self._broker.group.stats()
        same = stats.delivered.view == stats.stable.view
        return stats.delivered.index - (stats.stable.index if same else 0)


def require_options(values: Mapping[str, Setting], own: BrokerOptions) -> None:
    """Refuse names that are not shared options, and values that are not possible.

    Raises:
        Misuse: the text names the option and what is possible.

    Example:
        >>> require_options({"roll_entries": 1000}, BrokerOptions())
    """
    known = (*DECIDING, *(f"limits.{name}" for name in LIMITS))
    for name, value in values.items():
        if name not in known:
            raise Misuse(f"{name!r} is not an option of the cluster; there are: {', '.join(known)}")
        if name.startswith("limits."):
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= COUNT_MOST:
                raise Misuse(f"{name} is {shown(value)}; use a whole number from 0 to {COUNT_MOST}")
        else:
            changed: dict[str, Any] = {name: value}
            replace(own, **changed).require_sound()
