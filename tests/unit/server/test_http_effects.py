"""Effects of administration over HTTP on consumers and on the next request."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import Outdated
from holdfast.server.http.routing import NUMBER_MAX
from tests.kit.server import http_effects_checks
from tests.kit.server.http_effects_checks import cursor, ledger_of
from tests.kit.server.http_world import HttpWorld, T, http
from tests.kit.waiting import next_millisecond

__all__ = ["http"]


# -- moving a subscription -----------------------------------------------------------------------------


def test_a_reset_to_a_position(http: HttpWorld) -> None:
    http_effects_checks.a_reset_to_a_position(http)


def test_what_a_reset_promises_holds_for_a_consumer(http: HttpWorld) -> None:
    """Nothing read before it arrives any more, and no acknowledgement of before has an effect."""
    topic = http.topic(messages=10, subscription="s")
    ledger = ledger_of(http, topic)

    async def work() -> list[int]:
        async with http.consuming(topic) as consumer:
            old = await consumer.receive_many(10, timeout=5)
            path = f"{topic}/subscription/s/resetcursor"
            answer = await http.asking("POST", path, json={"ledgerId": ledger, "entryId": 4})
            assert answer.status == 204
            with pytest.raises(Outdated):
                await consumer.ack_cumulative(old[-1], receipt=True)
            seen = [message.entry for message in await consumer.receive_many(10, timeout=5)]
            while len(seen) < 6:
                seen += [message.entry for message in await consumer.receive_many(10, timeout=5)]
            return seen

    assert http.run(work()) == [4, 5, 6, 7, 8, 9]


def test_a_reset_to_a_time(http: HttpWorld) -> None:
    topic = http.topic(messages=3, subscription="s")
    middle = next_millisecond()
    next_millisecond()

    async def more() -> None:
        async with http.broker.producer(topic.rpartition("/")[2]) as p:
            await p.send_many([b"later"] * 4)

    http.run(more())
    http.done("POST", f"{topic}/subscription/s/skip_all")
    for moment, left in ((middle, 4), (0, 7), (middle + 10_000_000, 0)):
        http.done("POST", f"{topic}/subscription/s/resetcursor/{moment}")
        assert http.backlog(topic) == left
    found = http.get(f"{topic}/messageid/{middle}")
    assert found["entryId"] == 3
    assert http.get(f"{topic}/messageid/{middle + 10_000_000}")["entryId"] == 6  # the last one


def test_skip_clear_expire(http: HttpWorld) -> None:
    topic = http.topic(messages=10, subscription="s")
    ledger = ledger_of(http, topic)
    http.done("POST", f"{topic}/subscription/s/skip/3")
    assert http.backlog(topic) == 7
    http.done("POST", f"{topic}/subscription/s/expireMessages", json={"ledgerId": ledger, "entryId": 4})
    assert http.backlog(topic) == 5
    excluded = {"ledgerId": ledger, "entryId": 6, "isExcluded": True}
    http.done("POST", f"{topic}/subscription/s/expireMessages", json=excluded)
    assert http.backlog(topic) == 4
    http.done("POST", f"{topic}/subscription/s/expireMessages", json={"ledgerId": ledger, "entryId": 0})
    assert http.backlog(topic) == 4  # never back
    http.done("POST", f"{topic}/subscription/s/expireMessages/3600")
    assert http.backlog(topic) == 4  # nothing is so old
    assert cursor(http, topic)["resetNumber"] == 0  # acknowledgements stay valid
    http.done("POST", f"{topic}/subscription/s/expireMessages/0")
    assert http.backlog(topic) == 0
    huge = (1 << 63) - 1
    http.done("POST", f"{topic}/subscription/s/skip/{huge}")
    http.done("POST", f"{topic}/subscription/s/expireMessages/{huge}")
    http.done("POST", f"{topic}/subscription/s/resetcursor/{huge}")
    assert http.ask("POST", f"{topic}/subscription/s/skip/{huge + 1}").status == 412


@pytest.mark.parametrize(
    ("start", "backlog"),
    [
        (None, 0),
        ("latest", 0),
        ("earliest", 5),
        ({"ledgerId": -1, "entryId": -1}, 5),
        ({"ledgerId": (1 << 63) - 1, "entryId": 0}, 0),
        ({"ledgerId": 0, "entryId": 2}, 3),
    ],
)
def test_where_a_subscription_begins(http: HttpWorld, start: Any, backlog: int) -> None:
    topic = http.topic(messages=5)
    if isinstance(start, dict) and start["ledgerId"] == 0:
        start = start | {"ledgerId": ledger_of(http, topic)}
    http.done("PUT", f"{topic}/subscription/s", json=start)
    assert http.backlog(topic) == backlog
    assert http.ask("PUT", f"{topic}/subscription/s").status == 409
    bad = http.ask("PUT", f"{topic}/subscription/other", json={"ledgerId": 99999, "entryId": 0})
    assert bad.status == 412
    assert http.get(f"{topic}/subscriptions") == ["s"]


def test_a_subscription_makes_its_topic_where_that_is_allowed(http: HttpWorld) -> None:
    http.done("PUT", f"{T}/made-by-subscription/subscription/s")
    assert http.get(f"{T}/made-by-subscription/subscriptions") == ["s"]
    refused = http.ask("PUT", "/admin/v2/persistent/no/where/x/subscription/s")
    assert (refused.status, "no/where" in refused.reason) == (404, True)
    assert http.ask("PUT", f"{T}/made-by-subscription/subscription/t?replicated=true").status == 412


def test_a_subscription_in_use_is_deleted_by_force_alone(http: HttpWorld) -> None:
    http_effects_checks.a_subscription_in_use_is_deleted_by_force_alone(http)


def test_analysing_a_backlog(http: HttpWorld) -> None:
    topic = http.topic(messages=20, subscription="s", batch=4)
    path = f"{topic}/subscription/s/analyzeBacklog"
    found = http.ask("POST", path).json
    assert (found["entries"], found["messages"], found["aborted"]) == (5, 20, False)
    http.done("POST", f"{topic}/subscription/s/skip/2")
    assert http.ask("POST", path).json["messages"] == 12
    later = {"ledgerId": ledger_of(http, topic), "entryId": 4}
    assert http.ask("POST", path, json=later).json["entries"] == 1
    assert http.ask("POST", path, json={"ledgerId": 99999, "entryId": 0}).status == 412


# -- topics --------------------------------------------------------------------------------------------


def test_a_topic_in_use_is_deleted_by_force_alone(http: HttpWorld) -> None:
    topic = http.topic(messages=3, subscription="s")
    refused = http.ask("DELETE", topic)
    assert (refused.status, "1 subscription;" in refused.reason) == (412, True)
    http.done("DELETE", f"{topic}?force=true")
    assert http.ask("GET", f"{topic}/stats").status == 404
    http.done("PUT", topic)
    assert http.get(f"{topic}/internalStats")["numberOfEntries"] == 0


def test_a_topic_with_a_reader_is_deleted_by_force_alone(http: HttpWorld) -> None:
    """Pulsar refuses, too: a reader is a connected client."""
    topic = http.topic(messages=3)
    name = topic.rpartition("/")[2]

    async def work() -> None:
        async with http.broker.reader(name) as reader:
            await reader.receive(timeout=5)
            refused = await http.asking("DELETE", topic)
            assert (refused.status, "1 reader;" in refused.reason) == (412, True), refused
            await reader.receive(timeout=5)
        assert (await http.asking("DELETE", topic)).status == 204
        await http.asking("PUT", topic)
        async with http.broker.reader(name):
            assert (await http.asking("DELETE", f"{topic}?force=true")).status == 204

    http.run(work())
    assert http.ask("GET", f"{topic}/stats").status == 404


@pytest.mark.parametrize(
    ("method", "path", "least", "most"),
    [
        ("POST", "messageTTL?messageTTL={}", 0, 1_000_000_000),
        ("POST", "subscription/s/skip/{}", 1, NUMBER_MAX),
        ("POST", "subscription/s/expireMessages/{}", 0, NUMBER_MAX),
        ("GET", "examinemessage?messagePosition={}", 1, NUMBER_MAX),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_range(
    http: HttpWorld, method: str, path: str, least: int, most: int
) -> None:
    topic = http.topic(messages=1, subscription="s")
    for number in (least - 1, NUMBER_MAX + 1, 10**30):
        refused = http.ask(method, f"{topic}/{path.format(number)}")
        assert refused.status in (400, 412)
        assert f"{number}'; use a whole number from {least} to {most}" in refused.reason


def test_a_message_that_is_not_there_is_named_as_in_the_request(http: HttpWorld) -> None:
    """The error named an ordinal below 0, which a client does not know."""
    topic = http.topic(messages=3)
    for end in ("latest", "earliest"):
        refused = http.ask("GET", f"{topic}/examinemessage?initialPosition={end}&messagePosition=99")
        assert (refused.status, "has 3 entries, so no message 99" in refused.reason) == (404, True)


def test_terminate_truncate_trim(http: HttpWorld) -> None:
    topic = http.topic(messages=6, subscription="s")
    ledger = ledger_of(http, topic)
    ended = http.ask("POST", f"{topic}/terminate").json
    assert ended == {"ledgerId": ledger, "entryId": 5, "partitionIndex": -1}
    assert http.get(f"{topic}/internalStats")["state"] == "Terminated"
    assert http.get(f"{topic}/internal-info")["terminatedPosition"] == {"ledgerId": ledger, "entryId": 5}
    http.done("POST", f"{topic}/trim")
    assert http.backlog(topic) == 6
    http.done("DELETE", f"{topic}/truncate")
    assert http.backlog(topic) == 0
    found = http.get(f"{topic}/internalStats")
    assert (found["ledgers"], found["lastConfirmedEntry"]) == ([], "-1:-1")
    refused = http.ask("GET", f"{topic}/examinemessage")
    assert (refused.status, "no messages" in refused.reason) == (412, True)


def test_names_with_anything_in_them(http: HttpWorld) -> None:
    for name in ("a%2Fb%2Fc", "%C3%A4%20%22quote%22", "stats", "100%25", "a+b", "..x"):
        http.done("PUT", f"{T}/{name}")
        assert http.get(f"{T}/{name}/stats")["subscriptions"] == {}
        http.done("PUT", f"{T}/{name}/subscription/{name}")
        assert len(http.get(f"{T}/{name}/subscriptions")) == 1
        http.done("DELETE", f"{T}/{name}/subscription/{name}")
        http.done("DELETE", f"{T}/{name}")
    for name in ("a%0Ab", "%00", "x" * 2000):
        refused = http.ask("PUT", f"{T}/{name}")
        assert refused.status in (412, 400), refused
    for tenant in ("a%2Fb", "a b", "ä" * 600, "%0D%0A"):
        assert http.ask("PUT", f"/admin/v2/tenants/{tenant}", json={}).status == 412


def test_topics_of_a_namespace(http: HttpWorld) -> None:
    http.done("PUT", "/admin/v2/namespaces/public/listed")
    base = "/admin/v2/persistent/public/listed"
    assert http.get(base) == []
    for name in ("b", "a"):
        http.done("PUT", f"{base}/{name}", json={"a": "property"})
    names = ["persistent://public/listed/a", "persistent://public/listed/b"]
    assert http.get(base) == names
    assert http.get("/admin/v2/namespaces/public/listed/topics") == names
    assert http.get("/admin/v2/namespaces/public/listed/topics?mode=NON_PERSISTENT") == []
    busy = http.ask("DELETE", "/admin/v2/namespaces/public/listed")
    assert (busy.status, "2 topics" in busy.reason) == (409, True)
    http.done("DELETE", "/admin/v2/namespaces/public/listed?force=true")
    assert http.ask("GET", base).status == 404
    refused = http.ask("PUT", f"{base}/a")
    assert (refused.status, "no namespace" in refused.reason) == (404, True)


# -- messages ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shop(http: HttpWorld) -> str:
    """A topic with one message of everything."""
    topic = http.topic(subscription="s")

    async def fill() -> None:
        name = topic.rpartition("/")[2]
        async with http.broker.producer(name, name="till") as p:
            await p.send(b"plain")
            await p.send(
                b"\x00\xffbytes",
                key="schmied",
                properties={"colour": "grün", "line": "a\r\nX-Evil: 1"},
                event_time=1_700_000_000_123_000_000,
                ordering_key=b"\x01\x02",
            )
            await p.send(b"binary key", key=b"\x00\xff")
            await p.send(b"large", properties={"much": "x" * 100_000})

    http.run(fill())
    return topic


def test_a_message_comes_with_all_that_belongs_to_it(http: HttpWorld, shop: str) -> None:
    found = http.ask("GET", f"{shop}/examinemessage?initialPosition=earliest&messagePosition=2")
    assert (found.status, found.body) == (200, b"\x00\xffbytes")
    assert found.headers["Content-Type"] == "application/octet-stream"
    headers = {name[9:]: text for name, text in found.headers.items() if name.startswith("X-Pulsar-")}
    assert headers.pop("publish-time")
    assert headers == {
        "Message-ID": f"{ledger_of(http, shop)}:1",
        "producer-name": "till",
        "sequence-id": "1",
        "compression": "NONE",
        "event-time": "2023-11-14T22:13:20.123+00:00",
        "partition-key": "schmied",
        "ordering-key": "AQI=",
        "PROPERTY": r'{"colour": "gr\u00fcn", "line": "a\r\nX-Evil: 1"}',
    }
    assert "X-Evil" not in found.headers


def test_a_message_comes_with_its_delivery_time(http: HttpWorld) -> None:
    topic = http.topic(subscription="s")

    async def fill() -> None:
        async with http.broker.producer(topic.rpartition("/")[2]) as p:
            await p.send(b"later", deliver_at=2_177_550_245_678_000_000)
            await p.send(b"now")

    http.run(fill())
    for path in ("examinemessage?initialPosition=earliest", "subscription/s/position/1"):
        headers = http.ask("GET", f"{topic}/{path}").headers
        assert headers["X-Pulsar-deliver-at-time"] == "2039-01-02T03:04:05.678+00:00"
    assert "X-Pulsar-deliver-at-time" not in http.ask("GET", f"{topic}/examinemessage").headers


def test_messages_by_their_place(http: HttpWorld, shop: str) -> None:
    ledger = ledger_of(http, shop)
    for path, body in {
        "examinemessage": b"large",
        "examinemessage?messagePosition=3": b"\x00\xffbytes",
        "examinemessage?initialPosition=earliest": b"plain",
        f"ledger/{ledger}/entry/2": b"binary key",
        "subscription/s/position/1": b"plain",
        "subscription/s/position/4": b"large",
    }.items():
        assert http.ask("GET", f"{shop}/{path}").body == body
    for path, status in {
        "examinemessage?messagePosition=5": 404,
        "examinemessage?messagePosition=0": 400,
        "examinemessage?initialPosition=middle": 400,
        f"ledger/{ledger}/entry/4": 404,
        f"ledger/{ledger}/entry/-1": 412,
        f"ledger/{(1 << 63) - 1}/entry/0": 404,
        "subscription/s/position/5": 404,
        f"subscription/s/position/{(1 << 63) - 1}": 404,
        "subscription/s/position/0": 412,
        "subscription/s/position/first": 412,
    }.items():
        assert http.ask("GET", f"{shop}/{path}").status == status, path
    assert http.backlog(shop) == 4


def test_peeking_leaves_out_what_is_acknowledged(http: HttpWorld) -> None:
    http_effects_checks.peeking_leaves_out_what_is_acknowledged(http)


def test_bytes_that_are_no_message_are_shown_as_they_are(http: HttpWorld) -> None:
    topic = http.topic(subscription="s")
    name = topic.rpartition("/")[2]

    async def work() -> None:
        async with http.broker.producer(name) as p:
            to = http.broker.topic(f"persistent://public/default/{name}")
            ((session, producer),) = to.producers.items()
            entries = [(0, 1, b"not an entry")]
            await http.broker.publish_entries(to, session, producer.epoch, p.name, entries)

    http.run(work())
    assert http.ask("GET", f"{topic}/examinemessage").body == b"not an entry"


# -- stats ---------------------------------------------------------------------------------------------


def test_stats_tell_who_is_there_and_how_fast(http: HttpWorld) -> None:
    http_effects_checks.stats_tell_who_is_there_and_how_fast(http)


def test_a_cursor_has_the_fields_that_tools_read(http: HttpWorld) -> None:
    topic = http.topic(messages=5, subscription="s")
    ledger = ledger_of(http, topic)

    async def work() -> Any:
        async with http.consuming(topic, type="shared") as consumer:
            messages = await consumer.receive_many(5, timeout=5)
            await consumer.ack_many([messages[at] for at in (0, 1, 3)], receipt=True)
            return (await http.asking("GET", f"{topic}/internalStats")).json["cursors"]["s"]

    expected = {
        "markDeletePosition": f"{ledger}:1",
        "readPosition": f"{ledger}:5",
        "waitingReadOp": True,
        "pendingReadOps": 0,
        "messagesConsumedCounter": 3,
        "individuallyDeletedMessages": f"[({ledger}:2..{ledger}:3]]",
        "totalNonContiguousDeletedMessagesRange": 1,
        "state": "Open",
        "subscriptionHavePendingRead": True,
        "subscriptionHavePendingReplayRead": False,
    }
    found = http.run(work())
    assert {name: found[name] for name in expected} == expected


def test_stats_without_clients_have_all_else(http: HttpWorld) -> None:
    topic = http.topic(messages=3)

    async def work() -> list[Any]:
        async with http.consuming(topic), http.broker.producer(topic.rpartition("/")[2]):
            asked = ("", "?excludePublishers=true", "?excludeConsumers=true&excludePublishers=false")
            return [(await http.asking("GET", f"{topic}/stats{each}")).json for each in asked]

    def listed(stats: Any) -> tuple[int, int]:
        return len(stats["publishers"]), len(stats["subscriptions"]["s"]["consumers"])

    whole, *others = http.run(work())
    assert [listed(each) for each in (whole, *others)] == [(1, 1), (0, 1), (1, 0)]
    for each in others:  # values such as rates and ages may differ meanwhile
        assert each.keys() == whole.keys()
        assert each["subscriptions"]["s"].keys() == whole["subscriptions"]["s"].keys()


def test_a_reset_that_is_under_way_is_told(http: HttpWorld) -> None:
    topic = http.topic(messages=5, subscription="s")

    async def work() -> Any:
        name = topic.rpartition("/")[2]
        where = http.broker.topic(f"persistent://public/default/{name}")
        subscription = where.state.subscriptions["s"]
        dispatcher = http.broker.dispatcher(where, subscription)
        window = dispatcher.revision.start(b"token")
        assert window is not None
        found = (await http.asking("GET", f"{topic}/internalStats")).json
        dispatcher.revision.end(window, lambda: None, reset_number=subscription.reset_number)
        return found

    found = http.run(work())["cursors"]["s"]
    assert (found["isUnderRevision"], found["revisionNum"]) == (1, 0)
    assert cursor(http, topic)["isUnderRevision"] == 0


# -- policies ------------------------------------------------------------------------------------------


def test_a_time_to_live_without_a_number_changes_nothing(http: HttpWorld) -> None:
    """It is in the query. A body was ignored, and messages never expired."""
    topic = http.topic()
    http.done("POST", f"{topic}/messageTTL?messageTTL=60")
    found = http.ask("POST", f"{topic}/messageTTL", json=90)
    assert (found.status, "add ?messageTTL=SECONDS" in found.reason) == (400, True)
    assert http.get(f"{topic}/messageTTL") == 60


def test_policies_are_kept_and_inherited(http: HttpWorld) -> None:
    http.done("PUT", "/admin/v2/namespaces/public/kept", json={"deduplicationEnabled": True})
    namespace, topic = "/admin/v2/namespaces/public/kept", "/admin/v2/persistent/public/kept/x"
    http.done("PUT", topic)
    retention = {"retentionTimeInMinutes": 60, "retentionSizeInMB": 7}
    http.done("POST", f"{namespace}/retention", json=retention)
    http.done("POST", f"{namespace}/messageTTL", json=90)
    assert http.get(f"{namespace}/retention") == retention
    assert http.get(namespace) == {
        **http.get("/admin/v2/namespaces/public/default"),
        "retention_policies": retention,
        "message_ttl_in_seconds": 90,
        "deduplicationEnabled": True,
    }
    for path, value in {"retention": retention, "messageTTL": 90, "deduplicationEnabled": True}.items():
        assert http.get(f"{topic}/{path}") is None
        assert http.get(f"{topic}/{path}?applied=true") == value
    assert http.get(f"{topic}/stats")["deduplicationStatus"] == "Enabled"
    never = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    http.done("POST", f"{topic}/retention", json=never)
    http.done("POST", f"{topic}/messageTTL?messageTTL=0")
    http.done("POST", f"{topic}/deduplicationEnabled", json=False)
    for path, value in {"retention": never, "messageTTL": 0, "deduplicationEnabled": False}.items():
        assert http.get(f"{topic}/{path}") == http.get(f"{topic}/{path}?applied=true") == value
        http.done("DELETE", f"{topic}/{path}")
        assert http.get(f"{topic}/{path}") is None
    for path in ("retention", "messageTTL", "deduplication"):
        http.done("DELETE", f"{namespace}/{path}")
        assert http.get(f"{namespace}/{path}") is None


@pytest.mark.parametrize(
    ("minutes", "size", "fits"), [(0, 0, True), (0, 5, False), (5, 0, False), (-1, 5, True)]
)
def test_which_retention_makes_sense(http: HttpWorld, minutes: int, size: int, fits: bool) -> None:
    topic = http.topic()
    body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": size}
    assert http.ask("POST", f"{topic}/retention", json=body).status == (204 if fits else 412)
    assert http.get(f"{topic}/retention") == (body if fits else None)


def test_tenants(http: HttpWorld) -> None:
    http.done("PUT", "/admin/v2/tenants/shop", json={"adminRoles": ["boss"]})
    assert http.get("/admin/v2/tenants/shop") == {"adminRoles": ["boss"], "allowedClusters": ["standalone"]}
    http.done("POST", "/admin/v2/tenants/shop", json={"adminRoles": ["a", "b"], "allowedClusters": []})
    assert http.get("/admin/v2/tenants/shop") == {"adminRoles": ["a", "b"], "allowedClusters": ["standalone"]}
    assert "shop" in http.get("/admin/v2/tenants")
    http.done("PUT", "/admin/v2/namespaces/shop/eu")
    assert http.get("/admin/v2/namespaces/shop") == ["shop/eu"]
    http.done("PUT", "/admin/v2/persistent/shop/eu/orders")
    assert http.ask("DELETE", "/admin/v2/tenants/shop").status == 409
    http.done("DELETE", "/admin/v2/tenants/shop?force=true")
    assert http.ask("GET", "/admin/v2/persistent/shop/eu/orders/stats").status == 404
