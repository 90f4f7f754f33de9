"""Partitioned topics over HTTP, and by the commands on a directory and against a server."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.broker import KeyShared
from tests.kit.cli.data import Cli
from tests.kit.cli.data import cli as cli
from tests.kit.server.http_world import HttpWorld, T, holdfast, http

__all__ = ["holdfast", "http"]

FULL = "persistent://public/default/"


def parted(http: HttpWorld, name: str, count: int = 3) -> str:
    http.done("PUT", f"{T}/{name}/partitions", json=count)
    return f"{T}/{name}"


def test_a_missing_topic_has_no_number_of_partitions(http: HttpWorld) -> None:
    """As in Pulsar, where the tools ask in this way whether a topic exists."""
    assert http.ask("GET", f"{T}/lacking/partitions").status == 404
    assert http.get(f"{T}/lacking/partitions?checkAllowAutoCreation=true")["partitions"] == 0
    assert http.get(f"{T}/lacking/partitions?existing=false")["partitions"] == 0
    assert http.ask("GET", f"{T}/lacking/partitions?checkAllowAutoCreation=true&existing=true").status == 404


def test_properties_of_topics_that_keep_none(http: HttpWorld) -> None:
    passing = "/admin/v2/non-persistent/public/default/plain"
    for path, body in (("", {"a": "b"}), ("/partitions", {"partitions": 2, "properties": {"a": "b"}})):
        found = http.ask("PUT", passing + path, json=body)
        assert (found.status, "keeps no properties" in found.reason) == (412, True)
    http.done("PUT", f"{passing}/partitions", json={"partitions": 2})


def test_from_creation_to_deletion(http: HttpWorld) -> None:
    topic = parted(http, "life")
    assert http.get(f"{topic}/partitions") == {"partitions": 3, "deleted": False}
    assert FULL + "life" in http.get(f"{T}/partitioned")
    names = [each for each in http.get(T) if "/life" in each]
    assert names == [f"{FULL}life-partition-{index}" for index in range(3)]
    assert http.ask("PUT", f"{topic}/partitions", json=3).status == 409
    assert http.ask("PUT", topic).status == 409, "a topic of the same name"
    assert http.ask("PUT", f"{T}/life-partition-7").status == 412
    shrunk = http.ask("POST", f"{topic}/partitions", json=2)
    assert (shrunk.status, "cannot have fewer" in shrunk.reason) == (422, True)
    http.done("POST", f"{topic}/partitions", json=5)
    http.done("POST", f"{topic}/partitions", json=5)
    http.done("POST", f"{topic}/createMissedPartitions")
    assert http.get(f"{topic}/partitions")["partitions"] == 5
    assert http.ask("DELETE", f"{T}/life-partition-0").status == 412
    http.done("PUT", f"{topic}/subscription/s")
    assert http.ask("DELETE", f"{topic}/partitions").status == 412
    http.done("DELETE", f"{topic}/partitions?force=true")
    assert not [each for each in http.get(T) if "/life" in each]
    assert http.ask("DELETE", f"{topic}/partitions").status == 404


def test_with_properties_as_the_java_client_sends_them(http: HttpWorld) -> None:
    body = {"partitions": 2, "deleted": False, "properties": {"of": "x"}}
    http.done("PUT", f"{T}/properties/partitions", json=body)
    assert http.get(f"{T}/properties/partitions")["partitions"] == 2


def test_a_topic_over_a_partitioned_one(http: HttpWorld) -> None:
    plain = http.topic()
    refused = http.ask("PUT", f"{plain}/partitions", json=3)
    assert (refused.status, "without partitions" in refused.reason) == (409, True)
    grown = http.ask("POST", f"{plain}/partitions", json=3)
    assert (grown.status, "is not partitioned" in grown.reason) == (422, True)
    http.run(http.broker.admin.create_topic("inway-partition-1"))
    assert "inway-partition-1 exists" in http.ask("PUT", f"{T}/inway/partitions", json=3).reason


REFUSED = [
    ("GET", "stats", None),
    ("GET", "internalStats", None),
    ("GET", "lastMessageId", None),
    ("GET", "messageid/1", None),
    ("GET", "backlog", None),
    ("GET", "examinemessage", None),
    ("POST", "terminate", None),
    ("POST", "subscription/s/skip/1", None),
    ("POST", "subscription/s/resetcursor", {"ledgerId": -1, "entryId": -1}),
    ("POST", "subscription/s/expireMessages", {"ledgerId": -1, "entryId": -1}),
    ("POST", "subscription/s/analyzeBacklog", None),
    ("GET", "subscription/s/position/1", None),
    ("DELETE", "", None),
]


@pytest.mark.parametrize(("method", "path", "body"), REFUSED)
def test_what_needs_a_single_topic(http: HttpWorld, method: str, path: str, body: Any) -> None:
    name = f"single-{REFUSED.index((method, path, body))}"
    topic = parted(http, name)
    found = http.ask(method, f"{topic}/{path}".rstrip("/"), json=body)
    assert found.status == 405
    assert f"{name} has 3 partitions, and this needs a single topic" in found.reason
    whole = {
        "stats": "GET partitioned-stats",
        "internalStats": "GET partitioned-internalStats",
        "terminate": "POST terminate/partitions",
        "": "DELETE partitions",
    }
    assert ("name a partition" in found.reason) == bool(path), "a partition is not deleted alone"
    assert ("of all partitions: " in found.reason) == (path in whole)
    assert whole.get(path, f"name a partition, such as {FULL}{name}-partition-0") in found.reason


def test_a_subscription_at_an_end_as_pulsar_admin_sends_it(http: HttpWorld) -> None:
    topic = parted(http, "ends")
    http.publish("ends-partition-1")
    for name, number in (("first", -1), ("last", 2**63 - 1)):
        place = {"ledgerId": number, "entryId": number, "partitionIndex": -1}
        http.done("PUT", f"{topic}/subscription/{name}", json=place)
    found = http.get(f"{topic}/partitioned-stats")["subscriptions"]
    assert {name: each["msgBacklog"] for name, each in found.items()} == {"first": 1, "last": 0}
    # The sum has the words of a partition that has a backlog, and not always those of partition 0.
    assert "1 entry" in found["first"]["diagnosis"]


def test_a_non_persistent_topic_is_named_as_a_whole() -> None:
    whole = "/admin/v2/non-persistent/public/default/passing"
    with HttpWorld(wire=True) as world:
        world.done("PUT", f"{whole}/partitions", json=2)
        for method, path in (("GET", "/stats"), ("DELETE", "")):
            found = world.ask(method, whole + path)
            assert found.status == 404
            assert "has 2 partitions, and this needs a single topic" in found.reason
            assert "partitioned-stats, DELETE partitions" in found.reason
        world.done("DELETE", f"{whole}/partitions")


def test_subscriptions_of_all_partitions(http: HttpWorld) -> None:
    topic = parted(http, "subs")
    http.publish("subs-partition-1")
    http.done("PUT", f"{topic}/subscription/all", json="earliest")
    http.done("PUT", f"{topic}/subscription/late")
    assert http.ask("PUT", f"{topic}/subscription/late").status == 409
    there = {"ledgerId": 3, "entryId": 0}
    assert http.ask("PUT", f"{topic}/subscription/x", json=there).status == 412
    assert http.get(f"{topic}/subscriptions") == ["all", "late"]

    def backlog(name: str) -> int:
        return int(http.get(f"{topic}/partitioned-stats")["subscriptions"][name]["msgBacklog"])

    assert (backlog("all"), backlog("late")) == (1, 0)
    http.done("POST", f"{topic}/subscription/late/resetcursor/0")
    assert backlog("late") == 1
    http.done("POST", f"{topic}/subscription/late/skip_all")
    assert backlog("late") == 0
    http.done("POST", f"{topic}/subscription/all/expireMessages/0")
    assert http.ask("POST", f"{topic}/subscription/none/skip_all").status == 404
    http.done("DELETE", f"{topic}/subscription/late")
    assert http.get(f"{topic}/subscriptions") == ["all"]
    assert http.ask("DELETE", f"{topic}/subscription/late").status == 404
    http.done("DELETE", f"{topic}/truncate")
    http.done("POST", f"{topic}/trim")
    http.done("PUT", f"{topic}/unload")


def test_policies_of_all_partitions(http: HttpWorld) -> None:
    topic = parted(http, "policies")
    http.done("POST", f"{topic}/messageTTL?messageTTL=60")
    assert http.get(f"{topic}/messageTTL") == 60
    http.done("POST", f"{topic}/partitions", json=4)
    for index in range(4):
        assert http.get(f"{T}/policies-partition-{index}/messageTTL") == 60
    http.done("POST", f"{topic}/delayedDelivery", json={"active": False})
    assert http.get(f"{topic}/delayedDelivery")["active"] is False
    assert http.get(f"{T}/policies-partition-3/delayedDelivery")["active"] is False
    http.done("DELETE", f"{topic}/delayedDelivery")
    assert http.get(f"{T}/policies-partition-3/delayedDelivery") is None
    http.done("DELETE", f"{topic}/messageTTL")
    assert http.get(f"{T}/policies-partition-3/messageTTL") is None


def test_sums_of_stats(http: HttpWorld) -> None:
    topic = parted(http, "sums")
    http.done("PUT", f"{topic}/subscription/s")
    for index in (0, 1, 1):
        http.publish(f"sums-partition-{index}")

    async def work() -> Any:
        consumers = [
            http.broker.consumer(f"sums-partition-{index}", "s", name="c", type="shared") for index in (0, 1)
        ]
        for each in consumers:
            await each.open()
        found = await http.asking("GET", f"{topic}/partitioned-stats")
        for each in consumers:
            await each.close()
        return found.json

    found = http.run(work())
    assert (found["msgInCounter"], found["subscriptions"]["s"]["msgBacklog"]) == (3, 3)
    assert (found["metadata"]["partitions"], len(found["partitions"])) == (3, 3)
    assert found["partitions"][f"{FULL}sums-partition-1"]["msgInCounter"] == 2
    [consumer] = found["subscriptions"]["s"]["consumers"]
    assert consumer["consumerName"] == "c"
    assert http.get(f"{topic}/partitioned-stats?perPartition=false")["partitions"] == {}
    assert found["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == 0
    old = http.get(f"{topic}/partitioned-stats?getEarliestTimeInBacklog=true")
    times = [
        each["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] for each in old["partitions"].values()
    ]
    assert old["subscriptions"]["s"]["earliestMsgPublishTimeInBacklog"] == min(filter(None, times))
    inside = http.get(f"{topic}/partitioned-internalStats")
    assert [each["numberOfEntries"] for each in inside["partitions"].values()] == [1, 2, 0]


def test_all_partitions_are_terminated(http: HttpWorld) -> None:
    topic = parted(http, "ended", 2)
    http.publish("ended-partition-1")
    found = http.ask("POST", f"{topic}/terminate/partitions").json
    assert [found[each]["partitionIndex"] for each in ("0", "1")] == [0, 1]
    assert (found["0"]["entryId"], found["1"]["entryId"]) == (-1, 0)
    assert http.ask("POST", f"{topic}/partitions", json=3).status == 409


def test_partitions_that_come_meanwhile_are_terminated(
    http: HttpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the answer says that the topic has ended, and its producers go on."""
    topic = parted(http, "growing", 2)
    own, real = http.broker.partitioned, http.broker.admin.terminate

    async def terminate(name: str) -> Any:
        if own.count(f"{FULL}growing") == 2:
            await own.grow(f"{FULL}growing", 3)
        return await real(name)

    monkeypatch.setattr(type(http.broker.admin), "terminate", lambda self, name: terminate(name))
    assert sorted(http.ask("POST", f"{topic}/terminate/partitions").json) == ["0", "1", "2"]
    assert all(http.broker.topic(each).terminated for each in own.names(f"{FULL}growing"))
    assert http.ask("POST", f"{topic}/partitions", json=4).status == 409


# -- commands ------------------------------------------------------------------------------------------


def test_commands_from_creation_to_deletion(holdfast: Cli) -> None:
    assert holdfast.says("topic", "create", "told", "--partitions", "2") == "told: created\n"
    assert "exists already" in holdfast.complains("topic", "create", "told", "--partitions", "2")
    assert holdfast.says("topic", "create", "told", "--partitions", "2", "--exist-ok") == "told: was there\n"
    assert "told " in holdfast.says("topic", "partitions")
    assert holdfast.answer("topic", "partitions", "told") == {"name": f"{FULL}told", "partitions": 2}
    assert holdfast.says("topic", "partitions", "told", "4") == "told has 4 partitions\n"
    assert "cannot have fewer" in holdfast.complains("topic", "partitions", "told", "3")
    assert "told-partition-3" in holdfast.says("topic", "ls")
    holdfast.says("topic", "create", "plain")
    assert "is not partitioned" in holdfast.complains("topic", "partitions", "plain")
    assert "partition" in holdfast.complains("topic", "rm", "told-partition-0", "--force")
    assert holdfast.says("topic", "rm", "told") == "removed told\n"
    assert "told" not in holdfast.says("topic", "ls")
    wrong = holdfast.complains("topic", "create", "x", "--partitions", "2", "--unreplicated", status=2)
    assert "exclude each other" in wrong


def test_commands_about_all_partitions(holdfast: Cli) -> None:
    holdfast.says("topic", "create", "whole", "--partitions", "2")
    holdfast.says("subscription", "create", "whole", "s")
    holdfast.says("topic", "partitions", "whole", "4")
    stats = holdfast.answer("topic", "stats", "whole")["partitions"]
    assert [list(each["subscriptions"]) for each in stats] == [["s"]] * 4
    assert holdfast.says("subscription", "ls", "whole").count("whole-partition-") == 4
    assert holdfast.says("subscription", "stats", "whole", "s").count("whole-partition-") == 4
    assert len(holdfast.answer("subscription", "stats", "whole", "s")["partitions"]) == 4
    assert "4 partitions, 0 entries" in holdfast.says("topic", "stats", "whole")
    assert holdfast.answer("topic", "set", "whole", "--ttl", "60s")["ttl_s"] == 60
    assert "4 partitions" in holdfast.complains("subscription", "skip", "whole", "s", "1")
    holdfast.says("topic", "truncate", "whole")
    holdfast.says("topic", "terminate", "whole")


def test_stats_of_a_subscription_tell_what_it_waits_for(cli: Cli, http: HttpWorld) -> None:
    cli.ask(http.server.url)
    topic = http.topic(1, "waiting").rpartition("/")[2]
    stats = ("subscription", "stats", topic, "waiting")
    assert "state         no consumers: 1 entry, and no consumer" in cli.says(*stats)
    consumer = http.broker.consumer(topic, "waiting", type="key_shared", keys=KeyShared(ranges=((0, 0),)))
    attached = http.run(consumer.__aenter__())
    try:
        said = cli.says(*stats)
        assert f"consumers     1, Key_Shared: {attached.name}" in said
        found = cli.answer(*stats)
        assert (found["type"], found["consumers"]) == ("Key_Shared", [attached.name])
    finally:
        http.run(consumer.__aexit__(None, None, None))
