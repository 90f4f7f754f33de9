"""Measure the round trip of a method call, beside a Unix socket's, between two cores."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from pathlib import Path

from bench.cores import pin, pinned, two_cores
from bench.figures import percentiles_us
from bench.helper import Helper
from bench.ours import SPIN_S
from bench.service_ends import FIND_S, method_service, unused_name
from bench.service_figures import CALL_BLOCKING, CALL_SPINNING, SOCKET_BLOCKING, SOCKET_SPINNING, Called
from bench.worker import READY, distinct_payloads, payload

SIZE = 64
WARM_UP = 200


def answer_calls(control: Connection, core: int | None, name: str) -> None:
    """Answer calls with their request; each order sets the time that the provider spins."""
    pin(core)
    with method_service(SIZE).offer(name, handlers={"echo": lambda data: data}) as skeleton:
        control.send(READY)
        while True:
            skeleton._core.spin = control.recv()
            control.send(READY)


def receive(end: socket.socket, size: int) -> bytes:
    """Receive a message of `size` bytes with the call that blocks."""
    data = end.recv(size)
    while len(data) < size:
        if not (more := end.recv(size - len(data))):
            raise EOFError
        data += more
    return data


def poll(end: socket.socket, size: int) -> bytes:
    """Receive a message of `size` bytes without sleep."""
    data = b""
    while len(data) < size:
        with contextlib.suppress(BlockingIOError):
            data += end.recv(size - len(data), socket.MSG_DONTWAIT)
    return data


RECEIVERS = {SOCKET_SPINNING: poll, SOCKET_BLOCKING: receive}


def answer_socket(control: Connection, core: int | None, path: str) -> None:
    """Send back each message; each order names how to receive how many."""
    pin(core)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        control.send(READY)
        end, _ = server.accept()
    with end:
        while True:
            kind, count = control.recv()
            receiver = RECEIVERS[kind]
            control.send(READY)
            for _ in range(count):
                end.sendall(receiver(end, SIZE))


def round_trips(call: Callable[[bytes], bytes], count: int) -> tuple[float, float]:
    """Return p50 and p99 of the round trips, in µs."""
    for data in distinct_payloads(SIZE, WARM_UP):
        if call(data) != data:
            raise AssertionError("another response came back than the request")
    clock, data = time.perf_counter_ns, payload(SIZE)
    times: list[int] = []
    for _ in range(count):
        start = clock()
        received = call(data)
        times.append(clock() - start)
    if received != data:
        raise AssertionError("another response came back than the request")
    return percentiles_us(times)


class Calls:
    """A proxy and a socket, and the processes that answer them."""

    def __init__(self, context: SpawnContext, core: int | None, directory: str) -> None:
        name = unused_name("calls")
        path = os.fspath(Path(directory, "socket"))
        self.provider = Helper(context, answer_calls, core, name)
        self.server = Helper(context, answer_socket, core, path)
        self.provider.ready()
        self.server.ready()
        self.proxy = method_service(SIZE).find(name, FIND_S)
        self.default_spin = self.proxy._core.spin
        self.end = socket.socket(socket.AF_UNIX)
        self.end.connect(path)

    def method_us(self, spin_s: float, count: int) -> tuple[float, float]:
        echo = self.proxy.echo
        self.proxy._core.spin = spin_s
        self.provider.order(spin_s)
        try:
            return round_trips(echo, count)
        finally:
            self.provider.order(0.0)
            echo(b"")  # the provider waits again, and now sleeps

    def socket_us(self, kind: str, count: int) -> tuple[float, float]:
        end, receiver = self.end, RECEIVERS[kind]

        def call(data: bytes) -> bytes:
            end.sendall(data)
            return receiver(end, SIZE)

        self.server.order((kind, WARM_UP + count))
        return round_trips(call, count)

    def close(self) -> None:
        self.proxy.close()
        self.end.close()
        self.provider.close()
        self.server.close()


def measure_calls(
    context: SpawnContext, rounds: int, count: int, each_round: Callable[[], None] = lambda: None
) -> list[Called]:
    """Measure methods and sockets in random order in each round."""
    first, second = two_cores()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as directory:
        calls = Calls(context, second, directory)
        works: dict[str, Callable[[], tuple[float, float]]] = {
            CALL_SPINNING: lambda: calls.method_us(SPIN_S, count),
            CALL_BLOCKING: lambda: calls.method_us(calls.default_spin, count),
            SOCKET_SPINNING: lambda: calls.socket_us(SOCKET_SPINNING, count),
            SOCKET_BLOCKING: lambda: calls.socket_us(SOCKET_BLOCKING, count),
        }
        samples: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        try:
            for _ in range(rounds):
                each_round()
                with pinned(first):
                    for name in random.sample(list(works), len(works)):
                        samples[name].append(works[name]())
        finally:
            calls.close()
    return [Called(name, pairs) for name, pairs in samples.items()]
