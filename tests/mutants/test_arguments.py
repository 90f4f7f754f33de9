"""Mutants of argument checks: the tests of clear errors notice each absent function.

The tests run in a pytest of their own, in which the functions of `holdfast.arguments` check nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.kit import ROOT

QUEUE, BROKER = "tests/unit/queue/test_create.py", "tests/unit/broker/test_clear_errors.py"
NOTICED = {
    "require_text": (
        f"{QUEUE}::test_names_of_another_type[3-",
        f"{BROKER}::test_texts_of_clients_that_are_none[number]",
        f"{BROKER}::test_names_that_are_no_text[3-",
    ),
    "checked_whole": (f"{QUEUE}::test_arguments_of_another_type[{{'capacity': 1.5}}-",),
    "checked_path": (f"{QUEUE}::test_arguments_of_another_type[{{'directory': 5}}-",),
    "require_seconds": (f"{QUEUE}::test_arguments_of_another_type[{{'stall_limit': '1'}}-",),
    "checked_patience": (f"{BROKER}::test_timeouts_of_clients_that_are_none[nan]",),
}
"""The tests that notice the absence of each function: of queues, brokers, clients and producers."""

PROGRAM = """
import sys
import pytest
import holdfast.arguments, holdfast.broker, holdfast.client, holdfast.local
believing = {
    "require_text": lambda name, value: None,
    "checked_whole": lambda name, value, words="": value,
    "checked_path": lambda name, value: value,
    "require_seconds": lambda *given: None,
    "checked_patience": lambda seconds: 0.01,  # nothing listens: a call would wait
}
for name, broken in believing.items():
    real = getattr(holdfast.arguments, name)
    for module in [each for key, each in sys.modules.items() if key.startswith("holdfast")]:
        if getattr(module, name, None) is real:
            setattr(module, name, broken)
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_arguments_that_nothing_checks_are_noticed(tmp_path: Path) -> None:
    options = ["-n0", "-q", "-p", "no:cacheprovider", "--tb=no", f"--basetemp={tmp_path / 'inside'}"]
    words = "another_type or (no_text and 3) or (texts_of and number) or (timeouts and nan)"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *options, "-k", words, QUEUE, BROKER],
        timeout=60,  # for a test that waits on an unchecked argument
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    for name, tests in NOTICED.items():
        for test in tests:
            assert f"FAILED {test}" in done.stdout, f"nothing is noticed without {name}: {test}"
