"""Measure how long a reader waits for a writer that was killed during a put.

Besides this process there are three. A nursery forks the victims. A victim stops right after it has claimed
its block. A survivor blocks in `get` behind that block, which a message follows. This process kills the
victim and sleeps on its pidfd; the survivor reports when its `get` returned.

The kernel drops the locks of a dying process, then reports its end: the pidfd is some 25 µs late. Polling the
lock would be exact, but on two cores it delays the victim's death, or the notice of its end.
"""

from __future__ import annotations

import os
import select
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext

from bench.answers import answer
from bench.cores import pin, two_cores
from bench.figures import Spread, percentile
from bench.queue_figures import Recovery
from bench.worker import READY
from holdfast import Queue, _core

SETTLE_S = 0.005  # until the survivor stops spinning and sleeps
LIMIT_S = 10.0


def victim(name: str) -> None:
    """Claim a block and stop, without commit."""
    queue = Queue.open(name)
    _core.arm("put_claimed", "stop", 1)
    queue.put(b"never finished")


def nursery(control: Connection, name: str, core: int | None) -> None:
    """Fork a victim per order and send its pid when it has stopped.

    This process opens no queue itself.
    """
    pin(core)
    control.send(READY)
    while control.recv():
        child = os.fork()
        if child == 0:
            try:
                victim(name)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, os.WUNTRACED)
        control.send(child if os.WIFSTOPPED(status) else -1)
        control.recv()  # it has been killed
        os.waitpid(child, 0)


def survivor(control: Connection, name: str, core: int | None) -> None:
    """Send the time at which each blocked get returned."""
    pin(core)
    queue = Queue.open(name)
    control.send(READY)
    while control.recv():
        control.send(READY)
        with queue.get() as message:
            returned = time.monotonic_ns()
            data = bytes(message.data)
        control.send((returned, data))
    queue.detach()


def kill_and_watch(pid: int) -> tuple[int, int]:
    """Kill the victim; return the times of kill() and of the reported end, in ns.

    The kernel has dropped the lock by then.
    """
    watch = os.pidfd_open(pid)
    try:
        poller = select.poll()
        poller.register(watch, select.POLLIN)
        killed = time.monotonic_ns()
        os.kill(pid, signal.SIGKILL)
        if not poller.poll(LIMIT_S * 1000):
            raise RuntimeError("a killed process has not ended")
        return killed, time.monotonic_ns()
    finally:
        os.close(watch)


def measure_recovery(context: SpawnContext, kills: int) -> Recovery:
    name = f"bench-recovery-{os.getpid()}"
    # The victim must not die on the survivor's core. It would occupy the core until its end, and the survivor
    # would find all work done.
    queue = Queue.create(name, capacity=1 << 20)
    controls: list[Connection] = []
    processes = []
    released_us: list[float] = []
    killed_us: list[float] = []
    try:
        for role, core in zip((nursery, survivor), two_cores(), strict=True):
            ours, theirs = context.Pipe()
            process = context.Process(target=role, args=(theirs, name, core), daemon=True)
            process.start()
            theirs.close()
            controls.append(ours)
            processes.append(process)
            answer(ours, role.__name__, LIMIT_S)
        births, waits = controls
        for number in range(kills):
            births.send(True)
            pid = answer(births, "nursery", LIMIT_S)
            if not isinstance(pid, int) or pid < 0:
                raise RuntimeError("a victim ended before it had claimed its block")
            behind = number.to_bytes(8, "little")
            queue.put(behind)
            waits.send(True)
            answer(waits, "survivor", LIMIT_S)
            time.sleep(SETTLE_S)
            killed, released = kill_and_watch(pid)
            returned, data = answer(waits, "survivor", LIMIT_S)
            births.send(True)
            if data != behind:
                raise RuntimeError("the survivor got another message than the one put behind the dead writer")
            # The survivor may be faster than the report of the end; then it waited 0 µs.
            released_us.append(max(0, returned - released) / 1e3)
            killed_us.append((returned - killed) / 1e3)
    finally:
        for control in controls:
            control.send(False)
        for process in processes:
            process.join(5)
            if process.is_alive():
                process.kill()
        queue.detach()
        Queue.unlink(name)
    p99 = percentile(released_us, 0.99)
    return Recovery(kills, Spread.of(released_us), p99, Spread.of(killed_us))
