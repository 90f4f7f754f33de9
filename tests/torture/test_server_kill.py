"""Kill the server under load; official clients in processes of their own reconnect.

Nothing confirmed is lost. With deduplication nothing is stored twice. A message that was acknowledged with a
receipt is not redelivered. Each subscription gets every message. `make torture ARGS="--server"` goes on for
as long as you like.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from tests.kit.nightly import SERVER_KILLS
from tests.kit.server import kill_client
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


# -- the judge ------------------------------------------------------------------------------------------

ROWS = [[1, entry, -1, 1, entry + 1] for entry in range(5)]
"""Ledger, entry, place in the batch, producer, number: five messages of one producer."""
CONFIRMED = [[row[4], *row[:3]] for row in ROWS]
GOT = [[row[3], row[4]] for row in ROWS]
RECEIPTED: dict[str, list[list[int]]] = {"got": [row[:2] for row in ROWS], "receipted": [ROWS[0][:2]]}


def judged(
    rows: list[list[int]] = ROWS,
    confirmed: list[list[int]] = CONFIRMED,
    asked: int = 5,
    got: list[list[int]] = GOT,
    receipted: dict[str, list[list[int]]] = RECEIPTED,
) -> list[str]:
    account = server_kills.Account("judge", seed=0)
    judge = server_kills.Judge(account)
    judge.produced(server_kills.ONCE, rows, {1: {"confirmed": confirmed, "asked": asked}})
    judge.consumed("shared", rows, got)
    judge.receipted(rows, receipted)
    return account.faults


def test_the_judge_finds_no_fault_where_there_is_none() -> None:
    again = [*GOT, GOT[0]]  # a consumer that does not wait for receipts may get a message again
    assert judged(got=again) == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"rows": ROWS[:-1]}, "1 confirmed messages are lost: [5]"),
        ({"rows": [*ROWS, [1, 5, -1, 1, 2]]}, "[2] are stored again"),
        ({"rows": [ROWS[1], ROWS[0], *ROWS[2:]]}, "its messages are not in their order"),
        ({"asked": 4}, "never sent [5]"),
        ({"confirmed": [[1, 1, 4, -1], *CONFIRMED[1:]]}, "was confirmed at (1, 4, -1)"),
        ({"got": GOT[1:]}, "shared never got 1 messages"),
        ({"got": [*GOT, [1, 9]]}, "shared got what is not there"),
        ({"receipted": {**RECEIPTED, "got": RECEIPTED["got"][1:]}}, "receipted never got 1 entries"),
        ({"receipted": {**RECEIPTED, "got": [*RECEIPTED["got"], [1, 9]]}}, "receipted got what is not there"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_the_judge_sees_mistakes(told: dict[str, Any], words: str) -> None:
    assert any(words in fault for fault in judged(**told)), judged(**told)


def test_a_message_that_comes_again_behind_its_receipt_is_a_fault() -> None:
    consumer = kill_client.Receipted(mock.create_autospec(kill_client.Told, instance=True), "", "t", "s")
    message = SimpleNamespace(message_id=SimpleNamespace(ledgerId=1, entryId=4))
    consumer.take(message)
    consumer.take(message)  # not confirmed yet: it may
    assert consumer.faults == []
    consumer.receipted.add((1, 4))
    consumer.take(message)
    assert consumer.faults == ["(1, 4) was acknowledged with a receipt, and was redelivered"]


# -- servers that must be noticed ------------------------------------------------------------------------

# Every one dies at a step, so that there is always something that was stored and not answered.
DEADLY = server_kills.Plan(seconds=60.0, kills=3, armed=1.0, life_s=1.5, orderly=0.0, pause_s=0.001)


# In `make test` mutants/test_broker.py notices both faults, and torture/test_broker_kill.py the second one in
# a storm. The tests of the judge show that this storm would report them.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            dataclasses.replace(
                DEADLY, steps=("journal_write",), broken="an_id_is_shown_before_it_is_durable"
            ),
            "confirmed messages are lost|was confirmed at|acknowledged with a receipt, and was redelivered",
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
