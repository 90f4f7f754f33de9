"""A pytest plugin that reduces and keeps seeds that fail in `make nightly` (kit/nightly.py).

A test that crashes its process, or hangs until pytest-timeout ends the process, leaves no report. Its seed is
in the note of that process (kit/running.py).

    python -m tests.kit.keeping --forget       # remove the notes that an earlier night left
    python -m tests.kit.keeping                # keep the seed of a killed `make torture`
"""

from __future__ import annotations

import faulthandler
import itertools
import sys
from collections.abc import Generator, Iterable
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from tests.kit import kept, running, slices
from tests.kit.slices import NIGHTLY, Seed, tried

FAILED = "failed seed"
"""The property of a report that names storm and seed."""
CRASHED = "???"
"""`when` of the report that xdist makes for a test whose process ended."""


class Noting:
    """Writes down the seed that each test of this process has reached."""

    def __init__(self) -> None:
        self._note = running.Writer()
        self._test = ""
        slices.listeners.append(self.seed)

    def seed(self, seed: Seed) -> None:
        self._note.write(self._test, seed.storm, int(seed))

    def begin(self, item: pytest.Item) -> None:
        self._test = item.nodeid
        for seed in given_to(item):
            self.seed(seed)

    def end(self) -> None:
        self._note.clear()

    def close(self) -> None:
        slices.listeners.remove(self.seed)
        self._note.close()


noting: list[Noting] = []
"""The one of a process that runs tests of the night."""


def given_to(item: pytest.Item) -> list[Seed]:
    """Return the seeds among a test's parameters."""
    callspec = getattr(item, "callspec", None)
    return [each for each in (callspec.params.values() if callspec else ()) if isinstance(each, Seed)]


def pytest_configure(config: pytest.Config) -> None:
    try:
        kept.load()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """End a process that hangs in native code: pytest-timeout waits for the interpreter's lock."""
    later = 1.1 * settings.timeout + 2.0
    faulthandler.dump_traceback_later(
        later, exit=True, file=item.config.stash.get(fault_handler_stderr_fd_key, 2)
    )


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    faulthandler.cancel_dump_traceback_later()


def pytest_runtest_setup(item: pytest.Item) -> None:
    tried.clear()
    if NIGHTLY:
        if not noting:
            noting.append(Noting())
        noting[0].begin(item)


def pytest_runtest_logfinish() -> None:
    for each in noting:
        each.end()


def pytest_unconfigure() -> None:
    while noting:
        noting.pop().close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note storm and seed in the report of a failed test."""
    report = yield
    if report.failed:
        report.user_properties += [(FAILED, [seed.storm, int(seed)]) for seed in given_to(item) or tried]
    return report


def failed_seeds(reports: list[pytest.TestReport]) -> list[tuple[str, int]]:
    """Return storm and seed of each failed test, once."""
    found: dict[tuple[str, int], None] = {}
    for report in reports:
        for name, value in report.user_properties:
            if name == FAILED and isinstance(value, list):
                found[value[0], value[1]] = None
    crashed = {report.nodeid for report in reports if report.failed and report.when == CRASHED}
    for note in running.left(lambda note: note.test in crashed):
        found[note.storm, note.seed] = None
    return list(found)


def keep_all(failed: Iterable[tuple[str, int]], reduce: bool = True) -> Generator[str, None, None]:
    """Reduce and keep; yield in words what was kept, and what could not be."""
    from tests.kit.nightly import keep

    for storm, seed in failed:
        try:
            yield keep(storm, seed, reduce)
        except (OSError, ValueError) as error:
            yield f"NOT KEPT: {storm}, seed {seed}: {error}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """Reduce and keep the failures of this night; after Ctrl-C, keep them as they are."""
    if not NIGHTLY:
        return
    reports = itertools.chain.from_iterable(terminalreporter.stats.values())
    failed = failed_seeds([each for each in reports if isinstance(each, pytest.TestReport)])
    if not failed:
        return
    terminalreporter.section("kept in tests/kit/kept.json: commit it with the mend")
    for words in keep_all(failed, reduce=exitstatus != pytest.ExitCode.INTERRUPTED):
        terminalreporter.write_line(words)


def main() -> int:
    if "--forget" in sys.argv:
        running.forget()
        return 0
    left = running.left(lambda note: note.test == running.TORTURE)
    for words in keep_all((note.storm, note.seed) for note in left):
        print(words, flush=True)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
