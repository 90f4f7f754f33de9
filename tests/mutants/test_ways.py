"""Mutants of small parts of the pipelines: each restores an old fault; checks notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import pipeline_world
from holdfast.cli import starved
from holdfast.columns import decoding, remote
from holdfast.columns.address import Address
from holdfast.errors import BadConfiguration
from holdfast.pipeline import session
from holdfast.pipeline.session import SETTINGS
from holdfast.pipeline.sink import writer as sink
from holdfast.pipeline.source import tables
from tests.kit.spark import ways

Patch = Callable[[pytest.MonkeyPatch], None]


def payloads_repeat(patch: pytest.MonkeyPatch) -> None:
    real = pipeline_world.unique
    patch.setattr(pipeline_world, "unique", lambda size, count: real(size, 1000) * (count // 1000))


def properties_are_options(patch: pytest.MonkeyPatch) -> None:
    """`location`, `provider` and `owner` count as the user's options."""
    patch.setattr(tables, "table_options", dict)


def options_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Options are dropped, as Spark does."""
    patch.setattr(tables, "recalled", lambda schema, given, side: dict(given))


def never_a_word(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(starved.Starved, "look", lambda self, now, work: "wait")


def busy_is_starved(patch: pytest.MonkeyPatch) -> None:
    """One long task counts as no work."""
    real = starved.Starved.look

    def look(self: starved.Starved, now: float, work: starved.Work) -> str:
        return real(self, now, starved.Work(work.tasks, 0, work.ended))

    patch.setattr(starved.Starved, "look", look)


def conf_is_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("holdfast.pipeline.session", lambda *given, settings, **more: session(*given, **more))


def conf_is_weaker(patch: pytest.MonkeyPatch) -> None:
    """Holdfast's own settings override the user's."""
    real = session

    def chosen(*given: Any, settings: dict[str, str], **more: Any) -> Any:
        return real(*given, settings={**settings, **SETTINGS}, **more)

    patch.setattr("holdfast.pipeline.session", chosen)


def update_is_recommended(patch: pytest.MonkeyPatch) -> None:
    """As it once was: Spark refuses this mode to every sink in Python."""
    text = sink.NEVER_OVERWRITTEN.replace("outputMode('append')", "outputMode('update')")
    patch.setattr(sink, "NEVER_OVERWRITTEN", text)


def ids_of_entries(patch: pytest.MonkeyPatch) -> None:
    """All messages of a batch have one id."""
    real = decoding.Decoding.batches

    def batches(self: decoding.Decoding) -> Any:
        for batch in real(self):
            texts = [str(each) for each in batch.column("position").to_pylist()]
            yield batch.set_column(batch.schema.get_field_index("uniqueId"), "uniqueId", [texts])

    patch.setattr(decoding.Decoding, "batches", batches)


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (payloads_repeat, ways.check_payloads),
        (properties_are_options, ways.check_tables),
        (options_are_forgotten, ways.check_tables),
        (never_a_word, ways.check_starved),
        (busy_is_starved, ways.check_starved),
        (ids_of_entries, ways.check_unique_ids),
        (conf_is_lost, ways.check_conf),
        (conf_is_weaker, ways.check_conf),
        (update_is_recommended, ways.check_overwrite),
    ],
)
def test_each_is_noticed(monkeypatch: pytest.MonkeyPatch, mutant: Patch, check: Callable[[], None]) -> None:
    check()
    mutant(monkeypatch)
    with pytest.raises((AssertionError, ValueError, KeyError)):
        check()


def test_a_source_that_takes_one_scheme_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Binary addresses are refused, as they were."""
    monkeypatch.setattr(remote, "SCHEMES", ())
    with pytest.raises(BadConfiguration, match="HTTP address"):
        ways.check_one_address(tmp_path / "data")


def test_a_sink_that_takes_one_scheme_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP addresses are refused, as they were."""
    monkeypatch.setattr(Address, "beside", lambda told, why, topic=None: Address.of(told, why))
    with pytest.raises(BadConfiguration, match="binary address"):
        ways.check_one_address(tmp_path / "data")
