"""Test which topics a job reads, with unusual names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import Misuse, NotFound
from holdfast.pipeline.archive import archive, read_archive
from holdfast.pipeline.jobs.inputs import Origin
from holdfast.pipeline.jobs.subscriptions import DirectorySubscriptions
from tests.kit.spark.pipeline_world import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
FULL = "persistent://public/default/"


def test_topics_with_a_comma_or_a_blank_in_their_names(spark: SparkSession, tmp_path: Path) -> None:
    """Each name is its own topic; a topic and its partition are archived together."""
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
