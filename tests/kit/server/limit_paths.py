"""A good and a bad request for each route of limits."""

from __future__ import annotations

from typing import Any

from tests.kit.server.http_requests import Request, absent, has

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
NS = "/admin/v2/namespaces/{tenant}/{namespace}"
OTHER = "/admin/v2/namespaces/public/other"
NONE = "/admin/v2/namespaces/public/none"
MOST = (50_000, -1)
PUBLISH = (
    {"publishThrottlingRateInMsg": 50_000, "publishThrottlingRateInByte": -1},
    {"publishThrottlingRateInMsg": -2},
)
DISPATCH = (
    {"dispatchThrottlingRateInMsg": 50_000, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 2},
    {"dispatchThrottlingRateInMsg": "many"},
)
SUBSCRIBE = (
    {"subscribeThrottlingRatePerConsumer": 1000, "ratePeriodInSecond": 10},
    {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 0},
)
QUOTA = (
    {"limitSize": 1 << 40, "policy": "producer_exception"},
    {"limitSize": 1 << 40, "policy": "stop_the_producers"},
)
RATES: dict[str, tuple[Any, Any]] = {
    "publishRate": PUBLISH,
    "dispatchRate": DISPATCH,
    "subscriptionDispatchRate": DISPATCH,
    "subscribeRate": SUBSCRIBE,
}
OF_NAMESPACES: dict[str, tuple[Any, Any]] = {
    **RATES,
    "maxProducersPerTopic": MOST,
    "maxConsumersPerTopic": MOST,
    "maxConsumersPerSubscription": MOST,
    "maxSubscriptionsPerTopic": MOST,
    "maxUnackedMessagesPerConsumer": MOST,
    "maxUnackedMessagesPerSubscription": MOST,
    "maxTopicsPerNamespace": MOST,
}
"""A good and a bad body, by the last part of the path."""
OF_TOPICS: dict[str, tuple[Any, Any]] = {
    **RATES,
    "maxProducers": MOST,
    "maxConsumers": MOST,
    "maxConsumersPerSubscription": MOST,
    "maxSubscriptionsPerTopic": MOST,
    "maxUnackedMessagesOnConsumer": MOST,
    "maxUnackedMessagesOnSubscription": MOST,
    "maxMessageSize": MOST,
}
Cases = dict[tuple[str, str], tuple[Request, Request]]


def missing(path: str, **more: Any) -> Request:
    return Request(f"{NONE}/{path}", 404, expect="no namespace", **more)


def _policies() -> Cases:
    found: Cases = {}
    for name, (good, bad) in OF_NAMESPACES.items():
        place = f"{OTHER}/{name}"
        found["GET", f"{NS}/{name}"] = (Request(place, 200), missing(name))
        found["POST", f"{NS}/{name}"] = (Request(place, json=good), Request(place, 400, json=bad))
        found["DELETE", f"{NS}/{name}"] = (Request(place), missing(name))
    for name, (good, bad) in OF_TOPICS.items():
        found["GET", f"{TOPIC}/{name}"] = (Request(f"{name}?applied=true", 200), absent(name))
        found["POST", f"{TOPIC}/{name}"] = (Request(name, json=good), Request(name, 400, json=bad))
        found["DELETE", f"{TOPIC}/{name}"] = (Request(name), absent(name))
    return found


LIMIT_CASES: Cases = {
    **_policies(),
    # -- backlog quotas
    ("GET", NS + "/backlogQuotaMap"): (Request(f"{OTHER}/backlogQuotaMap", 200), missing("backlogQuotaMap")),
    ("POST", NS + "/backlogQuota"): (
        Request(f"{OTHER}/backlogQuota", json=QUOTA[0]),
        Request(f"{OTHER}/backlogQuota", 400, json=QUOTA[1], expect="policy"),
    ),
    ("DELETE", NS + "/backlogQuota"): (
        Request(f"{OTHER}/backlogQuota?backlogQuotaType=message_age"),
        Request(f"{OTHER}/backlogQuota?backlogQuotaType=count", 400, expect="backlogQuotaType"),
    ),
    ("GET", TOPIC + "/backlogQuotaMap"): (
        Request("backlogQuotaMap?applied=true", 200, expect=has("destination_storage", "message_age")),
        absent("backlogQuotaMap"),
    ),
    ("POST", TOPIC + "/backlogQuota"): (
        Request("backlogQuota?backlogQuotaType=message_age", json={"limitTime": 86_400}),
        Request("backlogQuota", 400, json=QUOTA[1], expect="policy"),
    ),
    ("DELETE", TOPIC + "/backlogQuota"): (Request("backlogQuota"), absent("backlogQuota")),
    ("GET", "/admin/v2/brokers/backlog-quota-check"): (
        Request("/admin/v2/brokers/backlog-quota-check"),
        Request("/admin/v2/brokers/backlog-quota-check", 405, method="POST"),
    ),
    # -- all limits at once
    ("GET", NS + "/limits"): (
        Request(f"{OTHER}/limits", 200, expect=has("producers_max", "publish_rate_bytes")),
        missing("limits"),
    ),
    ("POST", NS + "/limits"): (
        Request(f"{OTHER}/limits", json={"producers_max": 1000, "publish_rate_bytes": None}),
        Request(f"{OTHER}/limits", 412, json={"produce_max": 1}, expect="producers_max"),
    ),
    ("GET", TOPIC + "/limits"): (
        Request("limits?applied=true", 200, expect=has("producers_max", "publish_rate_bytes")),
        absent("limits"),
    ),
    ("POST", TOPIC + "/limits"): (
        Request("limits", json={"producers_max": 1000, "backlog_bytes": None}),
        Request("limits", 412, json={"topics_max": "few"}, expect="the limit topics_max"),
    ),
    ("GET", TOPIC + "/offload"): (
        Request("offload", 200, expect={"status": "NOT_RUN", "lastError": ""}),
        Request("offload", 501, method="PUT", expect="offloading to other storage is not supported"),
    ),
    # -- all policies at once
    ("GET", NS + "/policies"): (
        Request(f"{OTHER}/policies", 200, expect=has("ttl_s", "schema_strategy", "roll_bytes")),
        missing("policies"),
    ),
    ("POST", NS + "/policies"): (
        Request(f"{OTHER}/policies", json={"roll_entries": 1000, "ttl_s": None}),
        Request(f"{OTHER}/policies", 412, json={"ttl": 1}, expect="there is no policy 'ttl'"),
    ),
    ("GET", TOPIC + "/policies"): (
        Request("policies", 200, expect=has("ttl_s", "schema_strategy", "roll_bytes")),
        absent("policies"),
    ),
    ("POST", TOPIC + "/policies"): (
        Request("policies", json={"subscription_types": ["shared"], "roll_entries": None}),
        Request("policies", 412, json={"subscription_types": ["all"]}, expect="subscription_types"),
    ),
}
