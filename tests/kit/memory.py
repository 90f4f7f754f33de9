"""Files of `make check` are in memory: nothing there waits for a disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def _directory() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-files.", ignore_cleanup_errors=True)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Yield a directory in memory instead of one on disk."""
    with _directory() as name:
        yield Path(name)


@pytest.fixture(scope="module")
def shared_path() -> Iterator[Path]:
    """Yield a directory in memory for all tests of a module."""
    with _directory() as name:
        yield Path(name)
