"""Kill storms: many processes on one queue, killed and stopped at random.

A storm runs in a process of its own (`storm.py PLAN`), which forks the workers, so that thousands of deaths
fit into seconds. Then it accounts for every message. Three files record what happened. Each record is one
`write` to a file opened for appending, so a killed process leaves whole records only:

    put       a producer writes what it put after `put` returned
    got       a consumer writes what it got, and how often it was delivered before, before it settles
    buried    the same for the dead-letter queue

Size and content of a message follow from the producer's number and the message's.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from holdfast import Full, Queue, Timeout, _core
from holdfast.memory.queue import Checksum, Delivery
from tests.kit import module_command

STUCK_S = 20.0
"""If no message moves for this time, the storm has found a hang."""


@dataclass(frozen=True)
class Plan:
    """The settings of a storm. Plan and seed decide the workers, not the kernel's schedule."""

    name: str = "plain"
    kills: int = 500
    seconds: float = 1e9
    """The storm ends at `kills` or after this time, whichever is first."""
    seed: int = 0
    capacity: int = 4096
    delivery: Delivery = "at-least-once"
    checksum: Checksum = "header"
    stall_limit: float | None = None
    max_deliveries: int | None = None
    producers: int = 4
    consumers: int = 4
    put_batch: int = 1
    get_batch: int = 1
    size_max: int = 600
    give_back: float = 0.02
    """How often a consumer gives a message back."""
    poison: int = 0
    """One message in this many is never settled by any consumer; 0: none."""
    armed: float = 0.5
    """The share of workers with a named point at which they kill or stop themselves."""
    armed_stops: float = 0.2
    """The share of those that stop, and do not die."""
    stops: float = 0.25
    """SIGSTOPs for each SIGKILL."""
    pause_ms: float = 2.0
    """The average time between two signals."""


PLANS = (
    Plan("plain"),
    Plan("small ring", capacity=1024, size_max=400),
    Plan("batches", capacity=8192, put_batch=12, get_batch=8, checksum="full"),
    Plan("at most once", capacity=2048, delivery="at-most-once", put_batch=3, get_batch=3),
    Plan(
        "stall limit",
        capacity=2048,
        stall_limit=0.004,
        producers=6,
        consumers=2,
        stops=1,
        armed=0.9,
        armed_stops=0.7,
    ),
    Plan("give back", capacity=2048, give_back=0.3, consumers=6, producers=2, get_batch=4),
    Plan("large messages", capacity=1 << 20, size_max=400_000, checksum="full", producers=3, consumers=3),
    Plan("dead letters", capacity=4096, max_deliveries=3, poison=13),
)


@dataclass
class Account:
    """The counts of a storm, and its faults."""

    plan: str
    seed: int
    kills: int = 0
    killed_themselves: int = 0
    stops: int = 0
    workers: int = 0
    put: int = 0
    put_unconfirmed: int = 0
    delivered: int = 0
    redelivered: int = 0
    given_up: int = 0
    buried: int = 0
    lost: int = 0
    recovered: int = 0
    fenced: int = 0
    laps: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def words(self) -> str:
        counts = {k: v for k, v in asdict(self).items() if k not in ("plan", "seed", "faults", "seconds")}
        told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in counts.items())
        rate = self.kills / max(self.seconds, 1e-9)
        return f"{self.plan} (seed {self.seed}): {told}; {self.seconds:.1f} s, {rate:.0f} kills/s"


# -- messages whose content follows from their numbers -------------------------------------------------

ID = struct.Struct("<II")
TABLE = random.Random(20).randbytes(1 << 19)
RECOVERY = [point for point in _core.points() if point.startswith(("recover_", "attach_"))]
POINTS = {
    "produce": [point for point in _core.points() if point.startswith(("put_", "many_", "pad_"))] + RECOVERY,
    "consume": [point for point in _core.points() if point.startswith(("take_", "settle", "back_", "fence_"))]
    + RECOVERY,
}


def content(plan: Plan, producer: int, number: int) -> bytes:
    """Return a payload; blocks of all lengths meet the end of the ring."""
    mixed = (producer * 2654435761 + number * 2246822519) >> 5
    size = 8 + mixed % (113 if mixed & 3 else plan.size_max - 7)
    start = mixed & 0xFFFF
    return ID.pack(producer, number) + TABLE[start : start + size - 8]


def is_poison(plan: Plan, number: int) -> bool:
    return plan.poison != 0 and number % plan.poison == plan.poison - 1


def die_with_parent() -> None:
    """Die with the parent, which alone kills and continues us."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


# -- workers ------------------------------------------------------------------------------------------

PUT = struct.Struct("<II")  # producer, number
GOT = struct.Struct("<IIII")  # producer, number, consumer, redelivered
RUNNING, NO_MORE_PUTS, DRAIN = 0, 1, 2


class Worker:
    """A forked process. It opens the queue itself: an attachment does not survive a fork."""

    def __init__(self, plan: Plan, directory: str, phase: mmap.mmap, me: int, seed: int) -> None:
        self.plan, self.phase, self.me, self.random = plan, phase, me, random.Random(seed)
        self.directory = directory

    def open(self, name: str) -> Queue:
        q = Queue.open(name, directory=self.directory)
        q.spin = 0.0  # there are more workers than cores
        return q

    def log(self, name: str) -> int:
        return os.open(f"{self.directory}/{name}", os.O_WRONLY | os.O_APPEND)

    def arm(self, points: list[str]) -> None:
        if self.random.random() < self.plan.armed:
            action = "stop" if self.random.random() < self.plan.armed_stops else "kill"
            point = self.random.choice(points)
            rare = point.startswith(("recover", "attach", "fence"))
            _core.arm(point, action, self.random.randint(1, 4 if rare else 60))

    def produce(self) -> None:
        self.arm(POINTS["produce"])
        q, log, number = self.open("q"), self.log("put"), 0
        while self.phase[0] == RUNNING:
            count = self.random.randint(1, self.plan.put_batch)
            batch = [content(self.plan, self.me, number + i) for i in range(count)]
            try:
                if count == 1:
                    q.put(batch[0], timeout=0.05)
                else:
                    q.put_many(batch, timeout=0.05)
            except Timeout as late:
                count = late.done
            os.write(log, b"".join(PUT.pack(self.me, number + i) for i in range(count)))
            number += count
        q.detach()

    def consume(self) -> None:
        self.arm(POINTS["consume"])
        q, log = self.open("q"), self.log("got")
        while True:
            count = self.random.randint(1, self.plan.get_batch)
            try:
                messages = q.get_many(count, timeout=0.02)
            except Timeout:
                if self.phase[0] == DRAIN:
                    break
                continue
            records = []
            for message in messages:
                producer, number = self.verified(bytes(message.data))
                records.append(GOT.pack(producer, number, self.me, message.redelivered))
            os.write(log, b"".join(records))
            for message, record in zip(messages, records, strict=True):
                number = GOT.unpack(record)[1]
                if is_poison(self.plan, number) and self.phase[0] != DRAIN and self.random.random() < 0.3:
                    os.kill(os.getpid(), signal.SIGKILL)
                elif is_poison(self.plan, number) or self.random.random() < self.plan.give_back:
                    message.give_back()
                else:
                    message.settle()
        q.detach()

    def bury(self) -> None:
        q, log = self.open("dead"), self.log("buried")
        while True:
            try:
                with q.get(timeout=0.02) as message:
                    producer, number = self.verified(bytes(message.data))
                    os.write(log, GOT.pack(producer, number, self.me, message.redelivered))
            except Timeout:
                if self.phase[0] == DRAIN:
                    break
        q.detach()

    def verified(self, data: bytes) -> tuple[int, int]:
        producer, number = ID.unpack_from(data)
        if data != content(self.plan, producer, number):
            raise AssertionError(
                f"message {producer}/{number} is not what was put: {len(data)} bytes, {data[:40]!r}"
            )
        return producer, number


# -- the storm ----------------------------------------------------------------------------------------


class Storm:
    """Forks the workers, kills and stops some, lets the living finish, and counts."""

    def __init__(self, plan: Plan, directory: str) -> None:
        self.plan, self.directory, self.random = plan, directory, random.Random(plan.seed)
        self.account = Account(plan.name, plan.seed)
        self.phase = mmap.mmap(-1, 4096)
        self.roles: dict[int, str] = {}  # pid -> its work
        self.stopped: dict[int, float] = {}  # pid -> when it may continue
        self.killed: set[int] = set()  # by us, and not yet waited for
        self.next_worker = 1
        self.progress = (0, time.monotonic())
        for name in ("put", "got", "buried", "errors"):
            Path(directory, name).touch()

    def run(self) -> Account:
        begin = time.monotonic()
        plan = self.plan
        Queue.create(
            "q",
            directory=self.directory,
            capacity=plan.capacity,
            delivery=plan.delivery,
            checksum=plan.checksum,
            stall_limit=plan.stall_limit,
            max_deliveries=plan.max_deliveries,
            dead_letter="dead" if plan.max_deliveries else None,
            participants=plan.producers + plan.consumers + 4,
        ).detach()
        gc.collect()
        gc.freeze()  # pages that the children share stay shared
        try:
            for role in ["produce"] * plan.producers + ["consume"] * plan.consumers:
                self.fork(role)
            if plan.max_deliveries:
                self.fork("bury")
            while self.account.kills < plan.kills and time.monotonic() - begin < plan.seconds:
                self.blow()
            self.finish()
        finally:
            for pid in [*self.roles]:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.account.seconds = time.monotonic() - begin
        judge(self)
        return self.account

    def fork(self, role: str) -> None:
        me, seed = self.next_worker, self.random.getrandbits(32)
        self.next_worker += 1
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                die_with_parent()
                getattr(Worker(self.plan, self.directory, self.phase, me, seed), role)()
                status = 0
            except BaseException:
                with Path(self.directory, "errors").open("a") as errors:
                    errors.write(f"{role} {me}: {traceback.format_exc()}\n")
            finally:
                os._exit(status)
        self.roles[pid] = role
        self.account.workers += 1

    def blow(self) -> None:
        """Kill or stop one worker, and continue those whose pause is over."""
        time.sleep(self.random.expovariate(1000.0 / self.plan.pause_ms))
        self.reap(replace_dead=True)
        pid = self.random.choice([*self.roles])
        if self.random.random() < self.plan.stops / (1 + self.plan.stops):
            if len(self.stopped) < len(self.roles) // 2:
                os.kill(pid, signal.SIGSTOP)
        else:
            self.killed.add(pid)
            os.kill(pid, signal.SIGKILL)
        for each, until in [*self.stopped.items()]:
            if until < time.monotonic():
                del self.stopped[each]
                with suppress(ProcessLookupError):
                    os.kill(each, signal.SIGCONT)
        if self.account.workers % 50 == 0:
            self.look()

    def reap(self, replace_dead: bool) -> None:
        while self.roles:
            pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            if pid == 0:
                break
            if os.WIFSTOPPED(status):
                self.account.stops += 1
                self.stopped[pid] = time.monotonic() + self.random.expovariate(100.0)
                continue
            role = self.roles.pop(pid)
            self.stopped.pop(pid, None)
            if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
                self.account.kills += 1
                self.account.killed_themselves += pid not in self.killed
            elif status != 0:
                self.account.faults.append(
                    f"{role} {pid} ended with status {os.waitstatus_to_exitcode(status)}"
                )
            self.killed.discard(pid)
            if replace_dead:
                self.fork(role)
        size = Path(self.directory, "got").stat().st_size
        if size != self.progress[0]:
            self.progress = (size, time.monotonic())
        elif time.monotonic() - self.progress[1] > STUCK_S and replace_dead:
            raise RuntimeError(f"nothing moves: {_core.inspect(self.directory, 'q', 0, 64)}")

    def look(self) -> None:
        """Check the queue from outside, during the storm."""
        seen = _core.inspect(self.directory, "q", blocks_max=64)
        faults = [*seen["faults"], *[each for each in seen["queue"]["list"] if each.get("fault")]]
        if seen["queue"]["fault"] is not None:
            faults.append(seen["queue"]["fault"])
        self.account.faults += [f"seen during the storm: {fault}" for fault in faults]

    def finish(self) -> None:
        """Let producers end and consumers drain; continue workers that stopped at a point."""
        for phase in (NO_MORE_PUTS, DRAIN):
            self.phase[0] = phase
            limit = time.monotonic() + STUCK_S
            while self.roles if phase == DRAIN else "produce" in self.roles.values():
                for pid in [*self.stopped]:
                    del self.stopped[pid]
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                self.reap(replace_dead=False)
                if time.monotonic() > limit:
                    raise RuntimeError(
                        f"{self.roles} do not end: {_core.inspect(self.directory, 'q', 0, 64)}"
                    )
                time.sleep(0.001)


# -- the account --------------------------------------------------------------------------------------


def judge(storm: Storm) -> None:
    """Drain the rest, read the three files, and record the faults."""
    plan, account = storm.plan, storm.account
    fault = account.faults.append
    errors = Path(storm.directory, "errors").read_text()
    if errors:
        fault(errors)
    survivor = Worker(plan, storm.directory, storm.phase, 0, 0)
    survivor.plan = replace(plan, armed=0.0, give_back=0.0, get_batch=1)
    storm.phase[0] = DRAIN
    survivor.consume()
    if plan.max_deliveries:
        survivor.bury()
    judge_soundness(storm)
    put: dict[int, int] = {}  # producer -> how many of its messages it knows to be put
    for producer, number in PUT.iter_unpack(Path(storm.directory, "put").read_bytes()):
        if number != put.get(producer, 0):
            fault(f"producer {producer} confirmed {number} after {put.get(producer, 0) - 1}")
        put[producer] = number + 1
    account.put = sum(put.values())
    buried = {(p, n) for p, n, _, _ in GOT.iter_unpack(Path(storm.directory, "buried").read_bytes())}
    account.buried = len(buried)
    judge_deliveries(storm, put, buried)


def judge_deliveries(storm: Storm, put: dict[int, int], buried: set[tuple[int, int]]) -> None:
    plan, account = storm.plan, storm.account
    fault = account.faults.append
    times: dict[tuple[int, int], int] = {}  # message -> deliveries
    last: dict[tuple[int, int], int] = {}  # producer, consumer -> newest first delivery
    for producer, number, consumer, again in GOT.iter_unpack(Path(storm.directory, "got").read_bytes()):
        message = (producer, number)
        account.delivered += 1
        account.redelivered += again > 0
        if number >= put.get(producer, 0) + plan.put_batch:
            fault(f"{message} was delivered, and cannot have been put")
        if message in times and (again == 0 or plan.delivery == "at-most-once"):
            fault(f"{message} was delivered again, to {consumer}, with redelivered={again}")
        if again == 0:
            if number <= last.get((producer, consumer), -1):
                fault(f"{message} came to {consumer} after {last[producer, consumer]}")
            last[producer, consumer] = number
        times[message] = times.get(message, 0) + 1
        if plan.max_deliveries and times[message] > plan.max_deliveries:
            fault(f"{message} was delivered {times[message]} times, over {plan.max_deliveries}")
    known = times.keys() | buried
    account.put_unconfirmed = sum(number >= put.get(producer, 0) for producer, number in known)
    missing = [(p, n) for p, count in put.items() for n in range(count) if (p, n) not in known]
    if plan.delivery == "at-most-once":
        account.given_up = len(missing)
        if len(missing) > account.kills * plan.get_batch:
            fault(f"{len(missing)} messages are gone, more than the dead consumers can have held")
    else:
        account.lost = len(missing)
        if missing:
            fault(f"lost: {missing[:20]}")
    if plan.poison:
        alive = [
            (p, n)
            for p, count in put.items()
            for n in range(count)
            if is_poison(plan, n) and (p, n) not in buried
        ]
        if alive:
            fault(f"poison that is not in the dead-letter queue: {alive[:20]}")


def judge_soundness(storm: Storm) -> None:
    """Check that the queue is sound and that all of it is usable."""
    plan, account = storm.plan, storm.account
    with Queue.open("q", directory=storm.directory) as q:
        q.recover()
        account.faults += q.check()
        stats = q.stats()
        account.recovered = stats.skipped + stats.handed_on + stats.released
        account.fenced = stats.fenced
        if stats.holders or stats.ready or stats.returned or stats.corrupt:
            account.faults.append(f"after the storm: {stats}")
        account.laps = _core.inspect(storm.directory, "q")["queue"]["head"] * 64 // plan.capacity - 1
        filled = 0
        with suppress(Full):
            while True:
                q.put(b"", timeout=0)
                filled += 1
        if filled != plan.capacity // 64 - 1 or q.purge() != filled:
            account.faults.append(f"only {filled} granules of {plan.capacity // 64} can be used again")
        account.faults += q.check()


# -- as a program -------------------------------------------------------------------------------------


def run(plan: Plan) -> Account:
    """Run a storm in a process of its own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-storm.") as directory:
        done = subprocess.run(
            [*module_command(__file__), json.dumps(asdict(plan)), directory],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"the storm {plan} ended with status {done.returncode}: {done.stdout}")
    return Account(**json.loads(done.stdout))


def main() -> None:
    print(json.dumps(asdict(Storm(Plan(**json.loads(sys.argv[1])), sys.argv[2]).run())))


if __name__ == "__main__":
    main()
