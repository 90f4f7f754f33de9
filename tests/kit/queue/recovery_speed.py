"""Measure how soon survivors continue after a SIGKILL.

The time is from the kernel's release of the dead participant's lock to the survivor's return.

    python -m tests.kit.queue.recovery_speed --rounds 200

The goal is 1 ms on an idle machine; a blocked process asks the kernel every 0.5 ms whether the participant in
its way lives. The test compares it with a plain program that polls as often for the same death.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from holdfast import Full, Queue, _core
from tests.kit.processes import until
from tests.kit.queue.segments import BELLS
from tests.kit.queue.storm import die_with_parent

LOCK_BASE = 1 << 40  # native/holdfast/shm/lock_bytes.hpp: slot n's byte is LOCK_BASE + n
F_OFD_GETLK = 36
ASKS_S = 0.0005


def writes(q: Queue) -> None:
    """Claim a block, write it, and stop before the commit."""
    _core.arm("put_checksum", "stop")
    q.put(b"never")


def reads(q: Queue) -> None:
    message = q.get()
    os.kill(os.getpid(), signal.SIGSTOP)
    message.settle()


def gets(q: Queue) -> None:
    q.get_bytes(timeout=10)


def puts(q: Queue) -> None:
    q.put(b"", timeout=10)


# By name: what the victim does, and what the survivor waits for.
SCENES: dict[str, tuple[Callable[[Queue], None], Callable[[Queue], None]]] = {
    "get behind a dead writer": (writes, gets),
    "get what a dead reader held": (reads, gets),
    "put where a dead reader held the space": (reads, puts),
}


def fork(directory: str, act: Callable[[Queue], None], told: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            die_with_parent()
            q = Queue.open("q", directory=directory)
            os.write(told, b"attached")
            act(q)
            os.write(told, struct.pack("q", time.monotonic_ns()))
        finally:
            os._exit(0)
    return pid


def waiting(directory: Path, bell: str) -> bool:
    """Return whether a participant waits on that bell."""
    with (directory / "holdfast.queue.q").open("rb") as file:
        file.seek(BELLS[bell])
        return bool(file.read(1)[0] & 1)


def locked(fd: int, slot: int) -> bool:
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, LOCK_BASE + slot, 1, 0)
    answer = fcntl.fcntl(fd, F_OFD_GETLK, request)
    return bool(struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK)


def once(name: str, pause_s: float = 0.0) -> tuple[float, float]:
    """Return seconds to the survivor's return: from the kill, from the lock's release."""
    dies, waits = SCENES[name]
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-speed.") as directory:
        once_only = waits is puts  # otherwise the space is free only after a redelivery
        q = Queue.create(
            "q", capacity=1024, directory=directory, delivery="at-most-once" if once_only else "at-least-once"
        )
        hear, told = os.pipe()
        if dies is reads:
            q.put(b"held", timeout=0)
        victim = fork(directory, dies, told)
        assert os.read(hear, 8) == b"attached"
        assert os.WIFSTOPPED(os.waitpid(victim, os.WUNTRACED)[1])
        if dies is writes:
            q.put(b"after", timeout=0)
        with suppress(Full):
            while waits is puts:
                q.put(b"", timeout=0)
        survivor = fork(directory, waits, told)
        assert os.read(hear, 8) == b"attached"
        until(lambda: waiting(Path(directory), "space" if waits is puts else "data"))
        fd = os.open(f"{directory}/holdfast.queue.q", os.O_RDWR)
        assert locked(fd, 1)
        killed = time.monotonic_ns()
        os.kill(victim, signal.SIGKILL)
        while locked(fd, 1):
            if pause_s:
                time.sleep(pause_s)
        released = time.monotonic_ns()
        returned: int = struct.unpack("q", os.read(hear, 8))[0]
        for pid in (victim, survivor):
            os.waitpid(pid, 0)
        for each in (fd, hear, told):
            os.close(each)
        q.detach()
        return (returned - killed) / 1e9, (returned - released) / 1e9


def measure(rounds: int) -> dict[str, list[tuple[float, float]]]:
    return {name: [once(name) for _ in range(rounds)] for name in SCENES}


def compare(rounds: int) -> dict[str, tuple[float, float]]:
    """Return medians in seconds from the kill: to the survivor's return, to the notice here."""
    found = {}
    for name in SCENES:
        pairs = [once(name, ASKS_S) for _ in range(rounds)]
        returned = statistics.median(since_kill for since_kill, _ in pairs)
        noticed = statistics.median(since_kill - since_release for since_kill, since_release in pairs)
        found[name] = (returned, noticed)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how soon survivors continue after a SIGKILL.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--compare", action="store_true", help="compare with a plain program; print JSON")
    options = parser.parse_args()
    if options.compare:
        print(json.dumps(compare(options.rounds)))
        return
    for name, pairs in measure(options.rounds).items():
        for what, seconds in zip(("the kill", "the release"), zip(*pairs, strict=True), strict=True):
            us = sorted(max(0, round(each * 1e6)) for each in seconds)
            told = f"median {us[len(us) // 2]} µs, 90 % {us[len(us) * 9 // 10]} µs, slowest {us[-1]} µs"
            print(f"{name}, after {what}: {told} ({len(us)} rounds)")


if __name__ == "__main__":
    main()
