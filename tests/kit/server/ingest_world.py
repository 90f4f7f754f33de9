"""Processes for tests of local ingest: a broker that dies at a step, and producers.

    ingest_world.py serve DATA [STEP COUNT [MUTANT]]    says "ready"; dies at the COUNT-th STEP
    ingest_world.py produce TOPIC LABEL FILE            puts LABEL:0, LABEL:1, …
    ingest_world.py hop TOPIC LABEL FILE                the same, with many producers in turn

A producer writes to its file how many of its messages are confirmed. $IDLE_S: when a queue is withdrawn.
$POINT: the point of the queue's code at which a producer dies, and how many passes before.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import random
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import holdfast
from holdfast import _core
from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.api.blocking import Runner
from holdfast.broker.engine import Engine
from holdfast.local import drain
from holdfast.local.account import Account
from holdfast.local.intake import Ingest
from tests.kit import module_command


class World:
    """A broker with local ingest, in a thread of this process."""

    def __init__(self, data: Path, ingest: dict[str, Any] | None = None, **options: Any) -> None:
        self._given = ingest or {}
        self.runner = Runner()
        self.broker = self.runner(Broker.start(data, BrokerOptions(**options)))
        self.ingest: Ingest = self.runner(self._start(data))

    async def _start(self, data: Path) -> Ingest:
        ingest = Ingest(self.broker, data, **{"capacity": 1 << 17, "topics_max": 3} | self._given)
        await ingest.start()
        return ingest

    def stored(self, topic: str = "orders") -> list[Any]:
        return [bytes(each.data) for each in self.messages(topic)]

    def messages(self, topic: str = "orders") -> list[Any]:
        return list(self.runner(self.broker.admin.examine(topic, count=1000)))

    def close(self) -> None:
        self.runner(self.ingest.stop())
        self.runner(self.broker.close())
        self.runner.stop()


@contextlib.contextmanager
def serving(data: Path, ingest: dict[str, Any] | None = None, **options: Any) -> Iterator[World]:
    world = World(data, ingest, **options)
    try:
        yield world
    finally:
        world.close()


STEPS = ("publish", "durable", "confirmed", "session", "adopted")
"""Steps at which a broker can die: an event is submitted, durable, confirmed and not settled; …"""
IDLE = ("withdrawing", "withdrawn", "removed")
"""Steps of withdrawn queues: the word is written, the queue is closed, its files are removed."""
ONCE = ("session", "adopted")
"""Steps that a broker passes once in its life."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str, count: int) -> None:
    """Die at the count-th pass of a step, or of a point of the queue."""
    if step in _core.points():
        _core.arm(step, "kill", count)
        return
    left = count

    def now() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            die()

    real_confirm, real_publish, real_mend = Account.confirm, Broker.publish_entries, Account.mend

    def confirm(self: Account, end: int) -> None:
        if step == "durable":
            now()
        real_confirm(self, end)
        if step == "confirmed":
            now()

    def publish(self: Broker, *given: Any) -> Any:
        future = real_publish(self, *given)
        if step == "publish":
            now()
        return future

    def mend(self: Account) -> None:
        real_mend(self)
        if step == "adopted":
            now()

    Account.confirm = confirm  # type: ignore[method-assign]
    Broker.publish_entries = publish  # type: ignore[method-assign,assignment]
    Account.mend = mend  # type: ignore[method-assign]
    real_withdraw, real_retire, real_submit = Account.withdraw, drain.Segment.withdraw, Engine.submit

    def withdraw(self: Account, yes: bool) -> None:
        real_withdraw(self, yes)
        if step == "withdrawing" and yes:
            now()

    def retire(self: drain.Segment) -> bool:
        done = real_retire(self)
        if step == "withdrawn" and done:
            now()
        return done

    def submit(self: Engine, event: Any) -> Any:
        if step == "removed" and type(event).__name__ == "DeduplicationForget":
            now()
        future = real_submit(self, event)
        if step == "session" and type(event).__name__ == "ProducerOpen":
            now()
        return future

    Account.withdraw = withdraw  # type: ignore[method-assign]
    drain.Segment.withdraw = retire  # type: ignore[method-assign]
    Engine.submit = submit  # type: ignore[method-assign]


def break_it(mutant: str) -> None:
    """Put a mutant into the broker."""
    if mutant == "not deduplicated":
        assert drain.INGEST  # type: ignore[attr-defined]
        drain.INGEST = "some.producer."  # type: ignore[attr-defined]
    elif mutant == "settled before it is durable":
        real = drain.Segment._store

        async def store(self: Any, messages: Any, entries: list[bytes]) -> None:
            for message in messages:
                message.settle()
            await real(self, messages, entries)

        drain.Segment._store = store  # type: ignore[method-assign]
    else:
        raise ValueError(mutant)


async def serve(data: str) -> None:
    idle_s = float(os.environ.get("IDLE_S", "60"))
    async with (
        Broker.open(data, sync="os") as broker,
        Ingest(broker, data, capacity=1 << 18, idle_s=idle_s),
    ):
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        print("ready", flush=True)
        await ended.wait()


def hop(topic: str, label: str, file: str) -> None:
    """Open a producer, put a few messages, close it, and repeat, so that queues idle."""
    note = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    chance = random.Random(label)
    ended = False

    def stop(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, stop)
    print("ready", flush=True)
    number = 0
    while not ended:
        p = holdfast.Producer(topic, timeout=120.0)  # brokers die one after another meanwhile
        for _ in range(chance.randrange(1, 6)):
            p.put(b"%s:%d" % (label.encode(), number))
            number += 1
        p.close()
        os.pwrite(note, b"%-20d" % number, 0)
        time.sleep(chance.choice((0.0, 0.005, 0.05)))
    print(number, flush=True)


def produce(topic: str, label: str, file: str) -> None:
    note = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    ended = False

    def stop(*_: object) -> None:
        nonlocal ended
        ended = True

    signal.signal(signal.SIGTERM, stop)
    p = holdfast.Producer(topic, timeout=20.0)
    print("ready", flush=True)
    open_puts: deque[tuple[int, int]] = deque()
    number = noted = pause = 0

    def account() -> None:
        nonlocal noted
        confirmed, best = p.confirmed, noted
        while open_puts and open_puts[0][0] <= confirmed:
            best = open_puts.popleft()[1] + 1
        if best > noted:
            noted = best
            os.pwrite(note, b"%-20d" % noted, 0)

    while not ended:
        with contextlib.suppress(holdfast.Timeout):
            if number % 7 == 0:
                many = [b"%s:%d" % (label.encode(), number + at) for at in range(20)]
                place = p.put_many(many, timeout=0.2)
                number += 20
            else:
                place = p.put(b"%s:%d" % (label.encode(), number), key=label, timeout=0.2)
                number += 1
            open_puts.append((place, number - 1))
        account()
        if number >= pause:
            pause = number + 100
            time.sleep(0.003)
    p.flush(timeout=20.0)
    account()
    assert noted == number, (noted, number)
    print(number, flush=True)


class Process:
    """One of the programs above, as a test starts it."""

    def __init__(self, *arguments: object) -> None:
        self.popen = subprocess.Popen(
            [*module_command(__file__), *map(str, arguments)], stdout=subprocess.PIPE, text=True
        )
        self._ready = False

    def ready(self) -> bool:
        """Wait until it is ready; return False if it died before."""
        if not self._ready:
            assert self.popen.stdout is not None
            self._ready = self.popen.stdout.readline().strip() == "ready"
        return self._ready

    def kill(self) -> None:
        self.popen.kill()
        self.close()

    def end(self) -> str:
        """Stop it; return the last line that it printed."""
        self.popen.terminate()
        assert self.popen.stdout is not None
        said = self.popen.stdout.read()
        assert self.popen.wait(30.0) == 0
        self.popen.stdout.close()
        return said.strip()

    def close(self) -> None:
        self.popen.wait(30.0)
        if self.popen.stdout is not None:
            self.popen.stdout.close()


async def stored(data: Path, topic: str) -> list[bytes]:
    """Return everything that the topic holds."""
    async with Broker.open(data) as broker, broker.reader(topic, receiver_queue=10_000) as reader:
        found: list[bytes] = []
        while await reader.has_more():
            found.append(bytes((await reader.read(timeout=10)).data))
        return found


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    if sys.argv[1] != "serve" and "POINT" in os.environ:
        point, _, count = os.environ["POINT"].partition(":")
        _core.arm(point, "kill", int(count))
    if sys.argv[1] == "serve":
        if len(sys.argv) > 5:
            break_it(sys.argv[5])
        if len(sys.argv) > 3:
            arm(sys.argv[3], int(sys.argv[4]))
        asyncio.run(serve(sys.argv[2]))
    elif sys.argv[1] == "hop":
        hop(*sys.argv[2:5])
    else:
        produce(*sys.argv[2:5])
