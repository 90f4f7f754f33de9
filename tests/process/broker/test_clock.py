"""The wall clock jumps while a real broker stands at a named step (tests/kit/broker/clock_steps.py)."""

from __future__ import annotations

from pathlib import Path

from tests.kit.broker.clock_steps import STEPS, jump_at_steps


def test_a_jump_at_every_named_step(tmp_path: Path) -> None:
    passed = jump_at_steps(tmp_path)
    assert passed == {*STEPS}, f"never came by {sorted({*STEPS} - passed)}"
