"""Publishers wait for the slowest member: nothing else limits what waits for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kit.broker import flow

SCENES = (
    flow.a_paused_member_is_not_flooded,
    flow.publishers_that_wait_for_a_member_end_with_their_broker,
    flow.a_slow_disk_holds_publishers_back,
)


@pytest.mark.parametrize("scene", SCENES, ids=lambda each: each.__name__)
def test_flow(scene: Callable[[], None]) -> None:
    """I28, of whole brokers: what waits at a member is limited."""
    scene()
