"""The wall clock jumps while a real broker stands at a named step of journal, ledgers, snapshot or recovery.

The process stops itself there (SIGSTOP), the clock is set, and it goes on. Then log time is near the right
time, has not gone back, and all that was confirmed is there, also after the next start.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast import _core
from holdfast.broker.broker import Broker
from holdfast.broker.log_time import AHEAD_S, LogClock
from tests.kit import module_command
from tests.kit.broker.kills import POINTS
from tests.kit.processes import process_state, until
from tests.kit.wall_clock import SECOND, YEAR, WallClock

NOT_HERE = ("recover_cut", "recover_truncated", "recover_redo", "recover_ledger", "journal_made")
"""They need a death before, or more journal than a life has here."""
STEPS = [point for point in POINTS if point not in NOT_HERE]
JUMPS = (YEAR, -YEAR)


def jump_at_steps(directory: Path, steps: Sequence[str] = STEPS, broken: bool = False) -> set[str]:
    """Jump at each step, ahead and behind; return the steps that the broker came by."""
    passed = set()
    with WallClock(directory) as clock:
        command = [*module_command(__file__), str(directory / "data"), "broken" if broken else ""]
        environment = os.environ | clock.environment
        with subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as life:
            assert life.stdin is not None
            assert life.stdout is not None
            try:
                for step in steps:
                    for jump in JUMPS:
                        life.stdin.write(f"{step}\n")
                        life.stdin.flush()
                        until(lambda: process_state(life.pid) in "TZ" or _told(life))
                        if process_state(life.pid) == "T":
                            passed.add(step)
                            clock.ahead(jump)
                            life.send_signal(signal.SIGCONT)
                        told = json.loads(life.stdout.readline() or '{"fault": "it ended"}')
                        clock.right()
                        judge(told, f"{step}, {jump / YEAR:+.0f} year")
            finally:
                life.kill()
    return passed


def _told(life: subprocess.Popen[str]) -> bool:
    assert life.stdout is not None
    return bool(select.select([life.stdout], [], [], 0)[0])


def judge(told: dict[str, object], where: str) -> None:
    """Raises AssertionError if something is wrong with what the broker tells."""
    assert "fault" not in told, f"{where}: {told['fault']}"
    before, after = int(str(told["before"])), int(str(told["after"]))
    ahead_s = (after - time.time_ns()) / SECOND
    assert after >= before or told["repaired"], f"{where}: log time went back"
    # A clock that is wrong from the start is believed: the next life is right again, and repairs log time.
    assert ahead_s < AHEAD_S + 30 or where.startswith("recover_"), (
        f"{where}: log time is {ahead_s:.0f} s ahead"
    )
    assert told["there"] == told["confirmed"], f"{where}: {told}"


# -- the broker ----------------------------------------------------------------------------------------


async def work(data: str, confirmed: int) -> tuple[int, int, int, bool]:
    """A life; return what is confirmed and there, log time, and whether it was repaired."""
    async with Broker.open(data, sync="os", journal_bytes=1 << 16, reserve_bytes=1 << 14) as broker:
        repaired = broker.stats().log_time_ahead_s > 1000 * AHEAD_S and await broker.admin.repair_time() > 0
        async with broker.producer("kept", name="p") as p, broker.producer("gone", name="p") as other:
            for _ in range(3):
                await p.send(b"%d" % confirmed + bytes(8000))
                await other.send(b"x")
                confirmed += 1
            await broker.admin.roll("gone")
            await other.send(b"x")
        await broker.admin.delete_topic("gone", force=True)
        for _ in range(3):
            await broker.admin.snapshot()
        found = await broker.admin.examine("kept", "earliest", 1 << 20)
        return confirmed, len(found), broker.machine.log.time, repaired


async def prepare(data: str) -> None:
    async with Broker.open(data) as broker:
        await broker.admin.create_topic("kept", retention_bytes=-1)


def main(data: str, broken: str) -> None:
    if broken:
        LogClock.now_ns = lambda self: self._clock.now_ns()  # type: ignore[method-assign]
    asyncio.run(prepare(data))
    confirmed = before = 0
    for line in sys.stdin:
        _core.arm(line.strip(), "stop")
        try:
            confirmed, there, after, repaired = asyncio.run(work(data, confirmed))
            told: dict[str, object] = {"before": before, "after": after, "repaired": repaired}
            told |= {"confirmed": confirmed, "there": there}
            before = after
        except Exception as error:
            told = {"fault": repr(error)}
        _core.disarm()
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
