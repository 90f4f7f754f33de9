"""Exchanges, moves, rings and last values of an embedded broker, as programs call them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.broker import Broker
from holdfast.broker.api.moving import Mover
from holdfast.broker.events import Event, PolicySet, Supersede
from holdfast.broker.last_value import LastValues, LastValueTopics
from holdfast.broker.state import Policies
from holdfast.broker.topic import Topic
from holdfast.errors import Busy, Exists, Misuse, NotFound, Outdated
from holdfast.ids import MessageId
from tests.kit.broker.brokers import on_broker
from tests.kit.waiting import eventually


async def fill(broker: Broker, topic: str, *data: bytes, **more: Any) -> None:
    async with broker.producer(topic, **more) as p:
        await p.send_many(list(data))


async def left(broker: Broker, topic: str, subscription: str = "s") -> list[bytes]:
    return [each.data for each in await broker.admin.peek(topic, subscription, 1000)]


async def stand(broker: Broker, *topics: str) -> None:
    for topic in topics:
        await broker.admin.create_topic(topic)
        await broker.admin.create_subscription(topic, "s")


async def with_morgue(broker: Broker, topic: str = "work") -> None:
    """Create a topic whose rejected messages go to `morgue`."""
    await stand(broker, topic, "morgue")
    await broker.admin.create_exchange("dead", "fanout")
    await broker.admin.bind("dead", "morgue")
    await broker.admin.set_alternate(topic, "dead")


def test_exchanges_are_listed_apart_from_topics(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        admin = broker.admin
        await stand(broker, "red")
        await admin.create_exchange("dead", "fanout")
        await admin.create_exchange("x", "topic", alternate="dead")
        assert [name.rpartition("/")[2] for name in admin.exchanges()] == ["dead", "x"]
        assert [name.rpartition("/")[2] for name in admin.topics()] == ["red"]
        assert await admin.bind("x", "red", "*.red")
        assert not await admin.bind("x", "red", "*.red")
        found = admin.exchange_stats("x")
        assert (found.kind, found.unreplicated, found.alternate) == (
            "topic",
            False,
            "persistent://public/default/dead",
        )
        assert found.bindings == [("persistent://public/default/red", "*.red")]
        with pytest.raises(Exists):
            await admin.create_exchange("red")
        with pytest.raises(NotFound, match="create it first"):
            await admin.create_exchange("y", alternate="missing")
        for call in (admin.topic_stats, admin.policies, admin.subscriptions):
            with pytest.raises(Misuse, match="is an exchange"):
                call("x")
        with pytest.raises(NotFound, match="no exchange"):
            admin.exchange_stats("red")
        for attach in (broker.consumer("x", "s"), broker.reader("x")):
            with pytest.raises(Misuse, match="is an exchange"):
                await attach.open()
        assert 'holdfast_exchange_dropped_total{cluster="standalone"' in broker.metrics()
        await admin.unbind("x", "red")
        await admin.delete_exchange("x")
        await admin.delete_exchange("dead")
        assert admin.exchanges() == []

    on_broker(tmp_path, work)


def test_publishing_is_confirmed_without_a_position(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await stand(broker, "red")
        await broker.admin.create_exchange("x")
        await broker.admin.bind("x", "red", "r")
        async with broker.producer("x", batch=2) as p:
            assert await p.send(b"1", key="r") == MessageId(-1, -1)
            assert await p.send_many([b"2", b"3", b"4"], key="r") == [MessageId(-1, -1)] * 3
            await p.post([b"5"], key="none")
            await p.flush()
        assert await left(broker, "red") == [b"1", b"2", b"3", b"4"]
        assert broker.admin.exchange_stats("x").dropped == 1

    on_broker(tmp_path, work)
    on_broker(tmp_path, lambda broker: kept(broker, [b"1", b"2", b"3", b"4"]))


async def kept(broker: Broker, wanted: list[bytes]) -> None:
    assert await left(broker, "red") == wanted
    found = broker.admin.exchange_stats("x")
    assert (found.published, found.routed, found.dropped) == (4, 3, 1)


# -- reject --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["shared", "exclusive"])
def test_a_consumer_rejects(tmp_path: Path, type_: Any) -> None:
    async def work(broker: Broker) -> None:
        await with_morgue(broker)
        await fill(broker, "work", b"1", b"2", b"3", batch=1)
        async with broker.consumer("work", "s", type=type_) as c:
            messages = await c.receive_many(3, timeout=5)
            while len(messages) < 3:
                messages += await c.receive_many(3, timeout=5)
            assert await c.reject(messages[1])
            assert not await c.reject(messages[1])
            await c.ack(messages[0])
            assert not await c.reject(messages[0]), "it was acknowledged in the same turn"
            await c.seek(messages[2].id)
            with pytest.raises(Outdated):
                await c.reject(messages[2])
            again = await c.receive(timeout=5)
            assert again.data == b"3"
            assert await c.reject(again)
        assert await left(broker, "morgue") == [b"2", b"3"]
        assert await left(broker, "work") == []

    on_broker(tmp_path, work)


def test_a_message_of_a_batch_is_rejected_alone(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await with_morgue(broker)
        await fill(broker, "work", b"1", b"2", b"3", batch=3)
        async with broker.consumer("work", "s", type="shared") as c:
            messages = await c.receive_many(3, timeout=5)
            assert await c.reject(messages[1])
            await c.ack(messages[0], receipt=True)
        assert await left(broker, "morgue") == [b"2"]
        assert await left(broker, "work") == [b"3"]
        at = (await broker.admin.peek("work", "s"))[0].id
        assert await broker.admin.reject("work", "s", MessageId(at.ledger, at.entry))
        assert await left(broker, "morgue") == [b"2", b"3"], "what is left of an entry"

    on_broker(tmp_path, work)


def test_rejects_that_are_refused(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await stand(broker, "work")
        await fill(broker, "work", b"1")
        async with broker.consumer("work", "s") as c:
            message = await c.receive(timeout=5)
            with pytest.raises(NotFound, match="alternate exchange"):
                await c.reject(message)
            await c.ack(message, receipt=True)
        with pytest.raises(NotFound, match="no message"):
            await broker.admin.reject("work", "s", MessageId(99, 0))
        async with broker.consumer("work", "volatile", durable=False, start="earliest") as c:
            with pytest.raises(Misuse, match="not durable"):
                await c.reject(await c.receive(timeout=5))

    on_broker(tmp_path, work)


# -- take and move -------------------------------------------------------------------------------------


def test_take_leaves_what_consumers_hold(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        admin = broker.admin
        await stand(broker, "work", "other")
        await fill(broker, "work", b"1", b"2", b"3", b"4", b"5")
        async with broker.consumer("work", "s", type="shared", receiver_queue=2) as c:
            dispatcher = broker.topic("persistent://public/default/work").served[0]
            await eventually(lambda: dispatcher.stats().pending_entries == 2)
            found = [await admin.take("work", "s") for _ in range(2)]
            assert [each.data for each in found if each is not None] == [b"3", b"4"]
            assert await admin.move("work", "s", "other") == 1
            assert await admin.take("work", "s") is None
            held = await c.receive_many(2, timeout=5)
            assert [each.data for each in held] == [b"1", b"2"]
            await c.ack_many(held, receipt=True)
            dispatcher.check()
        assert (await left(broker, "work"), await left(broker, "other")) == ([], [b"5"])

    on_broker(tmp_path, work)


def test_move_to_a_topic_or_an_exchange(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        admin = broker.admin
        await stand(broker, "work", "red", "blue")
        await admin.create_exchange("x", "topic")
        await admin.bind("x", "blue", "#")
        await fill(broker, "work", *(b"%d" % n for n in range(10)))
        assert await admin.move("work", "s", "red", 4) == 4
        assert await admin.move("work", "s", "x") == 6
        assert await admin.move("work", "s", "x") == 0
        assert await left(broker, "red") == [b"0", b"1", b"2", b"3"]
        assert await left(broker, "blue") == [b"4", b"5", b"6", b"7", b"8", b"9"]
        with pytest.raises(Misuse, match="1 or more"):
            await admin.move("work", "s", "red", 0)
        with pytest.raises(NotFound):
            await admin.move("work", "s", "missing")

    on_broker(tmp_path, work)


def test_a_refused_move_gives_the_entries_back(tmp_path: Path) -> None:
    """A consumer that waits gets them."""

    async def work(broker: Broker) -> None:
        await stand(broker, "work")
        topic = broker.topic("persistent://public/default/work")
        async with broker.consumer("work", "s", type="shared") as c:
            await fill(broker, "work", b"1")
            message = await c.receive(timeout=5)
            with pytest.raises(Misuse, match="itself"):
                await Mover(broker).move(topic, [topic.subscription("s")], topic.id, 5, held=True)
            again = await c.receive(timeout=5)
            assert (again.data, again.id) == (b"1", message.id)

    on_broker(tmp_path, work)


def test_purge_and_drain(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        admin = broker.admin
        await with_morgue(broker)
        await admin.create_subscription("work", "second")
        await fill(broker, "work", b"1", b"2", b"3")
        assert (await admin.take("work", "second")) is not None
        await admin.skip("work", "s", 1)
        assert await admin.drain_subscription("work", "second") == 2
        assert admin.subscriptions("work") == ["s"]
        assert await admin.drain_topic("work") == 2
        assert "work" not in str(admin.topics())
        assert await left(broker, "morgue") == [b"2", b"3", b"2", b"3"]
        assert await admin.purge("morgue") == 4
        assert await admin.purge("morgue") == 0
        with pytest.raises(NotFound, match="no alternate"):
            await admin.drain_topic("morgue")
        await admin.bind("dead", "morgue")
        await admin.set_alternate("morgue", "dead")
        await fill(broker, "morgue", b"4")
        with pytest.raises(Busy, match="backlog"):
            await admin.drain_topic("morgue")
        assert await left(broker, "morgue"), "its alternate leads back to it: nothing is lost"

    on_broker(tmp_path, work)


# -- rings and last values -----------------------------------------------------------------------------


def test_a_ring_keeps_the_newest(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("ring", ring_entries=5)
        await broker.admin.create_subscription("ring", "s")
        await fill(broker, "ring", *(b"%d" % n for n in range(50)))
        await eventually(lambda: broker.admin.subscription_stats("ring", "s").backlog == 5)
        assert await left(broker, "ring") == [b"%d" % n for n in range(45, 50)]
        assert broker.admin.topic_stats("ring").dropped == 45

    on_broker(tmp_path, work)


def test_a_ring_that_compaction_keeps_is_quiet(tmp_path: Path) -> None:
    """Entries behind the horizon of a view stay, without an event in each turn."""

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("ring", ring_entries=3, roll_entries=2)
        await fill(broker, "ring", b"1", b"2")
        await broker.admin.compact("ring", wait=True)
        await fill(broker, "ring", *(b"%d" % n for n in range(3, 12)), batch=1)
        topic = broker.topic("persistent://public/default/ring")
        for _ in range(3):  # rolled, trimmed, and nothing is left to do
            await broker.housekeeping.turn()
            await broker.settle()
        front, events = topic.state.ledgers.front, broker.engine.position
        assert front is not None
        assert front.end <= topic.visible - 3, "compaction keeps it"
        for _ in range(3):
            await broker.housekeeping.turn()
            await broker.settle()
        assert broker.engine.position == events

    on_broker(tmp_path, work)


def test_a_last_value_topic_keeps_the_newest_of_each_key(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("prices", last_value=True)
        await broker.admin.create_subscription("prices", "s")
        async with broker.producer("prices") as p:
            for n in range(20):
                await p.send(b"%d" % n, key=f"k{n % 4}")
            await p.send(b"no key")
        await eventually(lambda: broker.admin.subscription_stats("prices", "s").backlog == 5)
        assert await left(broker, "prices") == [b"16", b"17", b"18", b"19", b"no key"]

    async def again(broker: Broker) -> None:
        """After a restart the table of keys is read again."""
        async with broker.producer("prices") as p:
            await p.send(b"20", key="k0")
        await eventually(lambda: broker.admin.subscription_stats("prices", "s").backlog == 5)
        assert await left(broker, "prices") == [b"17", b"18", b"19", b"no key", b"20"]
        await broker.admin.create_subscription("prices", "late", "earliest")
        assert await left(broker, "prices", "late") == await left(broker, "prices")
        async with broker.consumer("prices", "s") as c:
            messages = await c.receive_many(1, timeout=5)
            while len(messages) < 5:
                messages += await c.receive_many(5, timeout=5)
            assert [each.data for each in messages] == [b"17", b"18", b"19", b"no key", b"20"]
            async with broker.producer("prices") as p:
                await p.send(b"21", key="k1")
            assert (await c.receive(timeout=5)).data == b"21"
            await eventually(lambda: broker.admin.subscription_stats("prices", "s").backlog == 5)

    on_broker(tmp_path, work)
    on_broker(tmp_path, again)


def test_the_policy_ends_for_a_moment_before_a_drop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The drop had no effect, so it is submitted again with the policy."""

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("prices", last_value=True)
        await broker.admin.create_subscription("prices", "s")
        submit, id_ = broker.engine.submit, broker.topic("persistent://public/default/prices").id
        refused = 0

        def late(event: Event) -> Any:
            nonlocal refused
            if isinstance(event, Supersede) and not refused:
                refused += 1
                submit(PolicySet(id_, Policies(last_value=False), ["last_value"]))
            return submit(event)

        monkeypatch.setattr(broker.engine, "submit", late)
        async with broker.producer("prices") as p:
            for price in (b"1", b"2"):
                await p.send(price, key="k")
            await eventually(lambda: refused == 1)
            await broker.settle()
            assert await left(broker, "prices") == [b"1", b"2"]
            await broker.admin.set_policies("prices", last_value=True)
            await p.send(b"3", key="k")
        await eventually(lambda: broker.admin.subscription_stats("prices", "s").backlog == 1)

    on_broker(tmp_path, work)


def test_a_value_behind_the_last_look_is_seen_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Look again at once for what became visible after a task's last look."""
    run, waiting, sent = LastValueTopics._run, [b"2"], []

    async def price(broker: Broker, data: bytes) -> None:
        async with broker.producer("prices") as p:
            await p.send(data, key="a")

    async def slowly_ended(self: LastValueTopics, topic: Topic, table: LastValues) -> None:
        await run(self, topic, table)
        if waiting:
            await price(self._broker, waiting.pop())
            sent.append(b"2")

    monkeypatch.setattr(LastValueTopics, "_run", slowly_ended)

    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("prices", last_value=True)
        await broker.admin.create_subscription("prices", "s")
        await price(broker, b"1")
        await eventually(lambda: broker.admin.subscription_stats("prices", "s").backlog == 1 and sent)
        assert await left(broker, "prices") == [b"2"]

    on_broker(tmp_path, work, housekeeping_s=3600.0)


def test_a_batch_stays_until_each_of_its_keys_is_newer(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("prices", last_value=True)
        await broker.admin.create_subscription("prices", "s")
        async with broker.producer("prices", batch=2) as p:
            await p.send_many([b"1", b"2"], key="a")
            await p.send_many([b"3", b"4"], key="b")
            await p.send_many([b"5", b"6"], key="a")
        await eventually(lambda: broker.admin.subscription_stats("prices", "s").backlog == 2)
        assert await left(broker, "prices") == [b"3", b"4", b"5", b"6"]

    on_broker(tmp_path, work)
