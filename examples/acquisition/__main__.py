"""Acquire frames at a fixed rate while the analysing process is killed; no buffer leaks.

python -m examples.acquisition
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from examples.acquisition.account import Account
from examples.acquisition.acquire import Report
from examples.acquisition.frame import FRAME, SLOTS, read_numbers
from holdfast import Loop

START_S = 10.0
"""How long an analysing process may take to its first frame; then it is killed anyway."""


def start(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", f"examples.acquisition.{module}", *map(str, arguments)])


class Rig:
    """Both processes; the analysing one is killed and started again."""

    def __init__(self, name: str, folder: Path, rate: float) -> None:
        """Keep the records of the run in `folder`."""
        self.name, self.folder, self.rate = name, folder, rate
        self.record = folder / "analysed"
        self.kills = 0
        self.faults: list[str] = []
        self.running: list[subprocess.Popen[bytes]] = []

    def run(self, seconds: float) -> None:
        """Run both until the acquisition ends; then let the last analysing process empty the ring."""
        acquiring = start("acquire", self.name, self.rate, int(seconds * self.rate), self.folder)
        self.running = [acquiring]
        while acquiring.poll() is None:
            self.kill(self.analysing("killed"), acquiring)
        last = self.analysing("last")
        for process in (acquiring, last):
            if process.wait() != 0:
                self.faults.append(f"a process ended with status {process.returncode}")

    def analysing(self, how: str) -> subprocess.Popen[bytes]:
        process = start("analyse", self.name, self.record, 3 / self.rate, how)
        self.running = [*self.running[:1], process]
        return process

    def kill(self, victim: subprocess.Popen[bytes], acquiring: subprocess.Popen[bytes]) -> None:
        """Kill a process at a random moment.

        Usually it has analysed a frame by then; sometimes it only starts.
        """
        size, until = self.size(), time.monotonic() + START_S
        if random.random() < 0.8:
            while self.size() == size and time.monotonic() < until and acquiring.poll() is None:
                time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.8))
        victim.send_signal(signal.SIGKILL)
        if victim.wait() != -signal.SIGKILL:
            self.faults.append(f"the analysing process ended with status {victim.returncode}")
        self.kills += 1

    def size(self) -> int:
        return self.record.stat().st_size if self.record.exists() else 0

    def account(self, loop: Loop) -> Account:
        """Read the records, and count the buffers."""
        report = Report(**json.loads((self.folder / "report.json").read_text()))
        displaced = read_numbers(self.folder / "displaced")
        return Account(report, read_numbers(self.record), displaced, self.kills, loop.stats(), loop.check())

    def end(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.kill()
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration (default 5)")
    parser.add_argument("--rate", type=float, default=100.0, help="frames per second (default 100)")
    options = parser.parse_args()
    if not (0 < options.seconds < math.inf and 0 < options.rate < math.inf):
        parser.error("--seconds and --rate must be more than 0")
    name = f"frames.{os.getpid()}"
    with (
        tempfile.TemporaryDirectory() as folder,
        Loop.create(name, slots=SLOTS, dtype=FRAME, shape=1) as loop,
    ):
        rig = Rig(name, Path(folder), options.rate)
        try:
            rig.run(options.seconds)
            account = rig.account(loop)
        finally:
            rig.end()
            Loop.unlink(name)
    faults = [*rig.faults, *account.faults()]
    print("\n".join(account.lines(options.rate)))
    print("\n".join(f"fault: {each}" for each in faults) or "every frame and every buffer is accounted for")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
