"""Carry out the compactions of a broker's topics, one after the other.

```
 CompactionRequest ─► Begin ─► pass 1: note keys ─► rewind ─► pass 2: append survivors ─► Done
  (user, threshold)     │            └─ again while the keys do not fit ─┘                  │
                        └── an error: Drop, the views stay                  after a time: Settle
```

A topic's owner does it. The request is durable: after a restart, or a change of the owner, the next owner
begins anew. Only `CompactionDone` makes a view visible, so a death at any step leaves the view before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from pyroaring import BitMap64

from holdfast._core import Compactor
from holdfast.broker.compaction.source import CompactionSource, pieces, repacked
from holdfast.broker.events import (
    CompactionAppend,
    CompactionBegin,
    CompactionDone,
    CompactionDrop,
    CompactionRequest,
    CompactionSettle,
    Event,
    stage_digest,
)
from holdfast.broker.telemetry.traffic import CompactionTraffic
from holdfast.errors import Closed, HoldfastError, NoQuorum, NotFound, Outdated, Unannounced
from holdfast.formatting import plural

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.compaction.state import Compaction
    from holdfast.broker.topic import Topic

LOG = logging.getLogger("holdfast.broker")

APPEND_BYTES = 512 << 10
APPEND_ENTRIES = 1000
RETRY_S = 600.0
"""Time after a failure before the threshold asks again."""


class Compactions:
    """The compactions of a broker. `broker.compactions` is one.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         async with broker.producer("prices") as p:
        ...             for price in (b"3", b"4"):
        ...                 await p.send(price, key="rope")
        ...         await broker.admin.compact("prices", wait=True)
        ...         async with broker.reader("prices", compacted=True) as r:
        ...             print([(await r.read()).data, await r.has_more()])
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        [b'4', False]
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turn = asyncio.Semaphore(1)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._stopped = False
        self.finishing: set[int] = set()
        """Topics whose new view this member has submitted and not counted yet."""
        self.counts: dict[int, tuple[int, int]] = {}
        """By topic: how many compactions succeeded and failed, since the start."""
        self.removed: dict[int, int] = {}
        """By topic: messages that compactions left out, since the start."""
        self.traffic: dict[int, CompactionTraffic] = {}
        """By topic: bytes and latencies, since the start."""

    # -- when ------------------------------------------------------------------------------------------

    def running(self, topic: Topic) -> bool:
        """Return whether this member is compacting a topic, or about to."""
        return topic.id in self._tasks

    def look_at(self, topic: Topic) -> None:
        """Start a compaction that is due for a topic, or forget its former view."""
        if self._stopped or not self._broker.membership.owns(topic):
            return
        compaction = topic.state.compaction
        if compaction is None or not compaction.requested:
            self._look_at_size(topic, compaction)
        elif topic.id not in self._tasks and topic.is_whole:
            task = asyncio.get_running_loop().create_task(
                self._run(topic), name=f"compaction of {topic.name}"
            )
            self._tasks[topic.id] = task
            task.add_done_callback(lambda done: self._ended(topic, done))
        if compaction is not None and compaction.view is not None and not compaction.is_settled:
            age_ns = self._broker.log_time_now() - compaction.view.time
            if age_ns >= self._broker.decided.compaction_grace_s * 1e9:
                self._submit(CompactionSettle(topic.id, compaction.view.number))

    def threshold(self, topic: Topic) -> int:
        """Return the bytes behind its view at which a topic is compacted; 0: never."""
        return self._broker.limiting.of(topic).compaction_threshold or 0

    def _look_at_size(self, topic: Topic, compaction: Compaction | None) -> None:
        threshold = self.threshold(topic)
        if not threshold or topic.visible <= topic.first:
            return
        failed = 0 if compaction is None or not compaction.error else compaction.error_time
        if failed and self._broker.log_time_now() - failed < RETRY_S * 1e9:
            return
        view = None if compaction is None else compaction.view
        if topic.size_behind(max(topic.first, 0 if view is None else view.horizon)) >= threshold:
            self._submit(CompactionRequest(topic.id, automatic=True))

    def changed(self, topic: Topic) -> None:
        """Follow a change of a topic's compaction."""
        self._broker.show(topic)
        self.look_at(topic)
        compaction = topic.state.compaction
        if compaction is None or not compaction.requested:
            for future in self._waiting.pop(topic.id, ()):
                if not future.done():
                    future.set_result(None)

    def gone(self, topic: int) -> None:
        """Forget a topic that was deleted."""
        self.counts.pop(topic, None)
        self.removed.pop(topic, None)
        self.traffic.pop(topic, None)
        if (task := self._tasks.get(topic)) is not None:
            task.cancel()
        for future in self._waiting.pop(topic, ()):
            if not future.done():
                future.set_exception(NotFound("the topic was deleted while it was compacted"))

    async def ended(self, topic: Topic) -> None:
        """Wait until no compaction of a topic is requested, at any member.

        Raises:
            NotFound: the topic was deleted meanwhile.
            Closed: the broker was closed meanwhile.
        """
        while (compaction := topic.state.compaction) is not None and compaction.requested:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(topic.id, []).append(future)
            await future
        if (task := self._tasks.get(topic.id)) is not None:  # it counts, and logs
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Cancel all tasks. The next run removes their entries."""
        self._stopped = True
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for futures in self._waiting.values():
            for future in futures:
                if not future.done():
                    future.set_exception(Closed("the broker was closed during a compaction"))
        self._waiting.clear()

    def _submit(self, event: Event) -> None:
        """Submit an event with a condition. Housekeeping retries; a second one does nothing."""
        try:
            future = self._broker.engine.submit(event)
        except HoldfastError:
            return
        future.add_done_callback(lambda done: done.cancelled() or done.exception())

    def _ended(self, topic: Topic, done: asyncio.Task[None]) -> None:
        self._tasks.pop(topic.id, None)
        self.finishing.discard(topic.id)
        error = None if done.cancelled() else done.exception()
        if error is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"the compaction of {topic.name} failed; it is tried again", "exception": error}
            )

    # -- one compaction --------------------------------------------------------------------------------

    async def _run(self, topic: Topic) -> None:
        token = self._broker.random.token(16)
        began_ns = self._broker.clock.monotonic_ns()
        async with self._turn:
            try:
                done = await self._compact(topic, token, began_ns)
            except (Closed, NoQuorum):
                return  # the next owner begins anew
            except Unannounced:
                return  # a member joins; housekeeping tries again
            except Outdated as error:
                LOG.info("the compaction of %s begins again: %s", topic.name, error)
                return  # housekeeping does it
            except (HoldfastError, OSError, MemoryError) as error:
                if self._broker.is_deleted(topic):
                    return
                await self._fail(topic, token, str(error) or type(error).__name__)
                return
        self._count(topic, done=True)
        self.removed[topic.id] = self.removed.get(topic.id, 0) + done.read - done.kept
        LOG.info(
            "compacted %s: %s of %s stay, in %d ms",
            topic.name,
            done.kept,
            plural(done.read, "message"),
            done.duration_ms,
        )

    def _count(self, topic: Topic, *, done: bool) -> None:
        succeeded, failed = self.counts.get(topic.id, (0, 0))
        self.counts[topic.id] = (succeeded + done, failed + (not done))

    async def _fail(self, topic: Topic, token: bytes, error: str) -> None:
        LOG.warning("the compaction of %s failed, and its former view stays: %s", topic.name, error)
        self._count(topic, done=False)
        with contextlib.suppress(HoldfastError):  # another run has replaced it, or this member is lost
            await self._broker.engine.submit(CompactionDrop(topic.id, token, error))

    def _require_owned(self, topic: Topic) -> None:
        """Raise Outdated if another member has become the topic's owner: it begins anew."""
        if not self._broker.membership.owns(topic):
            raise Outdated(f"another member owns {topic.name} now")

    async def _compact(self, topic: Topic, token: bytes, began_ns: int) -> CompactionDone:
        broker = self._broker
        self._require_owned(topic)  # it has waited for its turn
        horizon = topic.visible
        source = CompactionSource(topic, horizon, broker.clock)
        await broker.engine.submit(CompactionBegin(topic.id, token, horizon, source.base))
        compactor = Compactor(
            broker.options.compaction_memory_bytes,
            broker.decided.compaction_keep_keyless,
            broker.random.token(16),
        )
        warned, traffic = False, self.traffic.setdefault(topic.id, CompactionTraffic())
        while True:
            while (entries := await source.next()) is not None:
                traffic.bytes_read += entries.size
                for piece in pieces(entries):
                    compactor.note(piece.entries, piece.payloads)
                    if piece.fault and not warned:
                        warned = True
                        words = "a batch of %s cannot be compacted, and stays whole: %s"
                        LOG.warning(words, topic.name, piece.fault)
                    await asyncio.sleep(0)  # others have a turn
                self._require_owned(topic)
            source.rewind()
            if compactor.end_pass():
                break
        survivors, count, digest = await self._append(topic, token, source, compactor)
        compactor.finish()
        duration_ms = (broker.clock.monotonic_ns() - began_ns) // 1_000_000
        done = CompactionDone(
            topic.id, token, count, digest, survivors.serialize(), compactor.read, compactor.kept, duration_ms
        )
        await broker.admit(len(done.survivors))
        self.finishing.add(topic.id)
        await broker.engine.submit(done)
        return done

    async def _append(
        self, topic: Topic, token: bytes, source: CompactionSource, compactor: Compactor
    ) -> tuple[BitMap64, int, int]:
        """Append all surviving entries; return their ordinals, number and digest."""
        survivors, count, digest = BitMap64(), 0, 0
        batch: list[bytes] = []
        size = 0
        traffic, clock = self.traffic.setdefault(topic.id, CompactionTraffic()), self._broker.clock

        async def flush() -> None:
            nonlocal count, digest, size
            if batch:
                await self._broker.admit(size)
                event = CompactionAppend(topic.id, token, count, batch[:])
                began_ns = clock.monotonic_ns()
                await self._broker.engine.submit(event)
                traffic.wrote(len(batch), size, (clock.monotonic_ns() - began_ns) / 1e6)
                digest = stage_digest(batch, digest)
                count += len(batch)
                batch.clear()
                size = 0

        while (entries := await source.next()) is not None:
            traffic.bytes_read += entries.size
            for piece in pieces(entries):
                for ordinal, taken in compactor.take(piece.entries, piece.payloads):
                    entry = repacked(piece, ordinal, taken)
                    survivors.add(ordinal)
                    batch.append(entry)
                    size += len(entry)
                    if size >= APPEND_BYTES or len(batch) >= APPEND_ENTRIES:
                        await flush()
                await asyncio.sleep(0)
        await flush()
        return survivors, count, digest
