"""Non-persistent topics with the official client: delivered to attached consumers, or dropped and counted."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import Any

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.wire_programs import data_of, nothing_comes, numbers, receive, refused, send_all, until
from tests.kit.server.wire_raw import Raw, Type
from tests.kit.server.wire_world import program, pulsar


def passing(topic: str) -> str:
    return f"non-persistent://public/default/{topic}"


@program
def test_messages_reach_consumers_that_are_attached(client: Any, topic: str, admin: Any) -> None:
    name = passing(topic)
    producer = client.create_producer(name)
    producer.send(b"for nobody")
    first, second = client.subscribe(name, "a"), client.subscribe(name, "b")
    until(lambda: admin.passing(name)["permits"] == {"a": 1000, "b": 1000})
    send_all(producer, numbers(0, 50), properties={"of": "x"}, partition_key=lambda n: f"k{n}")
    for consumer in (first, second):
        found = receive(consumer, 50)
        assert data_of(found) == numbers(0, 50)
        assert (found[7].partition_key(), found[7].properties()) == ("k7", {"of": "x"})
        for each in found:
            consumer.acknowledge(each)
        nothing_comes(consumer)
    found = admin.passing(name)
    assert (found["in"], found["dropped"]) == (51, 1)
    assert not [each for each in admin.topics() if f"/{topic}" in each], "nothing is stored"


@program
def test_without_permits_messages_are_dropped_and_counted(client: Any, topic: str, admin: Any) -> None:
    name = passing(topic)
    consumer = client.subscribe(name, "s", receiver_queue_size=10)
    until(lambda: admin.passing(name)["permits"] == {"s": 10})
    producer = client.create_producer(name, batching_enabled=False)
    send_all(producer, numbers(0, 100))
    found = admin.passing(name)
    got = data_of(receive(consumer, 10))
    assert got == numbers(0, 10)
    nothing_comes(consumer)
    assert found["dropped_of"]["s"] == 90
    until(lambda: admin.passing(name)["permits"]["s"] > 0)
    producer.send(b"again")
    assert consumer.receive(20_000).data() == b"again"


@program
def test_types_of_subscriptions(client: Any, connect: Any, topic: str, admin: Any) -> None:
    name = passing(topic)
    shared = [client.subscribe(name, "shared", consumer_type=pulsar.ConsumerType.Shared) for _ in range(2)]
    failover = [
        client.subscribe(name, "failover", consumer_type=pulsar.ConsumerType.Failover) for _ in range(2)
    ]
    exclusive = client.subscribe(name, "exclusive")
    other = connect()
    refused(pulsar.ConsumerBusy, lambda: other.subscribe(name, "exclusive"))
    keys = pulsar.ConsumerType.KeyShared
    refused(pulsar.NotAllowedError, lambda: client.subscribe(name, "keys", consumer_type=keys))
    until(lambda: admin.passing(name)["permits"] == {"shared": 2000, "failover": 2000, "exclusive": 1000})
    producer = client.create_producer(name, batching_enabled=False)
    send_all(producer, numbers(0, 10))
    parts = [data_of(receive(each, 5)) for each in shared]
    assert sorted(parts[0] + parts[1]) == sorted(numbers(0, 10))
    assert data_of(receive(failover[0], 10)) == numbers(0, 10)
    nothing_comes(failover[1])
    failover[0].close()
    producer.send(b"next")
    assert failover[1].receive(20_000).data() == b"next"
    assert data_of(receive(exclusive, 11)) == [*numbers(0, 10), b"next"]
    exclusive.unsubscribe()


@program
def test_partitions_and_patterns(client: Any, topic: str, admin: Any) -> None:
    name = passing(topic)
    admin.create_partitioned_topic(name, 3)
    assert client.get_topic_partitions(name) == [f"{name}-partition-{index}" for index in range(3)]
    consumer = client.subscribe(name, "s")
    until(lambda: all(admin.passing(f"{name}-partition-{index}")["permits"] for index in range(3)))
    producer = client.create_producer(name, batching_enabled=False)
    ids = send_all(producer, numbers(0, 30))
    assert Counter(each.partition() for each in ids) == {0: 10, 1: 10, 2: 10}
    assert sorted(data_of(receive(consumer, 30))) == sorted(numbers(0, 30))
    modes = pulsar.RegexSubscriptionMode
    pattern = re.compile(f"non-persistent://public/default/{topic}.*")
    matched = client.subscribe(pattern, "p", regex_subscription_mode=modes.NonPersistentOnly)
    until(lambda: all("p" in admin.passing(f"{name}-partition-{n}")["permits"] for n in range(3)))
    until(lambda: all(admin.passing(f"{name}-partition-{n}")["permits"]["p"] for n in range(3)))
    producer.send(b"matched")
    assert matched.receive(20_000).data() == b"matched"
    late = f"{name}-partition-3"
    refused(pulsar.TopicNotFound, lambda: client.create_producer(late))


@program
def test_misuse(client: Any, topic: str) -> None:
    name = passing(topic)
    producer = client.create_producer(name, producer_name="p")
    other = pulsar.ProducerAccessMode
    refused(pulsar.NotAllowedError, lambda: client.create_producer(name, access_mode=other.WaitForExclusive))
    refused(pulsar.ProducerFenced, lambda: client.create_producer(name, access_mode=other.Exclusive))
    alone = client.create_producer(f"{name}-alone", access_mode=other.Exclusive)
    refused(pulsar.ProducerBusy, lambda: client.create_producer(f"{name}-alone"))
    assert alone.is_connected()
    refused(pulsar.TopicNotFound, lambda: client.create_producer("non-persistent://no/where/x"))
    refused(pulsar.InvalidTopicName, lambda: client.create_producer("odd://public/default/x"))
    consumer = client.subscribe(name, "s")
    refused(pulsar.NotAllowedError, lambda: consumer.seek(pulsar.MessageId.earliest))
    refused(pulsar.NotAllowedError, lambda: consumer.get_last_message_id())
    producer.send(b"x")


@program
def test_unsubscribe_beside_others_is_refused(client: Any, topic: str, admin: Any) -> None:
    name, shared = passing(topic), pulsar.ConsumerType.Shared
    one, other = (client.subscribe(name, "s", consumer_type=shared) for _ in range(2))
    refused(pulsar.PulsarException, one.unsubscribe)
    until(lambda: admin.passing(name)["permits"] == {"s": 2000})
    other.close()
    one.unsubscribe()
    assert admin.passing(name)["permits"] == {}


@program
def test_batches_compression_and_chunks(client: Any, topic: str, admin: Any) -> None:
    name = passing(topic)
    consumer = client.subscribe(name, "s")
    until(lambda: admin.passing(name)["permits"] == {"s": 1000})
    batches = client.create_producer(
        name,
        batching_enabled=True,
        batching_max_messages=10,
        batching_max_publish_delay_ms=1000,
        compression_type=pulsar.CompressionType.ZLib,
    )
    send_all(batches, numbers(0, 40))
    assert data_of(receive(consumer, 40)) == numbers(0, 40)
    found = admin.passing(name)
    assert (found["in"], found["dropped"]) == (40, 0)


@program
def test_a_producer_of_a_full_disk(client: Any, topic: str, admin: Any) -> None:
    """Nothing is stored, so a full disk stops no one."""
    name = passing(topic)
    consumer = client.subscribe(name, "s")
    until(lambda: admin.passing(name)["permits"] == {"s": 1000})
    admin.fill_disk()
    try:
        client.create_producer(name).send(b"x")
        assert consumer.receive(20_000).data() == b"x"
    finally:
        admin.empty_disk()


@program
def test_clients_of_a_deleted_topic(client: Any, topic: str, admin: Any) -> None:
    """Clients reconnect to a topic that is unloaded; those of deleted partitions are refused."""
    name = passing(topic)
    consumer, producer = client.subscribe(name, "s"), client.create_producer(name)
    admin.expel_passing(name)
    until(lambda: admin.passing(name).get("permits", {}).get("s"))
    producer.send(b"x")
    assert consumer.receive(20_000).data() == b"x"


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_the_end_of_a_volatile_subscription(raw: Raw, topic: str, domain: str) -> None:
    """One of several consumers cannot unsubscribe, but by force: then the others are closed."""
    name, shared = f"{domain}://public/default/{topic}", pb.CommandSubscribe.Shared
    for consumer in (1, 2, 3):
        raw.ask(
            Type.SUBSCRIBE,
            topic=name,
            subscription="s",
            subType=shared,
            consumer_id=consumer,
            durable=False,
        )
    found = raw.ask(Type.UNSUBSCRIBE, Type.ERROR, consumer_id=1)
    assert (found.error, "2 other consumers" in found.message) == (pb.MetadataError, True)
    raw.tell(Type.UNSUBSCRIBE, consumer_id=1, request_id=99, force=True)
    heard = [raw.hear() for _ in range(3)]
    assert [kind for kind, _ in heard] == [Type.CLOSE_CONSUMER, Type.CLOSE_CONSUMER, Type.SUCCESS]
    assert [message.consumer_id for _, message in heard[:2]] == [2, 3]


def test_raw_answers(raw: Raw, topic: str) -> None:
    """Acknowledgements with a receipt are confirmed: nothing is left to acknowledge."""
    name = passing(topic)
    raw.ask(
        Type.SUBSCRIBE,
        Type.SUCCESS,
        topic=name,
        subscription="s",
        subType=pb.CommandSubscribe.Shared,
        consumer_id=1,
    )
    ids = [pb.MessageIdData(ledgerId=0, entryId=0)]
    raw.ask(
        Type.ACK,
        Type.ACK_RESPONSE,
        consumer_id=1,
        ack_type=pb.CommandAck.Individual,
        message_id=ids,
    )
    seek = raw.ask(Type.SEEK, Type.ERROR, consumer_id=1, message_publish_time=1)
    assert "keeps no message" in seek.message


@program
def test_a_slow_client_loses_messages_and_slows_nobody(
    client: Any, connect: Any, topic: str, admin: Any
) -> None:
    name = passing(topic)
    slow = client.subscribe(name, "slow", receiver_queue_size=1)
    quick = connect().subscribe(name, "quick", receiver_queue_size=5000)
    until(lambda: set(admin.passing(name)["permits"]) == {"slow", "quick"})
    until(lambda: all(admin.passing(name)["permits"].values()))
    producer = client.create_producer(name, batching_enabled=False)
    done = threading.Event()

    def work() -> None:
        send_all(producer, numbers(0, 900))
        done.set()

    threading.Thread(target=work).start()
    assert data_of(receive(quick, 900)) == numbers(0, 900)
    assert done.wait(10)
    assert admin.passing(name)["dropped_of"]["slow"] >= 890
    assert slow.receive(20_000).data() == b"0"
