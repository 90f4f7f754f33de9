"""Broken versions of Key_Shared: storms, squalls and churn must notice each.

They break the order of keys (I260, I261), what the next owner knows (I263), delivery times (I271), or
progress.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from holdfast.broker.dispatch.attached import Attached
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.keys import Keys
from holdfast.broker.dispatch.schedule import AT_ONCE, Scheduling
from holdfast.broker.key_shared import KeyShared
from holdfast.errors import HoldfastError
from tests.kit.broker import key_churn, owners
from tests.kit.broker.dispatch_storm import storm

FOUND = (AssertionError, HoldfastError, BaseExceptionGroup)


def storms() -> None:
    for seed in range(1, 65):
        storm(seed)


def squalls() -> None:
    for seed in (3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 2, 4, 6, 66):
        owners.run(seed)


def ignores_keys(self: Keys, keys: KeyShared, ahead_max: int) -> None:
    self._table.single = False


def moves_keys_at_once(self: Keys, keys: KeyShared, ahead_max: int) -> None:
    self._table.set_keyed(True)
    self._table.set_ahead_max(ahead_max)


def keeps_the_old_split(split: Callable[..., Any]) -> Callable[..., Any]:
    def kept(self: Keys, attached: Mapping[int, Attached]) -> None:
        if len(attached) >= len(self._seats):
            split(self, attached)

    return kept


def comes_at_once(now_ms: Any) -> Any:
    return property(lambda self: AT_ONCE if self._table.keyed else now_ms.fget(self))


def forgets_hashes(take: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, elsewhere, hashes=b"": take(self, elsewhere)


ALONE: dict[str, tuple[object, str, object]] = {
    "keys are ignored": (Keys, "begin", ignores_keys),
    "a join lets a key go to two consumers": (Keys, "begin", moves_keys_at_once),
    "a leave drains no hash": (Keys, "split", keeps_the_old_split(Keys.split)),
    "a delayed message comes at once": (Scheduling, "now_ms", comes_at_once(Scheduling.now_ms)),
}
TOGETHER: dict[str, tuple[object, str, object]] = {
    "the next owner does not know the hashes": (Dispatcher, "take", forgets_hashes(Dispatcher.take)),
    "no member is due": (Keys, "members_due", lambda self: []),
}


@pytest.mark.parametrize("mutant", ALONE)
def test_a_broken_dispatcher_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, what = ALONE[mutant]
    monkeypatch.setattr(where, name, what)
    with pytest.raises(FOUND):
        storms()


@pytest.mark.parametrize("mutant", TOGETHER)
def test_a_broken_owner_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, what = TOGETHER[mutant]
    monkeypatch.setattr(where, name, what)
    with pytest.raises(FOUND):
        squalls()


CHURN: dict[str, tuple[Callable[[int, int], object], tuple[object, str, object]]] = {
    "keys are ignored": (key_churn.alone, ALONE["keys are ignored"]),
    "a join lets a key go to two consumers": (
        key_churn.alone,
        ALONE["a join lets a key go to two consumers"],
    ),
    "keys are ignored by three": (key_churn.together, ALONE["keys are ignored"]),
    "a join of three lets a key go to two consumers": (
        key_churn.together,
        ALONE["a join lets a key go to two consumers"],
    ),
    "the next owner does not know the hashes": (
        key_churn.together,
        TOGETHER["the next owner does not know the hashes"],
    ),
}


@pytest.mark.parametrize("mutant", CHURN)
def test_the_account_of_a_churn_notices_it(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, (where, name, what) = CHURN[mutant]
    monkeypatch.setattr(where, name, what)
    with pytest.raises((AssertionError, BaseExceptionGroup), match=r"I26[01]"):
        run(1, 600)
