"""What a folder forbids is refused: small trees of tests, run by pytest with this project's conftest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BUSY = """
import time
def test_busy():
    end = time.thread_time() + 1.2
    while time.thread_time() < end:
        pass
"""
SLEEPS = "import time\ndef test_sleeps():\n    time.sleep(0.1)\n"
WAITS = "import threading\ndef test_waits():\n    threading.Event().wait(1.2)\n"
STARTS = "import subprocess\ndef test_starts():\n    subprocess.run(['true'])\n"
FORKS = "import os\ndef test_forks():\n    os.waitpid(os.fork() or os._exit(0), 0)\n"
LATE = "import pytest\n@pytest.mark.nightly\ndef test_late():\n    assert 'nightly' in 'nightly'\n"
FINE = "def test_fine(counts):\n    counts('3 tries')\n"


PLANTED = {
    "busy": BUSY,
    "sleeps": SLEEPS,
    "waits": WAITS,
    "starts": STARTS,
    "forks": FORKS,
    "late": LATE,
    "fine": FINE,
}


def run(root: Path, planted: dict[str, str], *options: str) -> tuple[int, str]:
    """Run tests, given by their place below tests/, with this project's conftest."""
    for name, text in planted.items():
        file = root / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (root / "pytest.ini").write_text("[pytest]\nmarkers =\n    nightly: x\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "--import-mode=importlib",
        "-rA",
        *options,
    ]
    done = subprocess.run(
        [*command, "-rA", *options, "tests"], cwd=root, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run every planted test in each folder of `make check`, and in one that is not; return the output."""
    folders = ("unit", "conformance", "simulation", "process")
    planted = {f"{folder}/test_{name}.py": text for folder in folders for name, text in PLANTED.items()}
    status, told = run(tmp_path_factory.mktemp("planted"), planted)
    assert status == 1, told
    return told


@pytest.mark.parametrize("folder", ["unit", "conformance", "simulation"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("starts", "subprocess.Popen in a test of `make check`"),
        ("forks", "os.fork in a test of `make check`"),
        ("sleeps", "time.sleep(0.1) in a test of `make check`"),
    ],
)
def test_no_process_and_no_sleep_in_check(told: str, folder: str, name: str, words: str) -> None:
    assert f"FAILED tests/{folder}/test_{name}.py::test_{name} - AssertionError" in told
    assert words in told


@pytest.mark.parametrize("name", ["busy", "waits"])
def test_a_unit_test_over_a_second_fails(told: str, name: str) -> None:
    assert f"FAILED tests/unit/test_{name}.py::test_{name} - Failed: took 1." in told
    assert "a test in tests/unit may take 1.0 s" in told


@pytest.mark.parametrize("name", ["starts", "forks", "sleeps", "busy", "waits", "fine"])
def test_other_folders_may(told: str, name: str) -> None:
    assert f"PASSED tests/process/test_{name}.py::test_{name}" in told


def test_what_a_run_says_of_itself(told: str) -> None:
    lines = told.splitlines()
    assert lines.count("test_fine: 3 tries") == 4
    assert ["process", "6", "passed"] in [line.split()[:3] for line in lines]
    assert any(line.endswith(" s  tests/process/test_busy.py::test_busy") for line in lines)
    assert "slowest 20 tests" in told
    assert "4 deselected" in told


def test_a_folder_that_nobody_knows(tmp_path: Path) -> None:
    status, told = run(tmp_path, {"units/test_it.py": FINE})
    assert status != 0
    assert "a test belongs into one of tests/{unit,conformance," in told


def test_nightly(tmp_path: Path) -> None:
    status, told = run(tmp_path, {"process/test_late.py": LATE}, "--nightly")
    assert (status, "1 passed" in told) == (0, True), told
