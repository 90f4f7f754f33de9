"""Restart the server, in order or by SIGKILL: clients continue, nothing confirmed is lost."""

from __future__ import annotations

import functools
import signal
import time
from typing import Any

import pytest

from tests.kit.server.wire_programs import until
from tests.kit.server.wire_world import ServerProcess, client, job_of, program, pulsar

MESSAGES = 1500


def publish_and_consume(client: Any, topic: str, once: bool) -> None:
    """Everything that was confirmed arrives; with deduplication, once."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=100)
    producer = client.create_producer(topic, producer_name="till", block_if_queue_full=True)
    confirmed: set[int] = set()
    failed: list[Any] = []

    def receipt(n: int, result: Any) -> None:
        if result == pulsar.Result.Ok:
            confirmed.add(n)
        else:
            failed.append((n, result))

    got: set[int] = set()

    def take(timeout_ms: int) -> None:
        message = consumer.receive(timeout_ms)
        got.add(int(message.data()))
        consumer.acknowledge(message)

    for n in range(1, MESSAGES + 1):
        producer.send_async(b"%d" % n, lambda result, _, n=n: receipt(n, result), sequence_id=n)
        if n % 10 == 0:
            time.sleep(0.005)  # a pace, so that the kills fall into the load: nothing waits for it
    producer.flush()
    assert not failed, failed[:3]
    assert len(confirmed) == MESSAGES
    while len(got) < MESSAGES:
        take(10_000)
    try:
        while True:
            take(500)
    except pulsar.Timeout:
        pass
    assert got == confirmed
    if once:
        # Deliveries from before the kill happen again. The reader shows what is stored, once.
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        stored = []
        while reader.has_message_available():
            stored.append(int(reader.read_next(20_000).data()))
        assert stored == list(range(1, MESSAGES + 1))


@program
def plain(client: Any, topic: str) -> None:
    publish_and_consume(client, topic, once=False)


@program
def deduplicated(client: Any, topic: str) -> None:
    publish_and_consume(client, topic, once=True)


def entries(server: ServerProcess, topic: str) -> int:
    """How many are stored."""
    if topic not in str(server.admin.topics()):
        return 0
    return int(server.admin.last_id(topic)[1]) + 1


def has_more(server: ServerProcess, topic: str, count: int) -> bool:
    return entries(server, topic) > count


# In `make test`: `deduplicated` finds what is lost; clients without deduplication, what is lost or changed in
# order, are killed in tests/torture/test_server_kill.py.
PLAIN = pytest.param(plain, marks=pytest.mark.nightly)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("what", [PLAIN, deduplicated])
def test_the_server_comes_back(how: signal.Signals, what: Any) -> None:
    server = ServerProcess({"deduplication": what is deduplicated, "retention_bytes": -1})
    try:
        job = job_of(what, server, 60.0)
        client().begin(job)
        for stored in (MESSAGES // 5, MESSAGES // 2):
            until(functools.partial(has_more, server, job["topic"], stored), 20.0)
            server.restart(how)
        client().finish(60.0)
    finally:
        server.end()


@program
def readers(client: Any, topic: str, admin: Any) -> None:
    """A reader continues behind its last message, a shared consumer with its unacknowledged messages."""
    producer = client.create_producer(topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    shared = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    for n in range(10):
        producer.send(b"%d" % n)
    assert [reader.read_next(20_000).data() for _ in range(5)] == [b"%d" % n for n in range(5)]
    for n in range(10):
        message = shared.receive(20_000)
        if n % 2:
            shared.acknowledge(message)
    until(lambda: admin.stats(topic, "s")["backlog"] == 5)
    producer.send(b"ready")
    until(lambda: not producer.is_connected())
    until(producer.is_connected)
    assert [reader.read_next(20_000).data() for _ in range(5)] == [b"%d" % n for n in range(5, 10)]
    again = {shared.receive(20_000).data() for _ in range(6)}
    assert again == {b"0", b"2", b"4", b"6", b"8", b"ready"}


def test_positions_over_a_restart() -> None:
    server = ServerProcess()
    try:
        job = job_of(readers, server)
        client().begin(job)
        until(lambda: entries(server, job["topic"]) == 11)
        server.restart()
        client().finish(30.0)
    finally:
        server.end()
