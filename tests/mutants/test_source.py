"""Mutants of the source: each breaks one promise, and the checks must notice."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast import Broker, packing
from holdfast._core import chunks_in
from holdfast.broker.engine import Engine
from holdfast.columns import NEWEST, compacted, decoding, open_chunks
from holdfast.columns import files as column_files
from holdfast.columns.decoding import Decoding, Wish
from holdfast.columns.files import FilePlace, open_place
from holdfast.columns.schema import COLUMNS
from holdfast.errors import BadConfiguration, Corrupt
from holdfast.ledger.files import read_table_view
from holdfast.pipeline.source import batch as batches
from holdfast.pipeline.source import offsets, stream
from holdfast.pipeline.source.batch import BatchReader
from tests.kit.ledger.topic_bytes import FIRST, Maker, MemoryTopic, compress
from tests.kit.pipeline.compacted import SMALL, Prices, rows_of, through_newest
from tests.kit.pipeline.streams import (
    NAMED,
    ORDERS,
    Stream,
    Told,
    read_beside_an_open_message,
    read_in_lives,
    send,
)
from tests.kit.spark.source_rows import reader

Patch = Callable[[pytest.MonkeyPatch], None]


def check_ranges() -> None:
    """Ranges, split anywhere, have the rows that were sent."""
    made = Maker(100)
    made.any(80)
    topic: Any = MemoryTopic(made.entries)
    edges = [*range(FIRST, FIRST + len(made.entries), 5), FIRST + len(made.entries)]
    found = []
    for low, high in pairwise(edges):
        for batch in Decoding(topic, low, high, Wish([*COLUMNS, "encryption"])).batches():
            found += batch.to_pylist()
    assert found == made.rows


def check_sizes() -> None:
    """Compressed bytes that are shorter than declared are refused."""
    for compression in (1, 2, 3, 4):
        with pytest.raises(packing.Unpackable):
            packing.unpack(compression, 1001, compress(compression, b"x" * 1000))


def check_damage() -> None:
    """A damaged block is reported."""
    made = Maker(3)
    made.any(10)
    topic: Any = MemoryTopic(made.entries)
    topic.damaged = {FIRST + 4}
    with pytest.raises(Corrupt):
        list(Decoding(topic, FIRST, FIRST + len(made.entries), Wish(["value"])).batches())


def check_resets(tmp: str) -> None:
    """A reset starts at its target; progress is reported under its number."""
    with Broker.open(tmp) as broker:
        send(broker, 20)
        told: Any = Told()
        running = Stream(tmp, told, maxOffsetsPerTrigger=5, **NAMED)
        assert running.batch() == [10, 11, 12, 13, 14]
        told.number, told.acked = 4, 2
        assert running.batch() == [2, 3, 4, 5, 6]
        assert told.done == []
        assert running.batch() == [7, 8, 9, 10, 11]
        assert told.done == [(ORDERS, 4, 7)]


def check_trims(tmp: str) -> None:
    """Trimmed entries are data loss."""
    with Broker.open(tmp, roll_entries=5, housekeeping_s=3600) as broker:
        send(broker, 30)
        running = Stream(tmp)
        broker.admin.create_subscription("orders", "done", "latest")
        broker.admin.trim("orders")
        with pytest.raises(offsets.DataLoss):
            running.batch()


def check_visible(tmp: str) -> None:
    """A plan ends at the visible position, and a stream continues exactly there."""
    with Broker.open(tmp) as broker:
        send(broker, 10)
        running = Stream(tmp)
        assert running.batch() == list(range(10))
        send(broker, 10)
        assert running.batch() == list(range(10, 20))


def check_chunks(tmp: str) -> None:
    """Entries that a stream releases contain no start of an open chunked message."""
    with Broker.open(tmp, roll_entries=1, housekeeping_s=3600) as broker:
        found, wanted = read_in_lives(tmp, broker, 1)
    assert found == wanted


def check_age_ahead(tmp: str) -> None:
    """A chunked message is not given up because the driver's clock is a year ahead."""
    assert read_beside_an_open_message(tmp, 365 * 86_400.0)[0] == 1


def check_age_behind(tmp: str) -> None:
    """It is given up after an hour of log time, also on an idle topic."""
    assert read_beside_an_open_message(tmp, -365 * 86_400.0)[-1] == 2


def check_checkpoint(tmp: str) -> None:
    """A subscription that is named later moves nothing back."""
    with Broker.open(tmp) as broker:
        send(broker, 20)
        running = Stream(tmp, maxOffsetsPerTrigger=8)
        running.batch()
        named = Stream(tmp, Told(), maxOffsetsPerTrigger=8, **NAMED)
        named.offset = running.offset
        assert named.batch() == list(range(8, 16))


def check_end(tmp: str) -> None:
    """A topic that lost its end does not count as one without new entries."""
    with Broker.open(tmp) as broker:
        send(broker, 20)
        running = Stream(tmp)
        running.batch()
        running.offset[ORDERS]["0"]["position"] = 30
        with pytest.raises(offsets.DataLoss):
            running.batch()


def check_directory(tmp: str) -> None:
    """Rows that a task cannot read, because the directory is another machine's, are an error."""
    with Broker.open(tmp) as broker:
        send(broker, 10)
    running = Stream(tmp, failOnDataLoss="false")
    splits = running.reader.partitions(running.offset, running.end())
    Path(tmp).rename(f"{tmp}-elsewhere")
    with Broker.open(tmp) as broker:
        send(broker, 10)
    with pytest.raises(BadConfiguration):
        [list(running.reader.read(split)) for split in splits]


def check_filters(tmp: str) -> None:
    """`publishedBefore` is exclusive."""
    with Broker.open(tmp) as broker:
        send(broker, 10)
    topic = FilePlace(tmp).open(ORDERS)
    rows = pa.Table.from_batches(topic.decoding(*topic.plan(), Wish(["publishTime"])).batches())
    times = sorted(row["publishTime"] for row in rows.to_pylist())
    first, last = times[0].isoformat(), (times[-1] + timedelta(milliseconds=1)).isoformat()
    assert Stream(tmp, publishedFrom=first, publishedBefore=last).batch() == list(range(10))
    assert Stream(tmp, publishedBefore=first).batch() == []
    assert Stream(tmp, publishedFrom=last).batch() == []


@contextlib.contextmanager
def views(tmp: str) -> Iterator[tuple[Prices, BatchReader]]:
    """Yield a topic with a compacted view and a tail, and a batch of it."""
    with Broker.open(tmp, roll_entries=7, housekeeping_s=3600, **SMALL) as broker:
        prices = Prices(broker, tmp)
        prices.send(40)
        prices.compact()
        prices.send(10)
        options: dict[str, Any] = {"topic": "prices", "readCompacted": True, "minPartitions": 4}
        yield prices, reader(tmp, ("position", "value"), **options)


def pairs(made: BatchReader, splits: Any) -> list[tuple[Any, ...]]:
    return [
        (row["position"], row["value"])
        for split in splits
        for each in made.read(split)
        for row in each.to_pylist()
    ]


def wanted(prices: Prices, horizon: int) -> list[tuple[Any, ...]]:
    return [(row["position"], row["value"]) for row in prices.expected(horizon)]


def check_one_view(tmp: str) -> None:
    """Tasks read the view of the plan, also when there is a newer one."""
    with views(tmp) as (prices, made):
        splits, horizon = made.partitions(), through_newest(tmp).horizon
        expected = wanted(prices, horizon)
        prices.send(40)
        prices.compact()
        assert pairs(made, splits) == expected


def check_view_and_tail(tmp: str) -> None:
    """Every row comes once: from the view, and behind its horizon from the topic."""
    with views(tmp) as (prices, made):
        assert pairs(made, made.partitions()) == wanted(prices, through_newest(tmp).horizon)


def check_view_without_its_end(tmp: str) -> None:
    """A view that stands for entries beyond the visible end is not used yet."""
    with views(tmp) as (prices, _):
        visible, plan = through_newest(tmp).horizon - 1, column_files.FileTopic.plan
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(column_files.FileTopic, "plan", lambda self: (plan(self)[0], visible))
            expected = [row for row in prices.rows if row["position"] < visible]
            topic = through_newest(tmp)
            assert rows_of(topic, *topic.plan()) == expected


def check_end_within_the_view(tmp: str) -> None:
    """A state that the view does not know is refused."""
    end = '{"prices": {"0": 20}}'
    with views(tmp), pytest.raises(BadConfiguration):
        reader(tmp, topic="prices", readCompacted=True, endingOffsets=end).partitions()


def the_newest_view_in_each_task(patch: pytest.MonkeyPatch) -> None:
    real = FilePlace.open
    patch.setattr(FilePlace, "open", lambda self, name, view=0: real(self, name, NEWEST if view else 0))


def the_tail_from_the_first_kept_entry(patch: pytest.MonkeyPatch) -> None:
    real = compacted.CompactedTopic.decoding

    class Twice:
        def __init__(self, parts: list[Any]) -> None:
            self._parts = parts

        def batches(self) -> Any:
            for each in self._parts:
                yield from each.batches()

    def decoding(self: Any, start: int, stop: int, wish: Wish) -> Any:
        end = min(stop, self.horizon)
        more = [self._topic.decoding(start, end, wish)] if start < end else []
        return Twice([real(self, start, stop, wish), *more])

    patch.setattr(compacted.CompactedTopic, "decoding", decoding)


def entries_at_the_next_place(patch: pytest.MonkeyPatch) -> None:
    real = compacted.CompactedTopic._read

    def read(self: Any, start: int, rank: int, count: int) -> Any:
        return real(self, start, max(0, rank - 1), count)

    patch.setattr(compacted.CompactedTopic, "_read", read)


def the_newest_view_of_the_table(patch: pytest.MonkeyPatch) -> None:
    real = compacted.open_view

    def open_view(topic: Any, directory: Any, ledgers: Any, number: int) -> Any:
        known = topic.table.views
        return real(topic, directory, ledgers, number) if not known else _view(topic, directory, ledgers)

    patch.setattr(compacted, "open_view", open_view)


def _view(topic: Any, directory: Any, ledgers: Any) -> Any:
    entry = topic.table.views[0]
    found = read_table_view(directory, topic.table, entry)
    return compacted.CompactedTopic(topic, directory, ledgers, entry, *found)


def any_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batches, "require_behind_view", lambda topic, stop: None)


def no_look_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decoding, "_look_back", lambda *_: [])


def chunks_in_any_order(patch: pytest.MonkeyPatch) -> None:
    real = Decoding._read_parts
    patch.setattr(Decoding, "_read_parts", lambda self, places, *rest: real(self, places[::-1], *rest))


def ends_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        decoding, "chunks_in", lambda run: [each for each in chunks_in(run) if each[2] < each[3] - 1]
    )


def believe_the_size(patch: pytest.MonkeyPatch) -> None:
    def exact(codec: str, size: int, payload: bytes, told: int) -> Any:
        return pa.Codec(codec).decompress(payload, size)

    patch.setattr(packing, "_exact", exact)


def damage_is_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Decoding, "_leave_out", lambda *_: None)


def resets_unseen(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Told, "at", lambda self, *_, **__: _progress(3, self.acked))


def _progress(number: int, acked: int) -> Any:
    from holdfast.client import Progress

    return Progress(b"", number, acked, 0, 0)


def from_the_old_position(patch: pytest.MonkeyPatch) -> None:
    def begins(name: str, start: Any, end: Any) -> int:
        return int(start.get(name, {"position": end["from"]})["position"])

    patch.setattr(stream, "begins", begins)


def loss_is_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stream, "after_loss", lambda name, start, first, fail: max(start, first))


def one_too_few(patch: pytest.MonkeyPatch) -> None:
    real = column_files.FileTopic.plan
    patch.setattr(column_files.FileTopic, "plan", lambda self: (real(self)[0] + 1, real(self)[1]))


def all_may_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(open_chunks.Floor, "below", lambda self, topic, since, position, now_ns: position)


def nothing_is_open_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    real = open_chunks.Floor.below

    def below(self: Any, topic: Any, since: int, at: int, now_ns: int) -> int:
        return real(self, topic, at - 1, at, now_ns)

    patch.setattr(open_chunks.Floor, "below", below)


def the_drivers_clock(patch: pytest.MonkeyPatch) -> None:
    real = open_chunks.Floor.below

    def below(self: Any, topic: Any, since: int, at: int, now_ns: int) -> int:
        return real(self, topic, since, at, int(time.time() * 1e9))

    patch.setattr(open_chunks.Floor, "below", below)


def the_newest_entry_is_now(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Engine, "log_time_now", lambda self: self._machine.log.time)


def where_the_subscription_is(patch: pytest.MonkeyPatch) -> None:
    real = stream.StreamReader._standing
    patch.setattr(stream.StreamReader, "_standing", lambda self, topic, before: real(self, topic, None))


def nothing_new(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stream.StreamReader, "_shortened", lambda self, name, entry, _: (entry, entry["position"]))


def any_directory_is_the_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        batches, "_place", lambda _, options: open_place(options["path"], options["service.url"], options)
    )


def before_is_in_it(patch: pytest.MonkeyPatch) -> None:
    real = batches.wish_of

    def wish_of(options: dict[str, Any], *rest: Any) -> Wish:
        return replace(real(options, *rest), publish_max_us=options["publishedBefore"])

    patch.setattr(batches, "wish_of", wish_of)


def no_filters(patch: pytest.MonkeyPatch) -> None:
    real = batches.wish_of
    patch.setattr(batches, "wish_of", lambda *given: replace(real(*given), publish_min_us=None))


MUTANTS: list[tuple[Patch, Callable[..., None]]] = [
    (no_look_back, check_ranges),
    (chunks_in_any_order, check_ranges),
    (ends_unseen, check_ranges),
    (believe_the_size, check_sizes),
    (damage_is_the_end, check_damage),
    (resets_unseen, check_resets),
    (from_the_old_position, check_resets),
    (loss_is_nothing, check_trims),
    (one_too_few, check_visible),
    (all_may_go, check_chunks),
    (nothing_is_open_after_a_restart, check_chunks),
    (the_drivers_clock, check_age_ahead),
    (the_drivers_clock, check_age_behind),
    (the_newest_entry_is_now, check_age_behind),
    (where_the_subscription_is, check_checkpoint),
    (nothing_new, check_end),
    (any_directory_is_the_one, check_directory),
    (before_is_in_it, check_filters),
    (no_filters, check_filters),
    (the_newest_view_in_each_task, check_one_view),
    (the_tail_from_the_first_kept_entry, check_view_and_tail),
    (entries_at_the_next_place, check_view_and_tail),
    (the_newest_view_of_the_table, check_view_without_its_end),
    (any_end, check_end_within_the_view),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each[0].__name__)
def test_mutants_are_noticed(
    mutant: tuple[Patch, Callable[..., None]], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I150, I152, I155, I156, I157, I314."""
    break_it, check = mutant
    needs = check.__code__.co_argcount
    check(*[str(tmp_path / "sound")][:needs])
    break_it(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, Corrupt, offsets.DataLoss)):
        check(*[str(tmp_path / "broken")][:needs])
