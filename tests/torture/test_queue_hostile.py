"""A hostile peer never crashes or hangs a reader, or harms other messages (fuzz.py).

`make fuzz` does the same for as long as you like; HOLDFAST_SEED repeats a run's choices.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Queue, _core
from tests.kit.processes import Child, tell
from tests.kit.queue import fuzz
from tests.kit.queue.hostile import STATES
from tests.kit.queue.kept_cases import NAME
from tests.kit.slices import Seed, cases, pick, seeds

Start = Callable[..., Child]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", seeds("hostile", test=1, nightly=10))
def test_every_field_in_every_state(seed: Seed, counts: Callable[[str], None]) -> None:
    """Each control word, descriptor, side word, participant's field, header's field: 0, max, ±1, random."""
    scattered, scribbled = pick(test=1000, nightly=6000), pick(test=1.0, nightly=10.0)
    report = fuzz.run(int(seed), scattered_count=scattered, scribbling_s=scribbled)
    counts(report.words())
    assert report.problems == []
    assert report.cases > 20_000
    assert report.told > 2000
    assert set(report.by_state) == set(STATES)


@pytest.mark.timeout(600)
def test_kept_cases_stay_away(counts: Callable[[str], None]) -> None:
    """Replay nightly findings exactly: the overwritten bytes, their offset, the moment, and the steps."""
    wanted = len(cases(NAME))
    if wanted:
        report = fuzz.in_a_process("--kept", f"--scribble={pick(test=2.0, nightly=60.0)}")
        assert report.problems == []
        assert report.cases == wanted
    counts(f"{wanted} kept cases replayed")


# -- files that are no queue --------------------------------------------------------------------------


def open_and_look(path: str) -> None:
    """In a child: a crash is a finding. Tells which errors there were."""
    errors = []
    for act in (
        lambda: Queue.open("q"),
        lambda: Queue.open("q", adopt=True),
        lambda: Queue.create("q", exist_ok=True),
        lambda: _core.inspect(str(Path(path).parent), "q", 0, 1 << 20, 1 << 20),
        lambda: Queue.list(),
    ):
        try:
            act()
            errors.append("")
        except holdfast.HoldfastError as error:
            errors.append(type(error).__name__)
    tell(errors)


def use_once() -> None:
    """In a child: get, put, check."""
    errors: list[object] = []
    q = Queue.open("q")
    for act in (lambda: q.get_bytes(timeout=0), lambda: q.put(b"x", timeout=0)):
        try:
            act()
        except holdfast.HoldfastError as error:
            errors.append(type(error).__name__)
    tell([*errors, len(q.check()) > 0])


def errors_of(start: Start, path: Path) -> list[str]:
    child = start(open_and_look, str(path))
    errors: list[str] = child.hear()
    child.wait()
    return errors


@pytest.mark.parametrize("length", [0, 1, 100, 4095, 4096, 4097, 8192, 12287, 16384, 20479])
def test_a_truncated_file(start: Start, runtime_directory: Path, length: int) -> None:
    Queue.create("q", capacity=2048, participants=6).detach()
    path = runtime_directory / "holdfast.queue.q"
    whole = path.read_bytes()
    assert len(whole) == 20480
    os.truncate(path, length)
    opened, adopted, created, *_ = errors_of(start, path)
    assert opened == adopted == created == "Corrupt"


@pytest.mark.parametrize("length", [1, 4096, 20480, 100_000])
def test_random_bytes_as_a_file(start: Start, runtime_directory: Path, length: int) -> None:
    path = runtime_directory / "holdfast.queue.q"
    path.write_bytes(random.Random(length).randbytes(length))
    opened, adopted, created, *_ = errors_of(start, path)
    assert opened == adopted == created == "Corrupt"


def test_random_bytes_behind_a_good_header(start: Start, runtime_directory: Path) -> None:
    """A right header before noise is reported at the latest by the first operation."""
    path = runtime_directory / "holdfast.queue.q"
    for seed in seeds("queue noise", test=5):
        Queue.create("q", capacity=2048, participants=6).detach()
        whole = path.read_bytes()
        path.write_bytes(whole[:4096] + random.Random(seed).randbytes(len(whole) - 4096))
        child = start(use_once)
        assert child.hear() == ["Corrupt", "Corrupt", True]
        child.wait()
        Queue.unlink("q")


def test_something_else_in_its_place(start: Start, runtime_directory: Path) -> None:
    path = runtime_directory / "holdfast.queue.q"
    Queue.create("other", capacity=2048).detach()
    other = runtime_directory / "holdfast.queue.other"

    def refused() -> None:
        assert "" not in errors_of(start, path)[:3]

    for target in (other, Path("nowhere"), path):
        path.symlink_to(target)
        refused()
        path.unlink()
    path.mkdir()
    refused()
    path.rmdir()
    os.mkfifo(path)
    refused()
    path.unlink()
    assert Queue.open("other").check() == []


def test_a_copy_under_another_name(start: Start, runtime_directory: Path) -> None:
    Queue.create("other", capacity=2048).detach()
    path = runtime_directory / "holdfast.queue.q"
    path.write_bytes((runtime_directory / "holdfast.queue.other").read_bytes())
    assert errors_of(start, path)[0] == "Corrupt"
