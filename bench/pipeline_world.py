"""The rows that the pipeline's benchmark reads: topics, Arrow in memory, Parquet, text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from holdfast import Broker
from holdfast.columns.decoding import Decoding, Wish
from holdfast.columns.files import FilePlace
from holdfast.columns.schema import COLUMNS, schema_text
from holdfast.pipeline.options import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIGGER_ROWS = 1000
_BATCHES: dict[str, list[pa.RecordBatch]] = {}
"""The rows in memory of a Python worker. Spark uses workers again, so they are loaded once."""


class MemoryReader(DataSourceReader):
    """Yields batches from memory: the least that a source in Python can do."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self._folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        path = partition.value
        if path not in _BATCHES:
            with pa.OSFile(path) as file:
                _BATCHES[path] = list(pa.ipc.open_stream(file))
        return iter(_BATCHES[path])


class MemoryStream(DataSourceStreamReader):
    """Yields the same batch for each trigger: the least work of a stream in Python."""

    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"at": start["at"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return [InputPartition(end["at"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        values = pa.array([b"x" * 100] * TRIGGER_ROWS, pa.binary())
        return iter([pa.record_batch([values], names=["value"])])


class MemorySource(DataSource):
    """The same record batches as ours, from memory: the baseline."""

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return MemoryStream()

    @classmethod
    def name(cls) -> str:
        return "holdfast_bench_memory"

    def schema(self) -> str:
        return schema_text(parse({}, "source"))

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(self.options["path"])


def unique(size: int, count: int) -> list[bytes]:
    """Return distinct texts of `size` bytes.

    With 1,000 repeated texts, Parquet's dictionary shrinks 250 MB to 6 MB.
    """
    text = os.urandom(-(-size // 2) * count).hex().encode()
    step = 2 * -(-size // 2)
    return [text[at : at + size] for at in range(0, step * count, step)]


class World:
    """The data of one size of message."""

    def __init__(self, folder: Path, size: int, count: int) -> None:
        self.folder = folder / str(size)
        self.size = size
        self.count = count
        self.data = str(self.folder / "data")
        self.folder.mkdir(parents=True)

    def make(self, spark: SparkSession, cores: int) -> None:
        """Write all forms of the rows. `alone`: an entry each; `batches`: 100 per entry."""
        with (
            Broker.open(self.data, sync="os") as broker,
            broker.producer("alone", name="rig", batch=1) as alone,
            broker.producer("batches", name="rig", batch=100) as batches,
        ):
            for at in range(0, self.count, 10_000):
                piece = unique(self.size, min(10_000, self.count - at))
                for producer in (alone, batches):
                    producer.send_many(piece, key="sensor-7")
        place = FilePlace(self.data)
        topic = place.open("persistent://public/default/batches")
        first, stop = topic.plan()
        (self.folder / "memory").mkdir()
        for part in range(cores):
            low, high = (first + (stop - first) * each // cores for each in (part, part + 1))
            with pa.OSFile(str(self.folder / f"memory/{part}.arrow"), "wb") as file:
                writer: Any = None
                for batch in Decoding(topic, low, high, Wish(list(COLUMNS))).batches():
                    writer = writer or pa.ipc.new_stream(file, batch.schema)
                    writer.write_batch(batch)
                writer.close()
        self.frame(spark, "batches").write.parquet(str(self.folder / "parquet"))
        rows = self.frame(spark, "batches").selectExpr("cast(value as string) as value")
        rows.write.text(str(self.folder / "text"))

    def decode(self) -> int:
        """Decode all rows on one core and drop them: the source's own work."""
        topic = FilePlace(self.data).open("persistent://public/default/batches")
        ranged = Decoding(topic, *topic.plan(), Wish(list(COLUMNS)))
        return sum(batch.num_rows for batch in ranged.batches())

    def frame(self, spark: SparkSession, form: str) -> DataFrame:
        """Return the rows in one of their forms."""
        if form == "memory":
            return spark.read.format(MemorySource.name()).load(str(self.folder / "memory"))
        if form == "parquet":
            return spark.read.parquet(str(self.folder / "parquet"))
        if form == "text":
            return spark.read.text(str(self.folder / "text"))
        return spark.read.format("holdfast").option("path", self.data).option("topic", form).load()


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and its descendants (Spark's JVM, Python workers)."""
    tick = os.sysconf("SC_CLK_TCK")
    found: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = (int(words[1]), sum(map(int, words[11:15])) / tick)
    mine, grown = {os.getpid()}, True
    while grown:
        more = {pid for pid, (parent, _) in found.items() if parent in mine} - mine
        mine, grown = mine | more, bool(more)
    return sum(found[pid][1] for pid in mine if pid in found)
