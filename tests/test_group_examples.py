"""The examples in the group's docstrings do what they say."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import holdfast.group

MODULES = [module.name for module in pkgutil.walk_packages(holdfast.group.__path__, "holdfast.group.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert not outcome.failed


def test_every_interface_and_engine_has_an_example() -> None:
    documented = {"Group", "LocalGroup", "Position", "Member", "View", "Clock", "Randomness", "Disk"}
    assert documented <= set(holdfast.group.__all__)
    for name in documented - {"Group"}:
        assert ">>>" in (getattr(holdfast.group, name).__doc__ or ""), name
