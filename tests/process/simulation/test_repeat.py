"""A seed repeats in another process, where sets of strings have another order."""

from __future__ import annotations

from tests.kit import KIT
from tests.kit.group import machine as group_machine
from tests.kit.group.machine import traces_of_two_processes


def test_a_seed_of_the_group_repeats() -> None:
    """I29: where sets of strings have another order."""
    assert traces_of_two_processes(group_machine.__file__) == 1


def test_a_seed_of_the_brokers_repeats() -> None:
    """I29: where sets of strings have another order."""
    assert traces_of_two_processes(KIT / "broker/cluster.py") == 1
