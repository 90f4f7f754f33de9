"""Test output, JSON and exit status of `holdfast pipeline`, in the shared session."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory
from holdfast.pipeline.numbered import encode_json
from tests.kit.pipeline.streams import until
from tests.kit.slices import pick
from tests.kit.spark.pipeline_cli import Capture, answered, said
from tests.kit.spark.pipeline_world import data as data
from tests.kit.spark.pipeline_world import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_archive_audit_measure_compact(
    spark: SparkSession, data: Path, tmp_path: Path, capsys: Capture
) -> None:
    to, page = tmp_path / "archive", tmp_path / "report.html"
    place = ("--data", str(data))
    words = said(capsys, "archive", "rig", *place, "--to", str(to), "--subscription", "s", "--verify")
    assert "20 rows" in words
    assert "read back and equal" in words
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
    """Twice from the same checkpoint: first all windows are open, then some closed."""
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
    monkeypatch.setenv("HOLDFAST_DATA", str(data))
    both = answered(capsys, *arguments, "--allow-foreign")
    assert (both["messages"], both["producers"][0]["unconfirmed"], both["sound"]) == (22, 1, True)
    assert "shows no topic" in said(capsys, "audit", "rigg", "--archive", to, status=1)
    monkeypatch.delenv("HOLDFAST_DATA")
    assert "has no topic" in said(capsys, "audit", "rigg", "--archive", to, status=1)


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
    assert "number of confirmed messages" in said(capsys, *arguments, status=1)
    assert "name topics" in said(capsys, "audit", status=2)
    assert "name topics" in said(capsys, "measure", "--to", "x", status=2)
    assert "a stream reads topics" in said(
        capsys, "measure", "--to", "x", "--archive", to, "--stream", status=2
    )
    assert "not a span of time" in said(
        capsys, "measure", "--to", "x", "--archive", to, "--window", "soon", status=1
    )
    monkeypatch.delenv("HOLDFAST_DATA", raising=False)
    assert "no data directory given" in said(capsys, "audit", "rig", status=2)


# When it waits for more; and when nothing is there yet.
@pytest.mark.parametrize("at", pick(test=["commits/0"], nightly=["commits/0", "metadata"]))
def test_ctrl_c_ends_a_stream_with_its_report(
    spark: SparkSession, data: Path, tmp_path: Path, capsys: Capture, at: str
) -> None:
    """In a process of its own: test_ending.py."""
    to = tmp_path / "figures"

    def interrupt() -> None:
        until((tmp_path / "figures.checkpoint" / at).exists, 120)
        os.kill(os.getpid(), signal.SIGINT)

    waiting = threading.Thread(target=interrupt)
    waiting.start()
    arguments = ("measure", "rig", "--data", str(data), "--to", str(to), "--stream", "--every", "1 second")
    words = said(capsys, *arguments)
    waiting.join()
    assert "figures: 0 windows of 0 measurements" in words
    assert spark.streams.active == []
    assert spark.range(1).count() == 1
