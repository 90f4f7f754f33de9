"""Partitioned topics on three simulated members: growth under load, power cuts, owners."""

from __future__ import annotations

import pytest

from tests.kit.cluster import partitions as scenes
from tests.kit.cluster.unreplicated import run


@pytest.mark.parametrize("seed", [1, 2])
def test_growth_under_load_loses_nothing(seed: int) -> None:
    run(scenes.growth_under_load_loses_nothing, seed)


def test_a_deletion_takes_all_partitions() -> None:
    run(scenes.a_deletion_takes_all_partitions)


def test_clients_may_not_differ_about_an_owner() -> None:
    run(scenes.clients_may_not_differ_about_an_owner)
