"""The order of measurements: pairs of workers, cases of a payload size, interleaved rounds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from types import TracebackType

from bench.answers import BenchError, answer
from bench.cores import two_cores
from bench.links import Kind, Setting
from bench.worker import READY, Get, Order, Ping, Pong, Put, serve

ANSWER_LIMIT_S = 60.0  # a loop lasts a fraction of a second, so this is a hang
CALIBRATION_S = 0.02
SIZE_LIMIT_S = (
    75.0  # on a busy machine the workers wait for a core more than for each other; see `measure_size`
)
SLEEP_BEFORE_PING_S = 0.002  # long enough for the receiver of every transport to sleep
BATCH_BYTES = 1 << 20  # batches of large messages are cut to about this many bytes
VIEW_FROM_SIZE = 1 << 16  # for smaller payloads a view saves too little for a row


@dataclass(frozen=True)
class Case:
    """One cell of the table: its row, its column, and its measurement."""

    kind: Kind
    measure: str  # "single", "batch 256", "spinning", "blocking", "asleep"
    length: int = 0  # messages per batch, 0 for single calls
    reading: str = "copy"
    round_trip: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind.name, self.reading, self.measure


@dataclass
class Results:
    """All samples of one payload size.

    Throughput is in messages/s, round trips are in µs, as (p50, p99).
    """

    size: int
    rounds: int = 0
    rates: dict[tuple[str, str, str], list[float]] = field(default_factory=dict)
    trips: dict[tuple[str, str, str], list[tuple[float, float]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def batch_lengths(size: int, batches: Iterable[int]) -> list[int]:
    """Return the batch sizes to measure at this payload size, without repetitions."""
    return sorted({min(batch, max(4, BATCH_BYTES // size)) for batch in batches})


def cases_of(kind: Kind, size: int, batches: Iterable[int]) -> list[Case]:
    cases = [Case(kind, "single")]
    if "view" in kind.readings and size >= VIEW_FROM_SIZE:
        cases.append(Case(kind, "single", reading="view"))
    if kind.batches:
        for length in batch_lengths(size, batches):
            cases.append(Case(kind, f"batch {length}", length))
            if "iterate" in kind.readings:
                cases.append(Case(kind, f"batch {length}", length, reading="iterate"))
    cases += [Case(kind, measure, round_trip=True) for measure in ("spinning", "blocking", "asleep")]
    return cases


class Pair:
    """Two worker processes of one transport, pinned to two cores if there are two."""

    def __init__(self, kind: Kind, setting: Setting) -> None:
        self.name = kind.name
        context: SpawnContext = setting.context
        self.there = kind.make(setting)
        self.back = kind.make(setting)
        self.controls: list[Connection] = []
        self.processes = []
        ends = ((self.there, self.back), (self.back, self.there))
        for core, (outward, inward) in zip(two_cores(), ends, strict=True):
            ours, theirs = context.Pipe()
            orders = (theirs, core, outward, inward, setting.size)
            process = context.Process(target=serve, args=orders, daemon=True)
            process.start()
            theirs.close()
            self.controls.append(ours)
            self.processes.append(process)
        for control in self.controls:
            self._expect_ready(control)

    def __enter__(self) -> Pair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for control, process in zip(self.controls, self.processes, strict=True):
            try:
                control.send(None)
                process.join(2)
            except OSError:
                pass
            if process.is_alive():
                process.kill()
                process.join()
            control.close()
        self.there.destroy()
        self.back.destroy()

    def _answer(self, control: Connection) -> object:
        return answer(control, self.name, ANSWER_LIMIT_S)

    def _expect_ready(self, control: Connection) -> None:
        received = self._answer(control)
        if received != READY:
            raise BenchError(f"{self.name}: a worker answered {received!r} instead of being ready")

    def _run(self, first: Order, second: Order) -> tuple[object, object]:
        """Start `second` in the second process; when it is ready, start `first`."""
        self.controls[1].send(second)
        self._expect_ready(self.controls[1])
        self.controls[0].send(first)
        self._expect_ready(self.controls[0])
        # Wait for the receiver first: when it fails, the sender may never end.
        second_answer = self._answer(self.controls[1])
        return self._answer(self.controls[0]), second_answer

    def elapsed_s(self, case: Case, count: int) -> float:
        """Return the seconds from before the first put to after the last get."""
        start, end = self._run(Put(count, case.length), Get(count, case.length, case.reading))
        assert isinstance(start, int)
        assert isinstance(end, int)
        return (end - start) / 1e9

    def round_trip_us(self, case: Case, count: int) -> tuple[float, float]:
        spinning = case.measure.startswith("spinning")
        pause_s = SLEEP_BEFORE_PING_S if case.measure == "asleep" else 0.0
        received, _ = self._run(Ping(count, spinning, pause_s), Pong(count, spinning))
        assert isinstance(received, tuple)
        p50, p99 = received
        return p50, p99

    def calibrate(self, case: Case, seconds: float) -> int:
        """Return how many repetitions fill about `seconds`; warm up on the way."""
        if case.round_trip:
            self.round_trip_us(case, 2)
            start = time.monotonic()
            self.round_trip_us(case, 20)
            each = (time.monotonic() - start) / 20
            return max(20, min(20_000, int(seconds / each)))
        count = 8
        self.elapsed_s(case, count)  # transports connect with the first message, which may take long
        while (elapsed := self.elapsed_s(case, count)) < min(CALIBRATION_S, seconds):
            count *= 4
        return max(8, int(count * seconds / elapsed))


def measure_size(
    kinds: list[Kind],
    setting: Setting,
    cases: Callable[[Kind], Iterable[Case]],
    rounds: int,
    seconds: float,
    each_round: Callable[[int], None],
) -> Results:
    """Measure all cases of all transports at one payload size.

    In each round every column is measured for all transports, in random order, before the next column. So
    figures that are compared were measured close together. No round starts after `SIZE_LIMIT_S`.
    """
    pairs = [(kind, setting) for kind in kinds]
    results = Results(setting.size)
    measure_pairs(results, pairs, cases, rounds, seconds, each_round, SIZE_LIMIT_S)
    return results


def measure_pairs(
    results: Results,
    wanted: Iterable[tuple[Kind, Setting]],
    cases: Callable[[Kind], Iterable[Case]],
    rounds: int,
    seconds: float,
    each_round: Callable[[int], None],
    limit_s: float,
) -> None:
    """Measure as `measure_size` does. The names of the transports differ, their settings may."""
    limit = time.monotonic() + limit_s
    pairs: dict[str, Pair] = {}
    counts: dict[tuple[str, str, str], int] = {}
    columns: dict[tuple[str, bool], list[Case]] = {}
    for kind, setting in wanted:
        try:
            pairs[kind.name] = Pair(kind, setting)
        except BenchError as error:
            results.failed[kind.name] = str(error)
            continue
        for case in cases(kind):
            columns.setdefault((case.measure, case.round_trip), []).append(case)

    def attempt(case: Case, action: Callable[[Pair], None]) -> None:
        pair = pairs.get(case.kind.name)
        if pair is None:
            return
        try:
            action(pair)
        except BenchError as error:  # only this transport is given up
            results.failed[case.kind.name] = str(error)
            pair.__exit__(None, None, None)
            del pairs[case.kind.name]

    def measure(case: Case, pair: Pair) -> None:
        count = counts[case.key]
        if case.round_trip:
            results.trips.setdefault(case.key, []).append(pair.round_trip_us(case, count))
        else:
            rate = count * max(1, case.length) / pair.elapsed_s(case, count)
            results.rates.setdefault(case.key, []).append(rate)

    def calibrate(case: Case, pair: Pair) -> None:
        counts[case.key] = pair.calibrate(case, seconds)

    try:
        for column in columns.values():
            for case in column:
                attempt(case, lambda pair, case=case: calibrate(case, pair))  # type: ignore[misc]
        for number in range(rounds):
            if number > 0 and time.monotonic() > limit:
                break
            each_round(number)
            results.rounds += 1
            for column in columns.values():
                for case in random.sample(column, len(column)):
                    attempt(case, lambda pair, case=case: measure(case, pair))  # type: ignore[misc]
    finally:
        for pair in pairs.values():
            pair.__exit__(None, None, None)
