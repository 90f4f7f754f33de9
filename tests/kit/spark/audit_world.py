"""Build random topics of numbered messages, with the plain count that an audit must match.

Every topic is a case of its own: so one audit of many topics tries many cases.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.pipeline.jobs.audit_counts import GROUP_BITS, Gap, ProducerAudit
from holdfast.pipeline.numbered import encode, encode_json

BEGAN = datetime(2026, 11, 15, 12, tzinfo=UTC)
BEGAN_US = int(BEGAN.timestamp()) * 1_000_000
GROUP = 1 << GROUP_BITS
STRANGE = (
    (b"other", "not numbered"),
    (None, "not numbered"),
    (b'{"producer": "a"}', "not numbered"),
    (encode("a", 1, "k")[:-1] + b"!", "damaged"),
    (b"HFN1", "damaged"),
)


@dataclass(frozen=True)
class Sent:
    """A message at its position; `number` None: it is not numbered."""

    producer: str
    number: int | None
    key: str
    latency_us: int
    odd: tuple[bytes | None, str] | None = None

    def row(self, position: int) -> dict[str, Any]:
        at = BEGAN_US + position * 250_000
        if self.odd is not None or self.number is None:
            value = None if self.odd is None else self.odd[0]
        else:
            make = encode if self.number % 2 else encode_json
            value = make(self.producer, self.number, self.key, sent_ns=(at - self.latency_us) * 1000)
        return {"value": value, "storedTime": BEGAN + timedelta(microseconds=position * 250_000)}


@dataclass
class Case:
    """A topic: its messages, and the confirmed counts by producer (None: not known)."""

    topic: str
    sent: list[Sent]
    expected: dict[str, int | None] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        return [each.row(position) for position, each in enumerate(self.sent)]

    # -- the plain count -------------------------------------------------------------------------------

    def numbers(self, producer: str) -> list[int]:
        return [each.number for each in self.sent if each.producer == producer and each.number is not None]

    def missing(self, producer: str, said: bool) -> list[int]:
        """The first number of every gap, and how many there are in it, in turn."""
        there = set(self.numbers(producer))
        confirmed = self.expected.get(producer) if said else None
        end = max(there, default=-1) + 1 if confirmed is None else confirmed
        gaps, before = [], -1
        for number in [*sorted(number for number in there if number < end), end]:
            if number > before + 1:
                gaps += [before + 1, number - before - 1]
            before = number
        return gaps

    def late(self) -> list[tuple[str, int, int]]:
        """Producer, number and position of each first message behind a higher one of its key."""
        highest: dict[tuple[str, str], int] = defaultdict(lambda: -1)
        seen: set[tuple[str, int]] = set()
        found = []
        for position, each in enumerate(self.sent):
            if each.number is None or (each.producer, each.number) in seen:
                continue
            seen.add((each.producer, each.number))
            if each.number < highest[each.producer, each.key]:
                found.append((each.producer, each.number, position))
            highest[each.producer, each.key] = max(highest[each.producer, each.key], each.number)
        return found

    def again(self) -> list[tuple[str, int, int]]:
        """Producer, number and last position of what is there more than once."""
        at: dict[tuple[str, int], list[int]] = defaultdict(list)
        for position, each in enumerate(self.sent):
            if each.number is not None:
                at[each.producer, each.number].append(position)
        return sorted((*which, places[-1]) for which, places in at.items() if len(places) > 1)

    def odd(self) -> list[tuple[int, str]]:
        return [(position, each.odd[1]) for position, each in enumerate(self.sent) if each.odd is not None]

    def producers(self, said: bool) -> list[ProducerAudit]:
        names = {each.producer for each in self.sent if each.number is not None}
        late = [name for name, _, _ in self.late()]
        found = []
        for name in sorted(names | (self.expected.keys() if said else set())):
            numbers = self.numbers(name)
            confirmed = self.expected.get(name) if said else None
            end = max(numbers, default=-1) + 1 if confirmed is None else confirmed
            found.append(
                ProducerAudit(
                    topic=self.topic,
                    producer=name,
                    messages=len(numbers),
                    distinct=len(set(numbers)),
                    last=max(numbers, default=-1),
                    confirmed=confirmed,
                    lost=sum(self.missing(name, said)[1::2]),
                    duplicated=len(numbers) - len(set(numbers)),
                    out_of_order=late.count(name),
                    unconfirmed=sum(number >= end for number in set(numbers)),
                    unexpected=said and name not in self.expected,
                )
            )
        return found

    def gaps(self, said: bool) -> list[Gap]:
        found = []
        for each in self.producers(said):
            missing = self.missing(each.producer, said)
            for first, count in zip(missing[::2], missing[1::2], strict=True):
                found.append(Gap(self.topic, each.producer, first, first + count - 1))
        return found

    def shares(self) -> tuple[int, ...]:
        """Least, 50, 90, 99 and 99.9 % by nearest rank, and most, in µs."""
        took = sorted(each.latency_us for each in self.sent if each.number is not None)
        ranks = [math.ceil(share * len(took)) - 1 for share in (0.5, 0.9, 0.99, 0.999)]
        return took[0], *(took[rank] for rank in ranks), took[-1]


def case(topic: str, chance: random.Random) -> Case:
    """One topic. About a third of all are as they should be."""
    clean = chance.random() < 0.3
    made = Case(topic, [])
    streams: list[list[Sent]] = []
    for name in chance.sample(("a", "b", "ü <c>", "a b"), chance.randrange(1, 4)):
        keys = chance.randrange(1, 4)
        first = 0 if clean else chance.choice((0, 0, 0, GROUP - 3, 3 * GROUP - 5))
        numbers = list(range(first, first + chance.randrange(1, 15)))
        if not clean:
            numbers = [number for number in numbers if chance.random() > 0.1] or numbers
            for number in chance.sample(numbers, chance.choice((0, 0, 1, min(2, len(numbers))))):
                numbers.insert(chance.randrange(len(numbers) + 1), number)
            if chance.random() < 0.4:
                at, to = chance.randrange(len(numbers)), chance.randrange(len(numbers))
                numbers[at], numbers[to] = numbers[to], numbers[at]
        took = {number: chance.choice((0, 7, 950, 4_000, 90_000, -3)) for number in numbers}
        streams.append([Sent(name, number, f"k{number % keys}", took[number]) for number in numbers])
        top = max(numbers) + 1
        if clean or chance.random() < 0.8:
            made.expected[name] = top if clean else chance.choice((top, top, top + 2, max(0, top - 3), None))
    if not clean and chance.random() < 0.3:
        made.expected["ghost"] = chance.choice((0, 3))
    if not clean and chance.random() < 0.5:
        streams.append([Sent("", None, "", 0, odd) for odd in chance.sample(STRANGE, chance.randrange(1, 4))])
    while streams:  # as they arrive: each stream in its own order
        stream = chance.choice(streams)
        made.sent.append(stream.pop(0))
        streams = [each for each in streams if each]
    return made
