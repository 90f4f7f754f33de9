"""Kill Spark's driver, its workers or the broker at the steps of the sink's protocol.

A stream copies numbered lines from one topic, through a named subscription, to two others. Each entry makes
a batch. A process is killed at a named step, and started again on the same directory, checkpoint and port.

At the end the official client reads the topics. Every line is there once, batch after batch. At no step was
a part of a batch readable. The subscription never was ahead of the published batches.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.broker.events import SinkCommit, StageAppend, Staged, StageDrop, TopicTruncate
from holdfast.broker.events.base import Context
from holdfast.broker.events.outcomes import Committed, Done
from holdfast.broker.state import BrokerState
from holdfast.cli import main
from holdfast.client import Client
from holdfast.errors import HoldfastError
from tests.kit import KIT, module_command
from tests.kit.command import COMMAND
from tests.kit.served import Served
from tests.kit.server.kills import STEPS
from tests.kit.spark.sink_sim import Simulation

TOPICS = ("even", "odd")
INPUT, SUBSCRIPTION = "input", "copy"
LIFE_S = 400.0
LARGE = 3000
"""Bytes of a line in a batch whose stages become ledgers of their own."""


@dataclass(frozen=True)
class Arm:
    """At the nth time of a step, over all processes, this dies (or fails)."""

    step: str
    target: str
    nth: int = 1


@dataclass
class Account:
    """The actions of a run, and its faults."""

    kills: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    failed: int = 0
    """Lives whose query ended with an error."""
    restarts: int = 0
    rows: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def words(self) -> str:
        killed = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items())) or "none"
        return (
            f"{self.rows} rows, {self.lives} drivers ({self.failed} failed), {self.restarts} restarts of the "
            f"broker; struck: {killed}; {self.seconds:.1f} s"
        )


class Broker:
    """`holdfast serve` on one directory and one port; it is started again whenever it was killed."""

    def __init__(self, directory: Path, broken: str = "", chance: random.Random | None = None) -> None:
        self.directory, self.broken, self.chance = directory, broken, chance
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.restarts = 0
        self._ending = threading.Event()
        self._served = self._start()
        self._keeping = threading.Thread(target=self._keep, daemon=True)
        self._keeping.start()

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.port}"

    def _start(self) -> Served:
        data = str(self.directory / "data")
        ports = ("--port", str(self.port), "--http-port", "off", "--log-level", "warning")
        # Without subscriptions nothing would be kept.
        keep = ("--set", "broker.retention_bytes=-1", "--set", "ingest.enabled=false")
        served = Served("--data", data, *ports, *keep, command=self._command())
        (self.directory / "broker.pid").write_text(str(served.process.pid))
        return served

    def _command(self) -> list[str]:
        """Start `holdfast`, with a fault, or dying at a step of its journal, if wanted."""
        if self.broken:
            return [*module_command(__file__), self.broken]
        if self.chance is not None and self.chance.random() < 0.7:
            step = f"{self.chance.choice(STEPS)}:{self.chance.randrange(5, 150)}"
            return [*module_command(KIT / "server/kills.py"), "", step]
        return [COMMAND]

    def _keep(self) -> None:
        while not self._ending.is_set():
            if self._served.process.poll() is None:
                self._ending.wait(0.02)
                continue
            self._served.close()
            self.restarts += 1
            while not self._ending.is_set():
                with contextlib.suppress(AssertionError):  # it died while it started
                    self._served = self._start()
                    break

    def close(self) -> None:
        self._ending.set()
        self._keeping.join(60.0)
        self._served.close()


Run = Callable[[str, str, str], int]
"""A driver's life with a directory, a broker and a mistake; its exit status: 0, 3 (failed), or killed."""


def spark_driver(directory: str, url: str, mutant: str, kind: str = "stream") -> int:
    """A driver of Spark in a session that is killed as a whole."""
    with (Path(directory) / "driver.errors").open("ab") as errors:
        driver = subprocess.Popen(
            [*module_command(KIT / "spark/sink_kill_driver.py"), directory, url, mutant, kind],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            start_new_session=True,
        )
    try:
        return driver.wait(LIFE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def spark_batches(directory: str, url: str, mutant: str) -> int:
    """The same with `df.write`."""
    return spark_driver(directory, url, mutant, "batches")


class World:
    """A broker, the input, a checkpoint, and drivers one after another."""

    def __init__(
        self,
        directory: Path,
        run: Run,
        mutant: str = "",
        batches: int = 2,
        rows: int = 24,
        chance: random.Random | None = None,
    ) -> None:
        self.directory, self.run = directory, run
        broken = mutant if mutant in BROKEN else ""
        self.mutant = "" if broken else mutant
        self.account = Account()
        self.lines: list[list[str]] = []
        (directory / "input").mkdir(parents=True)
        self.broker = Broker(directory, broken, chance)
        with Client(self.broker.url) as client:
            for topic in TOPICS:
                client.progress(topic, "watch", create=True)
            client.progress(INPUT, SUBSCRIPTION, create=True, start="earliest")
        for batch in range(batches):
            self.feed(rows, LARGE if batch % 2 else 10)
        self._watch: dict[str, set[int]] = {topic: set() for topic in TOPICS}
        self._ending = threading.Event()
        self._watching = threading.Thread(target=self._look, daemon=True)
        self._watching.start()
        self._begin = time.monotonic()

    def feed(self, rows: int, size: int) -> None:
        """Add an entry, and for the simulation a file: one more batch."""
        batch = len(self.lines)
        made = [f"{TOPICS[i % 2]} k{i % 5} {batch}:{i} {'x' * size}" for i in range(rows)]
        self.lines.append(made)
        (self.directory / "input" / f"{batch:04}.txt").write_text("\n".join(made))
        with Client(self.broker.url, timeout=60.0) as client:
            stage = client.stage()
            stage.append(INPUT, [line.encode() for line in made], batch=rows)
            client.sink_commit("feed", batch, [stage.close()])

    # -- lives -----------------------------------------------------------------------------------------

    def life(self, *arms: Arm) -> int:
        """Run a driver and return its exit status. An armed step must be reached."""
        for number, arm in enumerate(arms):
            (self.directory / f"arm.{number}").write_text(json.dumps(arm.__dict__))
        self.account.lives += 1
        status = self.run(str(self.directory), self.broker.url, self.mutant)
        for number, arm in enumerate(arms):
            if not (self.directory / f"fired.arm.{number}").exists():
                self.fault(f"{arm} was not reached")
            else:
                self.account.kills[f"{arm.target} at {arm.step}"] += 1
        for left in (*self.directory.glob("arm.*"), *self.directory.glob("*.arm.*")):
            left.unlink()
        if status == 3:
            self.account.failed += 1
        elif status not in (0, -signal.SIGKILL):
            self.fault(f"a driver ended with status {status}: {self.said()}")
        return status

    def settle(self, lives: int = 1) -> None:
        """Let the stream reach its end without kills."""
        for _ in range(lives):
            if self.life() == 0:
                return
        self.fault(f"the stream does not get to its end: {self.said()}")

    def said(self) -> str:
        return (self.directory / "driver.errors").read_text()[-1500:]

    def fault(self, words: str) -> None:
        self.account.faults.append(words)

    # -- the account -----------------------------------------------------------------------------------

    def _look(self) -> None:
        """Check that the readable entries grow by whole batches."""
        with Client(self.broker.url, timeout=60.0) as client:
            while not self._ending.wait(0.02):
                for topic in TOPICS:
                    with contextlib.suppress(HoldfastError):
                        self._watch[topic].add(client.progress(topic, "watch").visible)

    def sums(self, topic: str) -> list[int]:
        """How many lines the topic has after each batch."""
        counts = (sum(line.startswith(topic + " ") for line in batch) for batch in self.lines)
        return [0, *itertools.accumulate(counts)]

    def judge(self) -> Account:
        for topic in TOPICS:
            self._judge_topic(topic, published(self.broker.url, topic))
            if wrong := self._watch[topic] - set(self.sums(topic)):
                self.fault(f"{topic}: {sorted(wrong)} could be read, which is a part of a batch")
        self._judge_trace()
        self._judge_subscription()
        self.account.rows = sum(map(len, self.lines))
        self.account.restarts = self.broker.restarts
        self.account.seconds = time.monotonic() - self._begin
        return self.account

    def _judge_topic(self, topic: str, found: list[tuple[str, str]]) -> None:
        wanted = Counter(line for batch in self.lines for line in batch if line.startswith(topic + " "))
        got = Counter(line for line, _ in found)
        for words, left in (("lost", wanted - got), ("twice, or nobody's", got - wanted)):
            if left:
                some = [line[:30] for line in itertools.islice(left, 5)]
                self.fault(f"{topic}: {left.total()} {words}: {some}")
        if wrong := [line[:30] for line, key in found if line.split(" ")[1] != key]:
            self.fault(f"{topic}: wrong keys: {wrong[:5]}")
        batches = [int(line.split(" ")[2].split(":")[0]) for line, _ in found]
        if batches != sorted(batches):
            self.fault(f"{topic}: batches are mixed: {batches}")

    def _judge_trace(self) -> None:
        """At each step, what could be read is what was committed."""
        done = 0
        for line in (self.directory / "trace").read_text().splitlines():
            step = json.loads(line)
            if step[0] != "visible":
                continue
            _, name, batch, seen, moved, _ = step
            if moved > batch:
                self.fault(f"at {name} of batch {batch}: the subscription is at {moved} already")
            wanted = {topic: self.sums(topic)[batch] for topic in TOPICS}
            after = {topic: self.sums(topic)[batch + 1] for topic in TOPICS}
            if name == "published":
                done = max(done, batch + 1)
                wanted = after
            if seen != wanted and not (batch < done and seen == after):
                self.fault(f"at {name} of batch {batch}: {seen} could be read, not {wanted}")
                return

    def _judge_subscription(self) -> None:
        """Check that the subscription follows all batches, also the last; only Spark advances it."""
        with Client(self.broker.url) as client:
            at = client.progress(INPUT, SUBSCRIPTION)
        if self.moves and (at.acked_to, at.visible) != (len(self.lines),) * 2:
            self.fault(
                f"the subscription is at {at.acked_to} of {at.visible}, after {len(self.lines)} batches"
            )

    @property
    def moves(self) -> bool:
        """A stream of Spark's does; batches do not."""
        return not isinstance(self.run, Simulation) and not (self.directory / "done").exists()

    def close(self) -> None:
        self._ending.set()
        self._watching.join(70.0)
        self.broker.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def published(url: str, topic: str) -> list[tuple[str, str]]:
    """Values and keys, as the official client reads them."""
    return [(each.data().decode(), each.partition_key()) for each in read(url, topic)]


def read(url: str, topic: str) -> list[Any]:
    """Every message of a topic, by the official client."""
    import pulsar

    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    try:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(20_000))
        return found
    finally:
        client.close()


STRIKES: tuple[tuple[Arm, ...], ...] = (
    (Arm("begin", "driver"),),
    (Arm("appended", "driver"),),
    (Arm("staged", "driver"),),
    (Arm("commit", "driver"),),
    (Arm("published", "driver"),),
    (Arm("published", "fail"), Arm("abort", "driver")),
    (Arm("commit", "fail"), Arm("aborted", "driver")),
    (Arm("published", "fail"),),
    (Arm("commit", "fail"),),
    (Arm("begin", "worker"),),
    (Arm("opened", "worker"),),
    (Arm("appended", "worker"),),
    (Arm("staged", "worker"),),
    (Arm("commit", "worker"),),
    (Arm("published", "worker"),),
    *(((Arm(step, "broker"),)) for step in ("begin", "opened", "appended", "staged", "commit", "published")),
)
"""Targets of kills, one life each; several arms are used one after another."""


FEW: tuple[tuple[Arm, ...], ...] = (
    (*(Arm(step, "worker") for step in ("begin", "opened", "appended", "staged")), Arm("staged", "driver")),
    (*(Arm(step, "broker") for step in ("begin", "appended", "staged")), Arm("commit", "driver")),
    (Arm("commit", "broker"), Arm("published", "driver")),
    (Arm("published", "fail"), Arm("abort", "driver")),
)
"""Where a driver's death differs most, and on the way there the others: a life of Spark's takes long."""


def storm(directory: Path, run: Run, seed: int, lives: int) -> Account:
    """Random strikes on one stream that goes on: each life gets a few more batches."""
    chance = random.Random(seed)
    with World(directory, run, batches=1, chance=chance) as world:
        for _ in range(lives):
            for _ in range(3):
                world.feed(chance.randrange(1, 60), chance.choice((10, 10, LARGE)))
            first = chance.choice(STRIKES)
            arms = tuple(Arm(arm.step, arm.target, chance.randrange(1, 3)) for arm in first[:1]) + first[1:]
            world.life(*arms)
            if world.account.faults:
                break
        world.broker.chance = None
        world.settle()
        return world.judge()


def sequence(directory: Path, run: Run, strikes: Sequence[tuple[Arm, ...]], mutant: str = "") -> Account:
    """Each of these in a life of its own, on one stream."""
    with World(directory, run, mutant) as world:
        for arms in strikes:
            world.life(*arms)
            world.feed(10, 10)
        world.settle()
        return world.judge()


def with_spark(seed: int, lives: int) -> Account:
    """Random strikes, with drivers of Spark."""
    with tempfile.TemporaryDirectory() as directory:
        return storm(Path(directory), spark_driver, seed, lives)


def simulated(seed: int, lives: int) -> Account:
    """The same without Spark, and many more of them."""
    simulation = Simulation()
    try:
        with tempfile.TemporaryDirectory() as directory:
            return storm(Path(directory), simulation, seed, lives)
    finally:
        simulation.close()


def every_step(_: int, strikes: int) -> Account:
    """Each strike once, with Spark."""
    with tempfile.TemporaryDirectory() as directory:
        return sequence(Path(directory), spark_driver, STRIKES[:strikes])


def every_step_of_batches(_: int, strikes: int) -> Account:
    """The same with `df.write`."""
    with tempfile.TemporaryDirectory() as directory:
        return sequence(Path(directory), spark_batches, STRIKES[:strikes])


PLANS: dict[str, Callable[[int, int], Account]] = {
    "simulated": simulated,
    "spark": with_spark,
    "every step": every_step,
    "every step, batches": every_step_of_batches,
}
"""By seed and length: lives, or strikes."""


# -- brokers that are wrong ---------------------------------------------------------------------------


def _publish_again(patch: pytest.MonkeyPatch) -> None:
    real = SinkCommit.apply

    def apply(self: SinkCommit, state: BrokerState, context: Context) -> Committed:
        state.sinks.last.pop(self.key, None)
        return real(self, state, context)

    patch.setattr(SinkCommit, "apply", apply)


def _drop_published(patch: pytest.MonkeyPatch) -> None:
    commit, drop = SinkCommit.apply, StageDrop.apply
    published: dict[bytes, set[int]] = {}

    def committing(self: SinkCommit, state: BrokerState, context: Context) -> Committed:
        done = commit(self, state, context)
        for stage, topic, _, _ in self.receipts:
            published.setdefault(stage, set()).add(topic)
        return done

    def dropping(self: StageDrop, state: BrokerState, context: Context) -> Done:
        for topic in published.get(self.stage, ()):
            TopicTruncate(topic).apply(state, context)
        return drop(self, state, context)

    patch.setattr(SinkCommit, "apply", committing)
    patch.setattr(StageDrop, "apply", dropping)


def _show_stages(patch: pytest.MonkeyPatch) -> None:
    real = StageAppend.apply

    def apply(self: StageAppend, state: BrokerState, context: Context) -> Staged:
        staged = real(self, state, context)
        state.log.append(self.topic, self.entries)
        context.grown.append(self.topic)
        return staged

    patch.setattr(StageAppend, "apply", apply)


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the broker does not look at the key": _publish_again,
    "abort drops what is published": _drop_published,
    "stages can be seen": _show_stages,
}


if __name__ == "__main__":
    BROKEN[sys.argv[1]](pytest.MonkeyPatch())
    sys.exit(main(sys.argv[2:]))
