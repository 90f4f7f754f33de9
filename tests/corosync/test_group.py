"""The suite of every engine, on Corosync: three members in three namespaces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.corosync.members import CpgEngine
from tests.kit.group.engines import Engine
from tests.kit.group.plays import PLAYS


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_cpg(play: Callable[[Engine], None], engine: CpgEngine) -> None:
    """I20 to I25, I28: each play asserts its own case."""
    play(engine)
    assert engine.runs == 1
