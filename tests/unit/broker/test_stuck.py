"""A subscription is stuck only while consumers are attached, not while they are offline."""

from __future__ import annotations

from pathlib import Path

from tests.kit.broker import stuck_checks as checks


def test_consumers_that_went_offline_leave_no_stuck_subscription() -> None:
    checks.consumers_that_went_offline_leave_no_stuck_subscription()


def test_every_other_reason_is_stuck_after_its_time() -> None:
    checks.every_other_reason_is_stuck_after_its_time()


def test_the_metric_of_a_subscription_whose_consumers_are_offline(tmp_path: Path) -> None:
    checks.the_metric_of_a_subscription_whose_consumers_are_offline(tmp_path)
