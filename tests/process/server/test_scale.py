"""Many of everything: connections, topics, producers, restarts; and clients that are slow, stopped or broken.

The server is `holdfast serve` in a process of its own. Where the official client would be too heavy a
thousand times over, the test speaks the protocol itself, with frames that were encoded beforehand.
"""

from __future__ import annotations

import os
import resource
import selectors
import signal
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.processes import Start, comes_to_rest, cpu_s, private_memory, until
from tests.kit.served import Served, served
from tests.kit.server.wire_raw import Raw, Type, full, sends
from tests.kit.slices import pick

MIB = 1 << 20
CONNECTIONS = pick(test=400, nightly=1000)
TOPICS = CONNECTIONS
PRODUCERS = 50
ROUNDS = 5
LIVES = pick(test=4, nightly=12)
HANG_S = 120.0


@pytest.fixture(scope="module", autouse=True)
def descriptors() -> Iterator[None]:
    """A thousand connections have a thousand descriptors here, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory(server: Served) -> int:
    return private_memory(server.process.pid)


def receipts(data: bytearray) -> int:
    """How many whole frames there were at its beginning, which are taken out."""
    at = found = 0
    while at + 4 <= len(data):
        size = 4 + struct.unpack_from(">I", data, at)[0]
        if at + size > len(data):
            break
        at, found = at + size, found + 1
    del data[:at]
    return found


def publish_all(raws: list[Raw], data: bytes, each: int) -> float:
    """Opens all connections at once, and returns the time until the last receipt."""
    selector = selectors.DefaultSelector()
    begin = time.monotonic()
    limit = begin + HANG_S
    left = {raw: memoryview(data) for raw in raws}
    heard = dict.fromkeys(raws, 0)
    rest = {raw: bytearray() for raw in raws}
    left_over = len(raws)
    for raw in raws:
        raw.socket.setblocking(False)
        selector.register(raw.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, raw)
    while left_over:
        assert time.monotonic() < limit, f"{left_over} of {len(raws)} wait for receipts"
        for key, mask in selector.select(5.0):
            raw = key.data
            if mask & selectors.EVENT_WRITE:
                left[raw] = left[raw][raw.socket.send(left[raw]) :]
                if not left[raw]:
                    selector.modify(raw.socket, selectors.EVENT_READ, raw)
            if mask & selectors.EVENT_READ:
                rest[raw] += raw.socket.recv(1 << 16)
                heard[raw] += receipts(rest[raw])
                if heard[raw] == each:
                    left_over -= 1
                    selector.unregister(raw.socket)
    selector.close()
    return time.monotonic() - begin


# -- many ----------------------------------------------------------------------------------------------


def test_many_connections_and_topics_and_fifty_busy_producers(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        empty, before_s = memory(server), cpu_s(server.process.pid)
        idle = [Raw(server.url) for _ in range(CONNECTIONS)]
        for n, raw in enumerate(idle):
            raw.tell(Type.PRODUCER, topic=full(f"t{n % TOPICS}"), producer_id=1, request_id=1)
        for raw in idle:
            assert raw.expect(Type.PRODUCER_SUCCESS).request_id == 1
        crowd = memory(server)
        each_bytes = (crowd - empty) / CONNECTIONS
        assert each_bytes < 60 << 10, f"{each_bytes / 1024:.1f} KiB each"

        greeting_s = cpu_s(server.process.pid) - before_s
        assert comes_to_rest(server.process.pid, greeting_s), "connections that do nothing keep it busy"

        each = 400
        with Raw(server.url) as one:
            one.produce("alone")
            busy = [Raw(server.url) for _ in range(PRODUCERS)]
            for n, raw in enumerate(busy):
                raw.produce(f"t{n}")
            ratios: list[float] = []
            while len(ratios) < ROUNDS and (not ratios or ratios[-1] >= 10):  # another program may spoil one
                alone = publish_all([one], sends(each * PRODUCERS, 100), each * PRODUCERS)
                ratios.append(publish_all(busy, sends(each, 100), each) / alone)
        assert ratios[-1] < 10, f"some starve: together they took {ratios} times the time of one"

        idle[0].tell(Type.PING)
        idle[0].expect(Type.PONG)
        for raw in (*idle, *busy):
            raw.close()
        until(lambda: memory(server) < crowd + 40 * MIB)
        assert server.end() == 0

    with served(tmp_path) as server, Raw(server.url) as raw:  # all topics are there again
        raw.subscribe(f"t{TOPICS - 1}")
        raw.subscribe("t1", consumer=2)
        raw.flow(2 * each, consumer=2)
        assert len(raw.messages(each)) == each


# -- restarts ------------------------------------------------------------------------------------------


def test_a_storm_of_restarts(tmp_path: Path) -> None:
    """Twenty clients reconnect at once after each; each finds all its confirmed messages."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    confirmed = 0
    for life in range(LIVES):
        server = Served("--data", str(tmp_path), "--port", str(port), "--http-port", "off")
        try:
            raws = [Raw(server.url) for _ in range(20)]
            for n, raw in enumerate(raws):
                raw.produce(f"storm{n}")
                raw.send(life, b"%d" % life)
            for raw in raws:
                raw.expect(Type.SEND_RECEIPT)
            confirmed += 1
            if life == LIVES - 1:
                for n, raw in enumerate(raws):
                    raw.subscribe(f"storm{n}")
                    raw.flow(100)
                    assert len(raw.messages(confirmed)) == confirmed
            server.end(signal.SIGTERM if life % 3 == 2 else signal.SIGKILL)
            for raw in raws:
                raw.close()
        finally:
            server.close()


# -- slow and stopped ----------------------------------------------------------------------------------


def slow_consumer(url: str, topic: str) -> None:
    """In a process of its own: requests everything, takes a few, then continues on command."""
    import pulsar  # type: ignore[import-untyped, unused-ignore]

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(
        topic, "slow", receiver_queue_size=100_000, initial_position=pulsar.InitialPosition.Earliest
    )
    first = len(consumer.receive(10_000).data())
    tell(first)  # type: ignore[name-defined]  # noqa: F821
    count = hear()  # type: ignore[name-defined]  # noqa: F821
    for _ in range(count - 1):
        consumer.receive(20_000)
    tell("all")  # type: ignore[name-defined]  # noqa: F821
    os._exit(0)


def test_a_slow_and_a_stopped_consumer_cost_little(tmp_path: Path, start: Start) -> None:
    count, size = 60, MIB
    with served(tmp_path) as server:
        with Raw(server.url) as raw, Raw(server.url) as slow:
            raw.produce("large")
            publish_all([raw], sends(count, size), count)
            until(lambda: memory(server) < 200 * MIB)
            before = memory(server)
            slow.subscribe("large")
            slow.flow(10_000)
            slow.messages(2)  # and reads no more
            child = start(slow_consumer, server.url, "large")
            child.hear()
            child.stop()  # with its sockets open: the half-open connection of a frozen machine
            with Raw(server.url) as quick:  # no other client is delayed
                quick.subscribe("large", subscription="quick")
                quick.flow(10_000)
                assert len(quick.messages(count)) == count
            grown = memory(server) - before
            assert grown < 32 * MIB, f"{grown / MIB:.1f} MiB for two clients that do not read {count} MiB"
            child.go_on()
            child.tell(count)
            assert child.hear() == "all"
            assert len(slow.messages(count - 2)) == count - 2
        assert memory(server) - before < 48 * MIB


# -- offenders -----------------------------------------------------------------------------------------


def offences() -> dict[str, bytes]:
    good = sends(1, 100)
    wrong_sum = bytearray(good)
    wrong_sum[-1] ^= 1
    size = struct.pack(">I", 1 << 30)
    return {
        "noise": os.urandom(4096),
        "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "a frame of a gigabyte": size + b"\0" * 1000,
        "a command larger than its frame": struct.pack(">II", 10, 1000) + b"\0" * 10,
        "a command that is none": struct.pack(">II", 8, 4) + b"\xff\xff\xff\xff",
        "zeros": b"\0" * 100,
        "a send of no producer": sends(1, 100, producer=9),
        "a wrong sum": bytes(wrong_sum),
        "half a frame": good[: len(good) // 2],
    }


def test_offenders_disturb_nobody(tmp_path: Path) -> None:
    rounds = pick(test=4, nightly=15)
    with served(tmp_path) as server, Raw(server.url) as good:
        good.produce("t")
        good.subscribe("t")
        good.flow(1_000_000)
        sequence = 0
        before = memory(server)
        for n in range(rounds):
            for words in offences().values():
                for greet in (False, True):
                    with offend(server.url, greet, words, wait=n == 0):
                        good.send(sequence, b"%d" % sequence)
                        kinds = {good.hear()[0], good.hear()[0]}
                        assert kinds == {Type.SEND_RECEIPT, Type.MESSAGE}
                        sequence += 1
        assert memory(server) - before < 24 * MIB
        assert "Traceback" not in server.logs()
        assert server.end() == 0


def offend(url: str, greet: bool, words: bytes, wait: bool) -> Raw:
    """Says it; hears whether the server has anything to say to that."""
    raw = Raw(url, greet=greet)
    if greet:
        raw.produce("offended")
    raw.socket.sendall(words)
    if wait:
        answers: list[Any] = []
        try:
            while True:
                answers.append(raw.hear(0.05))
        except (TimeoutError, EOFError, ConnectionResetError):
            pass
    return raw
