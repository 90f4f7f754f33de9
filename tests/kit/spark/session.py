"""Share one Spark session among all tests of a process.

Starting it takes longer than most tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.slices import NIGHTLY, pick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "ERROR",
}
QUICK = {
    # A query of a test has few rows, and runs once. Generated code costs more than it saves, and so do plans
    # that change while they run.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # Python tells Java the line of each operation of a frame, for the words of errors.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
"""Not in `make nightly`, which has what users have."""
FIRST = (
    "scala-library",
    "spark-catalyst_",
    "spark-sql_",
    "spark-core_",
    "spark-sql-api_",
    "spark-common-utils_",
)
"""Jars that hold most of the classes. Java looks for each class in all jars, one after the other."""


def first_jars() -> str:
    """Return the class path of the jars that Java shall search before the others."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    return ":".join(str(path) for name in FIRST for path in jars.glob(f"{name}*.jar"))


WORKER = """#!/bin/sh
# Spark's own archive of Python modules comes first, and each worker compiles what it imports from there.
rest=
IFS=:
for each in $PYTHONPATH; do
    case $each in
    */pyspark.zip | */py4j-*.zip) ;;
    *) rest=${{rest:+$rest:}}$each ;;
    esac
done
export PYTHONPATH="$rest"
exec "{python}" "$@"
"""


def quick_python(folder: Path) -> str:
    """Write a Python for Spark's workers that imports the installed pyspark; return its path."""
    path = folder / "python"
    path.write_text(WORKER.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a session with two cores and little memory; it ends with the run."""
    from holdfast.pipeline import session

    quick = pick(test={**QUICK, "spark.driver.extraClassPath": first_jars()}, nightly={})
    settings = {**SETTINGS, **quick, "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    with pytest.MonkeyPatch.context() as patch:
        if not NIGHTLY:
            patch.setenv("PYSPARK_PYTHON", quick_python(tmp_path_factory.mktemp("worker")))
        made = session("holdfast-tests", master="local[2]", settings=settings)
        yield made
        made.stop()
