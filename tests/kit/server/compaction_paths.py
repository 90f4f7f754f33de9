"""A good and a bad request for each route of compaction."""

from __future__ import annotations

from tests.kit.server.http_requests import Request, absent, has

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
NS = "/admin/v2/namespaces/{tenant}/{namespace}"
OTHER = "/admin/v2/namespaces/public/other"
NONE = "/admin/v2/namespaces/public/none/compactionThreshold"
THRESHOLD = "compactionThreshold"

COMPACTION_CASES: dict[tuple[str, str], tuple[Request, Request]] = {
    ("PUT", TOPIC + "/compaction"): (Request("compaction"), absent("compaction")),
    ("GET", TOPIC + "/compaction"): (
        Request("compaction", 200, expect=has("status", "lastError", "horizon", "threshold")),
        absent("compaction"),
    ),
    ("DELETE", TOPIC + "/compaction"): (Request("compaction"), absent("compaction")),
    ("GET", TOPIC + f"/{THRESHOLD}"): (
        Request(f"{THRESHOLD}?applied=true", 200, expect=0),
        absent(THRESHOLD),
    ),
    ("POST", TOPIC + f"/{THRESHOLD}"): (
        Request(THRESHOLD, json=100_000),
        Request(THRESHOLD, 400, json=-1, expect=">= 0"),
    ),
    ("DELETE", TOPIC + f"/{THRESHOLD}"): (Request(THRESHOLD), absent(THRESHOLD)),
    ("GET", NS + f"/{THRESHOLD}"): (
        Request(f"{OTHER}/{THRESHOLD}", 200),
        Request(NONE, 404, expect="no namespace"),
    ),
    ("PUT", NS + f"/{THRESHOLD}"): (
        Request(f"{OTHER}/{THRESHOLD}", json=0),
        Request(f"{OTHER}/{THRESHOLD}", 400, json="10M", expect="int"),
    ),
    ("DELETE", NS + f"/{THRESHOLD}"): (
        Request(f"{OTHER}/{THRESHOLD}"),
        Request(NONE, 404, expect="no namespace"),
    ),
}
