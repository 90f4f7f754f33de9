"""A pipeline command that is interrupted, or whose Java is killed: real processes, real signals."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cli.spark import GONE
from holdfast.pipeline.numbered import encode_json
from tests.kit.processes import process_state, until
from tests.kit.spark.pipeline_world import publish

# Each has a Java of its own. In `make test`: tests/spark/test_cli.py interrupts a stream,
# tests/unit/pipeline/test_cli.py a batch, and tests/process/pipeline/test_java.py has a Java that dies.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]
COMMAND = str(Path(sys.executable).parent / "holdfast")


@contextmanager
def streaming(tmp_path: Path, at: str) -> Iterator[subprocess.Popen[str]]:
    """`measure` as a stream that goes on for ever, when its checkpoint has this."""
    data, to = tmp_path / "data", tmp_path / "figures"
    publish(data, "rig", [encode_json("r", n, "k", value=float(n)) for n in range(5)])
    arguments = ["measure", "rig", "--data", str(data), "--to", str(to), "--stream", "--every", "1 second"]
    with subprocess.Popen(
        [COMMAND, "pipeline", *arguments, "--master", "local[1]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            checkpoint = tmp_path / "figures.checkpoint"
            until(lambda: command.poll() is not None or (checkpoint / at).exists(), 120)
            yield command
        finally:
            command.kill()


def java_of(pid: int) -> int | None:
    """Spark's, once it is one: before that it is a shell."""
    with contextlib.suppress(OSError):  # one of them has ended
        for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            words = Path(f"/proc/{each}/cmdline").read_text().split("\0")
            if words[0].endswith("java") and "org.apache.spark.deploy.SparkSubmit" in words:
                return int(each)
    return None


@pytest.mark.parametrize("at", ["metadata", "commits/0"])  # nothing is there yet; it waits for more
def test_ctrl_c_ends_a_stream_with_its_report(tmp_path: Path, at: str) -> None:
    with streaming(tmp_path, at) as command:
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=120)
    assert (command.returncode, err) == (0, "")
    assert "figures: 0 windows of 0 measurements" in out


def test_a_java_that_is_killed_is_told_in_a_line(tmp_path: Path) -> None:
    with streaming(tmp_path, "metadata") as command:
        java = java_of(command.pid)
        assert java is not None
        os.kill(java, signal.SIGKILL)
        out, err = command.communicate(timeout=120)
    assert (command.returncode, out, err) == (1, "", f"holdfast: {GONE}\n")


@pytest.mark.parametrize("step", ["starting Spark", "reading"])
def test_ctrl_c_ends_a_batch_without_a_word(tmp_path: Path, step: str) -> None:
    data = tmp_path / "data"
    publish(data, "rig", [encode_json("r", n, "k", value=float(n)) for n in range(5)])
    to = tmp_path / "archive"
    with subprocess.Popen(
        [COMMAND, "pipeline", "archive", "rig", "--data", str(data), "--to", str(to), "--master", "local[1]"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as command:
        try:
            java = until(
                lambda: java_of(command.pid) or command.poll() is not None, 120
            )  # True: it has ended
            if step == "reading":
                until(lambda: to.exists() or command.poll() is not None, 120)
            command.send_signal(signal.SIGINT)
            ended = (*command.communicate(timeout=120), command.returncode)
        finally:
            command.kill()
    assert ended == ("", "", 130)
    until(lambda: process_state(java) in "Z", 60)
