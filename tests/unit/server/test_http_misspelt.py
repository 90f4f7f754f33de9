"""Requests with parts that have no effect are refused; none is dropped in silence."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from holdfast.errors import LimitReached, Misuse
from holdfast.server.http.answers import CursorPosition, PartitionsBody, SchemaBody
from holdfast.server.http.limit_answers import BacklogQuota, quota_policies
from holdfast.server.http.server import ROUTES
from tests.kit.server.http_world import HttpWorld, T, http

__all__ = ["http"]

NS = "/admin/v2/namespaces/public/default"
LENIENT = {CursorPosition, PartitionsBody, SchemaBody}
"""Newer tools of Pulsar write more fields here: those of a message id, of stored metadata."""


def test_bodies_take_no_unknown_field() -> None:
    given = {each for route in ROUTES for each in (route.body, *get_args(route.body))}
    structs = {each for each in given if isinstance(each, type) and issubclass(each, msgspec.Struct)}
    assert len(structs) > 10
    assert {each for each in structs if not each.__struct_config__.forbid_unknown_fields} == LENIENT


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("publishRate", {"publishThrotlingRateInMsg": 10}),
        ("retention", {"retentionTimeInMinutes": 5, "retentionSizeInMB": 5, "more": 1}),
        ("inactiveTopicPolicies", {"deleteWhileInactve": True}),
        ("backlogQuota", {"limitsize": 5, "policy": "producer_exception"}),
    ],
)
def test_a_misspelt_field(http: HttpWorld, path: str, body: dict[str, Any]) -> None:
    for base in (http.topic(), NS):
        answer = http.ask("POST", f"{base}/{path}", json=body)
        assert answer.status == 400
        assert "unknown field" in answer.reason


@pytest.mark.parametrize(
    ("which", "body"),
    [
        ("destination_storage", {}),
        ("destination_storage", {"limitTime": 60}),
        ("message_age", {"limitSize": 1000}),
        ("message_age", {"limit": 1000}),
    ],
)
def test_a_quota_without_its_limit(http: HttpWorld, which: str, body: dict[str, Any]) -> None:
    for base in (http.topic(), NS):
        answer = http.ask("POST", f"{base}/backlogQuota?backlogQuotaType={which}", json=body)
        assert answer.status == 412
        assert which in answer.reason
        assert http.get(f"{base}/backlogQuotaMap") == {}


def test_a_quota_by_either_name() -> None:
    for quota in (BacklogQuota(limit=7), BacklogQuota(limit_size=7), BacklogQuota(limit=7, limit_size=-1)):
        assert quota_policies(quota, "destination_storage")["backlog_bytes"] == 7
    assert quota_policies(BacklogQuota(limit_size=-1), "destination_storage")["backlog_bytes"] == 0
    with pytest.raises(Misuse):
        quota_policies(BacklogQuota(), "message_age")


def test_a_time_to_live_in_the_body(http: HttpWorld) -> None:
    """Pulsar takes it in the query; a body must not mean: never."""
    topic = http.topic()
    http.done("POST", f"{NS}/messageTTL", json=60)
    for path, more in (("", {"json": 90}), ("", {}), ("?ttl=90", {})):
        answer = http.ask("POST", f"{topic}/messageTTL{path}", **more)
        assert answer.status == 400
        assert "?messageTTL=SECONDS" in answer.reason
    assert http.get(f"{topic}/messageTTL") is None
    assert http.get(f"{topic}/messageTTL?applied=true") == 60
    http.done("POST", f"{topic}/messageTTL?messageTTL=0")
    assert http.get(f"{topic}/messageTTL?applied=true") == 0
    assert http.get(f"{topic}/policies")["ttl_s"] == {"own": 0.0, "applied": 0.0, "level": "topic"}
    http.done("DELETE", f"{NS}/messageTTL")


def test_a_policy_of_namespaces_only(http: HttpWorld) -> None:
    topic = http.topic()
    for path in ("policies", "limits"):
        answer = http.ask("POST", f"{topic}/{path}", json={"topics_max": 5})
        assert answer.status == 412
        assert "topics_max" in answer.reason
        http.done("POST", f"{NS}/{path}", json={"topics_max": 1000})
    http.done("POST", f"{NS}/limits", json={"topics_max": None})
    http.done("POST", f"{topic}/policies", json={"topics_max": None})


def test_a_tenant_of_another_cluster(http: HttpWorld) -> None:
    path = "/admin/v2/tenants/shop"
    for method in ("PUT", "POST"):
        answer = http.ask(method, path, json={"allowedClusters": ["far"]})
        assert answer.status == 412
        assert "far: replication" in answer.reason
        http.done(method, path, json={"adminRoles": ["anna"], "allowedClusters": ["standalone"]})
    assert http.get(path)["allowedClusters"] == ["standalone"]


def test_a_position_without_an_entry(http: HttpWorld) -> None:
    """A misspelt name must not mean: from the first message."""
    topic = http.topic(messages=5, subscription="s")
    http.done("POST", f"{topic}/subscription/s/skip/3")
    for body in ({}, {"ledgerID": 1, "entryId": 4}, {"ledgerId": 1}):
        assert http.ask("POST", f"{topic}/subscription/s/resetcursor", json=body).status == 400
        assert http.ask("PUT", f"{topic}/subscription/new", json=body).status == 400
    assert http.backlog(topic) == 2


def test_a_position_as_tools_of_pulsar_write_it(http: HttpWorld) -> None:
    """Java writes `excluded`; a new subscription has its properties there."""
    topic = http.topic(messages=5, subscription="s")
    ledger = http.get(f"{topic}/internalStats")["ledgers"][0]["ledgerId"]
    place = {"ledgerId": ledger, "entryId": 2, "partitionIndex": -1, "batchIndex": -1, "excluded": True}
    http.done("POST", f"{topic}/subscription/s/resetcursor", json=place)
    assert http.backlog(topic) == 2
    http.done("PUT", f"{topic}/subscription/new", json={**place, "properties": {"for": "invoices"}})
    assert http.backlog(topic, "new") == 2
    assert http.get(f"{topic}/subscription/new/properties") == {"for": "invoices"}


def test_a_subscription_whose_properties_are_refused(
    http: HttpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **more: object) -> None:
        raise LimitReached("properties: 9000 bytes; at most 8192 are possible (limits.properties_bytes)")

    monkeypatch.setattr(http.broker.admin, "set_subscription_properties", refused)
    topic, body = http.topic(), {"ledgerId": -1, "entryId": -1, "properties": {"long": "x"}}
    answer = http.ask("PUT", f"{topic}/subscription/s", json=body)
    assert answer.status == 412
    assert "limits.properties_bytes" in answer.reason
    assert http.get(f"{topic}/subscriptions") == []


def test_properties_of_a_subscription_of_partitions(http: HttpWorld) -> None:
    http.done("PUT", f"{T}/parted/partitions", json=3)
    body = {"ledgerId": -1, "entryId": -1, "properties": {"for": "invoices"}}
    http.done("PUT", f"{T}/parted/subscription/s", json=body)
    for path in ("parted", "parted-partition-2"):
        assert http.get(f"{T}/{path}/subscription/s/properties") == {"for": "invoices"}


@pytest.mark.parametrize(
    ("method", "path", "body", "value"),
    [
        ("PUT", f"{NS}/schemaCompatibilityStrategy", "backward", "BACKWARD"),
        ("POST", f"{NS}/subscriptionTypesEnabled", ["Exclusive", "shared"], "Shared"),
        ("POST", f"{NS}/backlogQuota", {"limitSize": 5, "policy": "exception"}, "producer_exception"),
        ("POST", f"{NS}/permissions/anna", ["read"], "consume"),
        ("POST", f"{NS}/autoTopicCreation", {"topicType": "many"}, "non-partitioned"),
        ("PUT", f"{NS}x", {"backlog_quota_map": {"size": {"limitSize": 5}}}, "destination_storage"),
        (*("PUT", f"{NS}x"), {"auth_policies": {"namespace_auth": {"anna": ["read"]}}}, "consume"),
        ("PUT", f"{T}/x/subscription/s", "first", "earliest"),
        ("PUT", "/admin/v2/exchanges/public/default/x", {"kind": "headers"}, "fanout"),
    ],
)
def test_a_value_that_is_not_possible(http: HttpWorld, method: str, path: str, body: Any, value: str) -> None:
    """The reason names the possible ones."""
    answer = http.ask(method, path, json=body)
    assert answer.status == 400
    assert value in answer.reason.rpartition("; use ")[2].split(", ")
