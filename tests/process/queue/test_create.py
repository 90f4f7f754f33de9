"""Participants that are too many, or dead."""

from __future__ import annotations

import os

import pytest

from holdfast import Queue, Recovered, TooManyParticipants
from tests.kit.processes import Start, hear, tell


def attach(name: str) -> None:
    with Queue.open(name):
        tell(os.getpid())
        hear()


def test_too_many_participants(start: Start) -> None:
    with Queue.create("q", capacity=4096, participants=3) as q:
        children = [start(attach, "q") for _ in range(2)]
        pids = [child.hear() for child in children]
        with pytest.raises(TooManyParticipants, match="all 3 participants are alive") as caught:
            Queue.open("q")
        assert all(str(pid) in str(caught.value) for pid in [*pids, os.getpid()])
        assert sorted(each.pid for each in q.stats().participants) == sorted([*pids, os.getpid()])
        children[0].kill()
        with Queue.open("q") as third:  # a dead one makes room at once
            third.put(b"x")
        assert q.get_bytes(timeout=0) == b"x"


def hold(name: str) -> None:
    q = Queue.open(name)
    message = q.get(timeout=0)
    tell(bytes(message))
    hear()


def test_recover_finds_the_dead(q: Queue, start: Start) -> None:
    q.put(b"x")
    child = start(hold, "q")
    child.hear()
    assert q.recover() == Recovered(skipped=0, handed_on=0, released=0), "a slow reader is never robbed"
    child.kill()
    (dead,) = [each for each in q.stats().participants if each.pid == child.pid]
    assert (dead.alive, dead.attached) == (False, True)
    assert q.recover() == Recovered(skipped=0, handed_on=1, released=0)
    assert [each.pid for each in q.stats().participants] == [os.getpid()]
    with q.get(timeout=0) as message:
        assert message.redelivered == 1
