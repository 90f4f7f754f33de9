"""The account of a cluster sees lost, doubled, unordered, unreceived and unknown messages."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker import Broker
from holdfast.demo.cluster.balance import Account, account
from holdfast.demo.cluster.breaking import Show

TOPIC = [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
CONFIRMED = {"a": 2, "b": 2}
SOUND = {"lost": 0, "duplicated": 0, "out_of_order": 0, "unreceived": 0, "unknown": 0, "different": 0}


def faults(found: Account) -> dict[str, int]:
    return {name: count for name, count in asdict(found).items() if name in SOUND}


def test_a_sound_cluster_is_balanced() -> None:
    """A message may be received again, or stored without a confirmation."""
    found = account({"a": 1, "b": 2}, {1: TOPIC, 2: TOPIC, 3: TOPIC}, [*TOPIC, TOPIC[0]])
    assert found.balanced
    assert (found.confirmed, found.stored, found.received, found.again) == (3, 4, 4, 1)


@pytest.mark.parametrize(
    ("second", "received", "wrong"),
    [
        (TOPIC[:3], TOPIC, {"lost": 1, "different": 1}),
        ([*TOPIC, TOPIC[0]], TOPIC, {"duplicated": 1, "out_of_order": 1, "different": 1}),
        ([TOPIC[2], TOPIC[1], TOPIC[0], TOPIC[3]], TOPIC, {"out_of_order": 1, "different": 1}),
        ([TOPIC[1], TOPIC[0], *TOPIC[2:]], TOPIC, {"different": 1}),
        (TOPIC, TOPIC[1:], {"unreceived": 1}),
        (TOPIC, [*TOPIC, ("a", 2)], {"unknown": 1}),
        (TOPIC, [*TOPIC[1:], ("c", 0), ("c", 0)], {"unreceived": 1, "unknown": 1}),
    ],
)
def test_each_fault_of_one_member_is_seen(
    second: list[tuple[str, int]], received: list[tuple[str, int]], wrong: dict[str, int]
) -> None:
    found = account(CONFIRMED, {1: TOPIC, 2: second, 3: TOPIC}, received)
    assert faults(found) == SOUND | wrong
    assert not found.balanced


def test_a_message_of_one_member_alone_is_known() -> None:
    """It is missing elsewhere, and members differ; it was not shown without being stored."""
    found = account({"a": 2, "b": 2}, {1: TOPIC[:3], 2: TOPIC, 3: TOPIC[:3]}, TOPIC)
    assert faults(found) == SOUND | {"lost": 2, "different": 1}


def test_what_comes_again_is_counted_by_message() -> None:
    found = account(CONFIRMED, {1: TOPIC}, [*TOPIC, *TOPIC, TOPIC[3]])
    assert found.balanced
    assert (found.received, found.again) == (4, 5)


def test_what_is_lost_everywhere_is_seen() -> None:
    lost = account({"a": 3, "b": 2}, {1: TOPIC, 2: TOPIC, 3: TOPIC}, TOPIC)
    assert faults(lost) == SOUND | {"lost": 3}
    assert account(CONFIRMED, {}, []).lost == 4


def test_an_end_before_the_first_message_is_no_fault(tmp_path: Path) -> None:
    """Ctrl-C at the start: no member has the topic, or even a data directory."""
    with Broker.open(tmp_path / "1", sync="os"):
        pass
    faults: list[str] = []
    show: Any = SimpleNamespace(
        brokers=SimpleNamespace(data=lambda node: tmp_path / str(node)), faults=faults
    )
    stored = {node: Show._stored(show, node) for node in (1, 2)}
    assert (stored, faults) == ({1: [], 2: []}, [])
    assert account({}, stored, []).balanced
    assert not account({"a": 1}, stored, []).balanced
