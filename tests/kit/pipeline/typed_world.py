"""Topics with schemas and messages of several versions, read by the source without Spark."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructType

from holdfast import Broker
from holdfast.broker import Topic
from holdfast.pipeline.source.format import HoldfastSource
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.registry import versions
from tests.kit.ledger.entry_bytes import METADATA, Fields, entry

Made = tuple[bytes, int | None]
"""A payload and its schema's version."""


def definition(*fields: tuple[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": each, "type": kind} for each, kind in fields]}


def schema(kind: str, tree: Any) -> pb.Schema:
    type_: Any = pb.Schema.Type.Value(kind)
    return pb.Schema(name="s", type=type_, schema_data=json.dumps(tree).encode() if tree else b"")


def avro(tree: dict[str, Any], value: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(tree), value)
    return file.getvalue()


def message(payload: bytes, version: int | None, number: int = 0, **more: Any) -> bytes:
    fields: Fields = [
        (METADATA["producer_name"], b"p"),
        (METADATA["sequence_id"], number),
        (METADATA["publish_time"], 1),
    ]
    if version is not None:
        fields.append((METADATA["schema_version"], version.to_bytes(8, "big")))
    fields += [(METADATA[name], value) for name, value in more.items()]
    return entry(fields, payload)


class TypedTopics:
    """A broker's directory whose topics have schemas."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    async def fill(
        self, name: str, schemas: Sequence[pb.Schema], made: Sequence[Made], **options: Any
    ) -> None:
        """Add schemas of any kind, and messages of their versions."""
        async with Broker.open(self.path, retention_s=3600, **options) as broker:
            topic = await broker.ensure_topic(f"persistent://public/default/{name}")
            await broker.admin.set_policies(topic.name, schema_strategy="ALWAYS_COMPATIBLE")
            for each in schemas:
                await versions.add(broker, topic, each, by_producer=False)
            await self._append(broker, topic, [message(*each, number) for number, each in enumerate(made)])

    async def append(self, name: str, entries: Sequence[bytes]) -> None:
        """Add entries as they are."""
        async with Broker.open(self.path, retention_s=3600) as broker:
            topic = await broker.ensure_topic(f"persistent://public/default/{name}")
            await self._append(broker, topic, entries)

    async def _append(self, broker: Broker, topic: Topic, entries: Sequence[bytes]) -> None:
        if entries:
            stage = await broker.stage()
            await broker.stages.append(stage.id, topic, 0, list(entries), sum(map(len, entries)))
            await broker.sink_commit(f"{uuid.uuid4()}", 1, [await broker.stages.receipt(stage.id)])


def options(path: str, **more: str) -> dict[str, str]:
    given = {"path": path, "valueFormat": "schema", "topic": "orders", **more}
    return {name: value for name, value in given.items() if value}


def column(path: str, **more: str) -> str:
    """Return the type of `value`, as Spark asks for it."""
    text = HoldfastSource(options(path, **more)).schema()
    found = text.split("`value` ", 1)[1].split(", `topic`", 1)[0]
    return found.replace("`", "")


def rows(path: str, kind: pa.DataType, others: Sequence[str] = (), **more: str) -> list[dict[str, Any]]:
    """Return the rows of a batch.

    `kind` is the type of `value`; other columns are texts.
    """
    made = StructType().add("value", from_arrow_type(kind))
    for name in others:
        made.add(name, "string")
    reader: Any = HoldfastSource(options(path, **more)).reader(made)
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]
