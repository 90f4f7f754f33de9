"""Commands that look at single messages, on a directory and on a server."""

from __future__ import annotations

import pytest

from holdfast.broker import Producer
from holdfast.server import ServerOptions
from tests.kit.cli.data import Cli as OnData
from tests.kit.cli.data import cli as cli
from tests.kit.cli.servers import Cli as OnServer
from tests.kit.server.http_world import HttpWorld, http

__all__ = ["cli", "http"]

DUE = "2039-01-02T03:04:05.678+00:00"


@pytest.fixture
def server(
    http: HttpWorld, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> OnServer:
    return OnServer(capfdbinary, monkeypatch, http.server.url)


def delayed(http: HttpWorld) -> str:
    """Make a topic with a message that is due in 2039, and another one."""
    name = http.topic(subscription="s").rpartition("/")[2]

    async def publish() -> None:
        async with http.broker.producer(name) as producer:
            await producer.send(b"later", deliver_at=2_177_550_245_678_000_000)
            await producer.send(b"now")

    http.run(publish())
    return name


def test_a_directory_tells_ids_times_and_messages(cli: OnData) -> None:
    cli.says("topic", "create", "orders")
    assert cli.says("topic", "last", "orders") == "orders has no messages\n"
    assert cli.answer("topic", "last", "orders")["id"] is None
    cli.says("topic", "produce", "orders", "later", "--deliver-at", DUE)
    cli.says("topic", "produce", "orders", "now")
    assert cli.says("topic", "last", "orders") == "1:1\n"
    assert cli.says("topic", "find", "orders", "--time", "-1h") == "1:0\n"
    found = cli.answers("topic", "peek", "orders")
    assert [each["deliver_at"] for each in found] == ["2039-01-02T03:04:05.678000+00:00", None]
    assert f"due {DUE}" in cli.says("topic", "message", "orders", "1:0")
    assert cli.answer("topic", "message", "orders", "1:1")["text"] == "now"
    assert "no message 1:2" in cli.complains("topic", "message", "orders", "1:2")
    assert "no message 1:0:1" in cli.complains("topic", "message", "orders", "1:0:1")
    assert cli.says("topic", "trim", "orders") == "deleted 0 entries\n"
    assert "no such topic" in cli.complains("topic", "ls", "--non-persistent", status=2)


def test_a_server_tells_delivery_times(http: HttpWorld, server: OnServer) -> None:
    name = delayed(http)
    first = server.says("topic", "last", name).replace(":1\n", ":0")
    assert server.answer("topic", "message", name, first)["deliver_at"] == "2039-01-02T03:04:05.678000+00:00"
    assert f"due {DUE}" in server.says("subscription", "peek", name, "s", "--count", "1")
    assert f"due {DUE}" in server.says("topic", "examine", name, "--position", "2")
    assert "due" not in server.says("topic", "examine", name)
    early = server.answer("topic", "examine", name, "--end", "earliest")
    assert (early["text"], early["deliver_at"]) == ("later", "2039-01-02T03:04:05.678000+00:00")
    assert "no message 3" in server.complains("topic", "examine", name, "--position", "3")
    assert "no message" in server.complains("topic", "message", name, first + ":1")


def test_a_server_tells_positions_and_metadata(http: HttpWorld, server: OnServer) -> None:
    name = delayed(http)
    last = server.says("topic", "last", name).strip()
    assert server.says("topic", "find", name, "--time", "2090-01-01").strip() == last
    ledger = last.partition(":")[0]
    assert server.answer("topic", "backlog-size", name, f"{ledger}:0")["bytes"] > 0
    assert server.answer("topic", "backlog-size", name, last)["bytes"] == 0
    assert "no position" in server.complains("topic", "backlog-size", name, "99999:0")
    assert server.answer("topic", "internal", name)["ledgers"][0]["ledgerId"] == int(ledger)
    assert server.answer("topic", "internal", name, "--stats")["cursors"].keys() == {"s"}
    assert '"ledgerId": ' in server.says("topic", "internal", name)
    server.says("subscription", "clear", name, "s")
    http.run(http.broker.admin.roll(name))
    assert server.answer("topic", "trim", name)["trimmed"].endswith(name)
    assert server.answer("topic", "stats", name)["entries"] == 0
    assert server.says("namespace", "bundles", "public/default") == "0x00000000_0xffffffff\n"
    assert "no namespace" in server.complains("namespace", "bundles", "public/none")


def test_partitions_are_trimmed_each_and_named_where_one_is_needed(http: HttpWorld, server: OnServer) -> None:
    server.says("topic", "create", "parts", "--partitions", "3")
    server.says("subscription", "create", "parts", "s")
    http.publish("parts-partition-1")
    server.says("subscription", "clear", "parts", "s")
    http.run(http.broker.admin.roll("parts-partition-1"))
    assert server.answer("topic", "trim", "parts")["trimmed"] == "persistent://public/default/parts"
    assert server.answer("topic", "stats", "parts-partition-1")["entries"] == 0
    for command in (("last", "parts"), ("examine", "parts"), ("message", "parts", "1:0")):
        assert "name a partition, such as" in server.complains("topic", *command)
    assert "0 entries can still be read" in server.says("topic", "terminate", "parts")


def test_delivery_times_of_a_namespace_are_set_through_a_server(server: OnServer) -> None:
    found = server.answer(
        "namespace", "set", "public/default", "--delayed-delivery", "no", "--delayed-tick", "5s"
    )
    assert (found["delayed_delivery"], found["delayed_tick_s"], found["delayed_most_s"]) == (False, 5.0, None)
    found = server.answer("namespace", "set", "public/default", "--delayed-delivery", "default")
    assert (found["delayed_delivery"], found["delayed_tick_s"]) == (None, 5.0)
    server.says("namespace", "set", "public/default", "--delayed-tick", "default")


def test_settings_of_a_topic_with_their_places(http: HttpWorld, server: OnServer) -> None:
    """Through a server the broker's options are known, too."""
    name = http.topic().rpartition("/")[2]
    server.says("namespace", "set", "public/default", "--ttl", "2h", "--roll-entries", "50")
    found = server.answer("topic", "set", name, "--retention-time", "90s", "--roll-entries", "60")
    assert [found["applied"][each] for each in ("ttl_s", "retention_s", "roll_entries")] == [7200, 90, 60]
    places = [found["from"][each] for each in ("ttl_s", "retention_s", "retention_bytes", "ring_entries")]
    assert places == ["namespace", "topic", "broker", None]
    said = server.says("namespace", "set", "public/default", "--ttl", "default", "--roll-entries", "default")
    rows = [" ".join(row.split()) for row in said.splitlines()]
    assert "subscription_types - exclusive, failover, shared, key_shared broker" in rows
    assert "ttl_s - 0 broker" in rows
    told = server.complains("topic", "set", name, "--roll-age", "0", status=2)
    assert "the policy roll_age_s cannot be 0" in told


def test_quotas_are_checked_at_once(http: HttpWorld, server: OnServer) -> None:
    name = http.topic(messages=20, subscription="s").rpartition("/")[2]
    assert server.says("broker", "quotas") == "no topic exceeds its quota\n"
    server.says("topic", "limits", name, "--backlog-bytes", "200")
    [row] = server.answer("broker", "quotas")
    assert row["name"] == f"persistent://public/default/{name}"
    assert row["backlog_bytes"] > row["quota_bytes"] == 200
    assert f"\n{name} " in server.says("broker", "quotas")
    server.says("subscription", "clear", name, "s")
    assert server.answer("broker", "quotas") == []


def test_figures_of_topics_and_all_settings(http: HttpWorld, server: OnServer) -> None:
    name = delayed(http)
    assert f"\n{name} " in server.says("broker", "stats", "--topics")
    full = f"persistent://public/default/{name}"
    assert server.answer("broker", "stats", "--topics")["topics"][full]["msgInCounter"] == 2
    assert "topics" not in server.answer("broker", "stats")


def test_topics_that_keep_no_messages_are_listed(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpWorld(wire=ServerOptions(port=0)) as world:
        server = OnServer(capfdbinary, monkeypatch, world.server.url)
        assert server.says("topic", "ls", "--non-persistent") == "no non-persistent topics\n"
        world.done("PUT", "/admin/v2/non-persistent/public/default/levels")
        assert server.answer("topic", "ls", "--non-persistent") == ["non-persistent://public/default/levels"]


def test_a_topic_with_producers_is_not_removed(http: HttpWorld, server: OnServer) -> None:
    """They would create it again, without its policies."""
    name = http.topic().rpartition("/")[2]

    async def attached() -> Producer:
        producer = http.broker.producer(name, name="press")
        await producer.open()
        return producer

    producer = http.run(attached())
    told = server.complains("topic", "rm", name)
    assert "has producers: press; close them first" in told
    http.run(producer.close())
    assert server.says("topic", "rm", name) == f"removed {name}\n"
