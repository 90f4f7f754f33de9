"""Fork in the middle of an operation, at every named point: the parent continues.

Another thread forks while one is halted at the point, or the thread itself forks. Then both continue behind
the point, the child on its private copy of the queue. The child changes nothing in the queue.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from holdfast import Empty, Queue, _core
from tests.kit.processes import Start, hear, tell
from tests.kit.queue.points import CASES, OPERATIONS, uncovered
from tests.kit.queue.queues import fill

ITSELF = {
    **{each: points for each, points in OPERATIONS.items() if each not in ("fence", "create")},
    "recover": [*OPERATIONS["recover"], "recover_blocking"],
    "put behind the dead": [],
}
"""fence_done is followed by nothing but a bell. In the middle of creating, only another thread forks."""


def test_every_point_is_covered() -> None:
    assert uncovered() == set()


def fork_beside(directory: str, cases: list[tuple[str, str]]) -> None:
    """At each point a thread stands, and another forks."""
    import shutil

    from tests.kit.queue.points import World, standing

    for operation, point in cases:
        os.environ["HOLDFAST_RUNTIME_DIR"] = place = f"{directory}/{point}"
        Path(place).mkdir()
        world = World(operation)
        with standing(world.q, operation, point) as end:
            pid = os.fork()
            if pid == 0:
                refused = 0
                for q in (world.q, world.other):
                    for call, args in {"put": (b"child", 0), "get": (0,), "recover": (), "close": ()}.items():
                        try:
                            getattr(q, call)(*args)
                        except holdfast.Misuse:
                            refused += 1
                with Queue.open("q") as anew:  # a new attachment is what it may have
                    anew.stats()
                os._exit(refused)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            book = world.meanwhile(world.other)
            mine = end()
        world.settle(book, mine)
        tell((operation, point, status))
        shutil.rmtree(place)


def test_a_thread_forks_while_another_stands_at_the_point(start: Start, runtime_directory: Path) -> None:
    child = start(fork_beside, str(runtime_directory), CASES)
    for case in CASES:
        assert child.hear() == (*case, 8), "all that the child tried was refused"
    child.wait()


def fork_in_the_middle(operation: str, point: str) -> None:
    import contextlib

    me = os.getpid()
    q = Queue.open("q")
    tell("attached")
    hear()
    _core.arm(point, "fork", 1)
    with contextlib.suppress(holdfast.Misuse):  # the child may notice before it is through
        if operation == "put":
            q.put_many([b"one", b"two"])
            q.put(b"x" * 150)  # for which there is no room before the end of the ring
        elif operation == "get":
            q.get_bytes(timeout=5)
        elif operation == "give back":
            q.get(timeout=5).give_back()
        elif operation == "recover":
            if point != "recover_blocking":
                q.recover()
            for message in [
                q.get(timeout=5) for _ in range(3)
            ]:  # the third is the dead one's, and in the way
                message.give_back()
        elif operation == "close":
            q.close()
        elif operation == "attach":
            q = Queue.open("q")
        else:
            q.detach()
    if os.getpid() != me:
        refused = 0
        for call, args in {"put": (b"child", 0), "get": (0,), "recover": (), "close": ()}.items():
            try:
                getattr(q, call)(*args)
            except holdfast.Misuse:
                refused += 1
        os._exit(refused)
    tell(os.waitstatus_to_exitcode(os.wait()[1]))
    hear()


def die_holding() -> None:
    q = Queue.open("q")
    tell("attached")
    hear()
    message = q.get()
    _core.arm("put_checksum", "kill", 1)
    q.put(b"never")
    del message


def all_of(q: Queue) -> list[bytes]:
    got = []
    with suppress(Empty, holdfast.Closed):
        while True:
            got.append(q.get_bytes(timeout=0))
    return got


@pytest.mark.parametrize(
    ("operation", "point"), [(each, point) for each, points in ITSELF.items() for point in points]
)
def test_a_child_of_the_middle(start: Start, operation: str, point: str) -> None:
    with Queue.create("q", capacity=64 * 16, participants=6) as q:
        child = start(fork_in_the_middle, operation, point)
        assert child.hear() == "attached"
        if operation in ("recover", "attach"):
            victim = start(die_holding)
            assert victim.hear() == "attached"
        sent = [b"a", b"b", b"c"]
        for _ in range(13 if operation == "put" else 0):
            q.put(b"")
            q.get_bytes(timeout=0)
        if operation != "put":
            q.put_many(sent)
        if operation in ("recover", "attach"):
            victim.tell("go")
            victim.wait(-9)
        child.tell("go")
        assert child.hear() == 4, "all that the child tried was refused"
        if operation == "put":
            assert all_of(q) == [b"one", b"two", b"x" * 150]
        else:
            got = all_of(q)
            assert sorted(got) == sent[1 if operation == "get" else 0 :]
        assert q.check() == []
        child.tell("end")
        child.wait()
        stats = q.stats()
        assert (stats.taken, stats.writing, stats.fenced_blocks) == (0, 0, 0)
        if operation != "close":
            assert fill(q, b"") == 15
            assert len(all_of(q)) == 15
        assert q.check() == []
