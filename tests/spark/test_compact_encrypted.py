"""Test compaction of encrypted messages, their chunks, and client batches."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.pipeline.archive import read_archive
from holdfast.pipeline.compact import compact, header
from holdfast.pipeline.sink.rows import _entry
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.slices import seeds
from tests.kit.spark.pipeline_world import Fed, append_entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.timeout(600)  # for Spark on a busy machine


def metadata(key: str | None = None, **more: Any) -> pb.MessageMetadata:
    told = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1_794_744_000_000, **more)
    if key is not None:
        told.partition_key = key
    told.encryption_keys.add(key="k", value=b"s")
    told.encryption_param = b"iv"
    return told


def part(uuid: str, chunk: int, chunks: int) -> dict[str, Any]:
    return {"uuid": uuid, "chunk_id": chunk, "num_chunks_from_msg": chunks, "total_chunk_msg_size": 30}


def positions(spark: SparkSession, to: Path) -> list[int]:
    return sorted(row["position"] for row in read_archive(spark, to).collect())


def test_what_cannot_be_opened_stays_whole(spark: SparkSession, tmp_path: Path) -> None:
    """I188. By entries of a topic, as a client makes them."""
    data, to = tmp_path / "data", tmp_path / "c"
    entries = [
        *(metadata("a", **part("u", n, 3)) for n in range(3)),  # 0, 1, 2: the last one of its key
        *(metadata("b", **part("v", n, 2)) for n in range(2)),  # 3, 4: another one comes
        metadata(num_messages_in_batch=3),  # 5
        metadata("b", num_messages_in_batch=1),  # 6: what it says of its key is of its first message alone
        metadata("b"),  # 7
        metadata("c"),  # 8
        metadata("c", null_value=True),  # 9: kept, because 5 or 6 may have c
        metadata("d", **part("w", 0, 2)),  # 10: its other part is still to come
        metadata(),  # 11: no key
    ]
    append_entries(data, "t", [_entry(each, b"sealed") for each in entries])
    done = compact(spark, path=str(data), topics=["t"], to=to)
    assert positions(spark, to) == [0, 1, 2, 5, 6, 7, 9, 10]
    assert (done.read, done.keys, done.tombstones, done.keyless, done.unopened) == (12, 8, 1, 1, 3)
    assert "encrypted and kept unchanged: 3" in done.table()
    rows = {row["position"]: row for row in read_archive(spark, to).collect()}
    assert bytes(rows[2]["encryption"]) == entries[2].SerializeToString()
    more = [metadata("a"), metadata("d", **part("w", 1, 2))]  # 12, 13
    append_entries(data, "t", [_entry(each, b"sealed") for each in more])
    done = compact(spark, path=str(data), topics=["t"], to=to)
    assert positions(spark, to) == [5, 6, 7, 9, 10, 12, 13]
    assert (done.read, done.keys, done.unopened) == (10, 7, 2)


def test_what_metadata_says() -> None:
    assert header(metadata("k").SerializeToString()) == (False, False, None, 0, 0)
    assert header(metadata(uncompressed_size=0).SerializeToString())[1]
    assert not header(metadata(uncompressed_size=1).SerializeToString())[1]
    assert header(metadata(num_messages_in_batch=1).SerializeToString())[0]
    assert header(metadata(**part("u", 1, 2)).SerializeToString()) == (False, False, "u", 1, 2)
    assert header(b"\xff") == (True, False, None, 0, 1)


def model(rows: list[dict[str, Any]]) -> set[int]:
    """The same, plainly, for all rows at once."""
    open_parts: dict[str, list[int]] = {}
    whole: dict[int, list[int]] = {}
    kept, last, batches = set[int](), dict[bytes, tuple[int, bool]](), list[int]()
    for position, row in enumerate(rows):
        told = None if row["encryption"] is None else pb.MessageMetadata.FromString(row["encryption"])
        if told is not None and told.HasField("num_messages_in_batch"):
            kept.add(position)
            batches.append(position)
            continue
        whole[position] = [position]
        if told is not None and told.uuid:
            if told.chunk_id == 0:
                kept |= set(open_parts.pop(told.uuid, []))
            parts = open_parts.setdefault(told.uuid, [])
            parts.append(position)
            if told.chunk_id < told.num_chunks_from_msg - 1:
                continue
            del open_parts[told.uuid]
            if len(parts) < told.num_chunks_from_msg:
                kept |= set(parts)
                continue
            whole[position] = parts
        if row["key"] is not None:
            last[row["key"]] = (position, not row["value"] or bool(told and told.null_value))
    for position, none in last.values():
        if not none or (batches and batches[0] < position):
            kept |= set(whole[position])
    return kept.union(*open_parts.values())


def sealed(key: str | None, **more: Any) -> dict[str, Any]:
    told = metadata(key, **more)
    return {"key": None if key is None else key.encode(), "encryption": told.SerializeToString()}


def random_rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Parts of several messages mixed, some of them lost, some messages sent twice."""
    waiting, rows, number = list[list[dict[str, Any]]](), list[dict[str, Any]](), 0
    while len(rows) < count:
        key, kind = chance.choice([*map(str, range(20)), None]), chance.randrange(8)
        if kind == 0 and len(rows) > count // 3:
            rows.append(sealed(key, num_messages_in_batch=2))
        elif kind == 1:
            rows.append(sealed(key, null_value=True))
        elif kind == 2:
            rows.append(sealed(key))
        elif kind == 3:
            rows.append({"key": key and key.encode(), "value": chance.choice([b"", None, b"v"])})
        elif kind == 4:
            number += 1
            chunks = [sealed(key, **part(f"u{number}", n, 3)) for n in range(3)]
            if chance.random() < 0.2:
                del chunks[chance.randrange(3)]
            waiting += [chunks] if chance.random() < 0.8 else [chunks + chunks]
        elif waiting:
            chosen = chance.choice(waiting)
            rows.append(chosen.pop(0))
            waiting = [each for each in waiting if each]
    return [{"value": b"sealed", "key": None, "encryption": None, **row} for row in rows]


def found(spark: SparkSession, to: Path) -> dict[str, set[int]]:
    kept: dict[str, set[int]] = {}
    for row in read_archive(spark, to).select("topic", "position").collect():
        kept.setdefault(row["topic"].rpartition("/")[2], set()).add(row["position"])
    return kept


def test_as_a_plain_computation_has_it_run_after_run(spark: SparkSession, tmp_path: Path) -> None:
    """I188. Each run sees a part of them."""
    topics = {f"t{n}": random_rows(random.Random(n), 200) for n in seeds("compact encrypted", test=3)}
    for upto in (70, 200):
        seen = {name: rows[:upto] for name, rows in topics.items()}
        compact(spark, topics=list(topics), to=tmp_path, source=Fed(seen))
        assert found(spark, tmp_path) == {name: model(rows) for name, rows in seen.items()}


@pytest.mark.parametrize("mistake", ["each part is a message", "a batch has its first key"])
def test_mistakes_are_noticed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    """I188."""
    if mistake == "each part is a message":
        broken: Any = lambda told: (*header(told)[:2], None, 0, 1)  # noqa: E731
    else:
        broken = lambda told: (False, *header(told)[1:])  # noqa: E731
    monkeypatch.setattr("holdfast.pipeline.compact.header", broken)
    rows = random_rows(random.Random(1), 200)
    compact(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows}))
    assert found(spark, tmp_path) != {"t": model(rows)}
