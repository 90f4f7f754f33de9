"""Test streams without Spark, while a broker trims, deletes and recreates topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Corrupt, NotFound
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.client import Progress
from holdfast.columns.files import FilePlace, FileTopic
from tests.kit.pipeline.streams import NAMED, ORDERS, Local, Stream, entries_of, publish, send, until

pytestmark = pytest.mark.usefixtures("at_once")


def let_go(broker: BlockingBroker, position: int) -> None:
    """All below is trimmed; no file of it is left when this ends."""
    there = Local(broker)
    there.finished(ORDERS, there.at(ORDERS, broker._twin.topic(ORDERS).state.incarnation), position)
    for _ in range(2):  # files go when neither of two snapshots needs them
        broker.admin.snapshot()


def trim_at_first_time(broker: BlockingBroker, patch: pytest.MonkeyPatch, position: int) -> list[int]:
    """Trim all entries before the wanted one, during the lookup of a time."""
    real, asked = FileTopic._time, list[int]()

    def late(self: FileTopic, ordinal: int, stop: int) -> tuple[int, int] | None:
        asked.append(ordinal)
        if len(asked) == 1:
            let_go(broker, position)
        return real(self, ordinal, stop)

    patch.setattr(FileTopic, "_time", late)
    return asked


def test_a_search_by_time_goes_on_behind_a_trim(
    data: str, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(broker, entries_of("a", 1) * 20)
    asked = trim_at_first_time(broker, monkeypatch, 15)
    assert FilePlace(data).open(ORDERS).at_time(0) == 15
    assert asked[:2] == [10, 17], "the first was trimmed under the search"


def test_a_search_by_time_ends_before_a_file_that_is_missing(data: str, broker: BlockingBroker) -> None:
    """A reader from there gets an error, or leaves it out."""
    publish(broker, entries_of("a", 1) * 4)
    for each in (Path(data) / "ledgers").iterdir():
        each.unlink()
    topic = FilePlace(data).open(ORDERS)
    assert topic.at_time(1 << 40) == 0
    with pytest.raises(Corrupt, match="position 0"):
        topic.run(0, 4)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_trim_under_a_stream_is_no_deletion(
    data: str, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    """A message is open, so its age is looked up; meanwhile finished entries are trimmed."""
    before = 150  # more ledgers than a reader holds open
    publish(broker, entries_of("a", 1) * before + entries_of("open", 3)[:1] + entries_of("b", 1))
    running = Stream(data, Local(broker), failOnDataLoss=fail, **NAMED)
    assert running.batch() == [*range(before), before + 1]
    done = running.offset
    asked = trim_at_first_time(broker, monkeypatch, before - 1)
    assert running.batch() == []
    assert asked[0] < before - 1
    assert running.offset == done, "a topic that is there is not taken for deleted"
    publish(broker, entries_of("c", 1))
    assert running.batch() == [before + 2]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_only_the_topic_says_that_it_is_gone(
    data: str, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch, fail: str
) -> None:
    send(broker, 5)
    running = Stream(data, failOnDataLoss=fail)
    assert running.batch() == [0, 1, 2, 3, 4]
    send(broker, 2)
    real, missed = type(running.reader)._standing, 1

    def standing(self: Any, *told: Any) -> Any:
        nonlocal missed
        if missed:
            missed -= 1
            raise NotFound("something of it")
        return real(self, *told)

    monkeypatch.setattr(type(running.reader), "_standing", standing)
    assert running.batch() == [5, 6], "asked again"
    before, missed = running.offset, 2
    with pytest.raises(NotFound, match="something of it"):
        running.end()
    assert missed == 0
    assert running.batch() == []
    assert running.offset == before


def test_a_topic_deleted_while_its_reset_is_looked_at(
    data: str, broker: BlockingBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """A planned batch whose beginning was trimmed; the topic goes when its subscription is asked."""

    class Late(Local):
        deletes = False

        def at(self, topic: str, incarnation: bytes, create: bool = True) -> Progress:
            if self.deletes:
                self.deletes = False
                broker.admin.delete_topic("orders", force=True)
                raise NotFound("no such topic")
            return super().at(topic, incarnation, create)

    publish(broker, entries_of("a", 1) * 9)
    late = Late(broker)
    running = Stream(data, late, failOnDataLoss="false", **NAMED)
    planned = running.end()
    let_go(broker, 5)
    until(lambda: FilePlace(data).open(ORDERS).plan()[0] == 5)
    late.deletes = True
    assert running.rows(planned) == []
    assert not late.deletes
    assert "was deleted or created again" in caplog.text
