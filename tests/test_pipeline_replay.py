"""Replays through the real sink to a real server: each message once, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.client import Client
from holdfast.errors import Corrupt, Locked, Misuse
from holdfast.pipeline.archive import archive, read_archive
from holdfast.pipeline.archived import ArchiveDirectory
from holdfast.pipeline.replay import _alone, replay
from pipeline_world import Fed, topic_rows
from served import Served

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGAN = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Clock:
    """Time that only goes on when somebody sleeps."""

    def __init__(self) -> None:
        self.now, self.waits = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Killed(BaseException):
    """As good as a kill: nothing of the replay runs behind it."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay") / "data"


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Served]:
    served = Served("--data", str(data), "--port", "0", "--http-port", "0")
    yield served
    served.close()


def kept(spark: SparkSession, to: Path, count: int = 30) -> Path:
    rows = [
        {
            "key": b"k%d" % (n % 3),
            "value": b"%d" % n,
            "properties": {"n": str(n)},
            "eventTime": BEGAN,
            "publishTime": BEGAN + timedelta(seconds=n),
        }
        for n in range(count)
    ]
    archive(spark, topics=["one", "two"], to=to, source=Fed({"one": rows, "two": rows[:3]}))
    return to


def values(spark: SparkSession, data: Path, topic: str) -> list[bytes]:
    rows = topic_rows(spark, data, topic).orderBy("position", "messageId.batchIndex").collect()
    return [bytes(row["value"]) for row in rows]


def test_a_range_and_a_filter_in_order_once(
    spark: SparkSession, tmp_path: Path, data: Path, server: Served
) -> None:
    to = kept(spark, tmp_path / "a")
    asked = {
        "archive": to,
        "id": "first",
        "to": "again-*",
        "broker": server.url,
        "since": BEGAN + timedelta(seconds=1),
        "until": BEGAN + timedelta(seconds=20),
        "where": "key = 'k1'",
    }
    done = replay(spark, **asked)  # type: ignore[arg-type]
    assert (done.rows, done.sent, done.before) == (8, 8, 0)
    wanted = [b"%d" % n for n in range(1, 20, 3)]
    assert values(spark, data, "again-one") == wanted
    assert values(spark, data, "again-two") == [b"1"]
    row = topic_rows(spark, data, "again-one").orderBy("position").first()
    assert row is not None
    assert (bytes(row["key"]), row["properties"]) == (b"k1", {"n": "1"})
    assert row["eventTime"].replace(tzinfo=UTC) == BEGAN
    # Again, by mistake; after more was archived; and as another replay under the same name.
    assert replay(spark, **asked).sent == 0  # type: ignore[arg-type]
    assert values(spark, data, "again-one") == wanted
    with pytest.raises(Misuse, match="choose another name"):
        replay(spark, **{**asked, "where": None})  # type: ignore[arg-type]
    # Even when the archive has forgotten how far it was, the broker knows.
    (to / "_holdfast/replays/first.done").unlink()
    assert replay(spark, **asked).rows == 8  # type: ignore[arg-type]
    assert values(spark, data, "again-one") == wanted
    # Another archive may use the same name: it is another replay.
    other = {**asked, "archive": kept(spark, tmp_path / "b"), "to": "third-*"}
    assert replay(spark, **other).sent == 8  # type: ignore[arg-type]
    assert values(spark, data, "third-one") == wanted


@pytest.mark.parametrize("step", ["plan", "send", "sent"])
def test_killed_between_pieces(
    spark: SparkSession,
    tmp_path: Path,
    data: Path,
    server: Served,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a rate it goes in pieces; each death is at the second time that a step is reached. I183."""
    to, topic, clock = kept(spark, tmp_path / "a", 12), f"pieces-{step}", Clock()
    monkeypatch.setattr("holdfast.pipeline.replay.time", clock)
    left = [1 if step == "plan" else 2]

    def told(reached: str, words: str = "") -> None:
        if reached == step:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

    def again(**more: object) -> int:
        return replay(
            spark,
            archive=to,
            id=topic,
            to=topic,
            broker=server.url,
            where="topic LIKE '%/one'",
            rate=2.0,
            sleep=clock.sleep,
            **more,  # type: ignore[arg-type]
        ).sent

    with pytest.raises(Killed):
        again(told=told)
    assert again() > 0
    assert again() == 0
    assert values(spark, data, topic) == [b"%d" % n for n in range(12)]
    assert set(clock.waits) == {0.0, 2.0}  # four are due in two seconds


def test_an_archive_over_the_network(spark: SparkSession, tmp_path: Path, data: Path, server: Served) -> None:
    """Neither the directory nor its files: reads by HTTP address, the subscription by the binary one."""
    with Client(server.url) as client:
        stage = client.stage()
        stage.append("far", [b"a", b"b", b"c"])
        client.sink_commit("test", 1, [stage.close()])
        done = archive(
            spark,
            topics=["far"],
            to=tmp_path,
            url=server.http_url,
            broker=server.url,
            subscription="s",
        )
        assert client.progress("far", "s").acked_to == 3
    assert [(each.rows, each.acked_to) for each in done.topics] == [(3, 3)]
    assert [bytes(row["value"]) for row in read_archive(spark, tmp_path).orderBy("position").collect()] == [
        b"a",
        b"b",
        b"c",
    ]


def test_what_cannot_be_replayed(spark: SparkSession, tmp_path: Path) -> None:
    to = kept(spark, tmp_path / "a", 3)
    asked = {"archive": to, "to": "t", "broker": "holdfast://127.0.0.1:1"}
    for wrong, words in (
        ({"id": "a/b"}, "cannot name a replay"),
        ({"id": "x", "rate": 0.0}, "more than 0"),
        ({"id": "x", "to": "a/b"}, "not a topic's name"),
        ({"id": "x", "since": datetime(2026, 11, 15)}, "no time zone"),
    ):
        with pytest.raises(Misuse, match=words):
            replay(spark, **{**asked, **wrong})  # type: ignore[arg-type]
    with _alone(ArchiveDirectory(to), "x"), pytest.raises(Locked, match="another process"):
        replay(spark, **asked, id="x")  # type: ignore[arg-type]
    (to / "_holdfast/replays/x.json").write_text("{")
    with pytest.raises(Corrupt, match="does not decode"):
        replay(spark, **asked, id="x")  # type: ignore[arg-type]
