"""Parse /metrics strictly; check that alerts and dashboard use existing metrics."""

from __future__ import annotations

import json
import math
import re
from itertools import pairwise

import pytest
import yaml  # type: ignore[import-untyped]

from holdfast.broker.telemetry.metrics import HELP, Page, label, metrics
from holdfast.server.http.brokers import _PROCESS
from tests.kit import ROOT
from tests.kit.server.http_metrics_checks import (
    page_of,
    read,
    value,
)
from tests.kit.server.http_world import HttpWorld, http

__all__ = ["http"]


FACTS = [
    *("pulsar_rate_in", "pulsar_throughput_in", "pulsar_rate_out", "pulsar_throughput_out"),
    *("pulsar_subscription_msg_rate_out", "pulsar_subscription_msg_throughput_out"),
    *("pulsar_subscription_back_log", "pulsar_storage_size", "pulsar_msg_backlog", "pulsar_topics_count"),
    *("pulsar_producers_count", "pulsar_consumers_count", "pulsar_subscriptions_count"),
    *("pulsar_storage_read_rate", "pulsar_storage_write_rate"),
    *("pulsar_cursor_epoch_increase_count", "pulsar_cursor_epoch_increase_task_state"),
    *(
        f"pulsar_storage_write_latency_{end}"
        for end in ("le_0_5", "le_1", "le_5", "le_10", "le_20", "le_50", "le_100", "le_200", "le_1000")
    ),
    *(f"pulsar_storage_write_latency_{end}" for end in ("overflow", "count", "sum")),
    *(f"pulsar_entry_size_le_{end}" for end in ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb")),
    *(f"pulsar_entry_size_{end}" for end in ("le_1_mb", "le_overflow", "count", "sum")),
]
"""Names that dashboards of Pulsar ask for."""


# -- a strict reader of the text format ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a 1",
        "# TYPE a gauge\na 1\n",
        "# HELP a x\n# TYPE a gauge\na{b=c} 1\n",
        '# HELP a x\n# TYPE a gauge\na{b="c} 1\n',
        "# HELP a x\n# TYPE a gauge\na one\n",
        "# HELP a x\n# TYPE a gauge\na 1\na 1\n",
        "# HELP a x\n# TYPE a thing\na 1\n",
        "# HELP a x\n# TYPE a gauge\na 1\n# HELP b x\n# TYPE b gauge\nb 1\na 2\n",
        "# HELP a x\n# TYPE a gauge\na 1\n# HELP b x\n# TYPE b gauge\nb 1\n# HELP a x\n",
        '# HELP a x\n# TYPE a gauge\na{b="1",b="2"} 1\n',
        "# HELP a x\n# TYPE a gauge\n\na 1\n",
    ],
)
def test_the_reader_is_strict(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        list(read(text))


# -- the page ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def something(http: HttpWorld) -> None:
    """Topics, one with a name that wants to be escaped, and some that were used."""
    http.topic(messages=10, subscription="s")
    http.done("PUT", "/admin/v2/persistent/public/default/%22quoted%22%5C/subscription/a%22b%5Cc")
    http.done("PUT", "/admin/v2/namespaces/public/empty")


def test_the_page_is_sound_and_has_every_name(http: HttpWorld) -> None:
    samples = page_of(http)
    names = {sample.name for sample in samples}
    assert set(FACTS) <= names
    assert names <= set(HELP) | set(_PROCESS)
    assert all(math.isfinite(sample.value) and sample.value >= 0 for sample in samples)
    assert list(read(metrics(http.broker)))


def test_labels(http: HttpWorld) -> None:
    for sample in page_of(http):
        names = [name for name, _ in sample.labels]
        assert names[0] == "cluster", sample
        if sample.name.startswith(("pulsar_subscription_", "pulsar_cursor_", "pulsar_out_")):
            assert names == ["cluster", "namespace", "topic", "subscription"], sample
        elif sample.name in ("pulsar_rate_in", "pulsar_storage_size", "pulsar_entry_size_le_128"):
            assert names == ["cluster", "namespace", "topic"], sample
    quoted = {dict(each.labels).get("subscription") for each in page_of(http)}
    assert 'a"b\\c' in quoted
    topics = {
        dict(each.labels)["namespace"]: each.value
        for each in page_of(http)
        if each.name == "pulsar_topics_count"
    }
    assert topics["public/empty"] == 0
    assert topics["public/default"] >= 2


def test_what_is_counted(http: HttpWorld) -> None:
    topic = http.topic(messages=100, subscription="s", batch=10)
    assert value(http, "pulsar_in_messages_total", topic) == 100
    assert value(http, "pulsar_entry_size_count", topic) == 10
    assert value(http, "pulsar_storage_write_latency_count", topic) == 10
    assert (
        value(http, "pulsar_subscription_back_log", topic) == value(http, "pulsar_msg_backlog", topic) == 10
    )
    assert value(http, "pulsar_rate_in", topic) > 0

    async def consume() -> None:
        async with http.consuming(topic) as consumer:
            await consumer.receive_many(10, timeout=5)
            await consumer.seek("earliest")

    http.run(consume())
    assert value(http, "pulsar_out_messages_total", topic) >= 10
    assert value(http, "pulsar_subscription_msg_throughput_out", topic) > 0
    assert value(http, "pulsar_storage_read_rate", topic) > 0
    assert value(http, "pulsar_cursor_epoch_increase_count", topic) >= 1
    assert value(http, "pulsar_cursor_epoch_increase_task_state", topic) == 0


def test_counters_never_fall(http: HttpWorld) -> None:
    """Also when subscriptions and readers come and go."""
    topic = http.topic(messages=20, subscription="s")
    pages = []

    async def use() -> None:
        async with http.consuming(topic) as consumer:
            await consumer.receive_many(5, timeout=5)
        async with http.broker.reader(topic.rpartition("/")[2]) as reader:
            await reader.read(timeout=5)

    for _ in range(3):
        http.run(use())
        counters = {name for name, (kind, _) in {**HELP, **_PROCESS}.items() if kind == "counter"}
        pages.append({each[:2]: each.value for each in page_of(http) if each.name in counters})
    for before, after in pairwise(pages):
        assert all(after[key] >= count for key, count in before.items())


def test_a_page_of_strange_names() -> None:
    page = Page({"a": ("gauge", "x")})
    page.add(label("topic", 'a"b\\c\nd'), [("a", 1)])
    ((name, labels, found),) = read(page.text())
    assert (name, labels, found) == ("a", (("topic", 'a"b\\c\nd'),), 1.0)


# -- alerts and dashboard --------------------------------------------------------------------------------

KNOWN = set(HELP) | set(_PROCESS) | {"up"}
WORDS = {
    *("by", "and", "or", "sum", "min", "max", "rate", "increase", "deriv", "predict_linear"),
    *("min_over_time", "label_values"),
}


def metric_names(expression: str) -> set[str]:
    """Return the metrics in an expression of Prometheus."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\bby \([^)]*\)", "", bare)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    return set(re.findall(r"\b[a-z_]\w*\b", bare)) - WORDS


def balanced(expression: str) -> bool:
    open_: list[str] = []
    for each in re.sub(r'"[^"]*"', "", expression):
        if each in "([{":
            open_.append(each)
        elif each in ")]}" and (not open_ or open_.pop() + each not in ("()", "[]", "{}")):
            return False
    return not open_


def test_alerts_ask_for_what_there_is() -> None:
    rules = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert metric_names(rule["expr"]) <= KNOWN, rule["alert"]
        assert balanced(rule["expr"]), rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}
    stuck = next(rule for rule in rules if rule["alert"] == "CursorResetStuck")
    assert stuck["expr"] == "min_over_time(pulsar_cursor_epoch_increase_task_state[5m]) == 1"
    assert stuck["expr"] in (ROOT / "docs/guide/broker.md").read_text()


def test_the_dashboard_asks_for_what_there_is() -> None:
    board = json.loads((ROOT / "deploy/dashboard.json").read_text())
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    asked: set[str] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, f"{panel['title']} covers another"
        taken |= cells
        for target in panel.get("targets", []):
            assert balanced(target["expr"]), panel["title"]
            assert metric_names(target["expr"]) <= KNOWN, panel["title"]
            asked |= metric_names(target["expr"])
        refs = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(refs)) == len(refs)
    facts = {name for name in FACTS if not name.startswith(("pulsar_msg_backlog", "pulsar_entry_size_count"))}
    assert facts - asked <= {"pulsar_entry_size_sum"}, sorted(facts - asked)
    for variable in board["templating"]["list"][1:]:
        assert metric_names(variable["query"]["query"].replace(f", {variable['name']})", ")")) <= KNOWN
