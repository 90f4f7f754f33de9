"""Compaction by key, against a dictionary that does the same."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import Corrupt, Misuse
from holdfast.pipeline.archive import archive, read_archive, verify_archive
from holdfast.pipeline.compact import compact
from tests.kit.slices import pick, seeds
from tests.kit.spark.pipeline_world import Fed, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.timeout(600)  # for Spark on a busy machine


def found(spark: SparkSession, to: Path) -> dict[tuple[str, bytes | None], bytes]:
    rows = read_archive(spark, to).collect()
    pairs = {
        (row["topic"].rpartition("/")[2], None if row["key"] is None else bytes(row["key"])): bytes(
            row["value"]
        )
        for row in rows
    }
    assert len(pairs) == len(rows) or any(key is None for _, key in pairs)
    return pairs


@pytest.mark.parametrize("seed", seeds("compact", test=1, nightly=3))
def test_the_last_of_each_key_run_after_run(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    rows: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
    last: dict[tuple[str, bytes | None], bytes] = {}
    for number in range(pick(test=2, nightly=5)):
        for topic in rows:
            for _ in range(40):
                key = b"k%d" % chance.randrange(12)
                value = chance.choice([b"v%d" % chance.randrange(10**6)] * 4 + [b"", None])
                rows[topic].append({"key": key, "value": value})
                last.pop((topic, key), None)
                if value:
                    last[topic, key] = value
            rows[topic].append({"value": b"without a key"})
        done = compact(spark, topics=list(rows), to=tmp_path, source=Fed(rows))
        assert found(spark, tmp_path) == last
        assert (done.run, done.keys, done.keyless) == (number + 1, len(last), 2)
        assert [each.horizon for each in done.topics] == [len(each) for each in rows.values()]
    assert verify_archive(spark, tmp_path) == len(last)
    nothing = compact(spark, topics=list(rows), to=tmp_path, source=Fed(rows))
    assert nothing.run is None
    assert "no new entries" in nothing.table()
    with pytest.raises(Misuse, match="compacted, not archive"):
        archive(spark, topics=["a"], to=tmp_path, source=Fed(rows))


def test_within_a_batch_the_later_one_counts(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    publish(data, "t", [b"1", b"2", b"3"], key="k", batch=3)
    publish(data, "t", [b"no key", b"nor here"])
    done = compact(spark, topics=["t"], to=tmp_path / "c", path=str(data), keep_keyless=True)
    rows = sorted(bytes(row["value"]) for row in read_archive(spark, tmp_path / "c").collect())
    assert rows == [b"3", b"no key", b"nor here"]
    assert (done.read, done.keyless, done.tombstones) == (5, 2, 0)


def test_a_topic_made_anew_begins_anew(spark: SparkSession, tmp_path: Path) -> None:
    old = {
        "t": [{"key": b"old", "value": b"1"}, {"key": b"k", "value": b"1"}],
        "u": [{"key": b"u", "value": b"1"}],
    }
    new = {"t": [{"key": b"k", "value": b"2"}]}
    compact(spark, topics=["t", "u"], to=tmp_path, source=Fed(old))
    with pytest.raises(Corrupt, match="lost its end"):
        compact(spark, topics=["t"], to=tmp_path, source=Fed(new))
    compact(spark, topics=["t"], to=tmp_path, source=Fed(new, incarnation="bb"))
    assert found(spark, tmp_path) == {("t", b"k"): b"2", ("u", b"u"): b"1"}
    empty = Fed({"t": []}, incarnation="cc")
    done = compact(spark, topics=["t"], to=tmp_path, source=empty)
    assert (done.run, done.read, done.keys) == (3, 1, 1)
    assert found(spark, tmp_path) == {("u", b"u"): b"1"}
    assert compact(spark, topics=["t"], to=tmp_path, source=empty).run is None


def test_where_no_key_is_left(spark: SparkSession, tmp_path: Path) -> None:
    """Then nothing is written, and all the same everything is counted."""
    rows: list[dict[str, Any]] = [{"key": b"a", "value": b"1"}, {"key": b"b", "value": None}]
    rows += [{"key": b"a", "value": b""}, {"value": b"no key"}]
    done = compact(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows}))
    assert (done.run, done.read, done.keys, done.tombstones, done.keyless) == (1, 4, 0, 2, 1)
    assert found(spark, tmp_path) == {}
    assert verify_archive(spark, tmp_path) == 0
    rows.append({"key": b"a", "value": b"2"})
    more = compact(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows}))
    assert (more.run, more.read, more.keys, more.tombstones) == (2, 1, 1, 0)
    assert found(spark, tmp_path) == {("t", b"a"): b"2"}
    gone = compact(spark, topics=["t"], to=tmp_path, source=Fed({"t": [*rows, {"key": b"a"}]}))
    assert (gone.read, gone.keys, gone.tombstones) == (2, 0, 1)
    assert compact(spark, topics=["e"], to=tmp_path / "e", source=Fed({"e": []})).run is None
