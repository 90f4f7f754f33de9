"""The broker's benchmark runs, fills tables and JSON, and judges; speed is not tested."""

from __future__ import annotations

import json
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from bench import broker, broker_figures
from bench.answers import BenchError
from bench.broker_figures import (
    PLAIN,
    Condition,
    Cost,
    Holes,
    Opening,
    Report,
    Seek,
    Throughput,
)
from bench.broker_peers import PEERS, Plain
from bench.broker_stations import Sample, Setting, Station
from bench.figures import OURS, Spread
from bench.running import missing
from tests.kit.slices import pick


def run(arguments: list[str], tmp_path: Path, memory: Path) -> dict[str, Any]:
    """Use a file system in memory: the speed of a disk does not matter here."""
    where = memory / "disk"
    where.mkdir()
    arguments = [*arguments, "--quick", "--batch", "10", "--where", str(where)]
    assert broker.main([*arguments, "--json", str(tmp_path / "out.json")]) == 0
    assert list(where.iterdir()) == []
    content: dict[str, Any] = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert content["failed"] == {}
    return content


def test_a_tiny_run_of_publish_and_consume(
    tmp_path: Path, runtime_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = pick(test=[1024], nightly=[100, 1024])
    given = ["--sizes", ",".join(map(str, sizes)), "--seconds", "0.01"]
    content = run(["--only", "throughput,peers", *given], tmp_path, runtime_directory)
    cells = {(cell["size"], cell["contestant"], cell["measure"]): cell for cell in content["throughput"]}
    for size in sizes:
        for measure in ("publish", "consume", "consume and ack", "ack with receipt", "both at once"):
            assert cells[size, OURS, measure]["median"] > 0
        assert cells[size, PLAIN, "publish"]["median"] > 0
        ours, plain = (cells[size, name, "publish"]["samples"][0] for name in (OURS, PLAIN))
        assert ours["rounds"] > 0
        assert ours["rounds"] == plain["rounds"]  # the same rounds
        assert plain["messages"] == ours["messages"]
        assert abs(plain["round_bytes"] - ours["round_bytes"]) <= ours["rounds"]  # of the same size
    for name, (_, module, batches) in PEERS.items():
        assert (name in content["absent"]) == (missing(module) is not None)
        assert ((1024, name, "publish") in cells) == (batches and missing(module) is None)
    table = capsys.readouterr().out
    assert "1 KiB, entries/s (MB/s)" in table
    assert "holdfast / plain program" in table
    assert any("of the plain program" in goal["text"] for goal in content["goals"])


# In `make test`, test_a_tiny_run_at_scale runs the same program and its report over other parts.
# tests/process/server/test_asymmetry.py counts the cost of a crowd.
@pytest.mark.nightly
def test_a_tiny_run_beside_crowds(
    tmp_path: Path, runtime_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = run(["--only", "cost"], tmp_path, runtime_directory)
    assert {cost["crowd"] for cost in content["costs"]} == {
        "",
        "entries of backlog",
        "entries in hand",
        "holes",
        "idle topics",
        "topics with policies",
        "idle subscriptions",
        "idle consumers",
    }
    assert all(cost["cpu_us"]["median"] > 0 for cost in content["costs"])
    assert "µs per entry beside" in capsys.readouterr().out


def test_a_tiny_run_at_scale(
    tmp_path: Path, runtime_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = run(["--only", "backlog,holes", "--backlogs", "100000,300000"], tmp_path, runtime_directory)
    stops = {(each["entries"], each["stop"]) for each in content["openings"]}
    assert stops == {(entries, stop) for entries in (100, 300) for stop in ("clean", "killed")}
    assert all(each["redone"] > 0 for each in content["openings"] if each["stop"] == "killed")
    assert {each["by"] for each in content["seeks"]} == {"id", "time"}
    assert [each["number"] for each in content["holes"]] == [1000, 1000]
    table = capsys.readouterr().out
    for words in ("opening after a stop", "seek, and the first", "holes"):
        assert words in table


def test_the_plain_program_writes_what_it_was_told(tmp_path: Path) -> None:
    plain = Plain(Setting(tmp_path, 100, 10, 1))
    sample = plain.rounds(40, 4, 4 * 4096)
    assert (sample.messages, sample.rounds, sample.round_bytes) == (40, 4, 4 * 4096)
    assert (tmp_path / "journal").read_bytes() == (tmp_path / "ledger").read_bytes()
    assert (tmp_path / "journal").stat().st_size == 4 * 4096
    assert plain.consume(3).messages == 30
    plain.close()


class Fails:
    """A contestant that fails at its work."""

    def publish(self) -> None:
        raise RuntimeError("no")

    def close(self) -> None:
        pass


def test_a_contestant_that_fails_is_named() -> None:
    with Station(get_context("spawn"), "fails", Fails) as station:
        with pytest.raises(BenchError, match="RuntimeError: no"):
            station.call("publish")
        station.kill()


# -- goals --------------------------------------------------------------------------------------------


def made_up(share: float, growth: float, seconds: float, memory: int) -> Report:
    made = Report({"cpu": "?", "cores": 2, "kernel": "6", "python": "3"}, {})
    made.machine.update(others_share=0, file_system="ext4")
    made.settings.update(rounds=1, batch=1000, window=4)
    size = Throughput(1024)
    size.add(OURS, "publish", Sample(1000, 1 / share, 0.1, 10, 1 << 20, 1 if share > 0.7 else 0))
    size.add(PLAIN, "publish", Sample(1000, 1.0, 0.1, 10, 1 << 20))
    size.singles[OURS] = [(100.0, 200.0)]
    made.throughput = [size]
    for crowd, times in (("", 1.0), ("holes", growth)):
        samples = {name: [Sample(1000, 1.0, 0.001 * times)] for name in ("publish", "consume and ack")}
        made.costs.append(Cost(Condition(crowd, 1000 if crowd else 0), samples))
    for entries, bytes_ in ((1000, 0), (10_000_000, memory)):
        made.openings.append(Opening(entries, "killed", Spread.of([seconds]), 5, bytes_))
        made.seeks.append(Seek(entries, "id", False, 10.0 if entries == 1000 else 10.0 * growth, 20.0))
    made.holes = [Holes(1_000_000, "at random", memory)]
    return made


def test_goals_are_judged_by_the_figures() -> None:
    good = list(made_up(share=0.71, growth=1.1, seconds=1.9, memory=9_000_000).goals())
    assert len(good) == 8
    assert all(goal.met for goal in good)
    bad = made_up(share=0.69, growth=1.6, seconds=2.1, memory=90_000_000)
    assert [goal.text for goal in list(bad.goals())] == [goal.text for goal in good]
    assert not any(goal.met for goal in list(bad.goals()))
    assert bad.text().count("MISSED") == 8
    assert json.dumps(bad.as_json())


def test_nothing_is_judged_that_was_not_measured() -> None:
    assert list(Report({}, {}).goals()) == []


def test_shares_are_taken_round_by_round() -> None:
    found = Throughput(1024)
    for ours, plain in ((1.0, 2.0), (4.0, 4.0)):
        found.add(OURS, "publish", Sample(100, 1 / ours, 0.0))
        found.add(broker_figures.PLAIN, "publish", Sample(100, 1 / plain, 0.0))
    assert found.shares() == [0.5, 1.0]


def test_only_with_an_unknown_part_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        broker.main(["--quick", "--only", "carrier pigeon"])
    assert "'carrier pigeon' is not a part" in capsys.readouterr().err
