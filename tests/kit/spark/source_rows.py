"""A batch of the source without Spark: what its tasks would read."""

from __future__ import annotations

from typing import Any

from holdfast.broker.api.blocking import BlockingBroker
from holdfast.columns.schema import COLUMNS
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.batch import BatchReader

ORDERS = "persistent://public/default/orders"


def fill(broker: BlockingBroker, count: int, topic: str = "orders", **more: Any) -> None:
    with broker.producer(topic, name=f"p-{topic}") as producer:
        for at in range(0, count, 10):  # a ledger each
            producer.send_many([b"%d" % i for i in range(at, min(count, at + 10))], **more)


def reader(data: str, columns: tuple[str, ...] = ("value", "position"), **options: Any) -> BatchReader:
    """Without Spark."""
    from pyspark.sql.types import BinaryType, LongType, StringType, StructType

    kinds = {"binary": BinaryType(), "bigint": LongType(), "string": StringType()}
    known = {**COLUMNS, "corrupt": "string"}
    schema = StructType()
    for name in columns:
        schema.add(name, kinds[known[name]])
    given = parse({"path": data, "topic": "orders", **{k: str(v) for k, v in options.items()}}, "source")
    return BatchReader(given, schema)


def read_all(made: BatchReader) -> list[dict[str, Any]]:
    return [row for split in made.partitions() for batch in made.read(split) for row in batch.to_pylist()]


def values(made: BatchReader) -> list[int]:
    return [int(row["value"]) for row in read_all(made)]
