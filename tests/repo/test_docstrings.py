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
from tests.kit import ROOT

SOURCES = ROOT / "src"


def modules_with_examples() -> list[str]:
    paths = [path for path in SOURCES.rglob("*.py") if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE)]
    names = [".".join(path.relative_to(SOURCES).with_suffix("").parts) for path in paths]
    return sorted(name.removesuffix(".__init__") for name in names)


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples(name: str, runtime_directory: Path) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert not outcome.failed


def test_examples_are_there() -> None:
    found = doctest.DocTestFinder().find(holdfast.Queue)
    assert sum(len(test.examples) for test in found) > 30


def test_every_interface_and_engine_has_an_example() -> None:
    documented = {"Group", "LocalGroup", "Position", "Member", "View", "Clock", "Randomness", "Disk"}
    assert documented <= set(holdfast.group.__all__)
    for name in documented - {"Group"}:
        assert ">>>" in (getattr(holdfast.group, name).__doc__ or ""), name


def test_everything_that_users_call_is_documented() -> None:
    for name, member in inspect.getmembers(holdfast.Queue):
        if not name.startswith("_") and callable(member):
            assert inspect.getdoc(member), name
