"""Kill and restart processes of a channel at random; the account is exact.

    python -m tests.kit.channel.soak --kills 100000 --plan waiting

Each lane numbers its data by positions, without a gap. At the end each position is in exactly one place:
popped, displaced, still in the ring, or in the hands of a killed process. Of the last kind there is
at most one datum for each death of a consumer, and one push for each death of a producer.
Workers write files, with one `write` for each record, so that the dead leave whole records only:

    pushed      lane, position and number of a datum, after the push
    displaced   the same of a datum that came back
    popped      the same, how many were lost before it, and the life of the consumer
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
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast import Channel, ChannelProducer, Empty, HoldfastError, Loop
from tests.kit import module_command
from tests.kit.queue.fuzz import start

SLOTS, HOLDS, BATCH = 4, 3, 3
SLOT_SIZE = 512
STUCK_S = 20.0
"""If no datum is popped for this time, the soak has found a hang."""
RECORD = struct.Struct("<QQQQQ24x")
"""64 bytes: a write that a kill cuts short ends at a page, and so between two records."""
HEAD = struct.Struct("<QI")


@dataclass(frozen=True)
class Plan:
    name: str
    overflow: bool = True
    producers: int = 1
    priorities: int = 1
    loop: bool = False
    kills: int = 100
    seed: int = 1


PLANS = (
    Plan("overflowing"),
    Plan("waiting", overflow=False),
    Plan("lanes", producers=2, priorities=2),
    Plan("lanes that wait", overflow=False, producers=3),
    Plan("loop", loop=True),
    Plan("loop that waits", loop=True, overflow=False),
)


def datum(number: int) -> bytes:
    """Return a datum of a size and content that follow from its number."""
    body = random.Random(number).randbytes(number * 37 % (SLOT_SIZE - HEAD.size))
    return HEAD.pack(number, zlib.crc32(body)) + body


def number_of(data: bytes) -> int:
    """Return the number of a datum.

    Raises:
        AssertionError: its bytes are not those that were pushed.
    """
    number, sum_ = HEAD.unpack_from(data)
    assert zlib.crc32(data[HEAD.size :]) == sum_, f"torn: {data[:40]!r}"
    assert len(data) == HEAD.size + number * 37 % (SLOT_SIZE - HEAD.size), f"cut: {data[:40]!r}"
    return int(number)


# -- workers ------------------------------------------------------------------------------------------


class Records:
    """Appends to the three files."""

    def __init__(self, directory: str) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self.files = {
            kind: os.open(Path(directory, kind), flags, 0o600) for kind in ("pushed", "displaced", "popped")
        }

    def add(self, kind: str, *records: tuple[int, int, int, int, int]) -> None:
        os.write(self.files[kind], b"".join(RECORD.pack(*each) for each in records))

    def close(self) -> None:
        for each in self.files.values():
            os.close(each)


def open_channel(plan: Plan, directory: str) -> Channel:
    return (Loop if plan.loop else Channel).open("c", directory=directory)


def produce(plan: Plan, directory: str, which: int, life: int) -> None:
    """In a child, push for ever, in each way."""
    rng, records = random.Random(life), Records(directory)
    producer = open_channel(plan, directory).producer(which)
    number = life << 32
    while True:
        priority = rng.randrange(plan.priorities)
        count = rng.choice((1, 1, 1, 2, BATCH))
        batch = [datum(number + n) for n in range(count)]
        pushed = push(producer, batch, priority, rng)
        lane = which * plan.priorities + priority
        records.add("pushed", *((lane, each.position, number + n, 0, life) for n, each in enumerate(pushed)))
        back = [each.displaced for each in pushed if each.displaced is not None]
        found = [(lane, each.position, number_of(bytes(each.data)), 0, life) for each in back]
        if found:
            records.add("displaced", *found)
        for each in back:
            each.release()
        number += count
        if rng.random() < 0.05:
            time.sleep(rng.random() * 0.002)


def push(producer: ChannelProducer, batch: list[bytes], priority: int, rng: random.Random) -> list[Any]:
    if len(batch) > 1:
        return producer.push_batch(batch, priority=priority)
    if rng.random() < 0.5:
        return [producer.push(batch[0], priority=priority)]
    loan = producer.loan(len(batch[0]), priority=priority)
    with loan as buffer:
        buffer[:] = batch[0]
    return [loan.pushed]


def consume(plan: Plan, directory: str, life: int) -> None:
    """In a child, pop for ever; look at items again before their release."""
    rng, records = random.Random(life), Records(directory)
    consumer = open_channel(plan, directory).consumer()
    kept: list[tuple[Any, bytes]] = []
    while True:
        item = consumer.pop()
        data = bytes(item.data)
        lane = item.producer * plan.priorities + item.priority
        records.add("popped", (lane, item.position, number_of(data), item.lost, life))
        kept.append((item, data))
        while len(kept) > rng.randrange(HOLDS):
            old, before = kept.pop(rng.randrange(len(kept)))
            assert bytes(old.data) == before, "a held buffer was overwritten"
            old.release()
        if rng.random() < 0.05:
            time.sleep(rng.random() * 0.002)


# -- the soak -----------------------------------------------------------------------------------------


@dataclass
class Account:
    plan: str
    kills: int = 0
    positions: int = 0
    popped: int = 0
    displaced: int = 0
    lost: int = 0
    left: int = 0
    """In the ring at the end."""
    with_the_dead: int = 0
    faults: list[str] = field(default_factory=list)

    def words(self) -> str:
        return (
            f"{self.plan}: {self.kills} kills; {self.positions} data = {self.popped} popped + "
            f"{self.displaced} displaced + {self.left} left + {self.with_the_dead} with the dead; "
            f"{self.lost} counted as lost"
        )


class Soak:
    """One run of a plan, in a directory of its own."""

    def __init__(self, plan: Plan, directory: str) -> None:
        self.plan, self.directory = plan, directory
        self.random = random.Random(plan.seed)
        self.account = Account(plan.name)
        self.lives = 0
        self.dead: dict[str, set[int]] = {"produce": set(), "consume": set()}
        options: dict[str, Any] = {"slots": SLOTS, "slot_size": SLOT_SIZE, "holds": HOLDS}
        options |= {"overflow": plan.overflow, "directory": directory}
        if plan.loop:
            self.channel: Channel = Loop.create("c", **options)
        else:
            self.channel = Channel.create(
                "c", producers=plan.producers, priorities=plan.priorities, **options
            )
        self.ends: dict[int, int] = {}
        Records(directory).close()  # a worker may be killed before it makes them

    def run(self) -> Account:
        workers = [self.started(which) for which in range(-1, self.plan.producers)]
        moved, seen = time.monotonic(), 0
        try:
            while self.account.kills < self.plan.kills:
                time.sleep(self.random.random() * 0.01)
                victim = self.random.randrange(len(workers))
                pid, life, which = workers[victim]
                os.kill(pid, signal.SIGKILL)
                self.ended(pid, life, which)
                workers[victim] = self.started(which)
                size = Path(self.directory, "popped").stat().st_size
                if size != seen:
                    moved, seen = time.monotonic(), size
                elif time.monotonic() - moved > STUCK_S:
                    self.account.faults.append("no datum is popped any more")
                    break
            self.go_on(workers[0])
        finally:
            for pid, life, which in workers:
                os.kill(pid, signal.SIGKILL)
                self.ended(pid, life, which)
        self.judge()
        return self.account

    def go_on(self, consumer: tuple[int, int, int]) -> None:
        """Let the last workers run until data are popped, and displaced where they can be.

        On a busy machine all others may have been killed before they did anything.
        """
        self.await_records("popped")
        if self.plan.overflow:
            os.kill(consumer[0], signal.SIGSTOP)
            self.await_records("displaced")

    def await_records(self, kind: str) -> None:
        limit = time.monotonic() + STUCK_S
        while Path(self.directory, kind).stat().st_size == 0 and not self.account.faults:
            if time.monotonic() > limit:
                self.account.faults.append(f"after the last kill nothing is {kind}")
            time.sleep(0.002)

    def started(self, which: int) -> tuple[int, int, int]:
        self.lives += 1
        act = (
            partial(consume, self.plan, self.directory, self.lives)
            if which < 0
            else partial(produce, self.plan, self.directory, which, self.lives)
        )
        return start(act), self.lives, which

    def ended(self, pid: int, life: int, which: int) -> None:
        _, status = os.waitpid(pid, 0)
        self.account.kills += 1
        self.dead["consume" if which < 0 else "produce"].add(life)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            self.account.faults.append(f"worker {which} failed by itself: {status}")

    # -- the account

    def records(self, kind: str) -> Iterator[tuple[int, int, int, int, int]]:
        yield from RECORD.iter_unpack(Path(self.directory, kind).read_bytes())

    def judge(self) -> None:
        popped, displaced = [*self.records("popped")], [*self.records("displaced")]
        left = self.drained()
        book = self.account
        book.popped, book.displaced = len(popped), len(displaced)
        book.left, book.lost = len(left), sum(lost for *_, lost, _ in popped)
        names = {(lane, position): number for lane, position, number, *_ in self.records("pushed")}
        for lane, position, number, *_ in (*popped, *displaced, *left):
            if (known := names.setdefault((lane, position), number)) != number:
                book.faults.append(f"lane {lane}, position {position}: {known} was pushed, {number} came")
        self.judge_order(popped)
        self.judge_places(popped, displaced, left)

    def judge_order(self, popped: list[tuple[int, int, int, int, int]]) -> None:
        """Check that no datum came twice, each lane is in order, and `lost` counts exactly."""
        last: dict[int, tuple[int, int, int]] = {}
        for lane, position, number, lost, life in popped:
            before = last.get(lane)
            last[lane] = position, number, life
            if before is None:
                continue
            if position <= before[0] or number <= before[1]:
                self.account.faults.append(f"lane {lane}: {position} ({number}) came after {before}")
            gap = position - before[0] - 1
            if life == before[2] and gap != lost:
                self.account.faults.append(f"lane {lane}: {gap} before {position} are gone, lost is {lost}")
            died = sum(before[2] <= each < life for each in self.dead["consume"])
            if not self.plan.overflow and gap > died:
                self.account.faults.append(f"lane {lane}: {gap} before {position} are gone, {died} died")
        if not self.plan.overflow and self.account.lost:
            self.account.faults.append(f"{self.account.lost} lost, in a channel that does not overflow")

    def judge_places(self, popped: Any, displaced: Any, left: Any) -> None:
        """Check that each position is in one place, or with a dead process."""
        places: dict[int, set[int]] = defaultdict(set)
        for lane, position, *_ in (*popped, *displaced, *left):
            if position in places[lane]:
                self.account.faults.append(f"lane {lane}: position {position} is in two places")
            places[lane].add(position)
        for lane, end in self.ends.items():
            begin = SLOTS + 1
            self.account.positions += end - begin
            missing = {*range(begin, end)} - places[lane]
            self.account.with_the_dead += len(missing)
            if places[lane] - {*range(begin, end)}:
                self.account.faults.append(f"lane {lane}: positions beyond its END")
        most = len(self.dead["consume"]) + (BATCH * len(self.dead["produce"]) if self.plan.overflow else 0)
        if self.account.with_the_dead > most:
            self.account.faults.append(f"{self.account.with_the_dead} are with the dead, more than {most}")

    def drained(self) -> list[tuple[int, int, int, int, int]]:
        """Take all roles, pop all data, and check that every buffer is free."""
        plan, left = self.plan, []
        producers = [self.channel.producer(which) for which in range(plan.producers)]
        with self.channel.consumer() as consumer, suppress(Empty):
            while True:
                with consumer.pop(0) as item:
                    lane = item.producer * plan.priorities + item.priority
                    left.append((lane, item.position, number_of(bytes(item.data)), item.lost, 0))
        for which, producer in enumerate(producers):
            for priority in range(plan.priorities):
                pushed = producer.push(b"end", priority=priority)
                self.ends[which * plan.priorities + priority] = pushed.position
        with self.channel.consumer() as consumer, suppress(Empty):
            while True:
                consumer.pop(0).release()
        self.account.faults += self.channel.check()
        try:
            self.judge_pool(producers)
        except HoldfastError as error:
            self.account.faults.append(f"the pool is not whole: {error}")
        return left

    def judge_pool(self, producers: list[ChannelProducer]) -> None:
        """Lend as many buffers of each lane as it allows; then all are free."""
        for producer in producers:
            for priority in range(self.plan.priorities):
                loans = [producer.loan(priority=priority) for _ in range(SLOTS + 2)]
                for loan in loans:
                    loan.release()
        stats = self.channel.stats()
        if (stats.free + stats.returning, stats.held, stats.ready) != (stats.buffers, 0, 0):
            self.account.faults.append(f"not all buffers are free: {stats}")
        if stats.corrupt:
            self.account.faults.append(f"{stats.corrupt} operations met damage")


def soak(plan: Plan) -> Account:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-soak.") as directory:
        return Soak(plan, directory).run()


def run(plan: Plan) -> Account:
    """Run a soak in a process of its own, which may fork."""
    words = [*module_command(__file__), "--json", "--plan", plan.name]
    words += ["--kills", str(plan.kills), "--seed", str(plan.seed)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return Account(**json.loads(done.stdout))


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill processes of a channel; account for its data.")
    parser.add_argument("--plan", choices=[plan.name for plan in PLANS], help="one plan only")
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    failed = False
    for plan in PLANS:
        if options.plan not in (None, plan.name):
            continue
        account = soak(Plan(**{**asdict(plan), "kills": options.kills, "seed": options.seed}))
        failed |= bool(account.faults)
        print(json.dumps(asdict(account)) if options.json else account.words(), flush=True)
        if not options.json:
            print(*account.faults[:20], sep="\n", end="")
    return int(failed and not options.json)


if __name__ == "__main__":
    sys.exit(main())
