"""Broken requests to owners: the scenes of tests/simulation/test_asks.py must notice each."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.broker.api.moving import Mover
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.dispatch.asking import Asks
from holdfast.broker.events import Answer
from tests.kit.broker.ask_scenes import moved_at_the_owner, offered


def test_an_offer_is_not_filtered(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Acking, ranges: Any, bits: Any, number: int, receipt: bool) -> Any:
        turn = self._collect()
        self._take(turn, ranges)
        return self._answer(turn, receipt, 0)

    monkeypatch.setattr(Acking, "offered", careless)
    with pytest.raises(AssertionError):
        offered()


def test_a_receipt_is_done_before_the_state_covers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Asks._sent

    def hasty(self: Asks, number: int, done: Any) -> None:
        sent(self, number, done)
        self._done(number, Answer())

    monkeypatch.setattr(Asks, "_sent", hasty)
    with pytest.raises(AssertionError, match="the state has it"):
        offered()


def test_a_move_does_not_go_through_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mover, "_is_foreign", lambda self, subscription: False)
    monkeypatch.setattr(Mover, "_require_owner", lambda self, topic, subscription: None)
    with pytest.raises(AssertionError):
        moved_at_the_owner()
