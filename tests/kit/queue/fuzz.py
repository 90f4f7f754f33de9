"""A hostile peer overwrites the mapping of a queue; readers must notice. `make fuzz`.

    python -m tests.kit.queue.fuzz                      # the targeted cases: every word, in every state
    python -m tests.kit.queue.fuzz --random 100000      # random bytes at random places, as many as you like
    python -m tests.kit.queue.fuzz --seed 7 --only wrapped

A state is made once, with living, stopped and dead peers, and kept as the bytes of the file. For each case
the bytes are restored and a reader attaches. One field is overwritten before it attaches, after it, or while
it holds a message. Then the reader makes every call that a queue has. These hold:

- it neither crashes nor hangs, and raises only holdfast's own errors;
- it gets no message that was not put, and no message twice without a mark;
- it gets all the others, or it gets an error: Corrupt, or `check()` names a fault;
- fields that decide nothing (the table of participants, bells, ages, counts) change nothing at all.
"""

from __future__ import annotations

import argparse
import faulthandler
import functools
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from holdfast import Closed, Empty, HoldfastError, Queue, Timeout, _core
from holdfast.memory.findings import faults_of
from holdfast.memory.queue import Checksum
from tests.kit import kept, module_command
from tests.kit.queue.hostile import (
    CONTROLS,
    DESCRIPTORS,
    GRANULES,
    NEVER_PUT,
    RING,
    STATES,
    Case,
    Scene,
    Target,
    content,
    scattered,
    targeted,
)
from tests.kit.queue.kept_cases import NAME, encoded, keep_cases, play_again, scene_of
from tests.kit.queue.storm import die_with_parent
from tests.kit.slices import NIGHTLY, base
from tests.kit.slices import cases as cases_kept

SLOW = 60
"""An operation on a damaged queue takes at most this multiple of the processor time of fixed work."""
STUCK_S = 30.0
"""A case that takes longer by the clock hangs."""


@functools.cache
def fixed_work_s() -> float:
    """Return the processor time of a fixed piece of work in this run."""
    begin = time.process_time()
    sum(range(1_000_000))
    return time.process_time() - begin


# -- one case -----------------------------------------------------------------------------------------


class Judge:
    """Sees all messages that a reader gets, and knows which it may get."""

    def __init__(self, scene: Scene, case: Case) -> None:
        self.scene, self.case = scene, case
        self.due = set(scene.due)
        self.put: set[bytes] = set()
        self.got: set[bytes] = set()
        self.back: set[bytes] = set()  # given back by the reader: may be redelivered, with a mark
        self.told = False
        self.words = ""  # of the last error
        self.problems: list[str] = []
        self.slowest = (0.0, "")

    def overlaps(self, offset: int, size: int) -> bool:
        target = self.case.target
        return target.offset < offset + size and offset < target.offset + target.width

    def forged(self, position: int) -> bool:
        """Return whether the block's own descriptor was overwritten: any result is allowed for it."""
        return self.overlaps(DESCRIPTORS + 8 * (position % GRANULES), 8)

    def original(self, data: bytes, position: int) -> bytes | None:
        """Return the message that was put, for bytes that were received."""
        known = self.scene.due | self.scene.seen | self.put
        if data in known:
            return data
        expected = self.scene.at.get(position)
        if expected is None:
            return None
        changed = self.struck(RING + 64 * (position % GRANULES) + 32, len(expected))
        return expected if changed == data and self.scene.checksum == "header" else None

    def received(self, data: bytes, position: int, redelivered: int) -> None:
        message = self.original(data, position)
        if message is None:
            if not (self.forged(position) and data == NEVER_PUT):
                self.problems.append(f"a message that was not put: {data[:30]!r} at {position}")
            return
        before = message in self.scene.seen or message in self.got
        if before and redelivered == 0 and not self.forged(position):
            self.problems.append(f"{message[:10]!r} was delivered again without a mark")
        if message in self.got and message not in self.back and not self.forged(position):
            self.problems.append(f"{message[:10]!r} was delivered again, and was not given back")
        if message not in self.scene.due | self.put and not self.forged(position):
            self.problems.append(f"{message[:10]!r} was delivered, which a living peer holds or has settled")
        self.got.add(message)
        self.back.discard(message)
        self.due.discard(message)

    def hidden(self) -> Iterator[bytes]:
        """Find messages hidden by an overwritten word of the right lap.

        The word could be a participant's own, so it hides the extent that it claims.
        """
        image, shift = self.scene.image, GRANULES.bit_length() - 1
        tail = int.from_bytes(image[4096 + CONTROLS["tail"] :][:8], "little") & (1 << 52) - 1
        for position in range(tail, tail + GRANULES):
            if not self.forged(position):
                continue
            at = DESCRIPTORS + 8 * (position % GRANULES)
            word = int.from_bytes(self.struck(at, 8), "little")
            lap, length = word >> 12 + shift, (word >> 13 & GRANULES // 2 - 1) + 1
            for each, data in self.scene.at.items():
                if each == position or (lap == position >> shift and position <= each < position + length):
                    yield data

    def struck(self, offset: int, size: int) -> bytes:
        """Return these bytes of the file after the overwriting."""
        changed = bytearray(self.scene.image)
        changed[self.case.target.offset : self.case.target.offset + self.case.target.width] = self.case.data
        return bytes(changed[offset : offset + size])

    def forgive(self) -> None:
        """Forgive messages that need not have been delivered.

        These are the message whose word was overwritten, and messages behind a living writer that does not
        move. An overwritten word may also pretend to be such a writer.
        """
        self.due -= {*self.hidden()}
        if self.due and (self.scene.pids or self.overlaps(DESCRIPTORS, 8 * GRANULES)):
            seen = _core.inspect(self.scene.directory, "q", 0, GRANULES, 64 * GRANULES)
            for each in seen.get("queue", {}).get("list", []):
                if each.get("payload") is not None:
                    self.due.discard(self.original(each["payload"], each["position"]) or b"")

    def doing(self, what: str, act: Callable[[], object]) -> str:
        """Call `act`; return the name of its error, or an empty text."""
        begin = time.process_time()  # not by the clock: the machine may be busy
        error = ""
        try:
            act()
        except HoldfastError as found:
            error, self.words = type(found).__name__, str(found)
            self.told |= error not in ("Empty", "Full", "Timeout", "Closed")
        except Exception as found:
            error = type(found).__name__
            self.problems.append(f"{what} raised {found!r}: {traceback.format_exc()[-600:]}")
        took = time.process_time() - begin
        self.slowest = max(self.slowest, (took, what))
        if took > SLOW * fixed_work_s():
            self.problems.append(
                f"{what} took {took:.1f} s, {took / fixed_work_s():.0f} times as long as fixed work"
            )
        return error

    def broken(self) -> list[str]:
        """Return the problems that count even if no message can be trusted."""
        return [problem for problem in self.problems if " raised " in problem or " took " in problem]


class Reader:
    """Makes every call that a queue has."""

    def __init__(self, scene: Scene, judge: Judge, rng: random.Random) -> None:
        self.scene, self.judge, self.random = scene, judge, rng
        self.q: Queue
        self.number = 1000

    def open(self) -> None:
        self.q = Queue.open("q", directory=self.scene.directory)
        self.q.spin = 0.0

    def get(self, timeout: float = 0.0) -> None:
        with self.q.get(timeout=timeout) as message:
            self.judge.received(bytes(message.data), message.position, message.redelivered)

    def get_waiting(self) -> None:
        self.get(0.001)

    def give_back(self) -> None:
        message = self.q.get(timeout=0)
        data = bytes(message.data)
        self.judge.received(data, message.position, message.redelivered)
        if original := self.judge.original(data, message.position):
            self.judge.back.add(original)
            self.judge.due.add(original)
        message.give_back()

    def get_many(self) -> None:
        with self.q.get_many(3, timeout=0) as messages:
            for message in messages:
                self.judge.received(bytes(message.data), message.position, message.redelivered)

    def put(self, timeout: float = 0.0) -> None:
        data = content(self.number)
        self.number += 1
        self.judge.put.add(data)
        self.q.put(data, timeout=timeout)
        self.judge.due.add(data)

    def put_many(self) -> None:
        batch = [content(self.number + n) for n in range(3)]
        self.number += 3
        self.judge.put |= {*batch}
        self.q.put_many(batch, timeout=0)
        self.judge.due |= {*batch}

    def put_waiting(self) -> None:
        self.put(0.001)

    def look(self) -> None:
        seen = _core.inspect(self.scene.directory, "q", 0, GRANULES, 64 * GRANULES)
        self.judge.told |= bool(faults_of(seen))
        for block in seen.get("queue", {}).get("list", []):
            payload, position = block.get("payload"), block["position"]
            if (
                payload is not None
                and self.judge.original(payload, position) is None
                and payload != NEVER_PUT
            ):
                self.judge.problems.append(f"seen at {position}, never put: {payload[:30]!r}")

    def check(self) -> None:
        self.judge.told |= bool(self.q.check())

    def stats(self) -> None:
        self.q.stats()

    def recover(self) -> None:
        self.q.recover()

    def drain(self) -> None:
        """Get to the end, past damaged messages; permanent damage is reported each time."""
        for _ in range(4 * GRANULES):
            error = self.judge.doing("get", self.get)
            if error and (error != "Corrupt" or "is damaged:" in self.judge.words):
                return

    def everything(self) -> None:
        acts = [
            self.get,
            self.get_waiting,
            self.get_many,
            self.give_back,
            self.put,
            self.put_many,
            self.put_waiting,
        ]
        acts += [self.look, self.check, self.stats, self.recover]
        self.random.shuffle(acts)
        for act in acts:
            self.judge.doing(act.__name__, act)
        self.drain()
        for act in (self.put, self.check, self.put_many, self.look):
            self.judge.doing(act.__name__, act)
        self.drain()
        self.judge.doing("check", self.check)


def act_out(scene: Scene, mapping: mmap.mmap, case: Case, rng: random.Random) -> Judge:
    judge = Judge(scene, case)
    reader = Reader(scene, judge, rng)
    mapping[:] = scene.image
    target = case.target

    def strike() -> None:
        mapping[target.offset : target.offset + target.width] = case.data

    if case.when == "before attaching":
        strike()
    if judge.doing("open", reader.open):
        return judge
    held = None
    if case.when == "while holding":
        with suppress(Empty, Timeout, Closed):
            held = reader.q.get(timeout=0)
            judge.received(bytes(held.data), held.position, held.redelivered)
    if case.when != "before attaching":
        strike()
    reader.everything()
    if held is not None:
        judge.doing("settle", held.settle)
    judge.doing("detach", reader.q.detach)
    judge.forgive()
    if judge.due and not judge.told:
        judge.problems.append(
            f"{len(judge.due)} messages are lost, and nothing reported it: {min(judge.due)[:10]!r}"
        )
    if target.harmless and judge.told:
        judge.problems.append("a field that decides nothing caused an error")
    return judge


# -- all cases ----------------------------------------------------------------------------------------


@dataclass
class Report:
    """The results of many cases."""

    seed: int
    cases: int = 0
    told: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_case: str = ""
    by_state: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    found: list[tuple[str, kept.Case]] = field(default_factory=list)
    """Each problem, and the case that showed it."""

    def add(self, problem: str, scene: Scene, case: Case, index: int) -> None:
        acts = self.seed + index if case.acts is None else case.acts
        self.problems.append(f"{case.words()}: {problem}")
        self.found.append((problem, encoded(case, scene.checksum, acts)))

    def words(self) -> str:
        return (
            f"{self.cases} cases in {len(self.by_state)} states (seed {self.seed}), {self.told} of them "
            f"noticed, {len(self.problems)} problems; slowest operation {self.slowest * 1000:.0f} ms "
            f"({self.slowest_case}); {self.seconds:.1f} s"
        )


def play(scene: Scene, cases: list[Case], begin: int, shared: mmap.mmap, seed: int) -> None:
    """In a child, play the cases from `begin` on; note each in shared memory first."""
    with Path(scene.directory, "holdfast.queue.q").open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)
    results = Path(scene.directory, "results").open("a")  # noqa: SIM115  (the child ends without closing it)
    faulthandler.enable(results)
    for index in range(begin, len(cases)):
        shared[:4] = index.to_bytes(4, "little")
        acts = cases[index].acts
        judge = act_out(scene, mapping, cases[index], random.Random(seed + index if acts is None else acts))
        # A peer that can seal a position could as well write messages: only crashes and hangs count.
        knows = cases[index].how.startswith("sealed")
        found = judge.broken() if knows else judge.problems
        print(json.dumps([judge.told, *judge.slowest, index, found]), file=results, flush=True)


def play_all(scene: Scene, cases: list[Case], report: Report) -> None:
    """Play the cases in child after child; a dead or hanging one costs one case."""
    Path(scene.directory, "results").touch()
    shared = mmap.mmap(-1, 4096)
    begin = 0
    while begin < len(cases):
        shared[:4] = begin.to_bytes(4, "little")
        pid = start(partial(play, scene, cases, begin, shared, report.seed))
        moved, last = time.monotonic(), begin
        while (done := os.waitpid(pid, os.WNOHANG))[0] == 0:
            time.sleep(0.002)
            at = int.from_bytes(shared[:4], "little")
            if at != last:
                moved, last = time.monotonic(), at
            elif time.monotonic() - moved > STUCK_S:
                os.kill(pid, signal.SIGKILL)
                report.add("hangs", scene, cases[at], at)
        at = int.from_bytes(shared[:4], "little")
        status = os.waitstatus_to_exitcode(done[1])
        if status not in (0, -signal.SIGKILL):
            report.add(f"the reader ended with status {status}", scene, cases[at], at)
        begin = at + 1
    for line in Path(scene.directory, "results").read_text().splitlines():
        if not line.startswith("["):
            continue  # the output of faulthandler
        told, took, what, index, problems = json.loads(line)
        report.cases += 1
        report.told += told
        for problem in problems:
            report.add(problem, scene, cases[index], index)
        if took > report.slowest:
            report.slowest, report.slowest_case = took, f"{what}, {cases[0].state}"


def scribble(scene: Scene, seed: int) -> None:
    """In a child, overwrite until killed while others work; now and then restore the bytes."""
    rng = random.Random(seed)
    with Path(scene.directory, "holdfast.queue.q").open("r+b") as file:
        mapping = mmap.mmap(file.fileno(), 0)
    while True:
        for case in scattered("", scene.image, rng, rng.randint(1, 20)):
            mapping[case.target.offset : case.target.offset + case.target.width] = case.data
            time.sleep(rng.random() * 0.0005)
        mapping[4096:] = scene.image[4096:]


def work(scene: Scene, seed: int, seconds: float) -> None:
    """In a child, make every call again and again; the child must survive any result."""
    end = time.monotonic() + seconds
    case = Case("scribbled on", Target("everything", 0, len(scene.image)), "", b"", "")
    rng = random.Random(seed)
    while time.monotonic() < end:
        judge = Judge(scene, case)
        reader = Reader(scene, judge, rng)
        if judge.doing("open", reader.open):
            continue
        reader.everything()
        judge.doing("purge", reader.q.purge)
        judge.doing("detach", reader.q.detach)
        if judge.broken():
            Path(scene.directory, "results").write_text("\n".join(judge.broken()))
            sys.exit(2)


def scribbled(seed: int, seconds: float) -> list[str]:
    """Let one peer write anything while two others work; return the problems."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-fuzz.") as directory:
        scene = Scene(directory, "full")
        scene.make(STATES["retry"])
        scene.keep()
        Path(directory, "results").touch()
        workers = {start(partial(work, scene, seed + n, seconds)): n for n in range(2)}
        vandal = start(partial(scribble, scene, seed))
        problems = []
        limit = time.monotonic() + seconds + STUCK_S
        while workers and time.monotonic() < limit:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in workers:
                number = workers.pop(pid)
                if status != 0:
                    told = Path(directory, "results").read_text()
                    problems.append(f"worker {number} ended with {os.waitstatus_to_exitcode(status)}: {told}")
            time.sleep(0.01)
        problems += [f"worker {number} hangs" for number in workers.values()]
        for pid in (vandal, *workers):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        scene.end()
    return problems


def start(act: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with_parent()
            act()
            status = 0
        except SystemExit as ended:
            status = int(ended.code or 0)
        except BaseException:
            print(traceback.format_exc(), file=sys.stderr)
        finally:
            os._exit(status)
    return pid


def fuzz(seed: int, scattered_count: int, only: str | None = None, share: float = 1.0) -> Report:
    """Play targeted cases, or a share of them, then random ones, over all states."""
    report = Report(seed)
    begin = time.monotonic()
    names = [name for name in STATES if only in (None, name)]
    for number, name in enumerate(names):
        rng = random.Random(seed * 1000 + number)
        checksum: Checksum = "full" if rng.random() < 0.3 else "header"
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-fuzz.") as directory:
            scene = scene_of(directory, name, checksum)
            try:
                cases = [case for case in targeted(name, scene.image, rng) if rng.random() < share]
                cases += scattered(name, scene.image, rng, scattered_count // len(names))
                play_all(scene, cases, report)
                report.by_state[name] = len(cases)
            finally:
                scene.end()
    report.seconds = time.monotonic() - begin
    return report


def play_some(scene: Scene, cases: list[Case]) -> list[str]:
    """Play these cases; return the problems."""
    report = Report(seed=0)
    play_all(scene, cases, report)
    return report.problems


def replayed(seconds_max: float) -> Report:
    """Replay the findings of nights; limit the time where a peer wrote all the time."""
    report = Report(seed=0)
    for entry in cases_kept(NAME):
        if "scribbled" in entry:
            report.problems += scribbled(entry["scribbled"], min(entry["seconds"], seconds_max))
        else:
            report.problems += play_again(entry, play_some)
        report.cases += 1
    return report


def in_a_process(*options: str) -> Report:
    """Run the fuzzer in a process of its own, which may fork."""
    done = subprocess.run(
        [*module_command(__file__), "--json", *options], stdout=subprocess.PIPE, text=True, check=True
    )
    return Report(**json.loads(done.stdout))


def run(seed: int, scattered_count: int = 0, scribbling_s: float = 0.0) -> Report:
    return in_a_process(f"--seed={seed}", f"--random={scattered_count}", f"--scribble={scribbling_s}")


def keep(report: Report, scribbles: list[str], scribbling_s: float) -> list[str]:
    """Keep the findings of a night; return them in words."""
    try:
        words = keep_cases(report.found, play_some)
        if scribbles:
            kept.add(NAME, {"scribbled": report.seed, "seconds": scribbling_s})
            words.append(f"{NAME}: scribbled on, seed {report.seed}")
        return words
    except (OSError, ValueError) as error:
        return [f"NOT KEPT: seed {report.seed}: {error}"]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="A hostile peer: overwrite every word of a queue, in every state."
    )
    chosen = base() if NIGHTLY else random.SystemRandom().getrandbits(31)
    parser.add_argument("--seed", type=int, default=chosen)
    parser.add_argument("--random", type=int, default=20_000, help="random cases after the targeted ones")
    parser.add_argument("--share", type=float, default=1.0, help="share of the targeted cases (1: all)")
    parser.add_argument("--scribble", type=float, default=5.0, help="seconds of writing while others work")
    parser.add_argument("--only", choices=STATES, help="one state only")
    parser.add_argument("--kept", action="store_true", help="only the findings of nights")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    if options.kept:
        report, scribbles = replayed(options.scribble), []
    else:
        report = fuzz(options.seed, options.random, options.only, options.share)
        scribbles = scribbled(options.seed, options.scribble) if options.scribble else []
    report.problems += scribbles
    words = keep(report, scribbles, options.scribble) if NIGHTLY and not options.kept else []
    if options.json:
        print(json.dumps(asdict(report)))
        return 0
    print(report.words())
    for kind, count in Counter(problem.rpartition(": ")[2] for problem in report.problems).most_common(20):
        print(f"{count:6} × {kind}")
    print(*report.problems[:20], *words, sep="\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
