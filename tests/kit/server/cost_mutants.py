"""Mistakes that bring old faults of the server's costs back, for more than one test of them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.wire.listing import Listing, Listings
from holdfast.wire.sink import WireConsumer
from holdfast.wire.turns import Pending

Patch = pytest.MonkeyPatch


def answers_without_a_reader(patch: Patch) -> None:
    """Every request that was read is carried out, whether its answer can be written or not."""
    patch.setattr(Pending, "ready", property(lambda self: bool(self._waiting)))


def a_list_each_time(patch: Patch) -> None:
    """Every request looks at all names."""

    def of(self: Listings, namespace: str) -> Listing:
        prefix = f"persistent://{namespace}/"
        return Listing(sorted(name for name in self._broker.machine.state.names if name.startswith(prefix)))

    patch.setattr(Listings, "of", of)


def stats_of_all(patch: Patch) -> None:
    """Who asks for one consumer looks at every one."""

    def stats(self: WireConsumer) -> Any:
        every = self.dispatcher.stats().consumers
        return next((each for each in every if each.id == self.ticket), None)

    patch.setattr(WireConsumer, "stats", stats)
