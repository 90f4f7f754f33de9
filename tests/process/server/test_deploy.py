"""The files in deploy/ are true where a machine can tell: the unit, the container file, the alerts."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from holdfast.wire.config import Config
from holdfast.wire.settings import FILE_VARIABLE, leaves
from tests.kit import ROOT
from tests.kit.broker.offline import page_of
from tests.kit.command import COMMAND
from tests.kit.served import served

DEPLOY = ROOT / "deploy"
KNOWN = {leaf.variable for leaf in leaves().values()} | {FILE_VARIABLE, "HOLDFAST_RUNTIME_DIR"}


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "holdfast.service").read_text().splitlines():
        if re.match(r"\w+=", line):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_starts_the_server(tmp_path: Path) -> None:
    """With the very arguments and variables of the unit, but for its places."""
    [start] = unit()["ExecStart"]
    given = dict(each.split("=", 1) for each in unit()["Environment"])
    assert set(given) <= KNOWN
    (tmp_path / "holdfast.toml").write_text((DEPLOY / "holdfast.toml").read_text())
    given["HOLDFAST_CONFIG"] = str(tmp_path / "holdfast.toml")
    path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*shlex.split(start), "--print-config"],
        env=os.environ | given | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert 'data = "%S/holdfast"  # $HOLDFAST_DATA' in done.stdout


def test_the_unit_waits_longer_than_the_server() -> None:
    assert int(unit()["TimeoutStopSec"][0]) > 2 * Config().limits.shutdown_s
    assert unit()["RestartPreventExitStatus"] == ["2"]
    assert unit()["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


SYSTEMD = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
PROMTOOL = pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here")


def run(*arguments: str | Path, text: str = "") -> tuple[int, str]:
    """Exit status, and what is said on either stream."""
    done = subprocess.run(
        arguments,
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


@SYSTEMD
def test_systemd_takes_the_unit() -> None:
    assert run("systemd-analyze", "verify", DEPLOY / "holdfast.service") == (0, "")


@SYSTEMD
def test_systemd_finds_it_well_guarded() -> None:
    """Of 100; what is left is the network, its own user and the kernel's ordinary calls."""
    limit = ["security", "--offline=true", "--no-pager", "--threshold=15"]
    status, told = run("systemd-analyze", *limit, DEPLOY / "holdfast.service")
    assert status == 0, told


def test_the_unit_leaves_the_server_what_it_needs() -> None:
    """Each was found out by starting it without."""
    assert set(unit()["RestrictAddressFamilies"][0].split()) == {"AF_INET", "AF_INET6", "AF_UNIX"}
    assert "ProcSubset" not in unit()  # /proc/sys/kernel/random/boot_id, for local ingest
    assert "RemoveIPC" not in unit()  # queues of other programs of the user
    assert unit()["SystemCallErrorNumber"] == [
        "EPERM"
    ]  # it asks for more open files, and takes no for an answer


# -- the container file --------------------------------------------------------------------------------

CONTAINER = (DEPLOY / "Containerfile").read_text()


def test_the_container_file_names_what_there_is() -> None:
    assert set(re.findall(r"HOLDFAST_[A-Z_]+", CONTAINER)) <= KNOWN
    assert all((DEPLOY.parent / name).exists() for name in copied())
    assert re.findall(r"^EXPOSE (.*)", CONTAINER, re.MULTILINE) == [
        f"{Config().listen.port} {Config().listen.http_port}"
    ]
    assert 'ENTRYPOINT ["holdfast", "serve"]' in CONTAINER


def copied() -> list[str]:
    lines = re.findall(r"^COPY (?!--)(.*)", CONTAINER, re.MULTILINE)
    found = [name for line in lines for name in line.split()[:-1]]
    assert found
    return found


def test_the_container_has_all_that_the_wheel_is_made_of() -> None:
    """What pyproject.toml and CMakeLists.txt name."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    cmake = (DEPLOY.parent / "CMakeLists.txt").read_text()
    named = [project["readme"], *project["license-files"], *re.findall(r"\b(?:native|src)/[\w./-]+", cmake)]
    assert len(named) > 3
    assert all(name.split("/")[0] in copied() for name in named), named


def test_the_containers_health_is_the_servers(tmp_path: Path) -> None:
    """The very command of HEALTHCHECK, at the port that the variable names."""
    (words,) = re.findall(r"HEALTHCHECK .*? CMD (\[.*?\])\n", CONTAINER.replace("\\\n", ""))
    program, *arguments = json.loads(words)
    assert program == "python"
    with served(tmp_path / "data", http=True) as server:
        variables = {"HOLDFAST_LISTEN_HTTP_PORT": str(server.ready["http_port"])}

        def check() -> int:
            return subprocess.run(
                [sys.executable, *arguments], env=os.environ | variables, capture_output=True, check=False
            ).returncode

        assert check() == 0
        server.end()
        assert check() != 0
    assert "--format docker" in CONTAINER  # else podman leaves it out


# -- alerts --------------------------------------------------------------------------------------------


@PROMTOOL
def test_prometheus_takes_the_alerts() -> None:
    status, told = run("promtool", "check", "rules", DEPLOY / "alerts.yml")
    assert (status, "SUCCESS: 10 rules found" in told) == (0, True), told


HERE = '{cluster="a",topic="t",subscription="s"}'
WELL: dict[str, str] = {
    'up{job="holdfast"}': "1x120",
    'holdfast_up{cluster="a"}': "1x120",
    f"pulsar_cursor_epoch_increase_task_state{HERE}": "0 1 0 1 0x116",
    f"pulsar_cursor_epoch_increase_count{HERE}": "1x120",
    f"holdfast_subscription_stuck{HERE}": "0 1 1 0x117",
    f"pulsar_subscription_back_log{HERE}": "900000-1000x120",
    'holdfast_publishes_refused_total{cluster="a"}': "3x120",
    'holdfast_disk_free_bytes{cluster="a"}': "9e10x120",
    'pulsar_storage_write_latency_le_1000{cluster="a"}': "0+1x120",
    'pulsar_storage_write_latency_overflow{cluster="a"}': "0x120",
    'pulsar_storage_write_latency_count{cluster="a"}': "0+1000x120",
    'holdfast_ingest_queues_waiting{cluster="a"}': "0 1 1 0x117",
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
    "PublishesRefused": {'holdfast_publishes_refused_total{cluster="a"}': "3x117 4 5 6"},
    "IngestStands": {'holdfast_ingest_queues_waiting{cluster="a"}': "0x60 1x60"},
    "DiskFillsUp": {'holdfast_disk_free_bytes{cluster="a"}': "9e10-6e8x120"},
    "WritesSlow": {'pulsar_storage_write_latency_overflow{cluster="a"}': "0+20x120"},
    "FilesAlmostUsedUp": {'process_open_fds{job="holdfast"}': "30x60 900x60"},
}
"""What is different where each alert should be heard."""


@PROMTOOL
def test_each_alert_is_heard_when_it_should_be_and_only_then(tmp_path: Path) -> None:
    rules = (DEPLOY / "alerts.yml").read_text()
    assert set(re.findall(r"- alert: (\w+)", rules)) == set(ILL)
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
    test = {"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "1m", "tests": cases}
    (tmp_path / "test.yml").write_text(json.dumps(test))  # JSON is YAML
    status, told = run("promtool", "test", "rules", tmp_path / "test.yml")
    assert status == 0, told


@PROMTOOL
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
    test = {"rule_files": [str(DEPLOY / "alerts.yml")], "evaluation_interval": "1m", "tests": [case]}
    (tmp_path / "test.yml").write_text(json.dumps(test))
    status, told = run("promtool", "test", "rules", tmp_path / "test.yml")
    assert status == 0, told


@PROMTOOL
def test_prometheus_takes_the_metrics(tmp_path: Path) -> None:
    """It has something to say of Pulsar's names, which are as they are, and nothing of ours."""
    with served(tmp_path / "data", http=True) as server:
        place = f"{server.http_url}/admin/v2/persistent/public/default/orders"
        for path in (place, f"{place}/subscription/s"):
            urllib.request.urlopen(urllib.request.Request(path, method="PUT"), timeout=10).close()
        with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=10) as answer:
            page = answer.read().decode()
    status, told = run("promtool", "check", "metrics", text=page)
    assert status in (0, 3)  # 3: it would have called something otherwise
    assert "holdfast_subscription_stuck" in page
    assert not [line for line in told.splitlines() if not line.startswith("pulsar_")], told
