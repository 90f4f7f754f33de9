"""Frame by frame: what no client's interface shows, and what no client would do."""

from __future__ import annotations

import itertools
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast._core import crc32c, encode_messages
from holdfast.wire.proto import pulsar_pb2 as pb
from wire_raw import Raw, Type, frame_of, full, id_of
from wire_world import ServerProcess, server

_numbers = itertools.count(1)


@pytest.fixture
def url() -> str:
    return server().url


@pytest.fixture
def topic() -> str:
    return f"raw-{next(_numbers)}"


@pytest.fixture
def raw(url: str) -> Iterator[Raw]:
    with Raw(url) as connection:
        yield connection


def publish(raw: Raw, topic: str, count: int) -> list[Any]:
    """The ids."""
    raw.produce(topic)
    for n in range(count):
        raw.send(n, b"%d" % n)
    ids = [raw.expect(Type.SEND_RECEIPT).message_id for _ in range(count)]
    raw.ask(Type.CLOSE_PRODUCER, producer_id=1)
    return ids


# -- the handshake ------------------------------------------------------------------------------------


def test_what_connected_says(raw: Raw) -> None:
    assert raw.connected.protocol_version == 19  # the older of the two
    assert raw.connected.max_message_size == 5 << 20
    assert raw.connected.feature_flags.supports_auth_refresh
    assert not raw.connected.feature_flags.supports_topic_watchers
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
    none = raw.ask(
        Type.GET_TOPICS_OF_NAMESPACE,
        Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        namespace="public/default",
        mode=1,
    )
    assert not none.topics


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
        ("non-persistent://public/default/x", pb.NotAllowedError),
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
    """The error stands between the receipts of what was sent before and after it."""
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
    """A name that the broker made up belongs to its client, which may come back by another connection."""
    name = raw.produce(topic).producer_name
    with Raw(url) as other:
        more = {"producer_name": name, "user_provided_producer_name": False}
        assert other.produce(topic, epoch=1, **more).producer_name == name
        other.send(0, b"x")
        other.expect(Type.SEND_RECEIPT)
    raw.silent()


def test_entries_are_not_looked_into(raw: Raw, topic: str) -> None:
    """A null value, an unknown compression, text that is none: what came is what goes, to the byte."""
    odd = [
        pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1, null_value=True),
        pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, encryption_algo="rot13"),
        pb.MessageMetadata(producer_name="p", sequence_id=2, publish_time=1, compression=4),
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
    """Old clients send none; whoever reads it gets one."""
    raw.produce(topic)
    packed = pb.MessageMetadata(producer_name="p", sequence_id=0, publish_time=1).SerializeToString()
    rest = struct.pack(">I", len(packed)) + packed + b"data"
    raw.tell(Type.SEND, rest, producer_id=1, sequence_id=0)
    raw.expect(Type.SEND_RECEIPT)
    raw.subscribe(topic)
    raw.flow(1)
    raw.messages(1)
    assert raw.entries == [b"\x0e\x01" + struct.pack(">I", crc32c(rest)) + rest]


# -- consumers ----------------------------------------------------------------------------------------


def test_no_more_than_was_asked_for(raw: Raw, topic: str) -> None:
    publish(raw, topic, 10)
    raw.subscribe(topic)
    raw.silent()
    raw.flow(3)
    assert [each.message_id.entryId for each in raw.messages(3)] == [0, 1, 2]
    raw.silent()
    raw.flow(100)
    assert [each.message_id.entryId for each in raw.messages(7)] == [3, 4, 5, 6, 7, 8, 9]


def test_permits_stay_right_over_rewinds(raw: Raw, topic: str) -> None:
    """A batch exceeds the permits; a rewind begins without that debt. None is won or lost in the long run."""
    raw.produce(topic)
    entry = encode_messages([b"x"] * 5, "raw", 0, 1, batch=5)[0]
    for n in range(20):
        raw.tell(Type.SEND, entry, producer_id=1, sequence_id=n, num_messages=5)
        raw.expect(Type.SEND_RECEIPT)
    raw.subscribe(topic)
    for _ in range(30):
        raw.flow(1)
        raw.messages(1)
        raw.silent(0.01)
        raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
    assert server().admin.stats(topic, "s")["permits"] == 0
    raw.flow(7)
    raw.messages(2)
    raw.silent()


def test_a_consumer_with_permits_left_is_rewound(raw: Raw, topic: str) -> None:
    """It may be sent as much as before: it does not ask again."""
    publish(raw, topic, 4)
    raw.subscribe(topic)
    raw.flow(10)
    raw.messages(4)
    raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
    assert [each.message_id.entryId for each in raw.messages(4)] == [0, 1, 2, 3]
    raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
    raw.messages(2)
    raw.silent()


def test_receipts_of_acknowledgements(raw: Raw, topic: str) -> None:
    publish(raw, topic, 10)
    raw.subscribe(topic)
    raw.flow(10)
    messages = raw.messages(10)
    raw.ack(id_of(messages[0]), id_of(messages[4]), request=70)
    answer = raw.expect(Type.ACK_RESPONSE)
    assert (answer.consumer_id, answer.request_id) == (1, 70)
    assert not answer.HasField("error")
    assert server().admin.stats(topic, "s")["backlog"] == 8
    raw.ack(id_of(messages[6]), cumulative=True, request=71)
    assert not raw.expect(Type.ACK_RESPONSE).HasField("error")
    assert server().admin.stats(topic, "s")["backlog"] == 3
    raw.ack(id_of(messages[7]), consumer=9, request=72)
    assert raw.expect(Type.ACK_RESPONSE).error == pb.ConsumerNotFound


def test_the_end_of_a_large_batch_is_acknowledged_first(raw: Raw, topic: str) -> None:
    """The client leaves words of zeros out, and does not tell the size: one word of ones is "all but 64"."""
    raw.produce(topic)
    entry = encode_messages([b"x"] * 70, "raw", 0, 1, batch=70)[0]
    raw.tell(Type.SEND, entry, producer_id=1, sequence_id=0, num_messages=70)
    raw.expect(Type.SEND_RECEIPT)
    raw.subscribe(topic, sub_type=1)
    raw.flow(100)
    (message,) = raw.messages(1)
    raw.ack(id_of(message, ack_set=[-1]), request=1)
    raw.expect(Type.ACK_RESPONSE)
    raw.ask(Type.CLOSE_CONSUMER, consumer_id=1)
    raw.subscribe(topic, sub_type=1)
    raw.flow(100)
    (again,) = raw.messages(1)
    assert list(again.ack_set) == [-1]
    raw.ack(id_of(again, ack_set=[0b1010]), request=2)
    raw.expect(Type.ACK_RESPONSE)
    raw.ack(id_of(again, ack_set=[0b0101]), request=3)  # nothing is open any more
    raw.expect(Type.ACK_RESPONSE)
    assert server().admin.stats(topic, "s")["backlog"] == 0


def test_hostile_acknowledgements_cost_little(raw: Raw, topic: str) -> None:
    """A batch is as large as a client says, and there are many of them: the loop must not stand still."""
    ids = publish(raw, topic, 1)
    raw.subscribe(topic, sub_type=1)
    raw.flow(1)
    raw.messages(1)
    ledger = ids[0].ledgerId
    part = pb.MessageIdData(ledgerId=ledger, entryId=0, ack_set=[1], batch_size=1 << 24)
    begun = time.monotonic()
    raw.ack(*[part] * 40_000, request=9)
    raw.expect(Type.ACK_RESPONSE)
    assert time.monotonic() - begun < 2.0


def test_acknowledging_what_does_not_exist(raw: Raw, topic: str) -> None:
    ids = publish(raw, topic, 3)
    raw.subscribe(topic)
    raw.flow(10)
    raw.messages(3)
    ledger = ids[0].ledgerId
    for at, (wrong, entry) in enumerate(
        [(ledger, 3), (ledger + 1, 0), (ledger - 1, 0), (ledger, (1 << 64) - 1)]
    ):
        for cumulative in (False, True):
            request = 10 * at + cumulative
            raw.ack(pb.MessageIdData(ledgerId=wrong, entryId=entry), cumulative=cumulative, request=request)
            assert raw.expect(Type.ACK_RESPONSE).request_id == request
    assert server().admin.stats(topic, "s")["backlog"] == 3


def test_a_shared_subscription_has_no_order(raw: Raw, topic: str) -> None:
    publish(raw, topic, 2)
    raw.subscribe(topic, sub_type=1)
    raw.flow(10)
    messages = raw.messages(2)
    raw.ack(id_of(messages[1]), cumulative=True, request=5)
    assert raw.expect(Type.ACK_RESPONSE).error == pb.NotAllowedError
    assert server().admin.stats(topic, "s")["backlog"] == 2


def test_who_is_active_is_told(raw: Raw, url: str, topic: str) -> None:
    raw.subscribe(topic, 1, sub_type=2)
    assert raw.expect(Type.ACTIVE_CONSUMER_CHANGE).is_active
    with Raw(url) as other:
        other.subscribe(topic, 5, sub_type=2)
        change = other.expect(Type.ACTIVE_CONSUMER_CHANGE)
        assert (change.consumer_id, change.is_active) == (5, False)
        raw.silent()
        raw.ask(Type.CLOSE_CONSUMER, consumer_id=1)
        assert other.expect(Type.ACTIVE_CONSUMER_CHANGE).is_active


def test_a_better_priority_takes_over(raw: Raw, url: str, topic: str) -> None:
    publish(raw, topic, 4)
    raw.subscribe(topic, 1, sub_type=2, priority_level=5)
    assert raw.expect(Type.ACTIVE_CONSUMER_CHANGE).is_active
    raw.flow(2)
    raw.messages(2)
    with Raw(url) as other:
        other.subscribe(topic, 1, sub_type=2, priority_level=1)
        assert other.expect(Type.ACTIVE_CONSUMER_CHANGE).is_active
        assert not raw.expect(Type.ACTIVE_CONSUMER_CHANGE).is_active
        other.flow(10)
        assert [each.message_id.entryId for each in other.messages(4)] == [0, 1, 2, 3]
        raw.flow(10)
        raw.silent()


def test_the_end_of_a_topic(raw: Raw, topic: str) -> None:
    publish(raw, topic, 2)
    raw.subscribe(topic)
    raw.flow(10)
    messages = raw.messages(2)
    server().admin.terminate(topic)
    raw.silent()
    raw.ack(id_of(messages[0]))
    raw.ack(id_of(messages[1]))
    assert raw.expect(Type.REACHED_END_OF_TOPIC).consumer_id == 1
    raw.subscribe(topic, 2, subscription="new", initialPosition=0)
    assert raw.expect(Type.REACHED_END_OF_TOPIC).consumer_id == 2


def test_a_consumer_that_is_rewound_says_which_messages_it_means(raw: Raw, topic: str) -> None:
    """A client that counts its rewinds (consumer_epoch) sees which messages are of before the last one."""
    publish(raw, topic, 4)
    raw.subscribe(topic, consumer_epoch=0)
    raw.flow(4)
    assert [each.consumer_epoch for each in raw.messages(4)] == [0] * 4
    raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, consumer_epoch=1)
    raw.flow(4)
    again = raw.messages(4)
    assert [each.consumer_epoch for each in again] == [1] * 4
    assert [each.redelivery_count for each in again] == [1] * 4


def test_statistics(raw: Raw, topic: str) -> None:
    publish(raw, topic, 5)
    raw.subscribe(topic, sub_type=1, consumer_name="till")
    raw.flow(3)
    raw.messages(3)
    answer = raw.ask(Type.CONSUMER_STATS, Type.CONSUMER_STATS_RESPONSE, consumer_id=1)
    assert (answer.consumerName, answer.type) == ("till", "Shared")
    assert (answer.unackedMessages, answer.msgBacklog, answer.availablePermits) == (3, 5, 0)
    nobody = raw.ask(Type.CONSUMER_STATS, Type.CONSUMER_STATS_RESPONSE, consumer_id=9)
    assert nobody.error_code == pb.MetadataError


def test_key_shared_is_refused(raw: Raw, topic: str) -> None:
    error = raw.ask(Type.SUBSCRIBE, Type.ERROR, topic=full(topic), subscription="s", subType=3, consumer_id=1)
    assert error.error == pb.NotAllowedError


# -- seeking ------------------------------------------------------------------------------------------


def test_the_order_of_a_seek(raw: Raw, url: str, topic: str) -> None:
    """CLOSE_CONSUMER to every consumer, the reset, then SUCCESS to who asked; then nothing of before."""
    ids = publish(raw, topic, 10)
    raw.subscribe(topic, 1, sub_type=1)
    with Raw(url) as other:
        other.subscribe(topic, 2, sub_type=1)
        raw.flow(1000)
        raw.messages(10)
        raw.tell(Type.SEEK, consumer_id=1, request_id=50, message_id=ids[3])
        assert raw.expect(Type.CLOSE_CONSUMER).consumer_id == 1
        assert raw.expect(Type.SUCCESS).request_id == 50
        assert other.expect(Type.CLOSE_CONSUMER).consumer_id == 2
        assert server().admin.stats(topic, "s")["backlog"] == 7
        raw.flow(1000)
        raw.silent()  # there is no consumer to give permits to
        raw.subscribe(topic, 1, sub_type=1)
        raw.flow(1000)
        again = raw.messages(7)
        assert [each.message_id.entryId for each in again] == list(range(3, 10))
        assert all(each.redelivery_count == 0 for each in again)


def test_acknowledgements_behind_a_seek_do_not_undo_it(raw: Raw, topic: str) -> None:
    """They come from the session before, from the new one before anything came again, and with receipts."""
    ids = publish(raw, topic, 10)
    raw.subscribe(topic)
    raw.flow(1000)
    old = raw.messages(10)
    raw.tell(Type.SEEK, consumer_id=1, request_id=50, message_id=ids[2])
    raw.ack(*map(id_of, old))  # behind the seek, in the same session
    raw.expect(Type.CLOSE_CONSUMER)
    raw.expect(Type.SUCCESS)
    raw.ack(id_of(old[9]), cumulative=True)
    raw.subscribe(topic)
    raw.ack(id_of(old[9]), cumulative=True, request=60)
    assert raw.expect(Type.ACK_RESPONSE).request_id == 60
    raw.ack(*map(id_of, old), request=61)
    assert raw.expect(Type.ACK_RESPONSE).request_id == 61
    assert server().admin.stats(topic, "s")["backlog"] == 8
    raw.flow(1000)
    again = raw.messages(8)
    assert [each.message_id.entryId for each in again] == list(range(2, 10))
    raw.ack(*map(id_of, again), request=62)
    raw.expect(Type.ACK_RESPONSE)
    assert server().admin.stats(topic, "s")["backlog"] == 0


def test_seek_into_a_batch(raw: Raw, topic: str) -> None:
    """With an ack set, what stands before the message in its batch does not come."""
    raw.produce(topic)
    entry = encode_messages([b"%d" % n for n in range(5)], "raw", 0, 1, batch=5)[0]
    raw.tell(Type.SEND, entry, producer_id=1, sequence_id=0, num_messages=5)
    sent = raw.expect(Type.SEND_RECEIPT).message_id
    raw.subscribe(topic)
    raw.flow(100)
    raw.messages(1)
    target = pb.MessageIdData(ledgerId=sent.ledgerId, entryId=sent.entryId, ack_set=[0b11100])
    raw.ask(Type.SEEK, consumer_id=1, message_id=target)
    raw.subscribe(topic)
    raw.flow(100)
    (message,) = raw.messages(1)
    assert list(message.ack_set) == [0b11100]


def test_a_reset_of_others_closes_the_consumer(raw: Raw, topic: str) -> None:
    publish(raw, topic, 5)
    raw.subscribe(topic)
    raw.flow(1000)
    raw.messages(5)
    server().admin.reset(topic, "s", "earliest")
    assert raw.expect(Type.CLOSE_CONSUMER).consumer_id == 1
    raw.silent()


def test_who_subscribes_during_a_seek_is_answered_first(raw: Raw, topic: str) -> None:
    """The client comes back before its seek has ended: its SUBSCRIBE, then its SEEK, then messages."""
    publish(raw, topic, 3)
    raw.subscribe(topic)
    server().admin.slow_resets(0.3)
    try:
        raw.tell(Type.SEEK, consumer_id=1, request_id=50, message_publish_time=0)
        raw.expect(Type.CLOSE_CONSUMER)
        raw.tell(Type.SUBSCRIBE, topic=full(topic), subscription="s", subType=0, consumer_id=1, request_id=51)
        raw.silent(0.1)
        assert raw.expect(Type.SUCCESS).request_id == 51
        assert raw.expect(Type.SUCCESS).request_id == 50
        raw.flow(10)
        raw.messages(3)
    finally:
        server().admin.slow_resets(0.0)


def test_a_seek_of_nobody(raw: Raw, topic: str) -> None:
    error = raw.ask(Type.SEEK, Type.ERROR, consumer_id=9, message_publish_time=0)
    assert error.error == pb.MetadataError
    raw.subscribe(topic)
    error = raw.ask(Type.SEEK, Type.ERROR, consumer_id=1)
    assert error.error == pb.MetadataError


def test_start_positions_of_readers(raw: Raw, topic: str) -> None:
    ids = publish(raw, topic, 10)
    minus = (1 << 64) - 1
    most = (1 << 63) - 1
    cases = [
        (ids[4], 4),
        (pb.MessageIdData(ledgerId=minus, entryId=minus), 0),
        (pb.MessageIdData(ledgerId=ids[0].ledgerId, entryId=minus), 0),
        (pb.MessageIdData(ledgerId=ids[0].ledgerId, entryId=6, batch_index=2), 6),
        (pb.MessageIdData(ledgerId=most, entryId=most), 10),
        (pb.MessageIdData(ledgerId=most, entryId=(1 << 48) - 1), 10),
    ]
    for consumer, (start, first) in enumerate(cases):
        name = f"reader-{consumer}"
        raw.subscribe(
            topic, consumer, subscription=name, durable=False, start_message_id=start, initialPosition=0
        )
        raw.flow(100, consumer)
        got = [each.message_id.entryId for each in raw.messages(10 - first)]
        assert got == list(range(first, 10)), (consumer, got)
        raw.ask(Type.CLOSE_CONSUMER, consumer_id=consumer)
    assert server().admin.subscriptions(topic) == []


def test_starting_a_while_ago(raw: Raw, topic: str) -> None:
    publish(raw, topic, 3)
    raw.subscribe(topic, 1, initialPosition=0, start_message_rollback_duration_sec=3600)
    raw.flow(10)
    assert len(raw.messages(3)) == 3


def test_a_reader_that_has_sought_by_time_finds_its_place(raw: Raw, topic: str) -> None:
    publish(raw, topic, 5)
    fields: dict[str, Any] = {"subscription": "r", "durable": False, "initialPosition": 0}
    most = pb.MessageIdData(ledgerId=(1 << 63) - 1, entryId=(1 << 63) - 1)
    raw.subscribe(topic, 1, start_message_id=most, **fields)
    raw.ask(Type.SEEK, consumer_id=1, message_publish_time=1)
    raw.subscribe(topic, 1, start_message_id=most, **fields)
    raw.flow(10)
    assert [each.message_id.entryId for each in raw.messages(5)] == [0, 1, 2, 3, 4]


# -- life and death of a connection -------------------------------------------------------------------


@pytest.fixture(scope="module")
def hasty() -> Iterator[ServerProcess]:
    """A server that does not wait long for anybody."""
    process = ServerProcess(server={"handshake_s": 0.4, "keep_alive_s": 0.4, "liveness_s": 0.3})
    yield process
    process.end()


def test_who_does_not_connect_is_closed(hasty: ServerProcess) -> None:
    with Raw(hasty.url, greet=False) as raw:
        ((kind, error),) = raw.closed()
        assert kind == Type.ERROR
        assert error.error == pb.AuthenticationError


def test_keep_alive(hasty: ServerProcess) -> None:
    with Raw(hasty.url) as silent, Raw(hasty.url) as lively:
        for _ in range(3):
            kind, _message = lively.hear()
            assert kind == Type.PING
            lively.tell(Type.PONG)
        assert {kind for kind, _ in silent.closed()} == {Type.PING}
        lively.tell(Type.PING)
        assert lively.hear()[0] in (Type.PONG, Type.PING)


def test_who_does_not_read_for_too_long_is_closed(hasty: ServerProcess) -> None:
    with Raw(hasty.url) as raw:
        raw.socket.settimeout(5.0)
        with pytest.raises(OSError):  # noqa: PT011  # reset, or a broken pipe
            raw.socket.sendall(frame_of(Type.PING) * 10_000_000)


def test_a_dead_holder_gives_way(hasty: ServerProcess) -> None:
    """A client that is gone without a word holds neither a name nor an exclusive subscription for long."""
    with Raw(hasty.url) as dead, Raw(hasty.url) as raw:
        dead.produce("held", producer_name="till")
        dead.subscribe("held")
        assert raw.produce("held", producer_name="till").producer_name == "till"
        raw.subscribe("held")


def test_a_living_holder_stays(hasty: ServerProcess) -> None:
    import threading

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


def test_an_orderly_end() -> None:
    """What was taken is confirmed, then everybody is told."""
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
