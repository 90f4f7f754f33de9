"""A batch of the source, without Spark: what is there, exactly, and errors that help."""

from __future__ import annotations

import os
import resource
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Corrupt, NotFound
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.columns.files import FilePlace, FileTopic
from holdfast.errors import BadConfiguration, HoldfastError
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.batch import SPLIT_BYTES_MIN, BatchReader, Split, cut
from holdfast.pipeline.source.offsets import DataLoss
from tests.kit.spark.source_rows import ORDERS, fill, read_all, reader, values
from tests.kit.spark.sourced import broker as broker
from tests.kit.waiting import next_millisecond


def test_offsets_and_times(data: str, broker: BlockingBroker) -> None:
    fill(broker, 20)
    middle = next_millisecond()
    next_millisecond()
    fill(broker, 20)
    everything = [*range(20), *range(20)]
    assert values(reader(data)) == everything
    assert values(reader(data, startingOffsets="latest")) == []
    assert values(reader(data, startingOffsets='{"orders": {"0": 35}}')) == everything[35:]
    assert values(reader(data, startingOffsets='{"orders": {"0": -1}}')) == []
    ending = '{"persistent://public/default/orders": {"0": 3}}'
    assert values(reader(data, endingOffsets=ending)) == everything[:3]
    assert values(reader(data, startingTimestamp=middle)) == everything[20:]
    assert values(reader(data, endingTimestamp=middle)) == everything[:20]
    assert values(reader(data, startingTimestamp=middle + 10_000_000)) == []
    with pytest.raises(BadConfiguration, match=r"startingOffsets names partition 1 of orders.*orders"):
        reader(data, startingOffsets='{"orders": {"1": 35}}').partitions()
    with pytest.raises(DataLoss, match="ends before entry 40, and endingOffsets asks for 50"):
        reader(data, endingOffsets='{"orders": {"0": 50}}').partitions()


def test_partitions_and_patterns(data: str, broker: BlockingBroker) -> None:
    for name in ("orders-partition-0", "orders-partition-2", "bills", "shop/eu/orders"):
        fill(broker, 2, name)

    def names(**options: str) -> list[str]:
        made = BatchReader(parse({"path": data, **options}, "source"), None)  # type: ignore[arg-type]
        return [split.name.removeprefix("persistent://") for split in made.partitions()]

    parts = ["public/default/orders-partition-0", "public/default/orders-partition-2"]
    assert names(topic="orders") == parts
    assert names(topics="orders,bills") == ["public/default/bills", *parts]
    assert names(topic="orders-partition-2") == parts[1:]
    assert names(topicsPattern="orders|bills") == ["public/default/bills", *parts, "shop/eu/orders"]
    assert names(subscribePattern="persistent://shop/.*") == ["shop/eu/orders"]
    made = BatchReader(parse({"path": data, "topicsPattern": "nothing"}, "source"), None)  # type: ignore[arg-type]
    assert [(split.start, split.stop) for split in made.partitions()] == [(0, 0)]
    fill(broker, 1, "orders")
    with pytest.raises(BadConfiguration, match="would both be partition 0"):
        names(topic="orders")


def test_tasks_are_of_a_size_whatever_the_ledgers(data: str, broker: BlockingBroker) -> None:
    """I154: not one task per ledger, and one topic is enough for all cores."""
    with broker.producer("orders") as producer:
        for _ in range(20):
            producer.send_many([b"x" * 10_000] * 10)  # a ledger each
    splits = reader(data, minPartitions=4).partitions()
    assert [round((split.stop - split.start) / 10) for split in splits] == [5, 5, 5, 5]
    assert [split.stop for split in splits][:-1] == [split.start for split in splits][1:]
    made = reader(data)
    topic_splits = made.partitions()
    assert len(topic_splits) == min(os.cpu_count() or 1, 200 * 10_000 // SPLIT_BYTES_MIN)
    assert len(read_all(made)) == 200
    assert cut([], None) == []


def test_a_plan_costs_a_look_at_each_file(
    data: str, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I154: ledgers are weighed by size; an index is read at a range's ends."""
    fill(broker, 95)
    looked: list[int] = []
    real = FileTopic._offset

    def offset(self: FileTopic, entry: Any, ordinal: int, size: int) -> int:
        looked.extend([ordinal] if ordinal != entry.first else [])
        return real(self, entry, ordinal, size)

    monkeypatch.setattr(FileTopic, "_offset", offset)
    topic = FilePlace(data).open(ORDERS)
    weights = topic.weights(3, 93)
    assert sorted(looked) == [3, 93]
    assert [at for at, _ in weights] == [3, *(each for each in topic._firsts if 3 < each < 93), 93]
    assert len(weights) > 4
    assert all(before < after for (_, before), (_, after) in pairwise(weights))


def test_what_was_trimmed_fails_or_is_left_out(data: str, broker: BlockingBroker) -> None:
    fill(broker, 45)
    made = reader(data)
    splits = made.partitions()
    late = reader(data, failOnDataLoss="false")
    broker.admin.create_subscription("orders", "done", "latest")
    first = broker.admin.trim("orders")  # all sealed ledgers
    assert first >= 40
    fill(broker, 5)
    with pytest.raises(DataLoss, match=rf"entries 0 to {first - 1} were trimmed .*failOnDataLoss=false"):
        reader(data, startingOffsets='{"orders": {"0": 0}}').partitions()
    with pytest.raises(DataLoss, match="trimmed"):
        [list(made.read(split)) for split in splits]
    found = [row for split in splits for batch in late.read(split) for row in batch.to_pylist()]
    assert [row["position"] for row in found] == list(range(first, 45))
    assert [row["position"] for row in read_all(reader(data))] == list(range(first, 50))


def test_a_topic_that_was_made_again_is_another_one(data: str, broker: BlockingBroker) -> None:
    fill(broker, 5)
    made = reader(data)
    (split,) = made.partitions()
    broker.admin.delete_topic("orders", force=True)
    with pytest.raises(NotFound):
        list(made.read(split))
    fill(broker, 5)
    with pytest.raises(DataLoss, match="deleted while it was read"):
        list(made.read(split))
    assert list(reader(data, failOnDataLoss="false").read(split)) == []


def test_corrupt_blocks_are_named_or_left_out_and_counted(
    data: str, broker: BlockingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """I152."""
    fill(broker, 40)
    found = FilePlace(data).open(ORDERS)
    ledger, entry = found.locate(15)
    file = Path(data) / f"ledgers/{ledger:016x}.data"
    entry_of = found._at(15, 16)[0]
    offset = found._offset(entry_of, 15, found._size(entry_of))
    content = bytearray(file.read_bytes())
    content[offset + 40] ^= 1
    file.write_bytes(content)
    words = rf"{ORDERS}, position 15: .*{file.name}: entry {entry} cannot be read at offset {offset}"
    with pytest.raises(Corrupt, match=words):
        read_all(reader(data))
    made = reader(data, mode="permissive")
    assert values(made) == [i for i in range(40) if i != 15]
    assert "1 damaged entries were left out" in caplog.text
    made = reader(data, ("value", "position", "corrupt"), mode="permissive")
    rows = [row for row in read_all(made) if row["corrupt"] is not None]
    assert [(row["position"], row["value"]) for row in rows] == [(15, None)]
    topic = FilePlace(data).open(ORDERS)
    topic.plan()
    assert (topic._time(15, 40) or ())[1:] == (16,), "a search by time goes around it"


def test_a_ledger_that_was_written_anew_is_no_damage(data: str, broker: BlockingBroker) -> None:
    """A ledger that cannot be read is looked up again in the present table."""
    fill(broker, 5)
    topic: Any = FilePlace(data).open(ORDERS)
    files, table_of_now = topic._files, topic._table

    class OldFile:
        def read(self, *_: Any) -> None:
            topic._files = files
            topic._table = msgspec.structs.replace(table_of_now, version=table_of_now.version - 1)
            raise Corrupt("what a failed sync left behind")

    topic._files = OldFile()
    topic._table = msgspec.structs.replace(table_of_now, version=table_of_now.version - 1)
    assert len(topic.run(0, 5)) == 5
    topic._files = OldFile()
    topic._table = table_of_now
    topic._files.read = lambda *_: (_ for _ in ()).throw(Corrupt("damage"))
    with pytest.raises(Corrupt, match="position 0: damage"):
        topic.run(0, 5)


def test_a_range_ends_where_it_was_planned(data: str, broker: BlockingBroker) -> None:
    """I153: a plan is not changed by what comes behind it."""
    fill(broker, 15)
    made = reader(data)
    splits = made.partitions()
    fill(broker, 30)
    rows = [row for split in splits for batch in made.read(split) for row in batch.to_pylist()]
    assert [row["position"] for row in rows] == list(range(15))
    assert list(made.read(Split("", "", 0, 0))) == []


def test_what_is_published_while_it_is_planned_is_no_loss(
    data: str, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic grows between two calls; only a number can exceed its end."""
    fill(broker, 10)
    plan = FileTopic.plan

    def growing(self: FileTopic) -> tuple[int, int]:
        found = plan(self)
        fill(broker, 1)
        return found

    monkeypatch.setattr(FileTopic, "plan", growing)
    made = reader(data)
    splits = made.partitions()
    monkeypatch.undo()
    assert sum(split.stop - split.start for split in splits) >= 10
    with pytest.raises(DataLoss, match="endingOffsets asks for 1000"):
        reader(data, endingOffsets='{"orders": {"0": 1000}}').partitions()


def test_trouble_of_the_machine_is_no_damage(data: str, broker: BlockingBroker) -> None:
    """With too many open files, for example, permissive mode must not skip sound blocks."""
    fill(broker, 20)
    topic = FilePlace(data).open(ORDERS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(HoldfastError) as trouble:
            topic.run(0, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not isinstance(trouble.value, Corrupt)
    assert len(topic.run(0, 10)) == 10
