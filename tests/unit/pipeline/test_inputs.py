"""Names and positions that pipelines read, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.errors import BadConfiguration, Misuse, NotFound
from holdfast.pipeline.archive import plan
from holdfast.pipeline.jobs.archive_directory import Range
from holdfast.pipeline.jobs.inputs import Extent, Origin
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.offsets import Selection
from tests.kit.spark.pipeline_world import publish

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
    # Its advice works.
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


def test_two_names_of_one_partition_are_not_one_archive() -> None:
    there = {f"{FULL}orders-partition-0": Extent("aa", 0, 5)}
    with pytest.raises(Misuse, match="the same partition of the same topic; use another directory"):
        plan({f"{FULL}orders": Range("bb", 0, 2)}, there, False)


def test_a_name_that_is_given_alone_is_taken_as_it_is() -> None:
    assert parse({"topic": "a, b "}, "source")["topic"] == "a, b "
    assert parse({"topics": "a, b "}, "source")["topics"] == ("a", "b")
    with pytest.raises(BadConfiguration):
        parse({"topic": " "}, "source")


def test_a_command_says_how_to_read_one_of_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before Spark starts."""
    for name in ("orders", "orders-partition-0"):
        publish(tmp_path / "data", name, [b"x"])
    where = ["--data", str(tmp_path / "data"), "--to", str(tmp_path / "to")]
    assert main(["pipeline", "archive", "orders", *where]) == 1
    assert "option partitions=false (--no-partitions)" in capsys.readouterr().err
