"""The channel's benchmark runs, fills table and JSON, and judges; speed is not tested."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from bench import channel
from bench.channel_figures import LAYOUTS, Beside, Core, Report, Ring
from bench.channel_push import measure_push
from bench.figures import Spread
from bench.rounds import Results
from holdfast import Channel, _core

TINY = ["--rounds", "1", "--seconds", "0.002", "--count", "200"]


@pytest.fixture(autouse=True)
def no_channel_is_left_behind() -> Iterator[None]:
    before = set(Channel.list())
    yield
    assert set(Channel.list()) <= before


def run(arguments: list[str], file: Path) -> dict[str, Any]:
    assert channel.main([*TINY, *arguments, "--json", str(file)]) == 0
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def test_a_tiny_run_fills_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = run(["--sizes", "64,1M"], tmp_path / "out.json")
    table = capsys.readouterr().out
    for words in ("zero copy, one way", "copied, one way", "one per cache line", "stopped", "1 MiB"):
        assert words in table
    assert content["failed"] == {}
    transports = {"holdfast"} if content["absent"] else {"holdfast", "iceoryx2"}
    cells = content["results"]
    assert {(cell["size"], cell["transport"], cell["form"]) for cell in cells} == {
        (size, name, form)
        for size in (64, 1 << 20)
        for name in transports
        for form in ("zero copy", "copied")
    }
    assert all(0 < cell["low"] <= cell["median"] <= cell["high"] for cell in cells)
    assert all(len(cell["samples"]) == 1 for cell in cells)
    assert [each["state"] for each in content["push"]] == ["live", "stopped", "dead"]
    assert all(set(goal) == {"text", "result", "met"} for goal in content["goals"])
    if len(os.sched_getaffinity(0)) >= 2:
        core = content["core"]
        assert len(core["line_ns"]) == len(content["line_ns"]) == 1
        rings = [(ring["slots"], ring["layout"]) for ring in core["rings"]]
        assert rings == [(slots, layout) for slots in channel.RINGS for layout in LAYOUTS]
        for ring in core["rings"]:
            assert all(len(ring[key]) == 1 for key in ("one_way_ns", "push_ns", "popped", "alone_ns"))


def test_parts_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = run(["--only", "push"], tmp_path / "out.json")
    assert content["results"] == []
    assert content["core"] is None
    assert len(content["push"]) == 3
    with pytest.raises(SystemExit):
        channel.main(["--only", "speed"])
    assert "'speed' is not a part" in capsys.readouterr().err


def test_a_push_is_measured_beside_each_consumer() -> None:
    measured = measure_push(get_context("spawn"), rounds=2, pushes=100)
    assert [item.state for item in measured] == ["live", "stopped", "dead"]
    assert all(item.push_ns.low > 0 and len(item.samples) == 2 for item in measured)
    live, stopped, dead = measured
    assert live.displaced <= 1
    assert min(stopped.displaced, dead.displaced) > 0.9


@pytest.mark.parametrize("packed", [True, False])
def test_the_hand_over_without_python(packed: bool) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        with pytest.raises(RuntimeError, match="two cores"):
            _core.reference_channel_pingpong(1, 4, packed)
        return
    assert _core.reference_channel_pingpong(100, 4, packed) > 0
    push_ns, popped = _core.reference_channel_stream(1000, 4, packed, True)
    assert push_ns > 0
    assert 0 <= popped <= 1000
    assert _core.reference_channel_stream(1000, 4, packed, False)[1] == 0
    with pytest.raises(ValueError, match="at least one"):
        _core.reference_channel_stream(0, 4, packed, True)


def made_up(one_way_us: float, large_us: float, dearer: float, handover_ns: float) -> Report:
    report = Report({"cpu": "?", "cores": 2, "kernel": "6", "python": "3", "others_share": 0}, {})
    report.settings.update(rounds=1, seconds=1.0)
    for size, trip in ((64, 2 * one_way_us), (1 << 20, 2 * large_us)):
        results = Results(size, rounds=1)
        results.trips["holdfast", "zero copy", "spinning"] = [(trip, 2 * trip)]
        results.trips["holdfast, copied", "copied", "spinning"] = [(10 * trip, 20 * trip)]
        results.trips["iceoryx2", "zero copy", "spinning"] = [(3.0, 4.0)]
        results.trips["iceoryx2, copied", "copied", "spinning"] = [(30.0, 40.0)]
        report.results.append(results)
    rings = [Ring(slots, each, [handover_ns], [9.0], [1.0], [9.0]) for slots in (4, 64) for each in LAYOUTS]
    report.core = Core([50.0], rings)
    report.pushes = [
        Beside(state, Spread.of([cost]), 1.0, [cost])
        for state, cost in (("live", 100.0), ("stopped", 100.0 * dearer), ("dead", 100.0 * dearer))
    ]
    return report


def test_goals_are_judged_by_the_figures() -> None:
    good = made_up(one_way_us=0.7, large_us=0.7, dearer=1.1, handover_ns=190.0)
    bad = made_up(one_way_us=1.6, large_us=2.0, dearer=1.2, handover_ns=201.0)
    assert len(list(good.goals())) == 7
    assert all(goal.met for goal in good.goals())
    assert [goal.text for goal in bad.goals()] == [goal.text for goal in good.goals()]
    assert not any(goal.met for goal in bad.goals())
    assert bad.text().count("MISSED") == 7


def test_nothing_is_judged_that_was_not_measured() -> None:
    assert list(Report({}, {}).goals()) == []


def test_a_ratio_needs_both() -> None:
    report = made_up(0.7, 0.7, 1.0, 100.0)
    for results in report.results:
        del results.trips["iceoryx2, copied", "copied", "spinning"]
    assert len(list(report.goals())) == 6
    assert "–" in report.text()
