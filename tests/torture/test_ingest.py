"""Kill either side of local ingest: nothing confirmed is lost, nothing is stored twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.processes import until
from tests.kit.server.ingest_world import IDLE, ONCE, STEPS, Process, stored
from tests.kit.slices import Seed, pick_for, seeds

POINTS = (
    *("take_claimed", "take_moved", "settle_begin", "settled", "reclaimed"),
    *(
        "recover_begin",
        "recover_scanned",
        "recover_announced",
        "recover_end",
        "attach_locked",
        "attach_active",
    ),
)
"""Of the queue's code, where a broker under load comes by."""
IDLE_POINTS = ("close_marked", "detach_begin", "detach_inactive", "create_file", "create_linked")
"""And one that makes queues and takes them away."""
PUT_POINTS = (
    *("attach_locked", "attach_active", "put_begin", "put_claimed", "put_magic", "put_size", "put_payload"),
    *("put_checksum", "put_committed", "put_moved", "many_inner", "pad_claimed", "detach_begin"),
)
"""Where a producer does."""
LIVES = [(step, count) for step in STEPS for count in ((1,) if step in ONCE else (1, 3))]


def judge(found: list[bytes], notes: dict[str, Path]) -> int:
    """Each message comes at most once, in order, without a hole; confirmed ones exist."""
    assert len(found) == len(set(found)), "stored twice"
    runs: dict[str, list[int]] = defaultdict(list)
    for message in found:
        label, _, number = message.decode().partition(":")
        runs[label].append(int(number))
    for label, numbers in runs.items():
        assert numbers == list(range(len(numbers))), f"{label}: a hole, or out of order"
    confirmed = 0
    for label, file in notes.items():
        noted = int(file.read_text().strip() or 0) if file.exists() else 0
        assert len(runs[label]) >= noted, f"{label}: {noted} were confirmed, {len(runs[label])} are stored"
        confirmed += noted
    return confirmed


class Storm:
    """A broker and producers on one directory."""

    def __init__(self, tmp_path: Path) -> None:
        self.data = tmp_path / "data"
        self.notes: dict[str, Path] = {}
        self._tmp = tmp_path
        self.server: Process | None = None
        self.producers: list[Process] = []

    def serve(self, *step: object) -> bool:
        self.server = Process("serve", self.data, *step)
        return self.server.ready()

    def produce(self, how: str = "produce") -> Process:
        label = f"p{len(self.notes)}"
        self.notes[label] = self._tmp / label
        self.producers.append(Process(how, "orders", label, self.notes[label]))
        return self.producers[-1]

    def confirmed(self) -> int:
        """Return how many messages the producers know to be confirmed."""
        return sum(int(file.read_text().strip() or 0) for file in self.notes.values() if file.exists())

    def moves(self) -> None:
        """Wait until something more is confirmed."""
        before = self.confirmed()
        until(lambda: self.confirmed() > before, 60.0)

    def finish(self) -> int:
        """Stop all processes in order; then check the account."""
        for producer in self.producers:
            producer.end()
        self.producers.clear()
        assert self.server is not None
        self.server.end()
        self.server = None
        return judge(asyncio.run(stored(self.data, "orders")), self.notes)

    def close(self) -> None:
        for each in (*self.producers, self.server):
            if each is not None:
                with contextlib.suppress(ProcessLookupError):
                    each.kill()


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Storm]:
    it = Storm(tmp_path)
    yield it
    it.close()


def test_the_broker_dies_at_every_step(storm: Storm) -> None:
    assert storm.serve()
    for producer in (storm.produce(), storm.produce()):
        assert producer.ready()
    assert storm.server is not None
    storm.server.kill()
    for step, count in LIVES:
        if storm.serve(step, count):
            assert storm.server.popen.wait(20.0) != 0, step
        storm.server.close()
    assert storm.serve()
    storm.moves()
    assert storm.finish() > 0


@pytest.mark.timeout(400)
def test_the_broker_dies_at_every_point_of_the_queue(storm: Storm) -> None:
    assert storm.serve()
    for producer in (storm.produce(), storm.produce()):
        assert producer.ready()
    assert storm.server is not None
    storm.server.kill()
    for number, point in enumerate(POINTS):
        if storm.serve(point, 1 + number % 2 if number < 9 else 1):
            assert storm.server.popen.wait(60.0) != 0, point
        storm.server.close()
    assert storm.serve()
    assert storm.finish() > 0


@pytest.mark.timeout(400)
def test_producers_die_at_every_point_of_the_queue(storm: Storm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their messages are stored once; other producers continue."""
    assert storm.serve()
    assert storm.produce().ready()
    for number, point in enumerate(PUT_POINTS):
        with monkeypatch.context() as patch:
            patch.setenv("POINT", f"{point}:{1 + number % 3 if point.startswith('put') else 1}")
            dying = storm.produce("hop" if point.startswith("detach") else "produce")
        assert dying.popen.wait(60.0) == -signal.SIGKILL, point
        storm.producers.remove(dying)
        dying.close()
    assert storm.finish() > 0


@pytest.mark.timeout(400)
def test_the_broker_dies_while_it_takes_queues_away(storm: Storm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers come and go meanwhile. Each is served, and nothing is lost or duplicated."""
    monkeypatch.setenv("IDLE_S", "0.005")
    assert storm.serve()
    for _ in range(3):
        assert storm.produce("hop").ready()
    assert storm.server is not None
    storm.server.kill()
    for step, count in [
        *((step, count) for count in (1, 2) for step in IDLE),
        *((each, 1) for each in IDLE_POINTS),
    ]:
        if storm.serve(step, count):
            assert storm.server.popen.wait(60.0) != 0, step
        storm.server.close()
    assert storm.serve()
    storm.moves()
    assert storm.finish() > 0


@pytest.mark.parametrize(
    ("mutant", "step", "found"),
    [
        ("not deduplicated", "durable", "stored twice"),
        ("settled before it is durable", "publish", "a hole"),
    ],
)
def test_a_broker_with_a_mistake_is_found_out(storm: Storm, mutant: str, step: str, found: str) -> None:
    assert storm.serve()
    assert storm.produce().ready()
    assert storm.server is not None
    storm.server.kill()
    storm.serve(step, 1, mutant)
    assert storm.server.popen.wait(20.0) != 0
    storm.server.close()
    assert storm.serve()
    storm.moves()
    with pytest.raises(AssertionError, match=found):
        storm.finish()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds("ingest", test=1, nightly=10))
def test_storm(storm: Storm, seed: Seed, counts: Callable[[str], None]) -> None:
    chance = random.Random(int(seed))
    assert storm.serve()
    assert storm.server is not None
    for _ in range(3):
        assert storm.produce().ready()
    kills = pick_for(seed, test=15, nightly=200)
    for _ in range(kills):
        time.sleep(chance.uniform(0.0, 0.25))
        what = chance.random()
        if what < 0.2:  # a stopped producer may be in the middle of a put, or of a clean-up
            slow = chance.choice(storm.producers).popen
            slow.send_signal(signal.SIGSTOP)
            time.sleep(chance.uniform(0.0, 0.1))
            storm.server.kill()
            assert storm.serve()
            slow.send_signal(signal.SIGCONT)
        elif what < 0.6:
            victim = storm.producers.pop(chance.randrange(len(storm.producers)))
            victim.kill()
            storm.produce()
        else:
            storm.server.kill()
            assert storm.serve()
    for producer in storm.producers:
        assert producer.ready()
    counts(f"{kills} kills, {storm.finish()} confirmed messages")
