"""Test that a command reports idle workers of Spark, and gives up. Time is simulated."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli import starved
from holdfast.cli.spark import elsewhere, setting
from holdfast.cli.starved import Starved, Watch, Work, is_local, slow_start

WAITING = Work(tasks=8, running=0, ended=0)


def verdicts(found: Starved, *looks: tuple[float, Work]) -> list[str]:
    return [found.look(now, work) for now, work in looks]


def test_a_word_and_then_the_end() -> None:
    found = Starved(15, 300)
    told = verdicts(found, *((float(now), WAITING) for now in range(0, 320, 5)))
    assert told.count("say") == 1
    assert told.index("say") == 3
    assert told.index("end") == 60
    assert set(told[60:]) == {"end"}


@pytest.mark.parametrize(
    "work",
    [
        Work(0, 0, 0),  # between two stages
        Work(8, 1, 0),  # one runs, however long it takes
        Work(8, 0, 1),  # one has ended since
    ],
)
def test_whatever_moves_is_not_starved(work: Work) -> None:
    found = Starved(15, 300)
    assert verdicts(found, (0, WAITING), (14, WAITING), (14.5, work), (29, WAITING)) == ["wait"] * 4
    assert verdicts(found, (400, work), (401, WAITING), (414, WAITING)) == ["wait", "wait", "wait"]
    told = verdicts(found, (420, WAITING), (440, WAITING), (441, work), (442, WAITING), (470, WAITING))
    assert told.count("say") >= 1, "it begins anew"
    assert "end" not in told


def test_tasks_that_end_in_turn_are_never_starved() -> None:
    found = Starved(15, 300)
    looks = [(float(now), Work(1000, 0, now // 10)) for now in range(0, 2000, 5)]
    assert set(verdicts(found, *looks)) == {"wait"}


class Context:
    """As much of Spark's as a watch asks for."""

    def __init__(self, master: str, stage: Any) -> None:
        self.master, self.stage = master, stage
        self.cancelled = threading.Event()

    def statusTracker(self) -> Any:  # noqa: N802
        return SimpleNamespace(getActiveStageIds=lambda: [1, 2], getStageInfo={1: self.stage, 2: None}.get)

    def getConf(self) -> Any:  # noqa: N802
        return {"spark.executor.memory": "1g"}

    def cancelAllJobs(self) -> None:  # noqa: N802
        self.cancelled.set()


def watched(master: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Context, list[str], Watch]:
    monkeypatch.setattr(starved, "EACH_S", 0.001)
    stage = SimpleNamespace(numTasks=8, numActiveTasks=0, numCompletedTasks=0, numFailedTasks=0)
    context, said = Context(master, stage), list[str]()
    return context, said, Watch(SimpleNamespace(sparkContext=context), 0.01, 0.001, said.append)  # type: ignore[arg-type]


def test_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    context, said, watch = watched("spark://10.0.0.1:7077", monkeypatch)
    with watch:
        assert context.cancelled.wait(30)
    words = said[0]
    for part in (
        "spark://10.0.0.1:7077",
        "8 tasks",
        "1g",
        "--conf spark.executor.memory=512m",
        "--spark-log",
    ):
        assert part in words
        assert part in watch.given_up


def test_a_local_session_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    for master in ("local", "local[*]", "local[2]"):
        context, said, watch = watched(master, monkeypatch)
        with watch:
            assert not watch._thread.is_alive()
        assert (said, watch.given_up, context.cancelled.is_set()) == ([], "", False)
    assert not is_local("local-cluster[1,1,700]")


def test_a_start_that_takes_long_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also while all that Java says goes elsewhere."""
    with slow_start("yarn", 60.0), elsewhere(str(tmp_path / "log")):
        pass
    assert capfd.readouterr().err == ""
    written = threading.Event()
    real = os.write

    def write(number: int, data: bytes) -> int:
        written.set()
        return real(number, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", write)
        with slow_start("yarn", 0.0), elsewhere(str(tmp_path / "log")):
            assert written.wait(30)
    assert "Spark has not started for 0 s (yarn)" in capfd.readouterr().err
    assert (tmp_path / "log").read_text() == ""


def test_a_setting_has_a_name_and_a_value() -> None:
    assert setting("spark.executor.memory=512m") == ("spark.executor.memory", "512m")
    assert setting("spark.a.options=-Dx=1 -Dy=2") == ("spark.a.options", "-Dx=1 -Dy=2")
    assert setting("spark.empty=") == ("spark.empty", "")
    for wrong in ("spark.executor.memory", "executor.memory=1g", "=1", "spark.=1", "spark.a b=1"):
        with pytest.raises(Exception, match="is not a setting such as"):
            setting(wrong)
