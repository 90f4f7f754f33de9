"""Seeking, while messages and acknowledgements are in flight: the seed's scenarios, over the wire."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

from tests.kit.server.wire_programs import (
    data_of,
    fill,
    nothing_comes,
    numbers,
    receive,
    send_all,
    until,
)
from tests.kit.server.wire_world import client, job_of, program, pulsar, server
from tests.kit.waiting import next_millisecond

HERE = {"start_message_id_inclusive": True}
"""Without it, the client leaves out the very message that it seeks to."""


@program
def test_by_id(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", **HERE)
    ids = fill(client, topic, 20)
    for message in receive(consumer, 20):
        consumer.acknowledge(message)
    consumer.seek(ids[7])
    assert data_of(receive(consumer, 13)) == numbers(7, 20)
    consumer.seek(ids[15])
    assert consumer.receive(20_000).data() == b"15"


@program
def test_by_id_as_the_client_does_it_by_itself(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    ids = fill(client, topic, 20)
    consumer.seek(ids[7])
    assert consumer.receive(20_000).data() == b"8"


@program
def test_to_the_ends(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    fill(client, topic, 5)
    receive(consumer, 5)
    consumer.seek(pulsar.MessageId.earliest)
    assert data_of(receive(consumer, 5)) == numbers(0, 5)
    consumer.seek(pulsar.MessageId.latest)
    nothing_comes(consumer)
    client.create_producer(topic).send(b"new")
    assert consumer.receive(20_000).data() == b"new"


@program
def test_by_time(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    times = []
    for n in range(6):
        times.append(int(time.time() * 1000))
        producer.send(b"%d" % n)
        next_millisecond()
    receive(consumer, 6)
    consumer.seek(times[3])
    assert consumer.receive(20_000).data() == b"3"
    consumer.seek(0)
    assert consumer.receive(20_000).data() == b"0"
    consumer.seek(int(time.time() * 1000) + 60_000)
    nothing_comes(consumer)


@program
async def test_with_asyncio(client: Any, topic: str) -> None:
    consumer = await client.subscribe(topic, "s", **HERE)
    producer = await client.create_producer(topic)
    ids = [await producer.send(b"%d" % n) for n in range(10)]
    for _ in range(10):
        await consumer.receive()
    for at in (3, 8, 0):
        await consumer.seek(ids[at])
        message = await consumer.receive()
        assert message.data() == b"%d" % at
    await consumer.close()


@program
def test_nothing_of_before_arrives(client: Any, topic: str, admin: Any) -> None:
    """Seek often under load: the first message is the requested one, then the next."""
    consumer = client.subscribe(topic, "s", receiver_queue_size=50, **HERE)
    ids = fill(client, topic, 500)
    for round_ in range(20):
        target = (round_ * 137) % 400
        consumer.receive(20_000)
        consumer.seek(ids[target])
        for n in range(target, target + 30):
            assert consumer.receive(20_000).data() == b"%d" % n, (round_, target)
    assert admin.stats(topic, "s")["reset_number"] == 20


@program
def test_acknowledgements_in_flight_do_not_undo_a_seek(client: Any, topic: str, admin: Any) -> None:
    """Old acknowledgements leave the client during the seek, or behind it.

    The client collects them for 100 ms. tests/pulsar/test_raw.py sends each at the worst moment.
    """
    consumer = client.subscribe(topic, "s", **HERE)
    ids = fill(client, topic, 20)
    for _ in range(5):
        old = receive(consumer, 20)
        for message in old[::2]:
            consumer.acknowledge(message)
        consumer.acknowledge_cumulative(old[19])
        consumer.seek(ids[0])
    again = receive(consumer, 20)
    assert data_of(again) == numbers(0, 20)
    consumer.close()
    assert admin.stats(topic, "s")["backlog"] == 20


@program
def test_a_seek_under_shared_consumers(client: Any, topic: str, admin: Any) -> None:
    """All consumers of the subscription are closed, reconnect, and share the redelivered messages."""
    kind = pulsar.ConsumerType.Shared
    consumers = [client.subscribe(topic, "s", consumer_type=kind) for _ in range(3)]
    ids = fill(client, topic, 60)
    for consumer in consumers:
        try:
            while True:
                consumer.acknowledge(consumer.receive(20))
        except pulsar.Timeout:
            pass
    until(lambda: admin.stats(topic, "s")["backlog"] == 0)
    consumers[1].seek(ids[0])
    until(lambda: len(admin.stats(topic, "s")["consumers"]) == 3)
    got: list[int] = []
    while len(got) < 60:
        for consumer in consumers:
            try:
                message = consumer.receive(10)
            except pulsar.Timeout:
                continue
            got.append(int(message.data()))
            consumer.acknowledge(message)
    assert sorted(got) == list(range(60))


@program
def test_a_reset_by_the_administration(client: Any, topic: str, admin: Any) -> None:
    """The client's own queue is emptied, too: it is closed, and subscribes again."""
    consumer = client.subscribe(topic, "s")
    fill(client, topic, 10)
    assert consumer.receive(20_000).data() == b"0"
    admin.reset(topic, "s", "earliest")
    # The client empties its queue when SUBSCRIBE is answered, and sends permits after that.
    until(lambda: admin.stats(topic, "s")["pending"] == 10)
    assert data_of(receive(consumer, 10)) == numbers(0, 10)


@program
def test_reads_in_flight(client: Any, topic: str, admin: Any) -> None:
    """Scenarios 1 and 2: a read in flight at the seek is dropped, not delivered."""
    fill(client, topic, 10)
    admin.close_reads(topic)
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest, **HERE)
    until(lambda: admin.held_reads() > 0)  # from 0
    producer = client.create_producer(topic)
    last = producer.send(b"the last")
    consumer.seek(last)
    admin.open_reads()
    assert consumer.receive(20_000).data() == b"the last"
    nothing_comes(consumer)
    assert admin.stats(topic, "s")["dropped"] >= 1


@program
def test_a_seek_with_no_consumer_connected_is_refused(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    consumer.close()
    try:
        consumer.seek(pulsar.MessageId.earliest)
    except pulsar.PulsarException:
        return
    raise AssertionError("a closed consumer could seek")


@program
def test_into_a_batch(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", start_message_id_inclusive=True)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=1000
    )
    ids = send_all(producer, numbers(0, 30))
    receive(consumer, 30)
    consumer.seek(ids[14])
    assert consumer.receive(20_000).data() == b"14"


SLOW_S = 0.3
SLOWLY = (4, 2, 7)


def _slow(client: Any, topic: str) -> None:
    consumer = client.subscribe(topic, "s", **HERE)
    ids = fill(client, topic, 10)
    receive(consumer, 10)
    for at in SLOWLY:
        consumer.seek(ids[at])
        assert data_of(receive(consumer, 10 - at)) == numbers(at, 10)


@program
def slow_seek(client: Any, topic: str) -> None:
    _slow(client, topic)


def test_a_slow_seek_does_not_hang_the_client() -> None:
    """The client subscribes before its seek ended: this answer comes first, or it hangs."""
    server().admin.slow_resets(SLOW_S)
    try:
        client().run(job_of(slow_seek, server(), 20.0))
        assert server().admin.slowed() == len(SLOWLY)
    finally:
        server().admin.slow_resets(0.0)


def race(client: Any, topic: str, admin: Any, type_: str) -> None:
    """Reset by the administration while messages are received and acknowledged.

    The order of the messages changes only to the target of a reset. After the last reset, everything from
    its target on arrives.
    """
    count, rounds = 600, 25
    kind = getattr(pulsar.ConsumerType, type_)
    consumer = client.subscribe(topic, "s", kind, receiver_queue_size=20, **HERE)
    ids = fill(client, topic, count)
    targets = [(each * 137) % count for each in range(rounds)]
    resetting = threading.Thread(target=reset_often, args=(admin, topic, ids, targets))
    resetting.start()
    seen: list[int] = []
    while resetting.is_alive() or admin.stats(topic, "s")["backlog"]:
        try:
            message = consumer.receive(200)
        except pulsar.Timeout:
            continue
        seen.append(int(message.data()))
        consumer.acknowledge(message)
    resetting.join()
    jumps = [later for sooner, later in itertools.pairwise(seen) if later != sooner + 1]
    assert set(jumps) <= set(targets)
    assert seen[len(seen) - (count - targets[-1]) :] == [*range(targets[-1], count)]
    assert admin.stats(topic, "s")["reset_number"] == rounds


def reset_often(admin: Any, topic: str, ids: list[Any], targets: list[int]) -> None:
    for target in targets:
        admin.reset_to(topic, "s", ids[target].ledger_id(), ids[target].entry_id())
        time.sleep(0.02)  # a pace, so that some messages arrive between two resets


@program
def test_resets_race_with_an_exclusive_consumer(client: Any, topic: str, admin: Any) -> None:
    race(client, topic, admin, "Exclusive")


@program
def test_resets_race_with_a_shared_consumer(client: Any, topic: str, admin: Any) -> None:
    race(client, topic, admin, "Shared")


@program
def test_a_position_that_was_trimmed(client: Any, topic: str, admin: Any) -> None:
    """A reset there is refused; a seek continues with the next message."""
    consumer = client.subscribe(topic, "s", **HERE)
    old = fill(client, topic, 5)
    for message in receive(consumer, 5):
        consumer.acknowledge(message)
    admin.truncate(topic)
    new = fill(client, topic, 3)
    kept = [f"{each.ledger_id()}:{each.entry_id()}" for each in (new[0], new[-1])]
    with pytest.raises(RuntimeError, match=f"its messages are {kept[0]} to {kept[1]}"):
        admin.reset_to(topic, "s", old[2].ledger_id(), old[2].entry_id())
    consumer.seek(old[2])
    assert data_of(receive(consumer, 3)) == numbers(0, 3)
