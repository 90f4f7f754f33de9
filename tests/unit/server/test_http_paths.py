"""Every path of the HTTP server, with a good request and a bad one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from holdfast.server.http.server import ROUTES
from tests.kit.server.http_world import Answer, HttpWorld, T, http

__all__ = ["http"]

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
SUB = TOPIC + "/subscription/{subscription}"
NS = "/admin/v2/namespaces/{tenant}/{namespace}"
LATEST = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}


@dataclass(frozen=True)
class Request:
    """A request and its expected answer. A path without `/` follows a topic's."""

    path: str
    status: int = 204
    json: Any = None
    method: str | None = None
    """Another than the route's."""
    expect: Any = None
    """The JSON, or part of the text of a refusal, or a question to the answer."""

    def ask(self, world: HttpWorld, method: str, topic: str) -> None:
        between = "" if self.path[:1] in ("", "?") else "/"
        path = self.path if self.path.startswith("/") else topic + between + self.path
        more = {} if self.json is None else {"json": self.json}
        found = world.ask(self.method or method, path, **more)
        assert found.status == self.status, (path, found)
        if found.status == 204:
            assert found.body == b""
        elif found.status >= 400:
            assert (self.expect or "") in found.reason, found
            assert found.headers["Content-Type"].startswith("application/json")
        if callable(self.expect):
            assert self.expect(found), found
        elif self.expect is not None and found.status == 200:
            assert found.json == self.expect, found


def has(*keys: str) -> Callable[[Answer], bool]:
    """The answer has these fields."""
    return lambda answer: set(keys) <= set(answer.json)


def says(text: str) -> Callable[[Answer], bool]:
    return lambda answer: text in answer.body.decode()


def absent(path: str, status: int = 404, expect: str = "no topic", **more: Any) -> Request:
    """The same of a topic that is not there."""
    return Request(f"{T}/absent" + (f"/{path}" if path else ""), status, expect=expect, **more)


GET_TOPIC = {
    "/stats": has("msgRateIn", "msgThroughputOut", "publishers", "subscriptions", "backlogSize"),
    "/internalStats": has("ledgers", "cursors", "lastConfirmedEntry", "state", "numberOfEntries"),
    "/internal-info": has("ledgers", "cursors", "creationDate"),
    "/backlog": has("messageBacklog", "dataLedgerDetails", "cursorDetails", "totalMessages"),
    "/subscriptions": ["s"],
    "/lastMessageId": has("ledgerId", "entryId", "partitionIndex"),
    "/retention": lambda answer: answer.json is None,
    "/messageTTL": lambda answer: answer.json is None,
    "/deduplicationEnabled": lambda answer: answer.json is None,
}

CASES: dict[tuple[str, str], tuple[Request, Request]] = {
    # -- the broker
    ("GET", "/admin/v2/brokers/health"): (
        Request("/admin/v2/brokers/health", 200, expect=says("ok")),
        Request("/admin/v2/brokers/health", 405, method="POST", expect="GET"),
    ),
    ("GET", "/admin/v2/brokers/ready"): (
        Request("/admin/v2/brokers/ready", 200, expect=says("ok")),
        Request("/admin/v2/brokers/ready/now", 404, expect="/openapi.json"),
    ),
    ("GET", "/status.html"): (
        Request("/status.html", 200, expect=says("OK")),
        Request("/status.htm", 404, expect="/openapi.json"),
    ),
    ("GET", "/holdfast/v1/flight"): (
        Request("/holdfast/v1/flight", 200, expect=has("url", "brokerUrl")),
        Request("/holdfast/v1/flights", 404, expect="/openapi.json"),
    ),
    ("GET", "/metrics"): (
        Request("/metrics", 200, expect=says("pulsar_topics_count")),
        Request("/metrics", 405, method="PUT", expect="GET"),
    ),
    ("GET", "/metrics/"): (
        Request("/metrics/", 200, expect=says("pulsar_topics_count")),
        Request("/metrics/now", 404, expect="/openapi.json"),
    ),
    ("GET", "/openapi.json"): (
        Request("/openapi.json", 200, expect=has("openapi", "paths", "components")),
        Request("/openapi.json", 405, method="DELETE", expect="GET"),
    ),
    ("GET", "/admin/v2/clusters"): (
        Request("/admin/v2/clusters", 200, expect=["standalone"]),
        Request("/admin/v2/clusters", 405, method="PUT"),
    ),
    ("GET", "/admin/v2/clusters/{cluster}"): (
        Request("/admin/v2/clusters/standalone", 200, expect=has("serviceUrl", "brokerServiceUrl")),
        Request("/admin/v2/clusters/other", 404, expect="standalone"),
    ),
    ("GET", "/admin/v2/brokers/version"): (
        Request("/admin/v2/brokers/version", 200, expect=says(".")),
        Request("/admin/v2/brokers/version", 405, method="POST"),
    ),
    ("GET", "/admin/v2/brokers/leaderBroker"): (
        Request("/admin/v2/brokers/leaderBroker", 200, expect=has("brokerId", "serviceUrl")),
        Request("/admin/v2/brokers/leaderBroker", 405, method="POST"),
    ),
    ("GET", "/admin/v2/brokers"): (
        Request("/admin/v2/brokers", 200, expect=lambda answer: len(answer.json) == 1),
        Request("/admin/v2/brokers", 405, method="POST"),
    ),
    ("GET", "/admin/v2/brokers/{cluster}"): (
        Request("/admin/v2/brokers/standalone", 200, expect=lambda answer: len(answer.json) == 1),
        Request("/admin/v2/brokers/other", 404, expect="standalone"),
    ),
    ("GET", "/lookup/v2/topic/persistent/{tenant}/{namespace}/{topic}"): (
        Request("/lookup/v2/topic/persistent/public/default/x", 200, expect=has("brokerUrl", "nativeUrl")),
        Request("/lookup/v2/topic/persistent/no/where/x", 404, expect="namespace"),
    ),
    # -- tenants
    ("GET", "/admin/v2/tenants"): (
        Request("/admin/v2/tenants", 200, expect=lambda answer: "public" in answer.json),
        Request("/admin/v2/tenants", 405, method="POST"),
    ),
    ("GET", "/admin/v2/tenants/{tenant}"): (
        Request(
            "/admin/v2/tenants/public", 200, expect={"adminRoles": [], "allowedClusters": ["standalone"]}
        ),
        Request("/admin/v2/tenants/nobody", 404, expect="nobody"),
    ),
    ("PUT", "/admin/v2/tenants/{tenant}"): (
        Request("/admin/v2/tenants/made", json={"adminRoles": ["boss"], "allowedClusters": ["standalone"]}),
        Request("/admin/v2/tenants/public", 409, json={}, expect="already"),
    ),
    ("POST", "/admin/v2/tenants/{tenant}"): (
        Request("/admin/v2/tenants/public", json={"adminRoles": [], "allowedClusters": []}),
        Request("/admin/v2/tenants/public", 400, json={"adminRoles": "boss"}, expect="adminRoles"),
    ),
    ("DELETE", "/admin/v2/tenants/{tenant}"): (
        Request("/admin/v2/tenants/spare"),
        Request("/admin/v2/tenants/public", 409, expect="namespaces"),
    ),
    # -- namespaces
    ("GET", "/admin/v2/namespaces/{tenant}"): (
        Request("/admin/v2/namespaces/public", 200, expect=lambda answer: "public/default" in answer.json),
        Request("/admin/v2/namespaces/nobody", 404, expect="nobody"),
    ),
    ("GET", NS): (
        Request("/admin/v2/namespaces/public/default", 200, expect=has("retention_policies", "bundles")),
        Request("/admin/v2/namespaces/public/nothing", 404, expect="public/nothing"),
    ),
    ("PUT", NS): (
        Request("/admin/v2/namespaces/public/made", json={"message_ttl_in_seconds": 60}),
        Request("/admin/v2/namespaces/nobody/made", 404, expect="tenant nobody"),
    ),
    ("DELETE", NS): (
        Request("/admin/v2/namespaces/public/spare"),
        Request("/admin/v2/namespaces/public/default", 409, expect="topics"),
    ),
    ("GET", NS + "/topics"): (
        Request("/admin/v2/namespaces/public/default/topics?mode=ALL", 200, expect=says("topic-")),
        Request("/admin/v2/namespaces/public/default/topics?mode=SOME", 400, expect="mode"),
    ),
    ("GET", NS + "/retention"): (
        Request("/admin/v2/namespaces/public/default/retention", 200, expect=says("null")),
        Request("/admin/v2/namespaces/no/where/retention", 404, expect="no/where"),
    ),
    ("POST", NS + "/retention"): (
        Request(
            "/admin/v2/namespaces/public/other/retention",
            json={"retentionTimeInMinutes": 10, "retentionSizeInMB": 5},
        ),
        Request(
            "/admin/v2/namespaces/public/other/retention",
            412,
            json={"retentionTimeInMinutes": 10, "retentionSizeInMB": 0},
            expect="-1",
        ),
    ),
    ("DELETE", NS + "/retention"): (
        Request("/admin/v2/namespaces/public/other/retention"),
        Request("/admin/v2/namespaces/no/where/retention", 404, expect="no/where"),
    ),
    ("GET", NS + "/messageTTL"): (
        Request("/admin/v2/namespaces/public/default/messageTTL", 200, expect=says("null")),
        Request("/admin/v2/namespaces/no/where/messageTTL", 404, expect="no/where"),
    ),
    ("POST", NS + "/messageTTL"): (
        Request("/admin/v2/namespaces/public/other/messageTTL", json=60),
        Request("/admin/v2/namespaces/public/other/messageTTL", 400, json=-1, expect=">= 0"),
    ),
    ("DELETE", NS + "/messageTTL"): (
        Request("/admin/v2/namespaces/public/other/messageTTL"),
        Request("/admin/v2/namespaces/no/where/messageTTL", 404, expect="no/where"),
    ),
    ("GET", NS + "/deduplication"): (
        Request("/admin/v2/namespaces/public/default/deduplication", 200, expect=says("null")),
        Request("/admin/v2/namespaces/no/where/deduplication", 404, expect="no/where"),
    ),
    ("POST", NS + "/deduplication"): (
        Request("/admin/v2/namespaces/public/other/deduplication", json=True),
        Request("/admin/v2/namespaces/public/other/deduplication", 400, json="yes", expect="bool"),
    ),
    ("DELETE", NS + "/deduplication"): (
        Request("/admin/v2/namespaces/public/other/deduplication"),
        Request("/admin/v2/namespaces/no/where/deduplication", 404, expect="no/where"),
    ),
    # -- topics
    ("GET", "/admin/v2/persistent/{tenant}/{namespace}"): (
        Request(T, 200, expect=says("persistent://public/default/topic-")),
        Request("/admin/v2/persistent/no/where", 404, expect="no/where"),
    ),
    ("GET", "/admin/v2/persistent/{tenant}/{namespace}/partitioned"): (
        Request(f"{T}/partitioned", 200, expect=[]),
        Request("/admin/v2/persistent/no/where/partitioned", 404, expect="no/where"),
    ),
    ("PUT", TOPIC): (
        Request(f"{T}/made"),
        Request("", 409, expect="already"),
    ),
    ("DELETE", TOPIC): (
        Request("?force=true"),
        Request("", 412, expect="1 subscription;"),
    ),
    **{
        ("GET", TOPIC + path): (Request(path[1:], 200, expect=expect), absent(path[1:]))
        for path, expect in GET_TOPIC.items()
    },
    ("GET", TOPIC + "/partitions"): (
        Request("partitions", 200, expect={"partitions": 0, "deleted": False}),
        Request("/admin/v2/persistent/no/where/x/partitions", 404, expect="namespace"),
    ),
    ("GET", TOPIC + "/messageid/{timestamp}"): (
        Request("messageid/0", 200, expect=has("ledgerId", "entryId")),
        Request("messageid/soon", 412, expect="whole number"),
    ),
    ("POST", TOPIC + "/terminate"): (Request("terminate", 200, expect=has("ledgerId")), absent("terminate")),
    ("DELETE", TOPIC + "/truncate"): (Request("truncate"), absent("truncate")),
    ("POST", TOPIC + "/trim"): (Request("trim"), absent("trim")),
    ("PUT", TOPIC + "/unload"): (Request("unload"), absent("unload")),
    ("POST", TOPIC + "/retention"): (
        Request("retention", json={"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}),
        Request("retention", 400, json={"retentionTimeInMinutes": -7, "retentionSizeInMB": 1}, expect="-1"),
    ),
    ("DELETE", TOPIC + "/retention"): (Request("retention"), absent("retention")),
    ("POST", TOPIC + "/messageTTL"): (
        Request("messageTTL?messageTTL=60"),
        Request("messageTTL?messageTTL=99999999999", 412, expect="99999999999"),
    ),
    ("DELETE", TOPIC + "/messageTTL"): (Request("messageTTL"), absent("messageTTL")),
    ("POST", TOPIC + "/deduplicationEnabled"): (
        Request("deduplicationEnabled", json=True),
        Request("deduplicationEnabled", 400, json=None, expect="no body"),
    ),
    ("DELETE", TOPIC + "/deduplicationEnabled"): (
        Request("deduplicationEnabled"),
        absent("deduplicationEnabled"),
    ),
    # -- messages
    ("GET", TOPIC + "/examinemessage"): (
        Request("examinemessage?initialPosition=earliest", 200, expect=says("message 0")),
        Request("examinemessage?messagePosition=99", 404, expect="no message 99"),
    ),
    ("GET", TOPIC + "/ledger/{ledger}/entry/{entry}"): (
        Request("ledger/{ledger}/entry/3", 200, expect=says("message 3")),
        Request("ledger/{ledger}/entry/99", 404, expect="no message"),
    ),
    ("GET", SUB + "/position/{position}"): (
        Request("subscription/s/position/4", 200, expect=says("message 3")),
        Request("subscription/s/position/99", 404, expect="no message 99"),
    ),
    # -- subscriptions
    ("PUT", SUB): (
        Request("subscription/new", json={"ledgerId": -1, "entryId": -1}),
        Request("subscription/s", 409, expect="already"),
    ),
    ("DELETE", SUB): (
        Request("subscription/s"),
        Request("subscription/nobody", 404, expect="it has: s"),
    ),
    ("POST", SUB + "/resetcursor"): (
        Request("subscription/s/resetcursor", json=LATEST),
        Request("subscription/s/resetcursor", 412, json={"ledgerId": 99999, "entryId": 0}, expect="99999:0"),
    ),
    ("POST", SUB + "/resetcursor/{timestamp}"): (
        Request("subscription/s/resetcursor/0"),
        Request("subscription/nobody/resetcursor/0", 404, expect="nobody"),
    ),
    ("POST", SUB + "/skip/{count}"): (
        Request("subscription/s/skip/2"),
        Request("subscription/s/skip/0", 412, expect="from 1"),
    ),
    ("POST", SUB + "/skip_all"): (
        Request("subscription/s/skip_all"),
        Request("subscription/nobody/skip_all", 404, expect="nobody"),
    ),
    ("POST", SUB + "/expireMessages/{seconds}"): (
        Request("subscription/s/expireMessages/1"),
        Request("subscription/s/expireMessages/-1", 412, expect="from 0"),
    ),
    ("POST", SUB + "/expireMessages"): (
        Request("subscription/s/expireMessages", json=LATEST),
        Request("subscription/s/expireMessages", 412, json={"ledgerId": 99999, "entryId": 0}),
    ),
    ("POST", SUB + "/analyzeBacklog"): (
        Request("subscription/s/analyzeBacklog", 200, expect=has("entries", "messages", "aborted")),
        Request("subscription/nobody/analyzeBacklog", 404, expect="nobody"),
    ),
}


@pytest.fixture(scope="module", autouse=True)
def beginning(http: HttpWorld) -> None:
    http.topic()
    http.done("PUT", "/admin/v2/tenants/spare", json={})
    for name in ("spare", "other"):
        http.done("PUT", f"/admin/v2/namespaces/public/{name}")


def test_every_route_has_its_cases() -> None:
    assert set(CASES) == {(route.method, route.path) for route in ROUTES}


@pytest.mark.parametrize("which", ["good", "bad"])
@pytest.mark.parametrize(("method", "path"), CASES, ids=lambda text: text)
def test_paths(http: HttpWorld, method: str, path: str, which: str) -> None:
    request = CASES[method, path][which == "bad"]
    topic = http.topic(messages=5, subscription="s") if "{topic}" in path else ""
    if "{ledger}" in request.path:
        ledger = http.get(f"{topic}/lastMessageId")["ledgerId"]
        request = replace(request, path=request.path.replace("{ledger}", str(ledger)))
    request.ask(http, method, topic)
