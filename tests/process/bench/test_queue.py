"""The queue's benchmark runs, fills table and JSON, and judges; speed is not tested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

import pytest

from bench import figures, queue, queue_figures, running
from bench.attached import measure_attached
from bench.figures import Spread
from bench.queue_figures import Attached, Recovery, Reference, Report
from bench.rounds import Results, batch_lengths, cases_of
from holdfast import Queue

TINY = ["--rounds", "1", "--seconds", "0.002", "--capacity", "4M", "--kills", "2"]


@pytest.fixture(autouse=True)
def no_queue_is_left_behind() -> Iterator[None]:
    before = set(Queue.list())
    yield
    assert set(Queue.list()) <= before


def run(arguments: list[str], file: Path) -> dict[str, object]:
    assert queue.main([*TINY, *arguments, "--json", str(file)]) == 0
    content: dict[str, object] = json.loads(file.read_text(encoding="utf-8"))
    return content


def test_a_tiny_run_fills_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    only = "holdfast,pipe,references,recovery"
    content = run(["--sizes", "64,64k", "--batches", "4", "--only", only], tmp_path / "out.json")
    table = capsys.readouterr().out
    for words in (
        "64 B, messages/s",
        "64 KiB, round trip",
        "holdfast, iterated",
        "holdfast, view",
        "multiprocessing.Pipe",
    ):
        assert words in table
    assert content["failed"] == {}
    cells = content["results"]
    assert isinstance(cells, list)
    measured = {(cell["size"], cell["transport"], cell["reading"], cell["measure"]) for cell in cells}
    for size in (64, 1 << 16):
        for measure in ("single", "batch 4", "spinning", "blocking", "asleep"):
            assert (size, "holdfast", "copy", measure) in measured
            assert (size, "multiprocessing.Pipe", "copy", measure) in measured
        assert (size, "holdfast", "iterate", "batch 4") in measured
    assert (1 << 16, "holdfast", "view", "single") in measured
    assert all(cell["low"] <= cell["median"] <= cell["high"] for cell in cells)
    assert all(cell["median"] > 0 for cell in cells)
    judged = content["goals"]
    assert isinstance(judged, list)
    assert all(set(goal) == {"text", "result", "met"} for goal in judged)
    assert any("single calls" in goal["text"] for goal in judged)
    assert any("killed writer" in goal["text"] for goal in judged)


@pytest.mark.parametrize("name", ["multiprocessing.Queue", "faster-fifo", "pyzmq", "iceoryx2"])
def test_each_peer_runs_or_is_named_as_absent(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = run(["--sizes", "1k", "--batches", "3", "--only", name], tmp_path / "out.json")
    absent, failed, cells = content["absent"], content["failed"], content["results"]
    assert isinstance(absent, dict)
    assert isinstance(cells, list)
    assert failed == {}
    assert bool(cells) != bool(absent)
    if absent:
        assert "pip install 'holdfast[bench]'" in capsys.readouterr().out


def test_idle_processes_attach_and_leave() -> None:
    measured = measure_attached(get_context("spawn"), rounds=2, others=(1, 3), pairs=10)
    assert [item.others for item in measured] == [1, 3]
    assert all(item.pair_ns.low > 0 for item in measured)


def made_up(single: float, trip_us: float, kill_us: float) -> Report:
    small, large = Results(64, rounds=1), Results(1 << 20, rounds=1)
    for reading in ("copy", "view"):
        large.rates["holdfast", reading, "single"] = [single / 100]
    small.rates["holdfast", "copy", "single"] = [single]
    small.rates["holdfast", "copy", "batch 256"] = [single * 6]
    small.rates["multiprocessing.Pipe", "copy", "single"] = [1e6]
    small.rates["multiprocessing.Pipe", "copy", "batch 256"] = [9e6]
    small.trips["holdfast", "copy", "spinning"] = [(trip_us, 2 * trip_us)]
    one = Spread(kill_us, kill_us, kill_us)
    made = Report({"cpu": "?", "cores": 2, "kernel": "6", "python": "3", "others_share": 0}, {})
    made.settings.update(rounds=1, seconds=1.0, capacity_mib=1.0)
    made.results = [small, large]
    made.references = [Reference(1 << 20, Spread.of([3e4 * 2**20]), Spread.of([3e4]))]
    made.recovery = Recovery(1, one, kill_us, one)
    made.attached = [Attached(1, Spread.of([300.0])), Attached(128, Spread.of([kill_us]))]
    return made


def test_goals_are_judged_by_the_figures() -> None:
    good = list(made_up(single=3.2e6, trip_us=2.9, kill_us=310).goals())
    assert len(good) == 10
    assert all(goal.met for goal in good)
    bad = list(made_up(single=1.4e6, trip_us=3.1, kill_us=1001).goals())
    assert [goal.text for goal in bad] == [goal.text for goal in good]
    assert not any(goal.met for goal in bad)
    assert made_up(single=1.4e6, trip_us=3.1, kill_us=1001).text().count("MISSED") == 10


def test_nothing_is_judged_that_was_not_measured() -> None:
    assert list(Report({}, {}).goals()) == []


def test_the_best_peer_is_never_holdfast() -> None:
    results = made_up(1e9, 1, 1).results[0]
    assert queue_figures.best_peer(results, "single") == ("multiprocessing.Pipe", 1e6)
    assert queue_figures.best_peer_trip(results, "spinning") is None


def test_batches_of_large_messages_are_cut() -> None:
    assert batch_lengths(64, [256, 1000]) == [256, 1000]
    assert batch_lengths(1 << 16, [256, 1000]) == [16]
    assert batch_lengths(1 << 20, [256, 1000]) == [4]
    lengths = {case.length for case in cases_of(queue.KINDS[0], 1 << 16, [256])}
    assert lengths == {0, 16}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.117, "0.12"),
        (42, "42.0"),
        (999.7, "1.00 k"),
        (350_000, "350 k"),
        (1_050_000, "1.05 M"),
        (2.04e7, "20.4 M"),
    ],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert figures.number(value) == text


@pytest.mark.parametrize(("text", "size"), [("64", 64), ("1k", 1024), ("64KiB", 1 << 16), ("2M", 2 << 20)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert running.size_argument(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1G", "x", "1.5k"])
def test_what_is_no_size_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        queue.main(["--sizes", text or ","])
    assert "is not a size" in capsys.readouterr().err


def test_only_with_an_unknown_name_says_so() -> None:
    with pytest.raises(SystemExit, match="no part has that in its name"):
        queue.main(["--only", "carrier pigeon"])
