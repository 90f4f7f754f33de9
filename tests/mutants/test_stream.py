"""Mutants of the source's ranges, resets and subscriptions, and of the storms' judge."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from holdfast import Broker
from holdfast.pipeline.options import parse
from holdfast.pipeline.source import batch, stream
from holdfast.pipeline.source.batch import BatchReader, Split
from holdfast.pipeline.source.stream import StreamReader
from tests.kit.pipeline.streams import NAMED, ORDERS, Stream, Told, send
from tests.kit.spark import source_storm
from tests.kit.spark.source_storm import Account, Plain, Storm

Patch = Callable[[pytest.MonkeyPatch], None]
pytestmark = pytest.mark.timeout(300)


def check_tasks(tmp: str) -> None:
    """I150: with any number of tasks, each entry is in one of them."""
    from pyspark.sql.types import LongType, StructType

    schema = StructType().add("position", LongType())
    with Broker.open(tmp, roll_entries=20) as broker:
        send(broker, 100)
        for tasks in (1, 2, 7, 40):
            given = {"path": tmp, "topic": "orders", "minPartitions": str(tasks)}
            reader = BatchReader(parse(given, "source"), schema)
            splits = reader.partitions()
            found = [
                row["position"] for each in splits for rows in reader.read(each) for row in rows.to_pylist()
            ]
            assert found == list(range(100))
            assert len(splits) >= tasks // 2


def check_a_reset_in_the_middle(tmp: str) -> None:
    """I156: a reset between a batch's plan and its tasks does not affect the batch."""
    with Broker.open(tmp) as broker:
        send(broker, 30)
        told: Any = Told()
        running = Stream(tmp, told, maxOffsetsPerTrigger=5, **NAMED)
        end = running.reader.latestOffset(running.offset, running.reader.getDefaultReadLimit())
        told.number, told.acked = 4, 2
        splits = running.reader.partitions(running.offset, end)
        assert [(each.start, each.stop) for each in splits if isinstance(each, Split)] == [(10, 15)]
        running.offset = end
        assert running.batch() == [2, 3, 4, 5, 6]


def check_progress(tmp: str) -> None:
    """I140: the subscription advances when Spark commits a batch, not when it is planned."""
    with Broker.open(tmp) as broker:
        send(broker, 30)
        told: Any = Told()
        running = Stream(tmp, told, maxOffsetsPerTrigger=5, **NAMED)
        end = running.reader.latestOffset(running.offset, running.reader.getDefaultReadLimit())
        running.reader.partitions(running.offset, end)
        assert all(position <= 10 for _, _, position in told.done)
        running.offset = end
        running.batch()
        assert told.done[-1] == (ORDERS, 3, 15)


def _shifted(start: int, stop: int) -> Patch:
    def break_it(patch: pytest.MonkeyPatch) -> None:
        real = batch.cut

        def cut(*given: Any) -> list[Split]:
            made = real(*given)
            inner = [
                Split(each.name, each.incarnation, each.start + start, each.stop + stop, *_rest(each))
                for each in made[1:-1]
            ]
            return [*made[:1], *inner, *made[-1:]] if len(made) > 1 else made

        patch.setattr(batch, "cut", cut)

    return break_it


def _rest(split: Any) -> list[Any]:
    return list(split.__dict__.values())[4:]


def gaps_between_tasks(patch: pytest.MonkeyPatch) -> None:
    _shifted(1, 0)(patch)


def tasks_overlap(patch: pytest.MonkeyPatch) -> None:
    _shifted(0, 1)(patch)


def the_newest_reset_wins(patch: pytest.MonkeyPatch) -> None:
    real = StreamReader.partitions

    def partitions(self: Any, start: Any, end: Any) -> Any:
        at = self._later.at(ORDERS, b"")
        now = deepcopy(end)
        for parts in now.values():
            for each in parts.values():
                if each["reset"] != at.reset_number:
                    each.update({"reset": at.reset_number, "from": at.acked_to})
        return real(self, start, now)

    patch.setattr(StreamReader, "partitions", partitions)


def told_when_planned(patch: pytest.MonkeyPatch) -> None:
    real = StreamReader.latestOffset

    def latest(self: Any, start: Any, limit: Any) -> Any:
        end = real(self, start, limit)
        for name, each in stream.flat(end).items():
            at = self._later.at(name, b"")
            self._later.finished(name, at, each["position"])
        return end

    patch.setattr(StreamReader, "latestOffset", latest)


MUTANTS: list[tuple[Patch, Callable[[str], None]]] = [
    (gaps_between_tasks, check_tasks),
    (tasks_overlap, check_tasks),
    (the_newest_reset_wins, check_a_reset_in_the_middle),
    (told_when_planned, check_progress),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: each[0].__name__)
def test_mutants_are_noticed(
    mutant: tuple[Patch, Callable[[str], None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I140, I150, I156."""
    break_it, check = mutant
    check(str(tmp_path / "sound"))
    break_it(monkeypatch)
    with pytest.raises(AssertionError):
        check(str(tmp_path / "broken"))


# -- the judge of the storms ---------------------------------------------------------------------------

Batches = source_storm.Batches


def a_row_is_lost(batches: Batches) -> None:
    batches[1][1].pop()


def a_row_comes_twice(batches: Batches) -> None:
    batches[1][1].append(batches[1][1][-1])


def rows_change_places(batches: Batches) -> None:
    rows = batches[0][1]
    rows[0], rows[1] = rows[1], rows[0]


def a_column_is_another(batches: Batches) -> None:
    batches[-1][1][0]["event"] += 1


def a_batch_is_lost(batches: Batches) -> None:
    del batches[-1]


def a_reset_is_not_obeyed(batches: Batches) -> None:
    """The stream continues at its old position, under the new reset number."""
    before, after = stream.flat(batches[-2][0]), stream.flat(batches[-1][0])
    for name, each in after.items():
        each["reset"], each["from"] = 1 << 20, before[name]["position"]


SPOILT = [
    *(a_row_is_lost, a_row_comes_twice, rows_change_places, a_column_is_another, a_batch_is_lost),
    a_reset_is_not_obeyed,
]


class Spoilt(Plain):
    """Batches that were read, with a fault."""

    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self._batches = batches


def test_the_judge_sees_every_mistake(tmp_path: Path) -> None:
    """The batches of one storm are judged as they are, and with each fault."""

    def judged(storm: Storm) -> None:
        sound = storm.reading.batches()
        assert len(sound) > 2
        for spoil in (None, *SPOILT):
            batches = deepcopy(sound)
            if spoil is not None:
                spoil(batches)
            storm.reading, storm.account = Spoilt(batches), Account()
            storm.judge_stream()
            assert bool(storm.account.faults) == (spoil is not None), spoil

    source_storm.run(tmp_path, 3, "path", Plain(), rounds=2, messages=30, then=judged)
