"""Elections: the table of outcomes, and that nothing stable is lost."""

from __future__ import annotations

import pytest

from holdfast.broker.state import ViewMark
from holdfast.cluster import Hello, Outcome, decide
from tests.kit.cluster.stores import (
    MAIN,
    Node,
    quorate,
    random_nodes,
    require_nothing_lost,
    small_worlds,
)
from tests.kit.slices import pick

THREE = (1, 2, 3)
ALONE = [ViewMark(5, 1, (2,), 7)]


def fresh(node: int) -> Hello:
    return Hello(node, fresh=True)


def store(node: int, **more: object) -> Hello:
    fields = {"cluster": b"c", "stable_d": 9, "last_d": 9, "history": [ViewMark(5, 1, (1, 2, 3), 7)], **more}
    return Hello(node, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hellos", "outcome", "node"),
    [
        ([fresh(1), fresh(2), fresh(3)], Outcome.BOOTSTRAP, 1),
        ([fresh(2), fresh(3)], Outcome.WAIT, None),
        ([fresh(1), store(2, history=ALONE), fresh(3)], Outcome.SEED, 2),
        ([fresh(1), store(2, history=ALONE)], Outcome.WAIT, None),
        ([fresh(1), store(2, stable_d=0), fresh(3)], Outcome.SEED, 2),
        ([fresh(1), store(2), fresh(3)], Outcome.WAIT, None),
        ([fresh(1), store(2, forced=True), fresh(3)], Outcome.FORCED, 2),
        ([store(1, forced=True), store(2, forced=True)], Outcome.REFUSE, None),
        ([store(1), store(2, cluster=b"d")], Outcome.REFUSE, None),
        ([store(1), store(2), fresh(3)], Outcome.ELECT, 1),
        ([store(1), store(2, last_d=12, stable_d=12)], Outcome.ELECT, 2),
        ([store(1), store(2, complete=False)], Outcome.WAIT, None),
        ([store(1), store(2), store(3, history=ALONE, last_d=99, stable_d=99)], Outcome.ELECT, 1),
        ([store(1), store(3, history=ALONE, last_d=99, stable_d=99)], Outcome.WAIT, None),
        ([store(1), fresh(2), store(3, history=ALONE, last_d=99, stable_d=99)], Outcome.WAIT, None),
        ([store(1), store(2), store(3, history=ALONE, forced=True)], Outcome.FORCED, 3),
        ([store(1, complete=False, forced=True), fresh(2), fresh(3)], Outcome.WAIT, None),
    ],
)
def test_the_table(hellos: list[Hello], outcome: Outcome, node: int | None) -> None:
    decision = decide(hellos, THREE)
    assert (decision.outcome, decision.node) == (outcome, node), decision
    assert decision == decide(hellos[::-1], THREE), "the order of the hellos decides"
    assert decision.reason


def test_a_refusal_names_both_clusters() -> None:
    reason = decide([store(1), store(2, cluster=b"d")], THREE).reason
    assert b"c".hex() in reason
    assert b"d".hex() in reason
    assert "empty directory" in reason


def test_a_wait_names_the_missing() -> None:
    decision = decide([store(1), fresh(2)], THREE)
    assert decision.waits_for == (3,)
    assert "node 2 has an empty directory" in decision.reason
    decision = decide([store(1), store(2, history=ALONE)], THREE)
    assert "node 2 was served alone" in decision.reason


def test_three_stores_in_every_small_world() -> None:
    """I235: for every majority that comes back. With all three, one is elected."""
    elected = 0
    for nodes in small_worlds():
        for present in quorate(nodes):
            elected += require_nothing_lost(nodes, present) is Outcome.ELECT
        assert require_nothing_lost(nodes, nodes) is Outcome.ELECT, nodes
    assert elected > 1000


@pytest.mark.parametrize("votes", [3, 5])
def test_stores_in_random_worlds(votes: int) -> None:
    """I235: also with lost disks, copies that did not end, and journals that were dropped."""
    outcomes = set()
    for seed in range(pick(test=400, nightly=40_000)):
        nodes = random_nodes(seed, votes)
        outcomes |= {require_nothing_lost(nodes, present) for present in quorate(nodes)}
    assert {Outcome.ELECT, Outcome.WAIT} <= outcomes


def test_a_copy_that_did_not_end_is_a_witness() -> None:
    """Its view is in the other's history, so the other has all of it."""
    whole, later = Node(1, len(MAIN)), Node(1, 3)
    incomplete = Node(2, 3, kind="incomplete")
    assert decide([whole.hello(), incomplete.hello()], THREE).node == 1
    assert decide([later.hello(), incomplete.hello()], THREE).outcome is Outcome.WAIT


def test_forked_ends_wait_for_the_missing_one() -> None:
    one, two = Node(1, 3, own=1), Node(2, 3, own=1)
    assert decide([one.hello(), two.hello()], THREE).waits_for == (3,)
    three = Node(3, 3)
    assert decide([each.hello() for each in (one, two, three)], THREE).outcome is Outcome.ELECT


def test_a_node_that_was_not_in_the_view_cannot_hold_its_events() -> None:
    """The third disk is lost. It was away when the ends differed."""
    second = (1, 2)
    one, two = Node(1, 5, own=1, second=second), Node(2, 5, own=1, second=second)
    assert decide([one.hello(), two.hello(), fresh(3)], THREE).outcome is Outcome.ELECT
    assert decide([one.hello(), two.hello()], THREE).outcome is Outcome.ELECT
