"""The file of kept failures survives any death, and each entry is replayed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import ROOT, kept, slices
from tests.kit.nightly import STORMS
from tests.kit.queue import kept_cases, kept_spaces
from tests.kit.slices import Seed


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kept.json"
    path.write_text('{"first": [1]}')
    monkeypatch.setenv("HOLDFAST_KEPT", str(path))
    return path


def test_every_kept_failure_is_replayed() -> None:
    """A name that no storm has any more would be passed over in silence."""
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    loops = {re.sub(r"\{.*?\}", "", name).strip() for name in re.findall(r'\bseeds\(\s*f?"([^"]+)"', tests)}
    for name, entries in kept.load().items():
        for entry in entries:
            if isinstance(entry, dict):
                assert name in (kept_cases.NAME, kept_spaces.NAME), name
            elif isinstance(entry, int):
                assert any(name == loop or name.startswith(f"{loop} ") for loop in loops) or name in STORMS
            else:
                assert name in STORMS, name


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param('{"dispatch": [1, [2,', id="half written"),
        pytest.param('<<<<<<< HEAD\n{"a": [1]}\n=======\n{"a": [2]}\n>>>>>>> b\n', id="a conflict"),
        pytest.param("[1, 2]", id="a list"),
        pytest.param('{"a": 1}', id="no list"),
        pytest.param('{"a": [[1]]}', id="no length"),
        pytest.param('{"a": [true]}', id="no number"),
        pytest.param('{"a": ["1"]}', id="a string"),
    ],
)
def test_a_damaged_file_is_named(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match=re.escape(str(file))):
        kept.load()


def test_a_damaged_file_ends_a_run_at_once(file: Path) -> None:
    file.write_text("{")
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "tests/repo/test_tidy.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "resolve its merge conflict, or restore it from git" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_leaves_what_was_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        kept.add("first", 2)
    assert kept.load() == {"first": [1]}
    assert [each.name for each in file.parent.iterdir()] == ["kept.json"]


def test_a_kill_in_the_middle_leaves_what_was_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (pid := os.fork()) == 0:
        monkeypatch.setattr(os, "fsync", lambda _: os.kill(os.getpid(), signal.SIGKILL))
        kept.add("first", 2)
    os.waitpid(pid, 0)
    assert kept.load() == {"first": [1]}
    kept.add("first", 3)
    assert kept.load() == {"first": [1, 3]}


def test_two_nights_at_once_lose_nothing(file: Path) -> None:
    children = []
    for first in (100, 200):
        if (pid := os.fork()) == 0:
            try:
                for seed in range(first, first + 30):
                    kept.add("first", seed)
            finally:
                os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    assert sorted(map(str, kept.load()["first"])) == sorted(map(str, [1, *range(100, 130), *range(200, 230)]))


def test_what_was_reduced_replaces_its_seed(file: Path) -> None:
    kept.add("first", [1, 7], instead=1)
    kept.add("first", [1, 7], instead=1)
    assert kept.load() == {"first": [[1, 7]]}


def test_a_kept_seed_keeps_the_size_of_the_night(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "NIGHTLY", False)
    assert [slices.pick_for(Seed.of("first", n), test=15, nightly=200) for n in (1, 2)] == [200, 15]


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "1e3", "٣", "10000000000"])
@pytest.mark.parametrize("variable", ["HOLDFAST_NIGHT", "HOLDFAST_MINUTES"])
def test_a_night_that_is_no_number(variable: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, given)
    done = subprocess.run([ROOT / ".ci/nightly"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"make nightly: {variable}={given}: give a whole number of at most nine digits\n"
    if variable == "HOLDFAST_NIGHT":
        with pytest.raises(ValueError, match="HOLDFAST_NIGHT="):
            slices.base()


def test_a_second_night_in_one_checkout_is_refused() -> None:
    """Both would build and fuzz in the same folders."""
    (ROOT / "build").mkdir(exist_ok=True)
    with (ROOT / "build/nightly.lock").open("w") as lock:
        with contextlib.suppress(BlockingIOError):  # this test may run in a night that has it
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        wrong = os.environ | {"HOLDFAST_MINUTES": "x"}  # ends it at once, should the lock be overlooked
        done = subprocess.run(["make", "nightly"], cwd=ROOT, env=wrong, capture_output=True, text=True)
    assert "another one runs in this checkout" in done.stderr, done.stderr
    assert done.returncode != 0
