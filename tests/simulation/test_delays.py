"""Delivery times and redelivery counts on three members: dead owners, turns, clocks that are ahead."""

from __future__ import annotations

import pytest

from holdfast.broker.state import SubscriptionType
from tests.kit.broker import delay_checks as checks
from tests.kit.broker import owners
from tests.kit.slices import seeds

TYPES: list[SubscriptionType] = ["shared", "key_shared"]


@pytest.mark.parametrize("type_", TYPES)
def test_delays_move_with_the_owner(type_: SubscriptionType) -> None:
    checks.delays_move_with_the_owner(type_)


@pytest.mark.parametrize("type_", TYPES)
def test_turns_do_not_read_again(type_: SubscriptionType) -> None:
    checks.turns_do_not_read_again(type_)


def test_an_owner_with_a_clock_ahead() -> None:
    checks.an_owner_with_a_clock_ahead()


def test_counts_of_a_dead_owner() -> None:
    checks.counts_of_a_dead_owner()


def test_squalls_of_one_broker() -> None:
    """I271: keys, delays and resets, while the broker restarts; `test_ownership.py` has those of three."""
    waited = 0
    for seed in seeds("owners alone", test=6, nightly=200):
        world, _ = owners.run(seed, nodes=1)
        waited += world.waited
    assert waited > 0, "nothing was delayed"
