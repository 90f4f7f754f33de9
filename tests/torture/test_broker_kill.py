"""SIGKILL under load: at random moments, and at every named step of journal, ledgers, snapshots, recovery.

After each death the next life sees every confirmed message once, in the order of its producer; every
receipted acknowledgement holds; every reset that was reported is in force. `make torture ARGS=--broker` goes
on for as long as you like.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from tests.kit.broker import kills as broker_kills
from tests.kit.broker.judge import Account

pytestmark = pytest.mark.timeout(400)


def sound(account: Account) -> None:
    assert account.faults == [], "\n".join(account.faults)
    assert account.audits > 0
    assert account.confirmed > 0
    assert account.receipted > 0


@pytest.mark.parametrize("plan", broker_kills.PLANS, ids=lambda plan: plan.name)
def test_storm(plan: broker_kills.Plan) -> None:
    kills = 0
    for seed in range(7, 17):  # until enough have died: a slow machine needs more storms for it
        account = broker_kills.run(dataclasses.replace(plan, seconds=4.0, kills=30, seed=seed))
        sound(account)
        kills += account.kills
        if kills > 4:
            return
    raise AssertionError(f"only {kills} kills")


def test_at_every_step() -> None:
    # It ends when every step was met; how long that takes is the machine's affair.
    plan = broker_kills.Plan("every step", kills=10_000, seconds=200.0, seed=3, each_step=1)
    account = broker_kills.run(plan)
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
    for seed in range(1, 6):  # a slow machine may not come so far in one storm
        account = broker_kills.run(
            broker_kills.Plan(seconds=8.0, kills=1000, seed=seed, armed=0.0, broken=broken)
        )
        if re.search(words, " ".join(account.faults)):
            return
        told.append(f"{account.faults}, {account.words()}")
    raise AssertionError("\n".join(told))
