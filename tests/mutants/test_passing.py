"""Broken non-persistent topics: the checks of tests/kit/server/passing_checks.py must notice each."""

from __future__ import annotations

import pytest

from holdfast.server.pulsar.non_persistent import PassingSubscription
from tests.kit.server.passing_checks import Attached, at_most_one_consumer_within_permits


def test_permits_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attached, "ready", property(lambda self: True))
    with pytest.raises(AssertionError):
        at_most_one_consumer_within_permits()


def test_drops_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def pass_on(self: PassingSubscription, number: int, messages: int, entry: bytes) -> None:
        if (chosen := self._next()) is not None:
            chosen.deliver(number, messages, entry)

    monkeypatch.setattr(PassingSubscription, "pass_on", pass_on)
    with pytest.raises(AssertionError):
        at_most_one_consumer_within_permits()


def test_every_consumer_gets_every_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def pass_on(self: PassingSubscription, number: int, messages: int, entry: bytes) -> None:
        for each in self.consumers:
            if each.ready:
                each.deliver(number, messages, entry)

    monkeypatch.setattr(PassingSubscription, "pass_on", pass_on)
    with pytest.raises(AssertionError):
        at_most_one_consumer_within_permits()
