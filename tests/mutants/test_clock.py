"""Mutants that read the wall clock instead of log time: tests with wrong clocks notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.broker import clock_steps
from tests.kit.server.clock_checks import wrong_clocks_harm_nothing


def test_a_server_that_believes_the_wall_clock_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="young messages expired"):
        wrong_clocks_harm_nothing(tmp_path, ("a year ahead",), broken="wall clock")


@pytest.mark.parametrize(
    ("broken", "case", "noticed"),
    [
        ("wall clock", ("journal_written", "a year ahead"), "log time is"),
        ("redo now", ("recover_redo", "a year ahead"), "AssertionError.*there is"),
        ("each time is another", ("journal_written", "standing still"), "did not happen"),
    ],
)
def test_a_broken_broker_is_noticed_at_a_step(
    broken: str, case: clock_steps.Case, noticed: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=noticed):
        clock_steps.jump_at_steps(tmp_path, [case], broken, patience_s=2.0)
