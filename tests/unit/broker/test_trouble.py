"""The embedded broker when callers give up, disks are full, and threads come too late."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.broker import Broker
from holdfast.broker.topic import Topic
from holdfast.ledger import running
from holdfast.ledger.files import table
from tests.kit.broker.brokers import on_broker
from tests.kit.ledger import entry_bytes
from tests.kit.processes import until
from tests.kit.waiting import eventually

ORDERS = "persistent://public/default/orders"


async def opened(broker: Broker, name: str, access: Any) -> Any:
    producer = broker.producer("orders", name=name, access=access)
    await producer.open()
    return producer


def test_who_gives_up_while_joining_leaves_no_session_behind(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_subscription("orders", "billing")
        joining = asyncio.create_task(broker.consumer("orders", "billing").open())
        await asyncio.sleep(0)
        joining.cancel()
        opening = asyncio.create_task(broker.producer("orders", access="exclusive").open())
        await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([joining, opening])
        assert joining.cancelled()
        assert opening.cancelled()
        await broker.engine.settle()  # the sessions were opened ...
        await eventually(lambda: not broker.machine.state.sessions)  # ... and are being closed
        async with broker.consumer("orders", "billing"), broker.producer("orders", access="exclusive") as p:
            waiting = asyncio.create_task(opened(broker, "w", "wait-for-exclusive"))
            await eventually(lambda: broker.topic(ORDERS).state.waiting)
            waiting.cancel()
            await asyncio.wait([waiting])
            await p.send(b"still mine")
        async with broker.producer("orders"):
            pass

    on_broker(tmp_path, work)


def test_what_is_under_way_when_the_broker_closes_gets_its_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdfast.Broker.open(tmp_path) as broker:
            p = broker.producer("orders")
            await p.open()
            sending = [asyncio.create_task(p.send(b"%d" % n)) for n in range(20)]
            await asyncio.sleep(0)
        ids = [await each for each in sending]
        assert len(set(ids)) == 20
        with pytest.raises(holdfast.Closed, match="closed"):
            await p.send(b"late")

    asyncio.run(main())


def test_nothing_is_too_large_for_its_frame(tmp_path: Path) -> None:
    """A large stage and large properties are split, or go into the next frame."""

    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p:
            stage = await broker.stage()
            large, small = await asyncio.gather(
                stage.append("orders", [b"x" * (1 << 20)] * 70), p.send(b"beside it")
            )
            assert large is None
            assert small.entry == 0
            with pytest.raises(holdfast.Misuse, match="largest is"):
                await stage.append("orders", [b"x" * (6 << 20)])
            properties = {str(n): "v" * 90 for n in range(100)}
            many = [p.send_many([b"m"] * 1000, properties=properties) for _ in range(3)]
            ids = await asyncio.gather(*many, p.send(b"last"))
            assert [len(each) for each in ids[:3]] == [1000] * 3
            assert await broker.sink_commit("k", 1, [await stage.close()])
            assert broker.admin.topic_stats("orders").entries == 1 + 3000 + 1 + 70

    on_broker(tmp_path, work)


def test_what_cannot_be_shown_to_readers_does_not_stop_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker) -> None:
        def full(*arguments: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(table, "write_part", full)
            async with broker.producer("orders") as p:
                await p.send(b"nails")
            assert broker.unshown
        await eventually(lambda: not broker.unshown)

    on_broker(tmp_path, work, housekeeping_s=0.05)


def test_housekeeping_goes_on_after_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("orders", ttl_s=0.01)
        await broker.admin.create_subscription("orders", "s")
        async with broker.producer("orders") as p:
            await p.send(b"nails")
        told = list[str]()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(context["message"]))

        async def broken(*arguments: object) -> int:
            raise OSError(5, "Input/output error")

        with monkeypatch.context() as patch:
            patch.setattr(broker.topic(ORDERS), "ordinal_at", broken)
            await eventually(lambda: told)
        assert "housekeeping" in told[0]
        await eventually(lambda: not broker.admin.subscription_stats("orders", "s").backlog)
        with pytest.raises(holdfast.Misuse, match="retention_s cannot be"):
            await broker.admin.set_policies("orders", retention_s=1e300)

    on_broker(tmp_path, work, housekeeping_s=0.05)


@pytest.mark.parametrize("step", ["rates.tick", "housekeeping._old", "housekeeping._is_time_for_names"])
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), holdfast.Misuse("not known to the log")])
def test_no_step_of_housekeeping_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: Exception
) -> None:
    """One error of the counters ended trimming, rolling and expiry until the next start."""

    async def work(broker: Broker) -> None:
        failed = asyncio.Event()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)

        def broken() -> None:
            failed.set()
            raise error

        part, _, name = step.partition(".")
        with monkeypatch.context() as patch:
            patch.setattr(getattr(broker, part), name, broken)
            await asyncio.wait_for(failed.wait(), 5)
        await broker.admin.create_topic("orders", ttl_s=0.01)
        await broker.admin.create_subscription("orders", "s")
        async with broker.producer("orders") as p:
            await p.send(b"nails")
        await eventually(lambda: not broker.admin.subscription_stats("orders", "s").backlog)

    on_broker(tmp_path, work, housekeeping_s=0.02)


def test_a_topic_without_subscriptions_keeps_to_its_own_retention(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        await broker.admin.create_topic("limited", retention_s=0.01)
        for topic in ("limited", "unlimited"):
            async with broker.producer(topic) as p:
                for _ in range(5):
                    await p.send_many([b"x"] * 10)
                    await broker.admin.roll(topic)
        await eventually(lambda: not broker.admin.topic_stats("limited").entries)
        assert broker.admin.topic_stats("unlimited").entries == 50

    on_broker(tmp_path, work, housekeeping_s=0.05)


def test_permits_of_compressed_batches_come_back(tmp_path: Path) -> None:
    """Such a batch is one message here, and counts for as many as it holds."""

    async def work(broker: Broker) -> None:
        async with (
            broker.consumer("orders", "s", receiver_queue=100) as c,
            broker.producer("orders") as p,
        ):
            # producer, sequence, publish time, compression, messages in the batch
            entry = entry_bytes.entry([(1, b"p"), (2, 0), (3, 1), (8, 1), (11, 60)], b"opaque")
            session = p._session, p._epoch, p.name
            for number in range(20):
                entries = [(number, 1, entry)]
                await broker.publish_entries(broker.topics[p._topic], *session, entries)
            for _ in range(20):
                await c.ack(await c.receive(timeout=5))

    on_broker(tmp_path, work)


def test_threads_that_call_while_another_closes_are_told(tmp_path: Path) -> None:
    for _ in range(5):
        ends, begun = list[str](), set[int]()

        def call(broker: Any, ends: list[str] = ends, begun: set[int] = begun) -> None:
            try:
                with broker.producer("orders") as p:
                    while True:
                        p.send(b"x")
                        begun.add(threading.get_ident())
            except holdfast.Closed as error:
                ends.append(str(error))

        with holdfast.Broker.open(tmp_path, sync="os") as broker:
            threads = [threading.Thread(target=call, args=(broker,), daemon=True) for _ in range(8)]
            for thread in threads:
                thread.start()
            until(lambda begun=begun: len(begun) == 8)  # type: ignore[misc]
        for thread in threads:
            thread.join(10)
        assert len(ends) == 8, f"{8 - len(ends)} threads wait for ever"


def test_what_comes_while_a_broker_closes_does_not_hold_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late event was delivered and never stable, and the last snapshot waited for it."""

    async def work(broker: Broker) -> None:
        producer = await opened(broker, "late", "shared")
        answered, sent = broker.engine.answered, list[asyncio.Task[Any]]()

        async def answered_and_send() -> None:
            await answered()
            sent.append(asyncio.create_task(producer.send(b"from another thread")))
            for _ in range(2):  # it is in a frame, and the frame on its way
                await asyncio.sleep(0)

        monkeypatch.setattr(broker.engine, "answered", answered_and_send)
        monkeypatch.setattr(running, "CLOSING_S", 10.0)
        await broker.close()
        ends = await asyncio.gather(*sent, return_exceptions=True)
        assert isinstance(ends[-1], holdfast.Closed)
        store = broker.store._running
        assert store is not None
        assert store.opened.kept[-1].d == broker.machine.log.next_d - 1, "it had no last snapshot"

    on_broker(tmp_path, work)


def test_a_reader_of_a_truncated_topic_comes_to_its_end(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as p, broker.reader("orders", receiver_queue=1) as r:
            await p.send_many([b"x"] * 10)
            await r.read(timeout=5)
            await broker.admin.truncate("orders")
            while await r.has_more():
                await r.read(timeout=5)

    on_broker(tmp_path, work)


def look_while_trimmed(path: Path, where: str) -> None:
    """Examine and peek at messages of which some are trimmed meanwhile."""

    async def fill(producer: holdfast.broker.Producer) -> None:
        for first in range(0, 40, 10):  # a ledger each
            await producer.send_many([b"%d" % number for number in range(first, first + 10)])

    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as producer:
            await fill(producer)
            await broker.admin.create_subscription("orders", "billing", start="earliest")
            topic, reads = broker.admin._topic("orders"), 0
            read = topic._store.read

            async def trimmed(*args: Any, **more: Any) -> Any:
                nonlocal reads
                reads += 1
                if reads == 2:
                    await broker.admin.truncate("orders")
                    await producer.send(b"later")
                    if where == "within a read":
                        raise FileNotFoundError(args[0])
                return await read(*args, **more)

            for look in ("examine", "peek"):
                reads = 0
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(topic._store, "read", trimmed)
                    if look == "examine":
                        messages = await broker.admin.examine("orders", "earliest", 100)
                    else:
                        messages = await broker.admin.peek("orders", "billing", 100)
                assert messages[-1].data == b"later"
                ordinals = [message.ordinal for message in messages]
                assert ordinals == sorted({*ordinals})
                await fill(producer)

    on_broker(path, work, roll_entries=10)


@pytest.mark.parametrize("where", ["between two reads", "within a read"])
def test_what_is_trimmed_meanwhile_is_left_out(tmp_path: Path, where: str) -> None:
    look_while_trimmed(tmp_path, where)


def test_a_look_that_does_not_expect_a_trim_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Topic, "read_on", Topic.read)
    with pytest.raises(holdfast.NotFound, match="has no visible entry at"):
        look_while_trimmed(tmp_path, "between two reads")


def ask_for_times_while_trimmed(path: Path) -> None:
    """Search by time, and for the time of an entry, while its ledger is trimmed."""

    async def work(broker: Broker) -> None:
        async with broker.producer("orders") as producer:
            for _ in range(4):  # a ledger each
                await producer.send_many([b"x"] * 10)
            topic = broker.admin._topic("orders")
            real, middle = topic._store.time, [*topic.state.ledgers][1]

            async def trimmed(*args: Any) -> Any:
                patch.undo()
                await broker.admin.truncate("orders")
                await producer.send(b"later")
                raise FileNotFoundError(args[0])

            for look in (partial(topic.ordinal_at, middle.last_time), partial(topic.time_on, 5)):
                await producer.send(b"now")
                topic._timed = None  # it reads again
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(topic._store, "time", trimmed)
                    found = await look()
                assert topic._store.time == real
                last = topic.visible - 1
                assert found in (last, await topic.time_on(last))
                assert topic.first == last

    on_broker(path, work, roll_entries=10)


def test_times_of_what_is_trimmed_meanwhile(tmp_path: Path) -> None:
    """Seeks by time, expiry by age and stats failed with FileNotFoundError."""
    ask_for_times_while_trimmed(tmp_path)


def test_times_that_do_not_expect_a_trim_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def time(self: Topic, info: Any, entry: int) -> int:
        return await self._store.time(info.file, entry)

    monkeypatch.setattr(Topic, "_time", time)
    with pytest.raises(FileNotFoundError):
        ask_for_times_while_trimmed(tmp_path)
