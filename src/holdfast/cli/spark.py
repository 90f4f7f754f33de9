"""Run Spark for a command: quiet, with a progress bar and errors of one line."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.parsing import declare, seconds
from holdfast.cli.progress import WIDTH
from holdfast.cli.starved import GIVE_UP_S, Watch, slow_start
from holdfast.errors import HoldfastError, Unsupported
from holdfast.formatting import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EACH_S = 0.2
STEPS = {
    "recover": "looking at the directory",
    "hold": "holding the subscription",
    "plan": "planning",
    "read": "reading",
    "write": "writing",
    "verify": "reading back",
    "commit": "committing",
    "move": "moving",
    "advance": "advancing the subscription",
    "count": "counting",
    "order": "looking at the order",
    "latency": "taking times",
    "details": "looking for what is wrong",
    "measure": "measuring",
    "begin": "asking the broker for",
    "send": "sending",
}
_OURS = re.compile(r"holdfast\.(?:errors|pipeline\.\w+)\.(\w+): (.+)")
_CODES = re.compile(r"^(?:[\w.$]+(?:Exception|Error): )?(?:\[[A-Z0-9_.]+\] )?| SQLSTATE: \w+.*$")
_UNREADABLE = "FAILED_READ_FILE"
GONE = (
    "Spark's Java process is gone: killed, or out of memory; --memory SIZE gives it more, --spark-log FILE "
    "keeps what it says"
)
GONE_S = 2.0
"""A process that dies closes its connections first."""


class SparkFailed(HoldfastError):
    """Spark could not do it; the text is what it says, without its trace."""


class Steps:
    """Shows a pipeline's step on a terminal, and how many tasks are done."""

    def __init__(self) -> None:
        self.spark: SparkSession | None = None
        self.interrupts = Interrupts()
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._words, self._began = "starting Spark", time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def __enter__(self) -> Steps:
        if self._shown:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._shown:
            self._thread.join()

    def __call__(self, step: str, words: str = "") -> None:
        """As a pipeline tells it."""
        self._words, self._began = f"{STEPS.get(step, step)} {words}".strip(), time.monotonic()

    def _show(self) -> None:
        while not self._done.wait(EACH_S):
            line = f"{self._words}  {self._tasks()}{time.monotonic() - self._began:.0f} s"
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _tasks(self) -> str:
        if self.spark is None:
            return ""
        with contextlib.suppress(Exception):  # a bar is not worth an error
            tracker = self.spark.sparkContext.statusTracker()
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            total = sum(each.numTasks for each in stages if each)
            done = sum(each.numCompletedTasks for each in stages if each)
            if total:
                full = done * WIDTH // total
                return f"{'█' * full}{'░' * (WIDTH - full)}  {done} of {plural(total, 'task')}  "
        return ""


@contextlib.contextmanager
def spark_for(options: argparse.Namespace) -> Iterator[tuple[SparkSession, Steps]]:
    """Open a session for a command; the output of Java goes to a file."""
    from holdfast.pipeline import session

    kept: str | None = options.spark_log
    with contextlib.ExitStack() as stack:
        if kept is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-spark."))
            kept = str(Path(folder) / "log")
        steps = stack.enter_context(Steps())
        hush()
        from pyspark.sql import SparkSession

        running = SparkSession.getActiveSession()
        stack.enter_context(steps.interrupts.taken())
        with slow_start(options.master), elsewhere(kept):
            try:
                spark = session(
                    "holdfast", master=options.master, memory=options.memory, settings=dict(options.conf)
                )
            except HoldfastError:
                raise
            except Exception as error:
                raise SparkFailed(not_started(Path(kept), error)) from error
        steps.interrupts.take()
        # It prints a trace when Java is dead; that is told below.
        spark.sparkContext._accumulatorServer.handle_error = lambda *_: None  # type: ignore[method-assign]
        if running is None:
            stack.callback(stop, spark)
        steps.spark = spark
        watch = stack.enter_context(Watch(spark, options.worker_wait))
        try:
            yield spark, steps
        except Exception as error:
            if steps.interrupts.raised:
                raise KeyboardInterrupt from error
            if watch.given_up:
                raise SparkFailed(watch.given_up) from error
            told = SparkFailed(GONE) if gone(spark, error) else in_short(error)
            if told is None:
                raise
            raise told from error


def hush() -> None:
    """Silence loggers that show traces of errors that are raised as well."""
    for name in ("SQLQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_worth_saying)  # one and the same: it is there once


def _worth_saying(record: logging.LogRecord) -> bool:
    """Python's bridge to Java has a logger of its own, and says this elsewhere."""
    return not record.getMessage().endswith("while sending command.")


class Interrupts:
    """Ctrl-C, for a command that calls Java.

    An exception out of such a call breaks Python's bridge: it closes the connections of other threads as
    well. So an interrupt is held back where a command can ask for it. A failure after a raised interrupt
    counts as its effect.
    """

    def __init__(self) -> None:
        self.came = False
        self.raised = False
        self._held = False

    def __call__(self, *_: object) -> None:
        """As a signal's handler. The second is raised, held back or not."""
        again, self.came = self.came, True
        if again or not self._held:
            self.raised = True
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """An interrupt is told by `came` alone."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """All of them come here."""
        before = signal.getsignal(signal.SIGINT)
        self.take()
        try:
            yield
        finally:
            if _is_main():
                signal.signal(signal.SIGINT, before)

    def take(self) -> None:
        """Install the handler, also after Spark has replaced it by its own."""
        if _is_main():  # other threads cannot
            signal.signal(signal.SIGINT, self)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def wait_for(query: StreamingQuery, interrupts: Interrupts) -> None:
    """Wait for the end of a query, or end it when an interrupt comes.

    Raises:
        Exception: what the query ended with.
    """
    ended: list[Exception | None] = []

    def wait() -> None:
        try:
            query.awaitTermination()
            ended.append(None)
        except Exception as error:  # also of a Java that is gone
            ended.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not ended and not interrupts.came:
        thread.join(EACH_S)
    if not ended:
        query.stop()
        thread.join()
    elif ended[0] is not None:
        raise ended[0]


def stop(spark: SparkSession) -> None:
    """End a session, also one whose Java is dead or was interrupted."""
    with contextlib.suppress(Exception):
        spark.stop()


def gone(spark: SparkSession, error: Exception) -> bool:
    """Whether this is the error because Spark's Java process has died."""
    from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]

    if isinstance(error, HoldfastError):
        return False
    java = getattr(getattr(spark.sparkContext, "_gateway", None), "proc", None)
    if not isinstance(java, subprocess.Popen):
        return False  # another program has started it
    cut = isinstance(error, Py4JError | ConnectionError) and not isinstance(error, Py4JJavaError)
    try:
        java.wait(GONE_S if cut else 0)
    except subprocess.TimeoutExpired:
        return False
    return True


@contextlib.contextmanager
def elsewhere(path: str) -> Iterator[None]:
    """Send the output of processes that are started meanwhile to this file."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    before = {number: os.dup(number) for number in (1, 2)}
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        for number in before:
            os.dup2(file, number)
        yield
    finally:
        for number, kept in before.items():
            os.dup2(kept, number)
            os.close(kept)
        os.close(file)


def not_started(log: Path, error: Exception) -> str:
    """Why: what Java or Spark said last, which is behind this error."""
    said = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    pattern = r"Error: |Error occurred |Exception in |Caused by: |[\w.]+(Exception|Error): "
    blamed = [f"{line} {more}" for line, more in pairwise([*said, ""]) if re.match(pattern, line)]
    blamed = [re.sub(r"\s+at \S+\(.*|\s+Error: .*$", "", _CODES.sub("", line)).strip() for line in blamed]
    told = in_short(error)
    why = blamed[0] if blamed else str(told) if told is not None else str(error).partition("\n")[0]
    return f"Spark did not start: {why}; --spark-log FILE keeps all that it says"


def in_short(error: Exception) -> HoldfastError | None:
    """Shorten an error of Spark to one line; None: another error."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException | Py4JError):
        return None
    text = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    ours = _OURS.findall(text)
    if ours:
        return SparkFailed(f"{ours[-1][1]} ({ours[-1][0]})")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return SparkFailed(type(error).__name__)
    words = _CODES.sub("", lines[0])
    if _UNREADABLE in lines[0]:
        words = f"{words.rstrip('. ')}; it is missing or damaged: restore it from a copy"
    return SparkFailed(words)


def add_session(group: Any) -> None:
    """The options of every command that needs Spark."""
    declare(group, types={"memory": memory}, memory="1g")("""
        --master URL: address of the Spark master (default: this machine, all cores)
        --memory SIZE: memory of the Spark driver (default 1g)
        """)
    group.add_argument(
        "--conf",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting, such as spark.executor.memory=2g; repeatable",
    )
    declare(group, types={"worker_wait": seconds}, worker_wait=GIVE_UP_S)(f"""
        --worker-wait SECONDS: fail when Spark's workers accept no task for this many seconds (default
            {GIVE_UP_S:g})
        --spark-log FILE: write Spark's log to FILE
        """)


def memory(text: str) -> str:
    """As Java takes it: 800m, 2g."""
    if re.fullmatch(r"[1-9]\d*[mg]", text.lower()) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 800m or 2g")
    return text.lower()


def setting(text: str) -> tuple[str, str]:
    """One of Spark's own: spark.executor.memory=2g."""
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"spark\.[\w.-]*\w", name.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a setting such as spark.executor.memory=2g")
    return name.strip(), value.strip()


def require_spark() -> None:
    """Before anything else is done.

    Raises:
        Unsupported: it is not installed.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise Unsupported("Spark is not installed; pip install 'holdfast[spark]'") from None
