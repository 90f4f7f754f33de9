"""`holdfast pipeline` before, and without, Spark: what is wrong, how it is said, its progress."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.cli.spark import Interrupts, Steps, in_short, not_started, wait_for
from holdfast.errors import NotFound
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Range, Run
from holdfast.pipeline.jobs.inputs import silent
from tests.kit.processes import until
from tests.kit.spark.pipeline_cli import Capture, answered, said
from tests.kit.spark.pipeline_world import data as data
from tests.kit.spark.ways import check_conf, check_overwrite


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
        (("audit", "--archive", nowhere), f"{nowhere} is not an archive"),
        (("archive", "rigg", *place, "--to", "x"), "shows no topic persistent://public/default/rigg"),
        (("audit", "rig", "rigg", *place), "shows no topic persistent://public/default/rigg"),
        (("measure", "rigg", *place, "--to", "x"), "shows no topic persistent://public/default/rigg"),
        (("measure", "--archive", nowhere, "--to", "x"), f"{nowhere} is not an archive"),
        (("replay", nowhere, "--id", "x", "--to", "t"), f"{nowhere} is not an archive"),
        (("audit", "rig", *place, "--expected", nowhere), "No such file"),
        (("audit", "rig", *place, "--expected", str(tmp_path / "no")), "is not JSON"),
        (("audit", "rig", *place, "--expected", str(tmp_path / "deep")), "or by topic"),
        *(
            (
                ("audit", "rig", *place, "--expected", str(tmp_path / name)),
                "for r; a number of messages is whole",
            )
            for name in counts
        ),
        (("audit", "rig", *place, "--expected", str(tmp_path / "twice")), "'r' twice, as 50 and as 5"),
        (("audit", "rig", *place, "--expected", str(tmp_path / "nameless")), "is not valid text"),
        (("audit", "rig", *place, "--expected", str(tmp_path / "bytes")), "is not JSON"),
        (("audit", "rig", *place, "--report", str(tmp_path)), "is a directory; name a file"),
        (("measure", "rig", *place, "--to", "x", "--stream", "--every", "soon"), "not a span of time"),
    ):
        assert words in said(capsys, *arguments, status=1), arguments
    with pytest.raises(SystemExit):
        main(["pipeline", "audit", "rig", "--memory", "much"])
    assert "not a size such as 800m or 2g" in capsys.readouterr().err


def test_an_archived_topic_may_be_deleted(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An audit of it beside live topics starts; one of an unknown topic does not."""

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


def test_what_an_audit_looks_at(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Live topics are audited beside an archive only if their place is given."""
    looked: list[tuple[Any, Any]] = []

    def audit(spark: Any, *, topics: Any, archive: Any, path: Any = None, **_: Any) -> None:
        assert topics == ["rig"]
        looked.append((archive, path))
        raise NotFound("enough")

    monkeypatch.setattr("holdfast.pipeline.audit.audit", audit)
    monkeypatch.setattr("holdfast.cli.pipeline.spark_for", lambda _: contextlib.nullcontext((None, silent)))
    directory = ArchiveDirectory(tmp_path / "a")
    with directory.changing():
        topics = {"persistent://public/default/rig": Range("aa", 0, 2)}
        directory.commit(Run(1, "archive", 1, "id", "now", topics, []))
    to, live = str(tmp_path / "a"), str(data)
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    said(capsys, "audit", "rig", "--archive", to, status=1)
    said(capsys, "audit", "rig", "--archive", to, "--data", live, status=1)
    said(capsys, "audit", "rig", "--data", live, status=1)
    monkeypatch.setenv("HOLDFAST_DATA", live)
    said(capsys, "audit", "rig", "--archive", to, status=1)
    assert looked == [(to, None), (to, live), (None, live), (to, live)]


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
        until(lambda: "writing 20 entries" in terminal.getvalue())
    assert "███████████████░░░░░░░░░░░░░░░  2 of 4 tasks" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K")


# -- Ctrl-C -------------------------------------------------------------------------------------------


def test_an_interrupt_is_held_back_once() -> None:
    interrupts = Interrupts()
    with interrupts.held():
        interrupts()
        assert (interrupts.came, interrupts.raised) == (True, False)
        with pytest.raises(KeyboardInterrupt):
            interrupts()
    assert interrupts.raised
    with pytest.raises(KeyboardInterrupt):
        Interrupts()()


class Query:
    """A stream that goes on until it is stopped."""

    def __init__(self) -> None:
        self.stopped = threading.Event()

    def awaitTermination(self) -> None:  # noqa: N802  # Spark's name
        self.stopped.wait()
        raise RuntimeError("what its batch says when it is stopped")

    def stop(self) -> None:
        self.stopped.set()


def test_an_interrupt_ends_a_stream_and_its_failure_is_raised() -> None:
    query: Any = Query()
    interrupts = Interrupts()
    interrupts.came = True
    wait_for(query, interrupts)
    assert query.stopped.is_set()
    with pytest.raises(RuntimeError, match="what its batch says"):
        wait_for(query, Interrupts())  # it has ended by itself


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "an error after it"])
def test_ctrl_c_ends_a_batch_without_a_word(
    data: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, raised: str
) -> None:
    """While Spark starts, or in a call of Java, which then fails in another way."""

    def session(*_: object, **__: object) -> Any:
        if raised == "KeyboardInterrupt":
            signal.raise_signal(signal.SIGINT)
        return fake_session()

    def archive(*_: object, **__: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise RuntimeError("the bridge is broken")

    monkeypatch.setattr("holdfast.pipeline.session", session)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", fake_session)
    monkeypatch.setattr("holdfast.pipeline.archive.archive", archive)
    before = signal.getsignal(signal.SIGINT)
    assert main(["pipeline", "archive", "rig", "--data", str(data), "--to", str(tmp_path / "a")]) == 130
    assert capsys.readouterr() == ("", "")
    assert signal.getsignal(signal.SIGINT) is before


def fake_session() -> Any:
    return SimpleNamespace(
        sparkContext=SimpleNamespace(_accumulatorServer=SimpleNamespace(), master="local[1]")
    )


def test_settings_of_spark_reach_it() -> None:
    check_conf()


def test_a_refusal_recommends_no_mode_that_spark_refuses() -> None:
    check_overwrite()
