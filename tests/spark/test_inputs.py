"""Which topics a pipeline reads, by whatever names they have."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._core import encode_messages
from holdfast.cli import main
from holdfast.errors import BadConfiguration, Corrupt, Misuse, NotFound
from holdfast.pipeline.archive import archive, plan, read_archive
from holdfast.pipeline.archived import Range
from holdfast.pipeline.inputs import Extent, Origin
from holdfast.pipeline.offsets import Selection
from holdfast.pipeline.options import parse
from holdfast.pipeline.rows import parts
from holdfast.pipeline.subscriptions import DirectorySubscriptions
from holdfast.pipeline.whole import require_no_row
from tests.kit.served import served
from tests.kit.spark.pipeline_world import append_entries, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
FULL = "persistent://public/default/"


def read(origin: Origin, *topics: str) -> dict[str, int]:
    """How much there is of what."""
    return {
        name.removeprefix(FULL): each.visible - each.first for name, each in origin.extents(topics).items()
    }


def test_a_topic_beside_its_partitions(tmp_path: Path) -> None:
    """All of them, or a refusal: none is left out in silence."""
    for name, count in (("orders", 5), ("orders-partition-1", 3), ("orders-partition-007", 1), ("other", 2)):
        publish(tmp_path, name, [b"x"] * count)
    origin, alone = Origin(str(tmp_path)), Origin(str(tmp_path), more={"partitions": "false"})
    assert read(origin, "orders") == {"orders": 5, "orders-partition-1": 3}
    assert read(origin, "orders-partition-1") == {"orders-partition-1": 3}
    assert read(alone, "orders", "other") == {"orders": 5, "other": 2}
    with pytest.raises(NotFound, match="nothing"):
        origin.extents(["orders", "nothing"])
    publish(tmp_path, "orders-partition-0", [b"x"])
    with pytest.raises(BadConfiguration) as caught:
        origin.extents(["orders"])
    # What it advises works.
    assert f"{FULL}orders-partition-0 by that name" in str(caught.value)
    assert read(origin, f"{FULL}orders-partition-0") == {"orders-partition-0": 1}
    assert f"{FULL}orders with option partitions=false" in str(caught.value)
    assert read(alone, "orders") == {"orders": 5}
    with pytest.raises(BadConfiguration, match="would both be"):
        alone.extents(["orders", "orders-partition-0"])
    publish(tmp_path, "bills-partition-0", [b"x"])
    assert read(origin, "bills") == {"bills-partition-0": 1}
    with pytest.raises(NotFound, match="bills"):
        alone.extents(["bills"])
    with pytest.raises(BadConfiguration, match="not by a pattern"):
        Selection(parse({"topicsPattern": "orders.*", "partitions": "false"}, "source"))


def test_which_positions_have_a_row(tmp_path: Path) -> None:
    """As the topic says it, near and far: a message in parts is where its last one is."""
    entries = encode_messages([b"a", b"b"], "p", 0, 1_700_000_000_000)
    cut = parts(encode_messages([bytes(3000)], "q", 0, 1_700_000_000_000)[0], 1200)
    assert len(cut) == 3
    append_entries(tmp_path, "t", [entries[0], *cut, entries[1], cut[0]])
    with served(tmp_path, http=True) as server:
        for origin in (Origin(str(tmp_path)), Origin(url=server.http_url)):
            for start, stop, wanted in ((0, 6, [0, 3, 4]), (1, 3, []), (2, 4, [3]), (5, 6, [])):
                found = [at for some in origin.positions(f"{FULL}t", start, stop) for at in some]
                assert found == wanted, (origin, start, stop)
            require_no_row(origin, f"{FULL}t", [(1, 3), (5, 6)])
            with pytest.raises(Corrupt, match="position 3: the topic has a message there"):
                require_no_row(origin, f"{FULL}t", [(1, 4)])


def test_two_names_of_one_partition_are_not_one_archive() -> None:
    there = {f"{FULL}orders-partition-0": Extent("aa", 0, 5)}
    with pytest.raises(Misuse, match="the same partition of the same topic; use another directory"):
        plan({f"{FULL}orders": Range("bb", 0, 2)}, there, False)


def test_a_name_that_is_given_alone_is_taken_as_it_is() -> None:
    assert parse({"topic": "a, b "}, "source")["topic"] == "a, b "
    assert parse({"topics": "a, b "}, "source")["topics"] == ("a", "b")
    with pytest.raises(BadConfiguration):
        parse({"topic": " "}, "source")


def test_topics_with_a_comma_or_a_blank_in_their_names(spark: SparkSession, tmp_path: Path) -> None:
    """Each is itself; and a topic beside its partition is archived with it, each from where it was."""
    data, origin = tmp_path / "data", Origin(str(tmp_path / "data"))
    sent = {"a,b": 5, "a": 3, "b": 2, "x ": 4, "p,q-partition-0": 1, "p,q-partition-1": 2, "a-partition-1": 1}
    for name, count in sent.items():
        publish(data, name, [b"x"] * count)
    assert origin.messages(spark, ["a,b"], columns=["topic"]).distinct().collect() == [(f"{FULL}a,b",)]
    asked: dict[str, Any] = {"to": tmp_path / "to", "path": str(data), "subscription": "s"}
    done = archive(spark, topics=["a,b", "x ", "p,q", "a"], **asked)
    counts = {each.topic.removeprefix(FULL): (each.rows, each.acked_to) for each in done.topics}
    assert counts == {name: (count, count) for name, count in sent.items() if name != "b"}
    with pytest.raises(NotFound, match="subscription"):
        DirectorySubscriptions(str(data)).progress("b", "s")
    publish(data, "a", [b"new"])
    publish(data, "a-partition-2", [b"not held when it was planned"])
    again = archive(spark, topics=["a"], **{**asked, "subscription": None})
    assert [(each.topic[len(FULL) :], each.rows) for each in again.topics] == [
        ("a", 1),
        ("a-partition-1", 0),
        ("a-partition-2", 1),
    ]
    assert read_archive(spark, tmp_path / "to").count() == done.rows + 2
    with pytest.raises(Misuse, match="stream it by itself"):
        origin.stream(spark, ["a,b", "a"])


def test_a_command_says_how_to_read_one_of_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before Spark starts."""
    for name in ("orders", "orders-partition-0"):
        publish(tmp_path / "data", name, [b"x"])
    where = ["--data", str(tmp_path / "data"), "--to", str(tmp_path / "to")]
    assert main(["pipeline", "archive", "orders", *where]) == 1
    assert "option partitions=false (--no-partitions)" in capsys.readouterr().err
