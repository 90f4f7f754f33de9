"""Delivery times over HTTP and by the commands: policies, stats, metrics."""

from __future__ import annotations

from typing import Any

from tests.kit.cli.data import Cli
from tests.kit.cli.data import cli as cli
from tests.kit.server.http_world import HttpWorld, http

__all__ = ["http"]

NS = "/admin/v2/namespaces/public/default"
TIMES = {"active": True, "tickTime": 500, "maxDeliveryDelayInMillis": 60_000}


def test_policies_of_delivery_times(http: HttpWorld) -> None:
    topic = http.topic()
    assert http.get(f"{topic}/delayedDelivery") is None
    assert http.get(f"{NS}/delayedDelivery") is None
    http.done("POST", f"{NS}/delayedDelivery", json=TIMES)
    assert http.get(f"{NS}/delayedDelivery") == TIMES
    assert http.get(f"{topic}/delayedDelivery") is None
    assert http.get(f"{topic}/delayedDelivery?applied=true") == TIMES
    http.done("POST", f"{topic}/delayedDelivery", json={"active": False})
    own = {"active": False, "tickTime": None, "maxDeliveryDelayInMillis": None}
    assert http.get(f"{topic}/delayedDelivery") == own
    assert http.get(f"{topic}/delayedDelivery?applied=true") == {**TIMES, "active": False}
    http.done("DELETE", f"{topic}/delayedDelivery")
    http.done("DELETE", f"{NS}/delayedDelivery")
    options = {"active": True, "tickTime": 100, "maxDeliveryDelayInMillis": 0}
    assert http.get(f"{topic}/delayedDelivery?applied=true") == options
    assert http.ask("POST", f"{topic}/delayedDelivery", json={"tickTime": -1}).status == 400
    assert http.ask("GET", "/admin/v2/persistent/public/default/missing/delayedDelivery").status == 404


def test_stats_of_delayed_messages(http: HttpWorld) -> None:
    topic = http.topic(subscription="s")
    name = topic.rpartition("/")[2]

    async def work() -> Any:
        async with http.broker.producer(name) as p, http.broker.consumer(name, "s", type="shared") as c:
            await p.send(b"later", deliver_after=100)
            await p.send(b"now")
            await c.receive(timeout=5)
            return (await http.asking("GET", f"{topic}/stats")).json

    found = http.run(work())["subscriptions"]["s"]
    assert (found["msgBacklog"], found["msgDelayed"], found["msgBacklogNoDelayed"]) == (2, 1, 1)
    assert found["delayedMessageIndexSizeInBytes"] > 0


def test_commands_tell_what_is_delayed(http: HttpWorld, cli: Cli) -> None:
    cli.ask(http.server.url)
    name = http.topic(subscription="s").rpartition("/")[2]
    stats = ("subscription", "stats", name, "s")

    async def work() -> Any:
        consumer = http.broker.consumer(name, "s", type="shared")
        await consumer.open()
        async with http.broker.producer(name) as p:
            await p.send_many([b"later", b"as late"], deliver_after=100)
            await p.send(b"now")
        await consumer.receive(timeout=5)
        return consumer

    assert "delayed" not in cli.says(*stats)
    consumer = http.run(work())
    try:
        assert (found := cli.answer(*stats))["scheduled"] == 2
        assert found["backlog"] == 3
        assert "\n  delayed       2 entries until their delivery time\n" in cli.says(*stats)
    finally:
        http.run(consumer.close())


def test_a_delay_by_the_command(cli: Cli) -> None:
    produce = ("topic", "produce", "orders")
    cli.says("topic", "create", "orders")
    cli.says(*produce, "later", "--deliver-after", "1h")
    cli.says(*produce, "then", "--deliver-at", "2100-01-01T00:00:00Z")
    both = ("--deliver-at", "2100-01-01T00:00:00Z", "--deliver-after", "1h")
    assert "not allowed with" in cli.complains(*produce, "x", *both, status=2)
    shown = cli.answer("topic", "set", "orders", "--delayed-most", "10s", "--delayed-delivery", "no")
    times = [shown[name] for name in ("delayed_most_s", "delayed_delivery", "delayed_tick_s")]
    assert times == [10.0, False, None]
    assert "delayed_most_s" in cli.complains(*produce, "no", "--deliver-after", "1m")
    assert cli.answer("topic", "stats", "orders")["entries"] == 2
