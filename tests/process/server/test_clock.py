"""A real server on a wall clock that is wrong (tests/kit/server/clock_checks.py)."""

from __future__ import annotations

from pathlib import Path

from tests.kit.server.clock_checks import CLOCKS, wrong_clocks_harm_nothing
from tests.kit.slices import pick


def test_wrong_clocks_harm_nothing(tmp_path: Path) -> None:
    """All clocks by night; restarts have the others also here."""
    wrong_clocks_harm_nothing(tmp_path, pick(test=("a year ahead", "jumping"), nightly=tuple(CLOCKS)))
