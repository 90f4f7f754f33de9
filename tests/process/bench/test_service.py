"""The service's benchmark runs, fills table and JSON, and judges; speed is not tested."""

from __future__ import annotations

import json
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from bench import service
from bench.figures import Spread
from bench.rounds import Results
from bench.service_calls import measure_calls
from bench.service_figures import (
    CALL_BLOCKING,
    CALL_SPINNING,
    CONNECT,
    ELSEWHERE,
    OFFER,
    REAP,
    SOCKET_BLOCKING,
    SOCKET_SPINNING,
    SPINNING,
    STATES,
    Called,
    Published,
    Recovered,
    Report,
)
from bench.service_publish import SIZES, measure_publish
from bench.service_recovery import measure_recovery
from holdfast import _core
from holdfast.memory.places import place

TINY = ["--rounds", "1", "--seconds", "0.002", "--count", "200"]


@pytest.fixture(autouse=True)
def no_service_is_left_behind() -> Iterator[None]:
    before = set(_core.list_services(place(None)))
    yield
    assert set(_core.list_services(place(None))) <= before


def run(arguments: list[str], file: Path) -> dict[str, Any]:
    assert service.main([*TINY, *arguments, "--json", str(file)]) == 0
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def test_a_tiny_run_fills_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = run(["--sizes", "64,1M", "--only", "trips,calls"], tmp_path / "out.json")
    table = capsys.readouterr().out
    for words in ("zero copy, one way", "copied, one way", "method, spinning", "Unix socket", "1 MiB"):
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
    assert content["publish"] == content["recovery"] == []
    assert all(set(goal) == {"text", "result", "met"} for goal in content["goals"])


def test_parts_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        service.main(["--only", "speed"])
    assert "'speed' is not a part" in capsys.readouterr().err


def test_a_publication_is_measured_beside_subscribers() -> None:
    measured = measure_publish(get_context("spawn"), rounds=1, count=100, peer=False, counts=(1, 2))
    assert {(each.size, each.subscribers, each.state) for each in measured} == {
        (size, count, state) for size in SIZES for count in (1, 2) for state in STATES
    }
    assert all(each.publish_ns.low > 0 and len(each.samples) == 1 for each in measured)


def test_recovery_clears_all_dead_proxies() -> None:
    measured = measure_recovery(get_context("spawn"), rounds=1, logs=5)
    assert {each.name for each in measured} == {OFFER, CONNECT, REAP}
    assert all(each.logs == 5 and each.dead_us.low > 0 and each.none_us.low > 0 for each in measured)


def test_calls_are_measured_beside_sockets() -> None:
    measured = measure_calls(get_context("spawn"), rounds=2, count=50)
    names = {each.name for each in measured}
    assert names == {CALL_SPINNING, CALL_BLOCKING, SOCKET_SPINNING, SOCKET_BLOCKING}
    assert all(len(each.samples) == 2 and each.p50_us.low > 0 for each in measured)


def made_up(ratio: float, growth: float, recovery_us: float, call_us: float) -> Report:
    report = Report({"cpu": "?", "cores": 2, "kernel": "6", "python": "3", "others_share": 0}, {})
    report.settings.update(rounds=1, seconds=1.0)
    for size, peer in ((64, 3.0), (1 << 20, 9.0)):
        results = Results(size, rounds=1)
        for suffix, form in (("", "zero copy"), (", copied", "copied")):
            results.trips[f"holdfast{suffix}", form, "spinning"] = [(3.0 * ratio, 4.0)]
            results.trips[f"iceoryx2{suffix}", form, "spinning"] = [(peer if ratio < 1 else 3.0, 4.0)]
        report.results.append(results)
    for state in STATES:
        for count in (1, 8):
            for size in SIZES:
                cost = 100.0 * (growth if (count, size) != (1, 64) else 1)
                report.published.append(Published("holdfast", size, count, state, Spread.of([cost]), [cost]))
    for name in (OFFER, CONNECT, REAP):
        spread = Spread.of([recovery_us])
        report.recovered.append(Recovered(name, 62, spread, Spread.of([1.0]), [(recovery_us, 1.0)]))
    report.called = [Called(CALL_SPINNING, [(call_us, 9.0)]), Called(SOCKET_BLOCKING, [(9.0, 9.0)])]
    return report


def test_goals_are_judged_by_the_figures() -> None:
    good = made_up(ratio=0.3, growth=1.1, recovery_us=900.0, call_us=4.9)
    bad = made_up(ratio=1.1, growth=1.2, recovery_us=1001.0, call_us=5.1)
    assert len(list(good.goals())) == 11
    assert all(goal.met for goal in good.goals())
    assert [goal.text for goal in bad.goals()] == [goal.text for goal in good.goals()]
    assert not any(goal.met for goal in bad.goals())
    assert bad.text().count("MISSED") == 11
    assert f"subscribers {ELSEWHERE}" in good.text()
    assert f"subscribers {SPINNING}" in good.text()


def test_nothing_is_judged_that_was_not_measured() -> None:
    assert list(Report({}, {}).goals()) == []
