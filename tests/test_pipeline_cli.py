"""`holdfast pipeline`: what it prints, its JSON, its exit status. In the session that all tests share."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.cli import main
from holdfast.cli.spark import Steps, in_short
from holdfast.pipeline.archived import ArchiveDirectory
from holdfast.pipeline.numbered import encode_json
from pipeline_world import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    publish(path, "rig", [encode_json("r", n, "k", value=float(n)) for n in range(20)], key="k")
    return path


def said(capsys: Capture, *arguments: str, status: int = 0) -> str:
    capsys.readouterr()
    assert main(["pipeline", *arguments]) == status
    shown = capsys.readouterr()
    assert (shown.err == "") == (status == 0), shown.err
    assert "Traceback" not in shown.err
    return shown.out if status == 0 else shown.err


def answered(capsys: Capture, *arguments: str, status: int = 0) -> Any:
    capsys.readouterr()
    assert main(["pipeline", *arguments, "--json"]) == status
    shown = capsys.readouterr()
    assert shown.err == ""
    return json.loads(shown.out)


def test_archive_audit_measure_compact(
    spark: SparkSession, data: Path, tmp_path: Path, capsys: Capture
) -> None:
    to, page = tmp_path / "archive", tmp_path / "report.html"
    place = ("--data", str(data))
    words = said(capsys, "archive", "rig", *place, "--to", str(to), "--subscription", "s", "--verify")
    assert "20 rows" in words
    assert "read back and right" in words
    again = answered(capsys, "archive", "rig", *place, "--to", str(to), "--subscription", "s")
    assert (again["run"], again["topics"][0]["acked_to"]) == (None, 20)
    words = said(capsys, "audit", "rig", *place, "--archive", str(to), "--report", str(page))
    assert "sound: 20 messages (20 archived, 0 live)" in words
    assert f"report: {page}" in words
    assert "Sound" in page.read_text()
    (tmp_path / "expected").write_text('{"r": 22}')
    arguments = ("audit", "--archive", str(to), "--expected", str(tmp_path / "expected"))
    wrong = answered(capsys, *arguments, status=1)
    assert (wrong["lost"], wrong["sound"], wrong["gaps"][0]["first"]) == (2, False, 20)
    assert "windows of 20 measurements" in said(
        capsys, "measure", "--archive", str(to), "--to", str(tmp_path / "w"), "--window", "1 hour"
    )
    compacted = answered(capsys, "compact", "rig", *place, "--to", str(tmp_path / "c"))
    assert (compacted["read"], compacted["keys"]) == (20, 1)
    assert spark.range(1).count() == 1  # a session that it did not start goes on
    assert len(ArchiveDirectory(to).runs()) == 1


def test_what_is_wrong_is_said_in_a_line(
    spark: SparkSession, data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = str(tmp_path / "a")
    place = ("--data", str(data))
    assert "shows no topic" in said(capsys, "archive", "nope", *place, "--to", to, status=1)
    assert "is not a data directory" in said(
        capsys, "archive", "rig", "--data", str(tmp_path), "--to", to, status=1
    )
    said(capsys, "archive", "rig", *place, "--to", to)
    complaint = said(capsys, "replay", to, "--id", "x", "--to", "t", "--where", "colour = 1", status=1)
    assert "`colour` cannot be resolved" in complaint
    assert complaint.count("\n") == 1
    (tmp_path / "expected").write_text('["r"]')
    arguments = ("audit", "--archive", to, "--expected", str(tmp_path / "expected"))
    assert "how many were confirmed" in said(capsys, *arguments, status=1)
    assert "Name topics" in said(capsys, "audit", status=2)
    assert "Name topics" in said(capsys, "measure", "--to", "x", status=2)
    assert "a stream reads topics" in said(
        capsys, "measure", "--to", "x", "--archive", to, "--stream", status=2
    )
    assert "no span of time" in said(
        capsys, "measure", "--to", "x", "--archive", to, "--window", "soon", status=1
    )
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    assert "which data directory" in said(capsys, "audit", "rig", status=2)


def test_init(tmp_path: Path, capsys: Capture) -> None:
    assert "5 files" in said(capsys, "init", str(tmp_path / "p"))
    assert "not empty" in said(capsys, "init", str(tmp_path / "p"), status=1)
    assert len(answered(capsys, "init", str(tmp_path / "q"))["files"]) == 5


def test_every_verb_explains_itself(capsys: Capture) -> None:
    for verb in ("archive", "compact", "audit", "replay", "measure", "init"):
        with pytest.raises(SystemExit) as ended:
            main(["pipeline", verb, "--help"])
        assert ended.value.code == 0
        assert verb in capsys.readouterr().out


def test_errors_in_short() -> None:
    from pyspark.errors import PySparkException

    inner = "Traceback …\nholdfast.errors.Corrupt: block 7 is damaged\n\tat org.apache…"
    assert str(in_short(PySparkException(inner))) == "block 7 is damaged (Corrupt)"
    plain = PySparkException("[NO_COLUMN] there is none. SQLSTATE: 42703; line 1\n'Filter")
    assert str(in_short(plain)) == "there is none."
    assert in_short(ValueError("mine")) is None


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Tracker:
    """Of a session with a stage that is half done."""

    def getActiveStageIds(self) -> list[int]:  # noqa: N802  # Spark's name
        return [7]

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802
        return SimpleNamespace(numTasks=4, numCompletedTasks=2) if stage == 7 else None


def test_progress_is_for_terminals_only(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with Steps() as steps:
        steps("write", "20 entries")
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with Steps() as steps:
        steps.spark = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=Tracker))  # type: ignore[assignment]
        steps("write", "20 entries")
        while "writing 20 entries" not in terminal.getvalue():
            time.sleep(0.01)
    assert "███████████████░░░░░░░░░░░░░░░  2 of 4 tasks" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K")
