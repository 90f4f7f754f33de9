"""Search by time among damaged entries: it misses no entry, and it ends soon."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from holdfast import Broker
from holdfast.columns.files import STEPS_OF_ONE, FilePlace, FileTopic
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.batch import BatchReader
from tests.kit.slices import seeds

ORDERS = "persistent://public/default/orders"


class Timed(FileTopic):
    """Entries of which nothing is known but their times in ms; None: damaged."""

    def __init__(self, times: list[int | None]) -> None:
        self.times = times
        self.looks = 0

    def plan(self) -> tuple[int, int]:
        return 0, len(self.times)

    def _time_of(self, ordinal: int, stop: int) -> int | None:
        assert ordinal < stop <= len(self.times)
        self.looks += 1
        found = self.times[ordinal]
        return None if found is None else found * 1_000_000


def damage(times: list[int], choose: random.Random) -> tuple[list[int | None], bool]:
    """Some of them, in pieces with much between them, or anywhere. Also whether the first."""
    out: list[int | None] = list(times)
    apart = choose.random() < 0.5
    if not apart:
        return [None if choose.random() < 0.9 else each for each in out], False
    size = choose.choice([1, 5, 60, 200, 700])
    for at in range(choose.randrange(1000), len(out), 2000):
        out[at : at + size] = [None] * len(out[at : at + size])
    return out, True


@pytest.mark.parametrize("seed", seeds("damaged times", test=40))
def test_every_pattern_of_damage(seed: int) -> None:
    choose = random.Random(seed)
    times = sorted(choose.randrange(1, 500) for _ in range(choose.choice([1, 70, 500, 5000])))
    found, pieces = damage(times, choose)
    topic = Timed(found)
    for wanted in [0, 1, 600, *(choose.randrange(500) for _ in range(20))]:
        topic.looks = 0
        answer = topic.at_time(wanted)
        assert topic.looks < 13 * (STEPS_OF_ONE + 40)
        assert all(each is None or each < wanted for each in found[:answer]), "behind one that is wanted"
        if pieces:
            assert all(each is None or each >= wanted for each in found[answer:]), "before older ones"


def test_all_is_damaged() -> None:
    topic = Timed([None] * 100_000)
    assert topic.at_time(5) == 0
    assert topic.looks < 17 * (STEPS_OF_ONE + 40)


@pytest.mark.parametrize("gone", [False, True], ids=["zeros", "no file"])
def test_a_query_by_time_passes_a_long_piece(tmp_path: Path, gone: bool) -> None:
    """Permissive: 150 damaged entries in a row, or a ledger without its file."""
    from pyspark.sql.types import LongType, StructType

    data = str(tmp_path / "data")
    with Broker.open(data, roll_entries=150 if gone else 1000, housekeeping_s=3600) as broker:
        for _ in range(30):
            with broker.producer("orders", batch=1) as producer:
                producer.send_many([b"x"] * 10)
    topic = FilePlace(data).open(ORDERS)
    assert topic.plan() == (0, 300)
    entry, _ = topic._at(50, 300)
    times = {at: topic._files.time(entry.file, at - entry.first, entry.generation) for at in (0, 50, 149)}
    file = Path(topic._stem(entry) + ".data")
    lost = set(range(150)) if gone else set(range(50, 200))
    if gone:
        file.unlink()
    else:
        content = bytearray(file.read_bytes())
        low, high = (topic._offset(entry, at, len(content)) for at in (50, 200))
        content[low:high] = bytes(high - low)
        file.write_bytes(content)

    def positions(**options: str) -> list[int]:
        given = {"path": data, "topic": "orders", "mode": "permissive", **options}
        reader = BatchReader(parse(given, "source"), StructType().add("position", LongType()))
        batches = [batch for split in reader.partitions() for batch in reader.read(split)]
        return [at for batch in batches for at in batch.column(0).to_pylist()]

    kept = [at for at in range(300) if at not in lost]
    assert positions(startingTimestamp="1") == kept
    assert positions(startingTimestamp="2100-01-01T00:00:00Z") == []
    assert positions(endingTimestamp="2100-01-01T00:00:00Z") == kept
    for time_ns in times.values():  # of entries that are lost, or stand before those
        moment = str(time_ns // 1_000_000)
        found = positions(startingTimestamp=moment)
        assert found == kept[len(kept) - len(found) :]
        assert found[-100:] == kept[-100:]
