"""Broken exchanges and moves: the model of tests/unit/broker/test_routing.py must notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.broker.batches import keys_of
from holdfast.broker.events import Bind, Done, Move, Unbind
from holdfast.broker.events import cursors as cursor_events
from holdfast.broker.events import exchanges as exchange_events
from holdfast.broker.events import moves as move_events
from holdfast.broker.events import topics as topic_events
from holdfast.broker.events.exchanges import Routing
from holdfast.broker.exchanges import ExchangeState, Patterns
from holdfast.broker.last_value import LastValues
from holdfast.broker.state import BrokerState, TopicState
from holdfast.errors import HoldfastError
from tests.kit.broker import thinned_checks
from tests.kit.broker.copied_often import copied_often
from tests.kit.broker.events import Rig
from tests.kit.broker.routing_model import Recorder, World

SEEDS = range(1, 7)
"""The seeds of `make check`."""


def double_routing(patch: pytest.MonkeyPatch) -> None:
    """A message is appended once for each binding that matches."""

    def match(self: ExchangeState, key: str, most: int) -> list[int]:
        found = []
        for topic, bound in self.binding_pairs():
            if self.kind == "fanout" or (
                bound == key if self.kind == "direct" else Patterns([(bound, 0)]).match(key)
            ):
                found.append(topic)
        return found

    patch.setattr(ExchangeState, "match", match)


def alternate_twice(patch: pytest.MonkeyPatch) -> None:
    """An alternate passes messages on to its own alternate."""
    original = Routing._pass_on

    def pass_on(self: Routing, exchange: Any, alternate: Any, key: str, entry: bytes) -> None:
        if alternate is not None and not self._open(exchange, key) and not self._open(alternate, key):
            second = self._state.exchanges.all.get(alternate.alternate)
            original(self, alternate, second, key, entry)
            return
        original(self, exchange, alternate, key, entry)

    patch.setattr(Routing, "_pass_on", pass_on)


def alternate_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Messages that no binding matches are dropped, though there is an alternate."""
    original = Routing._pass_on
    patch.setattr(
        Routing, "_pass_on", lambda self, exchange, _, key, entry: original(self, exchange, None, key, entry)
    )


def unbind_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    """An unbind is not in the journal: after a restart the binding is there."""

    def apply(self: Unbind, state: BrokerState, context: Any) -> Any:
        state.exchanges.require(self.exchange).unbind(self.topic, self.key)
        return Done()

    patch.setattr(Unbind, "apply", apply)


def stale_table(patch: pytest.MonkeyPatch) -> None:
    """The derived table of bindings is not rebuilt."""
    patch.setattr(ExchangeState, "forget_tables", lambda self: None)


def reject_without_append(patch: pytest.MonkeyPatch) -> None:
    """A reject acknowledges, and appends nothing."""
    patch.setattr(Move, "_routing", lambda self, state, source, rows: Routing(state))


def reject_again(patch: pytest.MonkeyPatch) -> None:
    """A reject of an acknowledged message appends it once more."""
    patch.setattr(Move, "_open_rows", lambda self, sources, topic: list(enumerate(self.rows)))


def reject_whole_batch(patch: pytest.MonkeyPatch) -> None:
    """A reject of one message acknowledges its batch."""
    original = move_events.take

    def take(state: BrokerState, context: Any, source: Any, rows: Any, end: int) -> None:
        original(state, context, source, [move_events.Row(row.ordinal, row.entry) for row in rows], end)

    patch.setattr(move_events, "take", take)


def retry_is_routed(patch: pytest.MonkeyPatch) -> None:
    """The sequences of a publish to an exchange are not noted."""
    patch.setattr(Recorder, "take", lambda self: None, raising=False)


def bindings_outlive_topics(patch: pytest.MonkeyPatch) -> None:
    """Bindings stay when their topic is deleted."""
    patch.setattr(topic_events, "forget_bindings", lambda state, topic: None)


def first_key_for_all(patch: pytest.MonkeyPatch) -> None:
    """A batch is routed by the key of its first message."""
    patch.setattr(exchange_events, "keys_of", lambda entry: keys_of(entry)[:1])


def bind_forgets_the_key(patch: pytest.MonkeyPatch) -> None:
    """A second binding of a topic replaces the first."""
    original = Bind.apply

    def apply(self: Bind, state: BrokerState, context: Any) -> Any:
        state.exchanges.require(self.exchange).bindings.pop(self.topic, None)
        return original(self, state, context)

    patch.setattr(Bind, "apply", apply)


MUTANTS: list[Callable[[pytest.MonkeyPatch], None]] = [
    double_routing,
    alternate_twice,
    alternate_forgotten,
    unbind_is_not_durable,
    stale_table,
    reject_without_append,
    reject_again,
    reject_whole_batch,
    retry_is_routed,
    bindings_outlive_topics,
    first_key_for_all,
    bind_forgets_the_key,
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_the_model_notices(
    mutant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)

    def play() -> None:
        for seed in SEEDS:
            world = World(seed)
            world.run(250)
            world.check()

    with pytest.raises((AssertionError, HoldfastError, KeyError, IndexError)):
        play()


# -- rings and last values -----------------------------------------------------------------------------


def ring_drops_on_publish(patch: pytest.MonkeyPatch) -> None:
    """A ring drops entries when a member looks at the topic, not by an event."""
    original = BrokerState.refresh

    def refresh(self: BrokerState, topic: TopicState) -> None:
        original(self, topic)
        floor = topic.ledgers.end - (self.effective(topic).ring_entries or topic.ledgers.end)
        for each in topic.subscriptions.values():
            if floor > each.acks.acked_to:
                each.acks.advance(floor)
                each.packed = None

    patch.setattr(BrokerState, "refresh", refresh)


def ring_by_chance(patch: pytest.MonkeyPatch) -> None:
    """A ring's event keeps as many entries as the process has applied."""
    floors = iter(range(10**9))
    patch.setattr(
        move_events,
        "ring_floor",
        lambda ledgers, entries, size: min(ledgers.end, ledgers.first + next(floors) % 7),
    )


def superseded_in_memory(patch: pytest.MonkeyPatch) -> None:
    """A new subscription sees entries that were superseded before."""
    patch.setattr(cursor_events, "leave_superseded", lambda state, subscription: None)


def copies_unbounded(patch: pytest.MonkeyPatch) -> None:
    """Exchanges copy an entry as often as topics are bound."""
    original = Routing._allow_copies

    def allow(self: Routing, entry: bytes) -> None:
        original(self, entry)
        self._copies = 1 << 62

    patch.setattr(Routing, "_allow_copies", allow)


def copied_bytes_unbounded(patch: pytest.MonkeyPatch) -> None:
    """Copies of a large message may have any size."""
    original = Routing._allow_copies

    def allow(self: Routing, entry: bytes) -> None:
        original(self, entry)
        self._bytes = 1 << 62

    patch.setattr(Routing, "_allow_copies", allow)


def copies_of_each_message(patch: pytest.MonkeyPatch) -> None:
    """The bound is of each message of a batch, not of the batch."""
    original = Routing._pass_on

    def pass_on(self: Routing, *given: Any) -> None:
        self._allow_copies(given[-1])
        original(self, *given)

    patch.setattr(Routing, "_pass_on", pass_on)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (copies_unbounded, copied_often),
        (copied_bytes_unbounded, copied_often),
        (copies_of_each_message, copied_often),
        (ring_drops_on_publish, thinned_checks.a_ring_drops_by_its_event_alone),
        (ring_by_chance, thinned_checks.a_ring_drops_by_its_event_alone),
        (superseded_in_memory, thinned_checks.superseded_entries_leave_every_backlog),
    ],
)
def test_checks_notice(
    mutant: Callable[[pytest.MonkeyPatch], None],
    check: Callable[[Rig], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check(Rig())
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(Rig())


def test_a_batch_dropped_too_early_is_noticed() -> None:
    """A table that forgets how many keys an entry still has, beside the real one."""

    class Hasty(LastValues):
        def add(self, ordinal: int, keys: list[str]) -> list[int]:
            before = [self._newest[key] for key in keys if key in self._newest]
            super().add(ordinal, keys)
            return before

    assert LastValues.add(real := LastValues(), 0, ["a", "b"]) == []
    assert real.add(1, ["a"]) == []
    assert real.add(2, ["b"]) == [0]
    hasty = Hasty()
    hasty.add(0, ["a", "b"])
    assert hasty.add(1, ["a"]) == [0]
