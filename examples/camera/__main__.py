"""Kill provider, viewers and tracer of a camera in turn; the others go on.

python -m examples.camera
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from examples.camera.account import Account, Seen
from examples.camera.service import INSTANCE, Camera, read_records
from holdfast import Proxy

CONSUMERS = ("viewer-1", "viewer-2", "tracer")
PATIENCE_S = 30.0
"""How long a process may take to its first frame."""


class Rig:
    """All processes; each is killed in its turn, and started again."""

    def __init__(self, folder: Path, rate: float) -> None:
        """Keep the records of the run in `folder`."""
        self.folder, self.rate = folder, rate
        self.kills = dict.fromkeys(("provider", *CONSUMERS), 0)
        self.killed: set[int] = set()
        self.faults: list[str] = []
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        module, arguments = ("consumer", [name, str(self.record(name))])
        if name == "provider":
            module, arguments = name, [str(self.rate), str(self.folder / "departed")]
        command = [sys.executable, "-m", f"examples.camera.{module}", *arguments]
        self.running[name] = subprocess.Popen(command)

    def record(self, name: str) -> Path:
        return self.folder / name

    def run(self, camera: Proxy, seconds: float) -> None:
        """Kill the processes in turn until the time is over."""
        for name in CONSUMERS:
            self.start(name)
        for name in CONSUMERS:
            self.wait(lambda name=name: self.sees(name), f"{name} saw no frame")  # type: ignore[misc]
        end = time.monotonic() + seconds
        for name in cycle(("provider", *CONSUMERS)):
            if time.monotonic() >= end or self.faults:
                return
            self.kill(name)
            self.start(name)
            self.wait(lambda name=name: self.works(name, camera), f"{name} did not come back")  # type: ignore[misc]
            time.sleep(0.05)

    def kill(self, name: str) -> None:
        victim = self.running[name]
        victim.send_signal(signal.SIGKILL)
        if victim.wait() != -signal.SIGKILL:
            self.faults.append(f"{name} ended with status {victim.returncode}")
        self.kills[name] += 1
        if name != "provider":
            self.killed.add(victim.pid)

    def works(self, name: str, camera: Proxy) -> bool:
        """Return whether the newest process of this name provides or sees frames."""
        return camera.offered if name == "provider" else self.sees(name)

    def sees(self, name: str) -> bool:
        """Return whether this life of a consumer has written a frame down."""
        return self.running[name].pid in read_records(self.record(name))["consumer"][-1:]

    def wait(self, condition: Callable[[], bool], words: str) -> None:
        until = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > until or any(each.poll() for each in self.running.values()):
                self.faults.append(words)
                return
            time.sleep(0.005)

    def stop(self, *names: str) -> None:
        """Ask processes to end in order."""
        for name in names:
            self.running[name].terminate()
        for name in names:
            if self.running[name].wait(PATIENCE_S) != 0:
                self.faults.append(f"{name} ended with status {self.running[name].returncode}")

    def departed(self) -> set[int]:
        path = self.folder / "departed"
        return {int(line) for line in path.read_text().split()} if path.exists() else set()

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def free_samples(camera: Proxy) -> int:
    """Return the samples that are free or that the provider fills just now."""
    [frame] = camera.stats().elements
    return frame.free + frame.writing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="duration of the kills (default 8)")
    parser.add_argument("--rate", type=float, default=100.0, help="frames per second (default 100)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), options.rate)
        try:
            rig.start("provider")
            with Camera.find(INSTANCE, timeout=PATIENCE_S, application="account") as camera:
                before = free_samples(camera)
                rig.run(camera, options.seconds)
                rig.wait(lambda: rig.killed <= rig.departed(), "a death was not told")
                rig.stop(*CONSUMERS)
                after = free_samples(camera)
                rig.stop("provider")
                [frame] = camera.stats().elements
                seen = {name: Seen(read_records(rig.record(name))) for name in CONSUMERS}
                account = Account(
                    frame.published,
                    seen,
                    rig.kills,
                    rig.killed,
                    rig.departed(),
                    before,
                    after,
                    camera.check(),
                )
        finally:
            rig.end()
        Camera.unlink(INSTANCE)  # the provider ended before the account's proxy
    faults = [*rig.faults, *account.faults()]
    print("\n".join(account.lines(options.rate)))
    print("\n".join(f"fault: {each}" for each in faults) or "every frame and every sample is accounted for")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
