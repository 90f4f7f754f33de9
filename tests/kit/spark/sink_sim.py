"""Do with a sink what Spark does, without Spark, fast enough to kill every step.

python -m tests.kit.spark.sink_sim

reads lines `["WORLD", "URL", "MUTANT", STREAM]`. Each is one life of a driver in a process group, like
`sink_kill_driver.py` with Spark. It has an offset log and a commit log, and a process for each attempt of a
task and each call in the driver. A failed task is tried once more; after a failure it calls `abort`.

Tasks get other rows in another order at each attempt. The first task always runs twice, like a speculative
one, and one of the results is dropped. Without STREAM the batches are writes with a number, as of
`df.write`. The answer is the exit status of the life.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

import holdfast.pipeline.sink.writer
from holdfast.pipeline.sink.rows import Rows
from tests.kit import module_command
from tests.kit.spark import sink_hooks

TASKS = 2
ATTEMPTS = 2
COLUMNS = ("value", "topic", "key")
SCHEMA = StructType([StructField(name, StringType()) for name in COLUMNS])


class Context:
    """The arguments of a task."""

    now: Context | None = None

    def __init__(self, query: str, batch: int, task: int, attempt: int) -> None:
        self._told = {"sql.streaming.queryId": query, "streaming.sql.batchId": str(batch)}
        self._task, self._attempt = task, attempt

    @classmethod
    def get(cls) -> Context | None:
        return cls.now

    def getLocalProperty(self, name: str) -> str:  # noqa: N802
        return self._told[name]

    def taskAttemptId(self) -> int:  # noqa: N802
        return self._attempt

    def partitionId(self) -> int:  # noqa: N802
        return self._task


def in_a_process(work: Callable[[], Any]) -> Any:
    """Return its answer. Raises RuntimeError: it failed, or was killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as out:
                out.write(pickle.dumps(work()))
            status = 0
        except Exception as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"ended with {status}")
    return pickle.loads(data)


class Driver:
    """One life."""

    def __init__(self, directory: Path, url: str, mutant: str, stream: bool) -> None:
        self.stream = stream
        self.input = sorted(directory.glob("input/*.txt"))
        self.logs = directory / "checkpoint"
        for name in ("offsets", "commits"):
            (self.logs / name).mkdir(parents=True, exist_ok=True)
        if not (self.logs / "metadata").exists():
            self.write("metadata", str(uuid.uuid4()))
        self.query = (self.logs / "metadata").read_text()
        self.attempts = itertools.count()
        """They begin again with every life, as Spark's do."""
        self.given = {"service.url": url, "world": str(directory), "mutant": mutant}

    def run(self) -> None:
        for batch in range(len(list((self.logs / "commits").iterdir())), len(self.input)):
            self.write(f"offsets/{batch}", "")
            self.batch(batch)
            self.write(f"commits/{batch}", "")

    def write(self, name: str, text: str) -> None:
        new = self.logs / "new"
        new.write_text(text)
        new.rename(self.logs / name)

    def batch(self, batch: int) -> None:
        lines = self.input[batch].read_text().splitlines()
        random.shuffle(lines)
        few = 1 if self.given["mutant"] else 0  # a task without rows does not show every mistake
        cut = random.randrange(few, len(lines) + 1 - few)
        shares = [lines[:cut], lines[cut:]]
        messages: list[Any] = [None] * TASKS
        try:
            for task in range(TASKS):
                messages[task] = self.task(batch, task, shares[task])
            in_a_process(lambda: self.call("commit", messages, batch))
        except RuntimeError:
            in_a_process(lambda: self.call("abort", messages, batch))
            raise

    def call(self, name: str, messages: list[Any], batch: int) -> None:
        getattr(self.writer(batch), name)(messages, *([batch] if self.stream else []))

    def task(self, batch: int, task: int, lines: list[str]) -> Any:
        for left in reversed(range(ATTEMPTS)):
            try:
                if task == 0:
                    self.attempt(batch, task, lines[::-1])
                return self.attempt(batch, task, lines)
            except RuntimeError:
                if not left:
                    raise
        return None

    def attempt(self, batch: int, task: int, lines: list[str]) -> Any:
        attempt = next(self.attempts)

        def work() -> Any:
            Context.now = Context(self.query, batch, task, attempt)
            return self.writer(batch).write(iter(rows(lines)))

        return in_a_process(work)

    def writer(self, batch: int) -> Any:
        if self.stream:
            return sink_hooks.Hooked(self.given).streamWriter(SCHEMA, False)
        return sink_hooks.Hooked({**self.given, "sinkName": "copy", "batchId": str(batch)}).writer(
            SCHEMA, False
        )


def rows(lines: list[str]) -> list[pa.RecordBatch]:
    """As Spark hands them over: a few batches."""
    found = []
    for start in range(0, len(lines), 7):
        some = lines[start : start + 7]
        columns = [some, [line.split(" ")[0] for line in some], [line.split(" ")[1] for line in some]]
        found.append(pa.RecordBatch.from_arrays([pa.array(each) for each in columns], names=list(COLUMNS)))
    return found


def life(directory: str, url: str, mutant: str, stream: bool) -> int:
    (Path(directory) / "driver.pid").write_text(str(os.getpid()))
    try:
        Driver(Path(directory), url, mutant, stream).run()
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        return 3
    return 0


def main() -> None:
    holdfast.pipeline.sink.writer.TaskContext = Context  # type: ignore[attr-defined,assignment]
    sink_hooks.TaskContext = Context  # type: ignore[attr-defined,assignment]
    for piece in rows(["even k 0:0"]):
        Rows.of(SCHEMA, None).entries(piece, "", 0)  # late imports happen once
    for line in sys.stdin:
        directory, *more = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            errors = os.open(f"{directory}/driver.errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(errors, 2)
            os._exit(life(directory, *more))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


class Simulation:
    """The process that has all that in its memory already: a life begins in milliseconds."""

    def __init__(self, stream: bool = True) -> None:
        self.stream = stream
        self._process = subprocess.Popen(
            module_command(__file__), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, directory: str, url: str, mutant: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([directory, url, mutant, self.stream]), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.terminate()
        self._process.communicate()


if __name__ == "__main__":
    main()
