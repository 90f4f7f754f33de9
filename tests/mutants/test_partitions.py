"""Broken partitioned topics: the tests of tests/unit/broker must notice each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from holdfast.broker import partitions as record
from holdfast.broker import state_codec
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.dispatch.keys import Keys
from holdfast.broker.dispatch.schedule import AT_ONCE, Scheduling
from holdfast.broker.events import partitions
from holdfast.broker.state import BrokerState
from holdfast.errors import Corrupt
from holdfast.server.pulsar.patterns import Shown, TopicPattern
from tests.kit.broker.partition_checks import growth_keeps_subscriptions
from tests.kit.broker.partition_model import PartitionMachine
from tests.kit.broker.storm import Storm, agree
from tests.kit.cluster import mixed
from tests.kit.cluster.unreplicated import run


def storms() -> None:
    """Run storms as the test does."""
    for seed in range(1, 9):
        storm = Storm(seed)
        storm.run(600)
        agree(storm)


def test_growth_forgets_the_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(state: BrokerState, first: Any, topic: Any) -> None:
        topic.schemas = first.schemas

    monkeypatch.setattr(partitions, "_follow", follow)
    with pytest.raises(AssertionError):
        growth_keeps_subscriptions()


def model() -> None:
    """Run the model of tests/conformance/test_partition_model.py."""
    some = settings(
        max_examples=150, stateful_step_count=30, database=None, derandomize=True, deadline=None,
        phases=[Phase.generate], suppress_health_check=[*HealthCheck],
    )  # fmt: skip
    run_state_machine_as_test(PartitionMachine, settings=some)


def test_the_model_notices_growth_without_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "_follow", lambda state, first, topic: None)
    with pytest.raises(AssertionError):
        model()


def test_the_model_notices_a_pattern_without_a_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_of_each(self: TopicPattern, shown: Shown) -> list[str]:
        return [shown.topics[name][0] for name in self._pattern.select(shown.names)]

    monkeypatch.setattr(TopicPattern, "select_shown", one_of_each)
    with pytest.raises(AssertionError):
        model()


def test_a_snapshot_forgets_the_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_codec, "partitioned_part", lambda _: state_codec.PartitionedPart({}))
    with pytest.raises((AssertionError, Corrupt)):
        storms()


def test_a_partition_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last partition is not created (I280)."""
    add = partitions.PartitionsSet._add

    def short(self: Any, state: BrokerState, context: Any, before: int) -> None:
        fewer = partitions.PartitionsSet(self.name, max(before, self.count - 1), self.incarnation)
        add(fewer, state, context, before)

    monkeypatch.setattr(partitions.PartitionsSet, "_add", short)
    with pytest.raises((AssertionError, KeyError)):
        storms()


def test_schemas_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each partition keeps its schemas in its own part of a snapshot (I282)."""
    monkeypatch.setattr(state_codec, "schema_holder", lambda _, topic: topic)
    monkeypatch.setattr(state_codec, "partitions_of", lambda *_: [Any])
    with pytest.raises((AssertionError, Corrupt)):
        storms()


def test_a_partition_is_deleted_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record.Partitioned, "parent", lambda *_: None)
    with pytest.raises((AssertionError, KeyError, Corrupt)):
        storms()


def ignores_keys(self: Keys, keys: Any, ahead_max: int) -> None:
    self._table.single = False


def moves_keys_at_once(self: Keys, keys: Any, ahead_max: int) -> None:
    self._table.set_keyed(True)
    self._table.set_ahead_max(ahead_max)


def forgets_hashes(take: Callable[..., None]) -> Callable[..., None]:
    return lambda self, elsewhere, hashes=b"": take(self, elsewhere)


MIXED: dict[str, tuple[int, object, str, object]] = {
    "keys are ignored": (1, Keys, "begin", ignores_keys),
    "a join lets a key go to two consumers": (3, Keys, "begin", moves_keys_at_once),
    "the next owner does not know the hashes": (3, Dispatcher, "take", forgets_hashes(Dispatcher.take)),
    "a delayed message comes at once": (3, Scheduling, "now_ms", AT_ONCE),
    "none comes at its time": (1, Scheduling, "arm", lambda self: None),
    "growth forgets the subscriptions": (3, partitions, "_follow", lambda *_: None),
}


@pytest.mark.parametrize("mutant", MIXED)
def test_a_run_with_keys_and_delays_notices_it(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, where, name, what = MIXED[mutant]
    monkeypatch.setattr(where, name, what)
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        run(partial(mixed.everything_at_once, seed=2), 2, nodes)
