"""How long does a reader wait for a writer that was killed in the middle of a put?

Three processes besides this one: a nursery that forks the victims, a victim that stops right after it has
claimed its block, and a survivor that blocks in `get` behind that block (a message follows it). This process
kills the victim and sleeps on its pidfd; the survivor says when its `get` returned.

The kernel drops a dying process's locks, then reports its end: the pidfd is some 25 µs late. Polling the lock
would be exact, but on two cores it keeps the victim from dying, or its end from being noticed.
"""

from __future__ import annotations

import os
import select
import signal
import time
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext

from bench.figures import Spread
from bench.queue_figures import Recovery
from bench.worker import READY
from holdfast import Queue, _core

SETTLE_S = 0.005  # for the survivor to run out of spinning and to sleep
LIMIT_S = 10.0


def victim(name: str) -> None:
    """Claims a block and stops there: neither committed nor given up."""
    queue = Queue.open(name)
    _core.arm("put_claimed", "stop", 1)
    queue.put(b"never finished")


def nursery(control: Connection, name: str, core: int | None) -> None:
    """Forks a victim per order and answers with its pid when it has stopped. Holds nothing open itself."""
    if core is not None:
        os.sched_setaffinity(0, {core})
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
    """Answers with the time at which each blocked get returned."""
    if core is not None:
        os.sched_setaffinity(0, {core})
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
    """When kill() was called, and when the kernel reported the end, ns. By then it has dropped the lock."""
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


def answer(control: Connection) -> object:
    if not control.poll(LIMIT_S):
        raise RuntimeError(f"no answer within {LIMIT_S:.0f} s")
    received: object = control.recv()
    return received


def measure_recovery(context: SpawnContext, kills: int) -> Recovery:
    name = f"bench-recovery-{os.getpid()}"
    # The victim must not die on the survivor's core: it would occupy it to the end, and the survivor find
    # all done when it comes back.
    cores: list[int | None] = [*sorted(os.sched_getaffinity(0))[:2]]
    if len(cores) < 2:
        cores = [None, None]
    queue = Queue.create(name, capacity=1 << 20)
    controls: list[Connection] = []
    processes = []
    released_us: list[float] = []
    killed_us: list[float] = []
    try:
        for role, core in zip((nursery, survivor), cores, strict=True):
            ours, theirs = context.Pipe()
            process = context.Process(target=role, args=(theirs, name, core), daemon=True)
            process.start()
            theirs.close()
            controls.append(ours)
            processes.append(process)
            answer(ours)
        births, waits = controls
        for number in range(kills):
            births.send(True)
            pid = answer(births)
            if not isinstance(pid, int) or pid < 0:
                raise RuntimeError("a victim ended before it had claimed its block")
            behind = number.to_bytes(8, "little")
            queue.put(behind)
            waits.send(True)
            answer(waits)
            time.sleep(SETTLE_S)
            killed, released = kill_and_watch(pid)
            result = answer(waits)
            births.send(True)
            assert isinstance(result, tuple)
            returned, data = result
            if data != behind:
                raise RuntimeError("the survivor got another message than the one put behind the dead writer")
            # A survivor that is faster than the report of the end waited for nothing but our clock.
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
    ordered = sorted(released_us)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return Recovery(kills, Spread.of(released_us), p99, Spread.of(killed_us))
