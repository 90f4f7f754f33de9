"""Partitioned and non-persistent topics on three simulated members: growth, power cuts, owners."""

from __future__ import annotations

from functools import partial

from tests.kit.cluster import partitions as scenes
from tests.kit.cluster import passing
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
