"""Months of a broker in virtual time: each day, everything comes and goes.

Nothing of it depends on the machine: the same rounds give the same tables, snapshots, files and calls.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

from holdfast.broker.broker import Broker
from holdfast.broker.events import SchemaAdd
from tests.kit.broker.worlds import SimWorld
from tests.kit.growth.figures import BYTES, COUNT, OBJECTS, Kind, Run

DAY_S = 24 * 3600.0
AGE_DAYS = 2
OPTIONS: dict[str, Any] = {
    "housekeeping_s": 6 * 3600.0,
    "snapshot_s": DAY_S / 2,
    "deduplication_age_s": AGE_DAYS * DAY_S,
    "sink_age_s": AGE_DAYS * DAY_S,
    "stage_age_s": AGE_DAYS * DAY_S,
    "roll_entries": 10,
}


def snapshot_bytes(broker: Broker) -> int:
    return sum(map(len, broker.machine.capture().parts))


def objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def calls(work: Callable[[], Any]) -> int:
    """Count Python calls, with resumed generators."""
    count = 0

    def seen(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


async def churn(broker: Broker, number: int) -> None:
    """Create and delete everything of a day."""
    name = f"topic-{number % 3}"
    async with broker.producer(name) as p:
        await p.send_many([b"x"] * 5)
    for type_ in ("exclusive", "failover", "shared"):
        kind: Any = type_
        subscription = f"{type_}-{number}"
        async with broker.consumer(name, subscription, type=kind, start="earliest") as c:
            message = await c.receive(timeout=5)
            c.nack(message, 0.0)
            await c.ack(await c.receive(timeout=5), receipt=True)
            await c.seek("earliest")
        await broker.admin.delete_subscription(name, subscription)
    async with broker.consumer(name, f"volatile-{number}", durable=False, start="earliest") as c:
        await c.receive(timeout=5)
    async with broker.reader(name) as r:
        await r.read(timeout=5)
    stage = await broker.stage()
    await stage.append(name, [b"staged"])
    if number % 2:
        await broker.sink_commit("nightly", number, [await stage.close()])
    else:
        await stage.drop()
    await broker.admin.delete_topic(name, force=True)


async def age(broker: Broker, number: int) -> None:
    """Create names, sinks, stages and ledgers, which expire, and schemas of topics."""
    for each in range(3):
        async with broker.producer("kept", name=f"sensor-{number:06d}-{each}") as p:
            await p.send_many([b"x"] * 12, sequence=number)  # ledgers roll, and are trimmed
    async with broker.consumer("kept", "kept") as c:
        for _ in range(36):
            await c.ack(await c.receive(timeout=5))
    stage = await broker.stage()
    await stage.append("kept", [b"row"])
    await broker.sink_commit(f"query-{number:06d}", 1, [await stage.close()])
    await (await broker.stage()).append("kept", [b"left behind"])
    async with broker.consumer("kept", "kept") as c:
        await c.ack(await c.receive(timeout=5))
    await broker.admin.create_topic(f"typed-{number:06d}")
    topic = next(each.state.id for each in broker.topics.values() if "typed" in each.name)
    for version in range(3):
        await broker.engine.submit(SchemaAdd(topic, b"schema %d" % version))
    await broker.admin.delete_topic(f"typed-{number:06d}")


def held(broker: Broker) -> dict[str, int]:
    """Count the entries of the tables, which belong to existing objects."""
    state = broker.machine.state
    return {
        "topics": len(broker.topics),
        "states": len(state.topics) + len(state.subscriptions) + len(state.stages) + len(state.sessions),
        "dispatchers": sum(len(topic.dispatchers) + len(topic.volatile) for topic in broker.topics.values()),
        "unshown": len(broker.unshown),
        "waiting": len(broker.sessions.waiting),
        "holding": len(broker.housekeeping._holding),
        "under way": len(broker.housekeeping._under_way),
        "room": len(broker.engine._room),
        "inflight": len(broker.engine._inflight) + len(broker.engine._unheld) + len(broker.engine._sent),
    }


class Days:
    """A broker on a simulated disk, a day at a time."""

    def __init__(self) -> None:
        self.world = SimWorld(**OPTIONS)
        self.broker = self.world.run(self.world.open())
        self._calls = self._number = 0
        self.world.run(self.broker.admin.create_topic("kept", deduplication=True))
        self.world.run(self.broker.admin.create_subscription("kept", "kept"))

    def day(self) -> None:
        async def day() -> None:
            await churn(self.broker, self._number)
            await age(self.broker, self._number)
            await self.broker.clock.sleep(DAY_S)

        self._number += 1
        self._calls = calls(lambda: self.world.run(day()))

    def figures(self) -> dict[str, tuple[Kind, float]]:
        state, log = self.broker.machine.state, self.broker.machine.log
        platter = self.world._platter
        found: dict[str, tuple[Kind, float]] = {
            "snapshot": (BYTES, snapshot_bytes(self.broker)),
            "objects": (OBJECTS, objects()),
            "calls of a day": (Kind("", 2000.0), self._calls),
            "files": (COUNT, sum(1 for _ in platter._inodes(platter._root))),
            "producer names": (COUNT, sum(len(log.sequences(each)) for each in state.topics)),
            "sinks": (COUNT, len(state.sinks.last)),
            "ledgers": (COUNT, sum(len(each.ledgers) for each in state.topics.values())),
        }
        return found | {name: (COUNT, count) for name, count in held(self.broker).items()}

    def close(self) -> None:
        self.broker.machine.check()
        self.world.close(None)


def months(directory: Path, rounds: Iterable[int], warm_up: int) -> Run:
    """Run the days; return their figures."""
    run = Run("simulated broker", warm_up)  # the store checks its disk once an hour
    with mock.patch("holdfast.ledger.running.TICK_S", 3600.0):
        days = Days()
        for _ in rounds:
            days.day()
            run.note(days.figures())
        days.close()
    return run
