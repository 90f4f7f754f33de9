"""The directory of queues that commands work on."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def directory(runtime_directory: Path) -> Path:
    """Give every test the queues' directory for itself."""
    return runtime_directory
