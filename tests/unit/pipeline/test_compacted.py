"""A batch through a compacted view, without Spark: of one state of the topic."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Broker
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.columns import NEWEST, compacted
from holdfast.columns.files import FilePlace, FileTopic
from holdfast.errors import BadConfiguration, Corrupt, Outdated
from holdfast.ledger.files import read_table_view
from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.offsets import DataLoss
from tests.kit.pipeline.compacted import (
    PRICES,
    SENT_MS,
    SMALL,
    Prices,
    Row,
    append,
    parts,
    rows_of,
    single,
    through_newest,
)
from tests.kit.pipeline.streams import Stream
from tests.kit.slices import seeds
from tests.kit.spark.source_rows import read_all, reader
from tests.kit.waiting import next_millisecond

SHOWN = ("key", "value", "position")


@pytest.fixture
def broker(data: str) -> Iterator[BlockingBroker]:
    """One that trims what no compacted view needs."""
    with Broker.open(data, roll_entries=7, retention_s=0, housekeeping_s=3600, **SMALL) as opened:
        yield opened


@pytest.fixture
def prices(data: str, broker: BlockingBroker) -> Prices:
    return Prices(broker, data)


def compacted_reader(data: str, **options: Any) -> BatchReader:
    return reader(data, SHOWN, **{"topic": "prices", "readCompacted": True} | options)


def shown(rows: list[Row]) -> list[Row]:
    return [{name: row[name] for name in SHOWN} for row in rows]


def read(made: BatchReader, splits: Any) -> list[Row]:
    return [row for split in splits for each in made.read(split) for row in each.to_pylist()]


def at(position: int) -> str:
    return f'{{"prices": {{"0": {position}}}}}'


# -- rows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds("compacted rows", test=4))
def test_the_view_and_what_is_behind_it(seed: int, data: str, prices: Prices) -> None:
    """In tasks and ranges cut anywhere, also after trims."""
    prices.random.seed(seed)
    choose = random.Random(seed)
    for _ in range(3):
        prices.send(choose.randrange(1, 30))
        horizon = prices.compact()
        prices.send(choose.randrange(20))
        if choose.random() < 0.5:
            prices.settle()
        topic = through_newest(data)
        first, visible = topic.plan()
        expected = prices.expected(horizon)
        assert (first, topic.horizon) == (0, horizon)
        assert rows_of(topic, 0, visible) == expected, "ids and all other columns are those of the topic"
        for _ in range(4):
            start, stop = sorted(choose.randrange(visible + 1) for _ in range(2))
            assert rows_of(topic, start, stop) == [row for row in expected if start <= row["position"] < stop]
        made = compacted_reader(data, minPartitions=choose.randrange(1, 9))
        assert read_all(made) == shown(expected)
        start = choose.randrange(visible + 1)
        assert read_all(compacted_reader(data, startingOffsets=at(start))) == shown(
            prices.expected(horizon, start)
        )


@pytest.mark.parametrize(("gap", "held"), [(1, 3), (2, 1 << 20), (512, 1 << 20)])
def test_views_with_few_entries_far_apart(
    gap: int, held: int, data: str, prices: Prices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted, "GAP_MAX", gap)
    monkeypatch.setattr(compacted, "SPAN_MAX", 50)
    monkeypatch.setattr(compacted, "RUN_ENTRIES", held)
    prices.keys = 3
    prices.send(60)
    prices.keys = 40
    prices.send(60)
    horizon = prices.compact()
    topic = through_newest(data)
    assert rows_of(topic, *topic.plan()) == prices.expected(horizon)


def test_without_a_view_all_messages_are_read(data: str, prices: Prices) -> None:
    prices.send(20)
    assert through_newest(data).view == 0
    assert read_all(compacted_reader(data)) == shown(prices.rows)
    prices.compact()
    assert len(read_all(compacted_reader(data))) < len(prices.rows)
    prices.broker.admin.forget_compaction(PRICES)
    assert read_all(compacted_reader(data)) == shown(prices.rows)


def test_a_view_in_which_every_key_is_deleted(data: str, broker: BlockingBroker) -> None:
    prices = Prices(broker, data)
    append(broker, [single(1, "k", b"1"), single(2, "k", None)])
    prices.note()
    prices.compact()
    prices.settle()
    assert read_all(compacted_reader(data)) == []
    append(broker, [single(3, "k", b"3"), single(4, "k", None)])
    assert [row["value"] for row in read_all(compacted_reader(data))] == [b"3", None], "all behind the view"


def test_a_chunked_message_that_began_below_the_horizon(data: str, broker: BlockingBroker) -> None:
    """Its first parts are in the view, and its last part is behind it."""
    prices = Prices(broker, data)
    early, *late = parts(1, "k", b"a value in three parts", 3)
    append(broker, [early, single(2, "other", b"1"), single(3, "other", b"2")])
    assert prices.compact() == 3
    append(broker, late)
    prices.settle()
    assert [(row["value"], row["position"]) for row in read_all(compacted_reader(data))] == [
        (b"2", 2),
        (b"a value in three parts", 4),
    ]


def test_filters_select_among_the_compacted_rows(data: str, broker: BlockingBroker) -> None:
    """As `where` would: a value that was replaced is not found by its time."""
    prices = Prices(broker, data)
    append(broker, [single(number, f"k{number % 2}", b"%d" % number) for number in range(1, 5)])
    prices.compact()
    append(broker, [single(5, "k1", b"5")])

    def values(**options: Any) -> list[bytes]:
        return [row["value"] for row in read_all(compacted_reader(data, **options))]

    assert values() == [b"3", b"4", b"5"]
    assert values(keys='["k1"]') == [b"3", b"5"]
    moment = SENT_MS + 4
    assert (values(publishedFrom=moment), values(publishedBefore=moment)) == ([b"4", b"5"], [b"3"])
    assert values(publishedBefore=moment, keys='["k0"]') == [], "2 was replaced by 4"


# -- ranges -------------------------------------------------------------------------------------------


def test_an_end_within_the_view_is_refused(data: str, prices: Prices) -> None:
    prices.send(20)
    early = next_millisecond()
    next_millisecond()
    prices.send(5)
    horizon = prices.compact()
    late = next_millisecond()
    next_millisecond()
    prices.send(5)
    for options in ({"endingOffsets": at(horizon - 1)}, {"endingTimestamp": early}):
        with pytest.raises(BadConfiguration, match=rf"within its compacted view 1, .* below {horizon}\."):
            compacted_reader(data, **options).partitions()
    view = [row for row in prices.expected(horizon) if row["position"] < horizon]
    assert read_all(compacted_reader(data, endingOffsets=at(horizon))) == shown(view)
    assert read_all(compacted_reader(data, endingTimestamp=late)) == shown(view)
    assert read_all(compacted_reader(data, startingOffsets="latest")) == []
    with pytest.raises(DataLoss, match="endingOffsets asks for 1000"):
        compacted_reader(data, endingOffsets=at(1000)).partitions()
    prices.settle()
    assert FilePlace(data).open(PRICES).plan()[0] == horizon
    with pytest.raises(BadConfiguration, match="within its compacted view"):
        compacted_reader(data, endingTimestamp=early).partitions()
    assert read_all(compacted_reader(data, endingTimestamp=late)) == shown(view)


def test_a_time_within_the_view(data: str, broker: BlockingBroker) -> None:
    """Exact while the entries are kept; of trimmed ones, the beginning of their ledger."""
    prices = Prices(broker, data)
    times = []
    for ledger in range(3):
        append(broker, [single(10 * ledger + i, f"k{ledger}{i}", b"v") for i in range(4)])
        broker.admin.roll(PRICES)
        times.append(next_millisecond())
        next_millisecond()
    append(broker, [single(100, "tail", b"v")])

    def positions(time: int) -> list[int]:
        return [row["position"] for row in read_all(compacted_reader(data, startingTimestamp=time))]

    prices.compact()
    for _ in range(2):
        assert positions(0) == list(range(13))
        assert [positions(each) for each in times[:2]] == [list(range(4, 13)), list(range(8, 13))]
        assert positions(times[2]) == [12]
        prices.settle()
    topic = through_newest(data)
    assert FilePlace(data).open(PRICES).plan()[0] >= 12
    assert topic.at_time(times[0] - 1000) == 0
    assert topic.at_time(times[2] + 10**9) == 13


def test_a_stream_is_refused(data: str, prices: Prices) -> None:
    prices.send(3)
    with pytest.raises(BadConfiguration, match="readCompacted is for batches: a stream repeats"):
        Stream(data, topic="prices", readCompacted=True)


# -- one view -----------------------------------------------------------------------------------------


def test_a_plan_stays_with_its_view(data: str, prices: Prices) -> None:
    """I314: later compactions change nothing, until the view is gone."""
    prices.send(30)
    horizon = prices.compact()
    prices.send(5)
    made = compacted_reader(data, minPartitions=4)
    splits = made.partitions()
    assert {split.view for split in splits} == {1}
    expected, before = shown(prices.expected(horizon)), len(prices.rows)
    prices.send(30)
    prices.compact()
    assert read(made, splits) == expected
    prices.settle()
    for split in splits:
        with pytest.raises(Outdated, match=r"compacted view 1 of .*prices is gone.*with a new load\(\)"):
            read(made, [split])
    assert len(prices.rows) > before
    assert {split.view for split in made.partitions()} == {2}


def test_a_view_that_goes_while_a_task_reads_it(
    data: str, prices: Prices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No loss is told, with any failOnDataLoss: the newest values are in another view."""
    prices.keys = 100
    prices.send(60)
    prices.compact()
    monkeypatch.setattr(compacted, "RUN_ENTRIES", 5)
    for fail in (True, False):
        prices.send(5)
        topic = through_newest(data)
        made = compacted_reader(data, minPartitions=1, failOnDataLoss=fail)
        [split] = made.partitions()
        runs, real = list[int](), compacted.CompactedTopic.run

        def run(self: Any, start: int, stop: int, runs: list[int] = runs, real: Any = real) -> Any:
            runs.append(start)
            if len(runs) == 3:
                prices.compact()
                prices.settle()
                prices.remove_files()
            return real(self, start, stop)

        with monkeypatch.context() as patch:
            patch.setattr(compacted.CompactedTopic, "run", run)
            with pytest.raises(Outdated, match=f"compacted view {topic.view} "):
                read(made, [split])
        assert len(runs) >= 3


def test_a_view_that_goes_while_it_is_opened(
    data: str, prices: Prices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan takes the newer one, which the table names by then."""
    prices.send(20)
    prices.compact()
    opened = list[int]()

    def read_view(directory: Path, table: Any, entry: Any) -> Any:
        opened.append(entry.number)
        if len(opened) == 1:
            prices.compact()
            prices.settle()
        return read_table_view(directory, table, entry)

    monkeypatch.setattr(compacted, "read_table_view", read_view)
    topic = FilePlace(data).open(PRICES, NEWEST)
    assert (opened[0], opened[-1], topic.view) == (1, 2, 2)


def test_a_table_that_is_newer_than_the_visible_end(
    data: str, prices: Prices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a broker leaves it that is killed in between: the view before counts."""
    prices.send(20)
    first = prices.compact()
    prices.send(20)
    second = prices.compact()
    real = FileTopic.plan
    monkeypatch.setattr(FileTopic, "plan", lambda self: (real(self)[0], second - 1))
    topic = through_newest(data)
    assert (topic.view, topic.horizon) == (1, first)
    expected = [row for row in prices.expected(first) if row["position"] < second - 1]
    assert rows_of(topic, *topic.plan()) == expected
    monkeypatch.setattr(FileTopic, "plan", lambda self: (real(self)[0], first - 1))
    assert through_newest(data).view == 0


def test_a_topic_of_the_same_name(data: str, prices: Prices) -> None:
    """Its first view has the same number as one of the former topic."""
    prices.send(20)
    prices.compact()
    made = compacted_reader(data)
    splits = made.partitions()
    prices.broker.admin.delete_topic(PRICES)
    with pytest.raises(DataLoss, match="was deleted while it was read"):
        read(made, splits)
    prices.rows.clear()
    prices.send(40)
    prices.compact()
    with pytest.raises(DataLoss, match=r"was deleted while it was read: .*was created again"):
        read(made, splits)


# -- damage -------------------------------------------------------------------------------------------


def test_a_damaged_entry_of_a_view(data: str, prices: Prices) -> None:
    """I152: named with its position in the topic, or left out alone."""
    prices.send(40)
    horizon = prices.compact()
    prices.settle()
    topic: Any = through_newest(data)
    file = Path(f"{data}/ledgers/{topic._entry.file:016x}.data")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    expected = prices.expected(horizon)
    with pytest.raises(
        Corrupt, match=r"prices, position \d+, in compacted view 1: .*\.data: .* at offset"
    ) as told:
        read_all(compacted_reader(data))
    position = int(str(told.value).split("position ")[1].split(",")[0])
    assert position in {row["position"] for row in expected}
    left = [row for row in expected if row["position"] != position]
    assert read_all(compacted_reader(data, mode="permissive")) == shown(left)
