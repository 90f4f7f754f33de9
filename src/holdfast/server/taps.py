"""Taps: samples of services in shared memory, stored in topics.

Promises upward: each sample that a tap takes is stored once, in order. Its message has its sequence number
and the number of samples that were missed before it. No provider waits for a tap. Its memory is bounded.
Needs from below: subscriptions that keep the newest samples, and a log that stores nothing twice under the
name of a producer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast._core import encode_messages
from holdfast.broker import MESSAGE_BYTES, RUN_BYTES, Broker, Sample, Topic, label
from holdfast.errors import Busy, Fenced, HoldfastError, Misuse, NotFound, Timeout
from holdfast.local.place import origin
from holdfast.memory.service import Element, Proxy, Service, Subscription
from holdfast.names import INGEST, topic_name
from holdfast.server.config import Tap
from holdfast.server.logs import Log

if TYPE_CHECKING:
    from holdfast._core import ServiceSample

log = Log("holdfast.server.taps")

LOOK_S = 0.2
"""Interval of looks for a service that is not offered, and of attempts after a fault."""
RELEASE_S = 10.0
"""How long a tap stays connected to a service without a provider. Meanwhile the numbers of its samples go on,
and no provider with other elements can offer it."""
UNSTORED_MAX = 256
"""Samples that a tap has copied and not stored. At this number it takes no further ones."""
UNSTORED_BYTES_MAX = 16 << 20
LAST_S = 5.0
"""Time for a stopping tap to store the samples that it has copied."""
APPLICATION = "holdfast serve"


@dataclass(frozen=True)
class Taken:
    """A copy of a sample, with the properties of its message."""

    data: bytes
    properties: dict[str, str]
    taken_ms: int


@dataclass
class Unstored:
    """Copies of samples that wait for the disk: bounded, and in order."""

    taken: deque[Taken] = field(default_factory=deque)
    size: int = 0
    filled: asyncio.Event = field(default_factory=asyncio.Event)
    room: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._tell()

    def add(self, taken: Taken) -> None:
        self.taken.append(taken)
        self.size += len(taken.data)
        self._tell()

    def first(self) -> list[Taken]:
        """Return the oldest ones, at most about `RUN_BYTES`; they stay here until `remove`."""
        run: list[Taken] = []
        size = 0
        for each in self.taken:
            size += len(each.data)
            if run and size > RUN_BYTES:
                break
            run.append(each)
        return run

    def remove(self, count: int) -> None:
        for _ in range(count):
            self.size -= len(self.taken.popleft().data)
        self._tell()

    def _tell(self) -> None:
        has_room = len(self.taken) < UNSTORED_MAX and self.size < UNSTORED_BYTES_MAX
        for event, holds in ((self.filled, bool(self.taken)), (self.room, has_room)):
            if holds:
                event.set()
            else:
                event.clear()


class Taps:
    """All taps of a server: `start` after the broker, `stop` before it is closed."""

    def __init__(self, broker: Broker, taps: Sequence[Tap], message_bytes_max: int = MESSAGE_BYTES) -> None:
        self._broker = broker
        self._taps = [RunningTap(broker, each, min(MESSAGE_BYTES, message_bytes_max)) for each in taps]

    def start(self) -> None:
        """Begin to look for the services; they need not be offered yet."""
        for each in self._taps:
            self._broker.add_meter(each.counts, each.labels)
            each.start()

    async def stop(self) -> None:
        """Disconnect, and store what was taken."""
        await asyncio.gather(*(each.stop() for each in self._taps))
        for each in self._taps:
            self._broker.remove_meter(each.counts)


class RunningTap:
    """One tap: a task takes samples and copies them, another one stores the copies."""

    def __init__(self, broker: Broker, tap: Tap, message_bytes_max: int) -> None:
        self._tap = tap
        self._message_bytes_max = message_bytes_max
        self._topic = topic_name(tap.topic)
        name = f"{INGEST}{origin(broker.membership.node)}.tap.{tap.source}"
        self._store = Store(broker, self._topic, name, self)
        self._unstored = Unstored()
        self._tasks: list[asyncio.Task[None]] = []
        self._was_absent = False
        """There was no segment since the last connection: every sample of the next one is new."""
        self._last: tuple[int, int, bytes] | None = None
        """Epoch, sequence number and data of the last sample; not of one whose segment is gone."""
        self._dropped = 0
        """Samples that were taken and not stored since the last stored one."""
        self._said: set[tuple[str, type]] = set()
        """Errors that were logged, and have not been overcome."""
        self.connected = False
        self.messages = self.bytes = self.missed = self.errors = 0
        self.labels = f"{label('tap', tap.source)},{label('topic', self._topic)}"

    def counts(self) -> Iterator[Sample]:
        """Yield the figures for the page of metrics."""
        yield "holdfast_tap_connected", int(self.connected)
        yield "holdfast_tap_messages_total", self.messages
        yield "holdfast_tap_bytes_total", self.bytes
        yield "holdfast_tap_missed_total", self.missed
        yield "holdfast_tap_errors_total", self.errors

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._take_always(), name=f"tap {self._tap.source}"),
            loop.create_task(self._store_always(), name=f"tap {self._tap.source}, storing"),
        ]

    async def stop(self) -> None:
        """Take no further samples; store the copies in at most `LAST_S`."""
        if not self._tasks:
            return
        taking, storing = self._tasks
        taking.cancel()
        await asyncio.wait([taking])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                while self._unstored.taken and not storing.done():
                    await asyncio.sleep(0.005)
        storing.cancel()
        await asyncio.wait([storing])
        if self._unstored.taken:
            log.warning("a tap stops with unstored samples", **self._about, samples=len(self._unstored.taken))
        await self._store.close()
        self._tasks = []

    @property
    def _about(self) -> dict[str, str]:
        return {"tap": self._tap.source, "topic": self._topic}

    def failed(self, doing: str, error: Exception) -> None:
        """Count an error; log the first of its kind since the last success."""
        self.errors += 1
        if (doing, type(error)) not in self._said:
            self._said.add((doing, type(error)))
            log.warning(f"a tap cannot {doing}", **self._about, why=error)

    def succeeded(self, doing: str) -> None:
        """Log that an error is over."""
        if any(said == doing for said, _ in self._said):
            self._said = {each for each in self._said if each[0] != doing}
            log.info(f"a tap can {doing} again", **self._about)

    # -- taking ----------------------------------------------------------------------------------------

    async def _take_always(self) -> None:
        while True:
            try:
                proxy = await self._find()
                if proxy is not None:
                    with proxy:
                        await self._take_from(proxy)
            except HoldfastError as error:
                self.failed("read its service", error)
            finally:
                self.connected = False
            await asyncio.sleep(LOOK_S)

    async def _find(self) -> Proxy | None:
        """Connect to the service, if it is offered."""
        instance = self._tap.service.partition(".")[2]
        try:
            kind = Service.of(self._tap.service)
        except NotFound:
            self._was_absent, self._last = True, None
            return None
        try:
            return await kind.afind(instance, 0, application=APPLICATION)
        except NotFound:
            return None

    async def _take_from(self, proxy: Proxy) -> None:
        """Take samples until the service has had no provider for `RELEASE_S`."""
        element = self._element(proxy)
        with self._subscribe(proxy, element) as subscription:
            self._was_absent = False
            self.connected = True
            self.succeeded("read its service")
            log.info("a tap is connected", **self._about, provider=proxy.provider_pid, epoch=proxy.epoch)
            loop = asyncio.get_running_loop()
            offered_at = loop.time()
            while True:
                try:
                    sample = await subscription.atake(LOOK_S)
                except Timeout:
                    self.connected = proxy.offered
                    if self.connected:
                        offered_at = loop.time()
                    elif loop.time() - offered_at >= RELEASE_S:
                        log.info("a tap leaves a service without a provider", **self._about)
                        return
                    continue
                self.connected, offered_at = True, loop.time()
                with sample:
                    self._keep(sample, proxy.epoch, element)
                await self._unstored.room.wait()
                await asyncio.sleep(0)  # a fast provider leaves the loop to others

    def _element(self, proxy: Proxy) -> Element:
        found = proxy.elements.get(self._tap.event)
        if found is None or not found.samples:
            known = ", ".join(name for name, each in proxy.elements.items() if each.samples) or "none"
            raise Misuse(
                f"service {proxy.name} has no event or field {self._tap.event!r}; those that it has: {known}"
            )
        return found

    def _subscribe(self, proxy: Proxy, element: Element) -> Subscription:
        """Subscribe; samples from before are wanted if this tap cannot have stored them.

        A field's newest value is always wanted.
        """
        history = self._tap.max_samples if self._was_absent else int(element.is_field)
        found: Subscription = getattr(proxy, self._tap.event).subscribe(
            self._tap.max_samples, history=history
        )
        return found

    def _keep(self, sample: ServiceSample, epoch: int, element: Element) -> None:
        """Copy a sample, to be stored."""
        self.missed += sample.missed
        self._dropped += sample.missed
        data = bytes(sample.data)
        if (epoch, sample.sequence, data) == self._last:
            return  # the value of a field, after a new connection
        self._last = (epoch, sample.sequence, data)
        if len(data) > self._message_bytes_max:
            self.missed += 1
            self._dropped += 1
            self.failed(
                "store a sample",
                Misuse(
                    f"sample {sample.sequence} has {len(data)} bytes; the largest message has "
                    f"{self._message_bytes_max} (limits.message_bytes, at most {MESSAGE_BYTES})"
                ),
            )
            return
        properties = {
            "holdfast.source": self._tap.source,
            "holdfast.sequence": str(sample.sequence),
            "holdfast.missed": str(self._dropped),
            "holdfast.epoch": str(epoch),
        }
        if element.sample.layout is not None:
            properties["holdfast.dtype"] = element.sample.layout.dtype_text
            properties["holdfast.shape"] = element.sample.layout.shape_text
        self._dropped = 0
        self._unstored.add(Taken(data, properties, time.time_ns() // 1_000_000))

    # -- storing ---------------------------------------------------------------------------------------

    async def _store_always(self) -> None:
        while True:
            await self._unstored.filled.wait()
            run = self._unstored.first()
            await self._store.put(run)
            self._unstored.remove(len(run))
            self.messages += len(run)
            self.bytes += sum(len(each.data) for each in run)


class Store:
    """A tap's producer: it stores each run of samples once, however often that fails."""

    def __init__(self, broker: Broker, topic: str, name: str, tap: RunningTap) -> None:
        self._broker = broker
        self._topic_name = topic
        self._name = name
        """Names with this prefix are always deduplicated: a run that is sent again is stored once."""
        self._tap = tap
        self._topic: Topic | None = None
        self._session = self._epoch = self._sequence = 0

    async def put(self, run: Sequence[Taken]) -> None:
        """Publish a run and wait until it is durable; try again after a fault."""
        entries: list[tuple[int, int, bytes]] = []
        while True:
            try:
                topic = await self._open()
                entries = entries or self._encoded(run)
                await self._broker.admit(sum(len(entry) for _, _, entry in entries))
                await asyncio.shield(
                    self._broker.publish_entries(topic, self._session, self._epoch, self._name, entries)
                )
            except HoldfastError as error:
                if isinstance(error, Fenced | Busy | NotFound):
                    self._session = 0
                self._tap.failed("store samples", error)
                await asyncio.sleep(LOOK_S)
            else:
                self._tap.succeeded("store samples")
                return

    async def _open(self) -> Topic:
        """Return the topic; open the session if it is not open."""
        if self._session == 0 or self._topic is None:
            self._topic = await self._broker.ensure_topic(self._topic_name)
            opened = await self._broker.sessions.open_producer(self._topic, self._name)
            self._session, self._epoch = opened.session, opened.epoch
            self._sequence = max(self._sequence, opened.last_sequence + 1)
        return self._topic

    def _encoded(self, run: Sequence[Taken]) -> list[tuple[int, int, bytes]]:
        entries: list[tuple[int, int, bytes]] = []
        now_ms = self._broker.clock.now_ns() // 1_000_000
        for each in run:
            [entry] = encode_messages(
                [each.data],
                self._name,
                self._sequence,
                now_ms,
                properties=each.properties,
                event_time_ms=each.taken_ms,
            )
            entries.append((self._sequence, 1, entry))
            self._sequence += 1
        return entries

    async def close(self) -> None:
        """End the session."""
        if self._session:
            session, self._session = self._session, 0
            with contextlib.suppress(HoldfastError):  # it has ended already
                await self._broker.sessions.close_producer(session)
