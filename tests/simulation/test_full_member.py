"""A full disk of members, while the others go on."""

from __future__ import annotations

from tests.kit.cluster.fullness import (
    closes_on_a_full_disk,
    filled,
    full_member_leaves_and_comes_back,
    stays_where_it_is_needed,
)


def test_a_member_with_a_full_disk_leaves_and_comes_back() -> None:
    full_member_leaves_and_comes_back()


def test_a_close_on_a_full_disk_has_an_end() -> None:
    closes_on_a_full_disk()


def test_a_member_without_which_there_is_no_majority_stays() -> None:
    stays_where_it_is_needed()


def test_two_full_disks_of_three_continue_when_there_is_room() -> None:
    with filled(2, 3) as world:
        world.sim.run(40)
        assert len(world.brokers) < 3 or any(world.members[each].status().reason for each in (2, 3))
        for number in (2, 3):
            world.sim.platter(number).capacity_bytes = None
        world.settle()
