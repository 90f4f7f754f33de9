"""Give tests a sink with steps to stop at, and sinks with faults.

Workers import it by itself, so it needs nothing else of the tests. A *world* is a directory:

    arm.N        {"step", "nth", "target"}: at the nth time of a step, this is killed, or fails; then the next
    trace        a line for each step that was reached, and how much could be read there
    driver.pid, broker.pid
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import resource
import signal
import time
import uuid
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from holdfast.client import Client
from holdfast.pipeline.sink.writer import BatchWriter, Staged, Staging, StreamWriter

TARGETS = ("driver", "worker", "broker", "fail")
MUTANTS = (
    "every commit has a key of its own",
    "stages are named after attempts",
    "the batch's number is ignored",
    "a commit for each stage",
    "abort publishes what is left",
    "the key is the run's",
    "a stage is committed by its task",
)


class World:
    """A world as a process of Spark sees it."""

    def __init__(self, directory: str) -> None:
        self.directory = Path(directory)

    def reached(self, step: str) -> None:
        self.note(step)
        arms = sorted(self.directory.glob("arm.*"))
        if not arms:
            return
        try:
            arm = json.loads(arms[0].read_text())
        except FileNotFoundError:  # another process was faster
            return
        if arm["step"] == step and self.count(arms[0].name) == arm["nth"]:
            arms[0].rename(self.directory / f"fired.{arms[0].name}")
            self.strike(arm["target"])

    def count(self, name: str) -> int:
        """Which one this is, over all processes."""
        for number in itertools.count(1):
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.directory / f"count.{name}.{number}", os.O_CREAT | os.O_EXCL))
                return number
        raise AssertionError

    def note(self, *words: object) -> None:
        line = json.dumps([*words, os.getpid()]) + "\n"
        with (self.directory / "trace").open("a") as trace:
            trace.write(line)

    def strike(self, target: str) -> None:
        if target == "fail":
            raise RuntimeError("told to fail")
        if target == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        pid = int((self.directory / f"{target}.pid").read_text())
        if target == "driver":  # with all that belongs to it, as when its machine goes
            os.killpg(pid, signal.SIGKILL)
            time.sleep(60.0)
        os.kill(pid, signal.SIGKILL)


class _Hooked:
    """The steps, and the mistakes."""

    world: World
    mutant: str
    now: int
    """The batch."""

    def _reached(self, step: str) -> None:
        if step == "staged":
            self.world.note("rss_mb", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
        if step in ("staged", "commit", "published"):
            self.world.note("visible", step, self.now, *self._visible())
        self.world.reached(step)

    def _visible(self) -> tuple[dict[str, int], int]:
        """Return how much of each topic is readable, and the position of the subscription."""
        with self.address.client(20.0) as client:  # type: ignore[attr-defined]
            found = {topic: client.progress(topic, "watch").visible for topic in ("even", "odd")}
            return found, client.progress("input", "copy").acked_to

    def _staging(self, client: Client) -> Staging:
        staging = Staging(client)
        if self.mutant == "stages are named after attempts":
            context = TaskContext.get()
            assert context is not None
            staging.id = context.taskAttemptId().to_bytes(16, "big")
        return staging

    def _publish(self, key: str, batch: int, messages: Any) -> None:
        self.now = batch
        if self.mutant == "every commit has a key of its own":
            key = str(uuid.uuid4())
        elif self.mutant == "the key is the run's":
            key = f"{key}/{(self.world.directory / 'driver.pid').read_text()}"
        elif self.mutant == "the batch's number is ignored":
            batch = 0
        elif self.mutant == "a commit for each stage":
            for number, message in enumerate(messages):
                super()._publish(f"{key}/{number}", batch, [message])  # type: ignore[misc]
            return
        super()._publish(key, batch, messages)  # type: ignore[misc]

    def _drop(self, messages: Any) -> None:
        if self.mutant == "abort publishes what is left":
            left = [each for each in messages if each is not None and each.receipt]
            with self.address.client(20.0) as client, contextlib.suppress(Exception):  # type: ignore[attr-defined]
                client.sink_commit(str(uuid.uuid4()), 0, [each.receipt for each in left])
        super()._drop(messages)  # type: ignore[misc]

    def _stage(self, iterator: Any, query: str, batch: int) -> Staged:
        self.now = batch
        staged: Staged = super()._stage(iterator, query, batch)  # type: ignore[misc]
        if self.mutant == "a stage is committed by its task" and staged.receipt:
            with self.address.client(20.0) as client:  # type: ignore[attr-defined]
                key = f"{query}/{TaskContext.get().partitionId()}"  # type: ignore[union-attr]
                client.sink_commit(key, batch, [staged.receipt])
            return Staged(None, staged.rows, query, batch)
        return staged


class HookedBatch(_Hooked, BatchWriter):
    """`df.write`."""


class HookedStream(_Hooked, StreamWriter):
    """`df.writeStream`."""


class Hooked(DataSource):
    """`format("hooked")`: option `world` says where, option `mutant` what is wrong."""

    @classmethod
    def name(cls) -> str:
        return "hooked"

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        return self._with_hooks(HookedBatch, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802
        return self._with_hooks(HookedStream, schema, overwrite)

    def _with_hooks(self, kind: Any, schema: StructType, overwrite: bool) -> Any:
        given = dict(self.options)
        world, mutant = World(given.pop("world")), given.pop("mutant", "")
        made = kind(given, schema, overwrite)
        made.world, made.mutant = world, mutant
        return made
