"""Mutants of stuck subscriptions: the checks notice each."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.broker.dispatch import stuck
from holdfast.broker.dispatch.types import Diagnosis
from tests.kit.broker import stuck_checks as tests


def offline_is_stuck(look: stuck.Look, reason: str, text: str, stuck_after_s: float) -> Diagnosis:
    """As it was: any backlog without progress is stuck."""
    return Diagnosis(reason, text, look.idle_s, look.backlog > 0 and look.idle_s >= stuck_after_s)


def nothing_is_stuck(look: stuck.Look, reason: str, text: str, stuck_after_s: float) -> Diagnosis:
    return Diagnosis(reason, text, look.idle_s, False)


@pytest.mark.parametrize("mutant", [offline_is_stuck, nothing_is_stuck])
def test_it_is_noticed(mutant: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(stuck, "judged", mutant)
    for test in (
        tests.consumers_that_went_offline_leave_no_stuck_subscription,
        tests.every_other_reason_is_stuck_after_its_time,
        lambda: tests.the_metric_of_a_subscription_whose_consumers_are_offline(tmp_path),
    ):
        with pytest.raises(AssertionError):
            test()
