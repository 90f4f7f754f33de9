"""Stats of a Key_Shared subscription over HTTP: hashes, and which of them drain for whom."""

from __future__ import annotations

from typing import Any

from holdfast.broker import KeyShared
from tests.kit.cli.data import Cli
from tests.kit.cli.data import cli as cli
from tests.kit.server.http_world import HttpWorld, http

__all__ = ["http"]


def test_stats_tell_which_hash_waits_for_whom(http: HttpWorld) -> None:
    topic = http.topic(subscription="s")
    name = topic.rpartition("/")[2]

    async def work() -> tuple[Any, str]:
        broker = http.broker
        async with (
            broker.producer(name) as producer,
            http.consuming(topic, type="key_shared", name="one") as one,
        ):
            for n in range(20):
                await producer.send(b"1", key=f"key {n}")
            held = 0
            while held < 20:
                held += len(await one.receive_many(20, timeout=5))
            async with http.consuming(topic, type="key_shared", name="two"):
                for n in range(20):
                    await producer.send(b"2", key=f"key {n}")
                stats = (await http.asking("GET", f"{topic}/stats")).json
                return stats["subscriptions"]["s"], broker.metrics()

    stats, page = http.run(work())
    one, two = stats["consumers"]
    assert (stats["type"], stats["keySharedMode"]) == ("Key_Shared", "AUTO_SPLIT")
    assert not stats["allowOutOfOrderDelivery"]
    assert stats["activeConsumerName"] is None
    assert one["drainingHashesCount"] == stats["drainingHashesCount"] == len(one["drainingHashes"]) > 0
    assert one["drainingHashesUnackedMessages"] == stats["drainingHashesUnackedMessages"]
    assert two["drainingHashesCount"] == one["drainingHashesClearedTotal"] == 0
    assert {each["waitingConsumer"] for each in one["drainingHashes"]} == {"two"}
    both = [*one["keyHashRangeArrays"], *two["keyHashRangeArrays"]]
    assert sum(last - first + 1 for first, last in both) == 65536
    first, last = one["keyHashRangeArrays"][0]
    assert one["keyHashRanges"][0] == f"[{first}, {last}]"
    assert (
        f"}} {stats['drainingHashesCount']}\n" in page.partition("holdfast_subscription_draining_hashes{")[2]
    )


def test_commands_tell_which_hash_waits_for_whom(http: HttpWorld, cli: Cli) -> None:
    cli.ask(http.server.url)
    name = http.topic(subscription="s").rpartition("/")[2]
    opened: list[Any] = []

    async def join(consumer: str) -> None:
        opened.append(http.broker.consumer(name, "s", type="key_shared", name=consumer))
        await opened[-1].open()

    async def work() -> None:
        await join("one")
        async with http.broker.producer(name) as producer:
            for n in range(20):
                await producer.send(b"1", key=f"key {n}")
        held = 0
        while held < 20:
            held += len(await opened[0].receive_many(20, timeout=5))

    http.run(work())
    try:
        stats = ("subscription", "stats", name, "s")
        assert "draining" not in cli.says(*stats)
        http.run(join("two"))
        found = cli.answer(*stats)["draining"]
        assert len(found) > 1
        assert {(each["holder"], each["waiting"], each["entries"]) for each in found} == {("one", "two", 1)}
        told = f"draining      {len(found)} hashes: {found[0]['hash']} of one for two, "
        assert told in cli.says(*stats)
    finally:
        for each in opened:
            http.run(each.close())


def test_sticky_consumers_without_order(http: HttpWorld) -> None:
    topic = http.topic(subscription="s")

    async def work() -> Any:
        keys = KeyShared(((0, 9), (20, 29)), unordered=True)
        async with http.consuming(topic, type="key_shared", keys=keys):
            return (await http.asking("GET", f"{topic}/stats")).json["subscriptions"]["s"]

    stats = http.run(work())
    assert (stats["keySharedMode"], stats["allowOutOfOrderDelivery"]) == ("STICKY", True)
    assert stats["consumers"][0]["keyHashRangeArrays"] == [[0, 9], [20, 29]]
