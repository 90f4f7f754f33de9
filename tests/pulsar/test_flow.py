"""Flow control both ways: who is slow, client or disk, costs a bounded amount of memory, and only itself."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast._core import encode_messages
from holdfast.wire.proto import pulsar_pb2 as pb
from tests.kit.server.wire_programs import refused, until
from tests.kit.server.wire_raw import Raw, Type, frame_of
from tests.kit.server.wire_world import ServerProcess, client, job_of, program, pulsar

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="module")
def process() -> Iterator[ServerProcess]:
    server = ServerProcess()
    yield server
    server.end()


def memory(process: ServerProcess) -> int:
    """What the server has of the machine's memory, without what it shares with the page cache."""
    resident, shared = Path(f"/proc/{process.pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * PAGE


def sends(count: int, size: int) -> bytes:
    """The frames of so many SENDs."""
    frames = []
    for n in range(count):
        entry = encode_messages([bytes(size)], "raw", n, 1)[0]
        frames.append(frame_of(Type.SEND, entry, producer_id=1, sequence_id=n))
    return b"".join(frames)


def send(raw: Raw, data: bytes) -> None:
    """In a thread: until it is sent, or the test has ended."""
    with contextlib.suppress(OSError):
        raw.socket.sendall(data)


def publish(process: ServerProcess, topic: str, count: int, size: int) -> None:
    with Raw(process.url) as raw:
        raw.produce(topic)
        sending = threading.Thread(target=raw.socket.sendall, args=(sends(count, size),))
        sending.start()
        for n in range(count):
            assert raw.expect(Type.SEND_RECEIPT).sequence_id == n
        sending.join()


@pytest.mark.parametrize(("count", "size"), [(64, MIB), (40_000, 1000)])
def test_a_client_that_does_not_read(process: ServerProcess, count: int, size: int) -> None:
    """I84: what waits for it is bounded, and others are not held up."""
    topic = f"slow-{count}"
    publish(process, topic, count, size)
    before = memory(process)
    with Raw(process.url) as slow, Raw(process.url) as quick:
        slow.subscribe(topic)
        slow.flow(1_000_000)
        quick.subscribe(topic, subscription="quick")
        quick.flow(1_000_000)
        quick.messages(count)  # others are not held up
        assert memory(process) - before < 24 * MIB
        assert process.admin.stats(topic, "s")["pending"] < count
        assert [each.message_id.entryId for each in slow.messages(count)] == list(range(count))


def test_a_client_that_does_not_read_its_answers(process: ServerProcess) -> None:
    """Its requests are not read, either: it cannot make the server collect answers."""
    before = memory(process)
    with Raw(process.url) as raw:
        raw.socket.settimeout(1.0)
        wrong = frame_of(Type.LOOKUP, topic="!/" * 30_000, request_id=1)  # the answer repeats it
        sent = 0
        with contextlib.suppress(TimeoutError):
            for _ in range(1000):
                raw.socket.sendall(wrong)
                sent += 1
        assert sent < 1000
        assert memory(process) - before < 24 * MIB


def test_a_disk_that_stands_still(process: ServerProcess) -> None:
    """I85: publishers are not read beyond what may be under way; when the disk goes on, all is confirmed."""
    count, size = 160, MIB
    topic = "still"
    with Raw(process.url) as raw, Raw(process.url) as other:
        raw.produce(topic)
        other.subscribe("elsewhere")
        data = sends(count, size)
        before = memory(process)
        process.admin.hold_disk()
        sending = threading.Thread(target=send, args=(raw, data), daemon=True)
        sending.start()
        taken = [-1, 0]
        while taken[-1] != taken[-2]:
            time.sleep(0.3)
            taken.append(process.admin.under_way())
        assert sending.is_alive(), "the server has read all of it"
        assert taken[-1] < 24 * MIB
        assert memory(process) - before < 96 * MIB  # in frames, in the log's round, on their way to the disk
        other.tell(Type.PING)
        other.expect(Type.PONG)  # who does not publish is served
        process.admin.release_disk()
        for n in range(count):
            assert raw.expect(Type.SEND_RECEIPT).sequence_id == n
        sending.join()


def test_requests_that_pile_up() -> None:
    """No more of them are read than may be under way; none is lost."""
    process = ServerProcess(server={"requests_max": 10})
    try:
        process.admin.hold_disk()
        with Raw(process.url) as raw:
            fields: dict[str, Any] = {"subscription": "s", "subType": 0}
            for n in range(100):
                raw.tell(Type.SUBSCRIBE, topic=f"t{n}", consumer_id=n, request_id=n, **fields)
            time.sleep(0.2)
            process.admin.release_disk()
            answers = {raw.expect(Type.SUCCESS).request_id for _ in range(100)}
        assert answers == set(range(100))
    finally:
        process.end()


@program
def full_disk(client: Any, topic: str, admin: Any) -> None:
    """Who publishes is told, soon; who acknowledges is served; when there is room again, it goes on."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, send_timeout_millis=3000)
    producer.send(b"before")
    admin.fill_disk()
    try:
        refused(pulsar.PulsarException, lambda: producer.send(b"too much"))
        refused(pulsar.PulsarException, lambda: client.create_producer(topic))
        consumer.acknowledge(consumer.receive(5000))
        until(lambda: admin.stats(topic, "s")["backlog"] == 0)
    finally:
        admin.empty_disk()
    until(producer.is_connected, 10.0)
    producer.send(b"after")
    assert consumer.receive(5000).data() == b"after"


def test_a_full_disk(process: ServerProcess) -> None:
    client().run(job_of(full_disk, process))


def test_a_full_disk_keeps_the_order(process: ServerProcess) -> None:
    """After one SEND was refused, none of that producer is taken, even if there is room again."""
    with Raw(process.url) as raw:
        raw.produce("full")
        raw.send(0, b"0")
        raw.expect(Type.SEND_RECEIPT)
        process.admin.fill_disk()
        raw.send(1, b"1")
        error = raw.expect(Type.SEND_ERROR)
        assert (error.sequence_id, error.error) == (1, pb.PersistenceError)
        process.admin.empty_disk()
        raw.send(2, b"2")
        raw.silent()
        raw.ask(Type.CLOSE_PRODUCER, producer_id=1)
        raw.produce("full")
        raw.send(1, b"1")
        raw.expect(Type.SEND_RECEIPT)
