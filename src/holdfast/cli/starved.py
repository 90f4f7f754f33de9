"""Notice that Spark's workers take no task: Spark only logs it, and waits forever."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.cli.output import notice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH_S = 1.0
WORD_S = 15.0
"""Time without a running task until a message. Spark logs its warning as often."""
GIVE_UP_S = 300.0
START_S = 60.0
"""Time until a message that Spark has not started."""


@dataclass(frozen=True)
class Work:
    """The tasks of the stages that Spark works on."""

    tasks: int
    """Of the stages that have begun."""
    running: int
    ended: int
    """Done, or failed."""


class Starved:
    """Tells for how long tasks wait while none runs; each look brings the time."""

    def __init__(self, word_s: float = WORD_S, give_up_s: float = GIVE_UP_S) -> None:
        self._word_s, self._give_up_s = word_s, give_up_s
        self._since: float | None = None
        self._ended = -1
        self._said = False

    def look(self, now: float, work: Work) -> str:
        """Return `wait`, `say` when a message is due, or `end` to stop."""
        moved = work.ended != self._ended
        self._ended = work.ended
        if not work.tasks or work.running or moved or self._since is None:
            self._since, self._said = now, False
            return "wait"
        if now - self._since >= self._word_s and not self._said:
            self._said = True
            return "say"
        return "end" if now - self._since >= self._give_up_s else "wait"


class Watch:
    """Watches a session in a thread while a command works with it."""

    def __init__(
        self,
        spark: SparkSession,
        give_up_s: float = GIVE_UP_S,
        word_s: float = WORD_S,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._spark = spark
        self._give_up_s = give_up_s
        self._starved = Starved(min(word_s, give_up_s), give_up_s)
        self._say = say or notice
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.given_up = ""
        """Why; empty: it was not."""

    def __enter__(self) -> Watch:
        if not is_local(self._spark.sparkContext.master or ""):  # there, tasks are threads of the driver
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join(EACH_S)

    def _run(self) -> None:
        while not self._done.wait(EACH_S):
            with contextlib.suppress(Exception):  # a Java that is gone is told elsewhere
                work = self._work()
                verdict = self._starved.look(time.monotonic(), work)
                if verdict == "say":
                    self._say(f"{self.words(work)}; waiting until {self._give_up_s:g} s are over")
                elif verdict == "end":
                    self.given_up = self.words(work)
                    self._spark.sparkContext.cancelAllJobs()
                    return

    def _work(self) -> Work:
        tracker = self._spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
        there = [each for each in stages if each]
        return Work(
            sum(each.numTasks for each in there),
            sum(each.numActiveTasks for each in there),
            sum(each.numCompletedTasks + each.numFailedTasks for each in there),
        )

    def words(self, work: Work) -> str:
        """Name the cause and the remedy."""
        context = self._spark.sparkContext
        conf = context.getConf()
        wanted = conf.get("spark.executor.memory") or "1g"
        cores = conf.get("spark.executor.cores") or "all"
        return (
            f"no worker of {context.master} takes any of {work.tasks} tasks: an executor wants {wanted} of "
            f"memory and {cores} cores, and no worker has that to spare. Ask for less, such as --conf "
            "spark.executor.memory=512m, or start larger workers; --spark-log FILE keeps what Spark says"
        )


@contextlib.contextmanager
def slow_start(master: str | None, after_s: float = START_S) -> Iterator[None]:
    """Print a message if Spark does not start: a cluster may have no room.

    It goes to the standard error of now, even if that is redirected meanwhile.
    """
    out = os.dup(2)
    words = (
        f"holdfast: Spark has not started for {after_s:g} s ({master or 'local'}): a cluster may have "
        "no room for it, or does not answer; waiting on. --spark-log FILE keeps what Spark says\n"
    )
    timer = threading.Timer(after_s, os.write, (out, words.encode()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        os.close(out)


def is_local(master: str) -> bool:
    """`local`, `local[2]`; a `local-cluster[…]` has workers."""
    return master == "local" or master.startswith("local[")
