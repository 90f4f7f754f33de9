"""Compacted topics with the official client: readers, consumers, tables, and what a user does wrong."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.kit.server.wire_programs import data_of, receive, refused, restarted, send_all, tells, until
from tests.kit.server.wire_world import ServerProcess, client, job_of, program, pulsar


def publish(client: Any, topic: str, *messages: tuple[str | None, bytes]) -> list[Any]:
    producer = client.create_producer(topic)
    ids = [producer.send(data, partition_key=key) for key, data in messages]
    producer.close()
    return ids


def compacted(client: Any, topic: str) -> Any:
    return client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)


def read_all(reader: Any) -> list[tuple[str, bytes]]:
    found = []
    while reader.has_message_available():
        message = reader.read_next(20_000)
        found.append((message.partition_key(), message.data()))
    return found


def place(id: Any) -> tuple[int, int, int]:  # noqa: A002  # as the client names it
    return id.ledger_id(), id.entry_id(), id.batch_index()


@program
def test_a_reader_gets_the_newest_of_each_key(client: Any, topic: str, admin: Any) -> None:
    """With their own ids, and then what was not compacted yet."""
    ids = publish(client, topic, ("a", b"1"), ("b", b"1"), ("a", b"2"), (None, b"free"), ("c", b"1"))
    publish(client, topic, ("b", b""))
    admin.compact(topic)
    publish(client, topic, ("a", b"3"))
    reader = compacted(client, topic)
    messages = [reader.read_next(20_000) for _ in range(3)]
    assert data_of(messages) == [b"2", b"1", b"3"]
    assert [place(each.message_id())[:2] for each in messages[:2]] == [place(ids[n])[:2] for n in (2, 4)]
    assert not reader.has_message_available()
    whole = client.create_reader(topic, pulsar.MessageId.earliest)
    assert len(read_all(whole)) == 7, "a reader of the topic gets all messages"
    admin.compact(topic)
    assert read_all(compacted(client, topic)) == [("c", b"1"), ("a", b"3")]


@program
def test_before_the_first_compaction_all_messages_come(client: Any, topic: str) -> None:
    publish(client, topic, ("a", b"1"), ("a", b"2"))
    assert data_of([compacted(client, topic).read_next(20_000)]) == [b"1"]


@program
def test_batches_keep_the_places_of_their_messages(client: Any, topic: str, admin: Any) -> None:
    """Also compressed ones, which the broker opens."""
    kinds = [pulsar.CompressionType.NONE, pulsar.CompressionType.LZ4, pulsar.CompressionType.ZLib]
    kinds += [pulsar.CompressionType.ZSTD, pulsar.CompressionType.SNAPPY]
    expected = []
    for number, kind in enumerate(kinds):
        producer = client.create_producer(
            topic,
            compression_type=kind,
            batching_enabled=True,
            batching_max_messages=4,
            batching_max_publish_delay_ms=10_000,
        )
        keys = [f"{number}-x", f"{number}-y", f"{number}-x", "shared"]
        ids = send_all(producer, [b"%d" % n for n in range(4)], partition_key=lambda n, keys=keys: keys[n])
        assert {place(each)[2] for each in ids} == {0, 1, 2, 3}
        expected += [(ids[1], b"1"), (ids[2], b"2")] + ([(ids[3], b"3")] if number == len(kinds) - 1 else [])
    admin.compact(topic)
    reader = compacted(client, topic)
    found = [reader.read_next(20_000) for _ in expected]
    assert [(place(each.message_id()), each.data()) for each in found] == [
        (place(id_), data) for id_, data in expected
    ]
    assert not reader.has_message_available()


@program
def test_a_consumer_reads_on_where_it_was(client: Any, topic: str, admin: Any) -> None:
    """Its backlog is empty at the end, although most messages never came."""
    publish(client, topic, *[(f"k{n % 5}", b"%d" % n) for n in range(200)])
    admin.compact(topic)
    options = {"initial_position": pulsar.InitialPosition.Earliest, "is_read_compacted": True}
    consumer = client.subscribe(topic, "s", **options)
    first = receive(consumer, 2)
    assert data_of(first) == [b"195", b"196"]
    for each in first:
        consumer.acknowledge(each)
    consumer.close()
    consumer = client.subscribe(topic, "s", **options)
    rest = receive(consumer, 3)
    assert data_of(rest) == [b"197", b"198", b"199"]
    for each in rest:
        consumer.acknowledge(each)
    until(lambda: admin.stats(topic, "s")["backlog"] == 0)
    consumer.seek(pulsar.MessageId.earliest)
    assert data_of(receive(consumer, 5)) == [b"195", b"196", b"197", b"198", b"199"]


@program
def test_a_negative_acknowledgement_brings_the_newest_again(client: Any, topic: str, admin: Any) -> None:
    publish(client, topic, ("a", b"1"), ("b", b"1"), ("a", b"2"))
    admin.compact(topic)
    consumer = client.subscribe(
        topic,
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        is_read_compacted=True,
        negative_ack_redelivery_delay_ms=100,
    )
    one, two = receive(consumer, 2)
    consumer.acknowledge(two)
    consumer.negative_acknowledge(one)
    assert consumer.receive(20_000).data() == one.data() == b"1"


@program
def test_the_topic_may_have_trimmed_what_the_view_keeps(client: Any, topic: str, admin: Any) -> None:
    admin.create_topic(topic, retention_bytes=0, roll_entries=10)
    consumer = client.subscribe(topic, "s")
    publish(client, topic, *[(f"k{n % 3}", b"%d" % n) for n in range(40)])
    admin.compact(topic)
    admin.settle_compaction(topic)
    for each in receive(consumer, 40):
        consumer.acknowledge(each)
    until(lambda: admin.first_kept(topic) >= 30)
    assert read_all(compacted(client, topic)) == [("k1", b"37"), ("k2", b"38"), ("k0", b"39")]
    again = client.subscribe(
        topic, "c", initial_position=pulsar.InitialPosition.Earliest, is_read_compacted=True
    )
    found = receive(again, 3)
    for each in found:  # their ledgers are gone
        again.acknowledge(each)
    until(lambda: admin.stats(topic, "c")["backlog"] == 0)


@program
def test_a_topic_whose_last_message_deleted_a_key(client: Any, topic: str, admin: Any) -> None:
    """A reader must not wait for a message that compaction has removed."""
    publish(client, topic, ("a", b"1"), ("b", b"1"), ("b", b""))
    admin.compact(topic)
    assert read_all(compacted(client, topic)) == [("a", b"1")]
    publish(client, topic, ("a", b""))
    admin.compact(topic)
    assert read_all(compacted(client, topic)) == []


@program
def test_a_table_of_a_compacted_topic(client: Any, topic: str, admin: Any) -> None:
    publish(client, topic, *[(f"k{n % 3}", b"%d" % n) for n in range(30)], ("k0", b""))
    admin.compact(topic)
    view = client.create_table_view(topic)
    assert {key: view.get(key) for key in ("k1", "k2")} == {"k1": b"28", "k2": b"29"}
    assert view.get("k0") is None
    publish(client, topic, ("k0", b"new"), ("k1", b""))
    until(lambda: view.get("k0") == b"new" and view.get("k1") is None)
    view.close()


@program
def test_misuse(client: Any, topic: str, admin: Any) -> None:
    """Shared consumers, and consumers of one subscription that read differently, are refused."""
    publish(client, topic, ("a", b"1"))
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "shared", consumer_type=pulsar.ConsumerType.Shared, is_read_compacted=True)
    failover = {"consumer_type": pulsar.ConsumerType.Failover}
    client.subscribe(topic, "s", **failover)
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s", **failover, is_read_compacted=True)
    refused(RuntimeError, lambda: admin.compact(f"{topic}-that-does-not-exist"))


KEYS = 300


@program
def compacted_over_a_kill(client: Any, topic: str, admin: Any) -> None:
    """The server is killed while it compacts: a reader gets each key's newest value."""
    pid = admin.pid()
    for value in range(4):
        producer = client.create_producer(topic, batching_enabled=True, batching_max_messages=50)
        send_all(producer, [b"%d" % value] * KEYS, partition_key=lambda n: f"k{n}")
        producer.close()
        if value == 1:
            admin.compact(topic)
    admin.begin_compaction(topic)
    admin.create_topic(f"{topic}-ripe")
    until(lambda: restarted(admin, pid), 60.0)
    until(lambda: tells(lambda: admin.compaction_state(topic) == "done"), 60.0)
    found = read_all(compacted(client, topic))
    assert dict(found) == {f"k{n}": b"3" for n in range(KEYS)}
    assert len(found) == KEYS, "the request outlived the server, so the second compaction is done"


def test_over_a_kill() -> None:
    own = ServerProcess({"retention_bytes": -1})
    try:
        runner, job = client(), job_of(compacted_over_a_kill, own)
        runner.begin(job)
        until(lambda: f"{job['topic']}-ripe" in str(own.admin.topics()), 60.0)
        own.restart(signal.SIGKILL)
        runner.finish(120)
    finally:
        own.end()
