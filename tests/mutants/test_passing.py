"""Broken non-persistent topics: tests/kit/server/passing_checks.py and a simulation must notice each."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast.broker import Membership
from holdfast.server.pulsar.non_persistent import NonPersistentTopics, PassingSubscription
from tests.kit.cluster import passing
from tests.kit.cluster.unreplicated import run
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


OWNERS: dict[str, tuple[object, str, object]] = {
    "a former owner keeps its clients": (NonPersistentTopics, "expel", lambda *_: 0),
    "each member is the owner": (Membership, "owner", lambda self, _: self._broker.group.member),
}


@pytest.mark.parametrize("mutant", OWNERS)
def test_owners_that_are_not_followed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*OWNERS[mutant])
    with pytest.raises(AssertionError):
        run(partial(passing.owners_change, seed=1))
