"""The wall clock jumps while a real broker stands at a named step (tests/kit/broker/clock_steps.py)."""

from __future__ import annotations

from pathlib import Path

from tests.kit.broker.clock_steps import ALL, EACH, STEPS, jump_at_steps
from tests.kit.slices import pick


def test_a_jump_at_every_named_step(tmp_path: Path) -> None:
    """Set the clock at each point: a year ahead, behind, or stopped; nightly all three."""
    passed = jump_at_steps(tmp_path, pick(test=EACH, nightly=ALL))
    assert passed == {*STEPS}, f"never came by {sorted({*STEPS} - passed)}"
