"""The message of a process that died, as the next reader gets it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from holdfast import Queue
from tests.kit.processes import Start, tell
from tests.kit.queue.queues import drain


def take_and_die(name: str) -> None:
    with Queue.open(name) as q:
        message = q.get(timeout=0)
        tell(bytes(message))
        os.kill(os.getpid(), 9)


@pytest.mark.parametrize("delivery", ["at-least-once", "at-most-once"])
def test_the_message_of_a_dead_reader(start: Start, delivery: Any) -> None:
    with Queue.create("q", capacity=1 << 12, delivery=delivery) as q:
        q.put_many([b"a", b"b"])
        child = start(take_and_die, "q")
        assert child.hear() == b"a"
        child.wait(-9)
        if delivery == "at-least-once":
            q.get_bytes(timeout=0)
            with q.get(timeout=0) as message:
                assert (bytes(message), message.redelivered) == (b"a", 1)
        else:
            assert drain(q) == [b"b"]
        stats = q.stats()
        assert (stats.handed_on, stats.released) == ((1, 0) if delivery == "at-least-once" else (0, 1))
        assert stats.taken == 0
