"""Test advertised listeners with the official client, in a network namespace with loopback alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.kit import KIT, module_command


@pytest.mark.timeout(120)
def test_a_client_dials_the_listener_that_it_asked_for(tmp_path: Path) -> None:
    own = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]
    done = subprocess.run(
        [*own, *module_command(KIT / "server/namespace_program.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "True"
