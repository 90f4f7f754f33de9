"""Check that forbidden calls are refused: run small trees of tests with this conftest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.tiers import taken_s

BUSY = """
import pytest, time
from tests.kit import tiers
tiers.pressure_s = lambda what='cpu': 0.0  # a busy machine would excuse it
tiers.Stopwatch.idle_s = lambda self: 0.0  # then a wait for a processor counts as an idle one
def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
"""
AROUND = f"""{BUSY}
@pytest.fixture
def busy():
    work(0.6)
    yield
    work(0.6)
def test_around(busy):
    assert busy is None
"""
SHARED = f"""{BUSY}
@pytest.fixture(scope='module')
def busy():
    work(1.2)
def test_shared(busy):
    assert busy is None
"""
BUSY += "def test_busy():\n    work(1.2)\n"
SLEEPS = "import time\ndef test_sleeps():\n    time.sleep(0.1)\n"
PAUSES = "import asyncio\ndef test_pauses():\n    asyncio.run(asyncio.wait_for(pause(), 5))\n"
PAUSES += "async def pause():\n    await asyncio.sleep(0.1)\n"
VIRTUAL = """
import asyncio
from tests.kit.sim.loop import SimLoop
from tests.kit.sim.randomness import SeededRandomness
async def pause():
    await asyncio.sleep(3600)
def test_virtual():
    loop = SimLoop(SeededRandomness(1))
    loop.run_until_complete(pause())
    loop.close()
"""
STARTS = "import subprocess\ndef test_starts():\n    subprocess.run(['true'])\n"
FORKS = "import os\ndef test_forks():\n    os.waitpid(os.fork() or os._exit(0), 0)\n"
SWALLOWS = "import subprocess\ndef test_swallows():\n    try:\n        subprocess.run(['true'])\n"
SWALLOWS += "    except AssertionError:\n        pass\n"
SPAWNS = "import multiprocessing\ndef test_spawns():\n"
SPAWNS += "    multiprocessing.get_context('spawn').Process(target=print).start()\n"
LIBRARY = "import ctypes\ndef test_library():\n    ctypes.CDLL(None).system(b'true')\n"
NAPS = "from time import sleep as nap\ndef test_naps():\n    nap(0.1)\n"
IMPORTS = "import subprocess\nsubprocess.run(['true'])\ndef test_imports():\n    assert subprocess\n"
WAITS = """
import threading
from tests.kit import tiers
tiers.pressure_s = lambda what='cpu': 0.0  # a busy machine would excuse it
def test_waits():
    assert not threading.Event().wait(1.1)
"""
LATE = "import pytest\n@pytest.mark.nightly\ndef test_late():\n    assert 'nightly' in 'nightly'\n"
FINE = "def test_fine(counts):\n    counts('3 tries')\n"


PLANTED = {
    "sleeps": SLEEPS,
    "pauses": PAUSES,
    "virtual": VIRTUAL,
    "starts": STARTS,
    "forks": FORKS,
    "spawns": SPAWNS,
    "library": LIBRARY,
    "naps": NAPS,
    "late": LATE,
    "fine": FINE,
}
SLOW = {"unit": {"busy": BUSY, "around": AROUND, "shared": SHARED}, "process": {"busy": BUSY}}


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
    by_day = {**os.environ, "HOLDFAST_NIGHTLY": ""}  # also when this test runs at night
    done = subprocess.run(
        [*command, "tests"], cwd=root, env=by_day, capture_output=True, text=True, timeout=300
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run every planted test in each folder of `make check` and another; return the output."""
    folders = ("unit", "conformance", "simulation", "process")
    planted = {
        f"{folder}/test_{name}.py": text
        for folder in folders
        for name, text in {**PLANTED, **SLOW.get(folder, {})}.items()
    }
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
        ("pauses", "asyncio.sleep(0.1) in a test of `make check`"),
        ("naps", "time.sleep(0.1) in a test of `make check`"),
        ("spawns", "multiprocessing in a test of `make check`"),
        ("library", "system() in a test of `make check`"),
    ],
)
def test_no_process_and_no_sleep_in_check(told: str, folder: str, name: str, words: str) -> None:
    assert f"FAILED tests/{folder}/test_{name}.py::test_{name} - AssertionError" in told
    assert words in told


@pytest.mark.parametrize("name", ["busy", "around"])
def test_a_unit_test_over_a_second_fails(told: str, name: str) -> None:
    """Also where its own fixture takes the time."""
    assert f"ERROR tests/unit/test_{name}.py::test_{name} - Failed: took " in told
    assert "a test in tests/unit may take 1.0 s" in told


@pytest.mark.parametrize("name", ["shared", "virtual"])
def test_shared_fixtures_and_virtual_time_do_not_count(told: str, name: str) -> None:
    assert f"PASSED tests/unit/test_{name}.py::test_{name}" in told
    assert f"ERROR tests/unit/test_{name}.py" not in told


@pytest.mark.parametrize(
    ("elapsed", "processor", "pressed", "taken"),
    [
        pytest.param(1.5, 0.1, 0.0, 1.5, id="waits on a quiet machine"),
        pytest.param(5.0, 0.4, 4.5, 0.5, id="a busy machine"),
        pytest.param(5.0, 2.4, 5.0, 1.2, id="works, on a busy machine"),
        pytest.param(1.4, 1.4, 0.0, 1.4, id="works, on a quiet machine"),
    ],
)
def test_what_a_test_takes(elapsed: float, processor: float, pressed: float, taken: float) -> None:
    assert taken_s(elapsed, processor, pressed) == pytest.approx(taken)


@pytest.mark.parametrize("name", ["starts", "forks", "sleeps", "pauses", "busy", "fine"])
def test_other_folders_may(told: str, name: str) -> None:
    assert f"PASSED tests/process/test_{name}.py::test_{name}" in told


def test_what_a_run_says_of_itself(told: str) -> None:
    lines = told.splitlines()
    assert lines.count("test_fine: 3 tries") == 4
    assert ["process", "10", "passed"] in [line.split()[:3] for line in lines]
    assert any(line.endswith(" s  tests/process/test_busy.py::test_busy") for line in lines)
    assert "slowest 20 tests" in told
    assert "4 deselected" in told


def test_a_folder_that_nobody_knows(tmp_path: Path) -> None:
    status, told = run(tmp_path, {"units/test_it.py": FINE})
    assert status != 0
    assert "a test belongs into one of tests/{unit,conformance," in told


@pytest.fixture(scope="module")
def told_at_night(tmp_path_factory: pytest.TempPathFactory) -> str:
    planted = {
        "process/test_late.py": LATE,
        "unit/test_imports.py": IMPORTS,
        "simulation/test_swallows.py": SWALLOWS,
        "conformance/test_waits.py": WAITS,
    }
    options = ("--nightly", "--continue-on-collection-errors")
    return run(tmp_path_factory.mktemp("night"), planted, *options)[1]


def test_nightly(told_at_night: str) -> None:
    assert "PASSED tests/process/test_late.py::test_late" in told_at_night


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("unit/test_imports.py - AssertionError", "subprocess.Popen in a test of"),
        ("simulation/test_swallows.py::test_swallows", "Failed: subprocess.Popen in a test of"),
        ("conformance/test_waits.py::test_waits", "a test in tests/conformance waits for events"),
    ],
)
def test_what_is_not_refused_on_the_spot(told_at_night: str, where: str, words: str) -> None:
    """A process at import, a refusal that is caught, and a wait without a guard."""
    assert f"ERROR tests/{where}" in told_at_night
    assert words in told_at_night


def test_a_folder_is_chosen_by_its_mark(tmp_path: Path) -> None:
    """`-m unit` runs only tests of tests/unit, although no test file has a mark."""
    planted = {f"{folder}/test_fine.py": FINE for folder in ("unit", "simulation", "process")}
    status, told = run(tmp_path, planted, "-m", "unit")
    assert (status, "1 passed, 2 deselected" in told) == (0, True), told
    assert "PASSED tests/unit/test_fine.py::test_fine" in told
