"""Queues in every state, and overwrites of each of their fields, for kit/queue/fuzz.py."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast import Full, HoldfastError, Message, Queue, _core
from holdfast.memory.queue import Checksum
from tests.kit.queue.storm import die_with_parent

GRANULES = 32
NEVER_PUT = b"never put" * 5
SLOTS = 6

# The offsets are those of native/holdfast/queue/layout.hpp, shm/segment_header.hpp, base/block.hpp.
CONTROLS = {"head": 0, "read": 128, "tail": 256, "made": 384, "scanned": 512}
BELLS = {"data bell": 640, "space bell": 768}
ENTRIES, ENTRY, DESCRIPTORS, SIDES, RING = 5120, 128, 8192, 12288, 16384
HEADER = {
    "magic": (0, 8),
    "version": (8, 4),
    "kind": (12, 4),
    "fingerprint": (16, 8),
    "file size": (24, 8),
    "created": (32, 8),
    "creator": (40, 4),
    "header size": (44, 4),
    "boot id": (48, 8),
    "name": (64, 8),
    "granules": (192, 8),
    "participants": (200, 4),
    "delivery": (204, 4),
    "max deliveries": (208, 4),
    "stall limit": (212, 4),
    "full checksum": (216, 4),
    "dead letter": (224, 8),
    "zeros": (704, 8),
    "crc": (4092, 4),
}
BLOCK = {
    "magic": (0, 2),
    "kind": (2, 1),
    "flags": (3, 1),
    "size": (4, 4),
    "tag": (8, 8),
    "time": (16, 8),
    "crc": (24, 4),
    "zero": (28, 4),
}
ENTRY_FIELDS = {
    "who": 0,
    "since": 8,
    "joined": 16,
    "spare": 24,
    **{f"count {n}": 32 + 8 * n for n in range(12)},
}


@dataclass(frozen=True)
class Target:
    """A field of the file."""

    name: str
    offset: int
    width: int
    harmless: bool = False
    """It decides nothing: with any value, all messages arrive and nothing is damaged."""
    payload: bool = False


@dataclass(frozen=True)
class Case:
    state: str
    target: Target
    how: str
    data: bytes
    when: str
    acts: int | None = None
    """The seed of the reader's calls; None: it follows from the index of the case."""

    def words(self) -> str:
        data = self.data.hex() if len(self.data) <= 8 else f"{self.data[:8].hex()}…"
        return f"{self.state}: {self.target.name} {self.how} ({data}) {self.when}"


# -- states -------------------------------------------------------------------------------------------


def content(number: int) -> bytes:
    """Return a message of one to four granules that contains its number."""
    size = (20, 40, 100, 170)[number % 4] + number % 7
    return (b"<%d>" % number) + random.Random(number).randbytes(size)


class Scene:
    """A queue in some state, its peers, the fate of each message, and its bytes."""

    def __init__(self, directory: str, checksum: Checksum, stall_limit: float | None = None) -> None:
        self.directory, self.checksum = directory, checksum
        self.number = 0
        self.due: set[bytes] = set()  # to be delivered to the next reader
        self.seen: set[bytes] = set()  # delivered before: only with a mark, if at all
        self.held: list[Message] = []  # held by living peers
        self.pids: list[int] = []
        first = Queue.create(
            "q",
            directory=directory,
            capacity=64 * GRANULES,
            participants=SLOTS,
            checksum=checksum,
            stall_limit=stall_limit,
        )
        self.peer = Queue.open("q", directory=directory)
        self.place = first  # slot 0: the reader's, later
        self.image = b""
        self.at: dict[int, bytes] = {}  # position -> message that stands there

    def make(self, steps: str) -> None:
        for step in steps.split(", ") if steps else []:
            name, *arguments = step.split()
            getattr(self, name)(*arguments)

    def put(self, count: str = "1") -> None:
        for _ in range(int(count)):
            self.peer.put(content(self.number), timeout=0)
            self.due.add(content(self.number))
            self.number += 1

    def fill(self) -> None:
        with suppress(Full):
            while True:
                self.put()

    def get(self) -> None:
        data = self.peer.get_bytes(timeout=1)  # longer than the stall limit, where there is one
        self.due.discard(data)
        self.seen.add(data)

    def take(self) -> None:
        message = self.peer.get(timeout=0)
        self.due.discard(bytes(message.data))
        self.seen.add(bytes(message.data))
        self.held.append(message)

    def give_back(self, count: str) -> None:
        messages = [self.peer.get(timeout=0) for _ in range(int(count))]
        for message in messages:
            self.seen.add(bytes(message.data))
            message.give_back()

    def lap(self) -> None:
        for _ in range(GRANULES):
            self.put()
            self.get()

    def wrap(self) -> None:
        """Put the oldest block near the end of the ring: the next does not fit."""
        while True:
            self.put()
            rest = GRANULES - _core.inspect(self.directory, "q")["queue"]["end"] % GRANULES
            if 64 * rest < len(content(self.number)) + 32:
                return
            self.get()

    def close(self) -> None:
        self.peer.close()

    def recover(self) -> None:
        self.peer.recover()

    def writer(self, action: str) -> None:
        """Let a peer claim and write a block, and not commit it."""

        def act(q: Queue) -> None:
            _core.arm("put_checksum", action, 1)
            q.put(NEVER_PUT, timeout=0)

        if pid := self.fork(act):
            self.pids.append(pid)

    def dying_reader(self) -> None:
        def act(q: Queue) -> None:
            _core.arm("settle_begin")
            q.get_bytes(timeout=0)

        self.fork(act)
        self.seen.add(min(self.due, key=lambda each: int(each[1 : each.index(b">")])))

    def fork(self, act: Callable[[Queue], None]) -> int:
        """Fork a peer that acts, and then is killed or stops; return its pid."""
        pid = os.fork()
        if pid == 0:
            try:
                die_with_parent()
                act(Queue.open("q", directory=self.directory))
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) or os.WTERMSIG(status) == signal.SIGKILL
        return pid if os.WIFSTOPPED(status) else 0

    def keep(self) -> None:
        """Free the reader's slot, and keep the bytes: from here on they are the state."""
        self.place.detach()
        seen = _core.inspect(self.directory, "q", 0, GRANULES, 64 * GRANULES)["queue"]["list"]
        self.at = {each["position"]: each["payload"] for each in seen if each.get("payload") is not None}
        self.image = Path(self.directory, "holdfast.queue.q").read_bytes()

    def end(self) -> None:
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for message in self.held:
            with suppress(HoldfastError):
                message.settle()  # its word may have been overwritten
        with suppress(HoldfastError):
            self.peer.detach()
        Queue.unlink("q", directory=self.directory)


# The steps of each state, in this order; the words are methods of Scene.
STATES = {
    "fresh": "",
    "empty": "lap",
    "ready": "put 5",
    "taken": "lap, put 4, take, put 1",
    "taken by the dead": "put 4, dying_reader",
    "reserved": "lap, put 2, writer stop, put 2",
    "reserved by the dead": "put 2, writer kill, put 2",
    "retry": "put 4, give_back 2, take",
    "done": "put 2, take, get, put 3, get",
    "skip": "put 3, writer kill, put 2, recover",
    "fenced": "put 2, writer stop, put 2, get, get, get",
    "closed": "put 3, close",
    "wrapped": "wrap, put 4",
    "full": "fill",
    "everything": "lap, put 3, dying_reader, take, writer kill, put 2, give_back 1, writer stop, put 1",
}


# -- cases --------------------------------------------------------------------------------------------


def targets(image: bytes) -> Iterator[Target]:
    for name, at in CONTROLS.items():
        yield Target(name, 4096 + at, 8, harmless=name in ("made", "scanned"))
    for name, at in BELLS.items():
        yield Target(name, 4096 + at, 4, harmless=True)
    for granule in range(GRANULES):
        yield Target(f"descriptor {granule}", DESCRIPTORS + 8 * granule, 8)
        yield Target(f"mark {granule}", SIDES + 16 * granule, 8, harmless=True)
        yield Target(f"time {granule}", SIDES + 16 * granule + 8, 8, harmless=True)
    for slot in range(3):
        for name, at in ENTRY_FIELDS.items():
            yield Target(f"{name} of participant {slot}", ENTRIES + ENTRY * slot + at, 8, harmless=True)
    for name, (offset, width) in HEADER.items():
        yield Target(f"header's {name}", offset, width)
    for granule in range(GRANULES):
        at = RING + 64 * granule
        if image[at : at + 2] == b"HF":
            for name, (offset, width) in BLOCK.items():
                yield Target(f"block's {name} at {granule}", at + offset, width)
            yield Target(f"payload at {granule}", at + 32 + granule % 20, 1, payload=True)


def forgeries(old: int) -> dict[str, int]:
    """Return descriptors with one changed field each, as a participant could have written them."""
    shift = GRANULES.bit_length() - 1
    fields = {"owner": (0, 10), "state": (10, 3), "length": (13, shift - 1), "lap": (12 + shift, 52 - shift)}
    news = {}
    for name, (at, bits) in fields.items():
        top = (1 << bits) - 1
        value = old >> at & top
        wanted = range(8) if name == "state" else {0, top, value + 1 & top, value - 1 & top}
        for new in wanted:
            news[f"{name} = {new}"] = old & ~(top << at) | new << at
    return news


def sealed(position: int) -> int:
    """Return a position sealed as a peer that knows the layout would seal it."""
    position &= (1 << 52) - 1
    return position | ((position * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 52 ^ 0x5A5) << 52


def values(image: bytes, target: Target, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Return 0, the maximum, one more, one less, and random values."""
    width = target.width
    old = int.from_bytes(image[target.offset : target.offset + width], "little")
    top = (1 << 8 * width) - 1
    news = {"= 0": 0, "= max": top, "+ 1": old + 1 & top, "- 1": old - 1 & top}
    for n in range(2):
        news[f"random {n}"] = rng.getrandbits(8 * width)
    if target.name.startswith("descriptor"):
        news |= forgeries(old)
    if target.name in ("head", "read", "tail"):
        news |= {f"sealed {by:+}": sealed(old + by) for by in (-GRANULES, -3, -1, 1, 2, 3, 7, GRANULES)}
        news["sealed, random"] = sealed(rng.getrandbits(52))
    for how, new in news.items():
        if new != old:
            yield how, new.to_bytes(width, "little")


WHEN = ("before attaching", "after attaching", "while holding")


def targeted(state: str, image: bytes, rng: random.Random) -> Iterator[Case]:
    for target in targets(image):
        for how, data in values(image, target, rng):
            yield Case(state, target, how, data, rng.choice(WHEN))


def scattered(state: str, image: bytes, rng: random.Random, count: int) -> Iterator[Case]:
    """Return cases of random bytes at random offsets, a few or many."""
    for _ in range(count):
        width = rng.choice((1, 1, 2, 8, 8, 16, 64, 256))
        low, high = rng.choice(
            ((4096, 5120), (DESCRIPTORS, DESCRIPTORS + 256), (SIDES, SIDES + 512), (0, len(image)))
        )
        offset = rng.randrange(low, high - width) if high - width > low else low
        target = Target(f"{width} bytes at {offset}", offset, width)
        yield Case(state, target, "random", rng.randbytes(width), rng.choice(WHEN))
