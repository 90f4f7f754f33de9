"""A damaged entry for users of the official client: subscribing raises, nothing hangs silently."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.server.wire_checks import flip, place_of
from tests.kit.server.wire_raw import Raw, Type
from tests.kit.server.wire_world import ServerProcess, client, job_of, program

COUNT = 8
DAMAGED = 4
TIMEOUT_MS = 10_000


@program
def at_a_consumer(client: Any, admin: Any) -> None:
    """The consumer is closed after its acknowledgements; after a skip it reconnects."""
    import pulsar

    from tests.kit.server.wire_programs import until

    consumer = client.subscribe("damaged", "s", initial_position=pulsar.InitialPosition.Earliest)
    for number in range(DAMAGED):
        message = consumer.receive(TIMEOUT_MS)
        assert message.data() == b"<payload %d>" % number
        assert consumer.is_connected()
        consumer.acknowledge(message)
    until(lambda: not consumer.is_connected(), 10)
    for _ in range(2):
        try:
            client.subscribe("damaged", "s", consumer_type=pulsar.ConsumerType.Shared)
        except pulsar.ChecksumError:
            continue
        raise AssertionError("the consumer was not closed")
    admin.skip("damaged", "s", 1)
    assert consumer.receive(TIMEOUT_MS).data() == b"<payload %d>" % (DAMAGED + 1)


@program
def at_a_reader(client: Any) -> None:
    """A reader of all is closed, one that starts there is refused, one behind reads."""
    import pulsar

    from tests.kit.server.wire_programs import until

    reader = client.create_reader("damaged", pulsar.MessageId.earliest)
    last = [reader.read_next(TIMEOUT_MS) for _ in range(DAMAGED)][-1].message_id()
    until(lambda: not reader.is_connected(), 10)
    try:
        client.create_reader("damaged", last)
    except pulsar.ChecksumError:
        pass
    else:
        raise AssertionError("the reader was not closed")
    behind = pulsar.MessageId(-1, last.ledger_id(), DAMAGED, -1)
    try:
        reader = client.create_reader("damaged", behind, start_message_id_inclusive=True)
    except pulsar.ChecksumError:
        pass
    else:
        raise AssertionError("the reader was not refused")
    behind = pulsar.MessageId(-1, last.ledger_id(), DAMAGED + 1, -1)
    reader = client.create_reader("damaged", behind, start_message_id_inclusive=True)
    assert reader.read_next(TIMEOUT_MS).data() == b"<payload %d>" % (DAMAGED + 1)


@pytest.mark.parametrize("what", [at_a_consumer, at_a_reader])
def test_damage(what: Any) -> None:
    process = ServerProcess()
    try:
        with Raw(process.url) as raw:
            raw.produce("damaged")
            for number in range(COUNT):
                raw.send(number, b"<payload %d>" % number)
                raw.expect(Type.SEND_RECEIPT)
        flip(*place_of(process, b"<payload %d>" % DAMAGED))
        at = client()
        at.run(job_of(what, process))
        told = at.errors()
        assert "ChecksumError (persistent://public/default/damaged, position 4: " in told
        assert "entry 4 cannot be read at offset" in told
    finally:
        process.end()
