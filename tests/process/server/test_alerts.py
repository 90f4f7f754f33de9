"""Check the alerts in deploy/: each has a case, and names metrics that exist.

Only Prometheus can evaluate them: `make nightly` runs `promtool`.
"""

from __future__ import annotations

import asyncio
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.kit import ROOT
from tests.kit.broker.offline import page_of
from tests.kit.command import run_tool
from tests.kit.served import served

FILE = ROOT / "deploy" / "alerts.yml"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]
}
"""By name."""

HERE = '{cluster="a",topic="t",subscription="s"}'
WELL: dict[str, str] = {
    'up{job="holdfast"}': "1x120",
    'holdfast_up{cluster="a"}': "1x120",
    f"pulsar_cursor_epoch_increase_task_state{HERE}": "0 1 0 1 0x116",
    f"pulsar_cursor_epoch_increase_count{HERE}": "1x120",
    f"holdfast_subscription_stuck{HERE}": "0 1 1 0x117",
    f"pulsar_subscription_back_log{HERE}": "900000-1000x120",
    'holdfast_topic_compaction_failed{cluster="a",topic="t"}': "0 1 1 0x117",
    'holdfast_topic_backlog_exceeded{cluster="a",topic="t"}': "0 1 1 0x117",
    'holdfast_publishes_refused_total{cluster="a"}': "3x120",
    'holdfast_ingest_queues_waiting{cluster="a"}': "0 2 0x118",
    'holdfast_log_time_ahead_seconds{cluster="a"}': "0 5 4 3 0x60 900 0x55",
    'holdfast_disk_free_bytes{cluster="a"}': "9e10x120",
    'pulsar_storage_write_latency_le_1000{cluster="a"}': "0+1x120",
    'pulsar_storage_write_latency_overflow{cluster="a"}': "0x120",
    'pulsar_storage_write_latency_count{cluster="a"}': "0+1000x120",
    'process_open_fds{job="holdfast"}': "30x120",
    'process_max_fds{job="holdfast"}': "1000x120",
}
"""A value a minute of a broker that nothing is wrong with."""
ILL: dict[str, dict[str, str]] = {
    "HoldfastDown": {'up{job="holdfast"}': "1x60 0x60"},
    "CursorResetStuck": {f"pulsar_cursor_epoch_increase_task_state{HERE}": "0x60 1x60"},
    "CursorResetOften": {f"pulsar_cursor_epoch_increase_count{HERE}": "0+60x120"},
    "SubscriptionStuck": {f"holdfast_subscription_stuck{HERE}": "0x60 1x60"},
    "BacklogGrows": {f"pulsar_subscription_back_log{HERE}": "100000+10x120"},
    "CompactionFails": {'holdfast_topic_compaction_failed{cluster="a",topic="t"}': "0x60 1x60"},
    "ProducersStopped": {'holdfast_topic_backlog_exceeded{cluster="a",topic="t"}': "0x60 1x60"},
    "PublishesRefused": {'holdfast_publishes_refused_total{cluster="a"}': "3x117 4 5 6"},
    "IngestStands": {'holdfast_ingest_queues_waiting{cluster="a"}': "0x60 1x60"},
    "LogTimeAhead": {'holdfast_log_time_ahead_seconds{cluster="a"}': "0x60 3e7-60x60"},
    "DiskFillsUp": {'holdfast_disk_free_bytes{cluster="a"}': "9e10-6e8x120"},
    "WritesSlow": {'pulsar_storage_write_latency_overflow{cluster="a"}': "0+20x120"},
    "FilesAlmostUsedUp": {'process_open_fds{job="holdfast"}': "30x60 900x60"},
}
"""The differences from a healthy broker that raise each alert."""
FUNCTIONS = {"min_over_time", "rate", "increase", "deriv", "predict_linear", "sum", "min"}
WORDS = {"or", "and", "by"}
PROMETHEUS = {"up"}
"""Metrics that the server does not tell: Prometheus has them itself."""


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names: what is left of its words."""
    plain = re.sub(r"\{[^}]*\}|\[[^]]*\]|\bby \([^)]*\)", " ", expression)
    return set(re.findall(r"\b[a-z_][a-z_0-9]*\b", plain)) - FUNCTIONS - WORDS


def metric_of(series: str) -> str:
    return series.partition("{")[0]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """/metrics of a server with a topic that has a subscription, a compaction, a quota."""
    with served(tmp_path_factory.mktemp("metrics") / "data", http=True) as server:
        place = f"{server.http_url}/admin/v2/persistent/public/default/orders"
        for path in (place, f"{place}/subscription/s", f"{place}/compaction"):
            urllib.request.urlopen(urllib.request.Request(path, method="PUT"), timeout=10).close()
        quota = urllib.request.Request(f"{place}/limits", b'{"backlog_bytes": 1000}', method="POST")
        urllib.request.urlopen(quota, timeout=10).close()
        with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=10) as answer:
            yield answer.read().decode()


# -- what a machine without Prometheus can tell --------------------------------------------------------


def test_each_alert_has_its_case() -> None:
    assert set(RULES) == set(ILL)


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_is_whole(alert: str) -> None:
    """Each alert names its object, its urgency and the action of an operator."""
    rule = RULES[alert]
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert set(rule["annotations"]) == {"summary", "description"}
    assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_names_metrics_that_there_are(alert: str, page: str) -> None:
    """The server exports them with the labels of the cases; the healthy broker has all."""
    named = metrics_in(RULES[alert]["expr"])
    assert named <= {metric_of(series) for series in WELL}
    assert named & {metric_of(series) for series in ILL[alert]}, "its case changes nothing that it looks at"
    for series in WELL:
        metric = metric_of(series)
        if metric not in named - PROMETHEUS:
            continue
        line = re.search(rf"^{metric}(?:{{(.*)}})? ", page, re.MULTILINE)
        assert line is not None, metric
        labels = set(re.findall(r'(\w+)="', series)) - {"job"}  # Prometheus adds it
        assert labels <= set(re.findall(r'(\w+)="', line[1] or "")), metric


def test_metrics_are_found_in_expressions() -> None:
    """Faults that the check of expressions finds."""
    assert metrics_in('sum by (cluster) (rate(a_b[10m])) > 0.01 * c{job="x"} or up == 0') == {
        "a_b",
        "c",
        "up",
    }
    assert all(metrics_in(rule["expr"]) for rule in RULES.values())


# -- what Prometheus says ------------------------------------------------------------------------------


@pytest.mark.nightly  # needs promtool; in `make test` test_an_alert_is_whole looks at the same rules
def test_prometheus_takes_the_alerts() -> None:
    status, told = run_tool("promtool", "check", "rules", FILE)
    assert (status, f"SUCCESS: {len(RULES)} rules found" in told) == (0, True), told


@pytest.mark.nightly  # needs promtool; in `make test` test_each_alert_has_its_case, and the test below it
def test_each_alert_is_heard_when_it_should_be_and_only_then(tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = []
    for alert, changed in {"": {}, **ILL}.items():
        series = [{"series": name, "values": value} for name, value in {**WELL, **changed}.items()]
        heard = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "2h"}
        expected = {"expr": 'group by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "2h"}
        if alert:
            expected["exp_samples"] = [{"labels": f'{{alertname="{alert}"}}', "value": 1}]  # type: ignore[assignment]
        else:
            expected |= heard
        cases.append({"interval": "1m", "input_series": series, "promql_expr_test": [expected]})
    test = {"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "test.yml").write_text(json.dumps(test))  # JSON is YAML
    status, told = run_tool("promtool", "test", "rules", tmp_path / "test.yml")
    assert status == 0, told


@pytest.mark.nightly  # needs promtool; in `make test` tests/mutants/test_stuck.py breaks what it looks at
@pytest.mark.parametrize("attached", [False, True])
def test_consumers_that_are_offline_raise_no_alert(attached: bool, tmp_path: Path) -> None:
    """The page of a real broker, for two hours: a backlog, and nothing has moved."""
    page = asyncio.run(page_of(tmp_path / "data", attached))
    lines = [line.rpartition(" ") for line in page.splitlines() if line.startswith(("holdfast_", "pulsar_"))]
    series = [{"series": name, "values": f"{float(value)}x120"} for name, _, value in lines]
    heard = {"expr": 'group by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "2h"}
    if attached:
        heard["exp_samples"] = [{"labels": '{alertname="SubscriptionStuck"}', "value": 1}]  # type: ignore[assignment]
    case = {"interval": "1m", "input_series": series, "promql_expr_test": [heard]}
    test = {"rule_files": [str(FILE)], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yml").write_text(json.dumps(test))
    status, told = run_tool("promtool", "test", "rules", tmp_path / "test.yml")
    assert status == 0, told


@pytest.mark.nightly  # needs promtool; in `make test` test_an_alert_names_metrics_that_there_are
def test_prometheus_takes_the_metrics(page: str) -> None:
    """It reports Pulsar's names, which cannot change, and none of holdfast's."""
    status, told = run_tool("promtool", "check", "metrics", text=page)
    assert status in (0, 3)  # 3: it would have called something otherwise
    assert "holdfast_subscription_stuck" in page
    assert not [line for line in told.splitlines() if not line.startswith("pulsar_")], told
