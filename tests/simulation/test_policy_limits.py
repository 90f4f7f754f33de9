"""Limits on three members: the last place, rates and quotas, dead owners."""

from __future__ import annotations

import pytest

from holdfast.broker.state import SubscriptionType
from tests.kit.broker import backlog_checks, maximum_checks, rate_checks


def test_the_last_place_goes_to_one() -> None:
    maximum_checks.last_place_goes_to_one()


def test_rates_after_the_death_of_the_owner() -> None:
    rate_checks.owner_changes()


def test_the_owner_dies_during_a_hold() -> None:
    backlog_checks.owner_dies_during_a_hold()


@pytest.mark.parametrize("type_", ["shared", "key_shared"])
def test_members_share_what_is_unacknowledged(type_: SubscriptionType) -> None:
    maximum_checks.members_share_what_is_unacknowledged(type_)
