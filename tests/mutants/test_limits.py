"""Brokers without limits of their numbers: the checks of tests/unit/broker/test_limits.py notice each.

Mutants of the core are in tests/mutants/test_core.py (kit/native_limit_mutants.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import Corrupt, ids
from holdfast._core import encode_deliveries
from holdfast.broker import log_time
from holdfast.broker.api import consumer
from holdfast.broker.dispatch import types as dispatch_types
from holdfast.broker.events import cursors, sessions
from holdfast.broker.events import topics as topic_events
from holdfast.broker.options import BrokerOptions
from holdfast.ledger.acks import AckState
from holdfast.ledger.files import table
from holdfast.pipeline.jobs import archive_directory
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Range, Run
from holdfast.server.http import messages
from holdfast.server.pulsar import delivery as sink
from tests.kit.broker import limit_checks as checks
from tests.kit.server import limit_checks as server_checks
from tests.kit.server.cost_world import CostWorld
from tests.kit.server.limit_checks import NUMBER_MAX, WORD, topics

Patch = pytest.MonkeyPatch


def endless_ids(patch: Patch) -> None:
    """A counter has no end, although the core takes 64 bits."""
    for noun in (cursors, sessions, topic_events):
        patch.setattr(noun, "require_left", lambda *_: None)


def narrow_acks(patch: Patch) -> None:
    """Acknowledgements keep 32 bits of an ordinal."""
    original = AckState.ack_ranges

    def ack_ranges(self: AckState, ranges: Any, end: int) -> None:
        original(self, [(a & 0xFFFFFFFF, b & 0xFFFFFFFF) for a, b in ranges], end)

    patch.setattr(AckState, "ack_ranges", ack_ranges)


def endless_clock(patch: Patch) -> None:
    """Log time continues after the year 2262."""
    patch.setattr(log_time, "LAST_NS", 1 << 70)


def any_delay(patch: Patch) -> None:
    """A delay reaches the core unchecked."""
    for module in (consumer, dispatch_types):
        patch.setattr(module, "require_delay", lambda _: None)


def any_option(patch: Patch) -> None:
    """Options are not checked."""
    patch.setattr(BrokerOptions, "conflicts", lambda self: [])


def unlooked_options(patch: Patch) -> None:
    """A broker is opened with any options."""
    patch.setattr(BrokerOptions, "require_sound", lambda self: None)


def endless_versions(patch: Patch) -> None:
    """The version of a topic's table has no end; its file has 64 bits."""
    patch.setattr(table, "next_version", lambda version: version + 1)


def largest_version(patch: Patch) -> None:
    """After a restart the largest version counts as the last one, also after a wrap."""
    patch.setattr(table, "later_version", max)


MUTANTS: list[tuple[Callable[[Patch], None], Callable[[Path], None]]] = [
    (endless_ids, checks.the_last_ids),
    (narrow_acks, checks.the_last_positions_of_a_topic),
    (endless_clock, lambda _: checks.log_time_stands_still_where_clocks_end()),
    (any_delay, lambda path: checks.a_delay_that_cannot_be_counted_is_misuse(path, -1.0)),
    (any_delay, lambda path: checks.a_delay_that_cannot_be_counted_is_misuse(path, 1.9e10)),
    (any_option, lambda _: checks.an_option_beyond_its_range_is_misuse("retention_s", 1e12)),
    (endless_versions, checks.versions_of_a_table_come_round),
    (largest_version, checks.versions_of_a_table_come_round),
    (unlooked_options, checks.a_broker_is_not_opened_with_options_beyond_their_range),
]


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda each: getattr(each, "__name__", ""))
def test_a_number_without_an_end_is_noticed(
    mutant: Callable[[Patch], None],
    check: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: Patch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    check(tmp_path / "sound")
    mutant(monkeypatch)
    with pytest.raises((Exception, pytest.fail.Exception)):
        check(tmp_path / "broken")


def test_runs_ordered_by_name_are_noticed(tmp_path: Path, monkeypatch: Patch) -> None:
    def numbers(path: Path) -> list[int]:
        directory = ArchiveDirectory(path, "compacted")
        with directory.changing():
            for number in (99_999_999, 100_000_000):
                reach = Range("aa", number, number + 1)
                directory.commit(Run(2, "compacted", number, f"run-{number}", "now", {"t": reach}, []))
            return [run.number for run in directory.runs()]

    assert numbers(tmp_path / "sound") == [99_999_999, 100_000_000]
    monkeypatch.setattr(archive_directory, "_place", lambda path: path.name)
    with pytest.raises(Corrupt, match="runs are missing"):
        numbers(tmp_path / "broken")


def test_ids_are_checked_where_they_are_given() -> None:
    """The mutant above replaces the function that the events call."""
    for noun in (cursors, sessions, topic_events):
        assert noun.require_left is ids.require_left


# -- the server ----------------------------------------------------------------------------------------


def narrow_epoch(patch: Patch) -> None:
    """An epoch of a consumer has 63 bits."""

    def encode(consumer_id: int, batch: Any, epoch: int | None = None, partition: int | None = None) -> bytes:
        if epoch is not None and epoch > NUMBER_MAX:
            raise TypeError("incompatible function arguments")
        return encode_deliveries(consumer_id, batch, epoch, partition)

    patch.setattr(sink, "encode_deliveries", encode)


def any_date(patch: Patch) -> None:
    """Every time is a date."""
    patch.setattr(messages, "moment", lambda time_ns: datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat())


@pytest.mark.parametrize("mutant", [narrow_epoch, any_date])
def test_a_server_that_takes_fewer_bits_is_noticed(
    mutant: Callable[[Patch], None], monkeypatch: Patch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    def check(world: CostWorld, patience_s: float) -> None:
        with world.raw() as raw:
            server_checks.an_epoch_of_a_consumer_comes_back(raw, next(topics), WORD, patience_s)
        with world.raw() as raw:
            server_checks.a_number_of_a_message_is_delivered_and_shown(
                world, raw, next(topics), "event_time", WORD
            )

    with CostWorld() as world:
        check(world, 10.0)
        mutant(monkeypatch)
        with pytest.raises((AssertionError, TimeoutError)):
            check(world, 0.3)
