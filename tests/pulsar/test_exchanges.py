"""Publish to exchanges with the official client: routing, batches, receipts, refusals, restarts."""

from __future__ import annotations

import functools
import signal
from typing import Any

from tests.kit.server.wire_programs import data_of, nothing_comes, receive, refused, send_all, until
from tests.kit.server.wire_world import ServerProcess, client, job_of, program, pulsar

BATCHES = {"batching_enabled": True, "batching_max_messages": 6, "batching_max_publish_delay_ms": 1000}
MESSAGES = 400


def bound(client: Any, admin: Any, exchange: str, kind: str, keys: dict[str, list[str]]) -> dict[str, Any]:
    """Create an exchange with a topic for each name; return their consumers."""
    admin.create_exchange(exchange, kind)
    consumers = {}
    for name, bindings in keys.items():
        consumers[name] = client.subscribe(f"{exchange}-{name}", "s")
        for key in bindings:
            admin.bind(exchange, f"{exchange}-{name}", key)
    return consumers


@program
def test_direct(client: Any, topic: str, admin: Any) -> None:
    consumers = bound(client, admin, topic, "direct", {"red": ["r", "both"], "blue": ["b", "both"]})
    producer = client.create_producer(topic)
    for key in ("r", "b", "both", "r", "none"):
        producer.send(key.encode(), partition_key=key, properties={"of": key})
    assert data_of(receive(consumers["red"], 3)) == [b"r", b"both", b"r"]
    blue = receive(consumers["blue"], 2)
    assert [(each.data(), each.partition_key(), each.properties()) for each in blue] == [
        (b"b", "b", {"of": "b"}),
        (b"both", "both", {"of": "both"}),
    ]
    found = admin.exchange(topic)
    assert (found["published"], found["routed"], found["dropped"], found["appended"]) == (5, 4, 1, 5)


@program
def test_fanout(client: Any, topic: str, admin: Any) -> None:
    consumers = bound(client, admin, topic, "fanout", {"a": [""], "b": ["ignored", "twice"]})
    producer = client.create_producer(topic, **BATCHES)
    payloads = [b"%d" % n for n in range(20)]
    send_all(producer, payloads, partition_key=lambda n: f"k{n % 3}")
    for consumer in consumers.values():
        assert data_of(receive(consumer, 20)) == payloads
        nothing_comes(consumer)
    assert admin.exchange(topic)["published"] < 20, "a batch is one entry, and a fanout does not split it"


@program
def test_patterns(client: Any, topic: str, admin: Any) -> None:
    keys = {"nyse": ["stock.*.nyse"], "stock": ["stock.#"], "all": ["#"]}
    consumers = bound(client, admin, topic, "topic", keys)
    producer = client.create_producer(topic)
    for key in ("stock.ibm.nyse", "stock", "bond.x.nyse", None):
        producer.send((key or "no key").encode(), partition_key=key)
    assert data_of(receive(consumers["nyse"], 1)) == [b"stock.ibm.nyse"]
    assert data_of(receive(consumers["stock"], 2)) == [b"stock.ibm.nyse", b"stock"]
    assert data_of(receive(consumers["all"], 4)) == [b"stock.ibm.nyse", b"stock", b"bond.x.nyse", b"no key"]


@program
def test_a_batch_of_several_keys_is_split(client: Any, topic: str, admin: Any) -> None:
    """Each message goes its way with all its metadata, also from a compressed batch."""
    consumers = bound(client, admin, topic, "direct", {"0": ["0"], "1": ["1"], "2": ["2"]})
    for compression in (pulsar.CompressionType.NONE, pulsar.CompressionType.ZLib):
        producer = client.create_producer(topic, compression_type=compression, **BATCHES)
        results: list[Any] = []
        for n in range(6):
            producer.send_async(
                b"%d" % n,
                lambda result, _, results=results: results.append(result),
                partition_key=str(n % 3),
                properties={"n": str(n)},
                event_timestamp=1000 + n,
            )
        producer.flush()
        assert results == [pulsar.Result.Ok] * 6
        for name, consumer in consumers.items():
            got = receive(consumer, 2)
            wanted = [int(name), int(name) + 3]
            assert [int(each.data()) for each in got] == wanted
            assert [each.properties() for each in got] == [{"n": str(n)} for n in wanted]
            assert [each.event_timestamp() for each in got] == [1000 + n for n in wanted]
            assert {each.partition_key() for each in got} == {name}
    assert admin.exchange(topic)["published"] == 12


@program
def test_batches_by_key_stay_batches(client: Any, topic: str, admin: Any) -> None:
    consumers = bound(client, admin, topic, "direct", {"0": ["0"], "1": ["1"]})
    kind = pulsar.BatchingType.KeyBased
    producer = client.create_producer(topic, batching_type=kind, **BATCHES)
    send_all(producer, [b"%d" % n for n in range(6)], partition_key=lambda n: str(n % 2))
    assert data_of(receive(consumers["0"], 3)) == [b"0", b"2", b"4"]
    assert data_of(receive(consumers["1"], 3)) == [b"1", b"3", b"5"]
    assert admin.exchange(topic)["published"] == 2


@program
def test_a_batch_whose_keys_cannot_be_read_is_refused(client: Any, topic: str, admin: Any) -> None:
    """The producer gets an error; nothing is routed by a guess."""
    consumers = bound(client, admin, topic, "direct", {"0": ["0"]})
    lz4 = pulsar.CompressionType.LZ4
    producer = client.create_producer(topic, compression_type=lz4, **BATCHES)
    results: list[Any] = []
    for n in range(3):
        producer.send_async(b"x" * 200, lambda result, _: results.append(result), partition_key=str(n))
    until(lambda: len(results) == 3)
    assert results == [pulsar.Result.ProducerFenced] * 3
    single = client.create_producer(topic, compression_type=lz4)
    single.send(b"y" * 200, partition_key="0")
    assert data_of(receive(consumers["0"], 1)) == [b"y" * 200]


@program
def test_consumers_and_readers_are_refused(client: Any, topic: str, admin: Any) -> None:
    admin.create_exchange(topic, "fanout")
    for attach in (
        lambda: client.subscribe(topic, "s"),
        lambda: client.create_reader(topic, pulsar.MessageId.earliest),
        lambda: client.create_producer(topic, schema=pulsar.schema.StringSchema()),
    ):
        refused(pulsar.PulsarException, attach)
    assert topic not in str(admin.topics())
    assert admin.exchange(topic)["published"] == 0


@program
def test_a_rejected_message_goes_to_the_alternate_once(client: Any, topic: str, admin: Any) -> None:
    dead = bound(client, admin, f"{topic}-x", "fanout", {"dead": [""]})["dead"]
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    admin.set_alternate(topic, f"{topic}-x")
    client.create_producer(topic).send(b"bad", properties={"why": "it is"})
    at = receive(consumer, 1)[0].message_id()
    assert admin.reject_at(topic, "s", at.ledger_id(), at.entry_id())
    assert not admin.reject_at(topic, "s", at.ledger_id(), at.entry_id())
    [got] = receive(dead, 1)
    assert (got.data(), got.properties()) == (b"bad", {"why": "it is"})
    nothing_comes(dead)
    assert admin.stats(topic, "s")["backlog"] == 0
    consumer.redeliver_unacknowledged_messages()
    nothing_comes(consumer)


# -- restarts ------------------------------------------------------------------------------------------


@program
def through_restarts(client: Any, topic: str, admin: Any) -> None:
    """Every confirmed message is in its topics once, though the producer sends again."""
    keys = {"even": ["0"], "odd": ["1"], "all": ["0", "1"]}
    consumers = bound(client, admin, topic, "direct", keys)
    producer = client.create_producer(topic, producer_name="till", block_if_queue_full=True)
    results: list[Any] = []
    for n in range(1, MESSAGES + 1):
        producer.send_async(
            b"%d" % n,
            lambda result, _: results.append(result),
            sequence_id=n,
            partition_key=str(n % 2),
        )
        if n % 10 == 0:
            producer.flush()
    producer.flush()
    assert results == [pulsar.Result.Ok] * MESSAGES
    found = admin.exchange(topic)
    assert (found["published"], found["appended"]) == (MESSAGES, 2 * MESSAGES)
    for name, first, step in (("even", 2, 2), ("odd", 1, 2), ("all", 1, 1)):
        got = {int(each.data()) for each in receive(consumers[name], len(range(first, MESSAGES + 1, step)))}
        assert got == set(range(first, MESSAGES + 1, step))


def published(server: ServerProcess, name: str, more_than: int) -> bool:
    exchanges = server.admin.exchanges()
    return name in str(exchanges) and server.admin.exchange(name)["published"] > more_than


def test_a_retried_publish_is_not_routed_twice() -> None:
    server = ServerProcess({"deduplication": True, "retention_bytes": -1})
    try:
        job = job_of(through_restarts, server, 60.0)
        client().begin(job)
        until(functools.partial(published, server, job["topic"], MESSAGES // 3), 20.0)
        server.restart(signal.SIGKILL)
        client().finish(60.0)
    finally:
        server.end()


@program
def fill_and_leave(client: Any, topic: str, admin: Any) -> None:
    admin.create_exchange("dead", "fanout")
    for name in (topic, "morgue"):
        admin.create_topic(name)
        admin.create_subscription(name, "s")
    admin.bind("dead", "morgue")
    admin.set_alternate(topic, "dead")
    producer = client.create_producer(topic)
    for n in range(20):
        producer.send(b"%d" % n)


def test_a_reject_holds_over_a_kill() -> None:
    """A rejected message is moved once, though the server is killed in between."""
    server = ServerProcess()
    try:
        job = job_of(fill_and_leave, server)
        client().run(job)
        topic, first = job["topic"], []
        ledger = server.admin.last_id(topic)[0]
        for entry in range(10):
            first.append(server.admin.reject_at(topic, "s", ledger, entry))
            if entry == 4:
                server.restart(signal.SIGKILL)
        again = [server.admin.reject_at(topic, "s", ledger, entry) for entry in range(10)]
        assert (first, again) == ([True] * 10, [False] * 10)
        assert server.admin.stats(topic, "s")["backlog"] == 10
        assert server.admin.stats("morgue", "s")["backlog"] == 10
    finally:
        server.end()
