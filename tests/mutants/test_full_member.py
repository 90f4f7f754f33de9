"""Broken handling of a member's full disk: its tests must notice each."""

from __future__ import annotations

import pytest

from holdfast.broker import ending
from holdfast.cluster.fullness import Fullness
from holdfast.ledger import Store
from tests.kit.cluster.fullness import (
    closes_on_a_full_disk,
    full_member_leaves_and_comes_back,
    stays_where_it_is_needed,
)


def test_a_full_member_that_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "stalled_s", 0.0)
    with pytest.raises(TimeoutError):
        full_member_leaves_and_comes_back()


def test_a_close_that_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "require_room", lambda _: None)
    with pytest.raises(AssertionError, match="it took"):
        closes_on_a_full_disk()


def test_a_full_member_that_takes_the_majority_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fullness, "_others_go_on", lambda *_: True)
    with pytest.raises(AssertionError):
        stays_where_it_is_needed()
