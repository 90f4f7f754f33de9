"""Compare JSON values as typed columns with Spark's `from_json`, in any neighbourhood."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.pipeline.source.json_values import decode_values
from tests.kit.slices import seeds
from tests.kit.spark.json_documents import DOCUMENTS, as_column, norm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = (
    "a BIGINT, b STRING, c DOUBLE, d BOOLEAN, e INT, f FLOAT, l ARRAY<INT>, m MAP<STRING, INT>, "
    "n DECIMAL(5,2), s STRUCT<x: INT, y: STRING>, t TIMESTAMP, u TIMESTAMP_NTZ, w DATE, z BINARY, "
    "q ARRAY<STRUCT<x: INT>>, g SMALLINT"
)


TIMES = [
    "2020-01-01T00:00:00Z", "2020-01-01 00:00:00", "2020-01-01T00:00:00+01:00",
    "9999-12-31T23:59:59.999999Z", "2020-01-01T00:00:00.123456789", "0001-01-01T00:00:00Z", "now",
    "2020-02-30", "", " 2020-01-01 ", "20200101", "2020-W01-1", "2020-01-01T00:00", "2020-01-01T00",
    "today", "1577836800", "2020-01-01x", "2020-13-01",
]  # fmt: skip


def hostile(seed: int, count: int) -> list[bytes]:
    """Documents, cut, joined and changed at random."""
    choose = random.Random(seed)
    words = rb'{ } [ ] , : " "a" "b": "l":[1] null -1 0 \u0041'.split(b" ")
    out = []
    for _ in range(count):
        text = bytearray(choose.choice(DOCUMENTS[:-3]))
        for _ in range(choose.randrange(4)):
            at = choose.randrange(len(text) + 1)
            match choose.randrange(3):
                case 0:
                    text[at:at] = choose.choice(words)
                case 1:
                    del text[at : at + choose.randrange(1, 4)]
                case 2:
                    text += choose.choice(DOCUMENTS[:40])
        out.append(bytes(text))
    return [each for each in out if b"'" not in each and b"+I" not in each and b"." not in each]


def differs(value: bytes) -> bool:
    """Tell whether the page lists it: cut off, a field twice, a number as text."""
    twice: list[Any] = [*re.findall(rb'"b":\s*-?(?:NaN|Inf)|"n":\s*" ', value)]

    def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(pairs[len(dict(pairs)) :])
        return dict(pairs)

    try:
        json.JSONDecoder(object_pairs_hook=fields).raw_decode(value.decode(errors="replace").lstrip())
    except ValueError:
        return True
    return bool(twice)


@pytest.mark.parametrize("seed", seeds("json", test=1, nightly=5))
def test_every_value_is_what_from_json_makes_of_it(spark: SparkSession, seed: int) -> None:
    """I159, with the differences that the page tells."""
    from pyspark.sql import functions
    from pyspark.sql.pandas.types import to_arrow_type
    from pyspark.sql.types import StructType

    times = [json.dumps(dict.fromkeys("tu" if each.isdigit() else "tuw", each)).encode() for each in TIMES]
    values = [*DOCUMENTS, *times, b'{"t":5,"u":5,"w":5}', b'{"t":-5}', b'{"t":true}', *hostile(seed, 1500)]
    frame = spark.createDataFrame(list(enumerate(map(bytearray, values))), "i int, v binary")
    parsed = functions.from_json(functions.col("v").cast("string"), DDL)
    expected = frame.select("i", parsed.alias("x")).orderBy("i").toArrow().column("x").to_pylist()
    kind = to_arrow_type(StructType.fromDDL(DDL), timezone="UTC")
    found = decode_values(as_column(values), kind).to_pylist()
    wrong = []
    for value, one, two in zip(values, found, expected, strict=True):
        if norm(one) != norm(two) and not (two is not None and differs(value)):
            wrong.append((value, one, two))
    assert wrong == []
