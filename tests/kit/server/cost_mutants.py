"""Mutants of the server's costs, for more than one test: each restores an old fault."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.server.budget import Budget
from holdfast.server.logs import Refusals
from holdfast.server.pace import Pace
from holdfast.server.pulsar.delivery import WireConsumer
from holdfast.server.pulsar.listing import Listing, Listings
from holdfast.server.pulsar.turns import Pending

Patch = pytest.MonkeyPatch


def answers_without_a_reader(patch: Patch) -> None:
    """Every request is carried out, also if its answer cannot be written."""
    patch.setattr(Pending, "ready", property(lambda self: bool(self._waiting)))


def a_list_each_time(patch: Patch) -> None:
    """Every request looks at all names."""

    def of(self: Listings, namespace: str) -> Listing:
        prefix = f"persistent://{namespace}/"
        return Listing(sorted(name for name in self._broker.machine.state.names if name.startswith(prefix)))

    patch.setattr(Listings, "of", of)


def stats_of_all(patch: Patch) -> None:
    """A request for one consumer's stats looks at every consumer."""

    def stats(self: WireConsumer) -> Any:
        every = self.dispatcher.stats().consumers
        return next((each for each in every if each.id == self.ticket), None)

    patch.setattr(WireConsumer, "stats", stats)


def nobody_is_refused(patch: Patch) -> None:
    patch.setattr(Budget, "require", lambda self, size, what: None)


def any_pace_will_do(patch: Patch) -> None:
    patch.setattr(Pace, "late", lambda self, now, moved: False)


def refusals_are_silent(patch: Patch) -> None:
    patch.setattr(Refusals, "say", lambda self, text, why, **fields: False)


def require_noticed(
    test: Callable[..., None], given: dict[str, Any], patch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    """Run a test under a mutant, and require that it fails."""
    more = {"monkeypatch": patch, "caplog": caplog}
    wanted = inspect.signature(test).parameters
    with pytest.raises((AssertionError, TimeoutError, LookupError, ValueError)):
        test(**given, **{name: each for name, each in more.items() if name in wanted})
