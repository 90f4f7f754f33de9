"""Broken state machines: the storms of tests/unit/broker/test_machine.py must notice each."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.broker import state_codec
from holdfast.broker.events import (
    Ack,
    Advance,
    Done,
    SubscriptionCreate,
    TopicCreate,
)
from holdfast.broker.state import BrokerState
from holdfast.errors import Corrupt, Misuse, NotFound
from tests.kit.broker.storm import Storm, agree

SEEDS = range(1, 25)
"""The seeds of `make check`."""


def chance(patch: pytest.MonkeyPatch) -> None:
    """An event decides by chance."""
    rng = random.Random()
    original = TopicCreate.apply

    def apply(self: TopicCreate, state: BrokerState, context: Any) -> Any:
        outcome = original(self, state, context)
        state.topics[outcome.topic].created += rng.randrange(1 << 40)
        return outcome

    patch.setattr(TopicCreate, "apply", apply)


def local_memory(patch: pytest.MonkeyPatch) -> None:
    """An event decides from memory that is not in the state."""
    count = itertools.count()
    original = SubscriptionCreate.apply

    def apply(self: SubscriptionCreate, state: BrokerState, context: Any) -> Any:
        outcome = original(self, state, context)
        state.subscriptions[outcome.subscription].properties["n"] = str(next(count))
        return outcome

    patch.setattr(SubscriptionCreate, "apply", apply)


def untold_change(patch: pytest.MonkeyPatch) -> None:
    """A change is not reported: no D, neither in the journal nor in a snapshot."""
    original = BrokerState.touch

    def touch(self: BrokerState, part: Any = None) -> None:
        if type(part).__name__ != "SubscriptionState":
            original(self, part)

    patch.setattr(BrokerState, "touch", touch)


def stale_part(patch: pytest.MonkeyPatch) -> None:
    """A change is reported, and the old bytes are kept."""

    def touch(self: BrokerState, part: Any = None) -> None:
        self.changes += 1

    patch.setattr(BrokerState, "touch", touch)


def half_way(patch: pytest.MonkeyPatch) -> None:
    """An event is refused after it has changed something."""
    original = Advance.apply

    def apply(self: Advance, state: BrokerState, context: Any) -> Any:
        if self.subscription in state.subscriptions:
            state.touch(state.subscriptions[self.subscription])
        return original(self, state, context)

    patch.setattr(Advance, "apply", apply)


def sender_matters(patch: pytest.MonkeyPatch) -> None:
    """An event uses the sender of the frame, which the journal does not keep."""
    original = SubscriptionCreate.apply

    def apply(self: SubscriptionCreate, state: BrokerState, context: Any) -> Any:
        outcome = original(self, state, context)
        state.subscriptions[outcome.subscription].properties["by"] = str(context.member)
        return outcome

    patch.setattr(SubscriptionCreate, "apply", apply)


def sequences_lost(patch: pytest.MonkeyPatch) -> None:
    """A snapshot lacks the sequences for deduplication."""
    original = state_codec.topic_part
    patch.setattr(
        state_codec,
        "topic_part",
        lambda state, topic: msgspec.structs.replace(original(state, topic), sequences=[]),
    )
    patch.setattr(
        state_codec, "digest", lambda state: repr([state.log.sequences(each) for each in state.topics])
    )


def reset_not_kept(patch: pytest.MonkeyPatch) -> None:
    """A snapshot lacks the reset number."""
    original = state_codec.subscription_part
    fresh: list[bool] = []

    def part(subscription: Any) -> Any:
        made = original(subscription)
        return msgspec.structs.replace(made, reset_number=0) if not fresh else made

    def digest(state: BrokerState) -> Any:
        return sorted((each.id, each.reset_number) for each in state.subscriptions.values())

    patch.setattr(state_codec, "subscription_part", part)
    patch.setattr(state_codec, "digest", digest)


def acks_of_any_number(patch: pytest.MonkeyPatch) -> None:
    """An acknowledgement from before a reset counts."""

    def apply(self: Ack, state: BrokerState, context: Any) -> Any:
        subscription = state.require_subscription(self.subscription)
        if context.member is None or self.reset_number == subscription.reset_number:
            subscription.acks.ack_ranges(self.ranges, state.topics[subscription.topic].ledgers.end)
        state.touch(subscription)
        return Done()

    patch.setattr(Ack, "apply", apply)


BROKEN = [
    chance,
    local_memory,
    untold_change,
    stale_part,
    half_way,
    sender_matters,
    sequences_lost,
    reset_not_kept,
    acks_of_any_number,
]


@pytest.mark.parametrize("broken", BROKEN, ids=lambda each: each.__name__)
def test_broken_machines_are_noticed(
    broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    for seed in SEEDS:
        storm = Storm(seed)
        try:
            storm.run(600)
            agree(storm)
        except (AssertionError, Corrupt, Misuse, NotFound, KeyError):
            return
    pytest.fail(f"{broken.__name__} was not noticed")
