"""Test a cluster over the network: the same code; one executor is killed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.kit import KIT, module_command
from tests.kit.served import served
from tests.kit.spark.cluster_program import ROWS

# A Java for each executor. In `make test`: tests/spark/test_flight.py reads by address while Flight dies,
# and tests/spark/test_sink.py kills a task's process; both find what is lost or doubled.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]


def test_executors_of_their_own_and_one_is_killed(tmp_path: Path) -> None:
    """S5.5, I141, I160: a batch and a stream by address, exactly once, on any executor."""
    with served(tmp_path / "data", http=True) as server:
        command = [
            *module_command(KIT / "spark/cluster_program.py"),
            server.http_url,
            server.url,
            str(tmp_path / "check"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["executors"]) == 2
    assert found["killed"] in found["executors"], "the stream was over before an executor could be killed"
    exact = [ROWS, ROWS, ROWS * (ROWS - 1) // 2]
    assert found["numbers"] == exact
    assert found["copy"] == exact
