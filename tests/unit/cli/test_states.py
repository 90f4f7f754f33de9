"""States of topics in the commands: a directory and a server tell the same."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import holdfast
from holdfast.cli.remote import RemoteAdmin
from holdfast.cli.remote_http import Http
from holdfast.cli.top import Difference, Look, lines, parse
from tests.kit.cli.data import Cli as OnData
from tests.kit.cli.data import cli as cli
from tests.kit.cli.servers import Cli as OnServer
from tests.kit.server.http_world import HttpWorld, T, http

__all__ = ["cli", "http"]

QUOTAS: dict[str, dict[str, Any]] = {
    "size": {"backlog_bytes": 10},
    "age": {"backlog_age_s": 1e-9},
    "size and age": {"backlog_bytes": 10, "backlog_age_s": 1e-9},
}
ACTIONS = ("producer_request_hold", "producer_exception")


def limits_of(by: str, action: str) -> dict[str, Any]:
    named = {f"{name.removesuffix('_s')}_action": action for name in QUOTAS[by]}
    return {**QUOTAS[by], **named}


async def exceed(broker: holdfast.Broker, name: str, **limits: Any) -> None:
    """Publish a message, and let the quotas of the topic apply."""
    await broker.admin.create_topic(name)
    await broker.admin.create_subscription(name, "s")
    async with broker.producer(name) as producer:
        await producer.send(b"more than ten bytes")
    await broker.admin.set_policies(name, **limits)
    await broker.limiting.check_all()


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("by", QUOTAS)
def test_a_directory_tells_why_producers_are_stopped(cli: OnData, by: str, action: str) -> None:
    async def work() -> None:
        async with holdfast.Broker.open(cli.data) as broker:
            await exceed(broker, "orders", **limits_of(by, action))

    cli.says("topic", "create", "orders2")
    asyncio.run(work())
    tell(cli.says("topic", "stats", "orders"), by, action)
    assert cli.answer("topic", "stats", "orders")["exceeded"] == dict.fromkeys(by.split(" and "), action)
    *_, stopped, other = cli.says("topic", "ls").splitlines()
    assert stopped.endswith("  producers stopped")
    assert other.endswith("  open")
    assert [bool(each["exceeded"]) for each in cli.answer("topic", "ls")] == [True, False]


def tell(text: str, by: str, action: str) -> None:
    assert "orders: producers stopped\n" in text
    which = " and ".join(f"by {each} ({action})" for each in by.split(" and "))
    assert f"  producers     stopped: the backlog exceeds its quota {which}\n" in text


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("by", QUOTAS)
def test_a_server_tells_it_too(
    http: HttpWorld,
    capfdbinary: pytest.CaptureFixture[bytes],
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    action: str,
) -> None:
    shell = OnServer(capfdbinary, monkeypatch, http.server.url)
    name = f"{by.replace(' ', '-')}-{action[9:13]}-orders"
    http.run(exceed(http.broker, name, **limits_of(by, action)))
    tell(shell.says("topic", "stats", name), by, action)
    pulsar = {"size": "destination_storage", "age": "message_age"}
    stats = http.get(f"{T}/{name}/stats")
    assert stats["backlogExceeded"] is True
    assert stats["backlogExceededBy"] == {pulsar[each]: action for each in by.split(" and ")}
    http.done("POST", f"{T}/{name}/subscription/s/skip_all")
    http.done("GET", "/admin/v2/brokers/backlog-quota-check")
    assert shell.says("topic", "stats", name).startswith(f"topic persistent://public/default/{name}: open\n")
    assert http.get(f"{T}/{name}/stats")["backlogExceededBy"] == {}


def test_partitions_tell_it_one_by_one(
    http: HttpWorld, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = OnServer(capfdbinary, monkeypatch, http.server.url)
    http.done("PUT", f"{T}/split/partitions", json=2)
    http.done("PUT", f"{T}/split/subscription/s")
    http.publish("split-partition-1", b"more than ten bytes")
    http.done("POST", f"{T}/split/limits", json=QUOTAS["size"])
    http.done("GET", "/admin/v2/brokers/backlog-quota-check")
    *_, open_, stopped = shell.says("topic", "stats", "split").splitlines()
    assert (open_.endswith("  open"), stopped.endswith("  producers stopped")) == (True, True)
    whole = http.get(f"{T}/split/partitioned-stats")
    assert whole["backlogExceededBy"] == {"destination_storage": "producer_request_hold"}


def test_stats_of_a_server_are_those_of_its_broker(http: HttpWorld) -> None:
    """Every field is told, except those that HTTP does not have."""

    async def work() -> None:
        admin = http.broker.admin
        await admin.create_exchange("other", "fanout")
        await exceed(http.broker, "full", backlog_bytes=10)
        await admin.create_topic("ring", ring_entries=1)
        await admin.create_subscription("ring", "s")
        async with http.broker.producer("ring") as producer:
            await producer.send_many([b"1", b"2", b"3"])
        await admin.set_alternate("ring", "other")

    http.run(work())
    http.done("PUT", f"{T}/ended")
    http.ask("POST", f"{T}/ended/terminate")
    remote = RemoteAdmin(Http(http.server.url))
    for name in ("full", "ring", "ended"):
        theirs, ours = vars(remote.topic_stats(name)), vars(http.broker.admin.topic_stats(name))
        differing = {each for each in ours if theirs[each] != ours[each]}
        assert differing <= {"incarnation", "subscriptions"}, name
        assert theirs["subscriptions"].keys() == ours["subscriptions"].keys()
    assert remote.topic_stats("ring").dropped == 2
    assert remote.topic_stats("ended").terminated


def test_top_marks_the_topic() -> None:
    page = 'holdfast_topic_backlog_exceeded{topic="persistent://public/default/orders"} 1'
    rows = Difference(Look(0.0), parse(page, 1.0)).topics()
    assert lines("http://x", Difference(Look(0.0), Look(1.0)).broker(), rows, 1)[-1].endswith(
        "producers stopped"
    )
