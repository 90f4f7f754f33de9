"""What every test gets: a directory of its own for segments, and processes that do not outlive it."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import Misuse, Queue
from tests.kit.processes import Child, Start
from tests.kit.spark.session import spark as spark

# Every Java lives for seconds here: one that compiles little, with one thread for its memory, is done sooner.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")

COUNTS = "counts"
"""What a test says at the end of the run: how much it has tried."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    told = [
        f"{report.nodeid.partition('::')[2]}: {words}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call"
        for name, words in report.user_properties
        if name == COUNTS
    ]
    if told:
        terminalreporter.section("counts")
        terminalreporter.write_line("\n".join(told))


@pytest.fixture
def counts(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """`counts("so many kills")` is printed when all tests are done."""
    return lambda words: record_property(COUNTS, words)


@pytest.fixture(autouse=True)
def runtime_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """$HOLDFAST_RUNTIME_DIR: nothing of one test is seen by another, and nothing is left in /dev/shm."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-test.") as directory:
        monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", directory)
        yield Path(directory)


@pytest.fixture
def q(runtime_directory: Path) -> Iterator[Queue]:
    """A queue of 64 KiB named "q"."""
    queue = Queue.create("q", capacity=1 << 16)
    yield queue
    with contextlib.suppress(Misuse):  # a failed test may still hold views
        queue.detach()


@pytest.fixture
def start(runtime_directory: Path) -> Iterator[Start]:
    """`start(function, *args)` runs it in a process that ends with the test (kit/processes.py)."""
    children: list[Child] = []

    def begin(function: Callable[..., None], *args: object) -> Child:
        children.append(Child(function, *args))
        return children[-1]

    yield begin
    for child in children:
        child.end()
