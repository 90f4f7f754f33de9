"""Schemas over crashes and owners, on one simulated member and on three."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.server import schema_lives


@pytest.mark.parametrize(
    "scene", [*schema_lives.ALONE, *schema_lives.TOGETHER], ids=lambda each: each.__name__
)
def test_scene(scene: Callable[[], None]) -> None:
    """Versions are the same on all members; what does not fit stays refused."""
    scene()
