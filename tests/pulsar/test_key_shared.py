"""Key_Shared subscriptions with the official client, as a user would write them."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from typing import Any

import pytest

from tests.kit.server.wire_programs import data_of, nothing_comes, restarted, tells, until
from tests.kit.server.wire_raw import Raw, Type, full
from tests.kit.server.wire_world import ServerProcess, job_of, program, pulsar
from tests.kit.server.wire_world import client as client_process
from tests.kit.slices import pick

CHURN_S = pick(test=0, nightly=150)
"""Consumers come and go for this time before the server is killed."""


def policy(*ranges: tuple[int, int], unordered: bool = False) -> Any:
    mode = pulsar.KeySharedMode.Sticky if ranges else pulsar.KeySharedMode.AutoSplit
    return pulsar.ConsumerKeySharedPolicy(mode, unordered, list(ranges) or None)


def join(client: Any, topic: str, name: str, **more: Any) -> Any:
    return client.subscribe(
        topic, "s", consumer_type=pulsar.ConsumerType.KeyShared, consumer_name=name, **more
    )


def drain(consumer: Any, ack: bool = True) -> list[Any]:
    """Return what arrives, until nothing comes for a moment."""
    found: list[Any] = []
    while True:
        try:
            message = consumer.receive(400)
        except pulsar.Timeout:
            return found
        found.append(message)
        if ack:
            consumer.acknowledge(message)


def by_key(messages: list[Any]) -> dict[str, list[bytes]]:
    found: dict[str, list[bytes]] = defaultdict(list)
    for each in messages:
        found[each.partition_key()].append(each.data())
    return dict(found)


@program
def test_each_key_has_one_consumer(client: Any, topic: str) -> None:
    consumers = [join(client, topic, name) for name in "abc"]
    producer = client.create_producer(topic)
    for n in range(120):
        producer.send(b"%d" % n, partition_key=f"key {n % 12}")
    got = [by_key(drain(each)) for each in consumers]
    assert sorted(key for each in got for key in each) == sorted(f"key {n}" for n in range(12))
    assert sum(bool(each) for each in got) > 1, "one consumer has all keys"
    for each in got:
        for key, data in each.items():
            assert data == [b"%d" % n for n in range(120) if f"key {n % 12}" == key]


@program
def test_a_delayed_message_does_not_block_its_key(client: Any, topic: str, admin: Any) -> None:
    """It comes at its time, to the consumer of its key."""
    consumers = {name: join(client, topic, name) for name in "ab"}
    producer = client.create_producer(topic)
    keys = [f"key {n}" for n in range(12)]
    at_ms = int(time.time() * 1000) + 3000
    for key in keys:
        producer.send(b"late", partition_key=key, deliver_at=at_ms)
    for n in range(2):
        for key in keys:
            producer.send(b"%d" % n, partition_key=key)
    until(lambda: admin.stats(topic, "s")["scheduled"] == len(keys))
    got = {name: by_key(drain(each)) for name, each in consumers.items()}
    if time.time() * 1000 < at_ms:
        assert sorted(key for each in got.values() for key in each) == sorted(keys)
        assert all(data == [b"0", b"1"] for each in got.values() for data in each.values())
    until(lambda: admin.stats(topic, "s")["scheduled"] == 0)
    assert time.time() * 1000 >= at_ms
    for name, each in consumers.items():
        for key, data in by_key(drain(each)).items():
            got[name].setdefault(key, []).extend(data)
    assert all(data == [b"0", b"1", b"late"] for each in got.values() for data in each.values())
    assert sorted(key for each in got.values() for key in each) == sorted(keys), "one key has one consumer"


@program
def test_a_key_moves_when_it_is_acknowledged(client: Any, topic: str, admin: Any) -> None:
    """A consumer that joins gets a key when the old one has acknowledged it."""
    first = join(client, topic, "first")
    producer = client.create_producer(topic)
    keys = [f"key {n}" for n in range(20)]
    for key in keys:
        producer.send(b"1", partition_key=key)
    held = drain(first, ack=False)
    assert len(held) == 20
    second = join(client, topic, "second")
    for key in keys:
        producer.send(b"2", partition_key=key)
    more = drain(first, ack=False)
    moved = set(keys) - {each.partition_key() for each in more}
    assert 0 < len(moved) < 20
    nothing_comes(second)
    keys_of = admin.stats(topic, "s")["keys"]
    draining = keys_of["first"]["draining"]
    assert keys_of["first"]["draining_count"] == len(draining) > 0
    assert keys_of["first"]["draining_entries"] == len(moved)
    assert all(each["waiting"] == "second" and each["blocked"] for each in draining)
    ranges = [each for name in keys_of for each in keys_of[name]["ranges"]]
    assert sum(last - low + 1 for low, last in ranges) == 65536
    for each in held:
        first.acknowledge(each)
    after = drain(second)
    assert {each.partition_key() for each in after} == moved
    assert {each.data() for each in after} == {b"2"}
    until(lambda: admin.stats(topic, "s")["keys"]["first"]["draining_count"] == 0)
    assert admin.stats(topic, "s")["keys"]["first"]["drained"] == len(draining)


@program
def test_order_of_a_key_survives_the_end_of_a_consumer(client: Any, connect: Any, topic: str) -> None:
    """Messages that a consumer held come before later ones of their key."""
    gone = connect()
    first = join(gone, topic, "a", receiver_queue_size=1)
    producer = client.create_producer(topic)
    for n in range(30):
        producer.send(b"%d" % n, partition_key=f"k{n % 3}")
    assert first.receive(20_000).data() == b"0"
    second = join(client, topic, "b")
    gone.shutdown()
    got = by_key(drain(second))
    for key, data in got.items():
        assert data == [b"%d" % n for n in range(30) if f"k{n % 3}" == key], key


@program
def test_a_negative_acknowledgement_holds_up_its_key_alone(client: Any, topic: str) -> None:
    consumer = join(client, topic, "a", negative_ack_redelivery_delay_ms=300)
    producer = client.create_producer(topic)
    for n in range(6):
        producer.send(b"%d" % n, partition_key="odd" if n % 2 else "even")
    messages = drain(consumer, ack=False)
    consumer.negative_acknowledge(messages[1])
    for each in messages[:1] + messages[2:]:
        consumer.acknowledge(each)
    again = consumer.receive(20_000)
    assert (again.data(), again.redelivery_count()) == (b"1", 1)
    consumer.acknowledge(again)


@program
def test_the_ordering_key_comes_first(client: Any, topic: str) -> None:
    consumers = [join(client, topic, name) for name in "ab"]
    producer = client.create_producer(topic)
    for n in range(60):
        producer.send(b"%d" % n, partition_key=f"key {n}", ordering_key=f"order {n % 6}")
    got = [{each.ordering_key() for each in drain(consumer)} for consumer in consumers]
    assert got[0] | got[1] == {f"order {n}" for n in range(6)}
    assert not got[0] & got[1]


@program
def test_batches_go_by_their_key(client: Any, topic: str) -> None:
    for compression in ("NONE", "ZLib"):
        send_by_key(client, f"{topic}-{compression}", compression)


def send_by_key(client: Any, topic: str, compression: str) -> None:
    consumers = [join(client, topic, name) for name in "ab"]
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=20,
        compression_type=getattr(pulsar.CompressionType, compression),
    )
    for n in range(100):
        producer.send_async(b"%d" % n, None, partition_key=f"key {n % 10}")
    producer.flush()
    got = [by_key(drain(each)) for each in consumers]
    assert sorted(key for each in got for key in each) == sorted(f"key {n}" for n in range(10))
    for each in got:
        for key, data in each.items():
            assert data == [b"%d" % n for n in range(100) if f"key {n % 10}" == key]


@program
def test_messages_without_a_key_are_spread(client: Any, topic: str) -> None:
    consumers = [join(client, topic, name) for name in "ab"]
    producer = client.create_producer(topic)
    for n in range(60):
        producer.send(b"%d" % n)
    got = [data_of(drain(each)) for each in consumers]
    assert sorted(got[0] + got[1]) == sorted(b"%d" % n for n in range(60))
    assert min(map(len, got)) > 5


@program
def test_sticky_ranges(client: Any, topic: str, admin: Any) -> None:
    low = join(client, topic, "low", key_shared_policy=policy((0, 30000)))
    producer = client.create_producer(topic)
    for n in range(40):
        producer.send(b"%d" % n, partition_key=f"key {n}")
    below = drain(low)
    assert 0 < len(below) < 40, "what belongs to nobody waits"
    assert admin.stats(topic, "s")["diagnosis"] == "keys wait for their consumers"
    high = join(client, topic, "high", key_shared_policy=policy((30001, 40000), (40001, 65535)))
    above = drain(high)
    assert len(below) + len(above) == 40
    keys_of = admin.stats(topic, "s")["keys"]
    assert keys_of["low"]["ranges"] == [[0, 30000]]
    assert keys_of["high"]["ranges"] == [[30001, 40000], [40001, 65535]]


@program
def test_out_of_order_moves_keys_at_once(client: Any, topic: str) -> None:
    first = join(client, topic, "a", key_shared_policy=policy(unordered=True))
    producer = client.create_producer(topic)
    for n in range(20):
        producer.send(b"1", partition_key=f"key {n}")
    assert len(drain(first, ack=False)) == 20
    second = join(client, topic, "b", key_shared_policy=policy(unordered=True))
    for n in range(20):
        producer.send(b"2", partition_key=f"key {n}")
    assert drain(second), "its keys did not come while the first consumer holds earlier messages"


@program
def test_what_is_refused(client: Any, topic: str) -> None:
    join(client, topic, "a", key_shared_policy=policy((0, 100)))
    with pytest.raises(pulsar.PulsarException) as caught:
        join(client, topic, "b", key_shared_policy=policy((100, 200)))
    assert "ConsumerBusy" in str(caught.value)
    with pytest.raises(pulsar.ConsumerBusy):
        join(client, topic, "b")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared)
    join(client, topic, "b", key_shared_policy=policy((101, 200)))


@program
def test_a_cumulative_acknowledgement_is_refused(client: Any, topic: str) -> None:
    consumer = join(client, topic, "a")
    client.create_producer(topic).send(b"x", partition_key="k")
    message = consumer.receive(20_000)
    with pytest.raises(pulsar.PulsarException):
        consumer.acknowledge_cumulative(message)


def test_ranges_that_are_not_sound(raw: Raw, topic: str) -> None:
    """The official client checks them first, so these are raw frames."""
    asked = {"topic": full(topic), "subscription": "s", "subType": 3, "consumer_id": 1}
    for ranges, word in (
        ([], "without ranges"),
        ([(5, 4)], "the smaller one first"),
        ([(0, 65536)], "from 0 to 65535"),
        ([(-1, 5)], "from 0 to 65535"),
        ([(0, 9), (9, 12)], "overlap"),
    ):
        meta = {"keySharedMode": 1, "hashRanges": [{"start": one, "end": two} for one, two in ranges]}
        error = raw.ask(Type.SUBSCRIBE, Type.ERROR, keySharedMeta=meta, **asked)
        assert word in error.message


class Crowd:
    """Consumers that join, leave and die, and the order of each key's messages."""

    def __init__(self, connect: Any, topic: str) -> None:
        self.connect = connect
        self.topic = topic
        self.consumers: dict[str, tuple[Any, Any]] = {}
        """By name: the client of a consumer, and the consumer. Each has a connection of its own."""
        self.hands: dict[str, list[Any]] = defaultdict(list)
        """By name: messages to be acknowledged."""
        self.most: dict[str, int] = defaultdict(lambda: -1)
        """By key: the largest number that came."""
        self.had: dict[str, set[str]] = defaultdict(set)
        """By key: the names of its consumers."""

    def join(self, name: str) -> None:
        """Join under a name; while the server is away, try again."""
        client = self.connect()
        while True:
            try:
                self.consumers[name] = client, join(client, self.topic, name, receiver_queue_size=20)
            except pulsar.PulsarException:
                continue
            return

    def leave(self, name: str, dies: bool) -> None:
        """Leave with messages in hand; a client that dies closes no consumer."""
        client, consumer = self.consumers.pop(name)
        self.hands.pop(name, None)
        if not dies:
            consumer.close()
        client.shutdown()

    def work(self, keeps: str = "") -> None:
        """Take what is there, and acknowledge it; the consumer `keeps` does that the next time."""
        for name, (_, consumer) in self.consumers.items():
            for _ in range(10):
                try:
                    message = consumer.receive(10)
                except pulsar.Timeout:
                    break
                key, number = message.partition_key(), int(message.data())
                assert number <= self.most[key] + 1, f"{name}: {key}: {number} came after {self.most[key]}"
                self.most[key] = max(self.most[key], number)
                self.had[key].add(name)
                self.hands[name].append(message)
            if name != keeps:
                for message in self.hands.pop(name, []):
                    consumer.acknowledge(message)

    def has_all(self, keys: list[str], count: int) -> bool:
        self.work()
        return all(self.most[key] == count - 1 for key in keys)

    def is_done(self, admin: Any) -> bool:
        self.work()
        return bool(admin.stats(self.topic, "s")["backlog"] == 0)


@program
def churned_over_a_kill(client: Any, connect: Any, topic: str, admin: Any) -> None:
    """A message may come twice, also an acknowledged one; none is passed over."""
    pid, keys = admin.pid(), [f"key {n}" for n in range(12)]
    crowd, producer = Crowd(connect, topic), client.create_producer(topic)
    sent, turn, left = 0, 0, 12
    crowd.join("c0")
    while left:
        for key in keys:
            producer.send_async(b"%d" % sent, None, partition_key=key)
        sent, turn = sent + 1, turn + 1
        crowd.work(keeps=f"c{turn % 7}")
        name = f"c{turn % 5}"
        if name in crowd.consumers and len(crowd.consumers) > 1:
            crowd.leave(name, dies=turn % 2 == 0)
        else:
            crowd.join(f"c{turn * 3 % 5}x" if name in crowd.consumers else name)
        left -= restarted(admin, pid)
    producer.flush()
    until(lambda: crowd.has_all(keys, sent))
    until(lambda: crowd.is_done(admin))
    assert all(len(crowd.had[key]) > 1 for key in keys), "no key has moved"


def is_churned(admin: Any, topic: str) -> bool:
    """Return whether keys have moved, and messages are in the hands of consumers."""
    stats = admin.stats(topic, "s")
    return stats["pending"] > 0 and any(each["drained"] for each in stats["keys"].values())


@pytest.mark.timeout(CHURN_S + 150)
def test_order_under_churn_over_a_kill() -> None:
    """The server is killed while consumers join, leave and die, and returns."""
    own = ServerProcess()
    try:
        runner, job = client_process(), job_of(churned_over_a_kill, own, CHURN_S + 60)
        runner.begin(job)
        killed = time.monotonic() + CHURN_S
        until(lambda: time.monotonic() >= killed, CHURN_S + 20)
        until(lambda: tells(lambda: is_churned(own.admin, job["topic"])))
        own.restart(signal.SIGKILL)
        runner.finish(60)
    finally:
        own.end()
