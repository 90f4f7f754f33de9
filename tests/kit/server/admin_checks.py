"""Checks of administration that concerns whole namespaces, settings and clients, for tests and mutants."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

from holdfast.broker.events import Unload
from tests.kit.broker.crowd import B
from tests.kit.server.cluster_checks import Member
from tests.kit.server.http_world import HttpWorld, T
from tests.kit.server.wire_raw import Raw, Type

NAMESPACES = "/admin/v2/namespaces"
SETTINGS = "/admin/v2/brokers/configuration"


def raw_of(http: HttpWorld) -> Raw:
    assert http.wire is not None
    return Raw(f"pulsar://127.0.0.1:{http.wire.port}")


def backlogs_of_a_namespace(http: HttpWorld) -> None:
    """Clear by namespace, and by a name of subscription; other namespaces keep theirs."""
    http.ask("PUT", f"{NAMESPACES}/public/cleared")
    topics = ["persistent://public/cleared/a", "persistent://public/cleared/b"]
    other = http.topic(messages=3, subscription="s")

    async def fill() -> None:
        for topic in topics:
            if not http.broker.has_topic(topic):
                await http.broker.admin.create_topic(topic)
            for name in ("s", "t"):
                if name not in http.broker.admin.subscriptions(topic):
                    await http.broker.admin.create_subscription(topic, name, start="earliest")
            async with http.broker.producer(topic) as producer:
                await producer.send_many([b"1", b"2"])

    def left() -> list[int]:
        return [
            http.broker.admin.subscription_stats(topic, name).backlog
            for topic in topics
            for name in ("s", "t")
        ]

    http.run(fill())
    assert min(left()) >= 2
    http.done("POST", f"{NAMESPACES}/public/cleared/clearBacklog/t")
    assert [each > 0 for each in left()] == [True, False, True, False]
    http.done("POST", f"{NAMESPACES}/public/cleared/clearBacklog")
    assert left() == [0, 0, 0, 0]
    assert http.backlog(other) == 3, "another namespace"
    http.done("POST", f"{NAMESPACES}/public/cleared/unsubscribe/t")
    assert [http.broker.admin.subscriptions(topic) for topic in topics] == [["s"], ["s"]]


def a_failure_stops_no_other(http: HttpWorld) -> None:
    """A subscription in use stays; the others are deleted, and the failure is told."""
    used, free = http.topic(subscription="both"), http.topic(subscription="both")

    async def work() -> Any:
        async with http.consuming(used, "both"):
            return await http.asking("POST", f"{NAMESPACES}/public/default/unsubscribe/both")

    refused = http.run(work())
    assert refused.status == 412
    assert "1 of 2 subscriptions failed, the others are done" in refused.reason
    assert (http.get(f"{used}/subscriptions"), http.get(f"{free}/subscriptions")) == (["both"], [])
    http.done("DELETE", f"{used}/subscription/both")


def an_unload_closes_clients(http: HttpWorld) -> None:
    """I290: of the topic, or of the namespace; producers and consumers, and no others."""
    http.ask("PUT", f"{NAMESPACES}/public/loaded")
    inside, outside = "persistent://public/loaded/orders", "persistent://public/default/staying"
    with closing(raw_of(http)) as raw, closing(raw_of(http)) as other:
        other.produce("staying")
        for path in (
            f"{NAMESPACES}/public/loaded/unload",
            "/admin/v2/persistent/public/loaded/orders/unload",
        ):
            raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=inside, producer_id=1)
            raw.ask(Type.SUBSCRIBE, topic=inside, subscription="s", consumer_id=1, subType=1)
            http.done("PUT", path)
            assert {raw.hear()[0] for _ in range(2)} == {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER}, path
        other.silent()
    assert http.broker.topic(outside).producers is not None


def another_member_unloads(member: Member) -> None:
    """I290: the event of another member closes the clients of this one."""
    http = member.world
    topic = http.topic()
    name = topic.rpartition("/")[2]
    with closing(raw_of(http)) as raw:
        raw.produce(name)
        id_ = http.broker.topic(f"persistent://public/default/{name}").id

        async def work() -> None:
            member.group.say(B, Unload(topic=id_))
            await asyncio.sleep(0)
            await http.broker.settle()

        http.run(work())
        assert raw.hear()[0] == Type.CLOSE_PRODUCER


def missing_topics_of_a_namespace(http: HttpWorld) -> None:
    """Whether they are created, and with partitions or without."""
    http.ask("PUT", f"{NAMESPACES}/public/strict")
    path = f"{NAMESPACES}/public/strict/autoTopicCreation"
    http.done("POST", path, json={"allowAutoTopicCreation": False, "topicType": "non-partitioned"})
    assert http.get(path) == {
        "allowAutoTopicCreation": False,
        "topicType": "non-partitioned",
        "defaultNumPartitions": None,
    }
    with closing(raw_of(http)) as raw:
        wanted = {"topic": "persistent://public/strict/x", "producer_id": 1}
        assert "no topic" in raw.ask(Type.PRODUCER, Type.ERROR, **wanted).message
        http.done(
            "POST",
            path,
            json={"allowAutoTopicCreation": True, "topicType": "partitioned", "defaultNumPartitions": 3},
        )
        assert http.get(path)["defaultNumPartitions"] == 3
        assert http.broker.partitioned.auto_creation("persistent://public/strict/x").partitions == 3
        http.done("DELETE", path)
        assert http.get(path) is None
        raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, **wanted)
    http.done("DELETE", "/admin/v2/persistent/public/strict/x", params={"force": "true"})


def settings_at_run_time(http: HttpWorld) -> None:
    """I291: a changed setting applies at once, is shown, and can be restored."""
    assert http.get(f"{SETTINGS}/values") == {}
    http.done("POST", f"{SETTINGS}/broker.create_topics/false")
    assert http.get(f"{SETTINGS}/values") == {"broker.create_topics": "false"}
    assert http.get(f"{SETTINGS}/runtime")["broker.create_topics"] == "false"
    assert http.ask("PUT", f"{T}/not-made/subscription/s").status == 404
    assert not http.broker.decided.create_topics
    http.done("DELETE", f"{SETTINGS}/create_topics")
    assert http.get(f"{SETTINGS}/values") == {}
    http.done("PUT", f"{T}/now-made/subscription/s")
    http.done("DELETE", f"{T}/now-made", params={"force": "true"})
