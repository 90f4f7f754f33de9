"""The cluster as a server shows it: status, members, queues, and leaving.

Promises upward (the HTTP interface): one small object, whichever program runs the membership. Needs from
below: the facts in the broker's state, and calls that let a member leave or evict another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from holdfast.broker import Broker, MemberInfo, Setting, Topic, owner_of
from holdfast.formatting import plural
from holdfast.group import Member

TOPICS_A_TURN = 100
"""Topics that are looked at before other tasks get the loop."""


class _Camel(msgspec.Struct, rename="camel", kw_only=True):
    """Field names as Java writes them."""


class Difference(_Camel, kw_only=True):
    """An option whose value in the cluster is not that of this member's configuration."""

    cluster: Setting
    here: Setting


class ClusterStatus(_Camel, kw_only=True):
    """The cluster as one member sees it."""

    cluster: str
    node: int
    member: str
    """Node and number of its life, `2.7`."""
    view: int
    quorate: bool
    """The member sees a majority. Without one nothing is confirmed."""
    members: int
    """Members that can serve clients."""
    leader: int
    """The node that does what one member does for all; 0: none."""
    delivered: str
    """The position of the last event that was delivered here."""
    held: str
    """The position up to which this member has stored everything."""
    stable: str
    """The position up to which a majority holds everything."""
    stable_lag_events: int
    owned_subscriptions: int
    options: dict[str, Setting]
    """Options that all members share."""
    differing: dict[str, Difference]
    """Shared options that this member's configuration has otherwise. The cluster's value applies."""
    note: str = ""
    """Work of the member besides serving, in words; empty: none."""


class MemberStatus(_Camel, kw_only=True):
    """A node of the cluster."""

    node: int
    member: str
    name: str
    present: bool
    """It is in the view. An absent node has the facts of its last life."""
    here: bool
    """It is the member that answers."""
    leader: bool
    program: str
    """The version of holdfast."""
    url: str
    tls_url: str
    http_url: str
    https_url: str
    transfer: str
    """The address at which other members fetch state."""
    state: str = "serving"
    """`serving`, `updating` (serves, lacks ledgers), `joining` (no facts yet) or `absent`."""
    lacking_topics: int = 0
    """Topics of which it lacks ledgers: it owns none of their subscriptions."""


class QueueSubscription(_Camel, kw_only=True):
    """A subscription, and the member that dispatches it."""

    name: str
    owner: str | None
    """The owning member; null: no member."""
    epoch: int
    """Rises with each change of the owner."""
    consumers: dict[str, int]
    """Attached consumers by member."""
    backlog: int


class Queue(_Camel, kw_only=True):
    """A topic, its owner and its subscriptions."""

    topic: str
    owner: str | None
    """The member that clients are led to, and that does the topic's housekeeping."""
    unreplicated: bool
    subscriptions: list[QueueSubscription]
    node: int = 0
    """The node of an unreplicated topic, also while it is absent; 0: the topic is replicated."""
    updating: list[str] = []
    """Members that lack ledgers of it."""
    missing_bytes: int = 0
    """Bytes of its ledgers that the answering member lacks."""


class ClusterView(Protocol):
    """The membership of a served broker, as the HTTP interface uses it."""

    def status(self) -> ClusterStatus:
        """Return the cluster as this member sees it."""

    def members(self) -> list[MemberStatus]:
        """Return all known nodes, present or not, in ascending order."""

    async def leave(self) -> None:
        """Begin to leave the cluster in order. The server stops after it has answered."""

    async def evict(self, node: int) -> None:
        """Continue without a node, which may come back as a new member.

        Raises:
            NotFound: no such node is present.
        """


class BrokerCluster:
    """A `ClusterView` of a broker. The program passes how to leave and to evict.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         view = BrokerCluster(broker, broker.close, lambda node: broker.close())
        ...         print(view.status().view, [each.member for each in view.members()])
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        1 ['1.1']
    """

    def __init__(
        self,
        broker: Broker,
        leave: Callable[[], Awaitable[None]],
        evict: Callable[[int], Awaitable[None]],
        note: Callable[[], str] = lambda: "",
    ) -> None:
        self._broker = broker
        self._leave = leave
        self._evict = evict
        self._note = note

    def status(self) -> ClusterStatus:
        broker, membership = self._broker, self._broker.membership
        stats = membership.group_stats()
        leader = membership.leader
        return ClusterStatus(
            cluster=broker.options.cluster,
            node=stats.member.node,
            member=str(stats.member),
            view=0 if stats.view is None else stats.view.id,
            quorate=stats.view is not None and stats.view.quorate,
            members=len(membership.members()),
            leader=0 if leader is None else leader.node,
            delivered=str(stats.delivered),
            held=str(stats.held),
            stable=str(stats.stable),
            stable_lag_events=membership.stable_lag,
            owned_subscriptions=membership.owned_subscriptions,
            options=membership.shared(),
            differing={
                name: Difference(cluster=shared, here=own)
                for name, (shared, own) in membership.differing().items()
            },
            note="; ".join(filter(None, (updating_words(broker), self._note()))),
        )

    def members(self) -> list[MemberStatus]:
        membership = self._broker.membership
        me, leader = membership.group_stats().member, membership.leader
        found = [
            self._member(each, membership.info_of(each), me, leader is not None and leader.member == each)
            for each in membership.view
        ]
        gone = [self._member(each.member, each, me, False, absent=True) for each in membership.absent()]
        return sorted([*found, *gone], key=lambda each: each.node)

    def _member(
        self, member: Member, info: MemberInfo | None, me: Member, leader: bool, absent: bool = False
    ) -> MemberStatus:
        lacking = 0 if absent else self._broker.membership.lacking_topics(member)
        state = "absent" if absent else "joining" if info is None else "updating" if lacking else "serving"
        info = info or MemberInfo(member, "")
        return MemberStatus(
            node=member.node,
            member=str(member),
            name=info.name,
            present=not absent,
            here=member == me,
            leader=leader,
            program=info.program,
            url=info.url,
            tls_url=info.tls_url,
            http_url=info.http_url,
            https_url=info.https_url,
            transfer=info.transfer,
            state=state,
            lacking_topics=lacking,
        )

    async def leave(self) -> None:
        await self._leave()

    async def evict(self, node: int) -> None:
        await self._evict(node)


def updating_words(broker: Broker) -> str:
    """Say what a member still fetches; empty: nothing."""
    ledgers = broker.membership.missing_ledgers
    if not ledgers:
        return ""
    lacking = [topic.missing_bytes for topic in broker.topics.values() if not topic.is_whole]
    return (
        f"fetches {plural(ledgers, 'ledger')} of {plural(len(lacking), 'topic')}, {sum(lacking):,} bytes; "
        "until then it owns other topics alone, and does not count for the majority"
    )


async def queues(broker: Broker) -> list[Queue]:
    """Return all topics with their owners, sorted by name.

    Of unreplicated topics of other members only the names are known here.
    """
    found, unreplicated = [], broker.unreplicated
    mine = [] if unreplicated.local is None else list(unreplicated.local.topics.values())
    mine = [each for each in mine if each.name in unreplicated.places()]  # else its name was freed
    for count, topic in enumerate((*broker.topics.values(), *mine), 1):
        of = broker if count <= len(broker.topics) else unreplicated.local
        if of is not None and not of.is_deleted(topic):
            found.append(_queue(broker, of, topic))
        if count % TOPICS_A_TURN == 0:
            await asyncio.sleep(0)
    known = {each.topic for each in found}
    for name, place in list(unreplicated.places().items()):
        if name not in known and not place.exchange:
            member = unreplicated.member_of(name)
            owner = None if member is None else str(member.member)
            found.append(Queue(topic=name, owner=owner, unreplicated=True, subscriptions=[], node=place.node))
    return sorted(found, key=lambda each: each.topic)


def _queue(broker: Broker, of: Broker, topic: Topic) -> Queue:
    """Describe a topic of a broker `of` this member."""
    here = broker.membership.group_stats().member
    owner = broker.membership.owner(topic.name) if of is broker else here
    return Queue(
        topic=topic.name,
        owner=None if owner is None else str(owner),
        unreplicated=of is not broker,
        node=0 if of is broker else here.node,
        subscriptions=[
            QueueSubscription(
                name=name,
                owner=_text(owner_of(each)),
                epoch=each.owner_epoch,
                consumers=dict(sorted(Counter(str(one.member) for one in each.consumers.values()).items())),
                backlog=topic.backlog(each),
            )
            for name, each in sorted(topic.subscriptions.items())
        ],
        updating=[str(each) for each in topic.updating],
        missing_bytes=topic.missing_bytes,
    )


def _text(member: Member | None) -> str | None:
    return None if member is None else str(member)
