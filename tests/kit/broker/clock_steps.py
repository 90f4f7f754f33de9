"""Let the wall clock jump or stop while a real broker stands at a step.

The process stops itself at the step (SIGSTOP), the clock is set, and the process continues. Then log time is
near the right time and has not gone back. All confirmed messages exist with their stored time, also after the
next start.

An orderly run passes most steps. The others need a situation before them (`SITUATIONS`). It is a broker that
was killed during a write, a full or failing disk, a new directory, or a backup.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from holdfast import _core
from holdfast.broker.api.producer import Producer
from holdfast.broker.broker import Broker
from holdfast.broker.log_time import AHEAD_S, LogClock
from holdfast.broker.machine import Machine
from holdfast.errors import Exists
from holdfast.ledger.files.backup import backup, restore
from holdfast.names import topic_name
from tests.kit import module_command
from tests.kit.faults import ledger_sync_fails
from tests.kit.processes import PATIENCE_S, process_state, until
from tests.kit.queue.storm import die_with_parent
from tests.kit.wall_clock import SECOND, YEAR, WallClock

ORDERLY, DEATH, DISK, FRESH, COPY = "orderly", "death", "disk", "fresh", "copy"
SITUATIONS = {
    "recover_cut": DEATH,
    "recover_redo": DEATH,
    "recover_ledger": DEATH,
    "ledger_rewritten": DISK,
    "ledger_switched": DISK,
    "reserve_released": DISK,
    "reserve_restored": DISK,
    "format_made": FRESH,
    "journal_made": FRESH,
    "backup_copied": COPY,
    "restore_copied": COPY,
}
"""The situation that a step needs, if an orderly run does not pass it."""
FROM_THE_START = ("recover_", "format_", "journal_made", "backup_", "restore_")
"""Steps before a broker is open. The broker starts on a wrong clock and uses it; the next start repairs."""
JUMPS: dict[str, Callable[[WallClock], None]] = {
    "a year ahead": lambda clock: clock.ahead(YEAR),
    "a year behind": lambda clock: clock.ahead(-YEAR),
    "standing still": WallClock.stop,
}
STEPS = _core.log_points()
JOURNAL_BYTES = 1 << 16
MESSAGE_BYTES = 30_000
"""Three of them fill a journal file, so most runs start one, and their snapshots drop and recycle one."""
RUNS_MAX = 20
"""How many runs a step gets. A run on a busy machine may end before the next journal file is in use."""
Case = tuple[str, str]
"""A step, and the change of the clock there."""
ALL: list[Case] = list(product(STEPS, JUMPS))
EACH: list[Case] = [(step, list(JUMPS)[at % len(JUMPS)]) for at, step in enumerate(STEPS)]
"""Each step once, with one of the jumps."""


def jump_at_steps(
    directory: Path, cases: Iterable[Case] = EACH, broken: str = "", patience_s: float = PATIENCE_S
) -> set[str]:
    """Set the clock at each step; return the steps that the broker passed.

    Args:
        broken: the name of a broken broker in `BROKEN`.
        patience_s: how long a run may take from its step to its end.
    """
    passed = set()
    with WallClock(directory) as clock:
        command = [*module_command(__file__), str(directory), broken]
        environment = os.environ | clock.environment
        with subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as life:
            try:
                for step, jump in cases:
                    situation = SITUATIONS.get(step, ORDERLY)
                    for _ in range(RUNS_MAX):
                        if stopped := _stops(life, step, situation):
                            passed.add(step)
                            JUMPS[jump](clock)
                            life.send_signal(signal.SIGCONT)
                        judge(_answer(life, patience_s), f"{step}, {jump}")
                        if stopped:
                            break
                    clock.right()
                    if situation == FRESH:  # later cases use another directory
                        _stops(life, "", FRESH)
                        judge(_answer(life, patience_s), f"the start after {step}, {jump}")
                _stops(life, "", ORDERLY)
                judge(_answer(life, patience_s), "the last start")
            finally:
                life.kill()
    return passed


def _stops(life: subprocess.Popen[str], step: str, situation: str) -> bool:
    """Start a run; return whether it stops at the step."""
    assert life.stdin is not None
    life.stdin.write(f"{situation} {step}\n")
    life.stdin.flush()
    until(lambda: process_state(life.pid) in "TZ" or _told(life))
    return process_state(life.pid) == "T"


def _answer(life: subprocess.Popen[str], patience_s: float) -> dict[str, object]:
    """Return the report of a run."""
    assert life.stdout is not None
    until(lambda: process_state(life.pid) == "Z" or _told(life), patience_s)
    told: dict[str, object] = json.loads(life.stdout.readline() or '{"fault": "it ended"}')
    return told


def _told(life: subprocess.Popen[str]) -> bool:
    assert life.stdout is not None
    return bool(select.select([life.stdout], [], [], 0)[0])


def judge(told: dict[str, object], where: str) -> None:
    """Raise AssertionError if the broker's report shows a fault."""
    assert "fault" not in told, f"{where}: {told['fault']}"
    before, after = int(str(told["before"])), int(str(told["after"]))
    ahead_s = (after - time.time_ns()) / SECOND
    assert after >= before or told["repaired"], f"{where}: log time went back"
    assert ahead_s < AHEAD_S + 30 or where.startswith(FROM_THE_START), (
        f"{where}: log time is {ahead_s:.0f} s ahead"
    )


# -- the broker ----------------------------------------------------------------------------------------


@dataclass
class Lives:
    """Runs of brokers on one directory, one after another."""

    data: str
    stored: list[int] = field(default_factory=list)
    """The log time of each confirmed message."""
    log_time: int = 0
    repaired: bool = False
    """Log time was set back, as an operator does after a wrong clock."""
    confirmed: Callable[[int], None] = field(default=lambda _: None)
    """Called with the log time of each message as it is confirmed."""

    async def work(self, prepare: Callable[[], None], strike: bool) -> None:
        """Run a broker once.

        Args:
            prepare: called when the broker is open.
            strike: let the disk be full and then fail; the broker recovers from both.
        """
        async with Broker.open(
            self.data, sync="os", journal_bytes=JOURNAL_BYTES, reserve_bytes=1 << 14
        ) as broker:
            if broker.stats().log_time_ahead_s > 1000 * AHEAD_S:
                self.repaired = await broker.admin.repair_time() > 0
            with contextlib.suppress(Exists):
                await broker.admin.create_topic("kept", retention_bytes=-1)
            there = await self.times(broker)
            assert there[: len(self.stored)] == self.stored, f"of {self.stored} there is {there}"
            assert len(there) <= len(self.stored) + 1, "a killed run had one message under way"
            self.stored = there
            prepare()
            async with broker.producer("kept", name="p") as p, broker.producer("gone", name="p") as other:
                for _ in range(3):
                    await self.send(broker, p)
                    await other.send(b"x")
                if strike:
                    await self.strike(broker, p)
                await broker.admin.roll("gone")
                await other.send(b"x")
            await broker.admin.delete_topic("gone", force=True)
            for _ in range(3):
                await broker.admin.snapshot()
            there = await self.times(broker)
            assert there == self.stored, f"confirmed is {self.stored}, there is {there}"
            self.log_time = broker.machine.log.time

    async def times(self, broker: Broker, start: int = 0) -> list[int]:
        """Return the log times of the messages from an ordinal on."""
        topic, found = broker.topic(topic_name("kept")), list[int]()
        while start + len(found) < topic.visible:
            entries = await topic.read(start + len(found), 1 << 20, 1 << 20)
            found += [entries.time(number) for number in range(len(entries))]
        return found

    async def send(self, broker: Broker, producer: Producer) -> None:
        await producer.send(b"%d" % len(self.stored) + bytes(MESSAGE_BYTES))
        self.stored += await self.times(broker, len(self.stored))
        self.confirmed(self.stored[-1])

    async def strike(self, broker: Broker, producer: Producer) -> None:
        """Let a ledger find the disk full; then fail its sync: the broker rewrites it."""
        _core.arm_fault("ledger_write", 1, errno.ENOSPC)
        await self.send(broker, producer)
        await broker.store.flush()
        _core.disarm_fault()
        with ledger_sync_fails():
            await broker.admin.snapshot()

    def live(self, step: str, situation: str) -> dict[str, object]:
        """Run a broker that stops at the step; return its report."""
        before, self.repaired = self.log_time, False
        if situation == DEATH:
            self.die("journal_half")

        def arm() -> None:
            if step:
                _core.arm(step, "stop")

        if situation == DISK:  # each first start creates the reserve, too
            asyncio.run(self.work(arm, strike=True))
        else:
            arm()
            if situation == COPY:
                copy, new = f"{self.data}-backup", f"{self.data}-new"
                backup(self.data, copy)
                restore(copy, new)
                self.data = new
            asyncio.run(self.work(lambda: None, strike=False))
        _core.disarm()
        return {"before": before, "after": self.log_time, "repaired": self.repaired}

    def die(self, step: str) -> None:
        """Run a broker in a child process that kills itself at the step."""
        reads, writes = os.pipe()
        pid = os.fork()
        if pid == 0:

            def confirmed(time_ns: int) -> None:
                os.write(writes, b"%d %d" % (time_ns, self.repaired))
                _core.arm(step, "kill")

            try:
                die_with_parent()
                self.confirmed = confirmed
                asyncio.run(self.work(lambda: None, strike=False))
            finally:
                os._exit(1)
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            time_ns, repaired = map(int, pipe.read().split())
        status = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(status), "the process was to die"
        assert os.WTERMSIG(status) == signal.SIGKILL, "the process was to kill itself"
        self.stored.append(time_ns)
        self.repaired = bool(repaired)


def _wall_clock(self: LogClock) -> int:
    return self._clock.now_ns()


def _new_time(self: LogClock) -> int:
    last_ns = self.refused_ns  # a field that nothing else here reads
    while (now_ns := self._clock.now_ns()) == last_ns:
        time.sleep(0.001)
    self.refused_ns = now_ns
    return now_ns


def _redo_now(self: Machine, view: int, index: int, frame: bytes) -> None:
    """Redo a frame with the time of the recovery, not with that of the sender."""
    _redo(self, view, index, frame[:8] + time.time_ns().to_bytes(8, "little") + frame[16:])


_redo = Machine.redo
BROKEN: dict[str, tuple[type, str, Callable[..., object]]] = {
    "wall clock": (LogClock, "now_ns", _wall_clock),
    "each time is another": (LogClock, "now_ns", _new_time),
    "redo now": (Machine, "redo", _redo_now),
}
"""Brokers that the checks must notice."""


def main(directory: str, broken: str) -> None:
    if broken:
        setattr(*BROKEN[broken])
    lives, fresh, made = Lives(f"{directory}/data"), Lives(""), 0
    for line in sys.stdin:
        situation, _, step = line.strip().partition(" ")
        if situation == FRESH and step:
            made += 1
            fresh = Lives(f"{directory}/data{made}")
        try:
            told = (fresh if situation == FRESH else lives).live(step, situation)
        except Exception as error:
            told = {"fault": repr(error)}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
