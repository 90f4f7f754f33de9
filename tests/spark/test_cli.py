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
from holdfast.cli.spark import Steps, in_short, not_started
from holdfast.pipeline.archived import ArchiveDirectory, Range, Run
from holdfast.pipeline.numbered import encode_json
from tests.kit.spark.pipeline_world import publish

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
    assert " of 20 measurements" in said(
        capsys, "measure", "--archive", str(to), "--to", str(tmp_path / "w"), "--window", "1 hour"
    )
    compacted = answered(capsys, "compact", "rig", *place, "--to", str(tmp_path / "c"))
    assert (compacted["read"], compacted["keys"]) == (20, 1)
    assert spark.range(1).count() == 1  # a session that it did not start goes on
    assert len(ArchiveDirectory(to).runs()) == 1


def test_measure_as_a_stream(
    spark: SparkSession, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice from the same checkpoint: first every window is still open, then the old ones are over."""
    data, to = tmp_path / "data", tmp_path / "w"
    monkeypatch.setenv("HOLDFAST_DATA", str(data))
    noon = 1_794_744_000 * 10**9
    arguments = ("measure", "rig", "--to", str(to), "--stream", "--late", "5 seconds")
    publish(data, "rig", [encode_json("r", n, "k", value=float(n), sent_ns=noon + n) for n in range(4)])
    assert f"{to}: 0 windows of 0 measurements" in said(capsys, *arguments)
    publish(data, "rig", [encode_json("r", 9, "k", value=1.0, sent_ns=noon + 60 * 10**9)])
    found = answered(capsys, *arguments)
    assert (found["windows"], found["measurements"], found["late"]) == (1, 4, 0)
    assert (found["rows"][0]["least"], found["rows"][0]["most"]) == (0.0, 3.0)
    assert (tmp_path / "w.checkpoint").is_dir()


def test_audit_of_an_archive_and_what_is_live(
    spark: SparkSession, data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--data is looked at beside --archive, whether topics are named or not."""
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    to, place = str(tmp_path / "a"), ("--data", str(data))
    said(capsys, "archive", "rig", *place, "--to", to)
    publish(data, "rig", [encode_json("r", 21, "k"), b"other"])
    found = answered(capsys, "audit", "--archive", to, *place, status=1)
    assert (found["archived"], found["live"], found["lost"], found["foreign"]) == (20, 2, 1, 1)
    assert found["faults"] == ["lost 1", "not numbered 1"]
    (tmp_path / "expected").write_text('{"rig": {"r": 20}}')
    arguments = ("audit", "rig", "--archive", to, "--expected", str(tmp_path / "expected"))
    assert answered(capsys, *arguments)["messages"] == 20  # nobody says where it is live
    monkeypatch.setenv("HOLDFAST_DATA", str(data))
    both = answered(capsys, *arguments, "--allow-foreign")
    assert (both["messages"], both["producers"][0]["unconfirmed"], both["sound"]) == (22, 1, True)
    assert "shows no topic" in said(capsys, "audit", "rigg", "--archive", to, status=1)
    monkeypatch.delenv("HOLDFAST_DATA")
    assert "holds no topic" in said(capsys, "audit", "rigg", "--archive", to, status=1)


def test_what_is_wrong_before_spark_starts(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts for nothing: what can be seen without it is said at once."""

    def no_spark(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("holdfast.cli.pipeline.spark_for", no_spark)
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    place, nowhere = ("--data", str(data)), str(tmp_path / "nowhere")
    (tmp_path / "deep").write_text('{"t": {"r": {"x": 1}}}')
    (tmp_path / "no").write_text("{")
    counts = {"huge": 2**63, "below": -1, "part": 1.5, "word": '"many"', "true": "true", "list": "[1]"}
    for name, count in counts.items():
        (tmp_path / name).write_text(f'{{"rig": {{"r": {count}}}}}')
    (tmp_path / "twice").write_text('{"rig": {"r": 50, "s": 1, "r": 5}}')
    (tmp_path / "nameless").write_text('{"\\ud800": 5}')
    (tmp_path / "bytes").write_bytes(b'{"\xff": 5}')
    for arguments, words in (
        (("archive", "rig", "--data", nowhere, "--to", "x"), f"there is no directory {nowhere}"),
        (("compact", "rig", "--data", str(tmp_path), "--to", "x"), "is not a data directory"),
        (("audit", "--archive", nowhere), f"{nowhere} is no archive"),
        (("archive", "rigg", *place, "--to", "x"), "shows no topic persistent://public/default/rigg"),
        (("audit", "rig", "rigg", *place), "shows no topic persistent://public/default/rigg"),
        (("measure", "rigg", *place, "--to", "x"), "shows no topic persistent://public/default/rigg"),
        (("measure", "--archive", nowhere, "--to", "x"), f"{nowhere} is no archive"),
        (("replay", nowhere, "--id", "x", "--to", "t"), f"{nowhere} is no archive"),
        (("audit", "rig", *place, "--expected", nowhere), "No such file"),
        (("audit", "rig", *place, "--expected", str(tmp_path / "no")), "is not JSON"),
        (("audit", "rig", *place, "--expected", str(tmp_path / "deep")), "or by topic"),
        *(
            (
                ("audit", "rig", *place, "--expected", str(tmp_path / name)),
                "of r: a number of messages is whole",
            )
            for name in counts
        ),
        (("audit", "rig", *place, "--expected", str(tmp_path / "twice")), "'r' twice, as 50 and as 5"),
        (("audit", "rig", *place, "--expected", str(tmp_path / "nameless")), "no text that a message could"),
        (("audit", "rig", *place, "--expected", str(tmp_path / "bytes")), "is not JSON"),
        (("audit", "rig", *place, "--report", str(tmp_path)), "is a directory; name a file"),
        (("measure", "rig", *place, "--to", "x", "--stream", "--every", "soon"), "no span of time"),
    ):
        assert words in said(capsys, *arguments, status=1), arguments
    with pytest.raises(SystemExit):
        main(["pipeline", "audit", "rig", "--memory", "much"])
    assert "not a size such as 800m or 2g" in capsys.readouterr().err


def test_an_archived_topic_may_be_deleted(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit of it, with those that are live, begins; one of a topic that was never there does not."""

    def no_spark(*_: object) -> None:
        raise Reached

    class Reached(Exception):
        pass

    monkeypatch.setattr("holdfast.cli.pipeline.spark_for", no_spark)
    directory = ArchiveDirectory(tmp_path / "a")
    with directory.changing():
        topics = {"persistent://public/default/gone": Range("aa", 0, 2)}
        directory.commit(Run(1, "archive", 1, "id", "now", topics, []))
    place = ("--archive", str(tmp_path / "a"), "--data", str(data))
    with pytest.raises(Reached):
        main(["pipeline", "audit", "rig", "gone", *place])
    words = said(capsys, "audit", "rig", "never", *place, status=1)
    assert "shows no topic persistent://public/default/never" in words


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


def test_why_spark_did_not_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("WARN something\nError: Could not create the Java Virtual Machine.\nError: A fatal\n")
    words = not_started(log, RuntimeError("gateway exited\nmore"))
    assert words.startswith(
        "Spark did not start: Error: Could not create the Java Virtual Machine.; --spark-log"
    )
    log.write_text("Error occurred during initialization of VM\nToo small maximum heap\n")
    assert "initialization of VM Too small maximum heap;" in not_started(log, RuntimeError("gateway exited"))
    log.write_text(
        "org.apache.spark.SparkException: Could not parse Master URL: 'local[x'\n\tat org.Spark(S:3)\n"
    )
    assert "start: Could not parse Master URL: 'local[x';" in not_started(log, RuntimeError("gateway exited"))
    log.write_text("")
    assert "did not start: gateway exited;" in not_started(log, RuntimeError("gateway exited\nmore"))


def test_errors_in_short() -> None:
    from pyspark.errors import PySparkException

    inner = "Traceback …\nholdfast.errors.Corrupt: block 7 is damaged\n\tat org.apache…"
    assert str(in_short(PySparkException(inner))) == "block 7 is damaged (Corrupt)"
    plain = PySparkException("[NO_COLUMN] there is none. SQLSTATE: 42703; line 1\n'Filter")
    assert str(in_short(plain)) == "there is none."
    assert in_short(ValueError("mine")) is None
    unread = (
        "org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file f."
    )
    assert str(in_short(PySparkException(unread))) == (
        "Encountered error while reading file f; it is missing or damaged: restore it from a copy"
    )


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
