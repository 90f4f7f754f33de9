"""Messages that kill their consumers: after `max_deliveries` they go to the dead-letter queue."""

from __future__ import annotations

import os
import signal

import pytest

from holdfast import Empty, Queue, Timeout
from tests.kit.processes import Start, tell
from tests.kit.queue.dead_letter import dead as dead
from tests.kit.queue.dead_letter import work as work
from tests.kit.queue.queues import drain


def take_and_die(name: str) -> None:
    q = Queue.open(name)
    message = q.get(timeout=10)
    tell((bytes(message), message.redelivered))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_message_that_kills_its_consumers(work: Queue, dead: Queue, start: Start) -> None:
    work.put(b"poison")
    for delivery in range(2):
        child = start(take_and_die, "work")
        assert child.hear() == (b"poison", delivery)
        child.wait(-signal.SIGKILL)
    work.put(b"good")
    assert work.get_bytes(timeout=10) == b"good"
    with pytest.raises(Empty):
        work.get(timeout=0)
    assert drain(dead) == [b"poison"]
    stats = work.stats()
    assert (stats.handed_on, stats.dead_lettered) == (2, 1)


def test_a_message_too_large_for_the_dead_letter_queue_stays(start: Start) -> None:
    with (
        Queue.create("dead", capacity=256) as dead,
        Queue.create("work", capacity=4096, max_deliveries=1, dead_letter="dead") as work,
    ):
        work.put(b"x" * 97)
        work.get().give_back()
        with pytest.raises(Timeout):
            work.get(timeout=0.05)
        assert work.stats().returned == 1
        assert dead.stats().put == 0
        assert work.check() == []
