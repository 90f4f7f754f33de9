"""Partitioned topics with the official client, as its users write it."""

from __future__ import annotations

import contextlib
import importlib
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.names import partition_name
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.wire_programs import nothing_comes, numbers, receive, refused, send_all, until
from tests.kit.server.wire_raw import Raw, Type, full
from tests.kit.server.wire_world import ServerProcess, client, job_of, program, pulsar, server, with_broker

COUNT = 4


def subscribed(client: Any, topic: str, **more: Any) -> Any:
    earliest = pulsar.InitialPosition.Earliest
    return client.subscribe(topic, "s", initial_position=earliest, **more)


def partition_of(message: Any) -> int:
    return int(message.topic_name().rpartition("-")[2])


def parted(messages: list[Any]) -> dict[int, list[bytes]]:
    """Return the payloads of each partition, in their order."""
    found: dict[int, list[bytes]] = {}
    for each in messages:
        found.setdefault(partition_of(each), []).append(each.data())
    return found


# -- routing -------------------------------------------------------------------------------------------


@program
def test_round_robin(client: Any, topic: str, admin: Any) -> None:
    admin.create_partitioned_topic(topic, COUNT)
    expected = [full(partition_name(topic, index)) for index in range(COUNT)]
    assert client.get_topic_partitions(topic) == expected
    modes = pulsar.PartitionsRoutingMode
    mode = modes.RoundRobinDistribution
    producer = client.create_producer(topic, message_routing_mode=mode, batching_enabled=False)
    ids = send_all(producer, numbers(0, 40))
    assert Counter(each.partition() for each in ids) == dict.fromkeys(range(COUNT), 10)
    consumer = subscribed(client, topic)
    messages = receive(consumer, 40)
    assert sorted(map(len, parted(messages).values())) == [10] * COUNT
    for message in messages:
        consumer.acknowledge(message)
    nothing_comes(consumer)


@program
def test_a_single_partition(client: Any, topic: str, admin: Any) -> None:
    admin.create_partitioned_topic(topic, COUNT)
    mode = pulsar.PartitionsRoutingMode.UseSinglePartition
    producer = client.create_producer(topic, message_routing_mode=mode)
    ids = send_all(producer, numbers(0, 20))
    assert len({each.partition() for each in ids}) == 1
    [only] = parted(receive(subscribed(client, topic), 20)).values()
    assert only == numbers(0, 20)


@program
def test_keys_choose_a_partition(client: Any, topic: str, admin: Any) -> None:
    """A key stays in its partition, in order, in every mode."""
    admin.create_partitioned_topic(topic, COUNT)
    producer = client.create_producer(topic)
    send_all(producer, numbers(0, 60), partition_key=lambda n: f"k{n % 6}")
    by_key: dict[str, list[tuple[int, bytes]]] = {}
    for each in receive(subscribed(client, topic), 60):
        by_key.setdefault(each.partition_key(), []).append((partition_of(each), each.data()))
    assert len(by_key) == 6
    for key, found in by_key.items():
        assert len({partition for partition, _ in found}) == 1, key
        assert [data for _, data in found] == [b"%d" % n for n in range(int(key[1:]), 60, 6)]


@program
def test_a_router_of_the_program(client: Any, topic: str, admin: Any) -> None:
    admin.create_partitioned_topic(topic, COUNT)
    producer = client.create_producer(
        topic,
        message_routing_mode=pulsar.PartitionsRoutingMode.CustomPartition,
        message_router=lambda message, count: int(message.data()) % (count - 1),
    )
    send_all(producer, numbers(0, 12))
    found = parted(receive(subscribed(client, topic), 12))
    assert found == {index: [b"%d" % n for n in range(index, 12, COUNT - 1)] for index in range(COUNT - 1)}


# -- consuming -----------------------------------------------------------------------------------------


@program
def test_shared_consumers_and_acknowledgements(client: Any, topic: str, admin: Any) -> None:
    admin.create_partitioned_topic(topic, COUNT)
    kind = pulsar.ConsumerType.Shared
    consumers = [subscribed(client, topic, consumer_type=kind) for _ in range(2)]
    send_all(client.create_producer(topic), numbers(0, 40), partition_key=lambda n: f"{n}")
    got: list[bytes] = []
    while len(got) < 40:
        for consumer in consumers:
            try:
                message = consumer.receive(100)
            except pulsar.Timeout:
                continue
            got.append(message.data())
            consumer.acknowledge(message)
    assert sorted(got) == sorted(numbers(0, 40))
    names = [partition_name(topic, index) for index in range(COUNT)]
    until(lambda: sum(admin.stats(each, "s")["backlog"] for each in names) == 0)
    consumers[0].close()
    consumers[1].unsubscribe()
    assert admin.subscriptions(topic) == []


@program
def test_ids_name_their_partition(client: Any, topic: str, admin: Any) -> None:
    """Those of received messages, of the last message, and of topics without partitions."""
    admin.create_partitioned_topic(topic, COUNT)
    sent = send_all(client.create_producer(topic), numbers(0, 12), partition_key=lambda n: f"{n}")
    whole = receive(subscribed(client, topic), 12)
    assert [each.message_id().partition() for each in whole] == [partition_of(each) for each in whole]
    assert {each.partition() for each in sent} == {each.message_id().partition() for each in whole}
    reader = client.create_reader(partition_name(topic, 1), pulsar.MessageId.earliest)
    assert reader.has_message_available()
    assert reader.read_next(20_000).message_id().partition() == 1
    one = client.subscribe(partition_name(topic, 1), "other")
    last = one.get_last_message_id()
    assert last.partition() == 1
    one.seek(last)
    alone = client.subscribe(f"{topic}-alone", "s")
    client.create_producer(f"{topic}-alone").send(b"x")
    assert alone.receive(20_000).message_id().partition() == -1


@program
def test_a_reader_of_all_partitions(client: Any, topic: str, admin: Any) -> None:
    admin.create_partitioned_topic(topic, COUNT)
    send_all(client.create_producer(topic), numbers(0, 40), partition_key=lambda n: f"{n}")
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    got = set()
    while reader.has_message_available():
        got.add(reader.read_next(20_000).data())
    assert got == set(numbers(0, 40))
    reader.seek(pulsar.MessageId.earliest)
    again = {reader.read_next(20_000).data() for _ in range(40)}
    assert again == got
    one = client.create_reader(partition_name(topic, 0), pulsar.MessageId.earliest)
    assert one.read_next(20_000).data() in got


@program
def test_growth_loses_nothing_of_a_subscription(client: Any, topic: str, admin: Any) -> None:
    """Messages of a new partition wait for consumers that notice it later (I284)."""
    admin.create_partitioned_topic(topic, 2)
    subscribed(client, topic).close()
    admin.grow_partitions(topic, COUNT)
    producer = client.create_producer(topic, batching_enabled=False)
    ids = send_all(producer, numbers(0, 40))
    assert {each.partition() for each in ids} == set(range(COUNT))
    # Without a wish for the earliest message: the subscription exists.
    consumer = client.subscribe(topic, "s")
    assert {each.data() for each in receive(consumer, 40)} == set(numbers(0, 40))


@contextlib.contextmanager
def refreshed_each_second() -> Iterator[None]:
    """Look for topics of a pattern each second.

    The client for Python checks its argument for that, and forgets it.
    """
    core: Any = importlib.import_module("_pulsar")
    real = core.ConsumerConfiguration

    def hasty() -> Any:
        made = real()
        made.pattern_auto_discovery_period(1)
        return made

    core.ConsumerConfiguration = hasty
    try:
        yield
    finally:
        core.ConsumerConfiguration = real


@program
def test_a_pattern_has_every_partition(client: Any, topic: str, admin: Any) -> None:
    """Also of topics that come while it is consumed; topics that go are left."""
    admin.create_partitioned_topic(f"{topic}-a", 3)
    client.create_producer(f"{topic}-b").close()
    with refreshed_each_second():
        consumer = client.subscribe(
            re.compile(f"persistent://public/default/{topic}-[a-z]"),
            "s",
            initial_position=pulsar.InitialPosition.Earliest,
            pattern_auto_discovery_period=1,
        )
    for name in ("a", "b"):
        send_all(client.create_producer(f"{topic}-{name}", batching_enabled=False), numbers(0, 9))
    got = Counter(each.topic_name() for each in receive(consumer, 18))
    parts = {full(partition_name(f"{topic}-a", index)): 3 for index in range(3)}
    assert got == {**parts, full(f"{topic}-b"): 9}
    admin.create_partitioned_topic(f"{topic}-c", 2)
    send_all(client.create_producer(f"{topic}-c", batching_enabled=False), numbers(0, 8))
    found = Counter(each.topic_name() for each in receive(consumer, 8))
    assert found == {full(partition_name(f"{topic}-c", index)): 4 for index in range(2)}
    admin.delete_partitioned_topic(f"{topic}-c", True)
    until(lambda: all(f"/{topic}-c" not in each for each in admin.topics()))
    send_all(client.create_producer(f"{topic}-b"), [b"still here"])
    assert consumer.receive(20_000).data() == b"still here"
    assert not [each for each in admin.topics() if f"/{topic}-c" in each], "it is not created again"


# -- clashes and misuse --------------------------------------------------------------------------------


@program
def test_the_whole_is_not_a_topic(client: Any, topic: str, admin: Any) -> None:
    admin.create_partitioned_topic(topic, 2)
    late = partition_name(topic, 2)
    refused(pulsar.TopicNotFound, lambda: client.create_producer(late))
    refused(pulsar.TopicNotFound, lambda: client.subscribe(late, "s"))
    refused(RuntimeError, lambda: admin.create_topic(topic))
    refused(RuntimeError, lambda: admin.grow_partitions(topic, 1))
    one = client.create_producer(partition_name(topic, 1))
    one.send(b"x")
    assert receive(subscribed(client, topic), 1)[0].data() == b"x"


@program
def test_a_deleted_topic_is_not_created_by_its_clients(client: Any, topic: str, admin: Any) -> None:
    """A producer that reconnects to its partition is refused: its topic is gone."""
    admin.create_partitioned_topic(topic, 2)
    producer = client.create_producer(topic, send_timeout_millis=1000)
    send_all(producer, numbers(0, 4))
    admin.delete_partitioned_topic(topic, True)
    refused(pulsar.PulsarException, lambda: [producer.send(b"x") for _ in range(2)])
    assert not [each for each in admin.topics() if f"/{topic}" in each]
    admin.create_partitioned_topic(topic, 3)


@with_broker(create_partitions=3)
def test_clients_create_partitioned_topics(client: Any, topic: str, admin: Any) -> None:
    producer = client.create_producer(topic, batching_enabled=False)
    assert {each.partition() for each in send_all(producer, numbers(0, 9))} == {0, 1, 2}
    assert admin.partitions(topic) == 3
    assert len(client.get_topic_partitions(f"{topic}-other")) == 3


@program
def test_schemas_belong_to_the_whole(client: Any, topic: str, admin: Any) -> None:
    class Order(pulsar.schema.Record):  # type: ignore[misc]
        count = pulsar.schema.Integer()

    schema = pulsar.schema.JsonSchema(Order)
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic, schema=schema, batching_enabled=False)
    for count in range(6):
        producer.send(Order(count=count))
    consumer = subscribed(client, topic, schema=schema)
    assert {each.value().count for each in receive(consumer, 6)} == set(range(6))


@program
def while_it_grows(client: Any, topic: str, admin: Any) -> None:
    """Producer and consumer of the official client look for new partitions once a minute."""
    admin.create_partitioned_topic(topic, 2)
    consumer = subscribed(client, topic)
    producer = client.create_producer(topic, batching_enabled=False)
    admin.grow_partitions(topic, COUNT)
    seen: set[int] = set()
    sent, limit = 0, time.monotonic() + 150
    while seen != set(range(COUNT)):
        assert time.monotonic() < limit, f"only the partitions {seen} were noticed"
        producer.send(b"%d" % sent)
        sent += 1
        message = consumer.receive(20_000)
        seen.add(partition_of(message))
        consumer.acknowledge(message)
        time.sleep(0.05)


@pytest.mark.nightly  # test_growth_loses_nothing_of_a_subscription has the same fault, without the minute
def test_open_clients_notice_growth() -> None:
    client().run(job_of(while_it_grows, server(), 170))


def test_raw_frames(raw: Raw, topic: str) -> None:
    """Frames that the official client does not send: metadata without a creation."""

    def asked(name: str, **more: Any) -> Any:
        answer = Type.PARTITIONED_METADATA_RESPONSE
        return raw.ask(Type.PARTITIONED_METADATA, answer, topic=name, **more)

    missing = asked(topic, metadata_auto_creation_enabled=False)
    assert (missing.response, missing.error) == (1, pb.TopicNotFound)
    assert (asked(topic).response, asked(topic).partitions) == (0, 0)


@program
def fills_before(client: Any, topic: str, admin: Any) -> None:
    admin.create_partitioned_topic(topic, 2)
    admin.create_subscription(topic, "s", "earliest")
    admin.grow_partitions(topic, 3)
    send_all(client.create_producer(topic, batching_enabled=False), numbers(0, 9))


@program
def reads_after(client: Any, topic: str, admin: Any) -> None:
    consumer = client.subscribe(topic, "s")
    found = parted(receive(consumer, 9))
    assert {index: len(each) for index, each in found.items()} == {0: 3, 1: 3, 2: 3}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_restart_keeps_partitions(number: signal.Signals) -> None:
    own = ServerProcess()
    try:
        client().run(job_of(fills_before, own) | {"topic": "kept"})
        own.restart(number)
        client().run(job_of(reads_after, own) | {"topic": "kept"})
    finally:
        own.end()
