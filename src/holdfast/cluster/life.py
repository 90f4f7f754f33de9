"""A node in its cluster: join, serve, be lost, join again as a new member.

```
 lock ─► the number of this life ─► what the directory holds ─► join the group, keep what comes
   ─► hellos of all members ─┬─ a member serves ───► copy its directory ─┐
                             └─ no member serves ──► elected, or wait ───┴─► store, engine, broker
   ─► all of it is stable ─► serve ─► lost ─► (again)
                               └─ ledgers that are missing are fetched meanwhile (`updating`)
```

Invariants: a directory that is being replaced is not elected (**I231**). Two members that serve have the same
events up to each stable position, whichever directory they started from (**I232**).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.engine import Engine
from holdfast.cluster.election import Outcome
from holdfast.cluster.fullness import Fullness, is_for_room, words_of
from holdfast.cluster.hello import Hello, hello_of
from holdfast.cluster.peers import Channel, Link
from holdfast.cluster.relay import Relay
from holdfast.cluster.transfer import Offer, Progress, donate, fetch, require_same_cluster, require_shared
from holdfast.cluster.updating import Update
from holdfast.errors import BadConfiguration, Closed, HoldfastError, Locked
from holdfast.group import Group, Member
from holdfast.ledger import LOCAL, LOCK, Files
from holdfast.ledger.copies import Install, is_survivor, next_life, survey, withdraw_survivor
from holdfast.system import Clock, Disk, Lock, Randomness, SystemClock, SystemDisk, SystemRandomness

LOG = logging.getLogger("holdfast.cluster")

CUTS_KEPT = 16
"""How many views of copies that did not end are remembered."""
CLOSE_S = 120.0
"""Time for a close, by default."""
FAILED_CLOSE_S = 10.0
"""Time to close a broker that did not get to serve; its events are recovered again."""
LOCAL_S = 60.0
"""A log of unreplicated topics that fails sooner after its start is not opened again in the next life."""
AGAIN_S = (0.05, 1.0)
"""Pause before a join, or a copy, that failed is tried again: the shortest and the longest."""

State: TypeAlias = Literal[
    "stopped",
    "closed",
    "waiting-for-quorum",
    "electing",
    "transferring",
    "recovering",
    "stabilising",
    "serving",
    "lost",
]
MakeGroup: TypeAlias = Callable[[int, int], Group]
"""Makes the group of a life, from its number and the highest view id that the directory has."""


@dataclass(frozen=True)
class MemberStatus:
    """The state of a node in its cluster."""

    state: State
    reason: str = ""
    member: Member | None = None
    members: tuple[Member, ...] = ()
    """Of the current view."""
    waits_for: tuple[int, ...] = ()
    """Nodes without which it cannot go on."""
    donor: int = 0
    """While transferring: the node whose directory is copied."""
    received: int = 0
    kept: int = 0
    """Bytes that did not have to be sent."""
    total: int = 0
    lacking: int = 0
    """While serving: topics of which ledgers are still fetched."""
    update: str = ""
    """While serving: why the last ledger could not be fetched."""


class _Joined:
    """A member between its group and its broker; see `holdfast.broker.broker.Joined`."""

    def __init__(self, relay: Relay, lock: Lock, missing: Set[int]) -> None:
        self._relay = relay
        self.lock = lock
        self.missing = missing

    def foreign(self) -> int:
        return self._relay.foreign()

    def attach(self, engine: Engine) -> None:
        self._relay.attach(engine)


class ClusterMember:
    """A node of a cluster, in all its lives.

    `join` returns a broker that serves; `lost` waits for its end.

    ```python
    member = ClusterMember(options, path, node=1, nodes=(1, 2, 3), make_group=make_group, link=link)
    while True:
        broker = await member.join()
        reason = await member.lost()      # then join again: it is another member
    ```
    """

    def __init__(
        self,
        options: BrokerOptions,
        path: Path | None = None,
        *,
        node: int,
        nodes: Sequence[int],
        make_group: MakeGroup,
        link: Link,
        disk: Disk | None = None,
        files: Files | None = None,
        local: tuple[Disk, Files] | None = None,
        clock: Clock | None = None,
        random: Randomness | None = None,
    ) -> None:
        if node not in nodes:
            raise BadConfiguration(
                f"node {node} is not among the nodes of its cluster, {list(nodes)}; add it"
            )
        self._options, self._path = options, path
        self._node, self._nodes = node, tuple(sorted(nodes))
        self._make_group, self._link = make_group, link
        self._disk, self._files, self._local_files = disk, files, local
        self._clock, self._random = clock or SystemClock(), random or SystemRandomness()
        self._relay: Relay | None = None
        self._broker: Broker | None = None
        self._local: Broker | None = None
        """The broker of the unreplicated topics."""
        self._local_failed = ""
        """Why it ended soon after its start, in the life before this one."""
        self._donor: Broker | None = None
        """The broker that others may copy from."""
        self._progress = Progress()
        self._faults: Counter[Member] = Counter()
        """Copies from each donor that failed."""
        self._install: Install | None = None
        self._missing: Set[int] = frozenset()
        """Ledgers that the copy left out."""
        self._update: Update | None = None
        self._fullness = Fullness(node, self._nodes, options)
        self._hello = Hello(node, fresh=True)
        """The directory, as the others must know it."""
        self._state: State = "stopped"
        self._reason = ""
        self._linked = False

    # -- for the owner ---------------------------------------------------------------------------------

    async def join(self) -> Broker:
        """Join the cluster, and return a broker that serves. It tries until it succeeds.

        Raises:
            BadConfiguration: the directory belongs to another cluster, or has what the others lack. Or the
                nodes have other lists, or the address is not of this machine.
            Locked: another process has the directory open.
        """
        self._donor = None
        await self._end()
        if not self._linked:
            await self._link.serve(self._serve)
            self._linked = True
        pause_s = AGAIN_S[0]
        while True:
            try:
                await self._fullness.wait(self._open_disk(), self._clock, lambda: self._state == "closed")
                return await self._live()
            except (BadConfiguration, Locked) as error:
                self._state, self._reason = "stopped", str(error)
                raise
            except (HoldfastError, OSError) as error:
                self._state, self._reason = "lost", words_of(error)
                self._fullness.found |= is_for_room(error)
            await self._clock.sleep(pause_s * (0.5 + self._random.fraction()))
            pause_s = min(2 * pause_s, AGAIN_S[1])

    async def lost(self) -> str:
        """Wait until the member is out of its group, and return the reason."""
        relay = self._relay
        while relay is not None and relay.lost is None and self._broker is not None:
            await relay.change()
        self._donor = None
        if self._state == "closed":
            return "it was closed"
        self._state, self._reason = "lost", (relay.lost if relay is not None else None) or "it was closed"
        return self._reason

    def status(self) -> MemberStatus:
        """Return the state of this node in its cluster."""
        relay, progress = self._relay, self._progress
        view = None if relay is None else relay.view
        joining = relay is not None and self._state in ("waiting-for-quorum", "electing")
        return MemberStatus(
            self._state,
            relay.decision.reason if relay is not None and joining else self._fullness.reason or self._reason,
            None if view is None or relay is None else relay.member,
            () if view is None else view.members,
            relay.decision.waits_for if relay is not None and joining else (),
            progress.donor,
            progress.received,
            progress.kept,
            progress.total,
            0 if self._update is None else self._update.topics,
            "" if self._update is None else self._update.reason,
        )

    async def close(self, within_s: float = CLOSE_S) -> None:
        """Leave the cluster: close the broker, and end all connections; see `Broker.close`."""
        self._donor, self._state = None, "closed"
        await self._end(within_s)
        if self._linked:
            await self._link.close()
            self._linked = False

    async def _end(self, within_s: float = CLOSE_S) -> None:
        """Stop the update, and close both brokers."""
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + within_s
        await self._fullness.stop()
        self._fullness.reason = ""
        if self._update is not None:
            await self._update.stop()
            self._update = None
        local, broker = self._local, self._broker
        self._local = self._broker = None
        if local is not None:
            await local.close(within_s / 2)
        if broker is not None:
            await broker.close(ends_s - loop.time())

    # -- one life --------------------------------------------------------------------------------------

    async def _live(self) -> Broker:
        self._state, self._reason, self._progress = "waiting-for-quorum", "", Progress()
        self._install, self._missing = None, frozenset()
        disk = self._open_disk()
        lock = await disk.lock(LOCK)
        group: Group | None = None
        try:
            life = await next_life(disk, self._clock.now_ns(), self._random)
            found = await survey(disk)
            hello = self._hello = hello_of(self._node, found, await is_survivor(disk))
            floor = hello.last_view.view if hello.last_view is not None else 0
            relay = self._relay = Relay(self._say, self._nodes)
            group = self._make_group(life, max(floor, found.position.view))
            relay.use(group)
            await group.start(relay)
            await self._get_state(disk, relay, hello)
            return await self._build(disk, lock, group, relay)
        except BaseException:
            self._donor = None
            if group is not None:
                with contextlib.suppress(HoldfastError, OSError, TimeoutError):
                    await group.leave()
            await lock.release()
            raise

    def _open_disk(self) -> Disk:
        if self._disk is not None:
            return self._disk
        assert self._path is not None
        Broker.require_directory(self._path)
        self._path.mkdir(parents=True, exist_ok=True)
        return SystemDisk(self._path)

    def _say(self) -> Hello:
        relay = self._relay
        if self._donor is not None or (relay is not None and relay.elected):
            return Hello(self._node, ready=True)
        return self._hello

    async def _get_state(self, disk: Disk, relay: Relay, hello: Hello) -> None:
        """Return when this directory has the state, by election or by a copy."""
        mine = hello.cluster if hello.complete and not hello.fresh else None
        pause_s = AGAIN_S[0]
        while not relay.elected:
            if relay.lost is not None:
                raise Closed(f"this member is out of its group: {relay.lost}")
            quorate = relay.view is not None and relay.view.quorate
            self._state = "electing" if quorate else "waiting-for-quorum"
            if relay.decision.outcome is Outcome.REFUSE:
                raise BadConfiguration(relay.decision.reason)
            if relay.donors:
                if await self._copy(disk, relay, relay.donors, mine):
                    return
                await self._clock.sleep(pause_s * (0.5 + self._random.fraction()))
                pause_s = min(2 * pause_s, AGAIN_S[1])  # a full disk stays full; donors have other work
            else:
                await relay.change()
        self._reason = relay.decision.reason
        if relay.decision.outcome is Outcome.FORCED:
            await withdraw_survivor(disk)

    async def _copy(self, disk: Disk, relay: Relay, donors: list[Member], mine: bytes | None) -> bool:
        """Copy the directory of a member; those whose copies failed are asked last."""
        self._state = "transferring"
        for donor in sorted(donors, key=lambda each: (self._faults[each], each)):
            if donor.node == self._node:
                continue
            self._progress = Progress(donor.node)
            relay.drops = True
            channel: Channel | None = None
            try:
                channel = await self._link.connect(donor.node)
                check = self._check(relay, mine)
                install = Install(disk)
                self._missing = await fetch(channel, donor, relay, install, self._progress, check)
                self._install = install
                self._reason = ""
                return True
            except BadConfiguration:
                raise
            except (HoldfastError, OSError, msgspec.MsgspecError) as error:
                if is_for_room(error):
                    raise  # another donor does not make room
                self._faults[donor] += 1
                self._reason = f"copy from node {donor.node}: {type(error).__name__}: {error}"
            finally:
                if channel is not None:
                    await channel.close()
            if relay.lost is not None:
                return False
        return False

    def _check(self, relay: Relay, mine: bytes | None) -> Callable[[Offer], bytes]:
        """Return the last check before the directory is replaced; then its hello says so."""
        mark, require = relay.cut_mark(), require_same_cluster(mine)

        def check(offer: Offer) -> bytes:
            require(offer.cluster)
            require_shared(self._hello, offer.views, len(self._nodes))
            cuts = [*self._hello.cuts, mark][-CUTS_KEPT:]
            self._hello = Hello(self._node, complete=False, cuts=cuts)
            return msgspec.msgpack.encode(cuts)

        return check

    async def _build(self, disk: Disk, lock: Lock, group: Group, relay: Relay) -> Broker:
        """Open a broker on the state, and wait until all of it is stable."""
        self._state = "recovering"
        broker = await Broker.start(
            self._path,
            self._options,
            disk=disk,
            files=self._files,
            clock=self._clock,
            random=self._random,
            group=group,
            joined=_Joined(relay, lock, self._missing),
        )
        try:
            self._fullness.watch(broker, relay, self._clock, self._random)
            self._state = "stabilising"
            if self._missing:
                assert self._install is not None
                install, progress = self._install, self._progress
                self._update = Update(
                    broker, install, self._link, relay, progress, lambda: self._whole(broker, relay)
                )
                self._update.start()
            else:
                self._whole(broker, relay)
            assert relay.cut is not None
            limit = max(broker.recovered.position, relay.cut.position)
            while relay.stable < limit:
                if relay.lost is not None:
                    raise Closed(f"this member is out of its group: {relay.lost}")
                await relay.change()
            if self._update is not None:
                await self._update.begin()
            broker.begin()
            self._local = await self._open_local()
            if self._local is not None:
                self._watch_local(broker, self._local)
                broker.unreplicated.use(self._local)
        except BaseException:
            self._donor = None
            if self._update is not None:
                await self._update.stop()
                self._update = None
            await self._fullness.stop()
            await broker.close(FAILED_CLOSE_S)
            raise
        self._broker = broker
        self._state = "serving"
        return broker

    def _whole(self, broker: Broker, relay: Relay) -> None:
        """Become a donor: this directory has all of it."""
        self._donor = broker
        relay.speak()

    async def _open_local(self) -> Broker | None:
        """Open the broker of the unreplicated topics, with a directory of its own.

        It creates no topics by itself: their names are decided in the cluster.
        """
        if self._path is None and self._local_files is None:
            return None
        disk, files = self._local_files or (None, None)
        failed, self._local_failed = self._local_failed, ""
        try:
            if failed:
                raise Closed(f"their log failed twice; start this node again: {failed}")
            return await Broker.start(
                None if self._path is None else self._path / LOCAL,
                replace(self._options, create_topics=False, require_namespaces=False),
                disk=disk,
                files=files,
                clock=self._clock,
                random=self._random,
            )
        except (HoldfastError, OSError) as error:  # the replicated topics can be served without it
            LOG.error("the unreplicated topics of this node are not served: %s", error)
            return None

    def _watch_local(self, broker: Broker, local: Broker) -> None:
        """Join again if the log of the unreplicated topics fails: it is opened again then."""
        began_ns = self._clock.monotonic_ns()

        def ended(reason: HoldfastError) -> None:
            if self._local is not local:
                return  # it is being closed
            if self._clock.monotonic_ns() - began_ns < LOCAL_S * 1e9:
                self._local_failed = str(reason)
            broker.engine.end(Closed(f"the log of its unreplicated topics has failed: {reason}"))

        local.engine.on_ended = ended

    async def _serve(self, node: int, channel: Channel) -> None:
        await donate(self._donor, channel)


__all__ = ["ClusterMember", "MakeGroup", "MemberStatus"]
