"""The project that `pipeline init` writes: its own test passes, and its declarations are sound."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from holdfast.pipeline.init import write_project


def test_its_own_test_passes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    written = write_project(project)
    assert {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()} == set(written)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "Asia/Tokyo"},  # right anywhere
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
