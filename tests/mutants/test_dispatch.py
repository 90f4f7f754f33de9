"""Broken dispatchers: the storms of tests/simulation/test_dispatch.py must notice each (I50 to I58)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import _core
from holdfast.broker.dispatch import acking
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.read_loops import Reading
from holdfast.broker.dispatch.redelivery import Redelivery
from holdfast.broker.dispatch.reset import Resetting
from holdfast.broker.dispatch.revision import RevisionController, Window
from holdfast.broker.dispatch.schedule import AT_ONCE, Scheduling
from holdfast.broker.events import Reset
from holdfast.errors import Corrupt
from tests.kit.broker.dispatch_storm import storm

SEEDS = range(1, 65)
"""The seeds of `make check`."""


def storms() -> None:
    for seed in SEEDS:
        storm(seed)


def nothing(*_: object, **__: object) -> None:
    """Replace a function by one without effect."""


async def flip_before_persisting(self: Resetting, window: Window, target: int) -> object:
    self._close(window, window.expected + 1, target)
    return await self._submit(Reset(self._cursor.id, window.token, window.expected, target))


def keep_position(self: Dispatcher) -> None:
    self._resetting.rewind(self._table.rewind)


def as_if_current(messages: Any, reset_number: int) -> Any:
    return _core.group_acks(messages, messages[0].reset_number if len(messages) else reset_number)


def without_filter(self: Acking, turn: Any, ranges: Any) -> int:
    turn.ranges += ranges
    turn.high = max([turn.high, *(end for _, end in ranges)])
    self._table.release_many(ranges)
    return 0


def double_flow(self: Dispatcher, consumer: int, permits: int) -> None:
    if consumer in self._consumers:
        self._table.flow(consumer, permits)
        self._table.flow(consumer, permits)
        self._reading.pump()


def replay_moves_the_position(original: Callable[..., Any]) -> Callable[..., Any]:
    async def complete(self: Reading, read: Any, entries: Any) -> None:
        await original(self, read, entries)
        if read.kind == "replay":
            self.position = max(self.position, entries.end_ordinal + 1)

    return complete


def early(self: Scheduling) -> int:
    """Deliver what is due in the next 100 ms, too."""
    return self._times().now_ns // 1_000_000 + 100 if not self._table.single else AT_ONCE


MUTANTS: dict[str, tuple[object, str, object]] = {
    "revisions switched off": (RevisionController, "is_outdated", lambda self, revision: False),
    "reads in flight are not put back": (Reading, "_put_back", nothing),
    "memory before the disk": (Resetting, "_carry_out", flip_before_persisting),
    "sinks are not cleared": (Dispatcher, "_clear_all", nothing),
    "no guard": (Resetting, "_guard", nothing),
    "a rewind that keeps the position": (Dispatcher, "_rewind", keep_position),
    "acknowledged entries are delivered": (Acking, "covered", lambda self, first, end: []),
    "old acknowledgements count": (acking, "group_acks", as_if_current),
    "no filter after a backward reset": (Acking, "_ranges", without_filter),
    "permits count twice": (Dispatcher, "flow", double_flow),
    "a pause takes nothing": (Dispatcher, "pause", nothing),
    "a pause has no end": (Dispatcher, "resume", nothing),
    "a replay moves the position": (Reading, "_complete", replay_moves_the_position(Reading._complete)),
    "no timer": (Redelivery, "arm", nothing),
    "messages come before their time": (Scheduling, "now_ms", property(early)),
    "messages with a delivery time never come": (Scheduling, "_look", nothing),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_dispatcher_is_noticed(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, what = MUTANTS[mutant]
    monkeypatch.setattr(where, name, what)
    with pytest.raises((AssertionError, Corrupt)):  # of the first check that notices
        storms()
