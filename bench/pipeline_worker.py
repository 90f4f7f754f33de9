"""The measurements in one Spark session. `bench.pipeline` starts it for each number of cores."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pipeline_world import TRIGGER_ROWS, MemorySource, World, cpu_seconds, unique
from holdfast import Broker
from holdfast.pipeline import session
from holdfast.pipeline.archive import archive
from holdfast.pipeline.java import ensure_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMS = ("alone", "batches", "memory", "parquet", "text")


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


class Worker:
    """The measurements; every figure is a list of samples, one per round."""

    def __init__(self, spark: SparkSession, job: dict[str, Any]) -> None:
        self._spark = spark
        self._job = job
        self._folder = Path(job["folder"])
        self._random = random.Random(1)
        self.figures: dict[str, list[list[float]]] = {}
        """By name: [seconds, CPU seconds] of each round."""

    def _timed(self, name: str, run: Any) -> None:
        cpu, start = cpu_seconds(), time.monotonic()
        run()
        taken = [time.monotonic() - start, cpu_seconds() - cpu]
        self.figures.setdefault(name, []).append(taken)

    def reads(self, size: int, count: int) -> None:
        """Read every form of the rows in turn, each round in another order."""
        world = World(self._folder, size, count)
        world.make(self._spark, self._job["cores"])
        cases = {f"{size} {form}": world.frame(self._spark, form) for form in FORMS}
        for frame in cases.values():
            noop(frame)  # the first read loads classes, workers and caches
        for _ in range(self._job["rounds"]):
            for name in self._random.sample(list(cases), len(cases)):
                self._timed(name, lambda chosen=name: noop(cases[chosen]))
        if self._job["full"]:
            self.archive(world, cases[f"{size} batches"])

    def archive(self, world: World, frame: DataFrame) -> None:
        """Write Parquet plainly and by `archive`; time the source's own work without Spark."""
        for number in range(max(2, self._job["rounds"] // 2)):
            plain, whole = (str(world.folder / f"{name}-{number}") for name in ("plain", "archive"))
            self._timed(f"{world.size} parquet written", lambda to=plain: frame.write.parquet(to))
            self._timed(
                f"{world.size} archive",
                lambda to=whole: archive(self._spark, topics=["batches"], to=to, path=world.data),
            )
            cpu, start = time.process_time(), time.monotonic()
            world.decode()
            own = [time.monotonic() - start, time.process_time() - cpu]
            self.figures.setdefault(f"{world.size} own", []).append(own)

    def scale(self, count: int) -> None:
        """Read the same rows from one ledger and from hundreds; half of them, and all."""
        folder = self._folder / "scale"
        frames, many = {}, min(300, count // 100)
        cases = {"one ledger": (count, 1), "300 ledgers": (count, many), "half": (count // 2, 1)}
        for name, (rows, ledgers) in cases.items():
            data = str(folder / name.replace(" ", "-"))
            with (
                Broker.open(data, sync="os", roll_entries=1 << 30) as broker,
                broker.producer("orders", batch=100) as producer,
            ):
                left = rows
                for at in range(ledgers):
                    piece = left // (ledgers - at) // 100 * 100
                    left -= piece
                    for done in range(0, piece, 10_000):
                        producer.send_many(unique(256, min(10_000, piece - done)))
                    if at + 1 < ledgers:
                        broker.admin.roll("orders")
            reader = self._spark.read.format("holdfast").option("path", data)
            frames[name] = reader.option("topic", "orders").load()
            noop(frames[name])
        for _ in range(self._job["rounds"]):
            for name in self._random.sample(list(frames), len(frames)):
                self._timed(f"scale {name}", lambda chosen=name: noop(frames[chosen]))

    def triggers(self, size: int) -> None:
        """Measure the time per trigger of a stream, ours and Spark's own."""
        spark, batches = self._spark, self._job["triggers"]
        world_data = self._folder / "stream"
        with (
            Broker.open(str(world_data), sync="os") as broker,
            broker.producer("orders", batch=100) as producer,
        ):
            for _ in range(batches + 4):
                producer.send_many(unique(size, TRIGGER_ROWS))
        ours = (
            spark.readStream.format("holdfast").option("path", str(world_data)).option("topic", "orders")
            .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", TRIGGER_ROWS // 100).load()
        )  # fmt: skip
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", TRIGGER_ROWS).load()
        memory = spark.readStream.format(MemorySource.name()).schema("value binary").load()
        for turn in range(2):
            for name, frame in (("holdfast", ours), ("rate", rate), ("memory", memory)):
                check = str(self._folder / f"check-{name}-{turn}")
                writer = frame.writeStream.format("noop").option("checkpointLocation", check)
                query = writer.trigger(processingTime="0 seconds").start()
                while (query.lastProgress or {"batchId": 0})["batchId"] < batches and query.isActive:
                    time.sleep(0.05)
                times = [each["durationMs"]["triggerExecution"] for each in query.recentProgress
                         if each["numInputRows"] and each["batchId"] > 2]  # fmt: skip
                query.stop()
                taken = [[each / 1000, 0.0] for each in times]
                self.figures.setdefault(f"trigger {name}", []).extend(taken)


def main() -> None:
    job = json.loads(sys.argv[1])
    ensure_java()
    settings = {"spark.log.level": "ERROR", "spark.sql.parquet.compression.codec": "snappy"}
    spark = session(
        "holdfast-bench", master=f"local[{job['cores']}]", memory=job["memory"], settings=settings
    )
    spark.dataSource.register(MemorySource)
    worker = Worker(spark, job)
    for size, count in job["sizes"]:
        worker.reads(size, count)
    if job["full"]:
        worker.scale(job["sizes"][0][1])
        worker.triggers(100)
    Path(job["out"]).write_text(json.dumps(worker.figures))
    spark.stop()


if __name__ == "__main__":
    main()
