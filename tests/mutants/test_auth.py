"""Broken guards (kit/server/auth_mutants.py), which the checks of authentication must notice."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from holdfast.server import logs, settings
from holdfast.server.auth import authorization
from holdfast.server.auth.authorization import Authorizer
from tests.kit.server import auth_checks, config_checks, logs_checks
from tests.kit.server.auth_mutants import MUTANTS, break_it


@pytest.mark.parametrize("bug", MUTANTS)
def test_a_broken_guard_is_noticed(bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, right, wrong, test, arguments = MUTANTS[bug]
    wanted = inspect.signature(test).parameters
    given = arguments | {"tmp_path": tmp_path, "monkeypatch": monkeypatch}
    given = {name: given[name] for name in wanted}
    test(**given)  # it is not the test that is broken
    for each in tmp_path.iterdir():
        each.unlink()
    break_it(monkeypatch, owner, name, right, wrong)
    if name == "masked":
        monkeypatch.setattr(logs_checks, "masked", logs.masked)
    if owner in (authorization, authorization._Rule, Authorizer):
        monkeypatch.setattr(auth_checks, "RULES", Authorizer(auth_checks.GRANTS))
    if test is config_checks.flag_wins_over_variable_over_file:
        monkeypatch.setattr(config_checks, "load", settings.load)
    with pytest.raises((Exception, pytest.fail.Exception)) as caught:
        test(**given)
    assert not isinstance(caught.value, NameError), "it is the mutant that is broken"
