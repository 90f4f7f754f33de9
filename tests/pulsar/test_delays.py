"""Delays, dead letters, retries and redelivery, as programs with the official client use them."""

from __future__ import annotations

import functools
import signal
import time
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from holdfast._core import encode_messages
from holdfast.protocol.pulsar_pb2 import BaseCommand as Type
from tests.kit.server.wire_programs import (
    data_of,
    nothing_comes,
    numbers,
    receive,
    refused,
    restarted,
    send_all,
    tells,
    until,
)
from tests.kit.server.wire_raw import Raw, full, id_of
from tests.kit.server.wire_world import ServerProcess, client, job_of, program, pulsar, server

DELAY_MS = 700
NOTED = 5
"""The server is killed when this many redeliveries are noted."""


def is_partly(admin: Any, topic: str, partly: bool) -> bool:
    """Return whether a part of a batch is acknowledged."""
    return bool(admin.stats(topic, "s")["partly"] == partly)


def shared(client: Any, topic: str, name: str = "s", **options: Any) -> Any:
    return client.subscribe(topic, name, consumer_type=pulsar.ConsumerType.Shared, **options)


@program
def test_a_delayed_message_comes_at_its_time(client: Any, topic: str, admin: Any) -> None:
    """By time and by delay. An exclusive consumer waits for none."""
    consumer, alone = shared(client, topic), client.subscribe(topic, "alone")
    producer = client.create_producer(topic)
    at_ms = int(time.time() * 1000) + DELAY_MS
    producer.send(b"at", deliver_at=at_ms)
    producer.send(b"after", deliver_after=timedelta(milliseconds=DELAY_MS + 400))
    producer.send(b"now")
    assert data_of(receive(alone, 3)) == [b"at", b"after", b"now"]
    assert data_of(receive(consumer, 1)) == [b"now"]
    until(lambda: admin.stats(topic, "s")["scheduled"] == 2)
    assert admin.stats(topic, "s")["backlog"] == 3, "they belong to the backlog"
    found = receive(consumer, 2)
    assert data_of(found) == [b"at", b"after"]
    assert time.time() * 1000 >= at_ms
    assert [each.redelivery_count() for each in found] == [0, 0]


@program
def test_batching_does_not_take_delayed_messages(client: Any, topic: str, admin: Any) -> None:
    """A client with batching sends them alone, so others are not late."""
    consumer = shared(client, topic)
    producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=10)
    send_all(producer, numbers(0, 10), deliver_after=lambda n: timedelta(seconds=60) if n % 2 else None)
    assert data_of(receive(consumer, 5)) == [b"0", b"2", b"4", b"6", b"8"]
    until(lambda: admin.stats(topic, "s")["scheduled"] == 5)
    nothing_comes(consumer)


@program
def delayed_over_a_restart(client: Any, topic: str, admin: Any) -> None:
    pid = admin.pid()
    consumer = shared(client, topic)
    producer = client.create_producer(topic)
    producer.send(b"soon", deliver_after=timedelta(milliseconds=1))
    producer.send(b"later", deliver_after=timedelta(seconds=3))
    consumer.acknowledge(soon := consumer.receive(20_000))
    assert soon.data() == b"soon"
    while (message := consumer.receive(20_000)).data() == b"soon":  # the server is killed meanwhile
        consumer.acknowledge(message)
    consumer.acknowledge(message)
    nothing_comes(consumer, 300)
    assert restarted(admin, pid)


def is_scheduled(admin: Any, topic: str) -> bool:
    stats = admin.stats(topic, "s")
    return (stats["scheduled"], stats["backlog"]) == (1, 1)


@program
def retried_over_a_restart(client: Any, topic: str, admin: Any) -> None:
    """Counts go on after the restart, which follows when count 5 is noted."""
    pid = admin.pid()
    consumer = shared(client, topic, negative_ack_redelivery_delay_ms=100)
    client.create_producer(topic).send(b"poison")
    counts: list[int] = []
    goes_on = False
    while not goes_on:
        goes_on = restarted(admin, pid) and counts[-1] > NOTED
        message = consumer.receive(20_000)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts[0] == 0
    assert all(after == before + 1 or after >= NOTED for before, after in pairwise(counts)), counts
    assert all(after <= before + 1 for before, after in pairwise(counts)), counts


def is_noted(admin: Any, topic: str) -> bool:
    return bool(admin.counted(topic, "s") >= NOTED)


@pytest.mark.parametrize(
    ("work", "ripe"), [(delayed_over_a_restart, is_scheduled), (retried_over_a_restart, is_noted)]
)
def test_over_a_kill(work: Any, ripe: Any) -> None:
    """The server is killed in the middle of the work."""
    own = ServerProcess()
    try:
        runner, job = client(), job_of(work, own)
        runner.begin(job)
        until(lambda: tells(lambda: ripe(own.admin, job["topic"])))
        own.restart(signal.SIGKILL)
        runner.finish(60)
    finally:
        own.end()


@program
def test_dead_letters(client: Any, topic: str, admin: Any) -> None:
    """After three redeliveries the client publishes to TOPIC-SUBSCRIPTION-DLQ, which the broker creates."""
    policy = pulsar.ConsumerDeadLetterPolicy(3, initial_subscription_name="watch")
    consumer = shared(client, topic, negative_ack_redelivery_delay_ms=50, dead_letter_policy=policy)
    producer = client.create_producer(topic)
    producer.send(b"poison", properties={"a": "b"}, partition_key="k")
    producer.send(b"good")
    seen: list[tuple[bytes, int]] = []
    while len([1 for data, _ in seen if data == b"poison"]) < 4:
        message = consumer.receive(10_000)
        seen.append((message.data(), message.redelivery_count()))
        if message.data() == b"good":
            consumer.acknowledge(message)
        else:
            consumer.negative_acknowledge(message)
    assert [count for data, count in seen if data == b"poison"] == [0, 1, 2, 3]
    dead = client.subscribe(f"persistent://public/default/{topic}-s-DLQ", "watch")
    letter = dead.receive(10_000)
    assert (letter.data(), letter.partition_key()) == (b"poison", "k")
    properties = letter.properties()
    assert properties["a"] == "b"
    assert properties["REAL_TOPIC"].endswith(topic)
    assert properties["ORIGIN_MESSAGE_ID"]
    until(lambda: admin.stats(topic, "s")["backlog"] == 0)


@program
def test_messages_that_no_program_received_are_not_dead(client: Any, topic: str, admin: Any) -> None:
    """Each unload returns the messages in the client's queue, and does not count."""
    policy = pulsar.ConsumerDeadLetterPolicy(1, initial_subscription_name="watch")
    consumer = shared(client, topic, dead_letter_policy=policy)
    send_all(client.create_producer(topic), numbers(0, 5))
    for _ in range(3):
        until(lambda: admin.stats(topic, "s")["pending"] == 5)
        admin.unload(topic)
        until(lambda: admin.stats(topic, "s")["pending"] == 5)
    found = receive(consumer, 5)
    assert [(each.data(), each.redelivery_count()) for each in found] == [(n, 0) for n in numbers(0, 5)]


def letters_of(client: Any, admin: Any, topics: list[str], count: int) -> list[bytes]:
    """Return the dead letters of these topics; each has some."""
    consumers = [client.subscribe(full(each), "watch") for each in topics]
    until(lambda: sum(admin.stats(each, "watch")["backlog"] for each in topics) == count)
    counts = [admin.stats(each, "watch")["backlog"] for each in topics]
    assert all(counts), counts
    return [
        data for each, most in zip(consumers, counts, strict=True) for data in data_of(receive(each, most))
    ]


@program
def test_dead_letters_of_a_partitioned_topic(client: Any, topic: str, admin: Any) -> None:
    """Each partition has a topic for dead letters, unless the policy names one."""
    admin.create_partitioned_topic(topic, 2)
    policies = {
        "each": pulsar.ConsumerDeadLetterPolicy(1, initial_subscription_name="watch"),
        "one": pulsar.ConsumerDeadLetterPolicy(1, f"{topic}-dead", initial_subscription_name="watch"),
    }
    options: dict[str, Any] = {"negative_ack_redelivery_delay_ms": 50}
    consumers = [
        shared(client, topic, name, dead_letter_policy=policy, **options) for name, policy in policies.items()
    ]
    producer = client.create_producer(topic)
    for key in ("a", "b", "c", "d"):
        producer.send(key.encode(), partition_key=key)
    for consumer in consumers:
        for _ in range(8):
            consumer.negative_acknowledge(consumer.receive(10_000))
    where = {
        "each": [f"{topic}-partition-{n}-each-DLQ" for n in range(2)],
        "one": [f"{topic}-dead"],
    }
    for topics in where.values():
        assert sorted(letters_of(client, admin, topics, 4)) == [b"a", b"b", b"c", b"d"]
    partitions = [f"{topic}-partition-{n}" for n in range(2)]
    until(lambda: not any(admin.stats(each, name)["backlog"] for each in partitions for name in policies))


@program
def test_dead_letters_without_a_topic(client: Any, topic: str, admin: Any) -> None:
    """The topic cannot be created: the message stays unacknowledged, for others to receive."""
    policy = pulsar.ConsumerDeadLetterPolicy(1, "persistent://no/where/dead")
    consumer = shared(client, topic, negative_ack_redelivery_delay_ms=50, dead_letter_policy=policy)
    client.create_producer(topic).send(b"poison")
    for count in range(2):
        message = consumer.receive(10_000)
        assert message.redelivery_count() == count
        consumer.negative_acknowledge(message)
    nothing_comes(consumer, 300)  # the client logs why, and keeps it
    stats = admin.stats(topic, "s")
    assert (stats["backlog"], stats["pending"]) == (1, 1)
    consumer.close()
    assert data_of(receive(shared(client, topic), 1)) == [b"poison"]


@program
def test_a_retry_topic_as_clients_make_it(client: Any, topic: str, admin: Any) -> None:
    """This client has no `reconsume_later`: publish with a delay, then acknowledge."""
    retry = f"{topic}-s-RETRY"
    consumer = client.subscribe([topic, retry], "s", consumer_type=pulsar.ConsumerType.Shared)
    assert not hasattr(consumer, "reconsume_later"), "use it here"
    client.create_producer(topic).send(b"work")
    later, attempts = client.create_producer(retry), []
    for _ in range(3):
        message = consumer.receive(10_000)
        told = message.properties()
        attempts.append((int(told.get("RECONSUMETIMES", 0)), message.topic_name().rpartition("/")[2]))
        properties = {
            "RECONSUMETIMES": str(attempts[-1][0] + 1),
            "REAL_TOPIC": told.get("REAL_TOPIC", message.topic_name()),
            "ORIGIN_MESSAGE_ID": told.get("ORIGIN_MESSAGE_ID", str(message.message_id())),
        }
        later.send(message.data(), properties=properties, deliver_after=timedelta(milliseconds=200))
        consumer.acknowledge(message)
    assert attempts == [(0, topic), (1, retry), (2, retry)]
    until(lambda: admin.stats(topic, "s")["backlog"] == 0)


@program
def test_negative_acknowledgements_and_ack_timeouts(client: Any, topic: str) -> None:
    """The client waits in both cases; the broker counts."""
    consumer = shared(client, topic, negative_ack_redelivery_delay_ms=100)
    producer = client.create_producer(topic)
    producer.send(b"n")
    counts = []
    for _ in range(4):
        message = consumer.receive(10_000)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts == [0, 1, 2, 3]
    slow = shared(client, topic, "slow", unacked_messages_timeout_ms=10_000)
    producer.send(b"t")
    first = slow.receive(20_000)
    assert (first.data(), first.redelivery_count()) == (b"t", 0)
    again = slow.receive(25_000)
    assert (again.data(), again.redelivery_count()) == (b"t", 1)


def test_a_back_off_of_negative_acknowledgements(raw: Raw, topic: str) -> None:
    """Raw frames: the client for Python has no such policy.

    It waits always the same time. A client with a policy asks at growing intervals. The broker redelivers
    what was asked for, at once.
    """
    raw.publish(topic, 3)
    raw.subscribe(topic, sub_type=1)
    raw.flow(100)
    first, second, third = raw.messages(3)
    waits_s = {1: (0.01, 0.02, 0.04, 0.08, 0.16), 2: (0.02, 0.04)}
    for message, times in ((first, waits_s[1]), (second, waits_s[2])):
        for count, wait_s in enumerate(times, 1):
            raw.silent(wait_s)  # nothing comes before it is asked for
            raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=[id_of(message)])
            again = raw.expect(Type.MESSAGE)
            assert (id_of(again), again.redelivery_count) == (id_of(message), count)
    both = [id_of(first), id_of(second)]
    raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=both)
    assert {each.message_id.entryId: each.redelivery_count for each in raw.messages(2)} == {0: 6, 1: 3}
    raw.ack(*both, request=1)
    assert raw.expect(Type.ACK_RESPONSE).request_id == 1
    raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, message_ids=[*both, id_of(third)])
    only = raw.expect(Type.MESSAGE)
    assert (id_of(only), only.redelivery_count) == (id_of(third), 1)
    raw.silent()


@program
def test_the_rest_of_a_batch_is_redelivered_and_counted(client: Any, topic: str, admin: Any) -> None:
    options: dict[str, Any] = {"batch_index_ack_enabled": True, "negative_ack_redelivery_delay_ms": 100}
    consumer = shared(client, topic, **options)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=6, batching_max_publish_delay_ms=1000
    )
    send_all(producer, numbers(0, 6))
    for count in range(3):
        messages = receive(consumer, 6 - 2 * count, 10_000)
        assert data_of(messages) == numbers(2 * count, 6)
        assert {each.redelivery_count() for each in messages} == {count}
        for each in messages[:2]:
            consumer.acknowledge(each)
        until(functools.partial(is_partly, admin, topic, count < 2))
        for each in messages[2:]:
            consumer.negative_acknowledge(each)
    until(lambda: admin.stats(topic, "s")["backlog"] == 0)


@program
def test_what_a_user_is_told_of_a_misuse(client: Any, topic: str, admin: Any) -> None:
    """A delay above the policy is refused; this client logs that, and is fenced."""
    producer = client.create_producer(topic)
    producer.send(b"first")
    admin.limit_delays(topic, 5.0)
    producer.send(b"short", deliver_after=timedelta(seconds=4))
    refused(pulsar.ProducerFenced, lambda: producer.send(b"long", deliver_after=timedelta(seconds=60)))
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    assert data_of([reader.read_next(20_000) for _ in range(2)]) == [b"first", b"short"]
    assert not reader.has_message_available()


def test_refusal_of_a_long_delay_names_the_policy(topic: str, raw: Raw) -> None:
    """An open producer follows the change."""
    raw.produce(topic)
    server().admin.limit_delays(topic, 5.0)
    now_ms = int(time.time() * 1000)
    entry = encode_messages([b"x"], "raw", 7, now_ms, deliver_at_ms=now_ms + 6000)[0]
    raw.tell(Type.SEND, entry, producer_id=1, sequence_id=7)
    told = raw.expect(Type.SEND_ERROR)
    assert "delayed_most_s" in told.message
