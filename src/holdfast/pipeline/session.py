"""Create a Spark session with the settings of source, sink and jobs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from holdfast.errors import Unsupported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings of every session; the caller's `settings` override them."""


def session(
    app: str = "holdfast",
    *,
    master: str | None = None,
    memory: str = "1g",
    settings: dict[str, str] | None = None,
) -> SparkSession:
    """Return a session with `format("holdfast")`: the running one, or a new one.

    Args:
        app: name of the application.
        master: Spark's master URL; default: that of spark-submit, or all cores of this machine.
        memory: memory of the driver, which in local mode runs all tasks.
        settings: Spark settings; they override those of this module.

    Raises:
        Unsupported: Spark or Java is not installed.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise Unsupported("Spark is not installed; pip install 'holdfast[spark]'") from None
    from holdfast.pipeline import register
    from holdfast.pipeline.java import ensure_java, none_left_behind

    ensure_java()
    # Another interpreter would not find this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if master is None or master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # not reachable from other machines
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    chosen = {
        **SETTINGS,
        "spark.driver.memory": memory,
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 2),
        **(settings or {}),
    }
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with none_left_behind():
        spark = builder.getOrCreate()
    register(spark)
    return spark
