"""Limits over HTTP: effective values, Pulsar's units, settings at run time, figures."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec import Struct

from holdfast.server.http.server import ROUTES
from tests.kit.server.http_metrics_checks import value
from tests.kit.server.http_world import HttpWorld, T, http

__all__ = ["http"]

NS = "/admin/v2/namespaces/public/default"
SETTINGS = "/admin/v2/brokers/configuration"
RATE = {"publishThrottlingRateInMsg": 100, "publishThrottlingRateInByte": -1}


def name_of(topic: str) -> str:
    return topic.rpartition("/")[2]


@pytest.mark.parametrize(
    ("of_namespace", "of_topic", "body"),
    [
        ("maxProducersPerTopic", "maxProducers", 3),
        ("maxConsumersPerTopic", "maxConsumers", 3),
        ("maxConsumersPerSubscription", "maxConsumersPerSubscription", 3),
        ("maxUnackedMessagesPerConsumer", "maxUnackedMessagesOnConsumer", 3),
        ("maxUnackedMessagesPerSubscription", "maxUnackedMessagesOnSubscription", 3),
        ("publishRate", "publishRate", RATE),
        (
            *("dispatchRate", "dispatchRate"),
            {
                "dispatchThrottlingRateInMsg": 5,
                "dispatchThrottlingRateInByte": 1000,
                "relativeToPublishRate": False,
                "ratePeriodInSecond": 2,
            },
        ),
        (
            *("subscribeRate", "subscribeRate"),
            {"subscribeThrottlingRatePerConsumer": 5, "ratePeriodInSecond": 10},
        ),
    ],
)
def test_own_value_and_effective_value(http: HttpWorld, of_namespace: str, of_topic: str, body: Any) -> None:
    """The namespace's value applies while the topic has none of its own."""
    topic = http.topic()
    path = f"{topic}/{of_topic}"
    none = http.get(f"{path}?applied=true")
    http.done("POST", f"{NS}/{of_namespace}", json=body)
    assert http.get(f"{NS}/{of_namespace}") == body
    assert http.get(path) is None
    assert http.get(f"{path}?applied=true") == body
    own = 9 if isinstance(body, int) else {**body, next(iter(body)): 9}
    http.done("POST", path, json=own)
    assert http.get(path) == http.get(f"{path}?applied=true") == own
    http.done("DELETE", path)
    assert http.get(f"{path}?applied=true") == body
    http.done("DELETE", f"{NS}/{of_namespace}")
    assert http.get(f"{NS}/{of_namespace}") is None
    assert http.get(f"{path}?applied=true") == none


def test_a_quota_has_its_words(http: HttpWorld) -> None:
    topic = http.topic()
    http.done("POST", f"{NS}/backlogQuota", json={"limitSize": 1 << 30, "policy": "producer_exception"})
    body = {"limitTime": 60, "policy": "consumer_backlog_eviction"}
    http.done("POST", f"{topic}/backlogQuota?backlogQuotaType=message_age", json=body)
    own, applied = http.get(f"{topic}/backlogQuotaMap"), http.get(f"{topic}/backlogQuotaMap?applied=true")
    assert list(own) == ["message_age"]
    assert (own["message_age"]["limitTime"], own["message_age"]["policy"]) == (60, body["policy"])
    assert applied["destination_storage"]["limitSize"] == 1 << 30
    assert applied["destination_storage"]["policy"] == "producer_exception"
    http.done("DELETE", f"{NS}/backlogQuota")
    assert http.get(f"{NS}/backlogQuotaMap") == {}


def test_a_part_of_a_second_is_shown_as_a_limit(http: HttpWorld) -> None:
    """An age of half a second was shown as none."""
    topic = http.topic()
    limits = {
        "backlog_age_s": 0.5,
        "dispatch_rate_messages": 5,
        "dispatch_rate_period_s": 0.5,
        "subscription_rate_messages": 5,
        "subscription_rate_period_s": 1e-9,
        "subscribe_rate": 5,
        "subscribe_rate_period_s": 2.5,
    }
    http.done("POST", f"{topic}/limits", json=limits)
    assert http.get(f"{topic}/backlogQuotaMap")["message_age"]["limitTime"] == 1
    assert http.get(f"{topic}/stats")["backlogQuotaLimitTime"] == 1
    for path, rate, period in (("dispatchRate", 10, 1), ("subscriptionDispatchRate", 5_000_000_000, 1)):
        found = http.get(f"{topic}/{path}")
        assert (found["dispatchThrottlingRateInMsg"], found["ratePeriodInSecond"]) == (rate, period)
    found = http.get(f"{topic}/subscribeRate")
    assert (found["subscribeThrottlingRatePerConsumer"], found["ratePeriodInSecond"]) == (6, 3)


@pytest.mark.parametrize(
    ("type_", "body", "other"),
    [
        ("destination_storage", {"limitTime": 60}, "message_age"),
        ("message_age", {"limitSize": 60}, "destination_storage"),
        ("message_age", {"limit": 60, "limitTime": -1}, "destination_storage"),
    ],
)
def test_a_limit_of_the_other_quota_is_refused(
    http: HttpWorld, type_: str, body: dict[str, int], other: str
) -> None:
    """It was dropped, and the quota that the query names had no limit any more."""
    topic = http.topic()
    path = f"{topic}/backlogQuota?backlogQuotaType={type_}"
    http.done("POST", path, json={"limitSize": 7, "limitTime": 7})
    before = http.get(f"{topic}/backlogQuotaMap")
    found = http.ask("POST", path, json=body)
    assert (found.status, f"add ?backlogQuotaType={other}" in found.reason) == (412, True)
    assert http.get(f"{topic}/backlogQuotaMap") == before
    http.done("POST", path, json={"limitSize": -1, "limitTime": -1})
    assert http.get(f"{topic}/backlogQuotaMap") != before


STRUCTS = {
    (route.method, route.path): route.body
    for route in ROUTES
    if route.tag in ("policies", "limits") and isinstance(route.body, type) and issubclass(route.body, Struct)
}
"""Bodies of policies that have fields."""


@pytest.mark.parametrize("where", STRUCTS, ids=lambda where: " ".join(where))
def test_a_misspelt_field_is_refused(http: HttpWorld, where: tuple[str, str]) -> None:
    """The misspelt limit was dropped, and the policy had no limit any more."""
    method, path = where
    topic = name_of(http.topic())
    at = path.format(tenant="public", namespace="default", topic=topic)
    found = http.ask(method, at, json={"limitOfMisspeltName": 5})
    assert (found.status, "unknown field `limitOfMisspeltName`" in found.reason) == (400, True)


def test_all_policies_with_fields_are_tried() -> None:
    assert len(STRUCTS) > 15


def test_a_rate_that_is_not_possible(http: HttpWorld) -> None:
    """A relative rate is refused; −1 is without a limit."""
    topic = http.topic()
    found = http.ask("POST", f"{topic}/dispatchRate", json={"relativeToPublishRate": True})
    assert (found.status, "not supported; use a rate" in found.reason) == (412, True)
    http.done("POST", f"{topic}/publishRate", json={})
    assert http.get(f"{topic}/limits")["publish_rate_messages"] == 0


def test_a_value_for_all_clusters_is_refused(http: HttpWorld) -> None:
    """It replaced or removed the local value, which wins in Pulsar."""
    topic = http.topic()
    http.done("POST", f"{topic}/maxProducers?isGlobal=false", json=5)
    for method, body in (("POST", 7), ("GET", None), ("DELETE", None)):
        found = http.ask(method, f"{topic}/maxProducers?isGlobal=true", json=body)
        assert (found.status, found.reason.startswith("isGlobal is not supported")) == (412, True)
    assert http.get(f"{topic}/maxProducers") == 5


@pytest.mark.parametrize("at", ["topic", "namespace"])
def test_inactive_topics_are_not_deleted_at_once(http: HttpWorld, at: str) -> None:
    """The reason names the field of the request, not the policy behind it."""
    place = http.topic() if at == "topic" else "/admin/v2/namespaces/public/default"
    found = http.ask("POST", f"{place}/inactiveTopicPolicies", json={"deleteWhileInactive": True})
    assert (found.status, found.reason.startswith("maxInactiveDurationSeconds is 0")) == (412, True)
    assert http.get(f"{place}/inactiveTopicPolicies") is None


def test_all_limits_at_once(http: HttpWorld) -> None:
    topic = http.topic()
    http.done("POST", f"{topic}/limits", json={"producers_max": 2, "backlog_age_s": 60})
    http.done("POST", f"{NS}/limits", json={"producers_max": 5, "consumers_max": 4})
    own, applied = http.get(f"{topic}/limits"), http.get(f"{topic}/limits?applied=true")
    assert (own["producers_max"], own["consumers_max"], own["backlog_age_s"]) == (2, None, 60)
    assert (applied["producers_max"], applied["consumers_max"]) == (2, 4)
    http.done("POST", f"{topic}/limits", json={"producers_max": None})
    assert http.get(f"{topic}/limits?applied=true")["producers_max"] == 5
    http.done("POST", f"{NS}/limits", json={"producers_max": None, "consumers_max": None})
    for body, words in (({"producers_max": -1}, "producers_max"), ({"backlog_bytes_action": "x"}, "action")):
        found = http.ask("POST", f"{topic}/limits", json=body)
        assert (found.status, words in found.reason) == (412, True), found


def test_partitions_have_the_limits_of_their_topic(http: HttpWorld) -> None:
    http.done("PUT", f"{T}/split/partitions", json=2)
    http.done("POST", f"{T}/split/maxProducers", json=4)
    for at in range(2):
        assert http.get(f"{T}/split-partition-{at}/maxProducers") == 4
    assert http.get(f"{T}/split/maxProducers") == 4


def test_settings_at_run_time(http: HttpWorld) -> None:
    """They apply at once to topics without a policy, also a publish rate."""
    topic = http.topic()

    async def published(count: int) -> float:
        began = time.monotonic()
        async with http.broker.producer(name_of(topic)) as producer:
            for _ in range(count):
                await producer.send(b"x")
        return time.monotonic() - began

    http.done("POST", f"{SETTINGS}/broker.producers_max/7")
    assert http.get(f"{topic}/maxProducers?applied=true") == 7
    http.done("POST", f"{SETTINGS}/broker.publish_rate_messages/20")
    assert http.get(f"{topic}/publishRate?applied=true")["publishThrottlingRateInMsg"] == 20
    assert http.run(published(24)) > 0.15
    http.done("POST", f"{SETTINGS}/broker.publish_rate_messages/100000")
    assert http.run(published(30)) < 0.5
    http.done("DELETE", f"{SETTINGS}/broker.publish_rate_messages")
    http.done("DELETE", f"{SETTINGS}/broker.producers_max")
    assert http.get(f"{topic}/maxProducers?applied=true") == 0
    found = http.ask("POST", f"{SETTINGS}/broker.producers_max/-1")
    assert (found.status, "producers_max" in found.reason) == (412, True)


def test_stats_and_metrics(http: HttpWorld) -> None:
    topic = http.topic(messages=30, subscription="s")
    http.done("POST", f"{topic}/limits", json={"backlog_bytes": 300, "backlog_age_s": 3600})
    http.done("POST", f"{topic}/publishRate", json=RATE)
    http.ask("GET", "/admin/v2/brokers/backlog-quota-check")
    stats = http.get(f"{topic}/stats")
    assert (stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]) == (300, 3600)
    assert stats["backlogExceeded"] is True
    assert stats["oldestBacklogMessageAgeSeconds"] >= 0
    assert stats["publishRateLimitedTimes"] == 0
    labels = {"topic": f"persistent://public/default/{name_of(topic)}"}
    assert value(http, "holdfast_topic_backlog_exceeded", **labels) == 1
    assert value(http, "pulsar_storage_backlog_quota_limit", **labels) == 300
    assert value(http, "pulsar_storage_backlog_quota_limit_time", **labels) == 3600
    assert value(http, "pulsar_storage_backlog_quota_exceeded_evictions_total", **labels) == 0
    assert value(http, "pulsar_publish_rate_limit_times", **labels) == 0
    assert value(http, "pulsar_storage_backlog_age_seconds", **labels) >= 0
    http.done("POST", f"{topic}/subscription/s/skip_all")
    http.ask("GET", "/admin/v2/brokers/backlog-quota-check")
    assert http.get(f"{topic}/stats")["backlogExceeded"] is False
