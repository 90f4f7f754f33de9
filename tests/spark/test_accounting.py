"""Test that an audit notices equal-looking names, and messages that only look numbered."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from holdfast.pipeline.audit import audit
from holdfast.pipeline.numbered import HEAD, MAGIC, encode, encode_json
from tests.kit.spark.pipeline_world import Fed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SENT_NS = 1_794_700_000_000_000_000


def binary(producer: bytes, number: int, key: bytes = b"k") -> bytes:
    """As `encode` does it, of names that are any bytes."""
    rest = HEAD.pack(number, SENT_NS, len(producer), len(key)) + producer + key
    return MAGIC + struct.pack(">I", zlib.crc32(rest)) + rest


def as_json(producer: bytes, number: int) -> bytes:
    return b'{"producer": "%s", "number": %d}' % (producer, number)


def test_names_that_are_no_text_are_damaged(spark: SparkSession) -> None:
    """One of two such producers lacks a number: in Python both have one name."""
    latin = ["ä-1".encode("latin-1"), "ö-1".encode("latin-1")]
    numbers = [(name, number) for name in latin for number in range(6) if (name, number) != (latin[0], 3)]
    values = [make(*each) for make in (binary, as_json) for each in numbers]
    values += [binary(b"a", 0), binary(b"a", 1, b"\xff"), encode("ü", 0, ""), encode_json("ü\ufffd", 0, "ö")]
    found = audit(spark, topics=["t"], source=Fed({"t": [{"value": value} for value in values]}))
    assert (found.damaged, found.foreign, found.sound) == (len(values) - 3, 0, False)
    assert [(each.producer, each.messages) for each in found.producers] == [
        ("a", 1),
        ("ü", 1),
        ("ü\ufffd", 1),
    ]


def test_what_names_a_producer_and_no_number_of_its_is_damaged(spark: SparkSession) -> None:
    """Not even where other messages are allowed."""
    values = [encode_json("a", 0, "k"), as_json(b"a", -1), b'{"producer": "a", "number": null}', b"other"]
    rows = [{"value": value} for value in values]
    found = audit(spark, topics=["t"], source=Fed({"t": rows}), foreign_allowed=True)
    assert (found.damaged, found.foreign, found.faults()) == (1, 2, ["damaged 1"])
