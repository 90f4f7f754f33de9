"""SIGKILL of the server under load: official clients, each in a process of its own, come back and go on.

Nothing confirmed is lost; with deduplication nothing is stored twice; what was acknowledged with a receipt
does not come again; everybody gets everything. `make torture ARGS="--server"` goes on for as long as you
like.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from tests.kit.nightly import SERVER_KILLS
from tests.kit.server import kills as server_kills
from tests.kit.slices import Seed, pick, seeds

pytestmark = pytest.mark.timeout(600)

KILLS = pick(test=4, nightly=SERVER_KILLS)


@pytest.mark.parametrize(
    ("plan", "seed"),
    [
        pytest.param(plan, seed, id=f"{plan.name.replace(' ', '-')}-{seed}")
        for plan in server_kills.PLANS[: pick(test=1, nightly=4)]
        for seed in seeds(f"server {plan.name}", test=1, nightly=4)
    ],
)
def test_storm(plan: server_kills.Plan, seed: Seed, counts: Callable[[str], None]) -> None:
    account = server_kills.run(dataclasses.replace(plan, kills=KILLS, seconds=300.0, seed=int(seed)))
    counts(account.words())
    assert account.faults == []
    assert account.kills >= KILLS
    assert account.confirmed > 100
    assert account.receipted > 20


# Every one dies at a step, so that there is always something that was stored and not answered.
DEADLY = server_kills.Plan(seconds=60.0, kills=3, armed=1.0, life_s=1.5, orderly=0.0, pause_s=0.001)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            dataclasses.replace(
                DEADLY, steps=("journal_write",), broken="an_id_is_shown_before_it_is_durable"
            ),
            "confirmed messages are lost|was confirmed at|acknowledged with a receipt, and came again",
        ),
        (
            dataclasses.replace(DEADLY, steps=("journal_synced", "round_done"), deduplication="no"),
            "stored again",
        ),
    ],
    ids=["answered too early", "no deduplication"],
)
def test_a_storm_notices(plan: server_kills.Plan, words: str) -> None:
    told = []
    for seed in range(10):  # there may be a storm without a message that was under way when the server died
        account = server_kills.run(dataclasses.replace(plan, seed=seed))
        if re.search(words, " ".join(account.faults)):
            return
        told.append(f"{account.faults}, {account.words()}")
    raise AssertionError("\n".join(told))
