"""Threads at every named point: one stands inside an operation, another uses the queue.

The other thread has another object on the same segment, or the same object. In production a thread stands
still only where the GIL is released. Here that is every point, so the object's state must be right at each.
"""

from __future__ import annotations

import pytest

from tests.kit.queue.points import CASES, OF_AN_OBJECT, World, standing, uncovered


def test_every_point_is_covered() -> None:
    assert uncovered() == set()


@pytest.mark.parametrize(("operation", "point"), CASES)
def test_another_object(operation: str, point: str) -> None:
    world = World(operation)
    with standing(world.q, operation, point) as end:
        book = world.meanwhile(world.other)
        if operation == "create":
            world.meanwhile_creating()
        mine = end()
    world.settle(book, mine)


@pytest.mark.parametrize(("operation", "point"), [case for case in CASES if case[0] in OF_AN_OBJECT])
def test_the_same_object(operation: str, point: str) -> None:
    world = World(operation)
    with standing(world.q, operation, point) as end:
        book = world.meanwhile(world.q)
        mine = end()
    world.settle(book, mine)
