"""How much goes in and out, and how fast: counters that only rise, and rates over the last half minute.

What is published is counted in the core (`_core.Log.counts`), what is handed out by the dispatchers, in both
cases per run and not per message. Rates are looked up: counters now, against counters of a while ago.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic

WINDOW_S = 30.0
"""Rates are of the time since the last look but one: of one to two windows."""

LATENCIES_MS = (0.5, 1, 5, 10, 20, 50, 100, 200, 1000)
"""The upper ends of the classes in which write latencies are counted: those of the metrics' names."""

Counts: TypeAlias = tuple[int, ...]
Source: TypeAlias = Callable[[], Iterable[tuple[Hashable, Counts]]]


class TopicTraffic:
    """What is counted of a topic beside what the core counts."""

    __slots__ = ("batched", "gone", "latencies", "latency_ms", "read")

    def __init__(self) -> None:
        self.batched = 0
        """Published messages beyond the first of each entry."""
        self.read = 0
        """Entries that were read from ledgers."""
        self.gone = Handed(0, 0)
        """What subscriptions were given that are there no more."""
        self.latencies = [0] * (len(LATENCIES_MS) + 1)
        """Entries, by how long it took until they were durable; the last: longer than all."""
        self.latency_ms = 0.0
        """Of all entries together."""

    def wrote(self, entries: int, age_ms: float) -> None:
        """So many entries are durable, so long after they were taken."""
        self.latencies[bisect_left(LATENCIES_MS, age_ms)] += entries
        self.latency_ms += entries * age_ms


class Handed(NamedTuple):
    """What consumers were given."""

    messages: int
    bytes: int


class Published(NamedTuple):
    """What a topic was given."""

    messages: int
    bytes: int
    entries: int
    sizes: Counts
    """Entries by size: see `_core.Log.counts`."""


class Rates:
    """Counters of a while ago. `tick` is called now and then; between ticks nothing is done."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.sources: list[Source] = [self._counts]
        """Who is asked for counters: of what, and how far they have come."""
        self._looks: list[tuple[int, dict[Hashable, Counts]]] = [(broker.clock.monotonic_ns(), {})]
        """The last two, the older one first; before the first one everything was zero."""

    def tick(self) -> None:
        """Look at all counters, if the last time is long enough ago."""
        now = self._broker.clock.monotonic_ns()
        if now - self._looks[-1][0] >= WINDOW_S * 1e9:
            found = {key: counts for source in self.sources for key, counts in source() if any(counts)}
            self._looks = [self._looks[-1], (now, found)]

    def per_second(self, key: Hashable, counts: Counts) -> tuple[float, ...]:
        """The rates of these counters, which stand at `counts` now.

        Of what came only after the older look it is the rate since that look: it was zero then.
        """
        then, found = self._looks[0]
        before = found.get(key, (0,) * len(counts))
        seconds = max(1.0, (self._broker.clock.monotonic_ns() - then) / 1e9)
        return tuple(max(0, b - a) / seconds for a, b in zip(before, counts, strict=True))

    def add_source(self, source: Source) -> None:
        """Ask a further source for counters."""
        self.sources.append(source)

    def remove_source(self, source: Source) -> None:
        """Undo `add_source`."""
        self.sources.remove(source)

    def published(self, topic: Topic) -> Published:
        """Return what was published to a topic since the broker was opened."""
        size, sizes = self._broker.machine.log.counts(topic.id)
        entries = sum(sizes)
        return Published(entries + topic.traffic.batched, size, entries, sizes)

    def handed(self, topic: Topic) -> Handed:
        """Return what a topic's consumers were given since the broker was opened."""
        messages, size = topic.traffic.gone
        for dispatcher in topic.served:
            messages += dispatcher.handed.messages
            size += dispatcher.handed.bytes
        return Handed(messages, size)

    def of_topic(self, topic: Topic) -> tuple[float, ...]:
        """Return a topic's rates, in the order of its counters."""
        return self.per_second(*self._topic_counts(topic))

    def _topic_counts(self, topic: Topic) -> tuple[Hashable, Counts]:
        """Return a topic's key and counters.

        In: messages, bytes, entries. Out: messages, bytes. Last the entries read.
        """
        counted = self.published(topic)
        into = (counted.messages, counted.bytes, counted.entries)
        return ("topic", topic.id), (*into, *self.handed(topic), topic.traffic.read)

    def _counts(self) -> Iterable[tuple[Hashable, Counts]]:
        for topic in self._broker.topics.values():
            yield self._topic_counts(topic)
            for id, dispatcher in topic.dispatchers.items():  # noqa: A001
                yield ("subscription", id), dispatcher.handed
                for consumer in dispatcher.handed_to():
                    yield ("consumer", id, consumer[0]), consumer[1]
