"""Compactions on three members of a simulated cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.broker import compaction_scenes


@pytest.mark.parametrize("scene", compaction_scenes.SCENES, ids=lambda each: each.__name__)
def test_scene(scene: Callable[[], None]) -> None:
    """I310: the views of all members are one."""
    scene()
