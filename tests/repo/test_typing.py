"""Type-check programs that use the queue: good ones pass, each mistake is found."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Message, Messages
from tests.kit import ROOT

GOOD = """
import array
import asyncio
import queue
from typing import assert_type

import holdfast
from holdfast import Holder, Message, Messages, Participant, Queue, QueueStats, Recovered


class MyQueue(Queue):
    def hello(self) -> str:
        return self.name


def sync(name: str, data: bytes) -> None:
    with Queue.create(name, capacity=1 << 20, delivery="at-most-once", stall_limit=0.5, checksum="full",
                      mode=0o660, group="users", exist_ok=True) as q:
        assert_type(q, Queue)
        q.put(data)
        q.put(bytearray(data), timeout=1)
        q.put(memoryview(data), 0.5)
        q.put(array.array("d", [1.0]))
        q.put_many([data, bytearray(b"x"), memoryview(b"y")], timeout=None)
        q.put_many(bytes([i]) for i in range(3))
        with q.get(timeout=0) as message:
            assert_type(message, Message)
            assert_type(bytes(message.data) + bytes(message), bytes)
            assert_type(message.redelivered + message.time + message.position + len(message), int)
            q.put(message)  # a message has the buffer protocol
            message.settle()
            message.give_back()
        with q.get_many(10) as batch:
            assert_type(batch, Messages)
            assert_type(batch.tobytes(), list[bytes])
            assert_type(batch[0], Message)
            assert_type([each.redelivered for each in batch], list[int])
        assert_type(q.get_bytes(), bytes)
        assert_type(q.get_into(bytearray(10)), int)
        assert_type(q.purge(), int)
        for each in q:
            assert_type(each, Message)
        stats = q.stats()
        assert_type(stats, QueueStats)
        assert_type(stats.participants, tuple[Participant, ...])
        assert_type(stats.holders, tuple[Holder, ...])
        assert_type(q.check(), list[str])
        assert_type(q.recover(), Recovered)
        assert_type(q.fileno(), int)
        assert_type(q.message_size_max, int)
        q.spin = 0.001
        q.close()
    assert_type(Queue.list(), list[str])
    assert_type(MyQueue.open(name), MyQueue)
    assert_type(MyQueue.create(name).hello(), str)


async def waiting(q: Queue) -> None:
    await q.aput(b"x", timeout=1)
    await q.aput_many([b"x"])
    assert_type(await q.aget(), Message)
    assert_type(await q.aget_many(3), Messages)
    async for message in q:
        assert_type(message, Message)


def failing(q: Queue) -> int | None:
    try:
        q.put(b"x", timeout=0)
    except holdfast.Full as error:
        caught: queue.Full = error
        assert_type(error.done, int)
        return error.pid
    except TimeoutError:
        pass
    except holdfast.HoldfastError:
        raise
    return None


asyncio.run(waiting(Queue.open("x")))
"""

# Each line is wrong, and mypy says why.
BAD = [
    ('q.put("text")', "arg-type"),
    ("q.put(7)", "arg-type"),
    ("q.put()", "call-arg"),
    ('q.put(b"x", timeout="1")', "arg-type"),
    ('q.put_many(["text"])', "list-item"),
    ("q.get_into()", "call-arg"),
    ('q.get_many("3")', "arg-type"),
    ('Queue.create("x", 4096)', "call-arg"),
    ('Queue.create("x", delivery="exactly-once")', "arg-type"),
    ('Queue.create("x", checksum="none")', "arg-type"),
    ("q.name = 'other'", "misc"),
    ("q.stats().put = 3", "misc"),
    ("q.get().redelivered = 1", "misc"),
    ("q.get().no_such_thing", "attr-defined"),
    ("holdfast.NoSuchError", "attr-defined"),
]


def check(program: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout.splitlines()


def test_good_programs_pass_and_mistakes_are_found(tmp_path: Path) -> None:
    """One run for all of it: most of a run's time is its start."""
    program = tmp_path / "program.py"
    wrong = "\n".join(f"    {line}" for line, _ in BAD)
    first = GOOD.count("\n") + 4
    program.write_text(f"{GOOD}\n\ndef wrong(q: Queue) -> None:\n{wrong}\n")
    found: dict[int, list[str]] = {}
    for line in check(program):
        match = re.match(r".*program\.py:(\d+): error: .*\[([a-z-]+)\]$", line)
        if match:
            found.setdefault(int(match[1]) - first, []).append(match[2])
    assert found == {i: [code] for i, (_, code) in enumerate(BAD)}


@pytest.mark.parametrize("kind", [Message, Messages])
def test_only_a_queue_makes_messages(kind: type) -> None:
    with pytest.raises(TypeError, match="cannot create"):
        kind()
