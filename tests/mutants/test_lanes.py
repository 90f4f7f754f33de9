"""Mutants of lanes and loops in Python: the tests that they name notice them.

Those of the core and the bindings are in test_channel_bindings.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.bindings import pytest_with
from tests.kit.channel.lane_mutants import NATIVE_MUTANTS, PYTHON_MUTANTS, rewritten
from tests.kit.native import Mutant


@pytest.mark.parametrize("mutant", PYTHON_MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    done = pytest_with(rewritten(mutant, tmp_path), "-n0", "--tb=line", mutant.program)
    assert done.returncode == 1, f"{mutant.breaks}: {done.stdout}{done.stderr}"
    assert f"FAILED {mutant.program}" in done.stdout


def test_there_are_enough() -> None:
    names = {mutant.name for mutant in (*NATIVE_MUTANTS, *PYTHON_MUTANTS)}
    assert len(names) == len(NATIVE_MUTANTS) + len(PYTHON_MUTANTS) >= 20
