"""A good and a bad request for each route of lives, permissions, properties and clusters."""

from __future__ import annotations

from typing import Any

from tests.kit.server.http_requests import Request, absent, says
from tests.kit.server.http_world import T

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
NS = "/admin/v2/namespaces/{tenant}/{namespace}"
SUB = TOPIC + "/subscription/{subscription}"
OURS = "/admin/v2/namespaces/public/default"
NONE = "/admin/v2/namespaces/public/none"
INACTIVE = {
    "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
    "maxInactiveDurationSeconds": 86_400,
    "deleteWhileInactive": True,
}

POLICIES: dict[str, tuple[Any, Any]] = {
    "subscriptionExpirationTime": (1440, -1),
    "inactiveTopicPolicies": (INACTIVE, {"inactiveTopicDeleteMode": "soon"}),
    "autoSubscriptionCreation": ({"allowAutoSubscriptionCreation": True}, {}),
    "subscriptionTypesEnabled": (["Shared", "Exclusive", "Failover", "Key_Shared"], ["Broadcast"]),
}
"""A good and a bad body for each policy that namespaces and topics have."""


def _policies() -> dict[tuple[str, str], tuple[Request, Request]]:
    found = {}
    for name, (good, bad) in POLICIES.items():
        missing = Request(f"{NONE}/{name}", 404, expect="no namespace")
        found["GET", f"{NS}/{name}"] = (Request(f"{OURS}/{name}", 200), missing)
        found["POST", f"{NS}/{name}"] = (
            Request(f"{OURS}/{name}", json=good),
            Request(f"{OURS}/{name}", 400, json=bad),
        )
        found["DELETE", f"{NS}/{name}"] = (Request(f"{OURS}/{name}"), missing)
        found["GET", f"{TOPIC}/{name}"] = (Request(f"{name}?applied=true", 200), absent(name))
        found["POST", f"{TOPIC}/{name}"] = (Request(name, json=good), absent(name, json=good))
        found["DELETE", f"{TOPIC}/{name}"] = (Request(name), absent(name))
    return found


def missing(path: str, **more: Any) -> Request:
    return Request(f"{NONE}/{path}", 404, expect="no namespace", **more)


LIFE_CASES: dict[tuple[str, str], tuple[Request, Request]] = {
    **_policies(),
    # -- permissions
    ("GET", NS + "/permissions"): (Request(f"{OURS}/permissions", 200), missing("permissions")),
    ("GET", NS + "/permissions/subscription"): (
        Request(f"{OURS}/permissions/subscription", 200),
        missing("permissions/subscription"),
    ),
    ("POST", NS + "/permissions/subscription/{subscription}"): (
        Request(f"{OURS}/permissions/subscription/audit", json=["auditor"]),
        missing("permissions/subscription/audit", json=["auditor"]),
    ),
    ("POST", NS + "/permissions/{role}"): (
        Request(f"{OURS}/permissions/billing", json=["consume", "functions"]),
        Request(f"{OURS}/permissions/billing", 400, json=["admin"]),
    ),
    ("DELETE", NS + "/permissions/{role}"): (
        Request(f"{OURS}/permissions/nobody"),
        missing("permissions/nobody"),
    ),
    ("DELETE", NS + "/permissions/{subscription}/{role}"): (
        Request(f"{OURS}/permissions/audit/auditor"),
        missing("permissions/audit/auditor"),
    ),
    ("GET", NS + "/subscriptionAuthMode"): (
        Request(f"{OURS}/subscriptionAuthMode", 200, expect="None"),
        missing("subscriptionAuthMode"),
    ),
    ("POST", NS + "/subscriptionAuthMode"): (
        Request(f"{OURS}/subscriptionAuthMode", json="None"),
        Request(f"{OURS}/subscriptionAuthMode", 400, json="Suffix"),
    ),
    ("GET", TOPIC + "/permissions"): (
        Request("permissions", 200),
        Request("/admin/v2/persistent/no/where/orders/permissions", 404, expect="no/where"),
    ),
    ("POST", TOPIC + "/permissions/{role}"): (
        Request("permissions/billing", json=["produce"]),
        Request("permissions/billing", 400, json=["publish"]),
    ),
    ("DELETE", TOPIC + "/permissions/{role}"): (
        Request("permissions/billing"),
        Request(f"{T}/orders-partition-3/permissions/{'r' * 1025}", 412, expect="a role"),
    ),
    # -- properties
    ("GET", NS + "/properties"): (Request(f"{OURS}/properties", 200), missing("properties")),
    ("PUT", NS + "/properties"): (
        Request(f"{OURS}/properties", json={"kept": "yes"}),
        Request(f"{OURS}/properties", 400, json=["a"]),
    ),
    ("DELETE", NS + "/properties"): (
        Request("/admin/v2/namespaces/public/other/properties"),
        missing("properties"),
    ),
    ("PUT", NS + "/property/{key}/{value}"): (
        Request(f"{OURS}/property/owner/shop"),
        missing("property/owner/shop"),
    ),
    ("GET", NS + "/property/{key}"): (
        Request(f"{OURS}/property/kept", 200, expect=says("yes")),
        Request(f"{OURS}/property/lost", 404, expect="no property"),
    ),
    ("DELETE", NS + "/property/{key}"): (
        Request(f"{OURS}/property/owner", 200, expect=says("shop")),
        Request(f"{OURS}/property/lost", 404, expect="no property"),
    ),
    ("GET", TOPIC + "/properties"): (Request("properties", 200, expect={}), absent("properties")),
    ("PUT", TOPIC + "/properties"): (
        Request("properties", json={"a": "b"}),
        absent("properties", json={"a": "b"}),
    ),
    ("DELETE", TOPIC + "/properties"): (
        Request(f"{T}/described/properties?key=a"),
        Request("properties?key=lost", 404, expect="no property"),
    ),
    ("GET", SUB + "/properties"): (
        Request("subscription/s/properties", 200, expect={}),
        Request("subscription/nobody/properties", 404, expect="nobody"),
    ),
    ("PUT", SUB + "/properties"): (
        Request("subscription/s/properties", json={"a": "b"}),
        Request("subscription/nobody/properties", 404, json={"a": "b"}, expect="nobody"),
    ),
    ("DELETE", SUB + "/properties"): (
        Request(f"{T}/described/subscription/s/properties?key=a"),
        Request("subscription/s/properties", 412, expect="?key=NAME"),
    ),
    # -- the one cluster
    ("GET", NS + "/replication"): (
        Request(f"{OURS}/replication", 200, expect=["standalone"]),
        missing("replication"),
    ),
    ("POST", NS + "/replication"): (
        Request(f"{OURS}/replication", json=["standalone"]),
        Request(f"{OURS}/replication", 412, json=["standalone", "far"], expect="far: replication between"),
    ),
    ("GET", NS + "/allowedClusters"): (
        Request(f"{OURS}/allowedClusters", 200, expect=["standalone"]),
        missing("allowedClusters"),
    ),
    ("POST", NS + "/allowedClusters"): (
        Request(f"{OURS}/allowedClusters", json=["standalone"]),
        Request(f"{OURS}/allowedClusters", 412, json=["far"], expect="belongs to the cluster standalone"),
    ),
    ("GET", TOPIC + "/replication"): (
        Request("replication", 200, expect=["standalone"]),
        absent("replication"),
    ),
    ("POST", TOPIC + "/replication"): (
        Request("replication", json=["standalone"]),
        Request("replication", 412, json=["far"], expect="far: replication between"),
    ),
    ("DELETE", TOPIC + "/replication"): (Request("replication"), absent("replication")),
}
