"""Traffic of topics: counters that only rise, and rates over the last half minute.

The core counts publishes (`_core.Log.counts`), dispatchers count deliveries, both per run and not per
message. A rate compares a counter with its value of a while ago.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from holdfast.errors import NotFound

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic

WINDOW_S = 30.0
"""A rate covers one to two windows: the time since the last tick but one."""

LATENCIES_MS = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
"""Upper bounds of the classes of write latencies, as in the names of the metrics."""

Counts: TypeAlias = tuple[int, ...]
Source: TypeAlias = Callable[[], Iterable[tuple[Hashable, Counts]]]


class TopicTraffic:
    """Counters of a topic beside those of the core."""

    __slots__ = ("batched", "gone", "latencies", "latency_ms", "read")

    def __init__(self) -> None:
        self.batched = 0
        """Published messages beyond the first of each entry."""
        self.read = 0
        """Entries that were read from ledgers."""
        self.gone = Handed(0, 0)
        """Deliveries of subscriptions that were deleted."""
        self.latencies = [0] * (len(LATENCIES_MS) + 1)
        """Entries by the time until they were durable; the last class has no upper bound."""
        self.latency_ms = 0.0
        """Sum over all entries."""

    def wrote(self, entries: int, age_ms: float) -> None:
        """Count entries that became durable after `age_ms`."""
        self.latencies[bisect_left(LATENCIES_MS, age_ms)] += entries
        self.latency_ms += entries * age_ms


class CompactionTraffic:
    """Counters of the compactions of a topic, at this member."""

    __slots__ = ("bytes_read", "bytes_written", "latencies", "latency_ms")

    def __init__(self) -> None:
        self.bytes_read = 0
        self.bytes_written = 0
        self.latencies = [0] * (len(LATENCIES_MS) + 1)
        """Surviving entries by the time until they were durable, as those of a topic."""
        self.latency_ms = 0.0

    def wrote(self, entries: int, size: int, age_ms: float) -> None:
        """Count surviving entries that became durable after `age_ms`."""
        self.bytes_written += size
        self.latencies[bisect_left(LATENCIES_MS, age_ms)] += entries
        self.latency_ms += entries * age_ms

    @property
    def moved(self) -> Counts:
        return self.bytes_read, self.bytes_written


class Handed(NamedTuple):
    """Deliveries to consumers."""

    messages: int
    bytes: int


class Published(NamedTuple):
    """Publishes to a topic."""

    messages: int
    bytes: int
    entries: int
    sizes: Counts
    """Entries by size: see `_core.Log.counts`."""


class Rates:
    """Rates of counters. Housekeeping calls `tick`, which stores their values."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.sources: list[Source] = [self._counts]
        """Functions that return counters with their keys."""
        self._looks: list[tuple[int, dict[Hashable, Counts]]] = [(broker.clock.monotonic_ns(), {})]
        """The last two ticks, the older one first. Before the first tick all counters were zero."""

    def tick(self) -> None:
        """Store the values of all counters, if the last tick is a window ago."""
        now = self._broker.clock.monotonic_ns()
        if now - self._looks[-1][0] >= WINDOW_S * 1e9:
            found = {key: counts for source in self.sources for key, counts in source() if any(counts)}
            self._looks = [self._looks[-1], (now, found)]

    def per_second(self, key: Hashable, counts: Counts) -> tuple[float, ...]:
        """Return the rates of counters with the present values `counts`.

        A counter that is younger than the older tick was zero then.
        """
        then, found = self._looks[0]
        before = found.get(key)
        if before is None:
            if not any(counts):  # most are idle
                return (0.0,) * len(counts)
            before = (0,) * len(counts)
        seconds = max(1.0, (self._broker.clock.monotonic_ns() - then) / 1e9)
        return tuple([max(0, b - a) / seconds for a, b in zip(before, counts, strict=True)])

    def add_source(self, source: Source) -> None:
        """Add a source of counters."""
        self.sources.append(source)

    def remove_source(self, source: Source) -> None:
        """Undo `add_source`."""
        self.sources.remove(source)

    def published(self, topic: Topic) -> Published:
        """Return the publishes to a topic since the broker was opened.

        Raises:
            NotFound: the topic is deleted, or its deletion is under way.
        """
        if self._broker.is_deleted(topic):
            raise NotFound(f"{topic.name} was deleted")
        size, sizes = self._broker.machine.log.counts(topic.id)
        entries = sum(sizes)
        return Published(entries + topic.traffic.batched, size, entries, sizes)

    def handed(self, topic: Topic) -> Handed:
        """Return the deliveries to a topic's consumers since the broker was opened."""
        messages, size = topic.traffic.gone
        for dispatcher in topic.served:
            messages += dispatcher.handed.messages
            size += dispatcher.handed.bytes
        return Handed(messages, size)

    def of_topic(self, topic: Topic) -> tuple[float, ...]:
        """Return a topic's rates, in the order of its counters."""
        return self.per_second(*self._topic_counts(topic))

    def of_compaction(self, topic: Topic) -> tuple[float, ...]:
        """Return the bytes per second that compactions of a topic read and write here."""
        traffic = self._broker.compactions.traffic.get(topic.id)
        return (0.0, 0.0) if traffic is None else self.per_second(("compaction", topic.id), traffic.moved)

    def _topic_counts(self, topic: Topic) -> tuple[Hashable, Counts]:
        """Return a topic's key and counters.

        In: messages, bytes, entries. Out: messages, bytes. Last the entries read.
        """
        counted = self.published(topic)
        into = (counted.messages, counted.bytes, counted.entries)
        return ("topic", topic.id), (*into, *self.handed(topic), topic.traffic.read)

    def _counts(self) -> Iterable[tuple[Hashable, Counts]]:
        for topic in self._broker.topics.values():
            if self._broker.is_deleted(topic):
                continue
            yield self._topic_counts(topic)
            if (compacted := self._broker.compactions.traffic.get(topic.id)) is not None:
                yield ("compaction", topic.id), compacted.moved
            for id, dispatcher in topic.dispatchers.items():  # noqa: A001
                yield ("subscription", id), dispatcher.handed
                for consumer in dispatcher.handed_to():
                    yield ("consumer", id, consumer[0]), consumer[1]
