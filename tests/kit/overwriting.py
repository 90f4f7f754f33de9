"""A hostile peer overwrites the mapping of a segment; the others must survive.

A state is made once, by processes that died in it, and kept as the bytes of the file. For each case the bytes
are restored, and a victim opens the segment. Words are overwritten before it opens it, or later. Then the
victim makes every call that there is. It neither crashes nor hangs, and raises only holdfast's own errors.

tests/kit/channel/fuzz.py and tests/kit/service/fuzz.py are the plots.
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
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from holdfast import HoldfastError
from tests.kit import module_command
from tests.kit.overwrites import HEADER, PARAMS, Case, Choices, scattered, struck, targeted
from tests.kit.queue.fuzz import start

SLOW = 60
"""An operation on a damaged segment takes at most this multiple of the processor time of fixed work."""
STUCK_S = 30.0
"""A case that takes longer by the clock hangs."""


@functools.cache
def fixed_work_s() -> float:
    """Return the processor time of a fixed piece of work in this run."""
    begin = time.process_time()
    sum(range(1_000_000))
    return time.process_time() - begin


class Judge:
    """Sees the result of each call."""

    def __init__(self, quiet: tuple[str, ...]) -> None:
        self.quiet = quiet
        self.told = False
        self.problems: list[str] = []

    def doing(self, what: str, act: Callable[[], Any]) -> Any:
        """Call `act`; return its result, or None after one of holdfast's errors."""
        begin = time.process_time()
        result = None
        try:
            result = act()
        except HoldfastError as found:
            self.told |= type(found).__name__ not in self.quiet
        except Exception as found:
            self.problems.append(f"{what} raised {found!r}: {traceback.format_exc()[-500:]}")
        if (took := time.process_time() - begin) > SLOW * fixed_work_s():
            self.problems.append(f"{what} took {took:.1f} s of processor time")
        return result


class Scene(Protocol):
    """A segment in some state, all its processes dead, and its bytes."""

    directory: str
    name: str
    path: Path
    image: bytes

    def close(self) -> None:
        """End what the scene has started."""


class Victim:
    """Makes every call; a subclass knows them."""

    choices: Choices
    quiet: tuple[str, ...] = ("Empty", "Full", "Timeout", "Closed", "Misuse")
    """Errors that do not speak of damage."""

    def __init__(self, scene: Any, mapping: mmap.mmap, case: Case, seed: int) -> None:
        self.scene, self.mapping, self.case = scene, mapping, case
        self.random = random.Random(seed)
        self.judge = Judge(self.quiet)

    def strike(self, when: str) -> None:
        """Overwrite, if this is the moment; words that changed meanwhile stay as they are."""
        if self.case.when == when:
            now = bytes(self.mapping)
            changed = struck(now, self.case, self.choices)
            for offset, data in self.case.writes:
                self.mapping[offset : offset + len(data)] = changed[offset : offset + len(data)]
            if self.case.summed:
                self.mapping[PARAMS:HEADER] = changed[PARAMS:HEADER]

    def play(self) -> Judge:
        """Restore the bytes, make every call, and return what was seen."""
        self.mapping[:] = self.scene.image
        self.act()
        return self.judge

    def act(self) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Plot:
    """The parts of a fuzzer."""

    kind: str
    file: str
    """The program, which a test runs in a process of its own."""
    states: tuple[str, ...]
    busy: str
    """The state in which several processes work while one overwrites."""
    scene: Callable[[str, str], Scene]
    victim: type[Victim]


@dataclass
class Report:
    kind: str
    seed: int
    cases: int = 0
    told: int = 0
    seconds: float = 0.0
    by_state: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def words(self) -> str:
        return (
            f"{self.cases} cases in {len(self.by_state)} states of a {self.kind} (seed {self.seed}), "
            f"{self.told} of them noticed, {len(self.problems)} problems; {self.seconds:.1f} s"
        )


def mapping_of(scene: Scene) -> mmap.mmap:
    with scene.path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


# -- all cases ----------------------------------------------------------------------------------------


def play(
    plot: Plot,
    scene: Scene,
    cases: list[Case],
    begin: int,
    shared: mmap.mmap,
    seed: int,
    crash_at: int | None,
) -> None:
    """In a child, play the cases from `begin` on; note each in shared memory first."""
    mapping = mapping_of(scene)
    results = Path(scene.directory, "results").open("a")  # noqa: SIM115  (the child ends without closing it)
    faulthandler.enable(results)
    for index in range(begin, len(cases)):
        shared[:4] = index.to_bytes(4, "little")
        if index == crash_at:
            os.kill(os.getpid(), signal.SIGSEGV)
        judge = plot.victim(scene, mapping, cases[index], seed + index).play()
        print(json.dumps([judge.told, index, judge.problems]), file=results, flush=True)


def play_all(plot: Plot, scene: Scene, cases: list[Case], report: Report, crash_at: int | None) -> None:
    """Play the cases in child after child; a dead or hanging one costs one case."""
    results = Path(scene.directory, "results")
    results.write_text("")
    shared = mmap.mmap(-1, 4096)
    begin = 0
    while begin < len(cases):
        shared[:4] = begin.to_bytes(4, "little")
        pid = start(partial(play, plot, scene, cases, begin, shared, report.seed, crash_at))
        moved, last = time.monotonic(), begin
        while (done := os.waitpid(pid, os.WNOHANG))[0] == 0:
            time.sleep(0.002)
            at = int.from_bytes(shared[:4], "little")
            if at != last:
                moved, last = time.monotonic(), at
            elif time.monotonic() - moved > STUCK_S:
                os.kill(pid, signal.SIGKILL)
                report.problems.append(f"{cases[at].words()}: hangs")
                moved = time.monotonic()
        at = int.from_bytes(shared[:4], "little")
        status = os.waitstatus_to_exitcode(done[1])
        if status not in (0, -signal.SIGKILL):
            report.problems.append(f"{cases[at].words()}: the victim ended with status {status}")
        begin = at + 1
    for line in results.read_text().splitlines():
        if not line.startswith("["):
            continue  # the output of faulthandler
        told, index, problems = json.loads(line)
        report.cases += 1
        report.told += told
        report.problems += [f"{cases[index].words()}: {problem}" for problem in problems]


def words_in_use(plot: Plot, scene: Scene) -> bytes:
    """Return the bytes that are not zero in the file, before or after every call."""
    shared = mmap.mmap(-1, len(scene.image))

    def use() -> None:
        mapping = mapping_of(scene)
        judge = plot.victim(scene, mapping, Case(scene.name, (), "", ""), 0).play()
        assert not judge.told, "an error without damage"
        assert judge.problems == []
        shared[:] = bytes(a | b for a, b in zip(scene.image, bytes(mapping), strict=True))

    _, status = os.waitpid(start(use), 0)
    assert status == 0, f"{scene.name} cannot be played without damage"
    return bytes(shared)


def fuzz(
    plot: Plot,
    seed: int,
    scattered_count: int,
    only: str | None = None,
    share: float = 1.0,
    crash_at: int | None = None,
) -> Report:
    """Play targeted cases, or a share of them, then random ones, over all states."""
    report = Report(plot.kind, seed)
    begin = time.monotonic()
    names = [name for name in plot.states if only in (None, name)]
    choices = plot.victim.choices
    for number, name in enumerate(names):
        rng = random.Random(seed * 1000 + number)
        with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-fuzz.") as directory:
            scene = plot.scene(directory, name)
            used = words_in_use(plot, scene)
            cases = [*targeted(name, scene.image, used, choices, rng, share)]
            cases += scattered(name, used, choices, rng, scattered_count // len(names))
            play_all(plot, scene, cases, report, crash_at)
            scene.close()
            report.by_state[name] = len(cases)
    report.seconds = time.monotonic() - begin
    return report


# -- while others work --------------------------------------------------------------------------------


def scribble(plot: Plot, scene: Scene, used: bytes, seed: int) -> None:
    """In a child, overwrite until killed; now and then restore the bytes."""
    rng = random.Random(seed)
    mapping = mapping_of(scene)
    while True:
        for case in scattered(scene.name, used, plot.victim.choices, rng, rng.randint(1, 20)):
            for offset, data in case.writes:
                mapping[offset : offset + len(data)] = data
            time.sleep(rng.random() * 0.0005)
        mapping[:] = scene.image


def work(plot: Plot, scene: Scene, seed: int, seconds: float) -> None:
    """In a child, make every call again and again."""
    end = time.monotonic() + seconds
    mapping = mmap.mmap(-1, len(scene.image))  # the victim restores nothing: the other does
    while time.monotonic() < end:
        seed += 1
        judge = plot.victim(scene, mapping, Case(scene.name, (), "", ""), seed).play()
        if judge.problems:
            Path(scene.directory, "results").write_text("\n".join(judge.problems))
            raise SystemExit(2)


def scribbled(plot: Plot, seed: int, seconds: float) -> list[str]:
    """Let one peer write anything while two others work; return the problems."""
    problems: list[str] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-fuzz.") as directory:
        scene = plot.scene(directory, plot.busy)
        used = words_in_use(plot, scene)
        results = Path(directory, "results")
        results.touch()
        workers = {start(partial(work, plot, scene, seed + 1000 * n, seconds)): n for n in range(2)}
        vandal = start(partial(scribble, plot, scene, used, seed))
        limit = time.monotonic() + seconds + STUCK_S
        while workers and time.monotonic() < limit:
            for pid in [*workers]:
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended and workers.pop(pid) is not None and status != 0:
                    code = os.waitstatus_to_exitcode(status)
                    problems.append(f"scribbled on: a worker ended with {code}: {results.read_text()}")
            time.sleep(0.01)
        problems += [f"scribbled on: worker {number} hangs" for number in workers.values()]
        for pid in (vandal, *workers):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        scene.close()
    return problems


def run(
    plot: Plot,
    seed: int,
    share: float = 1.0,
    scattered_count: int = 0,
    scribbling_s: float = 0.0,
    crash_at: int | None = None,
) -> Report:
    """Run the fuzzer in a process of its own, which may fork."""
    options = [f"--seed={seed}", f"--share={share}", f"--random={scattered_count}", "--json"]
    options += [f"--scribble={scribbling_s}", *([f"--crash-at={crash_at}"] if crash_at is not None else [])]
    done = subprocess.run(
        [*module_command(plot.file), *options], stdout=subprocess.PIPE, text=True, check=True
    )
    return Report(**json.loads(done.stdout))


def main(plot: Plot) -> int:
    parser = argparse.ArgumentParser(description=f"A hostile peer: overwrite every word of a {plot.kind}.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(31))
    parser.add_argument("--random", type=int, default=5000, help="cases of several words at once")
    parser.add_argument("--share", type=float, default=1.0, help="share of the targeted cases (1: all)")
    parser.add_argument("--scribble", type=float, default=5.0, help="seconds of writing while others work")
    parser.add_argument("--only", choices=plot.states, help="one state only")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--crash-at", type=int, help="a case in which the victim crashes, for a test of this")
    options = parser.parse_args()
    report = fuzz(plot, options.seed, options.random, options.only, options.share, options.crash_at)
    if options.scribble:
        report.problems += scribbled(plot, options.seed, options.scribble)
    if options.json:
        print(json.dumps(vars(report)))
        return 0
    print(report.words())
    for kind, count in Counter(problem.rpartition(": ")[2] for problem in report.problems).most_common(20):
        print(f"{count:6} × {kind}")
    print(*report.problems[:20], sep="\n")
    return 1 if report.problems else 0
