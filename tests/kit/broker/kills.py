"""Kill storms on a broker: one life after another on one directory.

A life is killed at a random moment or at a named step, and everything that it promised is accounted for. A
storm runs in a process of its own (`kills.py PLAN`), which forks the lives. A life appends records to `log`,
each with one `write`, so that a killed process leaves whole records only. It writes a record before each
request to the broker (small letter), and after each answer (capital letter). After it has opened the broker
it writes down the contents: each topic from first to last message, and each subscription's unacknowledged
messages. The storm compares the two (`Judge`).
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from holdfast import _core
from holdfast.broker.broker import Broker
from tests.kit import module_command
from tests.kit.broker.judge import Account, Judge, Seen
from tests.kit.broker.work import Work
from tests.kit.queue.storm import die_with_parent

STUCK_S = 30.0
"""Hang limit of a life, in seconds."""
NOT_HERE = ("ledger_rewritten", "ledger_switched", "reserve_", "backup_", "restore_", "format_")
"""Steps of a failing or full disk, of other programs, and of the first start."""
POINTS = [point for point in _core.log_points() if not point.startswith(NOT_HERE)]
"""Steps that a storm passes."""


@dataclass(frozen=True)
class Plan:
    """The settings of a storm."""

    name: str = "group"
    kills: int = 50
    seconds: float = 1e9
    seed: int = 0
    sync: str = "group"
    each_step: int = 0
    """Not 0: go on until so many lives have died at every step. Each life is armed with the rarest one."""
    armed: float = 0.6
    """The share of lives that are armed with a random step, if `each_step` is 0."""
    life_ms: float = 80.0
    """The average duration of a life that is not armed."""
    roll_entries: int = 40
    snapshot_bytes: int = 60_000
    journal_bytes: int = 1 << 18
    broken: str = ""
    """The name of a broken broker (kit/broker/mutants.py), which the storm must notice."""


PLANS = (
    Plan("group"),
    Plan("os", sync="os"),
    Plan("always", sync="always", life_ms=50),
    Plan("snapshots", snapshot_bytes=8_000, roll_entries=10),
    Plan("few snapshots", snapshot_bytes=1 << 26, roll_entries=500, life_ms=150),
)


class Life(Work):
    """A forked process: it opens, records the contents, and works until its end."""

    def __init__(self, plan: Plan, directory: str, number: int, seed: int) -> None:
        super().__init__(0, number, random.Random(seed))
        self.plan, self.directory = plan, directory
        self.log = os.open(f"{directory}/log", os.O_WRONLY | os.O_APPEND)

    def note(self, *record: object) -> None:
        os.write(self.log, json.dumps(record).encode() + b"\n")

    def saw(self, seen: Seen) -> None:
        """Write the contents to a file, which is complete or absent."""
        path = Path(self.directory, f"seen.{self.life}")
        path.with_suffix(".new").write_bytes(pickle.dumps(seen))
        path.with_suffix(".new").rename(path)
        self.note("SEEN", self.life)

    async def live(self) -> None:
        plan = self.plan
        opening = Broker.open(
            f"{self.directory}/data",
            sync=plan.sync,
            roll_entries=plan.roll_entries,
            snapshot_bytes=plan.snapshot_bytes,
            journal_bytes=plan.journal_bytes,
            housekeeping_s=0.02,
            reserve_bytes=1 << 16,
            reset_timeout_s=5.0,
        )
        async with opening as broker:
            await self.prepare(broker)
            self.saw(await self.look(broker))
            await self.work(broker)

    def end(self, *_: object) -> None:
        self.ending = True


class Storm:
    """Forks lives, one after another, kills them, and judges what each next one finds."""

    def __init__(self, plan: Plan, directory: str) -> None:
        self.plan, self.directory, self.random = plan, directory, random.Random(plan.seed)
        self.account = Account(plan.name, plan.seed)
        self.judge = Judge(self.account)
        self.number = 0
        self.died_at = ""
        Path(directory, "log").touch()
        Path(directory, "errors").touch()

    def run(self) -> Account:
        begin = time.monotonic()
        gc.collect()
        gc.freeze()
        account = self.account
        while not account.faults and time.monotonic() - begin < self.plan.seconds:
            if account.kills >= self.plan.kills or (self.plan.each_step and not self.lagging()):
                break
            self.life()
        if not account.faults:
            self.life(calm=True)  # not killed
            self.life(calm=True)  # and finds what a clean end leaves
        account.seconds = time.monotonic() - begin
        account.log_bytes = Path(self.directory, "log").stat().st_size
        return account

    def life(self, calm: bool = False) -> None:
        self.number += 1
        self.account.lives += 1
        seed = self.random.getrandbits(32)
        point = "" if calm else self.choose()
        countdown = 1 if self.plan.each_step else self.random.choice((1, 1, 2, 3, 12))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until the child can handle it
        pid = os.fork()
        if pid == 0:
            self.be(seed, point, countdown)
        killed = self.wait(pid, calm, bool(point))
        status = os.waitpid(pid, 0)[1]
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            self.account.kills += 1
            self.died_at = "" if killed else point
            if not killed:
                self.account.steps[point] = self.account.steps.get(point, 0) + 1
        elif status != 0:
            said = Path(self.directory, "errors").read_text()[-3000:]
            self.account.faults.append(f"life {self.number} ended with status {status}: {said}")
        self.judge.read(Path(self.directory), self.number, clean=status == 0)

    def lagging(self) -> list[str]:
        return [point for point in POINTS if self.account.steps.get(point, 0) < self.plan.each_step]

    def choose(self) -> str:
        if self.plan.each_step:
            lagging = self.lagging() or [""]
            if self.died_at == "journal_half" and "recover_cut" in lagging:
                return "recover_cut"
            chosen = lagging[self.number % len(lagging)]
            # A cut-off needs the half round that the last life left.
            return "journal_half" if chosen == "recover_cut" and self.died_at != "journal_half" else chosen
        return self.random.choice(POINTS) if self.random.random() < self.plan.armed else ""

    def wait(self, pid: int, calm: bool, armed: bool) -> bool:
        """Wait for a life, and kill it in time; return whether we killed it.

        An armed life gets more time to reach its step.
        """
        mean = 0.15 if calm else self.plan.life_ms / 1000
        if armed or self.random.random() < 0.7:
            self.until_seen(pid)  # most lives must reach their work, or nothing would happen
        patience = self.random.expovariate(1 / mean) + 0.002
        if armed:
            patience = 0.6 if self.plan.each_step else 2 * mean
        if self.ended(pid, patience):
            return False
        if not calm:
            os.kill(pid, signal.SIGKILL)
            return True
        os.kill(pid, signal.SIGTERM)
        if self.ended(pid, STUCK_S):
            return False
        self.account.faults.append(f"life {self.number} does not end")
        os.kill(pid, signal.SIGABRT)
        return True

    def until_seen(self, pid: int) -> None:
        """Wait while the life recovers and records the contents."""
        until = time.monotonic() + STUCK_S
        while time.monotonic() < until and not Path(self.directory, f"seen.{self.number}").exists():
            if self.ended(pid, 0.002):
                break

    @staticmethod
    def ended(pid: int, patience_s: float) -> bool:
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                return True
            time.sleep(0.001)
        return False

    def be(self, seed: int, point: str, countdown: int) -> None:
        status = 1
        try:
            die_with_parent()
            if point:
                _core.arm(point, "kill", countdown)
            life = Life(self.plan, self.directory, self.number, seed)
            signal.signal(signal.SIGTERM, life.end)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            asyncio.run(life.live())
            status = 0
        except BaseException:
            with Path(self.directory, "errors").open("a") as errors:
                errors.write(f"life {self.number}: {traceback.format_exc()}\n")
        finally:
            os._exit(status)


def run(plan: Plan, keep: str | None = None) -> Account:
    """Run a storm in its own process; copy a faulty one's directory to `keep`."""
    done = subprocess.run(
        [*module_command(__file__), json.dumps(asdict(plan)), keep or ""],
        capture_output=True,
        text=True,
        timeout=min(plan.seconds, 600) + 120,
        check=False,
    )
    if done.returncode != 0:
        return Account(plan.name, plan.seed, faults=[done.stderr[-3000:]])
    return Account(**json.loads(done.stdout))


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    if plan.broken:
        import pytest

        from tests.kit.broker.mutants import MUTANTS

        MUTANTS[plan.broken](pytest.MonkeyPatch())
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-storm.") as directory:
        account = Storm(plan, directory).run()
        if account.faults and sys.argv[2]:
            shutil.copytree(directory, sys.argv[2], dirs_exist_ok=True)
        print(json.dumps(asdict(account)))


if __name__ == "__main__":
    main()
