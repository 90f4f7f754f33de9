"""One suite for every engine of a group; `tests/corosync` runs it on a real Corosync."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.group.engines import ENGINES, Engine
from tests.kit.group.plays import PLAYS


@pytest.mark.parametrize("engine", ENGINES, ids=str)
@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_every_engine(play: Callable[[Engine], None], engine: Engine) -> None:
    """I20 to I25, I28: each play asserts its own case."""
    before = engine.runs
    play(engine)
    assert engine.runs == before + 1
