"""Maximums, rates and backlog quotas of one broker, over restarts and jumps of the clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.broker import backlog_checks, maximum_checks, rate_checks

OVER_RESTARTS = [
    maximum_checks.producers_are_counted,
    maximum_checks.consumers_are_counted,
    maximum_checks.subscriptions_and_topics_are_counted,
    maximum_checks.unacknowledged_are_limited,
    rate_checks.publishes_are_paced_after_a_restart,
    rate_checks.deliveries_are_paced_after_a_restart,
    rate_checks.the_shortest_periods_are_no_limit,
    backlog_checks.holds_and_lifts,
    backlog_checks.evicts,
    backlog_checks.holds_by_age,
]
SCENES = [
    maximum_checks.lifted_at_once,
    maximum_checks.nearest_decides,
    maximum_checks.sizes_are_limited,
    rate_checks.publishes_are_paced,
    rate_checks.long_lists_leave_room,
    rate_checks.lifted_rates_end_waits,
    rate_checks.nearest_rate_decides,
    rate_checks.clock_jumps,
    rate_checks.waits_are_idle,
    rate_checks.deliveries_are_paced,
    rate_checks.longer_periods_have_longer_bursts,
    rate_checks.subscriptions_that_are_gone_cost_nothing,
    rate_checks.subscribes_are_paced,
    backlog_checks.every_way_lifts,
    backlog_checks.excepts,
    backlog_checks.ended_during_a_hold,
    backlog_checks.partitions_are_held_alone,
    backlog_checks.nearest_quota_decides,
    backlog_checks.evicts_by_age,
    backlog_checks.clock_is_ahead,
]


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power loss"])
@pytest.mark.parametrize("check", OVER_RESTARTS, ids=lambda check: check.__name__)
def test_over_a_restart(check: Callable[[bool], None], power: bool) -> None:
    check(power)


@pytest.mark.parametrize("check", SCENES, ids=lambda check: check.__name__)
def test_scene(check: Callable[[], None]) -> None:
    check()
