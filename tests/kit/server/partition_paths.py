"""Requests to the paths of partitioned and non-persistent topics."""

from __future__ import annotations

from tests.kit.server.http_requests import Request, absent, has, says
from tests.kit.server.http_world import T

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
SILENT_NS = "/admin/v2/non-persistent/{tenant}/{namespace}"
SILENT = SILENT_NS + "/{topic}"
QUIET = "/admin/v2/non-persistent/public/default"

PARTITION_CASES: dict[tuple[str, str], tuple[Request, Request]] = {
    # -- non-persistent topics: `silent` exists, `silent-parted` has three partitions
    ("GET", SILENT_NS): (
        Request(QUIET, 200, expect=says("silent-parted-partition-2")),
        Request("/admin/v2/non-persistent/no/where", 404, expect="no/where"),
    ),
    ("GET", SILENT_NS + "/partitioned"): (
        Request(f"{QUIET}/partitioned", 200, expect=says("silent-parted")),
        Request("/admin/v2/non-persistent/no/where/partitioned", 404, expect="no/where"),
    ),
    ("PUT", SILENT): (
        Request(f"{QUIET}/silent-new"),
        Request(f"{QUIET}/silent", 409, expect="exists already"),
    ),
    ("DELETE", SILENT): (
        Request(f"{QUIET}/silent-gone"),
        Request(f"{QUIET}/absent", 404, expect="there is no topic"),
    ),
    ("PUT", SILENT + "/unload"): (
        Request(f"{QUIET}/silent/unload"),
        Request(f"{QUIET}/absent/unload", 404, expect="there is no topic"),
    ),
    ("GET", SILENT + "/subscriptions"): (
        Request(f"{QUIET}/silent/subscriptions", 200, expect=[]),
        Request(f"{QUIET}/absent/subscriptions", 404, expect="there is no topic"),
    ),
    ("GET", SILENT + "/stats"): (
        Request(f"{QUIET}/silent/stats", 200, expect=has("msgDropRate", "publishers", "subscriptions")),
        Request(f"{QUIET}/absent/stats", 404, expect="there is no topic"),
    ),
    ("GET", SILENT + "/partitions"): (
        Request(f"{QUIET}/silent-parted/partitions", 200, expect={"partitions": 3, "deleted": False}),
        Request("/admin/v2/non-persistent/no/where/x/partitions", 404, expect="no/where"),
    ),
    ("PUT", SILENT + "/partitions"): (
        Request(f"{QUIET}/silent-more/partitions", json=2),
        Request(f"{QUIET}/silent/partitions", 409, json=2, expect="exists already"),
    ),
    ("POST", SILENT + "/partitions"): (
        Request(f"{QUIET}/silent-parted/partitions", json=3),
        Request(f"{QUIET}/silent-parted/partitions", 422, json=1, expect="cannot have fewer"),
    ),
    ("DELETE", SILENT + "/partitions"): (
        Request(f"{QUIET}/silent-ended/partitions"),
        Request(f"{QUIET}/absent/partitions", 404, expect="no partitioned topic"),
    ),
    ("GET", SILENT + "/partitioned-stats"): (
        Request(f"{QUIET}/silent-parted/partitioned-stats", 200, expect=has("partitions", "msgDropRate")),
        Request(f"{QUIET}/silent/partitioned-stats", 404, expect="no partitioned topic"),
    ),
    ("GET", "/lookup/v2/topic/non-persistent/{tenant}/{namespace}/{topic}"): (
        Request(
            "/lookup/v2/topic/non-persistent/public/default/x", 200, expect=has("brokerUrl", "nativeUrl")
        ),
        Request("/lookup/v2/topic/non-persistent/no/where/x", 404, expect="no/where"),
    ),
    # -- partitioned topics: `parted` has three partitions
    ("PUT", TOPIC + "/partitions"): (
        Request(f"{T}/parted-new/partitions", json=2),
        Request("partitions", 409, json=2, expect="exists already"),
    ),
    ("POST", TOPIC + "/partitions"): (
        Request(f"{T}/parted/partitions", json=3),
        Request(f"{T}/parted/partitions", 422, json=1, expect="cannot have fewer"),
    ),
    ("DELETE", TOPIC + "/partitions"): (
        Request(f"{T}/parted-gone/partitions"),
        absent("partitions", expect="no partitioned topic"),
    ),
    ("POST", TOPIC + "/createMissedPartitions"): (
        Request(f"{T}/parted/createMissedPartitions"),
        absent("createMissedPartitions", expect="no partitioned topic"),
    ),
    ("POST", TOPIC + "/terminate/partitions"): (
        Request(f"{T}/parted-ended/terminate/partitions", 200, expect=has("0", "1")),
        absent("terminate/partitions", expect="no partitioned topic"),
    ),
    ("GET", TOPIC + "/partitioned-stats"): (
        Request(f"{T}/parted/partitioned-stats", 200, expect=has("partitions", "metadata", "msgRateIn")),
        Request("partitioned-stats", 404, expect="no partitioned topic"),
    ),
    ("GET", TOPIC + "/partitioned-internalStats"): (
        Request(f"{T}/parted/partitioned-internalStats", 200, expect=has("partitions", "metadata")),
        Request("partitioned-internalStats", 404, expect="no partitioned topic"),
    ),
}
