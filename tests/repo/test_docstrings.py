"""The examples in the docstrings do what they say, and what users call has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from pathlib import Path

import pytest

import holdfast
import holdfast.group
import holdfast.system
from tests.kit import ROOT


def modules_with_examples() -> list[str]:
    files = {path: path.relative_to(ROOT / "src") for path in (ROOT / "src/holdfast").rglob("*.py")}
    files |= {path: path.relative_to(ROOT) for path in (ROOT / "tests/kit/sim").rglob("*.py")}
    found = [name for path, name in files.items() if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE)]
    return sorted(".".join(name.with_suffix("").parts).removesuffix(".__init__") for name in found)


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name: str, runtime_directory: Path) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert not outcome.failed


def test_examples_are_there() -> None:
    found = doctest.DocTestFinder().find(holdfast.Queue)
    assert sum(len(test.examples) for test in found) > 30


def test_every_interface_and_engine_has_an_example() -> None:
    documented = {
        holdfast.group: {"Group", "LocalGroup", "Position", "Member", "View"},
        holdfast.system: {"Clock", "Randomness", "Disk"},
    }
    for package, names in documented.items():
        assert names <= set(package.__all__)
        for name in names - {"Group"}:
            assert ">>>" in (getattr(package, name).__doc__ or ""), name


def test_everything_that_users_call_is_documented() -> None:
    for name, member in inspect.getmembers(holdfast.Queue):
        if not name.startswith("_") and callable(member):
            assert inspect.getdoc(member), name
