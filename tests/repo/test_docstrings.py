"""The examples in the docstrings do what they say, and what users call has one."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import holdfast
import holdfast.group
import holdfast.memory

MODULES = [
    "holdfast",
    "holdfast.errors",
    *(
        module.name
        for package in (holdfast.memory, holdfast.group)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ),
]


@pytest.mark.parametrize("name", MODULES)
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
