"""A plugin of pytest: in `make nightly`, seeds that have failed are reduced and kept (kit/nightly.py)."""

from __future__ import annotations

import itertools
from collections.abc import Generator

import pytest

from tests.kit.slices import NIGHTLY, Seed, tried

FAILED = "failed seed"
"""The property of a report that names storm and seed."""


def pytest_runtest_setup(item: pytest.Item) -> None:
    tried.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note in the report of a failed test which seed of which storm it was."""
    report = yield
    if report.failed and report.when == "call":
        callspec = getattr(item, "callspec", None)
        given = [each for each in (callspec.params.values() if callspec else ()) if isinstance(each, Seed)]
        report.user_properties += [(FAILED, [seed.storm, int(seed)]) for seed in given or tried]
    return report


def failed_seeds(reports: list[pytest.TestReport]) -> list[tuple[str, int]]:
    """Return storm and seed of each failed test, once."""
    found: dict[tuple[str, int], None] = {}
    for report in reports:
        for name, value in report.user_properties:
            if name == FAILED and isinstance(value, list):
                found[value[0], value[1]] = None
    return list(found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Reduce and keep what has failed this night."""
    reports = itertools.chain.from_iterable(terminalreporter.stats.values())
    failed = failed_seeds([each for each in reports if isinstance(each, pytest.TestReport)])
    if not NIGHTLY or not failed:
        return
    from tests.kit.nightly import keep

    terminalreporter.section("kept in tests/kit/kept.json: commit it with the mend")
    for storm, seed in failed:
        terminalreporter.write_line(keep(storm, seed))
