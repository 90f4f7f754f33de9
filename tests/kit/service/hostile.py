"""Services in every state, for kit/service/fuzz.py.

A keeper is connected all the time: an offer uses the memory on, instead of creating it anew.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import Event, Field, Method, Proxy, Service, Skeleton, _core
from tests.kit.overwrites import HEADER, PARAMS, Choices, header_sum
from tests.kit.queue.fuzz import start

FILLS = (0x00, 0x01, 0x02, 0x03, 0x04, 0x07, 0x3F, 0x40, 0x7F, 0x80, 0xFE, 0xFF)
WRITING, TRACER = 1 << 63, 1 << 62
"""Bits of a sample's word (native/holdfast/service/state.hpp)."""
NUMBER_MAX = (1 << 55) - 1


class Rig(Service):
    frame = Event(size=16, samples=9, loans=2)
    image = Event(dtype="f4", shape=(2, 3), samples=8)
    gain = Field("f8", initial=1.0, samples=8, calls=2)
    label = Field(8, samples=8, calls=1)
    echo = Method(8, 8, calls=2)


ELEMENTS = len(Rig._elements)


def special(width: int) -> dict[str, int]:
    """Return values that mean something in a word of this width."""
    if width == 4:
        found = {f"log {state} of {count}": count << 2 | state for state in range(4) for count in (0, 1, 9)}
        return found | {"bell asleep": 1, "sample 7": 7, "sample 8": 8}
    if width == 8:
        calls = {
            f"call state {state} of {owner}, {number}": number << 9 | owner << 3 | state
            for state in range(8)
            for owner, number in ((0, 1), (1, 2), (63, NUMBER_MAX))
        }
        words = {"writing": WRITING, "traced": TRACER, "held by all": WRITING - 1, "slot 0": 1, "slot 1": 2}
        people = {"active": WRITING | os.getpid(), "no such process": WRITING | 0x3FFFFF}
        return calls | words | people
    return {}


def sums(changed: bytearray) -> None:
    """Make the sums of the table of elements and of the header anew."""
    table = _core.crc32c(bytes(changed[HEADER : HEADER + 1024 * ELEMENTS]))
    changed[PARAMS + 4 : PARAMS + 8] = table.to_bytes(4, "little")
    header_sum(changed)


CHOICES = Choices(("before opening", "before connecting", "in use"), FILLS, special, sums)


# -- states -------------------------------------------------------------------------------------------


def send(skeleton: Skeleton, count: int) -> None:
    for n in range(count):
        skeleton.frame.send(b"sample %d" % n)
        skeleton.gain.update(float(n))
        with skeleton.image.loan() as image:
            image[:] = n


def held(skeleton: Skeleton, proxy: Proxy) -> object:
    frames, images = proxy.frame.subscribe(max_samples=2), proxy.image.subscribe()
    gains = proxy.gain.subscribe()
    send(skeleton, 3)
    return frames.take_new(), images.take(0), gains.take(0), frames, images, gains


def traced(skeleton: Skeleton, proxy: Proxy) -> object:
    tracer = Rig.trace("i", 0, directory=proxy._directory)
    frames, images = tracer.frame.subscribe(max_samples=3), tracer.image.subscribe()
    send(skeleton, 5)
    return tracer, frames.take(0), frames, images


def lent(skeleton: Skeleton, proxy: Proxy) -> object:
    send(skeleton, 2)
    return skeleton.frame.loan(4)


def asking(skeleton: Skeleton, proxy: Proxy) -> None:
    _core.arm("log_asked")
    proxy.frame.subscribe(max_samples=3)


def half_a_send(skeleton: Skeleton, proxy: Proxy, point: str) -> None:
    send(skeleton, 3)
    _core.arm(point)
    skeleton.frame.send(b"half")


def half_a_take(skeleton: Skeleton, proxy: Proxy) -> None:
    frames = proxy.frame.subscribe()
    send(skeleton, 3)
    _core.arm("sample_marked")
    frames.take(0)


def half_a_call(skeleton: Skeleton, proxy: Proxy, point: str) -> None:
    _core.arm(point)
    proxy.echo(b"half", timeout=10)


def in_a_handler(skeleton: Skeleton, proxy: Proxy) -> None:
    skeleton.echo.handle(lambda _: os.kill(os.getpid(), signal.SIGKILL))
    proxy.echo(b"deadly", timeout=10)


def departed(skeleton: Skeleton, proxy: Proxy) -> None:
    """Let proxies die; the next process that looks tells the provider."""
    for _ in range(3):
        pid = start(partial(die_connected, proxy._directory))
        os.waitpid(pid, 0)
    skeleton._core.reap()


def die_connected(directory: str) -> None:
    connected = _core.ServiceProxy(directory, NAME, "short")
    connected.subscribe(0, 1)
    os.kill(os.getpid(), signal.SIGKILL)


Act = Callable[[Skeleton, Proxy], object]
PLACES: dict[str, Act] = {
    "fresh": lambda skeleton, proxy: None,
    "sent": lambda skeleton, proxy: send(skeleton, 12),
    "lent": lent,
    "held": held,
    "traced": traced,
    "asking": asking,
    "half shown": partial(half_a_send, point="sample_shown"),
    "half written": partial(half_a_send, point="sample_written"),
    "half taken": half_a_take,
    "claimed": partial(half_a_call, point="call_written"),
    "answered": partial(half_a_call, point="call_done"),
    "running": in_a_handler,
    "departed": departed,
}
NAME = "Rig.i"


class Scene:
    """An instance in some state, all its processes dead but a keeper, and its bytes."""

    def __init__(self, directory: str, name: str) -> None:
        self.directory, self.name = directory, name
        self.path = Path(directory, f"holdfast.service.{NAME}")
        ready, go = os.pipe(), os.pipe()
        maker = start(partial(self.make, name, ready[1], go[0]))
        assert os.read(ready[0], 1) == b"o"
        self.keeper = start(partial(self.keep, ready[1]))
        assert os.read(ready[0], 1) == b"k"
        os.write(go[1], b"g")
        _, status = os.waitpid(maker, 0)
        assert os.WIFSIGNALED(status), f"{name} was not made"
        for each in (*ready, *go):
            os.close(each)
        self.image = self.path.read_bytes()

    def make(self, name: str, ready: int, go: int) -> None:
        handlers: dict[str, Any] = {"echo": lambda data: data}
        skeleton = Rig.offer("i", directory=self.directory, handlers=handlers)
        os.write(ready, b"o")
        os.read(go, 1)
        proxy = Rig.find("i", 0, directory=self.directory)
        kept = PLACES[name](skeleton, proxy)
        os.kill(os.getpid(), signal.SIGKILL)  # with its roles, and what it kept
        del kept

    def keep(self, ready: int) -> None:
        keeper = _core.ServiceProxy(self.directory, NAME, "keeper")
        os.write(ready, b"k")
        while True:
            signal.pause()
        del keeper

    def close(self) -> None:
        """End the keeper."""
        os.kill(self.keeper, signal.SIGKILL)
        os.waitpid(self.keeper, 0)
