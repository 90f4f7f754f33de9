"""Months in virtual time: names, sessions, subscriptions and topics come and go without growth.

Judged by counts and slopes, never by time: the snapshot's bytes, objects in memory, sizes of tables, and
calls per acknowledgement.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.events import Ack, DeduplicationExpire
from holdfast.broker.housekeeping import Housekeeping
from tests.kit.broker.events import Publish, Rig
from tests.kit.broker.worlds import SimWorld
from tests.kit.growth import simulated
from tests.kit.growth.simulated import DAY_S, calls, snapshot_bytes
from tests.kit.slices import pick

A_DAY = 6
"""Producers per day, each with a new name."""
AGE_DAYS = 7


@pytest.fixture(autouse=True)
def slow_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow the store's checks of its disk, which would fill months of virtual time."""
    monkeypatch.setattr("holdfast.ledger.running.TICK_S", 3600.0)


@pytest.fixture
def world() -> Iterator[SimWorld]:
    made = SimWorld(housekeeping_s=6 * 3600.0, snapshot_s=1e9, deduplication_age_s=AGE_DAYS * DAY_S)
    yield made
    made.close(None)


def require_flat(values: list[int], what: str, share: float = 0.02) -> None:
    """Check that the second half is at most a share above the first."""
    half = len(values) // 2
    first, second = max(values[:half]), max(values[half:])
    assert second <= first * (1 + share), f"{what} grows: {values}"


# -- names ---------------------------------------------------------------------------------------------


def names_over_days(world: SimWorld, days: int) -> tuple[list[int], list[int]]:
    """Return known names and the snapshot's bytes at the end of each day."""
    broker = world.run(world.open())
    names: list[int] = []
    sizes: list[int] = []

    async def day(number: int) -> None:
        for each in range(A_DAY):
            async with broker.producer("t", name=f"sensor-{number:04d}-{each}") as p:
                await p.send(b"x", sequence=number)
        await broker.clock.sleep(DAY_S)

    policies: dict[str, Any] = {
        "deduplication": True,
        "retention_s": DAY_S,
        "retention_bytes": 0,
    }  # ledgers come and go, too
    world.run(broker.admin.create_topic("t", **policies))
    (topic,) = broker.topics.values()
    for number in range(days):
        world.run(day(number))
        names.append(len(broker.machine.log.sequences(topic.state.id)))
        sizes.append(snapshot_bytes(broker))
    broker.machine.check()
    return names[AGE_DAYS + 2 :], sizes[AGE_DAYS + 2 :]


def test_names_of_producers_are_forgotten_by_age(world: SimWorld) -> None:
    names, sizes = names_over_days(world, days=40)
    assert max(names) <= (AGE_DAYS + 2) * A_DAY
    require_flat(names, "the number of names")
    require_flat(sizes, "the snapshot")


def test_names_that_stay_are_noticed(world: SimWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that keeps names for ever is caught."""
    monkeypatch.setattr(Housekeeping, "_forget_producers", lambda *_: None)
    with pytest.raises(AssertionError, match=r"grows|<="):
        test_names_of_producers_are_forgotten_by_age(world)


def test_a_name_in_use_is_kept(world: SimWorld) -> None:
    """A connected producer, and one that published lately, keep their sequences."""
    broker = world.run(world.open())

    async def work() -> None:
        await broker.admin.create_topic("t", deduplication=True)
        quiet = broker.producer("t", name="quiet")
        await quiet.open()
        await quiet.send(b"x", sequence=41)
        for number in range(20):
            async with broker.producer("t", name="daily") as p:
                assert p.last_sequence == number - 1
                await p.send(b"x", sequence=number)
            await broker.clock.sleep(DAY_S)
        assert (await quiet.send(b"again", sequence=41)).ledger == -1
        await quiet.close()
        async with broker.producer("t", name="quiet") as p:  # its age begins when it leaves
            assert p.last_sequence == 41
        await broker.clock.sleep((AGE_DAYS + 1) * DAY_S)
        async with broker.producer("t", name="quiet") as p:
            assert p.last_sequence == -1

    world.run(work())


def after_an_outage(world: SimWorld, uptime_s: float) -> tuple[int, int, int]:
    """Restart 100 days after a death; count known producers, stages and sinks."""
    broker = world.run(world.open())

    async def before() -> None:
        await broker.admin.create_topic("t", deduplication=True)
        edge = broker.producer("t", name="edge")
        await edge.open()
        await edge.send(b"x", sequence=41)
        stages = [await broker.stage(), await broker.stage()]
        for stage in stages:
            await stage.append("t", [b"staged"])
        await broker.sink_commit("nightly", 1, [await stages[0].close()])

    async def wait(seconds: float) -> None:
        await world.clock.sleep(seconds)

    world.run(before())
    world.crash(broker, power=True)
    world.run(wait(100 * DAY_S))
    again = world.run(world.open())
    world.run(wait(uptime_s))
    state = again.machine.state
    return len(again.machine.log.sequences(1)), len(state.stages), len(state.sinks.last)


@pytest.fixture
def busy_world() -> Iterator[SimWorld]:
    made = SimWorld(housekeeping_s=300.0, snapshot_s=1e9)
    yield made
    made.close(None)


def test_an_outage_makes_nothing_old(busy_world: SimWorld) -> None:
    """Producers and sinks that return after a long outage are still known."""
    assert after_an_outage(busy_world, uptime_s=3000.0) == (1, 1, 1)


def test_an_outage_is_no_excuse_for_ever(busy_world: SimWorld) -> None:
    """Sessions and names that have not returned after the grace period expire."""
    assert after_an_outage(busy_world, uptime_s=3 * 3600.0) == (0, 0, 0)


def test_an_outage_that_counts_is_noticed(busy_world: SimWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that counts an outage as age is caught."""
    monkeypatch.setattr("holdfast.broker.housekeeping.GRACE_S", 0.0)
    with pytest.raises(AssertionError):
        test_an_outage_makes_nothing_old(busy_world)


def test_a_new_directory_has_had_no_outage() -> None:
    """The time before the first frame is not an outage; it once was, of decades."""
    world = SimWorld(housekeeping_s=5.0, deduplication_age_s=60.0)
    broker = world.run(world.open())

    async def work() -> None:
        await broker.admin.create_topic("t", deduplication=True)
        async with broker.producer("t", name="guest") as p:
            await p.send(b"x")
        await broker.clock.sleep(200)

    world.run(work())
    (topic,) = broker.topics
    assert broker.machine.log.sequences(topic) == []
    world.close(None)


def test_an_expiry_is_decided_when_it_is_applied() -> None:
    rig = Rig()
    topic = rig.topic(deduplication=True)
    old = rig.producer(topic, "old").session
    rig.do(Publish(topic.id, old, [b"a"], producer="old"))
    before = rig.time
    rig.time += 10**12
    new = rig.producer(topic, "new").session
    rig.do(Publish(topic.id, new, [b"a"], producer="new"))
    assert rig.do(DeduplicationExpire(topic.id, before + 10**9)).changed is False  # both are attached
    rig.enter()
    assert rig.do(DeduplicationExpire(topic.id, rig.machine.log.time)).changed is False
    rig.time += 10**12
    rig.do(Publish(topic.id, rig.producer(topic, "new").session, [b"b"], producer="new", sequence=5))
    assert rig.do(DeduplicationExpire(topic.id, rig.time - 10**9)).changed is True
    assert [name for name, _ in rig.machine.log.sequences(topic.id)] == ["new"]
    assert rig.restarted().digest() == rig.machine.digest()
    assert rig.restarted(rig.machine.capture().parts, len(rig.journal)).digest() == rig.machine.digest()


# -- sessions, subscriptions, topics ---------------------------------------------------------------------


def test_what_comes_and_goes_leaves_nothing(tmp_path: Path) -> None:
    """Run days of `simulated.Days`; `make torture ARGS=--months` runs more."""
    run = simulated.months(tmp_path, range(pick(test=9, nightly=200)), warm_up=4)
    run.require_level()
    assert {"snapshot", "objects", "calls of a day", "files", "sinks", "states"} < {*run.values}


# -- cost ------------------------------------------------------------------------------------------------


def calls_of_acks(world: SimWorld, idle: int) -> int:
    """Count calls of a hundred acknowledgements beside `idle` subscriptions."""
    broker = world.run(world.open())

    async def begin() -> None:
        await broker.admin.create_topic("t", roll_entries=10)
        for number in range(idle):
            await broker.admin.create_subscription("t", f"idle-{number}", start="earliest")
        await broker.admin.create_subscription("t", "busy", start="earliest")
        async with broker.producer("t") as p:
            for _ in range(20):
                await p.send_many([b"x"] * 10)

    world.run(begin())
    (topic,) = broker.topics.values()
    busy = topic.state.subscriptions["busy"]

    async def acknowledge() -> None:
        for ordinal in range(100):
            await broker.engine.submit(Ack(busy.id, 0, ranges=[(ordinal, ordinal + 1)], receipt=True))

    work: Coroutine[Any, Any, None] = acknowledge()
    found = calls(lambda: world.run(work))
    assert busy.acks.acked_to == 100
    assert topic.first == 0
    return found


def few_and_many() -> tuple[int, int]:
    found = []
    for idle in (5, 500):
        world = SimWorld()
        found.append(calls_of_acks(world, idle))
        world.close(None)
    return found[0], found[1]


def test_an_acknowledgement_costs_the_same_beside_idle_subscriptions() -> None:
    few, many = few_and_many()
    assert many < few * 1.1, f"{few} calls beside 5 subscriptions, {many} beside 500"


def test_a_look_at_all_subscriptions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An acknowledgement that visits every subscription is caught."""
    monkeypatch.setattr(Housekeeping, "_is_held", lambda self, topic, end: end > topic.state.acked_to)
    few, many = few_and_many()
    assert many > few * 1.5


def test_the_last_one_lets_go() -> None:
    """The front ledger is trimmed when its last subscription moves on or is deleted."""
    world = SimWorld()
    broker = world.run(world.open())

    async def work() -> None:
        await broker.admin.create_topic("t", roll_entries=5)
        for name in ("a", "b", "c"):
            await broker.admin.create_subscription("t", name, start="earliest")
        async with broker.producer("t") as p:
            for _ in range(4):
                await p.send_many([b"x"] * 5)
        (topic,) = broker.topics.values()
        await broker.admin.clear("t", "b")
        assert topic.first == 0
        await broker.admin.clear("t", "a")
        assert topic.first == 0
        await broker.admin.delete_subscription("t", "c")
        await broker.admin.create_subscription("t", "c")  # the same name, another subscription
        async with broker.producer("t") as p:
            await p.send_many([b"x"] * 5)
        await broker.admin.clear("t", "a")
        await broker.clock.sleep(1)
        assert topic.first == 20
        await broker.admin.clear("t", "b")
        assert topic.first == 20
        await broker.admin.clear("t", "c")
        await broker.clock.sleep(1)
        assert topic.first == 25

    world.run(work())
    world.close(None)
