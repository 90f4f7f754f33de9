"""Frame by frame: what no client's interface shows, and what no client would do."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import Any

import pytest

from holdfast._core import crc32c, encode_messages
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.wire_programs import until
from tests.kit.server.wire_raw import Raw, Type, frame_of, full, sends
from tests.kit.server.wire_world import HASTY, ServerProcess, shared

# -- the handshake ------------------------------------------------------------------------------------


def test_what_connected_says(raw: Raw) -> None:
    assert raw.connected.protocol_version == 19  # the older of the two
    assert raw.connected.max_message_size == 5 << 20
    assert raw.connected.feature_flags.supports_auth_refresh
    assert raw.connected.feature_flags.supports_topic_watchers
    raw.tell(Type.PING)
    raw.expect(Type.PONG)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Type.PING, {}),
        (Type.LOOKUP, {"topic": full("x"), "request_id": 1}),
        (Type.PRODUCER, {"topic": full("x"), "request_id": 1, "producer_id": 1}),
        (Type.FLOW, {"consumer_id": 1, "messagePermits": 1}),
        (Type.AUTH_RESPONSE, {}),
    ],
)
def test_nothing_is_served_before_connect(url: str, kind: int, fields: dict[str, Any]) -> None:
    with Raw(url, greet=False) as raw:
        raw.tell(kind, **fields)
        ((got, error),) = raw.closed()
        assert got == Type.ERROR
        assert error.error == pb.NotAllowedError


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">II", 0, 0),
        struct.pack(">II", 1 << 30, 8),
        struct.pack(">II", 12, 4) + b"\xff" * 20,
        frame_of(Type.CONNECT, client_version="x" * (1 << 17)),
    ],
)
def test_noise_is_answered_and_closed(url: str, data: bytes) -> None:
    """I87"""
    with Raw(url, greet=False) as raw:
        raw.socket.sendall(data)
        heard = raw.closed()
        assert [kind for kind, _ in heard] == [Type.ERROR]
    with Raw(url):
        pass  # others are served


def test_a_frame_that_is_too_large_is_refused_before_it_came(raw: Raw) -> None:
    raw.socket.sendall(struct.pack(">II", 64 << 20, 8))
    heard = raw.closed()
    assert heard[-1][0] == Type.ERROR


def test_text_that_is_none(raw: Raw) -> None:
    frame = frame_of(Type.LOOKUP, topic="persistent://public/default/abc", request_id=1)
    raw.socket.sendall(frame.replace(b"abc", b"\xff\xfe\xfd"))
    ((kind, answer),) = raw.closed()
    assert kind == Type.ERROR
    assert "utf-8" in answer.message


def test_a_command_that_nobody_knows(raw: Raw) -> None:
    raw.tell(Type.WATCH_TOPIC_LIST_SUCCESS, request_id=1, watcher_id=1, topics_hash="")
    ((kind, error),) = raw.closed()
    assert kind == Type.ERROR
    assert error.error == pb.NotAllowedError


# -- finding topics -----------------------------------------------------------------------------------


def test_topics_of_a_namespace(raw: Raw, topic: str) -> None:
    raw.produce(topic)
    answer = raw.ask(
        Type.GET_TOPICS_OF_NAMESPACE, Type.GET_TOPICS_OF_NAMESPACE_RESPONSE, namespace="public/default"
    )
    assert full(topic) in answer.topics
    assert answer.changed
    others = raw.ask(
        Type.GET_TOPICS_OF_NAMESPACE,
        Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        namespace="public/default",
        mode=1,
    )
    assert full(topic) not in others.topics
    assert all(name.startswith("non-persistent://") for name in others.topics)


def test_lookup_says_the_way_that_the_client_came(raw: Raw, url: str, topic: str) -> None:
    answer = raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=full(topic))
    assert answer.brokerServiceUrl == url
    assert answer.proxy_through_service_url
    assert answer.response == answer.Connect


def test_a_listener_that_is_not_there(raw: Raw, topic: str) -> None:
    answer = raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=full(topic), advertised_listener_name="outside")
    assert answer.response == answer.Failed
    assert "outside" in answer.message


@pytest.mark.parametrize("kind", [Type.LOOKUP, Type.PARTITIONED_METADATA])
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("persistent://no/where/x", pb.TopicNotFound),
        ("persistent://x", pb.InvalidTopicName),
    ],
)
def test_names_that_lead_nowhere(raw: Raw, kind: int, name: str, code: int) -> None:
    answer = raw.ask(kind, kind + 1, topic=name)
    assert answer.response == answer.Failed
    assert answer.error == code
    assert answer.message


def test_a_topic_is_not_made_against_its_clients_will(raw: Raw, topic: str) -> None:
    error = raw.ask(
        Type.SUBSCRIBE,
        Type.ERROR,
        topic=full(topic),
        subscription="s",
        subType=0,
        consumer_id=1,
        force_topic_creation=False,
    )
    assert error.error == pb.TopicNotFound
    answer = raw.ask(
        Type.PARTITIONED_METADATA,
        Type.PARTITIONED_METADATA_RESPONSE,
        topic=full(topic),
        metadata_auto_creation_enabled=False,
    )
    assert answer.error == pb.TopicNotFound


# -- producers ----------------------------------------------------------------------------------------


def test_receipts_in_order(raw: Raw, topic: str) -> None:
    raw.produce(topic)
    for n in range(500):
        raw.send(n, b"x")
    receipts = [raw.expect(Type.SEND_RECEIPT) for _ in range(500)]
    assert [each.sequence_id for each in receipts] == list(range(500))
    entries = [each.message_id.entryId for each in receipts]
    assert entries == list(range(500))


def test_a_wrong_checksum(raw: Raw, topic: str) -> None:
    """I80: the error stands behind the receipts of what was sent before it."""
    raw.produce(topic)
    raw.send(0, b"good")
    entry = bytearray(encode_messages([b"bad"], "raw", 1, 1)[0])
    entry[-1] ^= 1
    raw.tell(Type.SEND, bytes(entry), producer_id=1, sequence_id=1)
    raw.send(2, b"good")
    assert raw.expect(Type.SEND_RECEIPT).sequence_id == 0
    heard = [raw.hear(), raw.hear()]
    kinds = [kind for kind, _ in heard]
    assert sorted(kinds) == sorted([Type.SEND_ERROR, Type.SEND_RECEIPT])
    error = next(message for kind, message in heard if kind == Type.SEND_ERROR)
    assert (error.sequence_id, error.error) == (1, pb.ChecksumError)


def test_sends_of_no_producer_are_ignored(raw: Raw) -> None:
    raw.send(0, b"x", producer=77)
    raw.tell(Type.PING)
    raw.expect(Type.PONG)


def test_a_producer_that_is_opened_twice_is_one(raw: Raw, topic: str) -> None:
    first = raw.produce(topic)
    again = raw.produce(topic)
    assert first.producer_name == again.producer_name
    raw.send(0, b"x")
    raw.expect(Type.SEND_RECEIPT)


def test_waiting_is_told(raw: Raw, url: str, topic: str) -> None:
    raw.produce(topic, producer_access_mode=pb.Exclusive)
    with Raw(url) as other:
        waits = other.produce(topic, producer_access_mode=pb.WaitForExclusive)
        assert not waits.producer_ready
        raw.ask(Type.CLOSE_PRODUCER, producer_id=1)
        ready = other.expect(Type.PRODUCER_SUCCESS)
        assert ready.producer_ready
        assert ready.request_id == waits.request_id
        assert ready.topic_epoch > 0
        other.send(0, b"x")
        other.expect(Type.SEND_RECEIPT)


def test_waiting_ends_with_its_client(raw: Raw, url: str, topic: str) -> None:
    raw.produce(topic, producer_access_mode=pb.Exclusive)
    with Raw(url) as other:
        other.produce(topic, producer_access_mode=pb.WaitForExclusive)
        other.ask(Type.CLOSE_PRODUCER, producer_id=1)
    with Raw(url) as other:
        other.produce(topic, producer_access_mode=pb.WaitForExclusive)
    raw.ask(Type.CLOSE_PRODUCER, producer_id=1)
    assert raw.produce(topic, producer_access_mode=pb.Exclusive).producer_ready


def test_a_later_attempt_takes_the_place_of_an_earlier(raw: Raw, url: str, topic: str) -> None:
    """A name that the broker generated belongs to its client, also on another connection."""
    name = raw.produce(topic).producer_name
    with Raw(url) as other:
        more = {"producer_name": name, "user_provided_producer_name": False}
        assert other.produce(topic, epoch=1, **more).producer_name == name
        other.send(0, b"x")
        other.expect(Type.SEND_RECEIPT)
    raw.silent()


def test_entries_are_not_looked_into(raw: Raw, topic: str) -> None:
    """Null values, unknown compression and invalid text are delivered unchanged, byte by byte."""
    odd = [
        pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, null_value=True),
        pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, encryption_algo="rot13"),
        pb.MessageMetadata(producer_name="p", sequence_id=2, publish_time=1, compression=pb.SNAPPY),
        pb.MessageMetadata(producer_name="p", sequence_id=3, publish_time=1, deliver_at_time=1 << 60),
    ]
    entries = []
    raw.produce(topic)
    for sequence, metadata in enumerate(odd):
        packed = metadata.SerializeToString()
        rest = struct.pack(">I", len(packed)) + packed + bytes(range(256))
        entries.append(b"\x0e\x01" + struct.pack(">I", crc32c(rest)) + rest)
        raw.tell(Type.SEND, entries[-1], producer_id=1, sequence_id=sequence)
        raw.expect(Type.SEND_RECEIPT)
    raw.subscribe(topic)
    raw.flow(10)
    raw.messages(4)
    assert raw.entries == entries


def test_a_send_without_a_checksum(raw: Raw, topic: str) -> None:
    """Old clients send no checksum; a reader gets one."""
    raw.produce(topic)
    packed = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()
    rest = struct.pack(">I", len(packed)) + packed + b"data"
    raw.tell(Type.SEND, rest, producer_id=1, sequence_id=0)
    raw.expect(Type.SEND_RECEIPT)
    raw.subscribe(topic)
    raw.flow(1)
    raw.messages(1)
    assert raw.entries == [b"\x0e\x01" + struct.pack(">I", crc32c(rest)) + rest]


# -- life and death of a connection -------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty() -> ServerProcess:
    """A server with short timeouts."""
    return shared(server=HASTY)


def test_who_does_not_connect_is_closed(hasty: ServerProcess) -> None:
    with Raw(hasty.url, greet=False) as raw:
        ((kind, error),) = raw.closed()
        assert kind == Type.ERROR
        assert error.error == pb.AuthenticationError


def test_who_does_not_read_for_too_long_is_closed(hasty: ServerProcess) -> None:
    """Answers have a schema of 60 KB each; the client reads no answer."""
    with Raw(hasty.url, receive_bytes=4096) as raw, pytest.raises((ConnectionResetError, BrokenPipeError)):
        raw.socket.sendall(raw.schema("unread", 60_000) * 2000)


def test_a_living_holder_stays(hasty: ServerProcess) -> None:
    holder = Raw(hasty.url)
    holder.subscribe("kept")
    stop = threading.Event()

    def live() -> None:
        while not stop.is_set():
            try:
                if holder.hear(0.05)[0] == Type.PING:
                    holder.tell(Type.PONG)
            except TimeoutError:
                pass

    thread = threading.Thread(target=live)
    thread.start()
    try:
        with Raw(hasty.url) as raw:
            fields = {"topic": full("kept"), "subscription": "s", "subType": 0, "consumer_id": 1}
            assert raw.ask(Type.SUBSCRIBE, Type.ERROR, **fields).error == pb.ConsumerBusy
    finally:
        stop.set()
        thread.join()
        holder.close()


def test_an_end_reaches_who_reads_late() -> None:
    """Answers in flight arrive, even if the client keeps sending."""
    process = ServerProcess()
    try:
        with Raw(process.url, receive_bytes=4096) as raw:
            raw.subscribe("t", 7)
            raw.produce("t")
            sending = threading.Thread(target=raw.push, args=(sends(40_000, 2000),), daemon=True)
            sending.start()
            raw.expect(Type.SEND_RECEIPT)
            stopping = threading.Thread(target=process.stop)
            stopping.start()
            until(lambda: not sending.is_alive() or not _listens(process))
            time.sleep(0.2)  # it does not read: nothing must be taken back meanwhile
            heard = raw.closed()
            sending.join()
            stopping.join()
        kinds = [kind for kind, _ in heard]
        receipts = kinds.count(Type.SEND_RECEIPT)
        assert kinds[receipts:] == [Type.CLOSE_CONSUMER, Type.CLOSE_PRODUCER]
        assert receipts < 39_999, "all was taken: the test has tested nothing"
        process.start()
        with Raw(process.url) as raw:
            raw.subscribe("t", 1, subscription="count")
            last = raw.ask(Type.GET_LAST_MESSAGE_ID, Type.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=1)
            assert last.last_message_id.entryId == receipts  # and the one that was heard before
    finally:
        process.end()


def _listens(process: ServerProcess) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", process.port)) == 0


def test_an_orderly_end() -> None:
    """Accepted messages are confirmed, then all clients are closed."""
    process = ServerProcess()
    try:
        with Raw(process.url) as raw:
            raw.subscribe("t", 7)
            raw.produce("t", 3)
            for n in range(2000):
                raw.send(n, bytes(100), producer=3)
            raw.expect(Type.SEND_RECEIPT)
            assert process.stop() == 0
            heard = raw.closed()
        kinds = [kind for kind, _ in heard]
        receipts = kinds.count(Type.SEND_RECEIPT)
        assert kinds[receipts:] == [Type.CLOSE_CONSUMER, Type.CLOSE_PRODUCER]
        process.start()
        with Raw(process.url) as raw:
            raw.subscribe("t", 1, subscription="count")
            last = raw.ask(Type.GET_LAST_MESSAGE_ID, Type.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=1)
            assert last.last_message_id.entryId == receipts  # and the one that was heard before
    finally:
        process.end()
