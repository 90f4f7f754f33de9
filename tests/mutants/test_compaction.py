"""Broken compactions: the model of tests/conformance/test_compaction_model.py must notice each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from pyroaring import BitMap64

from holdfast._core import Entries
from holdfast.broker import state_extras
from holdfast.broker.compaction.reading import CompactedReading, ViewIndex
from holdfast.broker.compaction.source import CompactionSource
from holdfast.broker.compaction.state import Compaction
from holdfast.broker.compaction.worker import Compactions
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.events import CompactionAppend, CompactionDone, stage_digest
from holdfast.errors import HoldfastError
from tests.kit.broker.compaction_model import CompactionMachine
from tests.kit.slices import pick

EXAMPLES = pick(test=150, nightly=600)
Patch = pytest.MonkeyPatch
MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(make: Callable[[Patch], None]) -> Callable[[Patch], None]:
    MUTANTS[make.__name__] = make
    return make


def play(count: int = EXAMPLES) -> None:
    some = settings(
        max_examples=count, stateful_step_count=25, database=None, derandomize=True, deadline=None,
        phases=[Phase.generate], report_multiple_bugs=False, suppress_health_check=[*HealthCheck],
    )  # fmt: skip
    run_state_machine_as_test(CompactionMachine, settings=some)


@mutant
def the_last_value_is_lost(patch: Patch) -> None:
    """A compacted read ends before its last entry."""
    last = CompactedReading.last
    patch.setattr(CompactedReading, "last", lambda self: last(self) - 1)


@mutant
def a_deleted_key_is_shown(patch: Patch) -> None:
    """Entries that the topic has not trimmed are read from the topic."""
    index = CompactedReading.index

    def from_topic(self: CompactedReading, ordinal: int) -> ViewIndex | None:
        found = index(self, ordinal)
        return None if ordinal >= self.topic.first else found

    patch.setattr(CompactedReading, "index", from_topic)


@mutant
def a_dead_compaction_shows_half_a_view(patch: Patch) -> None:
    """A view is visible before all of its entries are written."""
    append = Compactions._append

    async def early(self: Compactions, topic: Any, token: bytes, source: Any, compactor: Any) -> Any:
        real = self._broker.engine.submit
        seen: list[Any] = []

        def submit(event: Any) -> Any:
            done = real(event)
            if isinstance(event, CompactionAppend) and not seen:
                seen.append(event)
                first = BitMap64(range(event.at + len(event.entries)))
                digest = stage_digest(event.entries)
                real(CompactionDone(topic.id, token, len(event.entries), digest, first.serialize()))
            return done

        patch.setattr(self._broker.engine, "submit", submit)
        try:
            return await append(self, topic, token, source, compactor)
        finally:
            patch.setattr(self._broker.engine, "submit", real)

    patch.setattr(Compactions, "_append", early)


@mutant
def a_request_is_forgotten_by_a_restart(patch: Patch) -> None:
    load = state_extras._load_compaction

    def forgetful(state: Any, part: Any) -> None:
        load(state, part)
        state.compactions[part.topic].requested = 0
        state.compactions[part.topic].run = None

    patch.setattr(state_extras, "_load_compaction", forgetful)


@mutant
def the_second_pass_begins_where_the_first_one_ended(patch: Patch) -> None:
    patch.setattr(CompactionSource, "rewind", lambda self: None)


@mutant
def what_readers_of_the_view_before_need_is_trimmed(patch: Patch) -> None:
    patch.setattr(Compaction, "keeps", lambda self, end: end)


@mutant
def a_reader_moves_to_each_new_view(patch: Patch) -> None:
    """I312: it has passed the value of a key, and misses its deletion."""
    index = CompactedReading.index

    def renewed(self: CompactedReading, ordinal: int) -> ViewIndex | None:
        self.renew()
        return index(self, ordinal)

    patch.setattr(CompactedReading, "index", renewed)


@mutant
def places_without_entries_stay_in_the_backlog(patch: Patch) -> None:
    patch.setattr(Acking, "leave_out", lambda self, ranges: None)


@mutant
def messages_that_were_left_out_of_batches_stay_in_the_backlog(patch: Patch) -> None:
    patch.setattr(Acking, "leave_open", lambda self, masks: None)


@mutant
def the_base_of_a_second_compaction_is_not_read(patch: Patch) -> None:
    """Entries that only the view before has are lost."""
    following = CompactionSource.next

    async def tail(self: CompactionSource) -> Entries | None:
        compaction = self._topic.state.compaction
        if compaction is not None and compaction.view is not None:
            self._position = max(self._position, compaction.view.horizon)
        return await following(self)

    patch.setattr(CompactionSource, "next", tail)


def test_without_a_mutant_nothing_is_noticed() -> None:
    play(40)


@pytest.mark.parametrize("name", MUTANTS)
def test_the_model_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises((AssertionError, HoldfastError)):
        play()
