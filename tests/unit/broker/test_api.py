"""The embedded broker as its users call it."""

from __future__ import annotations

import asyncio
import math
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import pytest

import holdfast
from holdfast.broker import (
    BlockingConsumer,
    BlockingProducer,
    BlockingReader,
    BlockingStage,
    Broker,
    Consumer,
    Producer,
    Reader,
    Stage,
)
from holdfast.errors import Misuse
from holdfast.ids import EARLIEST, LATEST, MessageId
from tests.kit.broker.brokers import on_broker
from tests.kit.waiting import eventually, next_millisecond

ORDERS = "persistent://public/default/orders"

Answer = TypeVar("Answer")


async def take(consumer: Any, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        found += [message.data for message in await consumer.receive_many(count - len(found), timeout=5)]
    return found


def test_what_is_sent_arrives_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with (
            broker.consumer("orders", "billing", type="shared") as c,
            broker.producer("orders", name="till") as p,
        ):
            when = datetime(2024, 2, 29, 12, 30, tzinfo=UTC)
            sent = await p.send(b"nails", key="smith", properties={"colour": "grey"}, event_time=when)
            message = await c.receive(timeout=5)
            assert (message.data, message.key, message.properties) == (b"nails", "smith", {"colour": "grey"})
            assert (message.id, message.event_time, message.producer) == (sent, when, "till")
            assert message.topic == "persistent://public/default/orders"
            assert message.redelivery_count == 0
            assert message.publish_time is not None
            assert abs(message.publish_time - datetime.now(UTC)) < timedelta(minutes=1)

    on_broker(tmp_path, work)


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    async def first(broker: Broker) -> list[MessageId]:
        await broker.admin.create_subscription("orders", "billing")
        async with broker.producer("orders") as p:
            return await p.send_many([b"%d" % n for n in range(100)])

    async def second(broker: Broker) -> None:
        async with broker.consumer("orders", "billing") as c:
            messages = await c.receive_many(60, timeout=5)
            while len(messages) < 60:
                messages += await c.receive_many(60 - len(messages), timeout=5)
            assert [message.id for message in messages] == ids[:60]
            await c.ack_cumulative(messages[59], receipt=True)
            stats = broker.admin.subscription_stats("orders", "billing")
            assert (stats.backlog, stats.mark_delete) == (40, str(ids[59]))

    async def third(broker: Broker) -> None:
        async with broker.consumer("orders", "billing") as c:
            assert await take(c, 40) == [b"%d" % n for n in range(60, 100)]

    ids = on_broker(tmp_path, first)
    assert len(set(ids)) == 100
    on_broker(tmp_path, second)
    on_broker(tmp_path, third)


def test_individual_acknowledgements_are_kept(tmp_path: Path) -> None:
    async def first(broker: Broker) -> None:
        async with (
            broker.consumer("orders", "billing", type="shared") as c,
            broker.producer("orders") as p,
        ):
            await p.send_many([b"%d" % n for n in range(20)])
            messages = [await c.receive(timeout=5) for _ in range(20)]
            await c.ack_many(messages[1::2], receipt=True)
            assert broker.admin.subscription_stats("orders", "billing").backlog == 10

    async def second(broker: Broker) -> None:
        assert broker.admin.subscription_stats("orders", "billing").backlog == 10
        async with broker.consumer("orders", "billing", type="shared") as c:
            assert await take(c, 10) == [b"%d" % n for n in range(0, 20, 2)]

    on_broker(tmp_path, first)
    on_broker(tmp_path, second)


def test_messages_of_a_batch_are_acknowledged_one_by_one(tmp_path: Path) -> None:
    async def first(broker: Broker) -> None:
        async with (
            broker.consumer("orders", "billing", type="shared") as c,
            broker.producer("orders", batch=5) as p,
        ):
            ids = await p.send_many([b"%d" % n for n in range(10)])
            assert [str(each).count(":") for each in ids] == [2] * 10
            messages = [await c.receive(timeout=5) for _ in range(10)]
            assert [message.id for message in messages] == ids
            for message in messages[1:9]:
                await c.ack(message)
            await c.ack(messages[1], receipt=True)
            stats = broker.admin.subscription_stats("orders", "billing")
            assert (stats.backlog, stats.partly_acknowledged) == (2, 2)

    async def second(broker: Broker) -> None:
        async with broker.consumer("orders", "billing", type="shared") as c:
            left = [await c.receive(timeout=5) for _ in range(2)]
            assert [message.data for message in left] == [b"0", b"9"]
            await c.ack_many(left, receipt=True)
            assert broker.admin.subscription_stats("orders", "billing").backlog == 0

    on_broker(tmp_path, first)
    on_broker(tmp_path, second)


def test_a_reader_reads_from_any_place_and_leaves_no_trace(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p:
            ids = await p.send_many([b"%d" % n for n in range(10)])
        async with broker.reader("orders", start=ids[4]) as r:
            assert [(await r.read(timeout=5)).data for _ in range(6)] == [b"%d" % n for n in range(4, 10)]
            assert not await r.has_more()
            await r.seek("earliest")
            assert await r.has_more()
            assert (await r.read(timeout=5)).data == b"0"
            await r.seek("latest")
            with pytest.raises(holdfast.Timeout, match="no message on orders"):
                await r.read(timeout=0.05)
        assert broker.admin.subscriptions("orders") == []

    on_broker(tmp_path, work)


def test_seek_and_reset_go_to_messages_and_times(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.consumer("orders", "billing") as c, broker.producer("orders") as p:
            ids = await p.send_many([b"%d" % n for n in range(5)])
            next_millisecond()
            between = datetime.now(UTC)
            next_millisecond()
            await p.send_many([b"%d" % n for n in range(5, 10)])
            assert await take(c, 10) == [b"%d" % n for n in range(10)]
            await c.seek(ids[3])
            assert await take(c, 7) == [b"%d" % n for n in range(3, 10)]
            await c.seek(between)
            assert await take(c, 5) == [b"%d" % n for n in range(5, 10)]
            await broker.admin.reset("orders", "billing", "earliest")
            assert await take(c, 10) == [b"%d" % n for n in range(10)]
            assert broker.admin.subscription_stats("orders", "billing").reset_number == 3
            assert (
                await broker.admin.time_of("orders", between)
                == (await broker.admin.examine("orders", between))[0].id
            )

    on_broker(tmp_path, work)


def test_skip_clear_expire_and_peek(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        admin = broker.admin
        await admin.create_subscription("orders", "billing")
        async with broker.producer("orders") as p:
            await p.send_many([b"%d" % n for n in range(10)])
        assert [m.data for m in await admin.peek("orders", "billing", 3)] == [b"0", b"1", b"2"]
        await admin.skip("orders", "billing", 4)
        assert [m.data for m in await admin.peek("orders", "billing", 1)] == [b"4"]
        assert admin.subscription_stats("orders", "billing").backlog == 6
        await admin.expire("orders", "billing", 3600)
        assert admin.subscription_stats("orders", "billing").backlog == 6
        await admin.expire("orders", "billing", 0)
        assert admin.subscription_stats("orders", "billing").backlog == 0
        await admin.reset("orders", "billing", "earliest")
        assert admin.subscription_stats("orders", "billing").backlog == 10
        await admin.clear("orders", "billing")
        assert admin.subscription_stats("orders", "billing").backlog == 0
        assert await admin.peek("orders", "billing", 5) == []

    on_broker(tmp_path, work)


def test_a_negative_acknowledgement_brings_it_again(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with (
            broker.consumer("orders", "billing", type="shared") as c,
            broker.producer("orders") as p,
        ):
            await p.send(b"nails")
            for times in range(3):
                message = await c.receive(timeout=5)
                assert message.redelivery_count == times
                c.nack(message, delay=0)
            await c.ack(await c.receive(timeout=5), receipt=True)
            assert broker.admin.subscription_stats("orders", "billing").backlog == 0

    on_broker(tmp_path, work)


def test_shared_consumers_share_and_failover_takes_over(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with (
            broker.producer("shared") as p,
            broker.consumer("shared", "s", type="shared", receiver_queue=10) as one,
            broker.consumer("shared", "s", type="shared", receiver_queue=10) as two,
        ):
            await p.send_many([b"%d" % n for n in range(20)])
            both = Counter(await take(one, 10) + await take(two, 10))
            assert both == Counter(b"%d" % n for n in range(20))
        async with broker.producer("failover") as p:
            first = broker.consumer("failover", "f", type="failover", name="a")
            await first.open()
            async with broker.consumer("failover", "f", type="failover", name="b") as second:
                assert (first.active, second.active) == (True, False)
                await p.send_many([b"1", b"2"])
                assert await take(first, 2) == [b"1", b"2"]
                await first.close()
                assert await take(second, 2) == [b"1", b"2"]
                assert second.active

    on_broker(tmp_path, work)


def test_an_exclusive_subscription_has_one_consumer(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.consumer("orders", "billing"):
            with pytest.raises(holdfast.Busy, match="billing"):
                await broker.consumer("orders", "billing").open()
            with pytest.raises(holdfast.HoldfastError, match=r"shared|exclusive"):
                await broker.consumer("orders", "billing", type="shared").open()
        async with broker.consumer("orders", "billing", type="shared"):
            pass

    on_broker(tmp_path, work)


def test_producers_with_access_modes(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders", name="a", access="exclusive") as a:
            with pytest.raises(holdfast.Busy):
                await broker.producer("orders", name="b").open()
            waiting = asyncio.create_task(_opened(broker, "c", "wait-for-exclusive"))
            await eventually(lambda: broker.topic(ORDERS).state.waiting)
            assert not waiting.done()
            await a.send(b"a")
        c = await asyncio.wait_for(waiting, 5)
        await c.send(b"c")
        d = await _opened(broker, "d", "exclusive-with-fencing")
        with pytest.raises(holdfast.Fenced):
            await c.send(b"late")
        await d.send(b"d")
        assert [m.data for m in await broker.admin.examine("orders", "earliest", 9)] == [b"a", b"c", b"d"]
        await d.close()

    on_broker(tmp_path, work)


async def _opened(broker: Broker, name: str, access: Any) -> Any:
    producer = broker.producer("orders", name=name, access=access)
    await producer.open()
    return producer


def test_deduplication_drops_what_was_sent_before(tmp_path: Path) -> None:
    async def first(broker: Broker) -> None:
        await broker.admin.create_topic("orders", deduplication=True)
        async with broker.producer("orders", name="till") as p:
            assert p.last_sequence == -1
            await p.send_many([b"0", b"1", b"2"], sequence=0)
            assert await p.send(b"again", sequence=2) == MessageId(-1, -1)

    async def second(broker: Broker) -> None:
        async with broker.producer("orders", name="till") as p:
            assert p.last_sequence == 2
            assert await p.publish([b"1", b"2", b"3"], sequence=1) == 1
        found = await broker.admin.examine("orders", "earliest", 10)
        assert [message.data for message in found] == [b"0", b"1", b"2", b"3"]

    on_broker(tmp_path, first)
    on_broker(tmp_path, second)


def test_topics_can_be_terminated_truncated_and_deleted(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        admin = broker.admin
        async with broker.producer("orders") as p:
            last = await p.send(b"nails")
            with pytest.raises(holdfast.Busy):
                await admin.delete_topic("orders")
            assert await admin.terminate("orders") == last
            with pytest.raises(holdfast.Terminated):
                await p.send(b"more")
        async with broker.producer("other") as p:
            await p.send(b"1")
            await admin.truncate("other")
            assert await admin.examine("other", "earliest", 5) == []
            second = await p.send(b"2")
            assert (await admin.get("other", second)).data == b"2"
        with pytest.raises(holdfast.NotFound, match="no message 99:0"):
            await admin.get("other", MessageId(99, 0))
        await admin.delete_topic("orders")
        assert admin.topics() == ["persistent://public/default/other"]
        with pytest.raises(holdfast.NotFound, match="there is no topic"):
            admin.topic_stats("orders")
        async with broker.consumer("other", "s") as c:
            await admin.delete_topic("other", force=True)
            with pytest.raises(holdfast.Closed, match="deleted"):
                await c.receive(timeout=5)

    on_broker(tmp_path, work)


def test_ledgers_roll_and_what_is_acknowledged_goes(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.consumer("orders", "billing") as c, broker.producer("orders") as p:
            for _ in range(10):
                await p.send_many([b"x" * 100] * 10)
            await eventually(lambda: len(broker.admin.topic_stats("orders").ledgers) >= 4)
            got = [await c.receive(timeout=5) for _ in range(100)]
            await c.ack_cumulative(got[79], receipt=True)
            await eventually(lambda: broker.admin.topic_stats("orders").entries <= 40)
            assert broker.admin.subscription_stats("orders", "billing").backlog == 20
            await broker.admin.snapshot()
            await c.seek("earliest")
            assert (await c.receive(timeout=5)).id >= got[60].id

    on_broker(tmp_path, work, roll_entries=20)


def test_a_stage_is_published_once_or_not_at_all(tmp_path: Path) -> None:
    async def first(broker: Broker) -> Any:
        stage = await broker.stage()
        await stage.append("a", [b"1", b"2"])
        await stage.append("b", [b"x" * 1000] * 200)
        receipt = await stage.close()
        assert await broker.admin.examine("a", "earliest", 5) == []
        return receipt

    async def second(broker: Broker) -> None:
        assert await broker.sink_commit("query", 0, [receipt])
        assert not await broker.sink_commit("query", 0, [receipt])
        assert [m.data for m in await broker.admin.examine("a", "earliest", 5)] == [b"1", b"2"]
        assert len(await broker.admin.examine("b", "earliest", 500)) == 200
        with pytest.raises(holdfast.HoldfastError):
            await broker.sink_commit("query", 1, [receipt])

    receipt = on_broker(tmp_path, first)
    on_broker(tmp_path, second)


def test_one_process_has_a_directory(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        with pytest.raises(holdfast.Locked, match=r"is held by process \d+"):
            async with holdfast.Broker.open(tmp_path):
                pass

    on_broker(tmp_path, work)


@pytest.mark.parametrize(
    ("form", "twin", "inside"),
    [
        (BlockingProducer, Producer, {"publish"}),
        (BlockingConsumer, Consumer, set()),
        (BlockingReader, Reader, set()),
        (BlockingStage, Stage, set()),
    ],
)
def test_the_blocking_form_has_the_same_names(form: type, twin: type, inside: set[str]) -> None:
    """docs/guide/broker.md: scripts use the same names without `await`."""

    def names(of: type) -> set[str]:
        return {each for each in dir(of) if not each.startswith("_")}

    assert names(twin) - names(form) == inside


def test_the_blocking_form_opens_posts_and_commits(tmp_path: Path) -> None:
    with holdfast.Broker.open(tmp_path) as broker:
        consumer, producer = broker.consumer("t", "s", type="failover"), broker.producer("t")
        consumer.open()
        producer.open()
        with pytest.raises(holdfast.Misuse, match="is open already"):
            consumer.open()
        assert consumer.active
        assert producer.last_sequence == -1
        producer.post([b"a", b"b"], key="k")
        producer.flush()
        stage = broker.stage()
        stage.append("t", [b"c"])
        receipt = stage.close()
        assert [broker.sink_commit("k", 1, [receipt]) for _ in range(2)] == [True, False]
        dropped = broker.stage()
        dropped.append("t", [b"never"])
        dropped.drop()
        assert [consumer.receive(5).data for _ in range(3)] == [b"a", b"b", b"c"]
        assert broker.admin.subscription_stats("t", "s").backlog == 3
        producer.close()
        consumer.close()
        with pytest.raises(holdfast.Closed):
            consumer.receive(0)


def test_the_blocking_form(tmp_path: Path) -> None:
    with holdfast.Broker.open(tmp_path) as broker:
        broker.admin.create_subscription("orders", "billing")
        with broker.producer("orders") as p:
            ids = p.send_many([b"%d" % n for n in range(5)])
            assert p.send(b"5", key="k") > ids[-1]
        with broker.consumer("orders", "billing") as c:
            got = [c.receive(timeout=5) for _ in range(6)]
            assert [message.data for message in got] == [b"%d" % n for n in range(6)]
            with pytest.raises(holdfast.Timeout):
                c.receive(timeout=0.01)
            c.seek(ids[3])
            assert c.receive(timeout=5).data == b"3"
        with broker.reader("orders") as r:
            assert r.has_more()
            assert r.read(timeout=5).data == b"0"
        assert broker.admin.topics() == ["persistent://public/default/orders"]
        assert 'pulsar_subscription_back_log{cluster="standalone"' in broker.metrics()
        assert broker.stats().topics == 1
    with pytest.raises(holdfast.Closed):
        p.send(b"late")


def test_the_metrics_of_resets(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_subscription("orders", "billing")
        async with broker.producer("orders") as p:
            await p.send(b"nails")
        await broker.admin.reset("orders", "billing", "earliest")
        await broker.admin.reset("orders", "billing", "latest")
        labels = (
            '{cluster="test",namespace="public/default",'
            'topic="persistent://public/default/orders",subscription="billing"}'
        )
        lines = broker.metrics().splitlines()
        assert f"pulsar_cursor_epoch_increase_count{labels} 2" in lines
        assert f"pulsar_cursor_epoch_increase_task_state{labels} 0" in lines

    on_broker(tmp_path, work, cluster="test")


def test_calls_do_not_grow_with_entries(tmp_path: Path) -> None:
    """Ten times as many entries in as many batches make no more Python calls."""
    few = calls_of_batches(tmp_path / "few", batches=20, size=100)
    many = calls_of_batches(tmp_path / "many", batches=20, size=1000)
    assert many < 1.5 * few, f"{many} calls for 20,000 entries, {few} for 2,000"
    assert many < 20_000, f"{many} calls for 20,000 entries published, consumed and acknowledged"


def calls_of_batches(path: Path, batches: int, size: int) -> int:
    """Publish, consume and acknowledge: how many functions were called, in Python or from it."""
    calls = 0

    def count(frame: FrameType, kind: str, argument: object) -> None:
        nonlocal calls
        calls += kind in ("call", "c_call")

    async def work(broker: Broker) -> None:
        async with (
            broker.consumer("orders", "billing", type="shared", receiver_queue=5 * size) as c,
            broker.producer("orders") as p,
        ):
            payloads = [b"x" * 100] * size
            sys.setprofile(count)
            try:
                for _ in range(batches):
                    await p.publish(payloads)
                left = batches * size
                while left:
                    messages = await c.receive_many(size, timeout=5)
                    await c.ack_many(messages)
                    left -= len(messages)
                await c.ack(messages[-1], receipt=True)
            finally:
                sys.setprofile(None)
        assert broker.admin.subscription_stats("orders", "billing").backlog == 0

    on_broker(path, work)
    return calls


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        with pytest.raises(holdfast.Misuse, match="no policy 'retention'"):
            await broker.admin.create_topic("orders", retention=5)
        with pytest.raises(holdfast.Misuse, match="topic"):
            await broker.producer("persistent://public/").open()
        async with broker.producer("orders") as p:
            with pytest.raises(holdfast.Misuse, match="largest is"):
                await p.send(b"x" * (6 << 20))
        with pytest.raises(holdfast.Closed, match="not open"):
            await p.send(b"late")
        with pytest.raises(holdfast.NotFound, match="no subscription 'billing'; create it first"):
            broker.admin.subscription_stats("orders", "billing")

    on_broker(tmp_path, work)


def test_a_place_that_the_topic_does_not_have(tmp_path: Path) -> None:
    """Administration refuses it; a consumer goes on with the next message."""

    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p:
            ids = [await p.send(b"%d" % number) for number in range(3)]
            await broker.admin.roll("orders")
            ids.append(await p.send(b"3"))
        gap, beyond = MessageId(ids[0].ledger, 3), MessageId(99, 0)
        wrong = (MessageId(ids[0].ledger, -2), MessageId(LATEST.ledger + 1, 0), MessageId(-2, 0))
        async with broker.consumer("orders", "s", start="earliest") as c:
            number = broker.admin.subscription_stats("orders", "s").reset_number
            for where in (gap, beyond, *wrong):
                with pytest.raises(
                    Misuse, match=f"no position {where}; its messages are {ids[0]} to {ids[3]}"
                ):
                    await broker.admin.reset("orders", "s", where)
                with pytest.raises(Misuse, match="has no position"):
                    await broker.admin.create_subscription("orders", "new", where)
            assert broker.admin.subscription_stats("orders", "s").reset_number == number
            await c.seek(gap)
            assert (await c.receive(timeout=1)).data == b"3"
            await c.seek(beyond)
            assert broker.admin.subscription_stats("orders", "s").backlog == 0
            for to, backlog in ((ids[1], 2), (ids[3], 0), (EARLIEST, 4), (LATEST, 0)):
                await broker.admin.reset("orders", "s", to, after=True)
                assert broker.admin.subscription_stats("orders", "s").backlog == backlog
        with pytest.raises(Misuse, match="it has no messages"):
            await broker.admin.create_subscription("empty", "s", beyond)

    on_broker(tmp_path, work, retention_bytes=1 << 20)


def test_a_reset_checks_its_timeout_as_a_seek_does(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.consumer("orders", "s") as c:
            for wrong in (-1.0, math.nan):
                with pytest.raises(Misuse):
                    await broker.admin.reset("orders", "s", "earliest", wrong)
                with pytest.raises(Misuse):
                    await c.seek("earliest", wrong)
            await broker.admin.reset("orders", "s", "earliest", math.inf)

    on_broker(tmp_path, work)


def test_a_cumulative_acknowledgement_on_a_shared_subscription(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with (
            broker.producer("orders") as p,
            broker.consumer("orders", "s", type="shared") as c,
        ):
            await p.send(b"nails")
            message = await c.receive(timeout=1)
            with pytest.raises(Misuse, match="subscription s is shared, so its messages have no order"):
                await c.ack_cumulative(message)
            assert broker.admin.subscription_stats("orders", "s").backlog == 1

    on_broker(tmp_path, work)
