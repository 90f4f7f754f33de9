"""Update a member that serves already: fetch its sealed ledgers, topic by topic.

```
 recovered: snapshot, journal, ledgers that grow ─► UpdateBegin(topics that lack ledgers) is stable ─► serve
        │
        └─► for each topic, the smallest first: newest ledger ─► … ─► oldest ─► TopicsReady(topic)
                │ a donor dies, or does not have it: the next donor. All ledgers that came stay.
                │ A ledger is trimmed meanwhile, or its topic deleted: it is not needed.
                └ Nothing is missing: `incomplete` is removed. The member counts for stability.
```

Sealed ledgers never change, so any member can give them. A member that lacks some

- owns no subscription of their topic (**I250**): `UpdateBegin` comes before its first consumer, and
  `TopicsReady` after the topic's last ledger is whole and durable here;
- does not count for stability, is not elected, and is not a donor (**I251**);
- reads no ledger that was not compared with a donor's, by size and checksum (**I252**).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.broker import Broker
from holdfast.broker.events import TopicsReady, UpdateBegin
from holdfast.broker.state import TopicState
from holdfast.cluster.peers import Channel, Link
from holdfast.cluster.relay import Relay
from holdfast.cluster.transfer import Bring, Progress, get
from holdfast.errors import Busy, Closed, HoldfastError, PeerDied, Unsupported
from holdfast.group import Member, View
from holdfast.ledger import Extent, LedgerInfo
from holdfast.ledger.copies import Install, Item

LOG = logging.getLogger("holdfast.cluster")

AGAIN_S = (0.05, 1.0)
"""Pause after an attempt that left ledgers missing: the shortest and the longest."""


class Update:
    """Fetches the ledgers that a member lacks, while it serves."""

    def __init__(
        self,
        broker: Broker,
        install: Install,
        link: Link,
        relay: Relay,
        progress: Progress,
        on_complete: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._install = install
        self._link = link
        self._relay = relay
        self._progress = progress
        self._on_complete = on_complete
        self._channel: Channel | None = None
        self._donor: Member | None = None
        """The member at the other end of the channel."""
        self._faults: Counter[Member] = Counter()
        """Connections of each donor that failed: the others are asked first."""
        self._getting: asyncio.Task[None] | None = None
        self._sizes = self._missing_bytes()
        """By topic that lacks ledgers: how many bytes."""
        self._rest = set(broker.store.missing)
        """Ledgers that were missing at the start, and were not fetched."""
        self._ready: set[int] = set()
        """Topics of which the others do not know yet that they are ready."""
        self._begun = False
        self._telling: asyncio.Future[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self.reason = ""
        """Why the last attempt failed; empty: it did not."""
        self.done = False
        """Nothing is missing, durably."""

    @property
    def _member(self) -> Member:
        return self._broker.group.member

    @property
    def topics(self) -> int:
        """Number of topics that lack ledgers."""
        return len(self._sizes)

    def start(self) -> None:
        """Fetch in the background, until `stop`."""
        self._relay.watch_views = self._viewed
        self._task = asyncio.get_running_loop().create_task(self._run(), name="update")

    async def stop(self) -> None:
        """Stop fetching. Ledgers that came stay, and are not sent again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- what the others must know ---------------------------------------------------------------------

    async def begin(self) -> None:
        """Tell all members which topics are not ready here; then this member may serve.

        If a member does not know such an event, this returns when nothing is missing.

        Raises:
            HoldfastError: this member is lost.
        """
        if self._sizes:
            try:
                await self._broker.engine.submit(UpdateBegin(self._member, sorted(self._sizes)))
            except Unsupported as error:
                LOG.info("this member serves when it has all ledgers: %s", error)
                while not self.done:
                    if self._relay.lost is not None:
                        raise Closed(f"this member is out of its group: {self._relay.lost}") from None
                    await self._relay.change()
        self._begun = True
        self._tell()

    def _tell(self) -> None:
        """Tell the others which topics are ready; again after a failure."""
        if not (self._begun and self._ready) or self._telling is not None:
            return
        told = sorted(self._ready)
        try:
            self._telling = self._broker.engine.submit(TopicsReady(self._member, told))
        except HoldfastError:
            return  # the broker ends
        self._telling.add_done_callback(lambda done: self._told(told, done))

    def _told(self, topics: list[int], done: asyncio.Future[Any]) -> None:
        self._telling = None
        if not done.cancelled() and done.exception() is None:
            self._ready.difference_update(topics)
            self._tell()
        elif self._broker.engine.ended is None:
            asyncio.get_running_loop().call_later(AGAIN_S[1], self._tell)

    # -- fetching --------------------------------------------------------------------------------------

    async def _run(self) -> None:
        pause_s = AGAIN_S[0]
        try:
            while self._broker.engine.ended is None:
                try:
                    if await self._fetch_all():
                        await self._complete()
                        return
                except (HoldfastError, OSError) as error:
                    self._failed("fetching ledgers", error)
                await self._broker.clock.sleep(pause_s * (0.5 + self._broker.random.fraction()))
                pause_s = min(2 * pause_s, AGAIN_S[1])
        except Exception as error:  # a defect: the member joins again
            LOG.exception("the update of this member failed")
            self._broker.engine.end(Closed(f"the update of this member failed: {error!r}; report it"))
        finally:
            await self._disconnect()

    async def _fetch_all(self) -> bool:
        """Fetch what is missing; return whether nothing is."""
        topics, whole = self._broker.machine.state.topics, True
        for key in sorted(self._sizes, key=lambda key: (self._sizes[key], key)):
            topic = topics.get(key)
            if topic is None or await self._fetch_topic(topic):
                del self._sizes[key]
                self._ready.add(key)
                self._tell()
            else:
                whole = False
        return whole

    async def _fetch_topic(self, topic: TopicState) -> bool:
        """Fetch what a topic lacks, the newest ledger first; return whether it lacks nothing."""
        missing, whole = self._broker.store.missing, True
        for info in reversed(list(topic.ledgers)):
            if info.file in missing and self._is_needed(topic, info):
                found = await self._fetch(topic, info)
                whole = whole and (found or not self._is_needed(topic, info))
        return whole

    def _is_needed(self, topic: TopicState, info: LedgerInfo) -> bool:
        alive = self._broker.machine.state.topics.get(topic.id) is topic
        return alive and topic.ledgers.find(info.id) is not None

    async def _fetch(self, topic: TopicState, info: LedgerInfo) -> bool:
        """Fetch a ledger from any donor; return whether it is here."""
        what = f"ledger {info.id} of {topic.name}"
        if self._channel is not None:
            try:
                await self._get(self._channel, topic, info)
                return True
            except Busy as error:  # it does not have this one: maybe another member has
                self._failed(what, error)
            except (HoldfastError, OSError, msgspec.MsgspecError) as error:
                assert self._donor is not None
                self._faults[self._donor] += 1
                self._failed(what, error)
                await self._disconnect()
        first = self._progress.donor
        for donor in sorted(
            self._relay.donors, key=lambda each: (self._faults[each], each.node != first, each)
        ):
            if donor == self._member or not self._is_needed(topic, info):
                continue
            try:
                await self._disconnect()
                self._donor, self._progress.donor = donor, donor.node
                self._channel = await self._link.connect(donor.node)
                await self._get(self._channel, topic, info)
                return True
            except (HoldfastError, OSError, msgspec.MsgspecError) as error:
                self._faults[donor] += not isinstance(error, Busy)
                self._failed(f"{what} from node {donor.node}", error)
        await self._disconnect()
        return False

    def _viewed(self, view: View) -> None:
        """Give up a donor that has left: its connection may say nothing for long."""
        if self._getting is not None and self._donor not in view.members:
            self._getting.cancel()

    async def _get(self, channel: Channel, topic: TopicState, info: LedgerInfo) -> None:
        """Get a ledger from the donor.

        Raises:
            PeerDied: the donor has left the cluster meanwhile.
        """
        loop = asyncio.get_running_loop()
        getting = self._getting = loop.create_task(self._get_files(channel, topic, info), name="ledger")
        try:
            await asyncio.wait({getting})
        except asyncio.CancelledError:
            getting.cancel()
            await asyncio.gather(getting, return_exceptions=True)
            raise
        finally:
            self._getting = None
        if getting.cancelled():
            raise PeerDied(f"member {self._donor} has left the cluster; the next one is asked")
        getting.result()

    async def _get_files(self, channel: Channel, topic: TopicState, info: LedgerInfo) -> None:
        file = await self._broker.store.file_of(info.file)
        size, index = info.size, Extent(info.size, info.entries).index_size
        bring = Bring(topic.id, info.id, info.size, info.entries)
        await get(channel, self._install, Item(file.data_path, size), self._progress, bring)
        bring = msgspec.structs.replace(bring, index=True)
        await get(channel, self._install, Item(file.index_path, index), self._progress, bring)
        await self._install.keep_ledgers()
        self._rest.discard(info.file)
        self._broker.store.arrived(info.file)
        self.reason = ""

    def _failed(self, what: str, error: Exception) -> None:
        self.reason = f"{what}: {type(error).__name__}: {error}"

    async def _disconnect(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _complete(self) -> None:
        """Remove the mark `incomplete`: every ledger of the state is here."""
        store = self._broker.store
        await store.flush()  # also the events that removed the rest
        for ledger in sorted(self._rest):
            file = await store.file_of(ledger)
            for path in (file.data_path, file.index_path):
                await self._install.discard(path)
            self._rest.discard(ledger)
            store.arrived(ledger)
        await self._install.finish()
        self.done, self.reason = True, ""
        self._broker.engine.completed()
        self._on_complete()
        with contextlib.suppress(HoldfastError, OSError):
            await store.snapshot()  # one that lists no ledger that was removed meanwhile

    def _missing_bytes(self) -> dict[int, int]:
        missing, sizes = self._broker.store.missing, dict[int, int]()
        for key, topic in sorted(self._broker.machine.state.topics.items()):
            size = sum(info.size for info in topic.ledgers if info.file in missing)
            if size:
                sizes[key] = size
        return sizes
