"""Close descriptors under a process and reuse their numbers: no other file is harmed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import holdfast
from holdfast import HoldfastError, Queue
from tests.kit.processes import Start, hear, tell

CAPACITY = 1 << 12


def hold(name: str) -> None:
    """Holds a message until it is told to settle it."""
    q = Queue.open(name)
    message = q.get(timeout=5)
    tell(bytes(message))
    hear()
    message.settle()
    tell("settled")


def closed_under(name: str, then: str) -> None:
    """As a daemoniser does it; the numbers are in use again before the queue is."""
    directory = Path(os.environ["HOLDFAST_RUNTIME_DIR"])
    q = Queue.open(name)
    tell("attached")
    hear()
    os.closerange(3, 64)
    numbers: list[int] = []
    queues: list[Queue] = []
    if then == "strangers":
        numbers = [os.open(directory / f"stranger{n}", os.O_RDWR | os.O_CREAT) for n in range(60)]
    elif then == "the segment":
        numbers = [os.open(directory / f"holdfast.queue.{name}", os.O_RDWR) for _ in range(60)]
    elif then == "another queue":
        queues = [Queue.open("other") for _ in range(8)]
    elif then == "itself anew":
        queues = [Queue.open(name)]
    told = []
    calls = {"recover": (), "get": (0.05,), "put": (b"mine", 0.05)}
    for call, args in calls.items():
        try:
            getattr(q, call)(*args)
            told.append(("went", call))
        except holdfast.HoldfastError as error:
            told.append((type(error).__name__, str(error)))
    tell(told)
    if then == "itself anew":
        queues[0].put(b"anew")
        tell(queues[0].get_bytes(timeout=0))
    del q
    import gc

    gc.collect()
    if numbers:
        tell(sum(os.fstat(fd).st_size >= 0 for fd in numbers))  # the queue closed no number
    if queues:
        tell(sum(each.attached for each in queues))
        queues[0].put(b"still there")
        tell(queues[0].get_bytes(timeout=0))
    hear()


@pytest.mark.parametrize("then", ["nothing", "strangers", "the segment", "another queue", "itself anew"])
def test_a_living_owner_is_not_robbed(start: Start, then: str) -> None:
    with (
        Queue.create("q", capacity=CAPACITY) as q,
        Queue.create("other", capacity=CAPACITY, participants=16) as other,
    ):
        q.put(b"held")
        holder = start(hold, "q")
        assert holder.hear() == b"held"
        victim = start(closed_under, "q", then)
        assert victim.hear() == "attached"
        victim.tell("go")
        told = victim.hear()
        for kind, words in told:
            assert kind == "Misuse"
            assert "closed" in words
            assert "Call Queue.open() again" in words
        assert q.stats().handed_on == 0, "nobody was believed dead"
        if then == "itself anew":
            assert victim.hear() == b"anew"
        if then in ("strangers", "the segment"):
            assert victim.hear() == 60
        elif then != "nothing":
            assert victim.hear() == (8 if then == "another queue" else 1)
            assert victim.hear() == b"still there"
        holder.tell("settle")
        assert holder.hear() == "settled"
        victim.tell("end")
        victim.wait()
        holder.wait()
        assert q.check() == other.check() == []
        assert q.stats().settled - (2 if then == "itself anew" else 0) == 1


def test_the_descriptor_of_an_event_loop_is_used_again(start: Start, tmp_path: Path) -> None:
    """Neither a ring nor the end of the queue touches the new file of `fileno()`."""

    def body(path: str) -> None:
        q = Queue.open("q")
        number = q.fileno()
        q.arm()
        os.closerange(3, 64)
        numbers = [os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(60)]
        tell(number in numbers)
        hear()
        try:
            q.fileno()
            tell("went")
        except holdfast.Misuse as error:
            tell(str(error))
        q._signal.set()  # type: ignore[union-attr]
        q.detach()
        del q
        tell((Path(path).stat().st_size, sum(os.fstat(each).st_nlink for each in numbers)))

    with Queue.create("q", capacity=CAPACITY) as q:
        child = start(body, str(tmp_path / "stranger"))
        assert child.hear() is True
        q.put(b"x")
        child.tell("go on")
        assert "open it again" in child.hear()
        assert child.hear() == (0, 60)
        child.wait()


def test_a_child_that_was_forked_while_the_waiter_rang(start: Start) -> None:
    """The waiter's thread holds the signal's lock at the fork; the child cannot release it."""

    def body() -> None:
        q = Queue.open("q")
        q.fileno()
        signal = q._signal
        assert signal is not None
        with signal._lock:
            if os.fork() == 0:
                q.detach()
                tell("left")
                os._exit(0)
            os.wait()

    with Queue.create("q", capacity=CAPACITY):
        child = start(body)
        assert child.hear() == "left"
        child.wait()


def test_the_child_of_one_whose_descriptors_were_closed(start: Start) -> None:
    """The handler of fork() does not map a stranger's file over the queue."""

    def body() -> None:
        q = Queue.open("q")
        message = q.get(timeout=5)
        view = message.data
        os.closerange(3, 64)
        strangers = [os.open("/proc/self/exe", os.O_RDONLY) for _ in range(60)]
        pid = os.fork()
        if pid == 0:
            tell(bytes(view) == b"x" * 100)
            os._exit(0)
        os.waitpid(pid, 0)
        tell(len(strangers))

    with Queue.create("q", capacity=CAPACITY) as q:
        q.put(b"x" * 100)
        child = start(body)
        assert child.hear() is True
        assert child.hear() == 60
        child.wait()


def test_a_segment_that_is_removed_or_replaced(runtime_directory: Path) -> None:
    """Attached processes keep their queue; newcomers get the new one; the two never mix."""
    with Queue.create("q", capacity=CAPACITY) as old, Queue.open("q") as old_peer:
        old.put(b"old")
        Queue.unlink("q")
        with pytest.raises(holdfast.NotFound):
            Queue.open("q")
        assert old_peer.get_bytes(timeout=0) == b"old"
        with Queue.create("q", capacity=CAPACITY) as new, Queue.open("q") as new_peer:
            old.put(b"old again")
            new.put(b"new")
            assert new_peer.get_bytes(timeout=0) == b"new"
            assert old_peer.get_bytes(timeout=0) == b"old again"
            assert old.recover() == new.recover()
            assert old.stats().put == 2
            assert new.stats().put == 1
            (runtime_directory / "holdfast.queue.q").replace(runtime_directory / "holdfast.queue.moved")
            new.put(b"renamed")
            assert new_peer.get_bytes(timeout=0) == b"renamed"
            with pytest.raises(HoldfastError):  # its header has another name
                Queue.open("moved")


def test_a_daemon_that_opens_its_queue_anew(start: Start) -> None:
    """The remedy in the error works."""

    def body() -> None:
        q = Queue.open("q")
        os.closerange(3, 64)
        try:
            while True:
                q.get(timeout=0.02)
        except holdfast.Misuse:
            q = Queue.open("q")
        except holdfast.HoldfastError as error:
            tell(repr(error))
        q.put(b"daemon")
        q.detach()
        tell("done")

    with Queue.create("q", capacity=CAPACITY) as q:
        child = start(body)
        assert child.hear() == "done"
        assert q.get_bytes(timeout=1) == b"daemon"
        child.wait()
