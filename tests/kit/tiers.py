"""The tiers: which folder runs when, what its tests may do, and a run's summary.

`make check` runs the folders CHECK. Their tests start no process and do not sleep; each of `unit` ends within
a second. `make test` runs all folders. `make nightly` runs them with `--nightly`: also tests marked
`nightly`, and larger slices with other seeds every night (`tests/kit/slices.py`).
"""

from __future__ import annotations

import _posixsubprocess
import asyncio
import contextlib
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, NoReturn, SupportsIndex

import pytest

CHECK = ("unit", "conformance", "simulation")
FOLDERS = (*CHECK, "process", "corosync", "pulsar", "spark", "mutants", "torture", "repo")
LIMIT_S = {"unit": 1.0}
"""How long a test of this folder may take (`taken_s`), with its own fixtures but without shared ones."""
SLEEP_MAX_S = 0.02
SLOWEST = 20
COUNTS = "counts"
"""The property in which a test reports how much it has tried."""
PROCESS_EVENTS = {
    *("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"),
}
PROCESS_SYMBOLS = {"fork", "vfork", "clone", "system", "popen", "posix_spawn", "posix_spawnp", "execve"}
"""Functions of the C library that a test may not look up, either."""
IDLE_MAX_S = 1.0
"""A test of `make check` that waits longer than this in total sleeps."""


def folder_of(item: pytest.Item | pytest.Collector) -> str:
    """Return the folder below tests/ that a test is in."""
    folder = item.path.relative_to(item.config.rootpath / "tests").parts[0]
    if folder not in FOLDERS:
        raise pytest.UsageError(f"{item.path}: a test belongs into one of tests/{{{','.join(FOLDERS)}}}")
    return folder


# -- what a test of `make check` may not do -----------------------------------------------------------


class Guard:
    """Refuses processes and long sleeps while a test of `make check` runs."""

    def __init__(self) -> None:
        self.active = False
        self.refused: list[str] = []
        """All refusals, also those that a test has caught, or that ended one of its threads."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[object, ...]) -> None:
        if not self.active:
            return
        if event in PROCESS_EVENTS:
            self.refuse(f"{event} in a test of `make check`: it belongs to tests/process")
        if event == "ctypes.dlsym" and args[1] in PROCESS_SYMBOLS:
            self.refuse(f"{args[1]}() in a test of `make check`: it belongs to tests/process")

    def refuse(self, words: str) -> NoReturn:
        self.refused.append(words)
        raise AssertionError(words)

    def _fork_exec(self, *_: object) -> int:
        """Refuse a process of `multiprocessing`, which raises no audit event."""
        self.refuse("multiprocessing in a test of `make check`: it belongs to tests/process")

    @contextlib.contextmanager
    def on(self, tests: Path) -> Iterator[None]:
        """Guard this process meanwhile; code in the folder `tests` must not sleep."""
        really, really_async = time.sleep, asyncio.sleep

        def sleep(seconds: float | SupportsIndex) -> None:
            # Other threads may be of an earlier test; a module imported meanwhile keeps this function.
            ours = self.active and threading.current_thread() is threading.main_thread()
            if ours and float(seconds) > SLEEP_MAX_S:
                self.refuse(f"time.sleep({seconds}) in a test of `make check`: wait for a condition")
            really(seconds)

        def async_sleep(delay: float, result: Any = None) -> Coroutine[Any, Any, Any]:
            caller = sys._getframe(1).f_code.co_filename  # pauses of the product are allowed
            if self.active and delay > SLEEP_MAX_S and in_real_time() and Path(caller).is_relative_to(tests):
                self.refuse(
                    f"asyncio.sleep({delay}) in a test of `make check`: wait for a condition or virtual time"
                )
            return really_async(delay, result)

        fork_exec = _posixsubprocess.fork_exec
        self.active, time.sleep, asyncio.sleep = True, sleep, async_sleep
        _posixsubprocess.fork_exec = self._fork_exec
        try:
            yield
        finally:
            self.active, time.sleep, asyncio.sleep = False, really, really_async
            _posixsubprocess.fork_exec = fork_exec


def in_real_time() -> bool:
    """Return whether the running loop is one of asyncio's: simulated ones have virtual time."""
    loop = asyncio._get_running_loop()
    return loop is None or isinstance(loop, asyncio.BaseEventLoop)


def pressure_s(what: str = "cpu") -> float:
    """Return the seconds that work on this machine has waited for processor or disk."""
    with contextlib.suppress(OSError, ValueError, IndexError):  # a kernel that does not count it
        some = Path("/proc/pressure", what).read_text().splitlines()[0]
        return int(some.rpartition("total=")[2]) / 1e6
    return 0.0


def taken_s(elapsed_s: float, processor_s: float, pressed_s: float) -> float:
    """Return a test's processor time, or elapsed time less the delay by other work.

    On cores that others use all the time, the same instructions need up to twice the processor time.
    """
    crowded = min(1.0, max(0.0, pressed_s) / elapsed_s) if elapsed_s > 0 else 0.0
    return max(processor_s / (1 + crowded), elapsed_s - pressed_s)


class Stopwatch:
    """Measures what a test takes, on a quiet and on a busy machine."""

    def __init__(self) -> None:
        self._began, self._used, self._pressed = time.monotonic(), time.process_time(), pressure_s()
        self._disk = pressure_s("io")

    def idle_s(self) -> float:
        """Return how long the test has waited for neither processor nor disk, so it slept.

        It is 0 if the test mostly worked, or if the kernel does not count delays by other work.
        """
        elapsed, used = time.monotonic() - self._began, time.process_time() - self._used
        idle = elapsed - used - (pressure_s() - self._pressed) - (pressure_s("io") - self._disk)
        return idle if idle > elapsed / 2 and Path("/proc/pressure/cpu").exists() else 0.0

    def seconds(self) -> float:
        return taken_s(
            time.monotonic() - self._began,
            time.process_time() - self._used,
            pressure_s() - self._pressed + pressure_s("io") - self._disk,
        )


# -- the summary of a run -----------------------------------------------------------------------------


def summary(reports: list[pytest.TestReport]) -> Iterator[tuple[str, list[str]]]:
    """Yield the final sections of a run: counts, tests by folder, the slowest tests."""
    seconds: dict[str, float] = defaultdict(float)
    for report in reports:
        seconds[report.nodeid] += report.duration
    told = [
        f"{report.nodeid.partition('::')[2]}: {words}"
        for report in reports
        if report.when == "call"
        for name, words in report.user_properties
        if name == COUNTS
    ]
    if told:
        yield "counts", told
    passed = Counter(
        folder_in(report.nodeid) for report in reports if report.when == "call" and report.passed
    )
    spent: Counter[str] = Counter()
    for nodeid, took in seconds.items():
        spent[folder_in(nodeid)] += took  # type: ignore[assignment]
    yield (
        "tests by folder",
        [f"{name:12} {passed[name]:5} passed {spent[name]:7.1f} s" for name in FOLDERS if name in spent],
    )
    slowest = sorted(seconds.items(), key=lambda each: -each[1])[:SLOWEST]
    yield f"slowest {len(slowest)} tests", [f"{took:7.2f} s  {nodeid}" for nodeid, took in slowest]


def folder_in(nodeid: str) -> str:
    return nodeid.split("/")[1] if nodeid.startswith("tests/") else ""
