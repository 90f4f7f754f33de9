"""Checks of numbers at their end, for tests of a broker and for its mutants."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import HoldfastError, Misuse, Terminated, _core
from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.log_time import LAST_NS, SECOND, LogClock
from holdfast.columns.files import FileTopic
from holdfast.ids import NUMBER_MAX, MessageId
from holdfast.ledger.files.table import (
    VERSION_MAX,
    directory_incarnation,
    read_table,
    table_path,
    view_path,
)
from tests.kit.broker.brokers import on_broker
from tests.kit.broker.old import Age
from tests.kit.ledger.topic_runs import runs

SMALL: dict[str, Any] = {"sync": "os", "journal_bytes": 1 << 16, "reserve_bytes": 1 << 16, "snapshot_s": 1e9}


async def passes(broker: Broker, count: int = 1, ids: list[MessageId] | None = None) -> None:
    """Publish, deliver and acknowledge messages; append the confirmed ids to `ids`."""
    ids = [] if ids is None else ids
    async with (
        broker.consumer("orders", "s", type="shared", start="earliest") as consumer,
        broker.producer("orders", name="p") as producer,
    ):
        for number in range(count):
            ids.append(await producer.send(b"%d" % number))
            message = await consumer.receive(5)
            assert message.id == ids[-1]
            await consumer.ack(message, receipt=True)


def the_last_positions_of_a_topic(path: Path) -> None:
    """Existing messages are delivered, sought and acknowledged; one more is refused."""
    Age(ordinal=NUMBER_MAX - 3).make(path)

    async def first(broker: Broker) -> None:
        await broker.admin.create_subscription("orders", "late")
        await passes(broker, 3)
        async with broker.producer("orders") as producer:
            with pytest.raises(Terminated, match="has used up its 63 bits of positions; nothing"):
                await producer.send(b"one more")
        async with broker.producer("others") as producer:
            await producer.send(b"others go on")

    async def again(broker: Broker) -> None:
        async with broker.consumer("orders", "late", type="shared") as consumer:
            got = await consumer.receive_many(10, 5)
            assert [message.ordinal for message in got] == [NUMBER_MAX - 3, NUMBER_MAX - 2, NUMBER_MAX - 1]
            await consumer.ack_many([got[0], got[2]], receipt=True)
            assert broker.admin.subscription_stats("orders", "late").backlog == 1
            await consumer.seek(got[1].id)
            assert (await consumer.receive(5)).id == got[1].id
        async with broker.producer("orders") as producer:
            with pytest.raises(Terminated, match="63 bits of positions"):
                await producer.send(b"one more")

    on_broker(path, first, **SMALL)
    on_broker(path, again, **SMALL)


def the_last_ids(path: Path) -> None:
    """Existing topics, subscriptions and sessions continue; new ones are refused."""
    Age(ids=NUMBER_MAX - 1).make(path)

    async def work(broker: Broker) -> None:
        await passes(broker, 3)
        with pytest.raises(HoldfastError, match="63 bits of ids of sessions; start a broker in a new data"):
            await broker.producer("orders").open()
        await broker.admin.create_topic("last")
        with pytest.raises(HoldfastError, match="63 bits of ids of topics"):
            await broker.admin.create_topic("others")
        await broker.admin.create_subscription("orders", "last")
        with pytest.raises(HoldfastError, match="63 bits of ids of subscriptions"):
            await broker.admin.create_subscription("orders", "one more")

    on_broker(path, work, **SMALL)
    on_broker(path, lambda broker: broker.admin.reset("orders", "last", "earliest"), **SMALL)


class Wall:
    """A clock that shows the time that a test sets."""

    def __init__(self, now_ns: int) -> None:
        self.now, self.monotonic = now_ns, 0

    def now_ns(self) -> int:
        return self.now

    def monotonic_ns(self) -> int:
        return self.monotonic

    async def sleep(self, delay_s: float) -> None:
        raise NotImplementedError


def log_time_stands_still_where_clocks_end() -> None:
    wall = Wall(LAST_NS - 3 * SECOND)
    clock = LogClock(wall)
    stamps = []
    for _ in range(6):
        wall.now += SECOND
        wall.monotonic += SECOND
        stamps.append(clock.now_ns())
    assert stamps == [LAST_NS - 2 * SECOND, LAST_NS - SECOND, *[LAST_NS] * 4]
    wall.now = -5
    assert clock.now_ns() == 0


def a_delay_that_cannot_be_counted_is_misuse(path: Path, delay: float) -> None:
    async def work(broker: Broker) -> None:
        async with (
            broker.consumer("orders", "s", type="shared") as consumer,
            broker.producer("orders") as producer,
        ):
            await producer.send(b"x")
            message = await consumer.receive(5)
            with pytest.raises(Misuse, match=r"a delay of .* s before redelivery; use 0 to 1"):
                consumer.nack(message, delay)
            consumer.nack(message, 0.0)
            assert (await consumer.receive(5)).redelivery_count == 1

    on_broker(path, work, **SMALL)


def an_option_beyond_its_range_is_misuse(name: str, value: Any) -> None:
    """Refuse the option; otherwise housekeeping would fail with it in the background."""
    with pytest.raises(Misuse, match=f"the option {name} is {value}; use [01] to"):
        BrokerOptions(**{name: value}).require_sound()


def a_broker_is_not_opened_with_options_beyond_their_range(path: Path) -> None:
    async def opened() -> None:
        async with Broker.open(path, retention_s=1e12):
            raise AssertionError("it is open")

    with pytest.raises(Misuse, match="the option retention_s is"):
        asyncio.run(opened())
    assert not path.exists()


def versions_of_a_table_come_round(path: Path) -> None:
    """Versions wrap, also over a restart, and if only the view knows the last one.

    Readers see each table.
    """
    name = "persistent://public/default/orders"

    def age(version: int, seen: int) -> None:
        """Set the versions of table and view; a kill between their writes makes them differ."""
        table = msgspec.structs.replace(read_table(path, name), version=version)
        (path / table_path(name)).write_bytes(_core.seal_block(6, version, 0, msgspec.msgpack.encode(table)))
        broker_id = directory_incarnation(path)
        view = _core.TopicView(str(path / view_path(table.topic)), table.topic, broker_id)
        view.publish(table.incarnation, 0, 1, seen, "live")

    async def roll(broker: Broker) -> None:
        async with broker.producer("orders") as producer:
            files = FileTopic(path, name) if versions else None
            for _ in range(3):
                await producer.send(b"x")
                await broker.admin.roll("orders")
                versions.append(read_table(path, name).version)
                if files is not None:
                    assert sum(map(len, runs(files, *files.plan()))) == len(versions)

    versions: list[int] = []
    on_broker(path, roll, **SMALL)
    assert versions == [1, 2, 3]
    age(VERSION_MAX - 2, VERSION_MAX - 2)
    on_broker(path, roll, **SMALL)
    assert versions[3:] == [VERSION_MAX, 1, 2]
    (path / table_path(name)).unlink()
    on_broker(path, roll, **SMALL)
    assert versions[6] == 4
    age(1, VERSION_MAX)
    on_broker(path, roll, **SMALL)
    assert versions[9] == 3, "another table has version 1"
