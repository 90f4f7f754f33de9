"""A hostile peer never crashes or hangs a process with a service (tests/kit/service/fuzz.py).

`make fuzz-service` does the same for as long as you like; HOLDFAST_SEED repeats a run's choices.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Corrupt, Event, Queue, Service, _core
from tests.kit import overwriting
from tests.kit.processes import Child, tell
from tests.kit.service.fuzz import PLOT
from tests.kit.service.hostile import PLACES
from tests.kit.slices import Seed, pick, seeds

Start = Callable[..., Child]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds("hostile to services", test=1, nightly=2))
def test_every_word_in_every_state(seed: Seed, counts: Callable[[str], None]) -> None:
    """Each word of header, table, controls, participants, notices, logs, samples, calls and data."""
    report = overwriting.run(
        PLOT,
        int(seed),
        share=pick(test=0.0012, nightly=0.2),
        scattered_count=pick(test=200, nightly=10_000),
        scribbling_s=pick(test=1.0, nightly=20.0),
    )
    counts(report.words())
    assert report.problems == []
    assert report.cases > pick(test=400, nightly=20_000)
    assert report.told > report.cases / 5
    assert set(report.by_state) == set(PLACES)


def test_a_victim_that_crashes_is_a_problem() -> None:
    """The fuzzer sees a crash, and goes on with the next case."""
    report = overwriting.run(PLOT, 1, share=0.0, scattered_count=2 * len(PLACES), crash_at=1)
    assert f"status {-signal.SIGSEGV}" in " ".join(report.problems)
    assert report.cases == len(PLACES)


# -- samples are read-only ----------------------------------------------------------------------------


class Clock(Service):
    tick = Event(size=64, samples=6)


def overwrite(how: str) -> None:
    """In a child: take a sample, and write to its memory."""
    import ctypes

    import numpy

    from holdfast import Event, Service

    class Clock(Service):
        tick = Event(size=64, samples=6)

    with Clock.find("a", timeout=10) as proxy:
        ticks = proxy.tick.subscribe(history=1)
        sample = ticks.take(timeout=10)
        array = numpy.frombuffer(sample.data, "u1")
        assert not array.flags.writeable
        tell(bytes(sample.data))
        address = array.ctypes.data
        if how == "before":
            address = address // 4096 * 4096  # sequence numbers and index of the element
        ctypes.memset(address, 0x5A, 1)
        tell("overwritten")


@pytest.mark.parametrize("how", ["sample", "before"])
def test_a_consumer_cannot_change_a_sample(start: Start, runtime_directory: Path, how: str) -> None:
    with Clock.offer("a") as skeleton, Clock.find("a") as other:
        skeleton.tick.send(b"as it was")
        child = start(overwrite, how)
        assert child.hear() == b"as it was"
        child.wait(-signal.SIGSEGV)
        with other.tick.subscribe(history=1).take(0) as sample:
            assert bytes(sample.data) == b"as it was"
        assert skeleton.reap() + skeleton.stats().recovered >= 1
        assert skeleton.check() == []


# -- files that are not a service ---------------------------------------------------------------------


def open_and_look(path: str) -> None:
    """In a child: a crash is a finding. Tells which errors there were."""
    from pathlib import Path

    from holdfast import Event, HoldfastError, Service, _core

    class Clock(Service):
        tick = Event(size=64, samples=6)

    where = str(Path(path).parent)
    errors = []
    for act in (
        lambda: Clock.find("a", 0),
        lambda: Service.of("Clock.a"),
        lambda: _core.ServiceProxy(where, "Clock.a", "x"),
        lambda: _core.inspect_service(where, "Clock.a"),
        lambda: Clock.find_all(),
        lambda: Clock.offer("a").close(),
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
    path = directory / "holdfast.service.Clock.a"
    with Clock.offer("a") as skeleton:
        skeleton.tick.send(b"x")
        return path, path.read_bytes()


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.9, 0.9999])
def test_a_truncated_file(start: Start, runtime_directory: Path, share: float) -> None:
    path, whole = made(runtime_directory)
    path.write_bytes(whole[: int(share * len(whole))])
    errors = errors_of(start, path)
    assert set(errors[:3]) <= {"Corrupt", "NotFound"}
    assert errors[2] == "Corrupt"
    assert errors[3:] == ["", "", ""], "an offer creates anew what no process uses"


@pytest.mark.parametrize("length", [1, 4096, 20480, 100_000])
def test_random_bytes_as_a_file(start: Start, runtime_directory: Path, length: int) -> None:
    path = runtime_directory / "holdfast.service.Clock.a"
    path.write_bytes(random.Random(length).randbytes(length))
    assert errors_of(start, path)[2] == "Corrupt"


def test_a_queue_under_a_services_name(start: Start, runtime_directory: Path) -> None:
    path = runtime_directory / "holdfast.service.Clock.a"
    Queue.create("a", capacity=2048).detach()
    path.write_bytes((runtime_directory / "holdfast.queue.a").read_bytes())
    errors = errors_of(start, path)
    assert errors[:3] == ["Corrupt", "Corrupt", "LayoutMismatch"]
    assert errors[3:] == ["", "", ""]


def test_random_bytes_behind_a_good_header(start: Start, runtime_directory: Path) -> None:
    """The table of elements has a sum of its own."""
    for seed in seeds("service noise", test=3):
        path, whole = made(runtime_directory)
        path.write_bytes(whole[:4096] + random.Random(seed).randbytes(len(whole) - 4096))
        with pytest.raises(Corrupt, match="table of elements"):
            _core.ServiceProxy(str(runtime_directory), "Clock.a", "x")
        assert _core.inspect_service(str(runtime_directory), "Clock.a")["faults"]
        path.unlink()
