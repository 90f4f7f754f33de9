"""Test wrong filters of the source, and rows that filters drop from a stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Broker
from holdfast.errors import BadConfiguration
from holdfast.pipeline.options import parse
from tests.kit.pipeline.streams import NAMED, ORDERS, Stream, Told

if TYPE_CHECKING:
    pass


def test_rows_that_are_left_out_move_a_stream_and_its_subscription(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with Broker.open(data) as broker:
        for key in ("a", "b"):
            with broker.producer("orders") as producer:
                producer.send_many([b"x"] * 10, key=key)
        fake: Any = Told(acked=0)
        stream = Stream(data, fake, maxOffsetsPerTrigger=5, keys='["b"]', **NAMED)
        assert [stream.batch() for _ in range(4)] == [[], [], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]]
        assert stream.position() == 20
        assert stream.batch() == []
        assert fake.done == [(ORDERS, 3, position) for position in (5, 10, 15, 20)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"keys": "[]"}, r'it takes a JSON list of one or more texts, such as \["smith", "jones"\]'),
        ({"keys": "smith"}, "a JSON list of one or more texts"),
        ({"keys": '["a", 5]'}, "a JSON list of one or more texts"),
        ({"keys": '["\\ud800"]'}, "a JSON list of one or more texts"),
        ({"keys": "[" * 100_000}, "a JSON list of one or more texts"),
        ({"publishedFrom": "5001", "publishedBefore": "5000"}, "publishedFrom is after publishedBefore"),
        ({"publishedFrom": "yesterday"}, "milliseconds since 1970"),
        ({"publishedBefore": "9" * 30}, "a time before the year 10000"),
        (
            {"filterPushdown": "true"},
            r"no option 'filterPushdown': Spark keeps one filter .* Give publishedFrom, publishedBefore, "
            r"keys, startingOffsets, endingOffsets instead, .* It has: ",
        ),
    ],
)
def test_wrong_filters_say_what_is_right(given: dict[str, str], words: str) -> None:
    with pytest.raises(BadConfiguration, match=words):
        parse(given, "source")
