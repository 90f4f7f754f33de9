"""`format("holdfast")`: what Spark is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from holdfast.columns.schema import require_columns, schema_text
from holdfast.errors import BadConfiguration
from holdfast.pipeline.options import Side, parse
from holdfast.pipeline.source.batch import BatchReader
from holdfast.pipeline.source.tables import (
    NO_OPTIONS,
    is_table,
    kept,
    of_side,
    recalled,
    table_options,
    with_comment,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter


class HoldfastSource(DataSource):
    """Topics as a table: batch and stream, reading and writing.

    Example:
        >>> df = spark.read.format("holdfast").option("path", data).option("topic", "orders").load()
        ... # doctest: +SKIP
    """

    cores: int | None = None
    """How many tasks run at once; None: as many as the driver's machine has cores."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(…)`."""
        return "holdfast"

    def schema(self) -> str:
        """The columns, unless the user gives a schema with some of them."""
        if not is_table(self.options):
            return schema_text(parse(self.options, "source"))
        told = table_options(self.options)
        parse(of_side(told, "sink"), "sink")
        return with_comment(schema_text(parse(of_side(told, "source"), "source")), kept(told))

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        return BatchReader(self._checked(schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        from holdfast.pipeline.source.stream import StreamReader

        return StreamReader(self._checked(schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from holdfast.pipeline.sink.writer import BatchWriter

        return BatchWriter(self._told(schema, "sink"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        from holdfast.pipeline.sink.writer import StreamWriter

        return StreamWriter(self._told(schema, "sink"), schema, overwrite)

    def _told(self, schema: StructType, side: Side) -> dict[str, str]:
        """The options of this query, and of its table.

        Raises:
            BadConfiguration: there is none.
        """
        told = recalled(schema, self.options, side)
        if not told:
            raise BadConfiguration(f"the {side} of holdfast was given no option: which broker?{NO_OPTIONS}")
        return told

    def _checked(self, schema: StructType) -> dict[str, Any]:
        options = parse(self._told(schema, "source"), "source")
        require_columns(schema, options)
        return {**options, "cores": self.cores}


def source_of(spark: SparkSession) -> type[HoldfastSource]:
    """The source, for a session, which is asked now how many tasks it runs at once: where a query is planned
    there is none to ask."""

    class Source(HoldfastSource):
        cores = tasks_at_once(spark)

    return Source


def tasks_at_once(spark: SparkSession) -> int | None:
    """What the session's cluster has, or will have: executors may still be on their way. None: not known."""
    try:
        context = spark.sparkContext
    except PySparkException:  # Spark Connect: the cluster is behind a server
        return None
    told = context.getConf()
    wanted = int(told.get("spark.executor.instances", "0")) * int(told.get("spark.executor.cores", "1"))
    if (context.master or "").startswith("local"):
        return int(context.defaultParallelism)
    return max(context.defaultParallelism, wanted, int(told.get("spark.cores.max", "0")))
