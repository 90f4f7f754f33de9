"""Every path of the HTTP server, with a good request and a bad one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.server.http.server import ROUTES
from tests.kit.server.compaction_paths import COMPACTION_CASES
from tests.kit.server.delay_paths import DELAY_CASES
from tests.kit.server.http_requests import Request, absent, has, says
from tests.kit.server.http_world import HttpWorld, T
from tests.kit.server.life_paths import LIFE_CASES
from tests.kit.server.limit_paths import LIMIT_CASES
from tests.kit.server.partition_paths import PARTITION_CASES, QUIET
from tests.kit.server.schema_paths import SCHEMA_CASES, S

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
SUB = TOPIC + "/subscription/{subscription}"
EXCHANGE = "/admin/v2/exchanges/{tenant}/{namespace}/{exchange}"
X = "/admin/v2/exchanges/public/default"
NS = "/admin/v2/namespaces/{tenant}/{namespace}"
N = "/admin/v2/namespaces/public"
BUNDLE = "0x00000000_0xffffffff"
SETTINGS = "/admin/v2/brokers/configuration"
STATS = "/admin/v2/broker-stats"
EARLIEST = {"ledgerId": -1, "entryId": -1}
LATEST = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}


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
    "/ring": {"entries": None, "bytes": None},
    "/lastValue": lambda answer: answer.json is None,
    "/alternate": lambda answer: answer.json is None,
    "/schemaCompatibilityStrategy": lambda answer: answer.json is None,
    "/schemaValidationEnforced": lambda answer: answer.json is None,
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
    # -- the cluster; tests/unit/server/test_http_cluster.py has one
    ("GET", "/admin/v2/cluster/status"): (
        Request("/admin/v2/cluster/status", 409, expect="not a member of a cluster"),
        Request("/admin/v2/cluster/status", 405, method="POST"),
    ),
    ("GET", "/admin/v2/cluster/members"): (
        Request("/admin/v2/cluster/members", 409, expect="not a member of a cluster"),
        Request("/admin/v2/cluster/members", 405, method="POST"),
    ),
    ("GET", "/admin/v2/cluster/queues"): (
        Request("/admin/v2/cluster/queues", 409, expect="not a member of a cluster"),
        Request("/admin/v2/cluster/queues", 405, method="POST"),
    ),
    ("POST", "/admin/v2/cluster/options"): (
        Request("/admin/v2/cluster/options", 409, json={"roll_entries": 5}, expect="not a member"),
        Request("/admin/v2/cluster/options", 400, json={"roll_entries": [5]}, expect="JSON"),
    ),
    ("POST", "/admin/v2/cluster/leave"): (
        Request("/admin/v2/cluster/leave", 409, expect="not a member of a cluster"),
        Request("/admin/v2/cluster/leave", 405, method="GET"),
    ),
    ("POST", "/admin/v2/cluster/free"): (
        Request("/admin/v2/cluster/free", 409, json="orders", expect="not a member of a cluster"),
        Request("/admin/v2/cluster/free", 400, json={"name": "orders"}, expect="JSON"),
    ),
    ("POST", "/admin/v2/cluster/evict/{node}"): (
        Request("/admin/v2/cluster/evict/2", 409, expect="not a member of a cluster"),
        Request("/admin/v2/cluster/evict/two", 412, expect="whole number"),
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
        Request(f"{T}/partitioned", 200, expect=says("/parted")),
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
    # -- namespaces as a whole
    ("GET", NS + "/bundles"): (
        Request(f"{N}/default/bundles", 200, expect={"boundaries": BUNDLE.split("_"), "numBundles": 1}),
        Request("/admin/v2/namespaces/no/where/bundles", 404, expect="no/where"),
    ),
    ("PUT", NS + "/unload"): (
        Request(f"{N}/default/unload"),
        Request("/admin/v2/namespaces/no/where/unload", 404, expect="no/where"),
    ),
    ("PUT", NS + "/{bundle}/unload"): (
        Request(f"{N}/default/{BUNDLE}/unload"),
        Request(f"{N}/default/0x0_0x1/unload", 412, expect=BUNDLE),
    ),
    ("POST", NS + "/clearBacklog"): (
        Request(f"{N}/other/clearBacklog"),
        Request("/admin/v2/namespaces/no/where/clearBacklog", 404, expect="no/where"),
    ),
    ("POST", NS + "/clearBacklog/{subscription}"): (
        Request(f"{N}/default/clearBacklog/idle"),
        Request(f"{N}/default/clearBacklog/nobody", 404, expect="nobody"),
    ),
    ("POST", NS + "/{bundle}/clearBacklog"): (
        Request(f"{N}/other/{BUNDLE}/clearBacklog"),
        Request(f"{N}/other/all/clearBacklog", 412, expect=BUNDLE),
    ),
    ("POST", NS + "/{bundle}/clearBacklog/{subscription}"): (
        Request(f"{N}/default/{BUNDLE}/clearBacklog/idle"),
        Request(f"{N}/default/{BUNDLE}/clearBacklog/nobody", 404, expect="nobody"),
    ),
    ("POST", NS + "/unsubscribe/{subscription}"): (
        Request(f"{N}/default/unsubscribe/one"),
        Request(f"{N}/default/unsubscribe/nobody", 404, expect="nobody"),
    ),
    ("POST", NS + "/{bundle}/unsubscribe/{subscription}"): (
        Request(f"{N}/default/{BUNDLE}/unsubscribe/two"),
        Request(f"{N}/default/{BUNDLE}/unsubscribe/nobody", 404, expect="nobody"),
    ),
    ("GET", NS + "/autoTopicCreation"): (
        Request(f"{N}/default/autoTopicCreation", 200, expect=says("null")),
        Request("/admin/v2/namespaces/no/where/autoTopicCreation", 404, expect="no/where"),
    ),
    ("POST", NS + "/autoTopicCreation"): (
        Request(f"{N}/other/autoTopicCreation", json={"allowAutoTopicCreation": False}),
        Request(f"{N}/other/autoTopicCreation", 412, json={"topicType": "partitioned"}, expect="needs"),
    ),
    ("DELETE", NS + "/autoTopicCreation"): (
        Request(f"{N}/other/autoTopicCreation"),
        Request("/admin/v2/namespaces/no/where/autoTopicCreation", 404, expect="no/where"),
    ),
    # -- settings and figures of the broker
    ("GET", SETTINGS): (
        Request(SETTINGS, 200, expect=lambda answer: "broker.roll_entries" in answer.json),
        Request(SETTINGS, 405, method="POST"),
    ),
    ("GET", SETTINGS + "/values"): (
        Request(f"{SETTINGS}/values", 200, expect=lambda answer: isinstance(answer.json, dict)),
        Request(f"{SETTINGS}/values", 405, method="POST"),
    ),
    ("GET", SETTINGS + "/runtime"): (
        Request(f"{SETTINGS}/runtime", 200, expect=has("broker.roll_entries", "broker.create_topics")),
        Request(f"{SETTINGS}/runtime", 405, method="PUT"),
    ),
    ("POST", SETTINGS + "/{setting}/{value}"): (
        Request(f"{SETTINGS}/broker.roll_entries/1000"),
        Request(f"{SETTINGS}/broker.roll_entries/many", 412, expect="whole number"),
    ),
    ("DELETE", SETTINGS + "/{setting}"): (
        Request(f"{SETTINGS}/broker.roll_entries"),
        Request(f"{SETTINGS}/listen.port", 412, expect="broker.roll_entries"),
    ),
    ("GET", STATS + "/metrics"): (
        Request(f"{STATS}/metrics", 200, expect=says("brk_in_rate")),
        Request(f"{STATS}/mbeans", 501, expect="Java"),
    ),
    ("GET", STATS + "/topics"): (
        Request(f"{STATS}/topics", 200, expect=has("public/default")),
        Request(f"{STATS}/topics", 405, method="POST"),
    ),
    ("GET", STATS + "/destinations"): (
        Request(f"{STATS}/destinations", 200, expect=has("public/default")),
        Request(f"{STATS}/destinations", 405, method="POST"),
    ),
    ("GET", STATS + "/load-report"): (
        Request(f"{STATS}/load-report", 200, expect=has("cpu", "memory", "numTopics", "msgRateIn")),
        Request(f"{STATS}/load-report", 405, method="POST"),
    ),
    ("PUT", TOPIC + "/backlogSize"): (
        Request("backlogSize", 200, json=EARLIEST, expect=lambda answer: answer.json > 0),
        Request("backlogSize", 412, json={"ledgerId": 99999, "entryId": 0}, expect="99999:0"),
    ),
    ("POST", TOPIC + "/all_subscription/expireMessages/{seconds}"): (
        Request("all_subscription/expireMessages/1"),
        absent("all_subscription/expireMessages/1"),
    ),
    # -- rings, last values, exchanges, moves
    ("POST", TOPIC + "/ring"): (
        Request("ring", json={"entries": 5}),
        Request("ring", 412, json={"entries": 0}, expect="ring_entries"),
    ),
    ("DELETE", TOPIC + "/ring"): (Request("ring"), absent("ring")),
    ("POST", TOPIC + "/lastValue"): (
        Request("lastValue", json=True),
        Request("lastValue", 400, json=None, expect="no body"),
    ),
    ("DELETE", TOPIC + "/lastValue"): (Request("lastValue"), absent("lastValue")),
    ("POST", TOPIC + "/alternate"): (
        Request("alternate", json="spare"),
        Request("alternate", 404, json="absent", expect="no exchange"),
    ),
    ("DELETE", TOPIC + "/alternate"): (Request("alternate"), absent("alternate")),
    ("POST", TOPIC + "/purge"): (Request("purge", 200, expect=5), absent("purge")),
    ("POST", TOPIC + "/drain"): (
        Request("/admin/v2/persistent/public/default/drained/drain", 200, expect=0),
        Request("drain", 404, expect="no alternate"),
    ),
    ("GET", EXCHANGE.rpartition("/")[0]): (
        Request("/admin/v2/exchanges/public/default", 200, expect=says("/spare")),
        Request("/admin/v2/exchanges/public/default", 405, method="POST"),
    ),
    ("PUT", EXCHANGE): (Request(f"{X}/new", json={"kind": "topic"}), Request(f"{X}/spare", 409)),
    ("GET", EXCHANGE): (
        Request(f"{X}/spare", 200, expect=has("kind", "bindings", "dropped")),
        Request(f"{X}/absent", 404, expect="no exchange"),
    ),
    ("DELETE", EXCHANGE): (Request(f"{X}/doomed"), Request(f"{X}/absent", 404, expect="no exchange")),
    ("POST", EXCHANGE + "/bindings"): (
        Request(f"{X}/spare/bindings", json={"topic": "topic-1", "key": "k"}),
        Request(f"{X}/spare/bindings", 404, json={"topic": "absent"}, expect="no topic"),
    ),
    ("DELETE", EXCHANGE + "/bindings"): (
        Request(f"{X}/bound/bindings?topic=topic-1"),
        Request(f"{X}/spare/bindings?topic=absent", 404, expect="no topic"),
    ),
    ("POST", EXCHANGE + "/alternate"): (
        Request(f"{X}/bound/alternate", json="spare"),
        Request(f"{X}/spare/alternate", 412, json="spare", expect="its own alternate"),
    ),
    ("DELETE", EXCHANGE + "/alternate"): (
        Request(f"{X}/bound/alternate"),
        Request(f"{X}/absent/alternate", 404, expect="absent"),
    ),
    ("GET", SUB + "/alternate"): (
        Request("subscription/s/alternate", 200, expect=lambda answer: answer.json is None),
        Request("subscription/nobody/alternate", 404, expect="nobody"),
    ),
    ("POST", SUB + "/alternate"): (
        Request("subscription/s/alternate", json="spare"),
        Request("subscription/s/alternate", 404, json="absent", expect="no exchange"),
    ),
    ("DELETE", SUB + "/alternate"): (
        Request("subscription/s/alternate"),
        Request("subscription/nobody/alternate", 404, expect="nobody"),
    ),
    ("POST", SUB + "/move"): (
        Request("subscription/s/move?to=topic-1&count=2", 200, expect=2),
        Request("subscription/s/move?to=absent", 404, expect="no topic"),
    ),
    ("POST", SUB + "/take"): (
        Request("subscription/s/take", 200, expect=says("message 0")),
        Request("subscription/nobody/take", 404, expect="nobody"),
    ),
    ("POST", SUB + "/reject/{ledger}/{entry}"): (
        Request(f"{T}/rejecting/subscription/s/reject/{{ledger}}/0", 200, expect=True),
        Request("subscription/s/reject/{ledger}/0", 404, expect="alternate exchange"),
    ),
    ("POST", SUB + "/drain"): (
        Request(f"{T}/rejecting/subscription/idle/drain", 200, expect=lambda answer: answer.json >= 0),
        Request("subscription/s/drain", 404, expect="alternate exchange"),
    ),
    **COMPACTION_CASES,
    **DELAY_CASES,
    **LIFE_CASES,
    **LIMIT_CASES,
    **SCHEMA_CASES,
    **PARTITION_CASES,
}


@pytest.fixture(scope="module")
def http() -> Iterator[HttpWorld]:
    """A server with a binary port: it has non-persistent topics."""
    with HttpWorld(wire=True) as world:
        yield world


@pytest.fixture(scope="module", autouse=True)
def beginning(http: HttpWorld) -> None:
    http.topic()
    http.done("PUT", "/admin/v2/tenants/spare", json={})
    for name in ("spare", "other"):
        http.done("PUT", f"/admin/v2/namespaces/public/{name}")
    for name in ("spare", "doomed", "bound"):
        http.done("PUT", f"{X}/{name}")
    http.done("POST", f"{X}/bound/bindings", json={"topic": "topic-1"})
    for name in ("silent", "silent-gone"):
        http.done("PUT", f"{QUIET}/{name}")
    for name, count in (("silent-parted", 3), ("silent-ended", 1)):
        http.done("PUT", f"{QUIET}/{name}/partitions", json=count)
    for name, count in (("parted", 3), ("parted-gone", 1), ("parted-ended", 2)):
        http.done("PUT", f"{T}/{name}/partitions", json=count)
    for name in ("rejecting", "drained"):
        http.done("PUT", f"{T}/{name}")
        http.done("POST", f"{T}/{name}/alternate", json="spare")
    for name in ("typed", "ended"):
        http.ask("POST", f"{S}/{name}/schema", json={"type": "STRING"})
    http.done("PUT", f"{T}/described", json={"a": "b"})
    http.done("PUT", f"{T}/described/subscription/s")
    http.done("PUT", f"{T}/described/subscription/s/properties", json={"a": "b"})
    for name in ("s", "idle", "one", "two"):
        http.done("PUT", f"{T}/rejecting/subscription/{name}")


def test_every_route_has_its_cases() -> None:
    assert set(CASES) == {(route.method, route.path) for route in ROUTES}


@pytest.mark.parametrize("which", ["good", "bad"])
@pytest.mark.parametrize(("method", "path"), CASES, ids=lambda text: text)
def test_paths(http: HttpWorld, method: str, path: str, which: str) -> None:
    request = CASES[method, path][which == "bad"]
    topic = http.topic(messages=5, subscription="s") if "{topic}" in path else ""
    if "{ledger}" in request.path:
        if "rejecting" in request.path:
            topic = f"{T}/rejecting"
            http.publish("rejecting")
        ledger = http.get(f"{topic}/lastMessageId")["ledgerId"]
        request = replace(request, path=request.path.replace("{ledger}", str(ledger)))
    request.ask(http, method, topic)
