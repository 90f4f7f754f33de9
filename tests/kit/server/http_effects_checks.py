"""Checks of the effects of HTTP requests, for tests and for their mutants."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import Closed
from tests.kit.server.http_world import HttpWorld


def ledger_of(http: HttpWorld, topic: str) -> int:
    return int(http.get(f"{topic}/lastMessageId")["ledgerId"])


def cursor(http: HttpWorld, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"{topic}/internalStats")["cursors"]["s"]
    return found


def a_reset_to_a_position(http: HttpWorld) -> None:
    topic = http.topic(messages=10, subscription="s")
    ledger = ledger_of(http, topic)
    http.done("POST", f"{topic}/subscription/s/resetcursor", json={"ledgerId": ledger, "entryId": 7})
    assert http.backlog(topic) == 3
    assert cursor(http, topic)["markDeletePosition"] == f"{ledger}:6"
    excluded = {"ledgerId": ledger, "entryId": 7, "isExcluded": True}
    http.done("POST", f"{topic}/subscription/s/resetcursor", json=excluded)
    assert http.backlog(topic) == 2
    assert (cursor(http, topic)["resetNumber"], cursor(http, topic)["isUnderRevision"]) == (2, 0)
    http.done("POST", f"{topic}/subscription/s/resetcursor", json={"ledgerId": ledger, "entryId": -1})
    assert http.backlog(topic) == 10
    excluded = {"ledgerId": ledger, "entryId": -1, "isExcluded": True}  # before the first entry
    http.done("POST", f"{topic}/subscription/s/resetcursor", json=excluded)
    assert http.backlog(topic) == 10
    for entry in (10, -2, 1 << 62):
        refused = http.ask(
            "POST", f"{topic}/subscription/s/resetcursor", json={"ledgerId": ledger, "entryId": entry}
        )
        assert (refused.status, f"{ledger}:{entry}" in refused.reason) == (412, True)
    assert http.backlog(topic) == 10


def a_subscription_in_use_is_deleted_by_force_alone(http: HttpWorld) -> None:
    topic = http.topic(subscription="s")

    async def work() -> None:
        async with http.consuming(topic) as consumer:
            refused = await http.asking("DELETE", f"{topic}/subscription/s")
            assert (refused.status, "force" in refused.reason) == (412, True)
            assert (await http.asking("DELETE", f"{topic}/subscription/s?force=true")).status == 204
            with pytest.raises(Closed):
                await consumer.receive(timeout=5)

    http.run(work())
    assert http.get(f"{topic}/subscriptions") == []


def peeking_leaves_out_what_is_acknowledged(http: HttpWorld) -> None:
    topic = http.topic(messages=6, subscription="s")

    async def work() -> None:
        async with http.consuming(topic, type="shared") as consumer:
            messages = await consumer.receive_many(6, timeout=5)
            await consumer.ack_many([messages[0], messages[2], messages[3]], receipt=True)

    http.run(work())
    peeked = [http.ask("GET", f"{topic}/subscription/s/position/{n}").body for n in (1, 2, 3)]
    assert peeked == [b"message 1", b"message 4", b"message 5"]
    found, ledger = cursor(http, topic), ledger_of(http, topic)
    assert found["individuallyDeletedMessages"] == f"[({ledger}:1..{ledger}:3]]"
    assert found["totalNonContiguousDeletedMessagesRange"] == 1
    stats = http.get(f"{topic}/stats")
    assert stats["subscriptions"]["s"]["nonContiguousDeletedMessagesRanges"] == 1
    info = http.get(f"{topic}/internal-info")["cursors"]["s"]
    assert info["markDelete"] == {"ledgerId": ledger, "entryId": 0}
    assert info["individualDeletedMessages"] == [
        {
            "lowerEndpoint": {"ledgerId": ledger, "entryId": 1},
            "upperEndpoint": {"ledgerId": ledger, "entryId": 3},
        }
    ]


def stats_tell_who_is_there_and_how_fast(http: HttpWorld) -> None:
    topic = http.topic(messages=20, subscription="s")
    name = topic.rpartition("/")[2]

    async def work() -> tuple[Any, Any]:
        async with (
            http.broker.producer(name, name="till", access="exclusive"),
            http.consuming(topic, type="shared", name="one", receiver_queue=5) as consumer,
            http.broker.consumer(name, "reading", durable=False, start="earliest"),
        ):
            await consumer.receive_many(5, timeout=5)
            stats = (await http.asking("GET", f"{topic}/stats?getEarliestTimeInBacklog=true")).json
            return stats, (await http.asking("GET", f"{topic}/internalStats")).json

    stats, internal = http.run(work())
    assert [(each["producerName"], each["accessMode"]) for each in stats["publishers"]] == [
        ("till", "Exclusive")
    ]
    assert stats["msgInCounter"] == 20
    assert stats["msgRateIn"] > 0
    assert stats["msgThroughputIn"] > stats["msgRateIn"]
    subscription = stats["subscriptions"]["s"]
    assert (subscription["type"], subscription["msgBacklog"], subscription["isDurable"]) == (
        "Shared",
        20,
        True,
    )
    assert subscription["earliestMsgPublishTimeInBacklog"] > 1_600_000_000_000
    (consumer,) = subscription["consumers"]
    assert consumer["consumerName"] == "one"
    assert consumer["unackedMessages"] == consumer["msgOutCounter"] >= 5
    assert consumer["bytesOutCounter"] > consumer["msgOutCounter"]
    assert subscription["msgOutCounter"] == consumer["msgOutCounter"]
    assert "no permits" in subscription["diagnosis"]
    assert not stats["subscriptions"]["reading"]["durable"]
    assert stats["deduplicationStatus"] == "Disabled"
    assert internal["cursors"]["s"]["active"]
    assert internal["numberOfEntries"] == 20
    assert internal["ledgers"][0]["entries"] == 20
