"""Read a tapped service with Spark: its samples are rows, with their numbers as properties."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast
from tests.kit.processes import until
from tests.kit.served import served
from tests.kit.server.tap_world import TAP, figure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Camera(holdfast.Service):
    """One event, as that of the camera in the kit."""

    frame = holdfast.Event(dtype="u8", shape=(2,), samples=64)


def test_spark_reads_the_samples_of_a_service(spark: SparkSession, tmp_path: Path) -> None:
    with served(tmp_path / "data", *TAP, http=True) as server, Camera.offer("left") as skeleton:
        until(lambda: figure(server, "connected") == 1)
        for number in range(1, 11):
            with skeleton.frame.loan() as frame:
                frame[:] = number, 7 * number
            until(lambda number=number: figure(server, "messages_total") == number)  # type: ignore[misc]
        reader = spark.read.format("holdfast").option("service.url", server.url).option("topic", "frames")
        rows = reader.load().select("value", "properties", "eventTime").collect()
        assert server.end() == 0
    read = {int(row.properties["holdfast.sequence"]): row for row in rows}
    assert sorted(read) == [*range(1, 11)]
    for number, row in read.items():
        assert struct.unpack("<QQ", row.value) == (number, 7 * number)
        assert row.properties["holdfast.missed"] == "0"
        assert row.properties["holdfast.dtype"] == "<u8"
        assert row.eventTime is not None
