"""The table of faults and mutants is true: every name in it exists."""

from __future__ import annotations

import re

import pytest

from tests.kit import ROOT
from tests.kit.cases import CORE, CORE_QUEUE, ROWS, Row, table
from tests.kit.native import SOURCES
from tests.kit.native_mutants import MUTANTS


def test_the_page_has_the_table() -> None:
    assert table() in (ROOT / "docs/testing.md").read_text(), "write tests/kit/cases.py's table() there"


def test_every_case_has_a_mutant() -> None:
    assert {row.case for row in ROWS} >= {str(number) for number in range(1, 19)}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.case}-{row.mutants[0]}")
def test_its_names_are_there(row: Row) -> None:
    planted = (ROOT / row.planted).read_text()
    for name in row.mutants:
        assert re.search(rf'"{name}"|(def|class) {name}\b', planted), f"{row.planted} has no {name}"
    for test in row.caught:
        path, _, function = test.partition("::")
        text = (ROOT / path).read_text()
        assert not function or f"def {function}(" in text, f"{path} has no {function}"


def test_mutants_of_the_core_name_their_program() -> None:
    programs = {mutant.name: f"native/{SOURCES[mutant.program]}" for mutant in MUTANTS}
    for row in ROWS:
        if row.planted in (CORE, CORE_QUEUE):
            assert {programs[name] for name in row.mutants} == {*row.caught}
