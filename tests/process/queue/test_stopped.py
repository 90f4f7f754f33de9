"""Stop a process while it recovers, attaches or detaches: the others continue, nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from holdfast import Empty, Queue, TooManyParticipants, _core
from tests.kit.processes import Child, Start, hear, tell
from tests.kit.queue.points import CASES, Book, World, uncovered
from tests.kit.queue.queues import fill

RECOVER = [each for each in _core.points() if each.startswith("recover_")]
ATTACH = [each for each in _core.points() if each.startswith("attach_")]
PARTICIPANTS = 8


def die_holding(count: int) -> None:
    """Takes messages and dies as a writer that has claimed a block."""
    q = Queue.open("q")
    tell("attached")
    hear()
    messages = q.get_many(count)
    _core.arm("put_checksum", "kill", 1)
    q.put(b"never")
    del messages


def stop_recovering(point: str, by_getting: bool) -> None:
    q = Queue.open("q")
    tell("attached")
    hear()
    _core.arm(point, "stop", 1)
    if by_getting:
        while True:
            try:
                message = q.get(timeout=0.2)
            except (holdfast.Timeout, holdfast.Empty):
                break
            tell((bytes(message), message.redelivered))
            message.settle()
    else:
        q.recover()
    tell("done")


def stop_attaching(point: str) -> None:
    _core.arm(point, "stop", 1)
    q = Queue.open("q")
    tell("attached")
    q.detach()


def make(**options: object) -> Queue:
    return Queue.create("q", capacity=1 << 11, participants=PARTICIPANTS, **options)  # type: ignore[arg-type]


def the_dead(start: Start, q: Queue, *others: Child) -> Child:
    """Puts three messages; a process dies with two of them and an unfinished block."""
    victim = start(die_holding, 2)
    for child in (victim, *others):
        assert child.hear() == "attached"
    q.put_many([b"0", b"1", b"2"])
    victim.tell("go")
    victim.wait(-signal.SIGKILL)
    q.put(b"3")
    return victim


def drained(q: Queue) -> list[tuple[bytes, int]]:
    got = []
    with suppress(Empty):
        while True:
            with q.get(timeout=0) as message:
                got.append((bytes(message), message.redelivered))
    return got


@pytest.mark.parametrize(
    ("point", "by_getting"),
    [(point, True) for point in RECOVER]
    + [
        (point, False) for point in RECOVER if point != "recover_blocking"
    ],  # only a waiting process has a block in its way
)
def test_a_stopped_recoverer_stops_nobody(start: Start, point: str, by_getting: bool) -> None:
    with make() as q:
        recoverer = start(stop_recovering, point, by_getting)
        the_dead(start, q, recoverer)
        recoverer.tell("go")
        recoverer.wait_stopped()
        got = drained(q)
        before = []
        with suppress(AssertionError):  # what the recoverer took before it stopped is its own
            while True:
                before.append(recoverer.hear(timeout=0.05))
        everything = [(b"0", 1), (b"1", 1), (b"2", 0), (b"3", 0)]
        assert sorted([*got, *before]) == everything, "each once, each count exact"
        for _ in range(3):  # all of the ring is free
            count = fill(q, b"x")
            assert count == 31
            assert len(drained(q)) == count
        assert q.check() == []
        recoverer.go_on()
        assert recoverer.hear() == "done"
        recoverer.wait()
        assert drained(q) == []
        stats = q.stats()
        assert (stats.handed_on, stats.skipped) == (2, 1), "each block was repaired once"
        assert q.check() == []


@pytest.mark.parametrize("point", ATTACH)
def test_one_that_stopped_while_joining_stops_nobody(start: Start, point: str) -> None:
    """It wants the slot of a participant that died with messages."""
    with make() as q:
        the_dead(start, q)
        joiner = start(stop_attaching, point)
        joiner.wait_stopped()
        assert sorted(drained(q)) == [(b"0", 1), (b"1", 1), (b"2", 0), (b"3", 0)]
        count = fill(q, b"x")
        assert (count, len(drained(q))) == (31, 31)
        joiner.go_on()
        assert joiner.hear() == "attached"
        joiner.wait()
        assert q.check() == []


def test_the_slot_of_the_dead_waits_for_a_stopped_recoverer(start: Start) -> None:
    """A recoverer proves a death; a joiner gets the slot only without a recoverer."""
    with Queue.create("q", capacity=1 << 11, participants=3) as q:
        recoverer = start(stop_recovering, "recover_scanned", False)
        the_dead(start, q, recoverer)
        recoverer.tell("go")
        recoverer.wait_stopped()
        with pytest.raises(TooManyParticipants):
            Queue.open("q")
        recoverer.go_on()
        assert recoverer.hear() == "done"
        with Queue.open("q") as newcomer:
            assert len(drained(newcomer)) == 4
        recoverer.wait()


def do_as_told() -> None:
    """Does each operation that it is told, and stops itself in the middle of it."""
    from tests.kit.queue.points import NAME, operate

    while True:
        directory, operation, point = hear()
        os.environ["HOLDFAST_RUNTIME_DIR"] = directory
        q = Queue.open(NAME)
        tell("attached")
        hear()
        _core.arm(point, "stop", 1)
        book = operate(q, operation)
        _core.disarm()
        q.detach()
        tell((book.put, book.settled))


@pytest.fixture(scope="module")
def worker() -> Iterator[Child]:
    """One process for all points: it goes on after each of them."""
    child = Child(do_as_told)
    yield child
    child.end()


def test_every_point_is_covered() -> None:
    assert uncovered() == set()


@pytest.mark.parametrize(("operation", "point"), CASES)
def test_one_that_stopped_at_any_point_stops_nobody(
    worker: Child, runtime_directory: Path, operation: str, point: str
) -> None:
    """While a process is stopped anywhere, others put, get, recover and create."""
    world = World(operation, lambda: told(worker, (str(runtime_directory), operation, point)))
    worker.tell("go")
    worker.wait_stopped()
    book = world.meanwhile(world.other)
    if operation == "create":
        world.meanwhile_creating()
    worker.go_on()
    world.settle(book, Book(*worker.hear()))


def told(worker: Child, words: object) -> None:
    worker.tell(words)
    assert worker.hear() == "attached"
