"""Numbers of 64 bits from clients: the last valid ones, and those beyond.

docs/reference/limits.md names the fields. Every client is answered, and the others continue.
"""

from __future__ import annotations

import http.client
import json
import logging
import struct
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from holdfast import BadConfiguration
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.config import Flight, Ingest, Limits, ServedBroker
from holdfast.server.http.pulsar_stats import moment
from holdfast.server.pulsar.connection import PROTOCOL_VERSION
from holdfast.server.settings import load
from tests.kit.server import limit_checks as checks
from tests.kit.server.cost_world import CostWorld
from tests.kit.server.limit_checks import NUMBER_MAX, SEQUENCE_MAX, WORD, asked, entry, topics
from tests.kit.server.wire_raw import Raw, Type, full, id_of

EXTREMES = ((1 << 32) - 1, SEQUENCE_MAX, NUMBER_MAX, NUMBER_MAX + 1, WORD)
"""Of a field of 64 bits."""


@pytest.fixture(scope="module")
def world() -> Iterator[CostWorld]:
    """One server for all: each test finds that it still takes messages."""
    with CostWorld() as made:
        yield made
        with made.raw() as other:
            assert len(other.publish("others", 1)) == 1


@pytest.fixture(autouse=True)
def others_go_on(world: CostWorld, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing was raised within the server, and the broker has not stopped."""
    with caplog.at_level(logging.ERROR):
        yield
    assert world.broker.engine.ended is None
    assert [record.getMessage() for record in caplog.records] == []


@pytest.fixture
def raw(world: CostWorld) -> Raw:
    return world.raw()


@pytest.fixture
def topic() -> str:
    return next(topics)


# -- SEND ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_the_last_sequence_of_a_batch(raw: Raw, topic: str, count: int) -> None:
    """One batch beyond it stopped the broker forever, for all clients."""
    raw.produce(topic)
    last = SEQUENCE_MAX + 1 - count
    raw.tell(Type.SEND, entry(count), producer_id=1, sequence_id=last)
    assert raw.expect(Type.SEND_RECEIPT).sequence_id == last
    raw.tell(Type.SEND, entry(count), producer_id=1, sequence_id=last + 1)
    refused = raw.expect(Type.SEND_ERROR)
    assert (refused.sequence_id, refused.error) == (last + 1, pb.NotAllowedError)
    assert "its sequence numbers are above 2^63-2; nothing was published" in refused.message


@pytest.mark.parametrize("highest", [(1 << 32) - 2, (1 << 32) - 1, SEQUENCE_MAX, NUMBER_MAX, WORD])
def test_the_span_of_a_batch(raw: Raw, topic: str, highest: int) -> None:
    """A batch covers fewer than 2^32 sequence numbers."""
    raw.produce(topic)
    raw.tell(Type.SEND, entry(), producer_id=1, sequence_id=0, highest_sequence_id=highest)
    raw.expect(Type.SEND_RECEIPT if highest < (1 << 32) - 1 else Type.SEND_ERROR)


@pytest.mark.parametrize("sequence", EXTREMES)
def test_every_sequence_is_taken_or_refused(raw: Raw, topic: str, sequence: int) -> None:
    raw.produce(topic)
    raw.tell(Type.SEND, entry(), producer_id=1, sequence_id=sequence)
    raw.expect(Type.SEND_RECEIPT if sequence <= SEQUENCE_MAX else Type.SEND_ERROR)


METADATA = [
    ("publish_time", WORD), ("event_time", WORD), ("deliver_at_time", NUMBER_MAX),
    ("deliver_at_time", -(1 << 63)), ("uncompressed_size", (1 << 32) - 1), ("marker_type", -(1 << 31)),
    ("num_chunks_from_msg", (1 << 31) - 1), ("chunk_id", (1 << 31) - 1), ("chunk_id", -(1 << 31)),
    ("total_chunk_msg_size", (1 << 31) - 1), ("highest_sequence_id", WORD), ("sequence_id", WORD),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value"), METADATA)
def test_every_number_of_a_message_is_delivered_and_shown(
    world: CostWorld, raw: Raw, topic: str, field: str, value: int
) -> None:
    checks.a_number_of_a_message_is_delivered_and_shown(world, raw, topic, field, value)


def test_times_are_dates_up_to_the_year_9999() -> None:
    last_ms = 253_402_300_799_999
    assert moment(last_ms * 1_000_000) == "9999-12-31T23:59:59.999+00:00"
    assert moment((last_ms + 1) * 1_000_000) == str(last_ms + 1)


# -- consumers -----------------------------------------------------------------------------------------

IDS = [
    (WORD, WORD),
    (NUMBER_MAX, NUMBER_MAX),
    (NUMBER_MAX + 1, 0),
    (0, NUMBER_MAX),
    (0, NUMBER_MAX + 1),
    (1 << 32, 1),
]


@pytest.mark.parametrize(("ledger", "number"), IDS)
def test_every_id_can_be_acknowledged_sought_and_asked_for(
    raw: Raw, topic: str, ledger: int, number: int
) -> None:
    raw.publish(topic, 2)
    id_ = pb.MessageIdData(ledgerId=ledger, entryId=number)
    raw.subscribe(topic, sub_type=1)
    raw.flow(10)
    delivered = raw.messages(2)
    raw.ack(id_, request=5)
    assert not raw.expect(Type.ACK_RESPONSE).HasField("error")
    raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=[id_])
    raw.ack(*map(id_of, delivered), request=6)
    raw.expect(Type.ACK_RESPONSE)
    raw.subscribe(topic, 2, subscription="reader", durable=False, start_message_id=id_)
    raw.ack(id_, consumer=2, cumulative=True, request=7)
    raw.expect(Type.ACK_RESPONSE)
    raw.ask(Type.SEEK, consumer_id=2, message_id=id_)


@pytest.mark.parametrize("index", [-(1 << 31), -1, 0, (1 << 31) - 1])
def test_every_batch_index_is_taken(raw: Raw, topic: str, index: int) -> None:
    (id_,) = raw.publish(topic, 1)
    id_.batch_index = index
    raw.subscribe(topic, 2, subscription="reader", durable=False, start_message_id=id_)
    raw.ask(Type.SEEK, consumer_id=2, message_id=id_)


@pytest.mark.parametrize("time_ms", [WORD // 10**6 + 1, NUMBER_MAX, WORD])
def test_every_time_can_be_sought(raw: Raw, topic: str, time_ms: int) -> None:
    raw.publish(topic, 1)
    raw.subscribe(topic)
    raw.ask(Type.SEEK, consumer_id=1, message_publish_time=time_ms)
    raw.subscribe(topic, 2, subscription="other", start_message_rollback_duration_sec=time_ms)


@pytest.mark.parametrize("epoch", EXTREMES)
def test_every_epoch_of_a_consumer_comes_back(raw: Raw, topic: str, epoch: int) -> None:
    checks.an_epoch_of_a_consumer_comes_back(raw, topic, epoch)


def test_permits_of_32_bits_again_and_again(raw: Raw, topic: str) -> None:
    raw.publish(topic, 1)
    raw.subscribe(topic)
    for _ in range(5):
        raw.flow((1 << 32) - 1)
    raw.messages(1)
    stats = raw.ask(Type.CONSUMER_STATS, Type.CONSUMER_STATS_RESPONSE, consumer_id=1)
    assert stats.availablePermits == (1 << 31) - 1  # as many as clients of Java can count


@pytest.mark.parametrize("number", EXTREMES)
def test_every_number_that_a_client_gives_is_given_back(raw: Raw, topic: str, number: int) -> None:
    """Ids of producers, consumers and requests; epochs of producers."""
    raw.tell(
        Type.PRODUCER, topic=full(topic), producer_id=number, request_id=number, epoch=number,
        topic_epoch=number, producer_name="p",
    )  # fmt: skip
    assert raw.expect(Type.PRODUCER_SUCCESS).request_id == number
    raw.send(0, b"x", number)
    assert raw.expect(Type.SEND_RECEIPT).producer_id == number
    raw.tell(Type.SUBSCRIBE, topic=full(topic), subscription="s", subType=1, consumer_id=number,
             request_id=number, initialPosition=1)  # fmt: skip
    assert raw.expect(Type.SUCCESS).request_id == number
    raw.flow(1, number)
    message = raw.expect(Type.MESSAGE)
    assert message.consumer_id == number
    raw.ack(id_of(message), consumer=number, request=number)
    answer = raw.expect(Type.ACK_RESPONSE)
    assert (answer.consumer_id, answer.request_id) == (number, number)


@pytest.mark.parametrize("number", [-(1 << 31), -1, 0, (1 << 31) - 1])
def test_every_version_of_a_greeting_is_answered(world: CostWorld, number: int) -> None:
    """Versions and methods are the client's; sizes, ports and partitions are told by the server."""
    with world.raw(greet=False) as raw:
        raw.tell(Type.CONNECT, client_version="raw", protocol_version=number)
        told = raw.expect(Type.CONNECTED)
        assert told.protocol_version == min(number, PROTOCOL_VERSION)
        assert told.max_message_size < 1 << 31
        found = raw.ask(Type.PARTITIONED_METADATA, Type.PARTITIONED_METADATA_RESPONSE, topic=full("t"))
        assert found.partitions == 0
        ranges = {"keySharedMode": 1, "hashRanges": [{"start": number, "end": number}]}
        asked_for = {"topic": full("t"), "subscription": "s", "consumer_id": 1, "subType": 3}
        answer = Type.ERROR if number else Type.SUCCESS  # hashes are from 0 to 65,535
        raw.ask(Type.SUBSCRIBE, answer, keySharedMeta=ranges, **asked_for)


@pytest.mark.parametrize("priority", [-(1 << 31), 0, (1 << 31) - 1])
def test_every_priority_is_taken(raw: Raw, topic: str, priority: int) -> None:
    raw.subscribe(topic, sub_type=1, priority_level=priority)


@pytest.mark.parametrize("number", [NUMBER_MAX, NUMBER_MAX + 1, WORD])
def test_every_number_of_a_stage_is_taken_or_refused(raw: Raw, topic: str, number: int) -> None:
    raw.publish(topic, 1)
    raw.subscribe(topic)
    stage = struct.pack(">QQ", number, number)
    raw.ask(Type.STAGE_OPEN, stage=stage)
    appended = raw.ask(
        Type.STAGE_APPEND, Type.STAGE_APPENDED, stage=stage, topic=full(topic), at=0, entries=[entry()]
    )
    raw.ask(Type.STAGE_APPEND, Type.ERROR, stage=stage, topic=full(topic), at=number, entries=[entry()])
    part = {"stage": stage, "topic_id": appended.topic_id, "count": 1, "digest": appended.digest}
    for name in ("topic_id", "count", "digest"):
        raw.ask(Type.SINK_COMMIT, Type.ERROR, key=topic, batch=1, parts=[{**part, name: number}])
    done = raw.ask(Type.SINK_COMMIT, Type.SINK_COMMITTED, key=topic, batch=number, parts=[part])
    assert (done.committed, done.batch) == (True, number)
    again = raw.ask(Type.SINK_COMMIT, Type.SINK_COMMITTED, key=topic, batch=number, parts=[])
    assert (again.committed, again.batch) == (False, number), "the last batch is above all others"
    told = raw.ask(Type.PROGRESS, Type.PROGRESS_RESPONSE, topic=full(topic), subscription="s")
    advance = {"topic": full(topic), "subscription": "s", "incarnation": told.incarnation}
    raw.ask(Type.PROGRESS_ADVANCE, Type.ERROR, **advance, reset_number=told.reset_number, to=number)
    raw.ask(Type.PROGRESS_ADVANCE, Type.ERROR, **advance, reset_number=number, to=told.first)


# -- HTTP ----------------------------------------------------------------------------------------------


BEYOND = (NUMBER_MAX, NUMBER_MAX + 1, 1 << 80)


@pytest.mark.parametrize("number", BEYOND)
def test_every_number_in_a_path_is_answered(world: CostWorld, raw: Raw, topic: str, number: int) -> None:
    raw.publish(topic, 2)
    raw.subscribe(topic)
    at = f"/persistent/public/default/{topic}"
    for method, path in (
        ("GET", f"{at}/ledger/{number}/entry/0"),
        ("GET", f"{at}/ledger/1/entry/{number}"),
        ("GET", f"{at}/subscription/s/position/{number}"),
        ("GET", f"{at}/messageid/{number}"),
        ("POST", f"{at}/subscription/s/skip/{number}"),
        ("POST", f"{at}/subscription/s/expireMessages/{number}"),
        ("POST", f"{at}/subscription/s/resetcursor/{number}"),
    ):
        assert asked(world, method, path)[0] in (200, 204, 400, 404, 409, 412), path


@pytest.mark.parametrize("number", [-(1 << 63) - 1, *BEYOND])
def test_every_number_in_a_body_is_answered(world: CostWorld, raw: Raw, topic: str, number: int) -> None:
    raw.publish(topic, 2)
    raw.subscribe(topic)
    at = f"/persistent/public/default/{topic}"
    position = {"ledgerId": number, "entryId": number, "partitionIndex": number, "batchIndex": number}
    for method, path, body in (
        ("POST", f"{at}/subscription/s/resetcursor", position),
        ("PUT", f"{at}/subscription/other", position),
        ("POST", f"{at}/messageTTL?messageTTL={number}", None),
        ("POST", "/namespaces/public/default/messageTTL", number),
        ("POST", "/namespaces/public/default/retention",
         {"retentionTimeInMinutes": number, "retentionSizeInMB": number}),
    ):  # fmt: skip
        status, _, text = asked(world, method, path, body)
        assert status in (200, 204, 400, 404, 405, 409, 412), (path, status, text)
    for path in ("messageTTL", "retention"):  # of all topics: the next test begins without
        asked(world, "DELETE", f"/namespaces/public/default/{path}")


def test_numbers_above_2_to_the_53_have_all_their_digits(world: CostWorld, raw: Raw, topic: str) -> None:
    """JSON's numbers are whole here; a program in JavaScript rounds them by itself."""
    raw.publish(topic, 1)
    state = world.broker.topic(full(topic)).state
    (info,) = state.ledgers
    before, info.size = info.size, (1 << 53) + 1
    try:
        _, _, text = asked(world, "GET", f"/persistent/public/default/{topic}/internalStats")
        assert json.loads(text)["totalSize"] == (1 << 53) + 1
        page = http.client.HTTPConnection("127.0.0.1", world.http.port or 0, timeout=10)
        page.request("GET", "/metrics")
        assert f" {(1 << 53) + 1}\n".encode() in page.getresponse().read()
        page.close()
    finally:
        info.size = before


@pytest.mark.parametrize("value", ["-5", "1e30", str((1 << 62) + 1), str(1 << 80), "inf", "nan"])
def test_settings_of_the_broker_beyond_their_range_are_named(tmp_path: Path, value: str) -> None:
    for field in fields(ServedBroker):
        if field.type in ("int", "float"):
            (tmp_path / "holdfast.toml").write_text(f"[broker]\n{field.name} = {value}\n")
            with pytest.raises(BadConfiguration, match=f"broker.{field.name}"):
                load(tmp_path / "holdfast.toml", {}, [])


@pytest.mark.parametrize("value", [str(10**23), "inf"])
def test_settings_of_the_server_beyond_their_range_are_named(tmp_path: Path, value: str) -> None:
    """`limits.topics = 10^23` was taken, which no table ever has."""
    file = tmp_path / "holdfast.toml"
    for section in (Limits, Ingest, Flight):
        for field in fields(section):
            key = f"{section.__name__.lower()}.{field.name}"
            if field.type == ("float" if value == "inf" else "int"):
                file.write_text(f"[{section.__name__.lower()}]\n{field.name} = {value}\n")
                with pytest.raises(BadConfiguration, match=f"{key}: "):
                    load(file, {}, [])
    file.write_text(f"[limits]\ntopics = {1 << 62}\nkeepalive_s = 1e9\n")
    assert load(file, {}, []).config.limits.topics == 1 << 62


def test_settings_with_thousands_of_digits_are_named(tmp_path: Path) -> None:
    file, digits = tmp_path / "holdfast.toml", "9" * 5000
    file.write_text(f"[broker]\nroll_bytes = {digits}\n")
    with pytest.raises(BadConfiguration, match="thousands of digits"):
        load(file, {}, [])
    file.write_text("")
    for key in ("broker.roll_bytes", "broker.snapshot_s", "limits.connections"):
        with pytest.raises(BadConfiguration, match=f"{key}: .*digits|{key}: .*finite"):
            load(file, {}, [("--set", key, digits)])
