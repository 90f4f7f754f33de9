"""The two measured processes: each runs one hot loop per order and returns times.

Both clocks are CLOCK_MONOTONIC, which all processes of a machine share. A throughput run lasts from just
before the first put in one process until just after the last get in the other.
"""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection

from bench.answers import Failure
from bench.cores import pin
from bench.figures import percentiles_us
from bench.links import Receiver, Sender, Transport

READY = "ready"


@dataclass(frozen=True)
class Put:
    """Send `count` messages, or batches of `length` unless 0. Returns the start, in ns."""

    count: int
    length: int


@dataclass(frozen=True)
class Get:
    """Receive what `Put` sends. Returns the end, in ns."""

    count: int
    length: int
    reading: str


@dataclass(frozen=True)
class Ping:
    """Make `count` round trips, each after a pause. Returns median and p99, in µs."""

    count: int
    spinning: bool
    pause_s: float


@dataclass(frozen=True)
class Pong:
    """The other side of `Ping`."""

    count: int
    spinning: bool


Order = Put | Get | Ping | Pong


def payload(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def distinct_payloads(size: int, length: int) -> list[bytes]:
    """Return a batch of distinct payloads: pickle would send a repeated object only once."""
    generator = random.Random(length)
    return [generator.randbytes(size) for _ in range(length)]


def ping(
    send: Callable[[bytes], None], receive: Callable[[], bytes], data: bytes, order: Ping
) -> tuple[float, float]:
    clock = time.perf_counter_ns
    times: list[int] = []
    received = b""
    for _ in range(order.count):
        if order.pause_s:
            time.sleep(order.pause_s)
        start = clock()
        send(data)
        received = receive()
        times.append(clock() - start)
    if received and received != data:  # it is empty where payloads are not copied
        raise AssertionError("another payload came back than was sent")
    return percentiles_us(times)


def pong(send: Callable[[bytes], None], receive: Callable[[], bytes], count: int) -> None:
    for _ in range(count):
        send(receive())


class Worker:
    """One of the two processes, with an end of each direction."""

    def __init__(self, outward: Sender, inward: Receiver, size: int) -> None:
        self.outward = outward
        self.inward = inward
        self.size = size
        self.data = payload(size)

    def run(self, order: Order, ready: Callable[[], None]) -> object:
        match order:
            case Put(count, 0):
                ready()
                start = time.monotonic_ns()
                self.outward.put(self.data, count)
                return start
            case Put(count, length):
                batch = distinct_payloads(self.size, length)
                ready()
                start = time.monotonic_ns()
                self.outward.put_many(batch, count)
                return start
            case Get(count, 0, reading):
                ready()
                last = self.inward.get(count, reading)
                end = time.monotonic_ns()
                if last != self.data:
                    raise AssertionError("another payload arrived than was sent")
                return end
            case Get(count, length, reading):
                expected = distinct_payloads(self.size, length)
                ready()
                batch = self.inward.get_many(length, count, reading)
                end = time.monotonic_ns()
                if batch != expected[-len(batch) :]:
                    raise AssertionError("another batch arrived than was sent")
                return end
            case Ping(_, spinning, _):
                self.inward.prepare(spinning)
                ready()
                if spinning:
                    return ping(self.outward.send, self.inward.spin, self.data, order)
                return ping(self.outward.rouse, self.inward.wait, self.data, order)
            case Pong(count, spinning):
                self.inward.prepare(spinning)
                ready()
                if spinning:
                    pong(self.outward.send, self.inward.spin, count)
                else:
                    pong(self.outward.rouse, self.inward.wait, count)
                return None


def serve(control: Connection, core: int | None, outward: Transport, inward: Transport, size: int) -> None:
    """Run in a worker process until the parent sends None or goes away."""
    pin(core)
    try:
        worker = Worker(outward.sender(), inward.receiver(), size)
        control.send(READY)
        while (order := control.recv()) is not None:
            control.send(worker.run(order, lambda: control.send(READY)))
        worker.outward.close()
        worker.inward.close()
    except EOFError:
        pass  # the parent is gone
    except BaseException:
        control.send(Failure(traceback.format_exc()))
