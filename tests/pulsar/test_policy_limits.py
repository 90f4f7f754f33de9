"""Maximums, rates and backlog quotas, as programs with the official client meet them."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from typing import Any

from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.wire_programs import (
    data_of,
    fill,
    nothing_comes,
    receive,
    refused,
    restarted,
    send_all,
    until,
)
from tests.kit.server.wire_raw import Raw, Type, full
from tests.kit.server.wire_world import ServerProcess, client, job_of, program, pulsar, server
from tests.kit.waiting import waits_out

QUOTA = 20_000


def is_held(admin: Any, topic: str) -> bool:
    return any(admin.held(topic))


# -- maximums ------------------------------------------------------------------------------------------


@program
def test_more_producers_than_the_maximum(client: Any, topic: str, admin: Any) -> None:
    """The client raises ProducerBusy; one that closes makes room."""
    admin.create_topic(topic, producers_max=2)
    first, _second = (client.create_producer(topic) for _ in range(2))
    refused(pulsar.ProducerBusy, lambda: client.create_producer(topic))
    first.close()
    client.create_producer(topic).send(b"x")
    admin.set_policies(topic, producers_max=None)
    client.create_producer(topic).send(b"x")


@program
def test_more_consumers_than_the_maximum(client: Any, topic: str, admin: Any) -> None:
    """The client raises ConsumerBusy, of a subscription and of the topic, also for readers."""
    admin.create_topic(topic, consumers_max=3, subscription_consumers_max=2)
    kind = pulsar.ConsumerType.Shared
    first, _second = (client.subscribe(topic, "s", consumer_type=kind) for _ in range(2))
    refused(pulsar.ConsumerBusy, lambda: client.subscribe(topic, "s", consumer_type=kind))
    client.subscribe(topic, "t", consumer_type=kind)
    refused(pulsar.ConsumerBusy, lambda: client.subscribe(topic, "t", consumer_type=kind))
    refused(pulsar.ConsumerBusy, lambda: client.create_reader(topic, pulsar.MessageId.earliest))
    first.close()
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    refused(pulsar.ConsumerBusy, lambda: client.subscribe(topic, "t", consumer_type=kind))
    reader.close()
    client.subscribe(topic, "t", consumer_type=kind)


@program
def test_more_subscriptions_and_topics_than_the_maximum(client: Any, topic: str, admin: Any) -> None:
    admin.create_tenant(topic)
    admin.create_namespace(f"{topic}/n", topics_max=2, subscriptions_max=1)
    name = f"persistent://{topic}/n/a"
    client.subscribe(name, "s")
    refused(pulsar.NotAllowedError, lambda: client.subscribe(name, "t"))
    client.create_producer(f"persistent://{topic}/n/b").send(b"x")
    refused(pulsar.NotAllowedError, lambda: client.create_producer(f"persistent://{topic}/n/c"))
    admin.set_namespace_policies(f"{topic}/n", topics_max=None, subscriptions_max=None)
    client.subscribe(name, "t")
    client.create_producer(f"persistent://{topic}/n/c").send(b"x")


@program
def test_a_message_that_is_too_large(client: Any, topic: str, admin: Any) -> None:
    """The client reconnects and is fenced, else it would send it again; others continue."""
    admin.create_topic(topic, message_bytes_max=2000)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, send_timeout_millis=3000)
    producer.send(b"x" * 100)
    refused(pulsar.ProducerFenced, lambda: producer.send(b"x" * 3000))
    other = client.create_producer(topic)
    other.send(b"y")
    assert data_of(receive(consumer, 2)) == [b"x" * 100, b"y"]


@program
def test_unacknowledged_messages_at_their_maximum(client: Any, topic: str, admin: Any) -> None:
    admin.create_topic(topic, unacked_max=5)
    consumer = client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    fill(client, topic, 20)
    held = receive(consumer, 5)
    nothing_comes(consumer)
    assert admin.stats(topic, "s")["reason"] == "unacknowledged limit"
    consumer.acknowledge(held[0])
    held += receive(consumer, 1)
    nothing_comes(consumer)
    admin.set_policies(topic, unacked_max=0)
    receive(consumer, 14)


# -- rates ---------------------------------------------------------------------------------------------


@program
def test_publishes_beyond_their_rate_are_late(client: Any, topic: str, admin: Any) -> None:
    """No message fails or delays another topic. A lifted rate ends at once."""
    admin.create_topic(topic, publish_rate_messages=50)
    admin.create_topic(f"{topic}-free")
    slow = client.create_producer(topic, send_timeout_millis=60_000)
    free = client.create_producer(f"{topic}-free")
    with waits_out(1.5):
        send_all(slow, [b"x"] * 150)
    admin.set_policies(topic, publish_rate_messages=1)
    done = threading.Thread(target=send_all, args=(slow, [b"x"] * 300))
    done.start()
    send_all(free, [b"x"] * 1000)
    time.sleep(0.3)  # the rate must hold meanwhile
    assert done.is_alive(), "300 messages at one a second"
    admin.set_policies(topic, publish_rate_messages=None)
    done.join(60)
    assert not done.is_alive(), "a lifted rate delays"


@program
def test_deliveries_beyond_their_rate_are_late(client: Any, topic: str, admin: Any) -> None:
    """Another topic of the connection is not delayed, and a lifted rate ends at once."""
    admin.create_topic(topic, dispatch_rate_messages=50)
    consumer, other = client.subscribe(topic, "s"), client.subscribe(f"{topic}-free", "s")
    with waits_out(1.0):
        fill(client, topic, 150)
        receive(consumer, 150)
    admin.set_policies(topic, dispatch_rate_messages=1)
    began = time.monotonic()
    fill(client, topic, 300)
    fill(client, f"{topic}-free", 1000)
    receive(other, 1000)
    found = 0
    with contextlib.suppress(pulsar.Timeout):
        while True:
            consumer.receive(10)
            found += 1
    assert found < 10 + time.monotonic() - began, "one message a second"
    admin.set_policies(topic, dispatch_rate_messages=None)
    receive(consumer, 300 - found)


def test_a_consumer_that_comes_back_too_often() -> None:
    """Raw frames: the official client waits before it subscribes the same consumer again."""
    at = server()
    at.admin.create_topic("often", subscribe_rate=3)
    with Raw(at.url) as raw:
        for _ in range(3):
            raw.subscribe("often", consumer_name="one")
            raw.ask(Type.CLOSE_CONSUMER, consumer_id=1)
        fields: dict[str, Any] = {
            "topic": full("often"),
            "subscription": "s",
            "subType": 0,
            "consumer_name": "one",
        }
        error = raw.ask(Type.SUBSCRIBE, Type.ERROR, consumer_id=1, **fields)
        assert error.error == pb.NotAllowedError
        assert "3 times in 30 s" in error.message
        raw.ask(Type.SUBSCRIBE, consumer_id=2, **fields)  # another consumer
        raw.ask(Type.CLOSE_CONSUMER, consumer_id=2)
        at.admin.set_policies("often", subscribe_rate=0)
        raw.ask(Type.SUBSCRIBE, consumer_id=1, **fields)


# -- backlog quotas ------------------------------------------------------------------------------------


@program
def test_a_producer_holds_until_the_backlog_is_consumed(client: Any, topic: str, admin: Any) -> None:
    """An open producer waits, and goes on by itself; a new one is refused."""
    admin.create_topic(topic, backlog_bytes=QUOTA)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, send_timeout_millis=20_000)
    send_all(producer, [b"x" * 1000] * 25)
    until(lambda: is_held(admin, topic))
    sent = threading.Thread(target=producer.send, args=(b"late",))
    sent.start()
    refused(pulsar.ProducerBlockedQuotaExceededError, lambda: client.create_producer(topic))
    time.sleep(0.5)  # nothing must be published meanwhile
    assert sent.is_alive(), "a held producer publishes"
    consumer.acknowledge_cumulative(receive(consumer, 25)[-1])
    sent.join(20)
    assert not sent.is_alive(), "the quota does not lift"
    assert data_of(receive(consumer, 1)) == [b"late"]


@program
def test_a_producer_fails_while_the_backlog_is_too_large(client: Any, topic: str, admin: Any) -> None:
    admin.create_topic(topic, backlog_bytes=QUOTA, backlog_bytes_action="producer_exception")
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, send_timeout_millis=20_000)
    send_all(producer, [b"x" * 1000] * 25)
    until(lambda: is_held(admin, topic))
    refused(pulsar.ProducerBlockedQuotaExceededException, lambda: producer.send(b"late"))
    refused(pulsar.ProducerBlockedQuotaExceededException, lambda: client.create_producer(topic))
    consumer.acknowledge_cumulative(receive(consumer, 25)[-1])
    until(lambda: not is_held(admin, topic))
    client.create_producer(topic).send(b"new")
    assert data_of(receive(consumer, 1)) == [b"new"]


@program
def test_the_oldest_messages_are_evicted(client: Any, topic: str, admin: Any) -> None:
    admin.create_topic(topic, backlog_bytes=QUOTA, backlog_bytes_action="consumer_backlog_eviction")
    client.subscribe(topic, "s").close()
    producer = client.create_producer(topic)
    for number in range(60):
        producer.send(b"%d " % number + b"x" * 1000)
    until(lambda: admin.stats(topic, "s")["backlog"] < 21)
    consumer, found = client.subscribe(topic, "s"), list[int]()
    while 59 not in found:
        found.append(int(consumer.receive(20_000).data().split()[0]))
    assert found == [*range(found[0], 60)]
    assert 0 < len(found) < 21


@program
def test_an_old_message_stops_producers_or_goes(client: Any, topic: str, admin: Any) -> None:
    """The quota by age. The broker would look by itself, every few seconds."""
    admin.create_topic(topic, backlog_age_s=0.2, backlog_age_action="producer_exception")
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"old")
    until(lambda: admin.check_quotas() and is_held(admin, topic))
    refused(pulsar.ProducerBlockedQuotaExceededException, lambda: client.create_producer(topic))
    consumer.acknowledge(receive(consumer, 1)[0])
    until(lambda: not is_held(admin, topic))
    admin.set_policies(topic, backlog_age_action="consumer_backlog_eviction")
    client.create_producer(topic).send(b"goes")
    until(lambda: admin.check_quotas() and not admin.stats(topic, "s")["backlog"])
    client.create_producer(topic).send(b"new")


@program
def test_a_partition_beyond_its_quota(client: Any, topic: str, admin: Any) -> None:
    """A partitioned producer holds messages for that partition only."""
    admin.create_partitioned_topic(topic, 2, backlog_bytes=QUOTA)
    consumer = client.subscribe(topic, "s")
    for partition in (0, 1):
        fill(client, f"{topic}-partition-{partition}", 1)
    producer = client.create_producer(f"{topic}-partition-0")
    send_all(producer, [b"x" * 1000] * 25)
    until(lambda: is_held(admin, f"{topic}-partition-0"))
    assert not is_held(admin, f"{topic}-partition-1")
    fill(client, f"{topic}-partition-1", 10)
    for each in receive(consumer, 37):
        consumer.acknowledge(each)
    until(lambda: not is_held(admin, f"{topic}-partition-0"))


@program
def held_over_a_restart(client: Any, topic: str, admin: Any) -> None:
    """The server is killed during a hold; the producer continues after it."""
    pid = admin.pid()
    admin.create_topic(topic, backlog_bytes=QUOTA, producers_max=1)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, send_timeout_millis=50_000)
    send_all(producer, [b"x" * 1000] * 25)
    until(lambda: is_held(admin, topic))
    sent = threading.Thread(target=producer.send, args=(b"late",))
    sent.start()
    admin.create_topic(f"{topic}-ripe")
    until(lambda: restarted(admin, pid))
    until(lambda: is_held(admin, topic))
    assert sent.is_alive(), "a held producer publishes"
    until(consumer.is_connected)  # the client forgets acknowledgements between two connections
    while (message := consumer.receive(20_000)).data() != b"late":
        consumer.acknowledge_cumulative(message)
    sent.join(20)
    refused(pulsar.ProducerBusy, lambda: client.create_producer(topic))


def test_over_a_kill() -> None:
    own = ServerProcess()
    try:
        runner, job = client(), job_of(held_over_a_restart, own)
        runner.begin(job)
        until(lambda: f"{job['topic']}-ripe" in str(own.admin.topics()))
        own.restart(signal.SIGKILL)
        runner.finish(60)
    finally:
        own.end()
