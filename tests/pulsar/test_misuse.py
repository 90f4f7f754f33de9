"""Commands that no client should send: each is refused with a reason, without side effects."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from holdfast._core import crc32c, encode_messages
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.wire_programs import until
from tests.kit.server.wire_raw import Raw, Type, frame_of, full, id_of
from tests.kit.server.wire_world import ServerProcess, server, shared


def send_frame(sequence: int, entry: bytes | None = None, producer: int = 1) -> bytes:
    made = entry or encode_messages([b"%d" % sequence], "raw", sequence, 1)[0]
    return frame_of(Type.SEND, made, producer_id=producer, sequence_id=sequence)


def torn_entry() -> bytes:
    """Its checksum is right, its metadata cannot be read."""
    rest = struct.pack(">I", 3) + b"\xff\xff\xff" + b"payload"
    return b"\x0e\x01" + struct.pack(">I", crc32c(rest)) + rest


# -- producers ----------------------------------------------------------------------------------------


def test_nothing_is_taken_after_a_send_that_was_refused(raw: Raw, topic: str) -> None:
    """I80: even in the same packet; otherwise a repetition of the first loses the order."""
    raw.produce(topic)
    raw.socket.sendall(send_frame(0) + send_frame(1, torn_entry()) + send_frame(2))
    assert raw.expect(Type.SEND_RECEIPT).sequence_id == 0
    error = raw.expect(Type.SEND_ERROR)
    assert (error.sequence_id, error.error) == (1, pb.NotAllowedError)
    raw.socket.sendall(send_frame(3))
    raw.silent()
    raw.ask(Type.CLOSE_PRODUCER, producer_id=1)
    raw.produce(topic)
    raw.socket.sendall(send_frame(1))
    assert raw.expect(Type.SEND_RECEIPT).message_id.entryId == 1


def test_a_send_on_a_closed_producer(raw: Raw, topic: str) -> None:
    """It is left out; earlier messages are confirmed before the close is."""
    raw.produce(topic)
    close = frame_of(Type.CLOSE_PRODUCER, producer_id=1, request_id=70)
    raw.socket.sendall(send_frame(0) + send_frame(1) + close)
    assert [raw.expect(Type.SEND_RECEIPT).sequence_id for _ in range(2)] == [0, 1]
    assert raw.expect(Type.SUCCESS).request_id == 70
    raw.socket.sendall(send_frame(2))
    raw.ask(Type.CLOSE_PRODUCER, producer_id=1)  # once more: it is closed
    raw.subscribe(topic)
    raw.flow(10)
    raw.messages(2)
    raw.silent()


def test_a_name_of_local_ingest(raw: Raw, topic: str) -> None:
    """They are always deduplicated: a stranger could make the broker drop local messages."""
    fields: dict[str, Any] = {"topic": full(topic), "producer_id": 1}
    for name in ("holdfast.ingest.0011223344556677", "holdfast.ingest."):
        error = raw.ask(Type.PRODUCER, Type.ERROR, producer_name=name, **fields)
        assert error.error == pb.NotAllowedError
        assert "local ingest" in error.message
    assert raw.produce(topic, producer_name="holdfast.ingestion").producer_name == "holdfast.ingestion"


def test_an_id_that_is_in_use(raw: Raw, topic: str) -> None:
    """The same again is answered again; something else under it is refused, and changes nothing."""
    name = raw.produce(topic).producer_name
    assert raw.produce(topic).producer_name == name
    other = full(f"{topic}-other")
    error = raw.ask(Type.PRODUCER, Type.ERROR, topic=other, producer_id=1)
    assert error.error == pb.NotAllowedError
    assert topic in error.message

    fields: dict[str, Any] = {"consumer_id": 1, "subType": 0}
    raw.subscribe(topic)
    raw.subscribe(topic)
    for where, subscription in ((other, "s"), (full(topic), "another")):
        error = raw.ask(Type.SUBSCRIBE, Type.ERROR, topic=where, subscription=subscription, **fields)
        assert error.error == pb.NotAllowedError
        assert topic in error.message
    raw.flow(1)
    raw.send(0, b"x")
    raw.expect(Type.SEND_RECEIPT)
    raw.messages(1)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("non-persistent", "non-persistent"),
        ("non-persistent", "persistent"),
        ("persistent", "non-persistent"),
    ],
)
def test_an_id_that_is_in_use_at_either_kind_of_topic(raw: Raw, topic: str, first: str, second: str) -> None:
    """The second topic is refused; messages and permits stay those of the first one."""
    here, there = f"{first}://public/default/{topic}", f"{second}://public/default/{topic}-other"
    fields: dict[str, Any] = {"consumer_id": 1, "subType": 0}
    for _ in range(2):
        raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=here, producer_id=1)
        raw.ask(Type.SUBSCRIBE, Type.SUCCESS, topic=here, subscription="s", **fields)
    error = raw.ask(Type.PRODUCER, Type.ERROR, topic=there, producer_id=1)
    assert (error.error, here in error.message) == (pb.NotAllowedError, True)
    for where, subscription in ((there, "s"), (here, "another")):
        error = raw.ask(Type.SUBSCRIBE, Type.ERROR, topic=where, subscription=subscription, **fields)
        assert (error.error, here in error.message) == (pb.NotAllowedError, True)
    raw.flow(1)
    raw.send(0, b"x")
    assert {raw.hear()[0] for _ in range(2)} == {Type.SEND_RECEIPT, Type.MESSAGE}


def test_who_asks_twice_is_told_the_same(topic: str) -> None:
    """With deduplication it continues its numbers: after −1 all its messages would be dropped."""
    with Raw(server(deduplication=True).url) as raw:
        named: dict[str, Any] = {"producer_name": "till", "user_provided_producer_name": True}
        raw.produce(topic, **named)
        for sequence in range(6):
            raw.send(sequence, b"x")
            raw.expect(Type.SEND_RECEIPT)
        raw.ask(Type.CLOSE_PRODUCER, producer_id=1)
        assert raw.produce(topic, **named).last_sequence_id == 5
        assert raw.produce(topic, **named).last_sequence_id == 5


# -- consumers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize(
    "names",
    [
        {"subscription": ""},
        {"subscription": "x" * 2000},
        {"subscription": "a\nb"},
        {"subscription": "s", "consumer_name": "x" * 2000},
    ],
)
def test_names_that_cannot_be(raw: Raw, topic: str, durable: bool, names: dict[str, str]) -> None:
    fields = {"topic": full(topic), "consumer_id": 1, "subType": 0, "durable": durable, **names}
    assert raw.ask(Type.SUBSCRIBE, Type.ERROR, **fields).error == pb.NotAllowedError


def test_more_permits_than_anybody_can_mean(raw: Raw, topic: str) -> None:
    raw.produce(topic)
    raw.subscribe(topic)
    most = (1 << 32) - 1
    raw.socket.sendall(frame_of(Type.FLOW, consumer_id=1, messagePermits=most) * 10_000)
    raw.flow(most)
    raw.send(0, b"x")
    raw.expect(Type.SEND_RECEIPT)
    raw.messages(1)
    assert 0 < server().admin.stats(topic, "s")["permits"] < 1 << 31


@pytest.mark.parametrize("cumulative", [False, True])
def test_acknowledgements_of_what_never_was(raw: Raw, topic: str, cumulative: bool) -> None:
    """They are answered, and change nothing."""
    raw.produce(topic)
    raw.subscribe(topic)
    raw.flow(10)
    raw.send(0, b"x")
    raw.expect(Type.SEND_RECEIPT)
    message = raw.expect(Type.MESSAGE)
    ledger, none = message.message_id.ledgerId, (1 << 64) - 1
    for request, (in_ledger, entry) in enumerate(
        [(ledger + 1000, 0), (ledger, 1), (ledger, 1 << 62), (none, none), (ledger, none)]
    ):
        unknown = pb.MessageIdData(ledgerId=in_ledger, entryId=entry)
        raw.ack(unknown, request=request, cumulative=cumulative)
        assert raw.expect(Type.ACK_RESPONSE).request_id == request
    assert server().admin.stats(topic, "s")["backlog"] == 1
    raw.ack(id_of(message), request=50, cumulative=cumulative)
    raw.expect(Type.ACK_RESPONSE)
    assert server().admin.stats(topic, "s")["backlog"] == 0


def test_a_cumulative_acknowledgement_on_a_shared_subscription(raw: Raw, topic: str) -> None:
    (sent,) = raw.publish(topic, 1)
    raw.subscribe(topic, sub_type=1)
    for request, at in enumerate([sent, pb.MessageIdData(ledgerId=sent.ledgerId + 1000, entryId=0)]):
        raw.ack(at, request=request, cumulative=True)
        answer = raw.expect(Type.ACK_RESPONSE)
        assert (answer.request_id, answer.error) == (request, pb.NotAllowedError)
        assert answer.message.startswith("subscription s is shared, so its messages have no order")
    assert server().admin.stats(topic, "s")["backlog"] == 1


@pytest.mark.parametrize(
    "where",
    [
        {"message_publish_time": (1 << 64) - 1},
        {"message_id": {"ledgerId": 1 << 62, "entryId": 5}},
        {"message_id": {"ledgerId": 0, "entryId": (1 << 64) - 1}},
        {"message_id": {"ledgerId": 0, "entryId": 0, "batch_index": -5}},
    ],
)
def test_a_seek_to_nowhere(raw: Raw, topic: str, where: dict[str, Any]) -> None:
    """It goes to what is nearest."""
    raw.produce(topic)
    raw.send(0, b"x")
    raw.expect(Type.SEND_RECEIPT)
    raw.subscribe(topic)
    raw.ask(Type.SEEK, consumer_id=1, **where)
    raw.subscribe(topic)


def test_an_ack_set_that_no_batch_can_have(raw: Raw, url: str, topic: str) -> None:
    """Parsing half a million words takes linear time."""
    raw.produce(topic)
    raw.send(0, b"x")
    raw.expect(Type.SEND_RECEIPT)
    raw.subscribe(topic)
    where = pb.MessageIdData(ledgerId=1, entryId=0, ack_set=[1] * 500_000)
    error = raw.ask(Type.SEEK, Type.ERROR, consumer_id=1, message_id=where)
    assert "ack set" in error.message
    del where.ack_set[200_000:]
    raw.ask(Type.SEEK, consumer_id=1, message_id=where)


def test_who_wants_to_unsubscribe_while_somebody_joins(url: str, topic: str) -> None:
    """Either the unsubscribe wins, or the consumer stays, or the client learns of its end."""
    with Raw(url) as other:
        for attempt in range(50):
            with Raw(url) as raw, Raw(url) as joins:
                raw.subscribe(topic, sub_type=pb.CommandSubscribe.Shared)
                fields: dict[str, Any] = {"topic": full(topic), "subscription": "s", "subType": 1}
                joins.tell(Type.SUBSCRIBE, consumer_id=1, request_id=91, **fields)
                raw.tell(Type.UNSUBSCRIBE, consumer_id=1, request_id=90)
                kind, answer = raw.hear()
                if kind == Type.CLOSE_CONSUMER:
                    assert raw.expect(Type.ERROR).request_id == 90
                elif kind == Type.ERROR:  # it was refused before it had left
                    assert answer.request_id == 90
                    other.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=full(topic))
                    raw.ask(Type.CONSUMER_STATS, Type.CONSUMER_STATS_RESPONSE, consumer_id=1)
                else:
                    assert (kind, answer.request_id) == (Type.SUCCESS, 90), attempt
                joins.hear()


# -- asking -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["public", "", "public/default/x", "public//x", "/"])
def test_topics_of_what_is_no_namespace(raw: Raw, topic: str, name: str) -> None:
    raw.produce(topic)
    error = raw.ask(Type.GET_TOPICS_OF_NAMESPACE, Type.ERROR, namespace=name)
    assert error.error == pb.InvalidTopicName


@pytest.mark.parametrize("size", [1, 7, 9, 100_000])
def test_a_schema_version_that_is_none(raw: Raw, topic: str, size: int) -> None:
    raw.produce(topic)
    answer = raw.ask(
        Type.GET_SCHEMA, Type.GET_SCHEMA_RESPONSE, topic=full(topic), schema_version=b"\xff" * size
    )
    assert answer.error_code == pb.MetadataError


# -- connections --------------------------------------------------------------------------------------


@pytest.fixture
def narrow() -> ServerProcess:
    """A server with room for a few requests of each connection."""
    return shared(server={"requests_in_flight": 4, "keepalive_s": 0.4, "liveness_s": 0.3})


def test_requests_in_one_packet_are_counted_too(narrow: ServerProcess) -> None:
    """Many arrive at once: at most the limit are in progress, and all are answered."""
    count = 500
    with Raw(narrow.url) as raw, Raw(narrow.url) as other:
        narrow.admin.hold_disk()
        raw.socket.sendall(
            b"".join(
                frame_of(
                    Type.SUBSCRIBE, topic=f"t{n}", subscription="s", subType=0, consumer_id=n, request_id=n
                )
                for n in range(count)
            )
        )
        until(lambda: narrow.admin.requests() > 0)
        other.tell(Type.PING)
        other.expect(Type.PONG)
        assert narrow.admin.requests() == 4
        narrow.admin.release_disk()
        assert {raw.expect(Type.SUCCESS).request_id for _ in range(count)} == set(range(count))


def test_who_goes_while_it_is_not_read(narrow: ServerProcess) -> None:
    """I86: a connection that waits for its own requests is noticed to be gone."""
    with Raw(narrow.url) as holder:
        holder.produce("t", producer_access_mode=pb.Exclusive)
        gone = Raw(narrow.url)
        for n in range(10):
            gone.tell(
                Type.PRODUCER,
                topic=full("t"),
                producer_id=n,
                request_id=n,
                producer_access_mode=pb.WaitForExclusive,
            )
        until(lambda: narrow.admin.requests() == 4)
        gone.close()

        def left() -> bool:
            try:
                if holder.hear(0.05)[0] == Type.PING:
                    holder.tell(Type.PONG)
            except TimeoutError:
                pass
            return bool(narrow.admin.connections() == 1)

        until(left)
        holder.ask(Type.CLOSE_PRODUCER, producer_id=1)
        holder.produce("t", producer_access_mode=pb.Exclusive)
