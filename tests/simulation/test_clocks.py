"""I65: clocks a year ahead, behind, standing still and jumping, in virtual time, across restarts."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.broker.broker import Broker
from holdfast.broker.engine import Engine
from holdfast.broker.log_time import AHEAD_S, CONFIRM_S, LogClock
from holdfast.ledger.files.doctor import Examination, examine_disk
from holdfast.system import Clock
from tests.kit.broker.clocks import SECOND, YEAR, WrongClock
from tests.kit.broker.worlds import SimWorld
from tests.kit.sim import SimDisk
from tests.kit.slices import pick, seeds

HOUSE = {"housekeeping_s": 5.0}


class Sky(SimWorld):
    """A world whose clock can be wrong."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        super().__init__(seed, **{**HOUSE, **options})
        self.broker: Broker | None = None

    def _be_born(self) -> None:
        super()._be_born()
        before = getattr(self, "wrong", None)
        self.wrong = WrongClock(self.clock)
        if before is not None:
            self.wrong.ahead_ns = before.ahead_ns
        self.clock: Clock = self.wrong

    def start(self) -> Broker:
        self.broker = self.run(self.open())
        return self.broker

    def restart(self) -> Broker:
        assert self.broker is not None
        self.crash(self.broker, power=True)
        return self.start()

    def sleep(self, seconds: float) -> None:
        self.run(self.clock.sleep(seconds))

    def send(self, data: bytes) -> None:
        async def send() -> None:
            assert self.broker is not None
            async with self.broker.producer("t") as p:
                await p.send(data)

        self.run(send())

    def error_s(self) -> float:
        """Return the difference of log time and real time."""
        assert self.broker is not None
        return (self.broker.machine.log.time - self.wrong.right.now_ns()) / SECOND

    def examined(self) -> Examination:
        assert self.broker is not None
        self.run(self.broker.close())
        self._platter.locks.clear()
        found: Examination = self.run(examine_disk(SimDisk(self._platter), now_ns=self.clock.now_ns()))
        self.start()
        return found


@pytest.fixture
def sky() -> Iterator[Sky]:
    made = Sky()
    made.start()
    yield made
    made.close(made.broker)


def for_a_frame_a_year_ahead(sky: Sky) -> None:
    sky.send(b"before")
    sky.wrong.ahead_ns = YEAR
    sky.send(b"in between")
    sky.wrong.ahead_ns = 0
    sky.sleep(2 * AHEAD_S)
    sky.send(b"after")
    assert abs(sky.error_s()) < 1.0, f"log time is wrong by {sky.error_s()} s"


def test_a_frame_of_a_clock_a_year_ahead_stops_nothing(sky: Sky) -> None:
    for_a_frame_a_year_ahead(sky)
    sky.restart()
    sky.send(b"later")
    assert abs(sky.error_s()) < 1.0


def test_without_the_bound_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker whose frames have the time of the wall clock is caught."""
    monkeypatch.setattr(LogClock, "now_ns", lambda self: self._clock.now_ns())
    sky = Sky()
    sky.start()
    with pytest.raises(AssertionError, match="log time is wrong by 3"):
        for_a_frame_a_year_ahead(sky)
    sky.close(sky.broker)


def test_what_is_young_does_not_expire_by_a_wrong_clock(sky: Sky) -> None:
    """Housekeeping must not expire young entries while the clock is wrong."""

    async def begin() -> None:
        assert sky.broker is not None
        await sky.broker.admin.create_topic("t", ttl_s=3600.0, roll_age_s=7200.0)
        await sky.broker.admin.create_subscription("t", "s", start="earliest")

    sky.run(begin())
    sky.send(b"young")
    sky.wrong.ahead_ns = YEAR
    sky.sleep(30)
    sky.wrong.ahead_ns = 0
    sky.sleep(30)
    assert sky.broker is not None
    assert sky.broker.admin.subscription_stats("t", "s").backlog == 1
    assert not sky.broker.admin.topic_stats("t").ledgers[0].sealed
    sky.sleep(3700)  # old entries do
    assert sky.broker.admin.subscription_stats("t", "s").backlog == 0


def test_a_clock_that_was_set_is_believed_when_it_has_lasted(sky: Sky) -> None:
    sky.send(b"before")
    sky.wrong.ahead_ns = 24 * 3600 * SECOND
    sky.sleep(2 * CONFIRM_S + 10)  # housekeeping looks at it now and then
    sky.send(b"after")
    assert abs(sky.error_s() - 24 * 3600) < 1.0


def test_a_clock_that_was_never_set_is_believed_at_once() -> None:
    """A machine without a battery starts in 1970, and gets the time minutes later."""
    sky = Sky()
    sky.wrong.ahead_ns = -sky.clock.now_ns()
    sky.start()
    sky.send(b"1970")
    assert sky.broker is not None
    assert sky.broker.machine.log.time < 3600 * SECOND
    sky.wrong.ahead_ns = 0
    sky.send(b"today")
    assert abs(sky.error_s()) < 1.0
    sky.close(sky.broker)


def test_a_clock_that_is_behind_or_stands_still_moves_nothing_back(sky: Sky) -> None:
    sky.send(b"before")
    assert sky.broker is not None
    before = sky.broker.machine.log.time
    sky.wrong.ahead_ns = -YEAR
    sky.send(b"behind")
    sky.restart()
    sky.send(b"still behind")
    assert sky.broker.machine.log.time >= before
    sky.wrong.ahead_ns, sky.wrong.stopped_ns = 0, sky.wrong.right.now_ns()
    sky.send(b"stands still")
    sky.sleep(10)
    sky.send(b"stands still")
    sky.wrong.stopped_ns = None
    sky.sleep(3 * CONFIRM_S)
    sky.send(b"goes on")
    assert abs(sky.error_s()) < 1.0


@pytest.mark.parametrize("seed", seeds("clocks", test=8))
def test_clocks_that_jump(seed: int) -> None:
    """Log time never goes back, nor ahead of the largest offset that lasted."""
    chance = random.Random(seed)
    sky = Sky(seed)
    broker, last = sky.start(), 0
    for step in range(60):
        jump = chance.choice([0, 0, 0, YEAR, -YEAR, 3600 * SECOND, -5 * SECOND, 20 * SECOND])
        sky.wrong.ahead_ns = jump
        sky.send(b"%d" % step)
        sky.wrong.ahead_ns = 0  # each jump is short
        assert broker.machine.log.time >= last
        last = broker.machine.log.time
        assert sky.error_s() <= AHEAD_S + 1
        sky.sleep(chance.choice([0.1, 5.0, 60.0]))
        if chance.random() < 0.1:
            slept = broker.machine.log.time  # housekeeping may have sent events since
            broker = sky.restart()
            assert last <= broker.machine.log.time <= slept
        broker.machine.check()
    sky.close(sky.broker)


def pushed_ahead(sky: Sky) -> None:
    """Start a broker with a clock a year ahead: it cannot notice."""
    sky.wrong.ahead_ns = YEAR
    sky.restart()
    sky.send(b"a year ahead")
    sky.wrong.ahead_ns = 0
    sky.restart()
    sky.send(b"frozen")
    assert sky.error_s() > 300 * 24 * 3600


def told_ahead_s(sky: Sky) -> float:
    """Return how far log time is ahead, from the metrics."""
    assert sky.broker is not None
    page = sky.broker.metrics()
    (value,) = re.findall(r"^holdfast_log_time_ahead_seconds\{.*\} (.*)$", page, re.MULTILINE)
    return float(value)


def test_the_doctor_tells_and_a_repair_mends(sky: Sky) -> None:
    sky.send(b"before")
    assert not [each for each in sky.examined().notes if "log time" in each]
    pushed_ahead(sky)
    assert sky.broker is not None
    assert sky.broker.stats().log_time_ahead_s > 300 * 24 * 3600
    assert told_ahead_s(sky) > 300 * 24 * 3600
    found = sky.examined()
    assert found.sound
    (note,) = [each for each in found.notes if "log time" in each]
    assert "ahead of this machine's clock" in note
    assert "--repair-time" in note
    assert sky.run(sky.broker.admin.repair_time()) > 300 * 24 * 3600
    assert sky.broker.stats().log_time_ahead_s == told_ahead_s(sky) == 0
    sky.send(b"mended")
    assert abs(sky.error_s()) < 1.0
    sky.broker.machine.check()
    digest = sky.broker.machine.digest()
    assert sky.run(sky.broker.admin.repair_time()) == 0.0
    assert sky.broker.machine.digest() == digest
    sky.restart()
    sky.send(b"and so after a restart")
    assert abs(sky.error_s()) < 1.0
    assert not [each for each in sky.examined().notes if "log time" in each]


def test_ages_and_times_go_on_after_a_repair(sky: Sky) -> None:
    """Entries from a year ahead expire, and a seek by time finds later ones."""

    async def begin() -> None:
        assert sky.broker is not None
        await sky.broker.admin.create_topic("t", ttl_s=600.0)
        await sky.broker.admin.create_subscription("t", "s", start="earliest")

    sky.run(begin())
    pushed_ahead(sky)
    assert sky.broker is not None
    sky.run(sky.broker.admin.repair_time())
    sky.sleep(60)
    since = sky.clock.now_ns()
    sky.send(b"since")

    async def seek() -> Any:
        assert sky.broker is not None
        async with sky.broker.reader("t", start=since) as reader:
            return (await reader.read(timeout=1)).data

    assert sky.run(seek()) == b"since"
    assert sky.broker.admin.subscription_stats("t", "s").backlog == 3
    sky.sleep(700)
    assert sky.broker.admin.subscription_stats("t", "s").backlog == 0


def test_the_bound_is_asked_by_the_engine(sky: Sky) -> None:
    assert sky.broker is not None
    assert isinstance(sky.broker.engine, Engine)
    sky.wrong.ahead_ns = YEAR

    async def look() -> tuple[int, int]:
        assert sky.broker is not None
        await asyncio.sleep(0)
        stamp = sky.broker.engine.log_clock.now_ns()
        return stamp, sky.broker.engine.log_clock.refused_ns

    stamp, refused = sky.run(look())
    assert abs(stamp - sky.wrong.right.now_ns() - AHEAD_S * SECOND) < SECOND
    assert refused > YEAR - 100 * SECOND


# -- a jump at every step of disk and clock ------------------------------------------------------------


class Stepped(Sky):
    """A world whose clock jumps at the n-th call of the disk or the clock."""

    def __init__(self, nth: int, jump_ns: int, of: str) -> None:
        super().__init__()
        self.steps, self.jumped_early = 0, False
        self._nth, self._jump_ns = nth, jump_ns
        if of == "disk":
            operate = self._platter.operate

            async def counted(operation: str, generation: int) -> bool:
                self._step()
                return await operate(operation, generation)

            self._platter.operate = counted  # type: ignore[method-assign]
        else:
            look = self.wrong.now_ns

            def now_ns() -> int:
                self._step()
                return look()

            self.wrong.now_ns = now_ns  # type: ignore[method-assign]

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._nth:
            self.wrong.ahead_ns = self._jump_ns
            self.jumped_early = self.broker is None


async def _day_of_work(broker: Broker) -> None:
    """Do every kind of step: entries, a roll, acknowledgements, a snapshot, a deleted topic."""
    await broker.admin.create_topic("t", ttl_s=3600.0)
    await broker.admin.create_subscription("t", "s", start="earliest")
    async with broker.producer("t") as p, broker.consumer("t", "s") as c:
        for number in range(3):
            await p.send(b"%d" % number)
        await c.ack(await c.receive(timeout=5), receipt=True)
        await broker.admin.roll("t")
        await p.send(b"3")
    await broker.admin.snapshot()
    await broker.admin.create_topic("gone")
    await broker.admin.delete_topic("gone")


def jump_at(nth: int, jump_ns: int, of: str) -> int:
    """Jump at the n-th step, until a power cut; return the number of steps."""
    world = Stepped(nth, jump_ns, of)
    broker = world.start()
    world.run(_day_of_work(broker))
    world.sleep(20)  # housekeeping runs
    before, error_s = broker.machine.log.time, world.error_s()
    if not world.jumped_early:  # a clock that is wrong from the start is believed
        assert error_s <= AHEAD_S + 1, f"step {nth}: log time is {error_s:.0f} s ahead"
        assert broker.admin.subscription_stats("t", "s").backlog == 3, f"step {nth}: a young message expired"
    steps = world.steps
    world.wrong.ahead_ns = 0
    broker = world.restart()
    assert broker.machine.log.time <= before + SECOND
    found = world.run(broker.admin.examine("t", "earliest", 10))
    assert [bytes(m.data) for m in found] == [b"0", b"1", b"2", b"3"], f"step {nth}"
    assert broker.admin.subscription_stats("t", "s").backlog == 3
    broker.machine.check()
    world.close(broker)
    return steps


@pytest.mark.parametrize("of", ["disk", "clock"])
@pytest.mark.parametrize("jump", [YEAR, -YEAR], ids=["ahead", "behind"])
def test_a_jump_at_every_step(jump: int, of: str) -> None:
    """Every eighth step here, all of them in `make nightly`."""
    steps = jump_at(0, 0, of)
    assert steps > 10
    for nth in range(1, steps + 1, pick(test=8, nightly=1)):
        jump_at(nth, jump, of)


def test_a_jump_that_is_believed_at_once_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker whose frames have the time of the wall clock is caught."""
    monkeypatch.setattr(LogClock, "now_ns", lambda self: self._clock.now_ns())
    steps = jump_at(0, 0, "disk")
    with pytest.raises(AssertionError, match=r"log time is|young message expired"):
        jump_at(steps // 2, YEAR, "disk")
