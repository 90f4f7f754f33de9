"""Subscriptions that expire, inactive topics and permissions, on three members."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.broker import life_checks, right_checks


@pytest.mark.parametrize(
    "scene", [*life_checks.TOGETHER, *right_checks.TOGETHER], ids=lambda each: each.__name__
)
def test_scene(scene: Callable[[], None]) -> None:
    """I300, I301, I302, I303 and I304, also if a member crashes."""
    scene()
