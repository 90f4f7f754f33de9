"""Subscriptions that expire, inactive topics, permissions and properties, on one broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.broker import life_checks, right_checks


@pytest.mark.parametrize("scene", [*life_checks.ALONE, *right_checks.ALONE], ids=lambda each: each.__name__)
def test_scene(scene: Callable[[], None]) -> None:
    """I300, I301, I302, I303 and I304: see the scene."""
    scene()


@pytest.mark.parametrize(
    "scene",
    [life_checks.expiry_survives, life_checks.inactivity_survives, right_checks.rights_survive],
    ids=lambda each: each.__name__,
)
def test_a_power_cut(scene: Callable[..., None]) -> None:
    scene(power=True)
