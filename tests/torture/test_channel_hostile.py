"""A hostile peer never crashes or hangs a process with a channel (tests/kit/channel/fuzz.py).

`make fuzz-channel` does the same for as long as you like; HOLDFAST_SEED repeats a run's choices.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Channel
from tests.kit import overwriting
from tests.kit.channel.fuzz import PLOT
from tests.kit.channel.hostile import PLACES
from tests.kit.processes import Child, tell
from tests.kit.slices import Seed, pick, seeds

Start = Callable[..., Child]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", seeds("hostile to channels", test=1, nightly=3))
def test_every_word_in_every_state(seed: Seed, counts: Callable[[str], None]) -> None:
    """Each word of the header, controls, participants, states, owners, entries and lengths."""
    report = overwriting.run(
        PLOT,
        int(seed),
        share=pick(test=0.04, nightly=1.0),
        scattered_count=pick(test=600, nightly=20_000),
        scribbling_s=pick(test=1.0, nightly=20.0),
    )
    counts(report.words())
    assert report.problems == []
    assert report.cases > pick(test=2000, nightly=50_000)
    assert report.told > report.cases / 4
    assert set(report.by_state) == set(PLACES)


# -- files that are not a channel ---------------------------------------------------------------------


def open_and_look(path: str) -> None:
    """In a child: a crash is a finding. Tells which errors there were."""
    from pathlib import Path

    from holdfast import Channel, HoldfastError, _core

    errors = []
    for act in (
        lambda: Channel.open("c"),
        lambda: Channel.open("c", adopt=True),
        lambda: Channel.create("c", slots=3, slot_size=64, exist_ok=True),
        lambda: _core.inspect_channel(str(Path(path).parent), "c"),
        lambda: Channel.list(),
    ):
        try:
            act()
            errors.append("")
        except HoldfastError as error:
            errors.append(type(error).__name__)
    tell(errors)


def errors_of(start: Start, path: Path) -> list[str]:
    child = start(open_and_look, str(path))
    errors: list[str] = child.hear()
    child.wait()
    return errors


def made(directory: Path) -> tuple[Path, bytes]:
    Channel.create("c", slots=3, slot_size=64).close()
    path = directory / "holdfast.channel.c"
    return path, path.read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.5, 0.9, 0.9999])
def test_a_truncated_file(start: Start, runtime_directory: Path, share: float) -> None:
    path, whole = made(runtime_directory)
    os.truncate(path, int(share * len(whole)))
    assert errors_of(start, path)[:3] == ["Corrupt"] * 3


@pytest.mark.parametrize("length", [1, 4096, 20480, 100_000])
def test_random_bytes_as_a_file(start: Start, runtime_directory: Path, length: int) -> None:
    path = runtime_directory / "holdfast.channel.c"
    path.write_bytes(random.Random(length).randbytes(length))
    assert errors_of(start, path)[:3] == ["Corrupt"] * 3


def test_a_queue_under_a_channels_name(start: Start, runtime_directory: Path) -> None:
    from holdfast import Queue

    path, _ = made(runtime_directory)
    Queue.create("c", capacity=2048).detach()
    path.write_bytes((runtime_directory / "holdfast.queue.c").read_bytes())
    assert errors_of(start, path)[0] == "LayoutMismatch"


def use_once() -> None:
    """In a child: take the roles, push, pop, check."""
    from holdfast import Channel, HoldfastError

    errors: list[object] = []
    channel = Channel.open("c")
    for act in (
        lambda: channel.producer().push(b"x"),
        lambda: channel.consumer().pop(0),
        lambda: channel.stats(),
    ):
        try:
            act()
        except HoldfastError as error:
            errors.append(type(error).__name__)
    tell([*errors, len(channel.check()) > 0])


def test_random_bytes_behind_a_good_header(start: Start, runtime_directory: Path) -> None:
    """A right header before noise is reported at the latest by the first operation."""
    for seed in seeds("channel noise", test=5):
        path, whole = made(runtime_directory)
        path.write_bytes(whole[:4096] + random.Random(seed).randbytes(len(whole) - 4096))
        child = start(use_once)
        assert child.hear() == ["Corrupt", "Corrupt", True]
        child.wait()
        Channel.unlink("c")


def test_a_victim_that_crashes_is_a_problem() -> None:
    """The fuzzer sees a crash, and goes on with the next case."""
    report = overwriting.run(PLOT, 1, share=0.0, scattered_count=2 * len(PLACES), crash_at=1)
    assert f"status {-signal.SIGSEGV}" in " ".join(report.problems)
    assert report.cases == len(PLACES)
