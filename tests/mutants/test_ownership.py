"""Broken ownership of subscriptions: the squalls of tests/simulation/test_ownership.py must notice each."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.ownership import Tenure
from holdfast.broker.engine import Engine
from holdfast.broker.events import Context, OwnershipRelease, OwnershipReturn, ownership, sessions
from holdfast.broker.machine import Applied
from holdfast.broker.state import BrokerState, SubscriptionState, TopicState
from holdfast.errors import Corrupt
from holdfast.group import Member
from tests.kit.broker import owners
from tests.kit.broker.owner_checks import an_idle_member_asks_again, shared_turns_go_round
from tests.kit.broker.trio import returned_elsewhere

SEEDS = (13, *range(1, 13))
"""Among the seeds of tests/simulation/test_ownership.py in `make test`."""


def caught(*words: str) -> None:
    for seed in SEEDS:
        complaint = ""
        try:
            owners.run(seed)
        except (AssertionError, Corrupt) as broken:
            complaint = str(broken)
        if complaint:
            assert any(word in complaint for word in words), complaint
            return
    pytest.fail(f"no squall of {SEEDS} noticed")


def test_a_release_of_an_earlier_number_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner without an epoch."""
    apply = OwnershipRelease.apply

    def careless(self: OwnershipRelease, state: BrokerState, context: Context) -> Any:
        taken = state.require_subscription(self.subscription).taken
        return apply(msgspec.structs.replace(self, epoch=taken), state, context)

    monkeypatch.setattr(OwnershipRelease, "apply", careless)
    caught("I68")


def test_a_consumer_does_not_set_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "joined", lambda *_: None)
    with pytest.raises(AssertionError):
        shared_turns_go_round()


def test_dispatch_begins_before_it_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    track = Engine._track

    def hasty(self: Engine, pos: Any, applied: Applied, *rest: Any) -> None:
        track(self, pos, applied, *rest)
        for notice in applied.notices:
            self._observer._broker.ownership.noticed(notice)  # type: ignore[attr-defined]

    monkeypatch.setattr(Engine, "_track", hasty)
    caught("I69", "I68")


def test_a_release_forgets_what_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    apply = OwnershipRelease.apply

    def forgetful(self: OwnershipRelease, state: BrokerState, context: Context) -> Any:
        return apply(msgspec.structs.replace(self, pending=[]), state, context)

    monkeypatch.setattr(OwnershipRelease, "apply", forgetful)
    caught("I68")


def test_members_that_left_still_hold_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(subscription: SubscriptionState) -> list[Member]:
        return []

    monkeypatch.setattr(ownership, "_absent", nobody)
    caught("I67", "unacknowledged")


def test_members_that_left_are_still_among_the_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view ends the producers of absent members, and not their consumers."""
    end = sessions.end_sessions

    def forgetful(state: BrokerState, context: Context, gone: Iterable[int], reason: str) -> None:
        absent = "its member has left the group"
        kept = [each for each in gone if reason != absent or isinstance(state.sessions[each], TopicState)]
        end(state, context, kept, reason)

    monkeypatch.setattr(sessions, "end_sessions", forgetful)
    caught("I67", "unacknowledged")


def test_the_old_owner_goes_on_until_the_release_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    halt = Dispatcher.halt

    def late(self: Dispatcher) -> None:
        if self.tenure is not None and self.tenure.standing == "releasing":
            self._acking.flush()
            return
        halt(self)

    monkeypatch.setattr(Dispatcher, "halt", late)
    caught("I68", "delivered before")


@pytest.mark.parametrize(
    ("where", "name"), [(Tenure, "returned"), (Tenure, "give_back"), (OwnershipReturn, "apply")]
)
def test_a_returned_entry_is_forgotten(where: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, name, lambda self, *args, **named: None)
    with pytest.raises(AssertionError):
        returned_elsewhere()


def test_what_another_member_holds_is_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    take = Dispatcher.take
    monkeypatch.setattr(Dispatcher, "take", lambda self, elsewhere, hashes: take(self, ()))
    caught("I68")


def test_an_idle_member_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tenure, "_ask", lambda self: None)
    with pytest.raises(AssertionError, match="it asks once"):
        an_idle_member_asks_again()


def test_a_release_does_not_exclude_its_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = ownership.next_owner

    def keep(subscription: SubscriptionState, after: Member | None) -> Member | None:
        willing = after in subscription.attached and after not in subscription.idle
        return after if willing else decide(subscription, after)

    monkeypatch.setattr(ownership, "next_owner", keep)
    with pytest.raises(AssertionError):
        shared_turns_go_round()


def test_the_next_owner_waits_where_the_last_one_stood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries that no consumer holds are below the read position."""
    take = Dispatcher.take

    def stand_still(self: Dispatcher, elsewhere: Any, hashes: bytes) -> None:
        position = self._reading.position
        take(self, elsewhere, hashes)
        self._reading.position = max(position, self._reading.position)

    monkeypatch.setattr(Dispatcher, "take", stand_still)
    caught("unacknowledged", "delivered before")
