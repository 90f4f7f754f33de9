"""Run the demo: start processes, kill them, drain the queue, make the account."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import NotFound, Queue, QueueStats, _core
from holdfast.demo import stage
from holdfast.demo.queue.account import Account, balance
from holdfast.demo.queue.workers import Job, start
from holdfast.demo.stage import View
from holdfast.formatting import plural
from holdfast.memory import faults_of, stats_of

CAPACITY = 8 << 20
STOP_SHARE = 0.15
"""The share of attacks that are a SIGSTOP, which holds a process for a while."""
STOP_S = 0.6
AIMED_SHARE = 0.5
"""The share of kills that wait until the process holds a message, or writes one."""
CATCH_TRIES = 40
CATCH_PAUSE_S = 0.001
RESTART_S = 0.25
"""How long a dead process stays away before another one takes its place."""
DRAIN_S = 60.0
LOOK_EVERY_S = 0.1


@dataclass(frozen=True)
class Settings:
    """The options of `holdfast queue demo`."""

    seconds: float = 20.0
    producers: int = 4
    consumers: int = 3
    rate: float = 40_000.0
    """Messages per second of all producers together; 0 is as fast as they can."""
    chaos: bool = True
    keep: bool = False
    """Leave the queue and the records where they are."""
    directory: str | None = None


@dataclass
class Worker:
    """One place in the show, which one process after another fills."""

    kind: str
    ident: int = 0
    pid: int = 0
    stopped_until: float = 0.0
    restart_at: float = 0.0

    @property
    def name(self) -> str:
        return str(self.ident)

    @property
    def alive(self) -> bool:
        return self.pid != 0

    @property
    def state(self) -> str:
        if not self.alive:
            return "killed" if self.restart_at else "left"
        return "stopped" if self.stopped_until else "runs"


@dataclass
class Scene(stage.Scene):
    """The state that a view shows."""

    settings: Settings
    workers: list[Worker]
    killed: dict[str, int] = field(default_factory=lambda: {"producer": 0, "consumer": 0})
    stopped: int = 0
    stats: QueueStats | None = None
    put_rate: float = 0.0
    delivered_rate: float = 0.0
    """Over the last two seconds."""
    seen: deque[tuple[float, int, int]] = field(default_factory=deque)

    def saw(self, stats: QueueStats) -> None:
        """Take what the queue says, and how fast it went."""
        now, self.stats = time.monotonic(), stats
        self.seen.append((now, stats.put, stats.delivered))
        while now - self.seen[0][0] > 2.0:
            self.seen.popleft()
        since, put, delivered = self.seen[0]
        span = max(now - since, 1e-9)
        self.put_rate, self.delivered_rate = (stats.put - put) / span, (stats.delivered - delivered) / span


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    account: Account
    scene: Scene
    faults: list[str]
    """Other faults: a process that failed, a queue that is damaged or was not drained."""
    records: Path
    queue: str

    @property
    def good(self) -> bool:
        return self.account.balanced and not self.faults


class Show(stage.Stage):
    """The processes of one run. The parent forks, so it never attaches to the queue."""

    TICK_S = 0.02
    ATTACK_S = 0.2

    scene: Scene

    def __init__(self, settings: Settings, queue: str, directory: str, records: Path, view: View) -> None:
        kinds = ["producer"] * settings.producers + ["consumer"] * settings.consumers
        super().__init__(Scene(settings, [Worker(kind) for kind in kinds]), view)
        self.queue, self.directory, self.records = queue, directory, records
        self._started = 0

    def keep_up(self, now: float) -> None:
        for worker in self.scene.workers:
            if not worker.alive and now >= worker.restart_at:
                self._start(worker)
            elif worker.stopped_until and now >= worker.stopped_until:
                self._continue(worker)
        self.tend()

    def drain(self) -> None:
        """Producers leave, then the queue is closed, then consumers find its end by themselves."""
        scene = self.scene
        if self.interrupted:
            scene.tell("interrupted: draining")
        scene.phase = "draining"
        for worker in scene.workers:
            self._continue(worker)
        for worker in scene.workers:
            if worker.kind == "producer" and worker.alive:
                os.kill(worker.pid, signal.SIGTERM)
            elif worker.kind == "consumer" and not worker.alive:
                self._start(worker)
        deadline = time.monotonic() + DRAIN_S
        if self.wait(deadline, lambda: not self._living("producer")):
            with Queue.open(self.queue, directory=self.directory) as queue:
                queue.close()
            self.wait(deadline, lambda: not self._living("consumer"))
        for worker in scene.workers:
            if worker.alive:
                self.faults.append(f"{worker.kind} {worker.ident} did not end within {DRAIN_S:.0f} s")
        scene.phase = "over"
        self.look(now=True)
        stats = scene.stats
        if stats is not None and stats.ready + stats.returned + stats.taken + stats.writing != 0:
            self.faults.append(
                f"the queue still holds {stats.ready} ready, {stats.returned} returned, {stats.taken} taken "
                f"messages and {stats.writing} half-written ones"
            )

    def end(self) -> None:
        """No process outlives the show."""
        for worker in self.scene.workers:
            if worker.alive:
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
                worker.pid = 0

    def _living(self, kind: str) -> list[Worker]:
        return [worker for worker in self.scene.workers if worker.kind == kind and worker.alive]

    def _start(self, worker: Worker) -> None:
        self._started += 1
        worker.ident, worker.stopped_until, worker.restart_at = self._started, 0.0, 0.0
        rate = self.settings.rate / self.settings.producers
        worker.pid = start(Job(worker.kind, worker.ident, self.queue, self.directory, self.records, rate))

    def tend(self) -> None:
        """Note processes that ended by themselves, which is a fault."""
        for worker in self.scene.workers:
            if not worker.alive:
                continue
            pid, status = os.waitpid(worker.pid, os.WNOHANG)
            if pid == 0:
                continue
            worker.pid = 0
            code = os.waitstatus_to_exitcode(status)
            if code == 0 and self.scene.phase == "draining":
                continue
            error = self.records / f"{worker.kind}.{worker.ident}.error"
            words = error.read_text(encoding="utf-8").strip() if error.exists() else f"exit status {code}"
            self.faults.append(f"{worker.kind} {worker.ident} ended by itself: {words}")

    def attack(self, now: float) -> None:
        victims = [worker for worker in self.scene.workers if worker.alive and not worker.stopped_until]
        if not victims:
            return
        victim = self.chance.choice(victims)
        who = f"{victim.kind} {victim.ident} (pid {victim.pid})"
        if self.chance.random() < STOP_SHARE:
            os.kill(victim.pid, signal.SIGSTOP)
            victim.stopped_until = now + STOP_S
            self.scene.stopped += 1
            self.scene.tell(f"SIGSTOP {who}")
            return
        holds = self._catch(victim.pid) if self.chance.random() < AIMED_SHARE else ""
        os.kill(victim.pid, signal.SIGKILL)
        os.waitpid(victim.pid, 0)
        victim.pid, victim.restart_at = 0, now + RESTART_S
        self.scene.killed[victim.kind] += 1
        self.scene.tell(f"SIGKILL {who}{holds}")

    def _catch(self, pid: int) -> str:
        """Stop the process repeatedly until it holds or writes a message. Return which."""
        for _ in range(CATCH_TRIES):
            os.kill(pid, signal.SIGSTOP)
            os.waitpid(pid, os.WUNTRACED)
            if holds := self._hands_of(pid):
                return holds
            os.kill(pid, signal.SIGCONT)
            time.sleep(self.chance.uniform(0, CATCH_PAUSE_S))
        return ""

    def _hands_of(self, pid: int) -> str:
        seen = self._seen()
        mine = [each for each in seen.holders if each.pid == pid] if seen else []
        taken, writing = sum(each.taken for each in mine), sum(each.writing + each.fenced for each in mine)
        parts = [f"{plural(taken, 'message')} in its hands"] if taken else []
        if writing:
            parts.append(f"{writing} half written")
        return f" with {' and '.join(parts)}" if parts else ""

    def _continue(self, worker: Worker) -> None:
        if worker.alive and worker.stopped_until:
            os.kill(worker.pid, signal.SIGCONT)
        worker.stopped_until = 0.0

    def _seen(self) -> QueueStats | None:
        seen = _core.inspect(self.directory, self.queue)
        for fault in faults_of(seen):
            if not seen["queue"]["overtaken"] and fault not in self.faults:
                self.faults.append(fault)
        return None if seen["queue"]["overtaken"] else stats_of(self.queue, seen)

    def look(self, now: bool = False) -> bool:
        if now or time.monotonic() >= self.look_at:
            if stats := self._seen():
                self.scene.saw(stats)
            self.view(self.scene)
            self.look_at = time.monotonic() + LOOK_EVERY_S
        return self.scene.stats is not None


def run(settings: Settings, view: View) -> Outcome:
    """Run once. A second Ctrl-C, while the queue drains, is the caller's."""
    directory = settings.directory or _core.default_directory()
    records = Path(tempfile.mkdtemp(prefix="holdfast-demo."))
    name = f"demo.{os.getpid()}"
    before = signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # `kill` and `timeout` end it as Ctrl-C does
    try:
        places = settings.producers + settings.consumers
        Queue.create(name, capacity=CAPACITY, participants=places + 16, directory=directory).detach()
        show = Show(settings, name, directory, records, view)
        try:
            show.run()
            show.drain()
        finally:
            show.end()
        return Outcome(balance(records), show.scene, show.faults, records, name)
    finally:
        signal.signal(signal.SIGTERM, before)
        if not settings.keep:
            shutil.rmtree(records)
            with suppress(NotFound):
                Queue.unlink(name, directory=directory)
