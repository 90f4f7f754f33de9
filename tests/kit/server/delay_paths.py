"""A good and a bad request for each route of delivery times."""

from __future__ import annotations

from tests.kit.server.http_requests import Request, absent

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
NS = "/admin/v2/namespaces/{tenant}/{namespace}"
OURS = "/admin/v2/namespaces/public/default/delayedDelivery"
NONE = "/admin/v2/namespaces/public/none/delayedDelivery"
TICK = {"active": True, "tickTime": 1000}

DELAY_CASES: dict[tuple[str, str], tuple[Request, Request]] = {
    ("GET", NS + "/delayedDelivery"): (Request(OURS, 200), Request(NONE, 404, expect="no namespace")),
    ("POST", NS + "/delayedDelivery"): (
        Request(OURS, json=TICK),
        Request(OURS, 400, json={"tickTime": "soon"}),
    ),
    ("DELETE", NS + "/delayedDelivery"): (Request(OURS), Request(NONE, 404, expect="no namespace")),
    ("GET", TOPIC + "/delayedDelivery"): (Request("delayedDelivery", 200), absent("delayedDelivery")),
    ("POST", TOPIC + "/delayedDelivery"): (
        Request("delayedDelivery", json=TICK),
        absent("delayedDelivery", json=TICK),
    ),
    ("DELETE", TOPIC + "/delayedDelivery"): (Request("delayedDelivery"), absent("delayedDelivery")),
}
