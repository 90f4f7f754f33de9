"""Define `format("holdfast")` for Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from holdfast.columns import require_columns, schema_text
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
from holdfast.pipeline.source.typed_values import registered_type, require_registered

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
    """Tasks that run at once; None: the cores of the driver's machine."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)`."""
        return "holdfast"

    def schema(self) -> str:
        """Return the columns, if the user gives no schema."""
        if not is_table(self.options):
            return schema_text(parse(self.options, "source"), registered_type)
        told = table_options(self.options)
        parse(of_side(told, "sink"), "sink")
        return with_comment(
            schema_text(parse(of_side(told, "source"), "source"), registered_type), kept(told)
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Create the reader of `spark.read`."""
        return BatchReader(self._checked(schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Create the reader of `spark.readStream`."""
        from holdfast.pipeline.source.stream import StreamReader

        return StreamReader(self._checked(schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Create the writer of `df.write`."""
        from holdfast.pipeline.sink.writer import BatchWriter

        return BatchWriter(self._told(schema, "sink"), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Create the writer of `df.writeStream`."""
        from holdfast.pipeline.sink.writer import StreamWriter

        return StreamWriter(self._told(schema, "sink"), schema, overwrite)

    def _told(self, schema: StructType, side: Side) -> dict[str, str]:
        """Return the options of this query, and of its table.

        Raises:
            BadConfiguration: there are no options.
        """
        told = recalled(schema, self.options, side)
        if not told:
            raise BadConfiguration(
                f"the {side} of holdfast has no options; give at least the broker and the topic{NO_OPTIONS}"
            )
        return told

    def _checked(self, schema: StructType) -> dict[str, Any]:
        options = parse(self._told(schema, "source"), "source")
        require_columns(schema, options)
        if options["valueFormat"] == "schema" and "value" in schema.fieldNames():
            require_registered(options, to_arrow_schema(schema, timezone="UTC").field("value").type)
        return {**options, "cores": self.cores}


def source_of(spark: SparkSession) -> type[HoldfastSource]:
    """Return the source of a session, with `tasks_at_once`.

    The process that plans a query has no session to ask.
    """

    class Source(HoldfastSource):
        cores = tasks_at_once(spark)

    return Source


def tasks_at_once(spark: SparkSession) -> int | None:
    """Count the session's task slots, also of executors that have not started. None: not known."""
    try:
        context = spark.sparkContext
    except PySparkException:  # Spark Connect: the cluster is behind a server
        return None
    told = context.getConf()
    wanted = int(told.get("spark.executor.instances", "0")) * int(told.get("spark.executor.cores", "1"))
    if (context.master or "").startswith("local"):
        return int(context.defaultParallelism)
    return max(context.defaultParallelism, wanted, int(told.get("spark.cores.max", "0")))
