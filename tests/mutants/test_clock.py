"""A wall clock that is read where log time belongs: the tests with wrong clocks notice it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.broker import clock_steps
from tests.kit.server.clock_checks import wrong_clocks_harm_nothing


def test_a_server_that_believes_the_wall_clock_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="young messages expired"):
        wrong_clocks_harm_nothing(tmp_path, ("a year ahead",), broken="wall clock")


def test_a_broker_that_believes_the_wall_clock_is_noticed_at_a_step(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="log time"):
        clock_steps.jump_at_steps(tmp_path, ["journal_written"], broken=True)
