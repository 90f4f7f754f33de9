"""Months of queues in minutes: queues come and go, and attached processes are killed.

A round kills a reader that holds messages, a writer in the middle of a put and a process that only attached.
Their slots, locks, blocks and mappings are found and reused, so every figure stays level.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Self

from holdfast import Message, Queue, _core
from holdfast.errors import Empty, Timeout
from tests.kit import module_command
from tests.kit.growth.allocated import allocated_bytes
from tests.kit.growth.figures import COUNT, Kind, Run

LEAKS: dict[str, str] = {
    "queues are not unlinked": "files",
    "attached queues are kept": "descriptors",
    "a message stays taken": "bytes in use",
}
"""Leaks by name: the figure that must show it."""


class QueueMonths:
    """A queue that stays, others that do not, and figures of process and directory."""

    def __init__(self, directory: Path, leak: str = "") -> None:
        self.directory = str(directory)
        self.leak = leak
        self.kept = Queue.create("kept", capacity=1 << 16, directory=self.directory)
        self.at = 0
        self._granules = 0
        self._put = self._got = 0
        self._leaked: list[Queue] = []
        self._held: list[Message] = []
        self._slots = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for message in self._held:
            message.settle()
        for queue in (*self._leaked, self.kept):
            queue.detach()

    # -- a round ---------------------------------------------------------------------------------------

    def round(self) -> None:
        self.at += 1
        before = self.kept.stats().positions_left
        self._come_and_go()
        self._killed()
        self._attached()
        self._waiting()
        self._granules = before - self.kept.stats().positions_left
        assert self.kept.check() == [], self.kept.check()
        assert self._put == self._got, f"{self._put} messages were put, {self._got} came"

    def _come_and_go(self) -> None:
        """Run a queue from its creation to its end."""
        name = f"round-{self.at:06d}"
        for _ in range(3):
            with Queue.create(name, capacity=1 << 14, directory=self.directory) as queue:
                with Queue.open(name, directory=self.directory) as other:
                    other.put_many([b"x" * 50] * 10)
                    other.close()
                got = 0
                for message in queue:
                    message.settle()
                    got += 1
                assert got == 10
            if self.leak != "queues are not unlinked":
                Queue.unlink(name, directory=self.directory)
            else:
                name += "x"

    def _killed(self) -> None:
        """Kill attached processes: with messages, in the middle of a put, and idle."""
        self.kept.put_many([b"m" * 100] * 6)
        self._put += 6

        def hold(queue: Queue) -> None:
            keep = [queue.get(timeout=5), queue.get(timeout=5)]
            os.kill(os.getpid(), signal.SIGKILL)
            assert keep

        def half(queue: Queue) -> None:
            _core.arm("put_payload")
            queue.put(b"half")

        def orderly(queue: Queue) -> None:
            queue.put(b"whole")
            queue.detach()
            os._exit(0)

        self._in_processes((hold, half, orderly, lambda _: None))
        self._put += 1
        self._drain()
        if self.leak == "a message stays taken":
            self.kept.put(b"held")
            self._held.append(self.kept.get(timeout=5))

    def _in_processes(self, works: Iterable[Callable[[Queue], None]]) -> None:
        for work in works:
            pid = os.fork()
            if pid == 0:
                try:
                    queue = Queue.open("kept", directory=self.directory)
                    work(queue)
                finally:
                    os.kill(os.getpid(), signal.SIGKILL)
            os.waitpid(pid, 0)
            self._slots = max(each.slot for each in self.kept.stats().participants) + 1

    def _drain(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                with self.kept.get(timeout=0):
                    self._got += 1

    def _attached(self) -> None:
        """Attach in this process; detach some attachments, and drop the others."""
        for number in range(4):
            queue = Queue.open("kept", directory=self.directory)
            queue.put(b"y")
            self._put += 1
            if self.leak == "attached queues are kept":
                self._leaked.append(queue)
            elif number % 2:
                queue.detach()
        del queue
        gc.collect()
        self._drain()

    def _waiting(self) -> None:
        """Wait until a timeout, in a thread and with asyncio."""

        async def wait() -> None:
            with contextlib.suppress(Timeout):
                await self.kept.aget(timeout=0.002)

        with contextlib.suppress(Timeout):
            self.kept.get(timeout=0.002)
        asyncio.run(wait())

    # -- figures ---------------------------------------------------------------------------------------

    def figures(self) -> dict[str, tuple[Kind, float]]:
        gc.collect()
        stats = self.kept.stats()
        here = Path("/proc/self")
        return {
            "descriptors": (COUNT, sum(1 for _ in (here / "fd").iterdir())),
            "threads": (COUNT, sum(1 for _ in (here / "task").iterdir())),
            "mappings": (COUNT, sum(self.directory in line for line in (here / "maps").open())),
            "files": (COUNT, sum(1 for _ in Path(self.directory).iterdir())),
            "slots": (COUNT, self._slots),
            "participants": (COUNT, len(stats.participants)),
            "holders": (COUNT, len(stats.holders)),
            "bytes in use": (COUNT, stats.used_bytes),
            "granules of a round": (COUNT, self._granules),
            "allocated blocks": (Kind("", 120), sys.getallocatedblocks()),
            "allocated bytes": (Kind("B", 4096), allocated_bytes()),
        }


def months(directory: Path, rounds: Iterable[int], warm_up: int, leak: str = "") -> Run:
    """Run the rounds in their own process, so that nothing else counts; return figures."""
    run = Run("queues", warm_up)
    command = [*module_command(__file__), str(directory), leak]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as world:
        assert world.stdin is not None
        assert world.stdout is not None
        for _ in rounds:
            world.stdin.write("round\n")
            world.stdin.flush()
            line = world.stdout.readline()
            assert line, f"the round failed, status {world.wait()}"
            run.note({name: (Kind(*kind), value) for name, (kind, value) in json.loads(line).items()})
        world.stdin.close()
    return run


def main(directory: str, leak: str) -> None:
    with QueueMonths(Path(directory), leak) as world:
        for _ in sys.stdin:
            world.round()
            told = {name: (astuple(kind), value) for name, (kind, value) in world.figures().items()}
            print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
