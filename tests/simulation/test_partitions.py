"""Partitioned and non-persistent topics on three simulated members: growth, power cuts, owners."""

from __future__ import annotations

from functools import partial

import pytest

from tests.kit.cluster import mixed, passing
from tests.kit.cluster import partitions as scenes
from tests.kit.cluster.unreplicated import run
from tests.kit.slices import seeds


def test_growth_under_load_loses_nothing() -> None:
    for seed in seeds("growth of partitions", test=3, nightly=100):
        run(scenes.growth_under_load_loses_nothing, seed)


def test_a_deletion_takes_all_partitions() -> None:
    for seed in seeds("deletion of partitions", test=1, nightly=50):
        run(scenes.a_deletion_takes_all_partitions, seed)


def test_clients_may_not_differ_about_an_owner() -> None:
    for seed in seeds("owners of names", test=1, nightly=50):
        run(scenes.clients_may_not_differ_about_an_owner, seed)


def test_non_persistent_topics_while_owners_change() -> None:
    """I285, I286: the owners are members in virtual time; only connections are left out."""
    for seed in seeds("passing", test=2, nightly=60):
        run(partial(passing.owners_change, seed=seed), seed)


@pytest.mark.parametrize("nodes", [1, 3])
def test_partitions_with_keys_and_delays(nodes: int) -> None:
    """I260, I261, I271: a topic grows under its consumers, and a member dies and returns."""
    for seed in seeds(f"everything at once on {nodes}", test=1, nightly=50):
        run(partial(mixed.everything_at_once, seed=seed), seed, nodes)
