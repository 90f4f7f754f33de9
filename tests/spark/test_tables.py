"""`CREATE TABLE … USING holdfast`: read, streamed, joined and written by SQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.served import served
from tests.kit.spark.pipeline_world import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "my data"
    publish(path, "orders", [b"%d" % number for number in range(10)], batch=5)
    publish(path, "bills", [b"b"])
    return path


@pytest.fixture
def dropped(spark: SparkSession) -> Iterator[None]:
    yield
    for name in ("orders", "located", "own", "served"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


@pytest.mark.usefixtures("dropped")
def test_a_table_of_a_directory(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE orders USING holdfast OPTIONS (path '{data}', topic 'orders') "
        "TBLPROPERTIES ('colour' = 'red') COMMENT 'mine'"
    )
    values = "SELECT cast(value AS string) FROM orders"
    assert [row[0] for row in spark.sql(f"{values} ORDER BY position, messageId.batchIndex").collect()] == [
        str(number) for number in range(10)
    ]
    assert [row[0] for row in spark.sql(f"{values} WITH (topic = 'bills')").collect()] == ["b"]
    assert spark.read.option("topic", "bills").table("orders").count() == 1
    joined = "SELECT count(*) FROM orders a JOIN orders b ON a.{0} = b.{0}"
    assert spark.sql(joined.format("position")).first() == (50,), "a batch of five, squared"
    assert spark.sql(joined.format("messageId")).first() == (10,)
    out = tmp_path / "out"
    query = (
        spark.readStream.option("startingOffsets", "earliest").table("orders").writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start(str(out))
    )  # fmt: skip
    query.awaitTermination()
    assert spark.read.parquet(str(out)).count() == 10
    spark.sql(f"CREATE TABLE located USING holdfast OPTIONS (topic 'orders') LOCATION '{data}'")
    assert spark.table("located").count() == 10
    with pytest.raises(Exception, match="cannot write into the directory"):
        spark.sql("INSERT INTO orders (value) VALUES (X'00')")


@pytest.mark.usefixtures("dropped")
def test_what_no_table_can_be(spark: SparkSession, data: Path) -> None:
    with pytest.raises(Exception, match="no option 'topci'; did you mean topic"):
        spark.sql(f"CREATE TABLE own USING holdfast OPTIONS (path '{data}', topci 'orders')")
    with pytest.raises(Exception, match="a table cannot keep a token"):
        spark.sql(f"CREATE TABLE own USING holdfast OPTIONS (path '{data}', topic 'orders', token 'x')")
    spark.sql(f"CREATE TABLE own (value binary) USING holdfast OPTIONS (path '{data}', topic 'orders')")
    with pytest.raises(Exception, match="create it without columns"):
        spark.table("own").collect()
    told = spark.sql(f"SELECT count(*) FROM own WITH (path = '{data}', topic = 'orders')").first()
    assert told == (10,)


@pytest.mark.usefixtures("dropped")
def test_a_table_that_is_written_and_read_at_one_address(spark: SparkSession, tmp_path: Path) -> None:
    """The HTTP address serves both sides."""
    publish(tmp_path / "data", "notes", [b"first"])
    with served(tmp_path / "data", http=True) as server:
        options = f"'service.url' '{server.http_url}', topic 'notes', sinkName 'sql'"
        spark.sql(f"CREATE TABLE served USING holdfast OPTIONS ({options})")
        spark.sql("INSERT INTO served (value, key) VALUES (cast('second' AS binary), cast('k' AS binary))")
        rows = spark.sql("SELECT cast(value AS string), cast(key AS string) FROM served ORDER BY position")
        assert [tuple(row) for row in rows.collect()] == [("first", None), ("second", "k")]
        with pytest.raises(Exception, match=r"write with mode\('append'\) or INSERT INTO") as refused:
            spark.sql("INSERT OVERWRITE served (value) VALUES (X'00')")
        assert "update" not in str(refused.value).split("never overwritten")[1].split("Python")[0]
