"""A slow client or disk costs bounded memory, and delays only itself."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.wire_programs import refused, until
from tests.kit.server.wire_raw import Raw, Type
from tests.kit.server.wire_world import ServerProcess, client, job_of, program, pulsar, shared


@pytest.fixture(scope="module")
def process() -> ServerProcess:
    return shared()


def test_requests_that_pile_up() -> None:
    """No more of them are read than may be under way; none is lost."""
    process = shared(server={"requests_in_flight": 10})
    process.admin.hold_disk()
    with Raw(process.url) as raw:
        fields: dict[str, Any] = {"subscription": "s", "subType": 0}
        for n in range(100):
            raw.tell(Type.SUBSCRIBE, topic=f"t{n}", consumer_id=n, request_id=n, **fields)
        until(lambda: process.admin.requests() == 10)
        process.admin.release_disk()
        answers = {raw.expect(Type.SUCCESS).request_id for _ in range(100)}
    assert answers == set(range(100))


@program
def full_disk(client: Any, topic: str, admin: Any) -> None:
    """On a full disk producers get an error, consumers are served; later, publishing continues."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, send_timeout_millis=3000)
    producer.send(b"before")
    admin.fill_disk()
    try:
        refused(pulsar.PulsarException, lambda: producer.send(b"too much"))
        refused(pulsar.PulsarException, lambda: client.create_producer(topic))
        consumer.acknowledge(consumer.receive(20_000))
        until(lambda: admin.stats(topic, "s")["backlog"] == 0)
    finally:
        admin.empty_disk()
    until(producer.is_connected)
    producer.send(b"after")
    assert consumer.receive(20_000).data() == b"after"


def test_a_full_disk(process: ServerProcess) -> None:
    client().run(job_of(full_disk, process))


def test_a_full_disk_keeps_the_order(process: ServerProcess) -> None:
    """After a refused SEND all later SENDs of its producer are refused, even with room."""
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
