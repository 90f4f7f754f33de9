"""A planted bug is found, reduced and kept in a simulated night; then `make test` fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit import ROOT, nightly, slices, torture
from tests.kit.growth import months
from tests.kit.growth.figures import COUNT, Run
from tests.kit.nightly import Storm

PLANTED = """
from holdfast.broker.dispatch.dispatcher import Dispatcher

once = Dispatcher.flow


def twice(self, consumer, permits):
    once(self, consumer, permits)
    once(self, consumer, permits)


Dispatcher.flow = twice
"""
"""A consumer's permits count twice."""


QUICK = [each for name in ("cacheprovider", "schemathesis", "anyio") for each in ("-p", f"no:{name}")]
"""Plugins that these runs do without."""


@dataclass(frozen=True)
class Runs:
    """Runs pytest with a file and a folder of its own for what is kept."""

    folder: Path

    def __call__(self, *arguments: str, night: bool = False) -> subprocess.CompletedProcess[str]:
        alone = [] if "-n" in arguments else ["-p", "no:xdist"]
        return self.python("-m", "pytest", *QUICK, *alone, *arguments, night=night)

    def python(self, *arguments: str, night: bool = False) -> subprocess.CompletedProcess[str]:
        known = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=known
            | {
                "HOLDFAST_KEPT": str(self.folder / "kept.json"),
                "HOLDFAST_EXAMPLES": str(self.folder / "examples"),
                "HOLDFAST_NIGHTLY": "1" if night else "",
                "HOLDFAST_NIGHT": "7",
                "PYTHONPATH": f"{self.folder}{os.pathsep}{os.environ['PYTHONPATH']}",
            },
            capture_output=True,
            text=True,
        )

    def kept(self) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = json.loads((self.folder / "kept.json").read_text())
        return found


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    (tmp_path / "kept.json").write_text("{}")
    (tmp_path / "planted.py").write_text(PLANTED)
    return Runs(tmp_path)


@pytest.mark.timeout(300)
def test_a_planted_bug_is_found_reduced_kept_and_replayed(runs: Runs) -> None:
    found = runs("--nightly", "-p", "planted", "tests/simulation/test_dispatch.py", night=True)
    assert found.returncode == 1, found.stdout + found.stderr
    [[seed, length]] = runs.kept()["dispatch"]
    assert seed >= 7_000_000, "the seeds of that night"
    assert 0 < length < nightly.STORMS["dispatch"].length
    assert f"dispatch: seed {seed}, length {length} of 200" in found.stdout
    replayed = runs("-p", "planted", "tests/simulation/test_kept.py")
    assert replayed.returncode == 1
    assert f"('dispatch', {seed}, {length}, " in replayed.stdout
    mended = runs("tests/simulation/test_kept.py")
    assert mended.returncode == 0, mended.stdout
    assert "1 kept failures replayed" in mended.stdout


def test_a_failing_example_of_a_model_is_kept_as_it_was_reduced(runs: Runs) -> None:
    """With a single example `make test` would not find it by itself."""
    test = runs.folder / "test_example.py"
    test.write_text(
        "from hypothesis import given, strategies as st\n"
        "from tests.kit.examples import examples\n"
        "@examples(1, 1000)\n"
        "@given(st.integers(0, 1_000_000))\n"
        "def test_small(n):\n"
        "    assert n < 777\n"
    )
    where = ["--rootdir", str(runs.folder), str(test)]
    assert runs(*where).returncode == 0
    assert runs(*where, night=True).returncode == 1
    replayed = runs(*where)
    assert replayed.returncode == 1
    assert "assert 777 < 777" in replayed.stdout


def test_a_seed_in_a_loop_is_kept_too(runs: Runs) -> None:
    """The night cannot make that storm shorter: its own test replays the seed."""
    test = runs.folder / "test_loop.py"
    test.write_text(
        "from tests.kit.slices import seeds\n"
        "def test_storms():\n"
        "    for seed in seeds('example', test=2, nightly=9):\n"
        "        assert seed != 7_000_004\n"
    )
    where = ["--rootdir", str(runs.folder), "-p", "tests.kit.keeping", str(test)]
    assert runs(*where).returncode == 0
    assert runs(*where, night=True).returncode == 1
    assert runs.kept() == {"example": [7_000_004]}
    assert runs(*where).returncode == 1


HANGS = """
import ctypes, os
import pytest
from tests.kit.slices import seeds
@pytest.mark.parametrize("seed", seeds("crash", test=1, nightly=4))
def test_crashes(seed):
    assert seed != 7_000_002 or os.abort()
def test_hangs():
    for seed in seeds("hang", test=1, nightly=4):
        assert seed != 7_000_003 or ctypes.PyDLL(None).sleep(60)
"""


def test_a_test_that_hangs_or_crashes_is_kept_too(runs: Runs) -> None:
    """The process ends, also if it holds the GIL: the seed is in its note."""
    test = runs.folder / "test_hangs.py"
    test.write_text(HANGS)
    where = ["--rootdir", str(runs.folder), "-p", "tests.kit.keeping", str(test)]
    found = runs(*where, "-n", "1", "--timeout", "1", night=True)
    assert found.returncode == 1, found.stdout + found.stderr
    assert runs.kept() == {"crash": [7_000_002], "hang": [7_000_003]}
    assert not any(note.read_bytes() for note in (runs.folder / "running").iterdir())


FUZZ = """
import sys
from pathlib import Path
from holdfast import Queue
from tests.kit.queue import fuzz, hostile

AT = hostile.SIDES + 300
once = hostile.Scene.__init__
def made(self, directory, *more, **others):
    hostile.Scene.at_work = directory
    once(self, directory, *more, **others)
def stats(self):
    file = Path(hostile.Scene.at_work, "holdfast.queue.q")
    assert file.read_bytes()[AT] == 0
if PLANTED:
    hostile.Scene.__init__ = made
    Queue.stats = stats
sys.exit(fuzz.main())
"""


def test_a_case_of_the_hostile_fuzzer_is_kept_and_replayed(runs: Runs) -> None:
    """Of up to 256 random bytes the decisive one is kept, and replayed alone."""

    def fuzz(*options: str, planted: bool = True, night: bool = False) -> subprocess.CompletedProcess[str]:
        program = FUZZ.replace("PLANTED", str(planted))
        return runs.python("-c", program, *options, "--scribble", "0", night=night)

    found = fuzz("--only", "ready", "--share", "0", "--random", "300", night=True)
    assert found.returncode == 1, found.stdout + found.stderr
    [case] = runs.kept()["hostile cases"]
    assert (case["state"], case["target"]["width"], case["target"]["offset"]) == ("ready", 1, 12_588)
    replayed = fuzz("--kept")
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
    assert "1 cases in" in replayed.stdout
    assert "1 bytes at 12588" in replayed.stdout
    mended = fuzz("--kept", planted=False)
    assert (mended.returncode, "1 cases in" in mended.stdout) == (0, True), mended.stdout + mended.stderr


# -- making it shorter --------------------------------------------------------------------------------


def breaks_at(step: int) -> Storm:
    def run(seed: int, length: int) -> None:
        assert length < step
        if length < step // 2:
            raise ValueError("another fault, of a storm that is too short to be checked")

    return Storm(run, length=200)


def test_the_shortest_storm_fails_in_the_same_place() -> None:
    assert nightly.shortest("", breaks_at(37), seed=1) == 37
    assert nightly.shortest("", breaks_at(200), seed=1) == 200
    assert nightly.shortest("", breaks_at(500), seed=1) == 1, "the other fault is one, too"


def test_a_storm_that_does_not_fail_again_is_kept_as_a_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.json"
    path.write_text("{}")
    monkeypatch.setenv("HOLDFAST_KEPT", str(path))
    monkeypatch.setitem(nightly.STORMS, "sound", Storm(lambda seed, length: None, length=8))
    assert nightly.keep("sound", 5) == "sound: seed 5"
    assert slices.kept("sound") == [5]
    assert slices.reduced("sound") == []
    assert next(iter(slices.seeds("sound", test=2))) == 5


def test_a_figure_that_grows_is_kept_with_the_fewest_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leaks(directory: Path, rounds: Iterable[int], warm_up: int) -> Run:
        run = Run("planted", warm_up)
        for number in rounds:
            run.note({"names": (COUNT, float(number))})
        return run

    path = tmp_path / "kept.json"
    path.write_text("{}")
    monkeypatch.setenv("HOLDFAST_KEPT", str(path))
    monkeypatch.setattr(torture, "NIGHTLY", True)
    monkeypatch.setitem(months.PLANS, "planted", leaks)
    monkeypatch.setitem(nightly.STORMS, "months planted", replace(nightly.months_plan("planted"), tries=1))
    monkeypatch.setattr(sys, "argv", ["torture", "--months", "--plan", "planted"])
    assert torture.main() == 1
    [[seed, rounds]] = slices.reduced("months planted")
    assert (seed, rounds < months.ROUNDS) == (0, True)
