"""`holdfast cluster demo` in a terminal: Ctrl-C reaches every process of its group."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.command import COMMAND

DEMO = [COMMAND, "cluster", "demo", "--seconds", "100", "--clients", "1"]
ENDED_BY_IT = (130, -signal.SIGINT)
"""A shell shows both as 130; the second one is that of an interrupt in Python's own end."""


@pytest.fixture
def demo(corosync: None, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A demo that runs: the cluster has formed, and nothing is broken yet."""
    process = subprocess.Popen(
        DEMO,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert any("the cluster has formed" in line for line in process.stdout)
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.timeout(180)
def test_ctrl_c_ends_it_early_with_its_account(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    """The nodes live until the account; what was not broken is not mended."""
    assert demo.stdout is not None
    while "  running  " not in demo.stdout.readline():
        assert demo.poll() is None
    os.killpg(demo.pid, signal.SIGINT)
    told = demo.stdout.read()
    assert demo.wait(60) == 0, told
    assert "every message is accounted for" in told
    assert "mended" not in told
    assert not list(tmp_path.iterdir()), "it leaves something behind"


@pytest.mark.timeout(180)
def test_a_second_ctrl_c_ends_it_at_once(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    assert demo.stdout is not None
    for _ in range(4):  # those after the second one do not stop the clearing up
        os.killpg(demo.pid, signal.SIGINT)
        time.sleep(0.1)
    told = demo.stdout.read()
    assert demo.wait(60) in ENDED_BY_IT, told
    assert "the account" not in told
    assert not list(tmp_path.iterdir()), "it leaves something behind"
