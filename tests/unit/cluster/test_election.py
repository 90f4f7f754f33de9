"""Elections: the table of outcomes, and that nothing stable is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from holdfast.broker.state import ViewMark
from holdfast.cluster import Hello, Outcome, decide
from holdfast.cluster.hello import CutMark, Held
from tests.kit.cluster.stores import (
    MAIN,
    Node,
    add_nodes,
    drifting_nodes,
    quorate,
    random_drifting_nodes,
    random_nodes,
    remove_nodes,
    require_nothing_lost,
    shorten_list,
    small_worlds,
)
from tests.kit.slices import pick

THREE = (1, 2, 3)
ALONE = [ViewMark(5, 1, (2,), 7)]
FIVE = [ViewMark(5, 1, (1, 2, 3, 4, 5), 7)]
LEFT = [ViewMark(5, 1, THREE, 7), ViewMark(6, 5, (1, 2), 8)]
"""Node 3 left a cluster of three."""


def fresh(node: int) -> Hello:
    return Hello(node, fresh=True)


def store(node: int, **more: object) -> Hello:
    fields = {"cluster": b"c", "stable_d": 9, "last_d": 9, "history": [ViewMark(5, 1, (1, 2, 3), 7)], **more}
    return Hello(node, **fields)  # type: ignore[arg-type]


def longer(node: int, history: list[ViewMark]) -> Hello:
    """Return a store that knows events behind its last view to be stable."""
    return store(node, history=history, last_d=history[-1].d + 20, stable_d=history[-1].d + 20)


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
    require_outcome(hellos, THREE, outcome, node)


@pytest.mark.parametrize(
    ("hellos", "nodes", "outcome", "node"),
    [
        # nodes were removed, and may hold what was stable
        ([store(1)], (1,), Outcome.WAIT, None),
        ([store(1, forced=True)], (1,), Outcome.FORCED, 1),
        ([store(1), store(2)], (1, 2), Outcome.WAIT, None),
        ([store(1, history=FIVE), store(2, history=FIVE)], THREE, Outcome.WAIT, None),
        ([store(1, history=FIVE), store(2, history=FIVE), store(3, history=FIVE)], THREE, Outcome.WAIT, None),
        ([store(1, stable_d=0)], (1,), Outcome.WAIT, None),
        ([store(1), fresh(4), fresh(5)], (1, 4, 5), Outcome.WAIT, None),
        ([store(1, forced=True), fresh(4), fresh(5)], (1, 4, 5), Outcome.FORCED, 1),
        # the removed node had left before
        ([store(1, history=LEFT), store(2, history=LEFT)], (1, 2), Outcome.ELECT, 1),
        ([store(1), store(2, history=LEFT)], (1, 2), Outcome.ELECT, 2),
        ([store(1, history=LEFT), store(2, history=LEFT), fresh(4)], (1, 2, 4), Outcome.ELECT, 1),
        # a broker alone, under another number than before
        ([store(2, history=[ViewMark(5, 1, (1,), 7)])], (2,), Outcome.ELECT, 2),
        ([fresh(1), store(2, history=[ViewMark(5, 1, (9,), 7)]), fresh(3)], THREE, Outcome.SEED, 2),
        # nodes were added
        ([store(1), store(2), fresh(4)], (1, 2, 3, 4), Outcome.ELECT, 1),
        ([store(1), store(2), store(3), fresh(4), fresh(5)], (1, 2, 3, 4, 5), Outcome.ELECT, 1),
        ([store(1), store(2), fresh(4), fresh(5)], (1, 2, 3, 4, 5), Outcome.WAIT, None),
        ([store(1), *(fresh(node) for node in range(2, 8))], range(1, 8), Outcome.WAIT, None),
    ],
)
def test_other_nodes_than_before(
    hellos: list[Hello], nodes: Sequence[int], outcome: Outcome, node: int | None
) -> None:
    require_outcome(hellos, nodes, outcome, node)


def require_outcome(hellos: list[Hello], nodes: Sequence[int], outcome: Outcome, node: int | None) -> None:
    decision = decide(hellos, nodes)
    assert (decision.outcome, decision.node) == (outcome, node), decision
    assert decision == decide(hellos[::-1], nodes), "the order of the hellos decides"
    assert decision.reason


EVERYONE = (1, 2, 3, 4, 5)
OLD = ViewMark(5, 1, THREE, 7, EVERYONE)
"""Nodes 4 and 5 were away, and had a vote."""
NEW = ViewMark(6, 8, THREE, 8, THREE)
"""They have none any more."""


@pytest.mark.parametrize(
    ("hellos", "nodes", "outcome", "node"),
    [
        # node 3 may have been in a later view, with the removed ones
        ([store(1, history=[OLD]), store(2, history=[OLD])], THREE, Outcome.WAIT, None),
        ([store(node, history=[OLD]) for node in THREE], THREE, Outcome.ELECT, 1),
        ([store(1, history=[OLD]), store(2, history=[OLD], forced=True)], THREE, Outcome.FORCED, 2),
        # the disk of node 3 is lost, too, and nodes 4 and 5 are removed
        ([store(1, history=[OLD], stable_d=0), fresh(2), fresh(3)], THREE, Outcome.WAIT, None),
        ([store(1, history=[OLD], stable_d=0), *map(fresh, (2, 3, 4, 5))], EVERYONE, Outcome.SEED, 1),
        # a view of the shorter list is known to be stable, or may not be
        ([store(1, history=[OLD, NEW]), store(2, history=[OLD])], THREE, Outcome.ELECT, 1),
        ([store(1, history=[OLD, NEW], stable_d=7), store(2, history=[OLD])], THREE, Outcome.WAIT, None),
        ([store(1, history=[NEW]), store(2, history=[NEW])], THREE, Outcome.ELECT, 1),
        # the list grows again: nodes 1 and 2 may have gone on
        ([store(3, history=[OLD, NEW]), store(4, history=[OLD]), fresh(5)], EVERYONE, Outcome.WAIT, None),
        (
            [store(3, history=[OLD, NEW]), *(store(n, history=[OLD]) for n in (4, 5))],
            EVERYONE,
            Outcome.WAIT,
            None,
        ),
        (
            [store(n, history=[OLD, NEW]) for n in (2, 3)] + [store(4, history=[OLD])],
            EVERYONE,
            Outcome.ELECT,
            2,
        ),
    ],
)
def test_other_nodes_had_a_vote(
    hellos: list[Hello], nodes: Sequence[int], outcome: Outcome, node: int | None
) -> None:
    require_outcome(hellos, nodes, outcome, node)


VIEW = ViewMark(5, 1, THREE, 7, THREE)
SOLE = [VIEW, ViewMark(6, 10, (1,), 8, (1,))]
"""Node 1 was chosen as the survivor, and was a cluster of one."""
ON = [VIEW, ViewMark(7, 10, (2, 3), 9, THREE)]
"""Nodes 2 and 3 went on without node 1."""


@pytest.mark.parametrize(
    ("hellos", "outcome", "node"),
    [
        ([store(1, history=SOLE, last_d=12, stable_d=12), store(2), store(3)], Outcome.ELECT, 1),
        ([store(1, history=SOLE, last_d=12), store(2), store(3)], Outcome.ELECT, 1),
        ([store(1, history=SOLE, last_d=12, stable_d=12), store(2)], Outcome.ELECT, 1),
        ([store(1, history=SOLE, last_d=12, stable_d=12), fresh(2), fresh(3)], Outcome.SEED, 1),
        ([store(1, history=SOLE, last_d=12, stable_d=12), fresh(2)], Outcome.WAIT, None),
        # node 2 may have confirmed messages, or has, in a view that node 1 was not in
        (
            [
                store(1, history=SOLE, last_d=12, stable_d=12, start_d=9, frames=[Held(12, 6, 2, 66)]),
                store(2, history=ON, last_d=11, start_d=9, frames=[Held(11, 7, 1, 77)]),
            ],
            Outcome.ELECT,
            1,
        ),
        ([store(1, history=SOLE, last_d=12, stable_d=12), longer(2, ON)], Outcome.WAIT, None),
        ([store(1, history=SOLE, last_d=12, stable_d=12, forced=True), longer(2, ON)], Outcome.FORCED, 1),
        ([store(1, history=SOLE[:1]), longer(2, ON)], Outcome.ELECT, 2),
    ],
)
def test_a_survivor_was_a_cluster_of_one(hellos: list[Hello], outcome: Outcome, node: int | None) -> None:
    """Its list counts, although it is not the configured one any more."""
    require_outcome(hellos, THREE, outcome, node)


def test_an_older_program_went_through_the_same_views() -> None:
    """It did not note the nodes with a vote."""
    marks = [ViewMark(5, 1, THREE, 7, THREE), ViewMark(6, 8, THREE, 8, THREE)]
    old = [replace(mark, votes=()) for mark in marks]
    require_outcome([store(1, history=old), store(2, history=marks)], THREE, Outcome.ELECT, 1)
    require_outcome([store(1, history=old[:1]), store(2, history=marks)], THREE, Outcome.ELECT, 2)
    require_outcome([store(1, history=marks[:1]), store(2, history=old)], THREE, Outcome.ELECT, 2)


def test_a_store_that_was_away_for_long_has_not_diverged() -> None:
    """The other one does not remember the views of then."""
    late = [ViewMark(view, view * 10, THREE, view, THREE) for view in range(20, 84)]
    hellos = [store(1, history=[VIEW]), longer(2, late), longer(3, late)]
    require_outcome(hellos, THREE, Outcome.ELECT, 2)


def test_a_wait_for_an_earlier_list_names_it() -> None:
    decision = decide([store(1, history=[OLD]), store(2, history=[OLD])], THREE)
    assert decision.waits_for == (3,)
    assert "2 of 3 needed stores are here, of the earlier cluster.nodes [1, 2, 3, 4, 5]" in decision.reason
    assert "list the earlier ones again" in decision.reason


BEGUN = [*ALONE, ViewMark(6, 10, THREE, 8)]
"""Node 2 was alone, up to the ninth event, and began a cluster."""


def copy(node: int, *, view: int, **more: object) -> Hello:
    """Return a node that has begun to copy in this view; 9: an unknown one."""
    return Hello(node, complete=False, cuts=[CutMark(view, {5: 7, 6: 8, 9: 9}[view])], **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hellos", "outcome", "node"),
    [
        ([store(1, stable_d=0), copy(2, view=5), fresh(3)], Outcome.SEED, 1),
        ([store(1, stable_d=0), copy(2, view=9), fresh(3)], Outcome.WAIT, None),
        ([store(1, stable_d=0), copy(2, view=5)], Outcome.ELECT, 1),
        # nothing of its view was durable
        ([store(1, stable_d=0, last_d=0, history=[]), copy(2, view=9), fresh(3)], Outcome.SEED, 1),
        ([store(2, history=ALONE), copy(1, view=9), fresh(3)], Outcome.SEED, 2),
        ([store(2, history=ALONE), Hello(1, complete=False, damage="torn"), fresh(3)], Outcome.WAIT, None),
        # what a broker alone had is stable, and not what came later
        ([store(2, history=BEGUN, last_d=12), fresh(1), fresh(3)], Outcome.SEED, 2),
        ([store(2, history=BEGUN, last_d=12), copy(1, view=6), fresh(3)], Outcome.SEED, 2),
        ([store(2, history=BEGUN, last_d=12, stable_d=10), fresh(1), fresh(3)], Outcome.WAIT, None),
    ],
)
def test_power_fails_while_a_cluster_begins(hellos: list[Hello], outcome: Outcome, node: int | None) -> None:
    require_outcome(hellos, THREE, outcome, node)


def test_power_fails_while_five_begin() -> None:
    """Two have a store: fewer than a majority, so nothing of their view is stable."""
    new = [fresh(3), fresh(4), fresh(5)]
    one, two = store(1, stable_d=0, history=FIVE), store(2, stable_d=0, last_d=11, history=FIVE)
    require_outcome([one, two, *new], range(1, 6), Outcome.SEED, 2)
    begun = [ViewMark(6, 10, (1, 2, 3, 4, 5), 8)]
    two = store(2, history=ALONE)
    one = store(1, last_d=12, history=ALONE + begun)
    require_outcome([one, two, *new], range(1, 6), Outcome.SEED, 1)
    one = store(1, last_d=12, history=[ViewMark(7, 1, (1,), 9)])  # both were served alone
    require_outcome([one, two, *new], range(1, 6), Outcome.WAIT, None)


def test_a_removed_node_is_named_with_what_to_do() -> None:
    decision = decide([store(1)], (1,))
    assert decision.waits_for == (2, 3)
    assert "nodes 2, 3 are not in cluster.nodes, but in the last view of node 1" in decision.reason
    assert "list all nodes of that view" in decision.reason
    assert "holdfast cluster survive" in decision.reason


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


@pytest.mark.parametrize("listed", [4, 5, 6])
def test_stores_after_nodes_were_added(listed: int) -> None:
    """I235: the majority that held an event was one of the nodes before."""
    assert {Outcome.ELECT, Outcome.WAIT} <= add_nodes(listed, range(pick(test=300, nightly=30_000)))


def test_stores_after_nodes_were_removed() -> None:
    """I235: the removed nodes may hold what was stable, or have left before."""
    assert {Outcome.ELECT, Outcome.WAIT} <= remove_nodes(range(pick(test=300, nightly=30_000)))


def test_a_shorter_list_in_every_small_world() -> None:
    """I235: listed nodes are absent, and the present ones were not in the last view."""
    assert shorten_list(drifting_nodes()) == {Outcome.ELECT, Outcome.WAIT}


def test_a_shorter_list_in_random_worlds() -> None:
    """I235: see the small worlds; also with lost disks and copies that did not end."""
    seeds = range(pick(test=30, nightly=3000))
    assert {Outcome.ELECT, Outcome.WAIT} <= shorten_list(map(random_drifting_nodes, seeds))


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


def test_a_view_without_nodes_decides_nothing() -> None:
    """No program says so; a member that hears it must not end."""
    odd = store(1, history=[ViewMark(5, 1, (), 7)])
    assert decide([odd, fresh(2), fresh(3)], THREE).outcome is Outcome.WAIT
