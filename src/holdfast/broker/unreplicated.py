"""Unreplicated topics and exchanges: one member alone has them, in a log of their own.

A member has two brokers: the replicated one, and a local one with its own directory, log and ids. All members
know the names of unreplicated topics, from the replicated state. So a name leads to one topic of the cluster.

```
 create:  the name is given to the node (UnreplicatedSet) ─► the topic is created in the local log
 delete:  the topic is deleted in the local log ─► the name is freed
 join:    names without a topic here are freed; topics here without a name get theirs
```

Invariants: no name is of a replicated and of an unreplicated topic, or of two nodes (**I245**). Events of an
unreplicated topic stay in the log of its node (**I246**).
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holdfast.broker.events import ExchangeGone, Notice, TopicGone, UnreplicatedSet
from holdfast.broker.member_state import MemberInfo, Place
from holdfast.errors import Closed, HoldfastError, Misuse, NotFound
from holdfast.names import topic_name

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.state import Policies

LOG = logging.getLogger("holdfast.cluster")

ALONE = (
    "this broker is not a member of a cluster: none of its topics is replicated; leave out `unreplicated`, "
    "or ask a member"
)


class UnreplicatedTopics:
    """The unreplicated topics of a member and of the others. `broker.unreplicated` is one.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         print(broker.unreplicated.places(), broker.unreplicated.is_local)
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        {} False
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.local: Broker | None = None
        """The broker of this member's unreplicated topics; None: it has none."""
        self._member: Broker | None = None
        """Of a local broker: the replicated broker of its member."""
        self._under_way: set[asyncio.Future[Any]] = set()

    # -- the two brokers of a member -------------------------------------------------------------------

    def use(self, local: Broker) -> None:
        """Keep unreplicated topics in another broker, and make names and topics agree.

        A name without a topic is freed: the topic was deleted, or lost with its disk. A topic without a name
        is registered again.
        """
        self.local = local
        local.unreplicated._member = self._broker
        local.watch(self._settled)
        here = self._here(local)
        node = self._broker.membership.node
        for name, place in list(self.places().items()):
            if place.node == node and here.get(name) != place:
                LOG.warning("the unreplicated %s is not here any more; its name is free", name)
                self._submit(UnreplicatedSet(name, node, gone=True))
        for name, place in here.items():
            if self.places().get(name) != place:
                self._submit(UnreplicatedSet(name, node, place.exchange))

    def _here(self, local: Broker) -> dict[str, Place]:
        node = self._broker.membership.node
        topics = {each.name: Place(node) for each in local.topics.values()}
        return topics | {each.name: Place(node, True) for each in local.exchanges.values()}

    @property
    def is_local(self) -> bool:
        """Whether the topics of this broker are unreplicated topics of a member."""
        return self._member is not None

    # -- names -----------------------------------------------------------------------------------------

    def places(self) -> Mapping[str, Place]:
        """Return the nodes of all unreplicated topics and exchanges of the cluster, by full name."""
        return self._broker.machine.state.unreplicated.places

    def served(self, namespace: str, exchanges: bool = False) -> list[str]:
        """Return the names of a namespace whose nodes are present, sorted."""
        nodes = {each.node for each in self._broker.membership.members()}
        begin = f"persistent://{namespace}/"
        return sorted(
            name
            for name, place in self.places().items()
            if place.node in nodes and place.exchange == exchanges and name.startswith(begin)
        )

    def member_of(self, full: str) -> MemberInfo | None:
        """Return facts about the member that has an unreplicated name; None: it is absent."""
        place = self.places().get(full)
        found = self._broker.membership.members()
        return next((each for each in found if place is not None and each.node == place.node), None)

    def broker_of(self, full: str) -> Broker | None:
        """Return the broker of this process that has a name; None: another node has it.

        Names that do not exist belong to the replicated broker.
        """
        place = self.places().get(full)
        if place is None:
            return self._broker
        return self.local if place.node == self._broker.membership.node else None

    def where(self, full: str) -> str:
        """Say in words where an unreplicated name is, and whether its node is present."""
        place = self.places()[full]
        absent = "" if self.member_of(full) is not None else ", which is absent"
        return f"{full} is unreplicated: node {place.node} alone has it{absent}"

    def require_other(self, full: str) -> None:
        """Refuse an unreplicated name where a topic or exchange of this broker is needed.

        Raises:
            Misuse: the name is not one of this broker; the text says where it is.
        """
        if full in self.places():
            raise Misuse(f"{self.where(full)}; look it up, and connect there")

    def require_own(self, full: str) -> None:
        """Refuse a name that an unreplicated topic or exchange cannot reach.

        Raises:
            Misuse: this broker has the unreplicated topics of a node, and the name is of another log.
        """
        member = self._member
        if member is not None and not self._broker.has_topic(full) and member.has_topic(full):
            raise Misuse(
                f"{full} is not unreplicated on node {member.membership.node}, and messages do not leave "
                "their log; name a topic or an exchange that is"
            )

    def require_bindable(self, exchange: str, topic: str) -> None:
        """Refuse to bind a topic of another log to an exchange (both full names).

        Raises:
            Misuse: one is replicated and the other is not, or they are on different nodes.
        """
        place = self.places().get(topic)
        if place is not None:
            raise Misuse(
                f"{exchange} is replicated, and {topic} is unreplicated, on node {place.node}; "
                "bind replicated topics to it, or use an unreplicated exchange of that node"
            )
        member = self._member
        if member is not None and not self._broker.has_topic(topic) and member.has_topic(topic):
            raise Misuse(
                f"{exchange} is unreplicated, on node {member.membership.node}, and {topic} is not an "
                "unreplicated topic of that node; bind topics that are, or use a replicated exchange"
            )

    # -- creating and deleting -------------------------------------------------------------------------

    async def create_topic(self, name: str, policies: Policies) -> None:
        """Create an unreplicated topic of this member.

        Raises:
            Misuse: this broker is alone.
            Exists: a topic or exchange of the cluster has the name.
        """
        full = topic_name(name)
        local = await self._register(full, exchange=False)
        try:
            await local.create_topic(full, policies)
        except HoldfastError:  # not after a cancellation: then it may come to be
            self._submit(UnreplicatedSet(full, self._broker.membership.node, gone=True))
            raise

    async def create_exchange(self, name: str, kind: str, **more: Any) -> None:
        """Create an unreplicated exchange of this member. See `Admin.create_exchange`."""
        full = topic_name(name)
        local = await self._register(full, exchange=True)
        try:
            await local.admin.create_exchange(full, kind, unreplicated=True, **more)
        except HoldfastError:  # not after a cancellation: then it may come to be
            self._submit(UnreplicatedSet(full, self._broker.membership.node, gone=True))
            raise

    async def _register(self, full: str, exchange: bool) -> Broker:
        if self._broker.membership.alone:
            raise Misuse(ALONE)
        if self.local is None:
            raise Closed(f"this member cannot hold the unreplicated {full}: its local log is not open; retry")
        node, managed = self._broker.membership.node, self._broker.decided.require_namespaces
        outcome = await self._broker.engine.submit(
            UnreplicatedSet(full, node, exchange=exchange, managed=managed)
        )
        if not outcome.changed:
            self._broker.machine.state.unreplicated.require_free(full)
        return self.local

    async def free(self, full: str) -> None:
        """Free the name of an absent node's topic.

        A node that returns with the topic takes the name again, if it is free.

        Raises:
            NotFound: no unreplicated topic or exchange has the name.
            Misuse: the node is present: delete the topic there. Or it is joining: it compares its topics with
                their names once, so a name that is freed behind that would be lost.
        """
        place = self.places().get(full)
        if place is None:
            raise NotFound(f"no unreplicated topic or exchange is named {full}; nothing was freed")
        if self.member_of(full) is not None:
            raise Misuse(f"{self.where(full)}; delete it there")
        if any(each.node == place.node for each in self._broker.membership.view):
            what = f"{full} is unreplicated, and node {place.node}"
            raise Misuse(f"{what} is about to serve it; delete it there")
        await self._broker.engine.submit(UnreplicatedSet(full, place.node, gone=True))

    async def settle(self) -> None:
        """Wait until names of deleted topics are free."""
        if self._under_way:
            await asyncio.wait(set(self._under_way))

    def _settled(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, TopicGone | ExchangeGone):
                node = self._broker.membership.node
                self._submit(UnreplicatedSet(notice.topic.name, node, gone=True))

    def _submit(self, event: UnreplicatedSet) -> None:
        """Submit a change of names without a wait; the next join repeats a failed one."""
        try:
            future = self._broker.engine.submit(event)
        except HoldfastError:
            return
        self._under_way.add(future)
        future.add_done_callback(functools.partial(self._done, event))

    def _done(self, event: UnreplicatedSet, future: asyncio.Future[Any]) -> None:
        self._under_way.discard(future)
        error = None if future.cancelled() else future.exception()
        if error is not None and not event.gone:
            LOG.warning(
                "the unreplicated %s is not served, its messages stay in `local` of the directory: %s, or "
                "delete the other one and start this node again",
                event.name,
                error,
            )
