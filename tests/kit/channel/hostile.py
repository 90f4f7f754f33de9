"""Channels in every state, for kit/channel/fuzz.py."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast import Channel, ChannelProducer, Empty, Loop, _core
from tests.kit.overwrites import Choices, header_sum
from tests.kit.queue.storm import die_with_parent

SLOT_SIZE = 64
STATES = (0x01, 0x02, 0x04, 0x08, 0x10, 0x21, 0x28, 0x41, 0x50, 0x61, 0x80, 0xFF)
"""Each state of a slot (native/holdfast/channel/state.hpp), and two that are not one."""


def special(width: int) -> dict[str, int]:
    """Return values that mean something in a word of this width."""
    if width > 1:
        return {}
    owners = {f"owner {owner}": owner for owner in (0, 3, 16, 17, 254)}
    return {f"state {state:#x}": state for state in STATES} | owners


CHOICES = Choices(("before opening", "before the roles", "in use"), STATES, special, header_sum)


# -- states -------------------------------------------------------------------------------------------


def push(channel: Channel, count: int) -> ChannelProducer:
    producer = channel.producer()
    for n in range(count):
        producer.push(b"datum %d" % n, timeout=0)
    return producer


def pop(channel: Channel, count: int, release: bool = True) -> list[Any]:
    consumer = channel.consumer()
    kept = []
    for _ in range(count):
        with suppress(Empty):
            item = consumer.pop(0)
            if release:
                item.release()
            else:
                kept.append(item)
    return [consumer, *kept]


def holes(channel: Channel) -> None:
    producer = channel.producer()
    handles = [producer.push(b"hole %d" % n).handle for n in range(2)]
    producer.cancel(handles[0])


def half_a_push(channel: Channel, point: str) -> None:
    producer = channel.producer()
    for n in range(4):
        producer.push(b"datum %d" % n)
    _core.arm(point)
    producer.push_batch([b"a", b"b"])


def half_a_pop(channel: Channel, point: str) -> None:
    push(channel, 3)
    _core.arm(point)
    pop(channel, 1)


def lanes(channel: Channel) -> list[ChannelProducer]:
    producers = [channel.producer(), channel.producer()]
    for n in range(8):
        producers[n % 2].push(b"datum %d" % n, priority=n // 4)
    return producers


def arrays(channel: Channel) -> None:
    producer: Any = channel.producer()
    for n in range(3):
        with producer.loan() as frame:
            frame[:] = n


Making = tuple[dict[str, Any], Callable[[Channel], object]]
BYTES: dict[str, Any] = {"slots": 3, "slot_size": SLOT_SIZE, "loans": 4, "holds": 2}
PLACES: dict[str, Making] = {
    "fresh": (BYTES, lambda channel: None),
    "some": (BYTES, lambda channel: push(channel, 2)),
    "lapped": (BYTES, lambda channel: push(channel, 9)),
    "popped": (BYTES, lambda channel: (push(channel, 5), pop(channel, 2))),
    "held": (BYTES, lambda channel: (push(channel, 5), pop(channel, 2, release=False))),
    "holes": (BYTES, holes),
    "frozen": (BYTES, lambda channel: half_a_push(channel, "push_frozen")),
    "ended": (BYTES, lambda channel: half_a_push(channel, "push_ended")),
    "claimed": (BYTES, lambda channel: half_a_pop(channel, "pop_claimed")),
    "waiting": ({**BYTES, "overflow": False}, lambda channel: push(channel, 3)),
    "one slot": ({"slots": 1, "slot_size": 8}, lambda channel: push(channel, 3)),
    "lanes": ({**BYTES, "producers": 2, "priorities": 2}, lambda channel: (lanes(channel), pop(channel, 1))),
    "loop": (BYTES, lambda channel: (push(channel, 5), pop(channel, 2))),
    "typed": ({"slots": 2, "dtype": "f4", "shape": (2, 3)}, arrays),
}


class Scene:
    """A channel in some state, all its processes dead, and its bytes."""

    def __init__(self, directory: str, name: str) -> None:
        self.directory, self.name = directory, name
        options, act = PLACES[name]
        self.kind = Loop if name == "loop" else Channel
        self.kind.create("c", directory=directory, laps=20, **options).close()
        self.path = Path(directory, "holdfast.channel.c")
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent()
                kept = act(self.kind.open("c", directory=directory))
                os.kill(os.getpid(), signal.SIGKILL)  # with its roles, and what it kept
                del kept
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"{name} was not made"
        self.image = self.path.read_bytes()

    def close(self) -> None:
        """All its processes are dead."""
