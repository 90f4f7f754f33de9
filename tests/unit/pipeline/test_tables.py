"""Tables of Spark's catalog: what is kept of their options, and where."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StructType

from holdfast.errors import BadConfiguration
from holdfast.pipeline.source import tables
from holdfast.pipeline.source.format import HoldfastSource
from tests.kit.spark.ways import MADE, check_tables


def test_what_the_user_gave_comes_back() -> None:
    check_tables()


def test_a_schema_with_its_comment() -> None:
    assert tables.with_comment("`key` binary, `value` binary", "it's \\") == (
        "`key` binary COMMENT 'it\\'s \\\\', `value` binary"
    )
    text = HoldfastSource(MADE).schema()
    assert text.startswith("`key` binary COMMENT 'holdfast table {")
    assert text.endswith("`storedTime` timestamp")
    plain = {"path": "/srv/data", "topic": "orders"}
    assert "COMMENT" not in HoldfastSource(plain).schema(), "only tables need it"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"token": "secret", "option.token": "secret"}, "a table cannot keep a token"),
        ({"topci": "x", "option.topci": "x"}, "no option 'topci'; did you mean topic"),
        ({"mode": "odd", "option.mode": "odd"}, "option mode is 'odd'"),
    ],
)
def test_options_that_no_table_has(more: dict[str, str], words: str) -> None:
    with pytest.raises(BadConfiguration, match=words):
        HoldfastSource({**MADE, **more}).schema()


def test_without_any_option() -> None:
    """Of a table with columns of its own, Spark tells none."""
    schema = StructType().add("value", BinaryType())
    source = HoldfastSource({})
    for make in (
        lambda: source.reader(schema),
        lambda: source.streamReader(schema),
        lambda: source.writer(schema, False),
    ):
        with pytest.raises(
            BadConfiguration, match=r"create it without columns, CREATE TABLE t USING holdfast"
        ):
            make()


def test_a_comment_that_was_changed() -> None:
    schema = StructType().add("key", BinaryType(), True, {"comment": "holdfast table of mine"})
    with pytest.raises(BadConfiguration, match="create the table again"):
        tables.recalled(schema, {}, "source")
    other = StructType().add("key", BinaryType(), True, {"comment": "of mine"})
    assert tables.recalled(other, {}, "source") == {}
