"""Unreplicated topics of simulated members: power cuts, restarts, creations that race."""

from __future__ import annotations

import pytest

from tests.kit.cluster import unreplicated as scenes
from tests.kit.slices import seeds

SEEDS = seeds("unreplicated", test=3, nightly=100)


def test_they_stay_with_their_member() -> None:
    """I246: their events stay in the log of their node."""
    scenes.run(scenes.stays_with_its_member)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_name_is_taken_once(seed: int) -> None:
    """I245: among all members, replicated or not."""
    scenes.run(scenes.a_name_is_taken_once, seed)


def test_names_and_topics_agree_after_a_join() -> None:
    scenes.run(scenes.names_and_topics_agree_after_a_join)


def test_a_node_that_returns_keeps_its_name() -> None:
    scenes.run(scenes.a_node_that_returns_keeps_its_name)


def test_permissions_end_with_their_topic() -> None:
    scenes.run(scenes.permissions_end_with_it)


def test_a_log_that_fails_is_opened_again() -> None:
    scenes.run(scenes.a_log_that_fails_is_opened_again)


def test_snapshots_have_the_names() -> None:
    scenes.run(scenes.the_flag_is_in_snapshots)
