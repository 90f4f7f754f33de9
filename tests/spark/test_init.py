"""The project that `pipeline init` writes: its own test passes."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.pipeline.init import write_project

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULES = ("measurements", "test_measurements")


@pytest.mark.usefixtures("elsewhere")
def test_its_own_test_passes_here(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the session that all tests share."""
    write_project(tmp_path / "project")
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    tests = importlib.import_module("test_measurements")
    try:
        found = [each for name, each in vars(tests).items() if name.startswith("test_")]
        assert len(found) == 2
        for test in found:
            test(spark)
    finally:
        for name in MODULES:
            del sys.modules[name]


@pytest.mark.nightly  # a Java of its own; in `make test` test_its_own_test_passes_here
def test_its_own_test_passes(tmp_path: Path) -> None:
    """As a user runs it."""
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
