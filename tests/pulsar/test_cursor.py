"""Consumers and their positions, frame by frame: permits, acknowledgements, rewinds, seeks, readers."""

from __future__ import annotations

from holdfast._core import encode_messages
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.processes import cpu_s
from tests.kit.server.wire_raw import Raw, Type, id_of
from tests.kit.server.wire_world import server

# -- consumers ----------------------------------------------------------------------------------------


def test_no_more_than_was_asked_for(raw: Raw, topic: str) -> None:
    raw.publish(topic, 10)
    raw.subscribe(topic)
    raw.silent()
    raw.flow(3)
    assert [each.message_id.entryId for each in raw.messages(3)] == [0, 1, 2]
    raw.silent()
    raw.flow(100)
    assert [each.message_id.entryId for each in raw.messages(7)] == [3, 4, 5, 6, 7, 8, 9]


def test_permits_stay_right_over_rewinds(raw: Raw, topic: str) -> None:
    """I83: a batch exceeds the permits; a rewind clears that debt; the sum stays right."""
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


def test_receipts_of_acknowledgements(raw: Raw, topic: str) -> None:
    raw.publish(topic, 10)
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
    """Clients omit zero words and the size: one word of ones is "all but 64"."""
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
    """Many batches of the size that a client claims do not block the loop."""
    ids = raw.publish(topic, 1)
    raw.subscribe(topic, sub_type=1)
    raw.flow(1)
    raw.messages(1)
    ledger = ids[0].ledgerId

    def costs(size: int) -> float:
        part = pb.MessageIdData(ledgerId=ledger, entryId=0, ack_set=[1], batch_size=size)
        begun = cpu_s(server().pid)
        raw.ack(*[part] * 10_000, request=9)
        raw.expect(Type.ACK_RESPONSE, 60.0)
        return cpu_s(server().pid) - begun

    small, large = zip(*((costs(2), costs(1 << 24)) for _ in range(3)), strict=True)
    assert min(large) < 10 * min(small), "the size of a batch is what it costs"


def test_acknowledging_what_does_not_exist(raw: Raw, topic: str) -> None:
    ids = raw.publish(topic, 3)
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
    raw.publish(topic, 2)
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
    raw.publish(topic, 4)
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


def test_a_consumer_that_is_rewound_says_which_messages_it_means(raw: Raw, topic: str) -> None:
    """A client that counts its rewinds (consumer_epoch) can tell older messages from new ones."""
    raw.publish(topic, 4)
    raw.subscribe(topic, consumer_epoch=0)
    raw.flow(4)
    assert [each.consumer_epoch for each in raw.messages(4)] == [0] * 4
    raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, consumer_epoch=1)
    raw.flow(4)
    again = raw.messages(4)
    assert [each.consumer_epoch for each in again] == [1] * 4
    assert [each.redelivery_count for each in again] == [1] * 4


def test_statistics(raw: Raw, topic: str) -> None:
    raw.publish(topic, 5)
    raw.subscribe(topic, sub_type=1, consumer_name="till")
    raw.flow(3)
    raw.messages(3)
    answer = raw.ask(Type.CONSUMER_STATS, Type.CONSUMER_STATS_RESPONSE, consumer_id=1)
    assert (answer.consumerName, answer.type) == ("till", "Shared")
    assert (answer.unackedMessages, answer.msgBacklog, answer.availablePermits) == (3, 5, 0)
    nobody = raw.ask(Type.CONSUMER_STATS, Type.CONSUMER_STATS_RESPONSE, consumer_id=9)
    assert nobody.error_code == pb.MetadataError


# -- seeking ------------------------------------------------------------------------------------------


def test_acknowledgements_behind_a_seek_do_not_undo_it(raw: Raw, topic: str) -> None:
    """They come from the old session, from the new one before redelivery, and with receipts."""
    ids = raw.publish(topic, 10)
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


def test_a_seek_of_nobody(raw: Raw, topic: str) -> None:
    error = raw.ask(Type.SEEK, Type.ERROR, consumer_id=9, message_publish_time=0)
    assert error.error == pb.MetadataError
    raw.subscribe(topic)
    error = raw.ask(Type.SEEK, Type.ERROR, consumer_id=1)
    assert error.error == pb.MetadataError


def test_start_positions_of_readers(raw: Raw, topic: str) -> None:
    ids = raw.publish(topic, 10)
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
    raw.publish(topic, 3)
    raw.subscribe(topic, 1, initialPosition=0, start_message_rollback_duration_sec=3600)
    raw.flow(10)
    assert len(raw.messages(3)) == 3
