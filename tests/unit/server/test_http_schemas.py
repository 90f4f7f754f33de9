"""Schemas over HTTP: versions, strategies, and the rules of namespaces and topics."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.server.http_world import HttpWorld, T, http

__all__ = ["http"]

S = "/admin/v2/schemas/public/default"
NS = "/admin/v2/namespaces/public/default"
AS_JSON = {"Content-Type": "application/json"}


def avro(*fields: tuple[str, Any], **more: Any) -> dict[str, Any]:
    made = [{"name": name, "type": type_, **more} for name, type_ in fields]
    return {
        "type": "AVRO",
        "schema": json.dumps({"type": "record", "name": "Order", "fields": made}),
        "properties": {"by": "test"},
    }


ONE = avro(("x", "int"))
TWO = avro(("x", "int"), ("y", "string"))


def name(path: str) -> str:
    return path.rpartition("/")[2]


def test_from_the_first_to_the_last(http: HttpWorld) -> None:
    at = f"{S}/{name(http.topic())}"
    assert http.ask("GET", f"{at}/schema").status == 404
    assert http.ask("GET", f"{at}/metadata").status == 404
    assert http.ask("POST", f"{at}/schema", json=ONE).json == {"version": {"version": 0}}
    assert http.ask("POST", f"{at}/schema", json=ONE).json == {"version": {"version": 0}}
    answer = http.get(f"{at}/schema")
    assert (answer["type"], answer["data"], answer["properties"]) == ("AVRO", ONE["schema"], {"by": "test"})
    refused = http.ask("POST", f"{at}/schema", json=TWO)
    assert refused.status == 409
    assert "(FULL)" in refused.reason
    assert "field y" in refused.reason
    told = http.ask("POST", f"{at}/compatibility", json=TWO).json
    assert (told["compatibility"], told["schemaCompatibilityStrategy"]) == (False, "FULL")
    assert "field y" in told["reason"]
    assert http.ask("POST", f"{at}/version", json=TWO).status == 404
    assert http.ask("POST", f"{at}/version", json=ONE).json == {"version": {"version": 0}}
    assert http.ask("DELETE", f"{at}/schema?force=true").status == 412
    assert http.ask("DELETE", f"{at}/schema").json == {"version": {"version": 1}}
    assert http.ask("DELETE", f"{at}/schema").status == 404
    assert http.ask("GET", f"{at}/schema/1").status == 404, "a deletion is not a schema"
    assert http.ask("POST", f"{at}/schema", json=TWO).json == {"version": {"version": 2}}
    assert [each["version"] for each in http.get(f"{at}/schemas")["getSchemaResponses"]] == [2]
    assert http.get(f"{at}/schema/0")["data"] == ONE["schema"], "messages of this version are still there"
    entries = [{"ledgerId": -1, "entryId": -1, "version": version} for version in range(3)]
    assert http.get(f"{at}/metadata") == {"info": entries[2], "index": entries}


def test_a_topic_is_created_for_its_schema(http: HttpWorld) -> None:
    http.ask("POST", f"{S}/made-for-a-schema/schema", json=ONE)
    assert http.get(f"{T}/made-for-a-schema/stats")["storageSize"] == 0


def test_partitions_share_their_schemas(http: HttpWorld) -> None:
    full = "persistent://public/default/in-parts"
    http.run(http.broker.partitioned.create(full, 3))
    assert http.ask("POST", f"{S}/in-parts/schema", json=ONE).json == {"version": {"version": 0}}
    assert http.get(f"{S}/in-parts-partition-2/schema")["data"] == ONE["schema"]
    assert http.ask("POST", f"{S}/in-parts-partition-1/schema", json=TWO).status == 409
    assert http.ask("DELETE", f"{S}/in-parts/schema").json == {"version": {"version": 1}}
    assert http.ask("GET", f"{S}/in-parts-partition-2/schema").status == 404


def test_pairs(http: HttpWorld) -> None:
    at = f"{S}/{name(http.topic())}"
    body = {
        "type": "KEY_VALUE",
        "schema": json.dumps({"key": "", "value": json.loads(ONE["schema"])}),
        "properties": {"key.schema.type": "STRING", "value.schema.type": "AVRO"},
    }
    assert http.ask("POST", f"{at}/schema", json=body).json == {"version": {"version": 0}}
    assert json.loads(http.get(f"{at}/schema")["data"])["value"]["name"] == "Order"
    body["schema"] = json.dumps({"key": "", "value": json.loads(TWO["schema"])})
    assert "value: field y" in http.ask("POST", f"{at}/schema", json=body).reason


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"type": "XML"}, 422, "there is no type 'XML' of schemas; there are: AUTO_CONSUME, AVRO"),
        ({"type": "AVRO", "schema": "{"}, 422, "not valid as Avro"),
        ({"type": "STRING", "schema": "long"}, 422, "has no definition"),
        ({"type": "KEY_VALUE", "schema": "[]"}, 422, "as JSON"),
        ({"type": "KEY_VALUE", "schema": r'{"key": "\ud800", "value": ""}'}, 422, "not Unicode"),
        ({"schema": ""}, 400, "type"),
    ],
)
def test_bad_requests(http: HttpWorld, body: dict[str, Any], status: int, words: str) -> None:
    at = f"{S}/{name(http.topic())}"
    for path in ("schema", "compatibility", "version"):
        answer = http.ask("POST", f"{at}/{path}", json=body)
        assert answer.status == status
        assert words in answer.reason
    assert http.ask("GET", f"{at}/schema/-1").status == 412
    assert http.ask("GET", f"{S}/missing/schema").status == 404


def test_sizes(http: HttpWorld) -> None:
    """A definition that is too large is refused before it is parsed."""
    at, fields = f"{S}/{name(http.topic())}", [{"name": f"f{n}", "type": "int"} for n in range(6000)]
    many = json.dumps({"type": "record", "name": "Order", "fields": fields})
    deep: Any = "int"
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    for definition, status, words in (
        ("x" * ((1 << 20) + 1), 413, "limits.http_body_bytes"),
        (many, 422, "parts or more; at most 5,000 are allowed"),
        (json.dumps(deep), 422, "nested too deeply"),
    ):
        for path in ("schema", "compatibility", "version"):
            body = io.BytesIO(json.dumps({"type": "AVRO", "schema": definition}).encode())
            answer = http.ask("POST", f"{at}/{path}", data=body, headers=AS_JSON)
            assert (answer.status, words in answer.reason) == (status, True), answer.reason
    assert http.ask("GET", f"{at}/schema").status == 404


def test_the_topic_decides_before_its_namespace(http: HttpWorld) -> None:
    topic = http.topic()
    at, own = f"{S}/{name(topic)}", f"{topic}/schemaCompatibilityStrategy"
    http.ask("POST", f"{at}/schema", json=ONE)
    assert http.get(f"{own}?applied=true") == "FULL"
    http.done("PUT", f"{NS}/schemaCompatibilityStrategy", json="FORWARD")
    try:
        assert (http.get(own), http.get(f"{own}?applied=true")) == (None, "FORWARD")
        assert http.ask("POST", f"{at}/compatibility", json=TWO).json["compatibility"] is True
        http.done("PUT", own, json="BACKWARD")
        assert http.ask("POST", f"{at}/compatibility", json=TWO).json["compatibility"] is False
        assert http.ask("PUT", own, json="SIDEWAYS").status == 400
        http.done("DELETE", own)
        assert http.ask("POST", f"{at}/schema", json=TWO).json == {"version": {"version": 1}}
    finally:
        http.done("DELETE", f"{NS}/schemaCompatibilityStrategy")
    assert http.get(f"{NS}/schemaCompatibilityStrategy") is None


def test_a_strategy_is_removed_as_the_tools_of_pulsar_do_it(http: HttpWorld) -> None:
    """They have no other request for a namespace than to set UNDEFINED."""
    topic = http.topic()
    for at in (NS, topic):
        http.done("PUT", f"{at}/schemaCompatibilityStrategy", json="BACKWARD")
        http.done("PUT", f"{at}/schemaCompatibilityStrategy", json="UNDEFINED")
        assert http.get(f"{at}/schemaCompatibilityStrategy") is None
    assert http.get(f"{topic}/schemaCompatibilityStrategy?applied=true") == "FULL"


def test_the_older_name_of_the_strategy(http: HttpWorld) -> None:
    older, newer = (f"{NS}/schema{name}CompatibilityStrategy" for name in ("AutoUpdate", ""))
    pairs = {
        "AutoUpdateDisabled": "ALWAYS_INCOMPATIBLE",
        "AlwaysCompatible": "ALWAYS_COMPATIBLE",
        **{
            name + more: (name + ("_" + more if more else "")).upper()
            for name in ("Backward", "Forward", "Full")
            for more in ("", "Transitive")
        },
    }
    assert http.get(older) is None
    try:
        for old, new in pairs.items():
            http.done("PUT", older, json=old)
            assert (http.get(newer), http.get(older)) == (new, old)
        assert http.ask("PUT", older, json="FULL").status == 400
    finally:
        http.done("DELETE", newer)
    assert http.get(older) is None


def test_the_options_of_the_broker_stand_in(http: HttpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    rules: dict[str, Any] = {
        "schema_strategy": "BACKWARD",
        "schema_auto_update": False,
        "schema_enforced": True,
    }
    monkeypatch.setattr(http.broker, "options", replace(http.broker.options, **rules))
    strategy = f"{NS}/schemaCompatibilityStrategy"
    assert (http.get(strategy), http.get(f"{strategy}?applied=true")) == (None, "BACKWARD")
    assert http.get(f"{NS}/isAllowAutoUpdateSchema") is False
    enforced = f"{NS}/schemaValidationEnforced"
    assert (http.get(enforced), http.get(f"{enforced}?applied=true")) == (False, True)
    assert http.get(f"{http.topic()}/schemaValidationEnforced?applied=true") is True
    http.done("PUT", strategy, json="FORWARD")
    try:
        assert http.get(f"{strategy}?applied=true") == "FORWARD"
    finally:
        http.done("DELETE", strategy)


def test_rules_for_producers(http: HttpWorld) -> None:
    topic = http.topic()
    assert (http.get(f"{NS}/isAllowAutoUpdateSchema"), http.get(f"{NS}/schemaValidationEnforced")) == (
        True,
        False,
    )
    for path, of in (("isAllowAutoUpdateSchema", "auto_update"), ("schemaValidationEnforced", "enforced")):
        before = http.get(f"{NS}/{path}")
        http.done("POST", f"{NS}/{path}", json=not before)
        assert http.get(f"{NS}/{path}") is not before, of
        http.done("POST", f"{NS}/{path}", json=before)
    assert http.get(f"{topic}/schemaValidationEnforced") is None
    http.done("POST", f"{topic}/schemaValidationEnforced", json=True)
    assert http.get(f"{topic}/schemaValidationEnforced?applied=true") is True
