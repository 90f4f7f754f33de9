"""Kill a broker under load: at random moments, and at every named step.

After each death the next life sees every confirmed message once, in the order of its producer. Every
receipted acknowledgement and every reported reset holds. `make torture ARGS=--broker` runs longer.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from tests.kit.broker import kills as broker_kills
from tests.kit.broker.judge import Account
from tests.kit.nightly import BROKER_KILLS
from tests.kit.slices import Seed, pick, seeds

pytestmark = pytest.mark.timeout(600)

KILLS = pick(test=12, nightly=BROKER_KILLS)
"""The broken brokers below are noticed after two to seven."""
BROKEN_KILLS = 40


def sound(account: Account) -> None:
    assert account.faults == [], "\n".join(account.faults)
    assert account.audits > 0
    assert account.confirmed > 0
    assert account.receipted > 0


@pytest.mark.parametrize(
    ("plan", "seed"),
    [
        pytest.param(plan, seed, id=f"{plan.name.replace(' ', '-')}-{seed}")
        for plan in broker_kills.PLANS
        for seed in seeds(f"broker {plan.name}", test=1, nightly=10)
    ],
)
def test_storm(plan: broker_kills.Plan, seed: Seed, counts: Callable[[str], None]) -> None:
    account = broker_kills.run(dataclasses.replace(plan, kills=KILLS, seed=int(seed)))
    counts(account.words())
    sound(account)
    assert account.kills >= KILLS


@pytest.mark.parametrize("seed", seeds("broker steps", test=1, nightly=5))
def test_at_every_step(seed: Seed, counts: Callable[[str], None]) -> None:
    """It ends when every step was met; how long that takes is the machine's affair."""
    plan = broker_kills.Plan("every step", kills=10_000, seconds=300.0, seed=int(seed), each_step=1)
    account = broker_kills.run(plan)
    counts(account.words())
    sound(account)
    missing = [point for point in broker_kills.POINTS if account.steps.get(point, 0) < plan.each_step]
    assert missing == [], f"nobody died at {missing}: {account.words()}"


# -- brokers that must be noticed ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("recovery_forgets_acks", "are back"),
        ("recovery_forgets_resets", "were reported|accepted once"),
        ("a_snapshot_forgets_individual_acks", "are back"),
        ("trim_forgets_a_subscription", "had yet to acknowledge|I41|are left"),
        ("deduplication_forgotten", "stored again"),
    ],
)
def test_a_storm_notices(broken: str, words: str) -> None:
    told = []
    for seed in range(1, 6):  # a storm may end before it comes to what is broken
        plan = broker_kills.Plan(kills=BROKEN_KILLS, seed=seed, armed=0.0, broken=broken)
        account = broker_kills.run(plan)
        if re.search(words, " ".join(account.faults)):
            return
        told.append(f"{account.faults}, {account.words()}")
    raise AssertionError("\n".join(told))
