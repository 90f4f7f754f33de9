"""A command of the pipelines that is killed: its process group, with Java and all."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence

from tests.kit.command import COMMAND
from tests.kit.processes import until

STARTS_S = 400.0
"""Limit for Spark on a busy machine."""


def killed(arguments: Sequence[str], when: Callable[[], bool]) -> None:
    """Start `holdfast pipeline …`, and kill it with SIGKILL in the moment when that is so."""
    with tempfile.TemporaryFile("w+") as told:  # processes that live on would hold a pipe open
        command = subprocess.Popen(
            [COMMAND, "pipeline", *arguments, "--master", "local[1]"],
            stdout=told,
            stderr=told,
            start_new_session=True,
        )
        try:
            until(lambda: when() or command.poll() is not None, STARTS_S)
        finally:
            os.killpg(command.pid, signal.SIGKILL)
            command.wait()
        told.seek(0)
        assert command.returncode == -signal.SIGKILL, f"it ended before: {told.read()}"
