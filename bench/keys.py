"""Measure Key_Shared beside Shared, and beside a stuck or a slow consumer.

`python -m bench.keys` prints medians of interleaved rounds, with the smallest and the largest. One embedded
broker holds a backlog with many keys, in random order; 50 consumers receive and acknowledge it. Costs are
processor time of the whole process, the writer's thread included.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

from bench.broker_stations import Sample, Stopwatch
from bench.figures import Goal, Spread, spread, table
from holdfast import Broker
from holdfast._core import key_hash, split_keys
from holdfast.broker import Consumer

GOAL = 2.0
"""The largest cost of an entry of Key_Shared, as a multiple of Shared."""
OTHERS = 1.25
"""The largest cost of an entry beside a stuck or slow consumer, as a multiple of the cost without one. Two
equal rounds differ by a tenth."""
SLOW_S = 0.02
"""A slow consumer rests so long after each message."""
LOOK_S = 0.002
IDLE_S = 0.5
"""Consumers that take nothing within this time make no progress."""
TOPIC, HOT = "orders", "hot"
Type = Literal["shared", "key_shared"]
Odd = Literal["none", "stuck", "slow"]
_numbers = count(1)


@dataclass(frozen=True)
class Plan:
    """The sizes of a run."""

    entries: int = 200_000
    keys: int = 100_000
    consumers: int = 50
    size: int = 100
    """Bytes of a payload."""
    rounds: int = 7
    queue: int = 1000
    """Messages that a consumer has in its hands, or before it."""
    ahead: int = 100_000
    """Entries that the broker reads ahead for consumers that cannot take them; a test has a smaller limit."""

    @property
    def names(self) -> list[str]:
        return [f"c{at}" for at in range(self.consumers)]


@dataclass
class Crew:
    """The consumers of one subscription; the first one may be stuck or slow."""

    broker: Broker
    topic: str
    name: str
    opened: list[Consumer]
    odd: Odd = "none"
    acks: bool = True
    took: int = 0
    """Entries that the consumers took, without those of the odd one."""
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def serve(self, consumer: Consumer) -> None:
        while True:
            messages = await consumer.receive_many(100)
            if self.acks:
                await consumer.ack_many(messages)
            self.took += len(messages)

    async def dawdle(self, consumer: Consumer) -> None:
        while True:
            await consumer.ack(await consumer.receive())
            await asyncio.sleep(SLOW_S)

    async def begin(self) -> None:
        """Let all consumers work on the whole topic; a stuck one does nothing."""
        await self.broker.admin.reset(self.topic, self.name, "earliest")
        first, others = self.opened[0], self.opened[1:]
        works = [self.serve(each) for each in others]
        if self.odd != "stuck":
            works.append(self.dawdle(first) if self.odd == "slow" else self.serve(first))
        self._tasks = [asyncio.get_running_loop().create_task(each) for each in works]

    async def until_took(self, entries: int) -> None:
        while self.took < entries:
            await asyncio.sleep(LOOK_S)
            for each in self._tasks:
                if each.done():
                    each.result()

    async def until_idle(self) -> None:
        before = -1
        while self.took != before:
            before = self.took
            await asyncio.sleep(IDLE_S)

    async def end(self) -> None:
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def crew(
    broker: Broker, topic: str, type_: Type, plan: Plan, odd: Odd = "none", acks: bool = True
) -> AsyncIterator[Crew]:
    """Open the consumers of a new subscription; delete it afterwards."""
    name = f"s{next(_numbers)}"
    await broker.admin.create_subscription(topic, name, start="latest")
    opened = [
        broker.consumer(topic, name, type=type_, receiver_queue=plan.queue, name=each) for each in plan.names
    ]
    for each in opened:
        await each.open()
    made = Crew(broker, topic, name, opened, odd, acks)
    try:
        yield made
    finally:
        await made.end()
        for each in opened:
            await each.close()
        await broker.admin.delete_subscription(topic, name)


@dataclass(frozen=True)
class Case:
    """One measurement: the type, the odd consumer, and whether entries are acknowledged."""

    type: Type
    odd: Odd
    acks: bool
    entries: int

    async def measure(self, broker: Broker, plan: Plan) -> Sample:
        """Deliver the topic; return the cost until the consumers that work have taken their entries."""
        async with crew(broker, TOPIC, self.type, plan, self.odd, self.acks) as made:
            with Stopwatch() as watch:
                await made.begin()
                await made.until_took(self.entries)
            return watch.sample(self.entries)


# -- the backlog ---------------------------------------------------------------------------------------


def keys_by_consumer(plan: Plan) -> dict[str, list[str]]:
    """Return the keys of each consumer."""
    owner = [""] * 65536
    for first, last, at in split_keys(plan.names):
        owner[first : last + 1] = [plan.names[at]] * (last + 1 - first)
    found: dict[str, list[str]] = defaultdict(list)
    for number in range(plan.keys):
        found[owner[key_hash(b"key %d" % number)]].append(f"key {number}")
    return found


async def publish(broker: Broker, topic: str, keys: Sequence[str], run: int, size: int) -> None:
    """Publish a run of messages with each key, one entry for each message."""
    data = [bytes(size)] * run
    await broker.admin.create_topic(topic, retention_bytes=-1)
    async with broker.producer(topic) as producer:
        for at, key in enumerate(keys):
            await producer.post(data, key=key)
            if at % 1000 == 0:
                await asyncio.sleep(0)
        await producer.flush()


# -- the figures ---------------------------------------------------------------------------------------


def rows(found: dict[str, list[Sample]]) -> list[str]:
    return table(
        ["", "processor time, µs per entry", "entries/s"],
        [
            [
                name,
                spread(Spread.of([each.cpu_us for each in samples])),
                spread(Spread.of([each.rate for each in samples])),
            ]
            for name, samples in found.items()
        ],
    )


def goal(text: str, most: float, samples: list[Sample], base: list[Sample]) -> Goal:
    """Judge the ratio of two costs.

    It is computed by round, because a round measures both close together.
    """
    ratios = [one.cpu_us / other.cpu_us for one, other in zip(samples, base, strict=True)]
    found = Spread.of(ratios)
    return Goal(f"{text}: at most {most:g}×", f"{spread(found)}×", found.median <= most)


async def costs(broker: Broker, plan: Plan) -> list[Goal]:
    """Print the cost of an entry in each case; return the goals."""
    others = sum(len(keys) for name, keys in keys_by_consumer(plan).items() if name != plan.names[0])
    others = others * plan.entries // plan.keys
    cases = {
        "shared, delivery alone": Case("shared", "none", False, plan.entries),
        "key_shared, delivery alone": Case("key_shared", "none", False, plan.entries),
        "shared": Case("shared", "none", True, plan.entries),
        "key_shared": Case("key_shared", "none", True, plan.entries),
        "key_shared, one stuck": Case("key_shared", "stuck", True, others),
        "key_shared, one slow": Case("key_shared", "slow", True, others),
    }
    found: dict[str, list[Sample]] = {name: [] for name in cases}
    for _ in range(plan.rounds):
        for name, case in random.sample([*cases.items()], len(cases)):
            found[name].append(await case.measure(broker, plan))
    print(
        f"{plan.entries:,} entries, {plan.keys:,} keys, {plan.consumers} consumers; "
        f"with an odd one, the others take {others:,}"
    )
    print("\n".join(rows(found)), flush=True)
    pairs = [
        ("delivery, key_shared to shared", GOAL, "key_shared, delivery alone", "shared, delivery alone"),
        ("with acknowledgements, the same", GOAL, "key_shared", "shared"),
        ("the others beside a stuck consumer", OTHERS, "key_shared, one stuck", "key_shared"),
        ("the others beside a slow consumer", OTHERS, "key_shared, one slow", "key_shared"),
    ]
    return [goal(text, most, found[one], found[other]) for text, most, one, other in pairs]


async def limit(broker: Broker, plan: Plan) -> None:
    """Print what happens when more entries wait for a stuck consumer than are read ahead.

    Every second run of the topic is of its keys.
    """
    keys = keys_by_consumer(plan)
    stuck = keys.pop(plan.names[0])
    free = [key for each in keys.values() for key in each]
    run = min(100, plan.ahead // 10)
    each = plan.ahead * 5 // 4 // run
    mixed = [key for at in range(each) for key in (stuck[at % len(stuck)], free[at % len(free)])]
    await publish(broker, HOT, mixed, run, plan.size)
    async with crew(broker, HOT, "key_shared", plan, "stuck") as made:
        await made.begin()
        await made.until_idle()
        stats = broker.admin.subscription_stats(HOT, made.name).dispatch
        assert stats is not None
        print(
            f"at the limit: {stats.replay_entries:,} entries wait for the stuck consumer "
            f"({plan.ahead:,} are read ahead); the others took {made.took:,} of {each * run:,}, then nothing"
        )
        await made.opened[0].close()
        await made.until_took(2 * each * run)
        print(f"after it left, the others took all {made.took:,}")


async def measure(path: str, plan: Plan) -> list[Goal]:
    """Print the figures of one run; return the goals."""
    keys = [f"key {at % plan.keys}" for at in range(plan.entries)]
    random.Random(plan.keys).shuffle(keys)
    async with Broker.open(path, sync="os") as broker:
        await publish(broker, TOPIC, keys, 1, plan.size)
        goals = await costs(broker, plan)
        await limit(broker, plan)
    judged = [[each.text, each.result, "met" if each.met else "MISSED"] for each in goals]
    print("\n".join(table(["goal", "result", ""], judged)))
    return goals


def main() -> None:
    plan = Plan()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=plan.entries, help="entries of the backlog")
    parser.add_argument("--keys", type=int, default=plan.keys, help="number of keys")
    parser.add_argument("--consumers", type=int, default=plan.consumers, help="number of consumers")
    parser.add_argument("--size", type=int, default=plan.size, help="bytes of each message")
    parser.add_argument("--rounds", type=int, default=plan.rounds, help="interleaved rounds")
    given = Plan(**vars(parser.parse_args()))
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="holdfast-keys.") as path:
        asyncio.run(measure(path, given))
    print(f"load of the machine after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
