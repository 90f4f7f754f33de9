"""Give each test a directory for segments, and end its processes with it."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from holdfast import Misuse, Queue
from tests.kit import keeping
from tests.kit.processes import Child, Start
from tests.kit.slices import NIGHTLY
from tests.kit.spark.session import spark as spark
from tests.kit.tiers import CHECK, COUNTS, FOLDERS, IDLE_MAX_S, LIMIT_S, Guard, Stopwatch, folder_of, summary

HEAVY = ("spark", "mutants", "torture")
ORDER = (*HEAVY, *(folder for folder in FOLDERS if folder not in HEAVY))
"""The longest folders begin first, so that no process is left alone with one at the end."""

# Every Java lives for seconds here. It is done sooner when it compiles little, collects garbage with one
# thread and believes the classes of Spark. Compiled code has room: else Java drops it, and compiles it again.
QUICK_JAVA = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
os.environ.setdefault("JDK_JAVA_OPTIONS", QUICK_JAVA)

guard = Guard()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nightly", action="store_true", default=NIGHTLY, help="run what is marked nightly")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(keeping, "keeping")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark every test by its folder, and put what takes longest first."""
    for item in items:
        item.add_marker(folder_of(item))
    if not config.getoption("--nightly"):
        later = [item for item in items if item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    items.sort(key=lambda item: ORDER.index(folder_of(item)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Share tests among processes by files; Spark and Corosync are one piece each."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            shared = next(
                (each for each in ("tests/spark", "tests/corosync") if file.startswith(f"{each}/")), ""
            )
            return shared or file

    return ByFile(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, object, object]:
    """Guard also what a module does while it is imported."""
    tests = collector.config.rootpath / "tests"
    guarded = isinstance(collector, pytest.Module) and collector.path.is_relative_to(tests)
    with guard.on(tests) if guarded and folder_of(collector) in CHECK else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    tests = item.config.rootpath / "tests"
    with guard.on(tests) if folder_of(item) in CHECK else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    try:
        return (yield)
    except BaseException:
        guard.refused.clear()  # the test says so itself
        raise


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [
        each
        for each in itertools.chain.from_iterable(terminalreporter.stats.values())
        if isinstance(each, pytest.TestReport)
    ]
    for title, lines in summary(reports):
        terminalreporter.section(title)
        terminalreporter.write_line("\n".join(lines))


@pytest.fixture
def counts(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """`counts("so many kills")` is printed when all tests are done."""
    return lambda words: record_property(COUNTS, words)


@pytest.fixture(scope="session", autouse=True)
def examples_of_seeds() -> None:
    """Make examples depend on the seed alone; in a night also on constants of modules.

    Hypothesis draws constants of the modules that a process has loaded. Another order of tests, or a changed
    module, would mean other examples.
    """
    if not NIGHTLY:
        none = Constants()
        providers._get_local_constants = lambda: none
        return

    @settings(max_examples=1, database=None)
    @given(st.text())
    def draw(_: str) -> None: ...

    draw()  # reads the constants, before a test is timed


@pytest.fixture(autouse=True)
def in_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that takes longer than its folder allows, with its own fixtures.

    It is set up before them and ends after them; fixtures shared by several tests come before it.
    """
    folder, watch = folder_of(request.node), Stopwatch()
    guard.refused.clear()
    yield
    if guard.refused:
        pytest.fail("; ".join(guard.refused))  # the test has caught it, or a thread died of it
    if folder in CHECK and not NIGHTLY and (idle := watch.idle_s()) > IDLE_MAX_S:
        pytest.fail(f"waited {idle:.2f} s; a test in tests/{folder} waits for events, or has virtual time")
    limit = None if NIGHTLY else LIMIT_S.get(folder)  # a night tries more in each
    if limit is not None and (took := watch.seconds()) > limit:
        pytest.fail(f"took {took:.2f} s; a test in tests/{folder} may take {limit} s")


@pytest.fixture(autouse=True)
def runtime_directory(in_time: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of every later garbage collection."""
    gc.collect()
    gc.freeze()
