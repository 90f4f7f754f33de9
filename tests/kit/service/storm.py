"""Kill and restart the processes of a service at random; no capacity is lost.

    python -m tests.kit.service.storm --kills 10000

A provider sends numbered samples, answers calls and updates a field. Proxies take, hold, release, call and
subscribe anew; a tracer looks at every sample. Each may be killed at any moment, and is restarted.
While it runs, every process checks its samples and calls. A sample has the bytes of its number, also while it
is held. Numbers rise, and a gap is what `missed` says. A call ran at most once, and its response is its own.
At the end all are dead or closed: every sample is free, and no log and no call is left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast import (
    Closed,
    Event,
    Exists,
    Field,
    Full,
    HoldfastError,
    Method,
    PeerDied,
    Proxy,
    Service,
    Skeleton,
    Timeout,
)
from tests.kit import module_command
from tests.kit.queue.storm import die_with_parent

SIZE = 256
SAMPLES = 24
PROXIES = 3
HEAD = struct.Struct("<QI")
STUCK_S = 20.0
"""If no sample is taken for this time, the storm has found a hang."""


class Rig(Service):
    sample = Event(size=SIZE, samples=SAMPLES, max_subscribers=8)
    level = Field("i8", initial=0, samples=32)
    add = Method("i8", "i8", calls=4)


@dataclass(frozen=True)
class Plan:
    kills: int = 100
    seed: int = 1


@dataclass
class Account:
    kills: int = 0
    sent: int = 0
    taken: int = 0
    traced: int = 0
    called: int = 0
    provider_lives: int = 0
    reused: int = 0
    faults: list[str] = field(default_factory=list)

    def words(self) -> str:
        return (
            f"{self.kills} kills, {self.provider_lives} lives of the provider ({self.reused} in use): "
            f"{self.sent} sent, {self.taken} taken, {self.traced} traced, {self.called} called"
        )


def payload(number: int) -> bytes:
    """Return a sample of a size and content that follow from its number."""
    body = random.Random(number).randbytes(number * 37 % (SIZE - HEAD.size))
    return HEAD.pack(number, zlib.crc32(body)) + body


def require_payload(data: bytes, number: int) -> None:
    """Check that a sample has the bytes of its number."""
    found, crc = HEAD.unpack_from(data)
    assert found == number, f"sample {number} has the bytes of {found}"
    assert zlib.crc32(data[HEAD.size :]) == crc, f"sample {number} is torn"


# -- workers ------------------------------------------------------------------------------------------


class Tally:
    """Counters in a file, one write each, so that the dead leave whole numbers."""

    def __init__(self, directory: str, name: str, life: int = 0) -> None:
        self.first = Path(directory, f"acts.{life}") if life else None
        self.file = os.open(Path(directory, f"tally.{name}"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self) -> None:
        os.write(self.file, b".")
        if self.first is not None:
            self.first.touch()
            self.first = None


def provide(directory: str, life: int) -> None:
    """In a child: offer, send, update and answer for ever; sometimes stop and offer again."""
    rng, sent = random.Random(life), Tally(directory, "sent", life)
    lives, reused = Tally(directory, "lives"), Tally(directory, "reused")
    ran = Path(directory, "ran")
    ran.mkdir(exist_ok=True)

    def add(number: int) -> int:
        (ran / str(number)).touch(exist_ok=False)  # it runs at most once
        return number + 1

    while True:
        try:
            skeleton = Rig.offer("r", handlers={"add": add}, directory=directory)
        except Exists:
            time.sleep(0.001)  # the kernel has not released the dead one's lock yet
            continue
        lives.add()
        if skeleton.reused:
            reused.add()
        with skeleton:
            for _ in range(rng.choice((20, 200, 2000))):
                send(skeleton, rng)
                sent.add()
                if rng.random() < 0.1:
                    skeleton.level.update(skeleton.level.value + 1)
                if rng.random() < 0.02:
                    time.sleep(rng.random() * 0.002)


def send(skeleton: Skeleton, rng: random.Random) -> None:
    """Send the next sample, as a copy or in place; sometimes give a loan back."""
    data = payload(skeleton.sample.sequence + 1)
    if rng.random() < 0.1:
        skeleton.sample.loan().release()
    if rng.random() < 0.5:
        number = skeleton.sample.send(data)
        assert number == HEAD.unpack_from(data)[0], "another process has sent, too"
        return
    with skeleton.sample.loan(len(data)) as buffer:
        buffer[:] = data


def consume(directory: str, life: int, tracer: bool) -> None:
    """In a child: take, hold, release, get and call for ever."""
    rng = random.Random(life)
    taken, called = Tally(directory, "traced" if tracer else "taken", life), Tally(directory, "called")
    connect = Rig.trace if tracer else Rig.find
    while True:
        try:
            proxy = connect("r", 5, directory=directory, application=f"life {life}")
        except HoldfastError:
            continue  # no provider in time, or the tracer's slot is not free yet
        with proxy, suppress(Full):
            look(proxy, rng, taken, called, tracer)


def look(proxy: Proxy, rng: random.Random, taken: Tally, called: Tally, tracer: bool) -> None:
    kept: list[tuple[Any, int]] = []
    most = rng.randrange(1, 4)
    last = 0
    with proxy.sample.subscribe(max_samples=most) as samples:
        for _ in range(rng.choice((5, 50, 500))):
            try:
                sample = samples.take(timeout=1)
            except (Timeout, Closed):
                continue
            number = sample.sequence
            assert number > last, f"{number} came after {last}"
            if last and samples.moves == 0:
                assert sample.missed == number - last - 1, f"missed {sample.missed} from {last} to {number}"
            last = number
            require_payload(bytes(sample.data), number)
            taken.add()
            kept.append((sample, number))
            while len(kept) > rng.randrange(most):
                old, its = kept.pop(rng.randrange(len(kept)))
                require_payload(bytes(old.data), its)
                old.release()
            if not tracer and rng.random() < 0.05:
                call(proxy, rng, called)
    for old, its in kept:  # valid after the end of the subscription, too
        require_payload(bytes(old.data), its)
        old.release()


def call(proxy: Proxy, rng: random.Random, called: Tally) -> None:
    number = rng.getrandbits(62)
    try:
        assert proxy.add(number, timeout=1) == number + 1, "the response is another call's"
        called.add()
        assert proxy.level.get(timeout=1) >= 0
    except (PeerDied, Timeout, Full):
        pass


# -- the storm ----------------------------------------------------------------------------------------


class Storm:
    """One run of a plan, in a directory of its own."""

    def __init__(self, plan: Plan, directory: str) -> None:
        self.plan, self.directory = plan, directory
        self.random = random.Random(plan.seed)
        self.account = Account()
        self.lives = 0
        self.children: dict[str, subprocess.Popen[str]] = {}
        self.life_of: dict[str, int] = {}

    def start(self, role: str) -> None:
        self.lives += 1
        life = self.plan.seed * 1_000_000 + self.lives
        self.life_of[role] = life
        kind = "provide" if role == "provider" else "trace" if role == "tracer" else "consume"
        self.children[role] = subprocess.Popen(
            [*module_command(__file__), "--worker", kind, "--directory", self.directory, "--seed", str(life)],
            stderr=subprocess.PIPE,
            text=True,
        )

    def tally(self, name: str) -> int:
        with suppress(FileNotFoundError):
            return Path(self.directory, f"tally.{name}").stat().st_size
        return 0

    def run(self) -> Account:
        roles = ["provider", "tracer", *(f"proxy {n}" for n in range(PROXIES))]
        for role in roles:
            self.start(role)
        seen, since = 0, time.monotonic()
        try:
            while self.account.kills < self.plan.kills and not self.account.faults:
                role = self.random.choice(roles)
                self.let_act(role)
                self.kill(role)
                self.start(role)
                now = self.tally("taken")
                if now != seen:
                    seen, since = now, time.monotonic()
                elif time.monotonic() - since > STUCK_S:
                    self.account.faults.append(f"no sample was taken for {STUCK_S} s")
            self.go_on(seen)
        finally:
            for role in roles:
                self.kill(role, counts=False)
        self.judge()
        return self.account

    def let_act(self, role: str) -> None:
        """Wait until a process has done something, mostly; then a moment longer."""
        acts = Path(self.directory, f"acts.{self.life_of[role]}")
        limit = time.monotonic() + self.random.choice((0.05, STUCK_S, STUCK_S, STUCK_S))
        while not acts.exists() and time.monotonic() < limit and self.children[role].poll() is None:
            time.sleep(0.002)
        time.sleep(self.random.random() * 0.02)

    def go_on(self, seen: int) -> None:
        """Let all run until samples are taken again after the last restarts."""
        limit = time.monotonic() + STUCK_S
        while self.tally("taken") <= seen and not self.account.faults:
            if time.monotonic() > limit:
                self.account.faults.append("after the last kill no sample is taken")
            time.sleep(0.01)

    def kill(self, role: str, counts: bool = True) -> None:
        child = self.children.pop(role)
        if child.poll() is not None and child.returncode != -signal.SIGKILL:
            errors = child.stderr.read() if child.stderr else ""
            self.account.faults.append(f"{role} ended with {child.returncode}: {errors[-2000:]}")
        child.kill()
        child.communicate()
        self.account.kills += counts

    def judge(self) -> None:
        account = self.account
        account.sent, account.taken, account.traced, account.called = map(
            self.tally, ("sent", "taken", "traced", "called")
        )
        account.provider_lives, account.reused = self.tally("lives"), self.tally("reused")
        with suppress(FileNotFoundError):
            names = {each.name for each in Path(self.directory).iterdir()}
            account.faults += [f"left behind: {each}" for each in names if each.startswith("holdfast.queue")]
        with (
            Rig.offer("r", directory=self.directory) as skeleton,
            Rig.find("r", 5, directory=self.directory) as proxy,
        ):
            stats = proxy.stats()
            for each in stats.elements:
                if (each.held, each.writing, each.subscribers, each.calls_under_way) != (0, 0, 0, 0):
                    account.faults.append(f"not free: {each}")
            account.faults += proxy.check()
            samples = proxy.sample.subscribe(max_samples=SAMPLES - 3)
            for _ in range(2 * SAMPLES):
                skeleton.sample.send(payload(skeleton.sample.sequence + 1))
            found = samples.take_new()
            if len(found) != SAMPLES - 3:
                account.faults.append(f"{len(found)} samples can be held, not {SAMPLES - 3}")


def run(plan: Plan) -> Account:
    """Run a storm; return its account."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-storm.") as directory:
        return Storm(plan, directory).run()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--worker", choices=("provide", "consume", "trace"), help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        die_with_parent()
        if options.worker == "provide":
            provide(options.directory, options.seed)
        consume(options.directory, options.seed, options.worker == "trace")
    account = run(Plan(options.kills, options.seed))
    print(account.words())
    print(json.dumps(asdict(account)))
    return 1 if account.faults else 0


if __name__ == "__main__":
    sys.exit(main())
