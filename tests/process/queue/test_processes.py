"""Queues and the life of processes: fork, exec, multiprocessing, the end of an interpreter."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import Empty, Queue, Timeout
from tests.kit.processes import Start, hear, process_state, tell, until
from tests.kit.queue.queues import drain, echo
from tests.kit.queue.segments import waiting

# -- fork -------------------------------------------------------------------------------------------------


def fork_and_use(name: str) -> None:
    q = Queue.open(name)
    q.put(b"before")
    message = q.get(timeout=0)
    view = message.data
    pid = os.fork()
    if pid == 0:
        calls: dict[str, Callable[[], object]] = {
            "put": lambda: q.put(b"child"),
            "get": lambda: q.get(timeout=0),
            "close": lambda: q.close(),
            "purge": lambda: q.purge(),
            "stats": lambda: q.stats(),
            "arm": lambda: q.arm(),
            "data": lambda: message.data,
        }
        for label, call in calls.items():
            try:
                call()
                tell((label, "no error"))
            except holdfast.Misuse as error:
                tell((label, str(error)))
        tell((q.attached, bytes(view)))
        message.settle()  # never was the child's
        view.release()
        q.detach()
        with Queue.open(name) as own:
            own.put(b"from the child")
        del q, message, view
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    tell(bytes(view))
    view.release()
    message.settle()
    tell(q.get_bytes(timeout=0))
    q.detach()


def test_a_forked_child_must_open_the_queue_itself(q: Queue, start: Start) -> None:
    parent = start(fork_and_use, "q")
    for label in ("put", "get", "close", "purge", "stats", "arm", "data"):
        assert parent.hear() == (
            label,
            "queue q was opened before fork(), and a child has no slot of its own; "
            "call Queue.open() in the child",
        )
    assert parent.hear() == (False, b"before")
    assert parent.hear() == b"before", "the parent's message is untouched by what the child did"
    assert parent.hear() == b"from the child"
    parent.wait()
    stats = q.stats()
    assert (stats.put, stats.settled, stats.given_back, stats.taken) == (2, 2, 0, 0)
    assert q.check() == []


def fork_and_die(name: str) -> None:
    q = Queue.open(name)
    message = q.get(timeout=0)
    pid = os.fork()
    if pid == 0:
        tell(os.getpid())
        hear()
        os._exit(0)
    tell(bytes(message))
    signal.pause()


def test_a_parents_death_is_noticed_while_its_child_lives(q: Queue, start: Start) -> None:
    q.put(b"x")
    parent = start(fork_and_die, "q")
    told = {parent.hear(), parent.hear()}
    assert b"x" in told
    (child_pid,) = told - {b"x"}
    with pytest.raises(Empty):
        q.get(timeout=0)
    parent.kill()
    assert process_state(child_pid) not in ("", "Z")
    with q.get(timeout=10) as message:
        assert (bytes(message), message.redelivered) == (b"x", 1)
    assert process_state(child_pid) not in ("", "Z"), "it lived all the time"


def fork_while_waiting(name: str) -> None:
    q = Queue.open(name)
    got: list[bytes] = []
    thread = threading.Thread(target=lambda: got.append(q.get_bytes(timeout=20)))
    thread.start()
    tell("waits")
    hear()
    for _ in range(20):  # another thread is in the middle of a wait
        if os.fork() == 0:
            os._exit(0)
        os.wait()
    tell("forked")
    thread.join()
    tell(got)


def test_fork_while_a_thread_waits(q: Queue, start: Start) -> None:
    child = start(fork_while_waiting, "q")
    assert child.hear() == "waits"
    until(lambda: waiting("q", "data"))
    child.tell("fork")
    assert child.hear() == "forked"
    q.put(b"x")
    assert child.hear() == [b"x"]
    child.wait()


# -- exec -------------------------------------------------------------------------------------------------


def become_another_program(name: str) -> None:
    q = Queue.open(name)
    message = q.get(timeout=0)
    tell(bytes(message))
    os.execv(sys.executable, [sys.executable, "-c", "import sys; sys.stdin.read()"])


def test_exec_lets_go_of_everything(q: Queue, start: Start) -> None:
    q.put(b"x")
    child = start(become_another_program, "q")
    assert child.hear() == b"x"
    with q.get(timeout=10) as message:
        assert (bytes(message), message.redelivered) == (b"x", 1)
    assert child.alive, "the process lives, as another program"


# -- multiprocessing --------------------------------------------------------------------------------------


def spawn_an_echo(method: str) -> None:
    import multiprocessing

    from tests.kit.queue.queues import echo

    context: Any = multiprocessing.get_context(method)
    there, back = Queue.open("there"), Queue.open("back")
    process = context.Process(target=echo, args=(there, back))
    process.start()
    there.put_many([b"abc", b"xyz"])
    tell([back.get_bytes(timeout=20) for _ in range(2)])
    there.close()
    process.join()
    tell(process.exitcode)
    there.detach()
    back.detach()


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_queue_as_an_argument_of_a_process(start: Start, method: str) -> None:
    assert echo.__module__ == "tests.kit.queue.queues"
    with Queue.create("there", capacity=4096) as there, Queue.create("back", capacity=4096):
        child = start(spawn_an_echo, method)
        assert child.hear() == [b"cba", b"zyx"]
        assert child.hear() == 0
        child.wait()
        assert there.stats().settled == 2


def use_after_mp_fork(name: str) -> None:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    q = Queue.open(name)
    near, far = context.Pipe()

    def work() -> None:
        try:
            q.put(b"inherited")
        except holdfast.Misuse as error:
            tell(str(error))
        sent = far.recv()  # pickled: it opens itself
        sent.put(b"sent")
        sent.detach()

    process = context.Process(target=work)
    process.start()
    near.send(q)
    process.join()
    tell(process.exitcode)
    tell(q.get_bytes(timeout=0))


def test_with_fork_a_queue_is_sent_not_inherited(q: Queue, start: Start) -> None:
    child = start(use_after_mp_fork, "q")
    assert "opened before fork()" in child.hear()
    assert child.hear() == 0
    assert child.hear() == b"sent"
    child.wait()


# -- the end of an interpreter ----------------------------------------------------------------------------


def end_with_a_message(name: str, how: str) -> None:
    global q, message, batch, view  # as a script would have them
    q = Queue.open(name)  # type: ignore[name-defined]
    message = q.get(timeout=0)  # type: ignore[name-defined]
    batch = q.get_many(2)  # type: ignore[name-defined]
    view = message.data if how == "view" else None  # type: ignore[name-defined]
    tell([bytes(message), *batch.tobytes()])  # type: ignore[name-defined]
    if how == "exception":
        raise ZeroDivisionError
    if how == "exit":
        sys.exit(5)
    if how == "os._exit":
        os._exit(5)
    if how == "SIGTERM":
        os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(
    ("how", "status"),
    [("end", 0), ("view", 0), ("exception", 1), ("exit", 5), ("os._exit", 5), ("SIGTERM", -signal.SIGTERM)],
)
def test_an_interpreter_ends_with_messages_in_hand(q: Queue, start: Start, how: str, status: int) -> None:
    q.put_many([b"a", b"b", b"c", b"d"])
    child = start(end_with_a_message, "q", how)
    assert child.hear() == [b"a", b"b", b"c"]
    child.wait(status)
    q.recover()
    seen = []
    for _ in range(4):
        with q.get(timeout=10) as message:
            seen.append((bytes(message), message.redelivered))
    assert seen == [(b"a", 1), (b"b", 1), (b"c", 1), (b"d", 0)]
    assert [each.pid for each in q.stats().participants] == [os.getpid()]
    assert "Fatal" not in child.errors()
    assert q.check() == []


def end_while_threads_wait(name: str) -> None:
    q = Queue.open(name)
    for _ in range(3):
        threading.Thread(target=q.get, daemon=True).start()
    until(lambda: q.stats().participants)
    tell("ends")


def test_an_interpreter_ends_while_daemon_threads_wait(q: Queue, start: Start) -> None:
    child = start(end_while_threads_wait, "q")
    child.hear()
    child.wait()
    q.put(b"x")
    assert q.get_bytes(timeout=10) == b"x"
    assert "Fatal" not in child.errors()


# -- death ------------------------------------------------------------------------------------------------


def hold_and_wait(name: str) -> None:
    q = Queue.open(name)
    message = q.get(timeout=0)
    tell(bytes(message))
    hear()


def test_a_blocked_get_goes_on_after_a_kill(q: Queue, start: Start) -> None:
    q.put(b"x")
    child = start(hold_and_wait, "q")
    child.hear()
    with pytest.raises(Timeout):
        q.get(timeout=0.05)
    child.kill()
    with q.get(timeout=10) as message:
        assert message.redelivered == 1


def count_up(name: str) -> None:
    q = Queue.open(name)
    i = 0
    while True:
        q.put(b"%d" % i)
        i += 1


def test_what_a_killed_producer_put_is_there_in_order(start: Start) -> None:
    with Queue.create("q", capacity=1 << 14) as q:
        child = start(count_up, "q")
        got = [q.get_bytes(timeout=10) for _ in range(1000)]
        child.kill()
        got += drain(q)
        assert got == [b"%d" % i for i in range(len(got))]
        assert q.stats().put <= len(got) <= q.stats().put + 1, "a put may count after it took effect"
        q.put(b"x" * q.message_size_max, timeout=1)
        assert q.check() == []
