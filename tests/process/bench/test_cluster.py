"""The cluster's benchmark runs, reports its measurements, and judges them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import cluster, cluster_disk
from bench.cluster_figures import CPG, DISK, Key, Report
from bench.cluster_moves import Join, Publishing
from bench.cluster_ours import OURS
from bench.server_figures import Sample
from bench.server_load import Load
from holdfast.demo.cluster.nodes import lacks
from tests.kit.command import run_process


def quick(directory: Path, out: Path, parts: str) -> tuple[str, Any]:
    """Run parts of the benchmark without peers; return the report as text and as data."""
    if (reason := lacks()) is not None:
        pytest.skip(f"no Corosync can run here: {reason}")
    command = ("bench", "cluster", "--quick", "--sizes", "100", "--seconds", "0.1", "--where", str(directory))
    done = run_process(*command, "--only", parts, "--json", str(out), timeout=180.0)
    return done.stdout.decode(), json.loads(out.read_text())


def test_quick_run(tmp_path: Path) -> None:
    where = tmp_path / "where"
    where.mkdir()
    told, found = quick(where, tmp_path / "all.json", "rates,limits,hand-over")
    assert found["failed"] == {}
    assert {each["measure"] for each in found["samples"]} == {"publish", "publish batched", "consume"}
    assert all(sample["messages"] > 0 for each in found["samples"] for sample in each["samples"])
    assert {each["limit"] for each in found["limits"]} == {CPG, DISK}
    assert [len(each) for each in found["hand_over_s"]] == [3]
    assert "ordered by Corosync; fdatasync of a majority" in told
    assert list(where.iterdir()) == []


# In `make test`: tests/corosync/test_brokers.py kills brokers and nodes, and lets members join.
@pytest.mark.nightly
def test_deaths_and_a_join(tmp_path: Path) -> None:
    """It takes up to a minute: Corosync notices a dead node after seconds."""
    told, found = quick(tmp_path, tmp_path / "all.json", "fail-over,join")
    assert found["failed"] == {}
    assert 0 < found["broker_death_s"][0] < 10
    whole, noticed = found["node_death_s"][0]
    assert 0.5 < noticed < whole
    assert found["joins"][0]["copied_bytes"] >= found["joins"][0]["backlog_bytes"] >= 1 << 20
    assert "fail-over after a node's death" in told


def test_a_machine_without_corosync(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "lacks", lambda: "there is no corosync; install it")
    with pytest.raises(SystemExit):
        cluster.main(["--quick"])
    assert "no cluster can run here: there is no corosync; install it" in capsys.readouterr().err


def test_a_directory_that_differs_in_every_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "lacks", lambda: None)
    with pytest.raises(SystemExit):
        cluster.main(["--quick", "--where", "/dev/shm"])
    assert "each node has /dev/shm and /run of its own; choose another directory" in capsys.readouterr().err


def report() -> Report:
    made = Report(
        {"cpu": "x", "cores": 2, "kernel": "6", "python": "3", "file_system": "ext4", "others_share": 0.0},
        {"rounds": 1, "window": 4000, "batch": 100},
    )
    for name, measure, messages in (
        (OURS, "publish batched", 150_000),
        (OURS, "consume", 90_000),
        ("a peer", "publish", 100_000),
        ("a peer", "consume", 100_000),
    ):
        made.add(Key(name, measure, 1024), Sample(messages, 1.0, 0.5, 0.5))
    made.limits = {(CPG, 1024): [300_000.0], (DISK, 1024): [200_000.0]}
    made.hand_overs = [[0.002, 0.004, 0.009]]
    made.broker_deaths = [0.2]
    made.node_deaths = [(3.05, 3.0)]
    made.joins = [Join(1 << 30, 1 << 30, 1.0, 0.5, 0.1, 4.5, 30_000.0, 10_000.0)]
    return made


def test_goals() -> None:
    assert [(goal.text.partition(":")[0], goal.met) for goal in report().goals()] == [
        ("publish batched, 1 KiB", True),
        ("publish batched, 1 KiB", True),
        ("consume, 1 KiB", False),
        ("ownership hand-over under 5 ms", True),
        ("fail-over after a broker's death under 100 ms", False),
        ("fail-over after a node's death within 100 ms of Corosync's detection", True),
        ("join of 1074 MB at over 100 MB/s", True),
        ("publishing slowed by less than half meanwhile", False),
    ]
    text = report().text()
    assert "75% of the disk: 150 k to 200 k" in text
    assert "1.5×: 150 k to 100 k" in text
    assert "by 67%" in text
    assert "210.5 MB/s" in text, "until it has all, not until it serves"
    assert "up to 4000 messages unanswered" in text


def test_without_one_of_the_limits_nothing_is_judged() -> None:
    made = report()
    del made.limits[(DISK, 1024)]
    assert made.limit(1024) is None
    assert not any("slower limit" in goal.text for goal in made.goals())


def test_the_disk_counts_the_slowest_of_three(tmp_path: Path) -> None:
    told = [(100, 0.1), (110, 0.2), (105, 0.1)]
    assert cluster_disk.slowest(told) == Load(110, 0.2)
    load = cluster_disk.measure(tmp_path, 4096, 0.1)
    assert load.messages > 0
    assert load.seconds >= 0.1
    sizes = [(tmp_path / f"disk-{number}" / "other").stat().st_size for number in range(3)]
    assert load.messages * 4096 in sizes
    assert min(sizes) > 0


def test_rates_beside_a_join_are_those_of_slices_that_touch_it() -> None:
    made = Publishing.__new__(Publishing)
    made.slices = [(0.0, 1.0, 1000), (1.0, 2.0, 500), (2.0, 3.0, 100)]
    assert made.rate(0.0, 1.0) == 1000
    assert made.rate(1.5, 2.5) == 300
    assert made.before(2.5) == 1500
