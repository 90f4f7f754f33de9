"""A good and a bad request for each route of schemas."""

from __future__ import annotations

from tests.kit.server.http_requests import Request, absent, has

TOPIC = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
NS = "/admin/v2/namespaces/{tenant}/{namespace}"
SCHEMA = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
S = "/admin/v2/schemas/public/default"
OURS = "/admin/v2/namespaces/public/default"
NONE = "/admin/v2/namespaces/public/none"

SCHEMA_CASES: dict[tuple[str, str], tuple[Request, Request]] = {
    ("GET", SCHEMA + "/schema"): (
        Request(f"{S}/typed/schema", 200, expect=has("version", "type", "data", "properties")),
        Request(f"{S}/absent/schema", 404, expect="no topic"),
    ),
    ("GET", SCHEMA + "/schema/{version}"): (
        Request(f"{S}/typed/schema/0", 200, expect=has("version", "type")),
        Request(f"{S}/typed/schema/99", 404, expect="no schema of version 99"),
    ),
    ("GET", SCHEMA + "/schemas"): (
        Request(f"{S}/typed/schemas", 200, expect=has("getSchemaResponses")),
        Request(f"{S}/absent/schemas", 404, expect="no topic"),
    ),
    ("GET", SCHEMA + "/metadata"): (
        Request(f"{S}/typed/metadata", 200, expect=has("info", "index")),
        Request(f"{S}/absent/metadata", 404, expect="no topic"),
    ),
    ("POST", SCHEMA + "/schema"): (
        Request(f"{S}/typed/schema", 200, json={"type": "STRING"}, expect={"version": {"version": 0}}),
        Request(f"{S}/typed/schema", 409, json={"type": "INT32"}, expect="messages of type STRING"),
    ),
    ("DELETE", SCHEMA + "/schema"): (
        Request(f"{S}/ended/schema", 200, expect={"version": {"version": 1}}),
        Request(f"{S}/typed/schema?force=true", 412, expect="delete the topic"),
    ),
    ("POST", SCHEMA + "/compatibility"): (
        Request(f"{S}/typed/compatibility", 200, json={"type": "STRING"}, expect=has("compatibility")),
        Request(f"{S}/typed/compatibility", 422, json={"type": "XML"}, expect="'XML'"),
    ),
    ("POST", SCHEMA + "/version"): (
        Request(f"{S}/typed/version", 200, json={"type": "STRING"}, expect={"version": {"version": 0}}),
        Request(f"{S}/typed/version", 404, json={"type": "INT32"}, expect="does not have this schema"),
    ),
    ("GET", NS + "/schemaCompatibilityStrategy"): (
        Request(f"{OURS}/schemaCompatibilityStrategy", 200),
        Request(f"{NONE}/schemaCompatibilityStrategy", 404, expect="no namespace"),
    ),
    ("PUT", NS + "/schemaCompatibilityStrategy"): (
        Request(f"{OURS}/schemaCompatibilityStrategy", json="BACKWARD"),
        Request(f"{OURS}/schemaCompatibilityStrategy", 400, json="SIDEWAYS"),
    ),
    ("DELETE", NS + "/schemaCompatibilityStrategy"): (
        Request(f"{OURS}/schemaCompatibilityStrategy"),
        Request(f"{NONE}/schemaCompatibilityStrategy", 404, expect="no namespace"),
    ),
    ("GET", NS + "/schemaAutoUpdateCompatibilityStrategy"): (
        Request(f"{OURS}/schemaAutoUpdateCompatibilityStrategy", 200),
        Request(f"{NONE}/schemaAutoUpdateCompatibilityStrategy", 404, expect="no namespace"),
    ),
    ("PUT", NS + "/schemaAutoUpdateCompatibilityStrategy"): (
        Request(f"{OURS}/schemaAutoUpdateCompatibilityStrategy", json="BackwardTransitive"),
        Request(f"{OURS}/schemaAutoUpdateCompatibilityStrategy", 400, json="BACKWARD"),
    ),
    **{
        (method, f"{NS}/{rule}"): cases
        for rule in ("isAllowAutoUpdateSchema", "schemaValidationEnforced")
        for method, cases in {
            "GET": (
                Request(f"{OURS}/{rule}", 200),
                Request(f"{NONE}/{rule}", 404, expect="no namespace"),
            ),
            "POST": (Request(f"{OURS}/{rule}", json=False), Request(f"{OURS}/{rule}", 400, json=5)),
        }.items()
    },
    ("PUT", TOPIC + "/schemaCompatibilityStrategy"): (
        Request("schemaCompatibilityStrategy", json="FORWARD"),
        absent("schemaCompatibilityStrategy", json="FULL"),
    ),
    ("DELETE", TOPIC + "/schemaCompatibilityStrategy"): (
        Request("schemaCompatibilityStrategy"),
        absent("schemaCompatibilityStrategy"),
    ),
    ("POST", TOPIC + "/schemaValidationEnforced"): (
        Request("schemaValidationEnforced", json=True),
        absent("schemaValidationEnforced", json=True),
    ),
}
