"""Publishers that do not wait for the slowest member are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast.broker.engine import Engine
from tests.kit.broker import flow
from tests.kit.sim import group


def only_the_own_disk_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Engine, "behind", Engine._is_full)


def disks_of_others_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group, "HELD_WINDOWS", 1 << 30)


MUTANTS = (
    (only_the_own_disk_counts, flow.a_paused_member_is_not_flooded),
    (only_the_own_disk_counts, flow.a_slow_disk_holds_publishers_back),
    (disks_of_others_do_not_count, flow.a_slow_disk_holds_publishers_back),
)


@pytest.mark.parametrize(("mutant", "scene"), MUTANTS, ids=lambda each: each.__name__)
def test_found(
    mutant: Callable[[pytest.MonkeyPatch], None], scene: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        scene()
