"""Advertised listeners with the official client, in a network namespace where nobody else can be reached."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(120)
def test_a_client_dials_the_listener_that_it_asked_for(tmp_path: Path) -> None:
    own = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    program = Path(__file__).with_name("namespace_program.py")
    done = subprocess.run(
        [*own, sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "True"
