"""Run the rig: start processes, kill them, let them come to rest, audit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.broker import Broker
from holdfast.columns import FileTopic
from holdfast.demo import stage
from holdfast.demo.closing import Account
from holdfast.demo.frames import Frames, Loops
from holdfast.demo.levels import Levels, Listening, taps
from holdfast.demo.processes import Part
from holdfast.demo.roles import Job
from holdfast.demo.settings import CALIBRATED, LEVELS, TOPIC, Places, Settings
from holdfast.demo.stage import View
from holdfast.errors import HoldfastError, NotFound

LOOK_S = 0.5
TAME_S = {"broker": 4.0, "spark": 5.0, "sensor": 0.5, "analyser": 0.5, "gateway": 1.0, "consumer": 0.5}
"""Seconds after a start without kills: else nothing would get done."""
START_S = 240.0
"""How long Spark may take to begin."""
REST_S = 120.0
"""How long the rig may take to come to rest."""
AUDIT_S = 900.0
"""How long archive, measure and audit may take together."""
JOB = [sys.executable, "-m", "holdfast.demo.job"]
"""The command of the Spark job."""


@dataclass
class Scene(stage.Scene):
    """The state that a view shows."""

    settings: Settings
    parts: list[Part]
    stored: int = 0
    stored_rate: float = 0.0
    calibrated: int = 0
    backlog: int = 0
    frames: int = 0
    displaced: int = 0

    @property
    def kills(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for part in self.parts:
            out[part.kind] = out.get(part.kind, 0) + part.kills
        return out


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    account: Account | None
    scene: Scene
    faults: list[str]
    places: Places
    frames: Frames = field(default_factory=Frames)
    levels: Levels = field(default_factory=Levels)

    @property
    def good(self) -> bool:
        return self.account is not None and self.account.balanced and not self.faults


def free_ports(count: int) -> list[int]:
    """Of this machine, now. They stay the same over the broker's lives."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Show(stage.Stage):
    """The processes of one run."""

    scene: Scene

    def __init__(self, settings: Settings, places: Places, view: View) -> None:
        super().__init__(Scene(settings, [], phase="starting"), view)
        self.places = places
        self.loops = Loops(places.runtime, places.records)
        sensors = [f"sensor-{number}" for number in range(1, settings.sensors + 1)]
        self.listening = Listening(places.runtime, sensors)
        port, self.http = free_ports(2)
        self.url = f"pulsar://127.0.0.1:{port}"
        self._seen = (0.0, 0)
        environment = {"HOLDFAST_RUNTIME_DIR": str(places.runtime)}
        serve = [sys.executable, "-m", "holdfast.cli", "serve", "--data", str(places.data)]
        ports = ["--port", str(port), "--http-port", str(self.http), "--log-level", "warning", *taps(sensors)]
        job = [*JOB, str(places.root), self.url]
        parts = [
            Part("broker", "broker", lambda _: [*serve, *ports], places.logs / "broker", environment),
            Part("spark", "spark", lambda _: job, places.logs / "spark", environment),
        ]
        producers = settings.sensors + settings.gateways
        for kind, count in (
            ("sensor", settings.sensors),
            ("analyser", settings.sensors),
            ("gateway", settings.gateways),
            ("consumer", settings.consumers),
        ):
            for number in range(1, count + 1):
                name = f"{kind}-{number}"
                parts.append(
                    Part(
                        kind,
                        name,
                        self._role(kind, name, settings.rate / producers),
                        places.logs / name,
                        environment,
                    )
                )
        for part in parts:
            part.tame = TAME_S[part.kind]
            part.sign = places.sign if part.kind == "spark" else None
        self.scene.parts = parts

    def _role(self, kind: str, name: str, rate: float) -> Callable[[int], list[str]]:
        def command(life: int) -> list[str]:
            own = f"{name}.{life}" if kind == "analyser" else name  # a new producer in every life
            loop = name.replace("analyser", "sensor") if kind in ("sensor", "analyser") else ""
            records, data = str(self.places.records), str(self.places.data)
            seed = self.chance.getrandbits(32)
            return Job(kind, own, self.url, data, records, rate, seed, os.getpid(), loop).command()

        return command

    # -- the show --------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """The topics: everything is kept, and what a gateway sends twice is stored once."""
        for each in (self.places.records, self.places.logs, self.places.runtime):
            each.mkdir(parents=True)
        with Broker.open(self.places.data) as broker:
            for topic in (TOPIC, CALIBRATED, LEVELS):
                broker.admin.create_topic(topic, deduplication=True, retention_bytes=-1)
        self.loops.create([part.name for part in self._of("sensor")])

    def begin(self) -> None:
        """Wait for the first batch of Spark, which takes longest to start."""

        def begun() -> bool:
            if self.interrupted:  # there is nothing to account for yet
                raise KeyboardInterrupt
            self.keep_up(time.monotonic())
            return self.listening.connect() and self.places.sign.exists()

        if self.wait(time.monotonic() + START_S, begun):
            self.scene.tell("Spark's stream has done its first batch")
        else:
            self.faults.append(f"the Spark stream has done nothing in {START_S:.0f} s")

    def keep_up(self, now: float) -> None:
        for part in self.scene.parts:
            if not part.alive and part.failed():
                self._fail(part)
            if not part.alive and now >= part.restart_at:
                part.start()
                if part.life > 1:
                    self.scene.tell(f"{part.name} is back")

    def _fail(self, part: Part) -> None:
        fault = part.failed()
        if fault is not None and len(self.faults) < 10:
            self.faults.append(fault)
        part.process = None

    def attack(self, now: float) -> None:
        """Kill a part at random, but first one of each kind.

        So a short run kills the broker and Spark, too.
        """
        ripe = [part for part in self.scene.parts if part.ripe(now)]
        if ripe:
            kills = self.scene.kills
            part = self.chance.choice([each for each in ripe if not kills[each.kind]] or ripe)
            part.kill()
            self.scene.tell(f"kill -9 {part.name}")

    def rest(self) -> None:
        """Sensors leave first, then producers when all they sent is confirmed.

        Consumers and Spark get what is left.
        """
        scene = self.scene
        if self.interrupted:
            scene.tell("interrupted: coming to rest")
        scene.phase = "coming to rest"
        until = time.monotonic() + REST_S
        broker, sensors = self._of("broker")[0], self._of("sensor")
        producers = [*self._of("analyser"), *self._of("gateway")]
        for part in sensors:
            part.ask()
        self._require(until, lambda: not any(part.alive for part in sensors), "the sensors do not end")
        for part in (broker, *producers):
            self._keep(part)  # it goes on where it was, and then it may leave
        for part in producers:
            part.ask()
        self._require(until, lambda: not any(part.alive for part in producers), "the producers do not end")
        consumers = self._of("consumer")
        for part in consumers:
            if not part.alive:
                part.start()
        self._require(
            until, lambda: self.look(now=True) and scene.backlog == 0, "the consumers do not catch up"
        )
        for part in consumers:
            part.ask()
        leaving = [*sensors, *producers, *consumers]
        self._require(until, lambda: not any(part.alive for part in leaving), "the consumers do not end")
        for part in leaving:
            if part.failed():
                self._fail(part)

    def frames(self) -> Frames:
        """The account of the loops, when sensors and analysers have ended."""
        kills = {part.name: part.kills for part in self.scene.parts}
        for part in (*self._of("sensor"), *self._of("analyser")):
            part.end()  # one that did not leave is a fault already
        sensors = [part.name for part in self._of("sensor")]
        frames, faults = self.loops.account(
            {name: (kills[name], kills[name.replace("sensor", "analyser")]) for name in sensors}
        )
        self.faults += faults
        return frames

    def levels(self) -> Levels:
        """The account of what the taps stored, when the sensors have ended."""
        kills = {part.name: part.kills for part in self.scene.parts}
        most = {part.name: part.kills + kills["broker"] for part in self._of("sensor")}
        try:
            levels, faults = self.listening.account(self.url, most)
        except HoldfastError as error:
            levels, faults = Levels(), [f"the topic of the levels could not be read: {error}"]
        self.faults += faults
        return levels

    def audit(self) -> Account | None:
        """By the Spark job, which takes what is left first."""
        self.scene.phase = "auditing"
        self.places.ending.touch()
        spark, told = self._of("spark")[0], 0

        def done() -> bool:
            nonlocal told
            told = self._hear(told)
            if spark.alive:
                return False
            if self.places.account.exists() or spark.failed():
                return True
            self._keep(spark)
            return False

        if not self.wait(time.monotonic() + AUDIT_S, done):
            self.faults.append(f"the audit did not end within {AUDIT_S:.0f} s")
            return None
        self.look(now=True)
        if not self.places.account.exists():
            self._fail(spark)
            return None
        return Account(**json.loads(self.places.account.read_text()))

    def _hear(self, told: int) -> int:
        """Tell the new lines of Spark's job; return how many there are."""
        lines = self.places.said.read_text().splitlines() if self.places.said.exists() else []
        for line in lines[told:]:
            self.scene.tell(line)
        return len(lines)

    def end(self, gently: bool = True) -> None:
        """No process outlives the show. Gently: the broker may close its files."""
        if gently:
            for part in self._of("broker"):
                part.ask()
                with suppress(subprocess.TimeoutExpired):
                    if part.process is not None:
                        part.process.wait(30)
        for part in self.scene.parts:
            part.end()
        self.loops.close()
        self.listening.close()
        self.scene.phase = "over"
        self.view(self.scene)

    # -- looking ---------------------------------------------------------------------------------------

    def _of(self, kind: str) -> list[Part]:
        return [part for part in self.scene.parts if part.kind == kind]

    def _require(self, until: float, done: Callable[[], bool], words: str) -> None:
        if not self.wait(until, done):
            self.faults.append(f"{words} within {REST_S:.0f} s")

    def tend(self) -> None:
        """The broker is always there."""
        self._keep(self._of("broker")[0])

    def _keep(self, part: Part) -> None:
        """Start a part that does not run. If it ended by itself, note a fault."""
        if not part.alive:
            if part.failed():
                self._fail(part)
            part.start()

    def look(self, now: bool = False) -> bool:
        """Ask the broker. Return whether it answered: it may just be dead."""
        moment = time.monotonic()
        if moment < self.look_at and not now:
            return False
        self.look_at = moment + LOOK_S
        scene, before = self.scene, self._seen
        scene.frames, scene.displaced = self.loops.moved()
        scene.stored, scene.calibrated = (self._entries(topic) for topic in (TOPIC, CALIBRATED))
        if moment - before[0] >= LOOK_S:
            scene.stored_rate = (scene.stored - before[1]) / (moment - before[0])
            self._seen = (moment, scene.stored)
        told = self._stats(TOPIC)
        if told is not None:
            scene.backlog = sum(each["msgBacklog"] for each in told["subscriptions"].values())
        self.view(self.scene)
        return told is not None

    def _entries(self, topic: str) -> int:
        """By the files, which are there also while the broker is not."""
        with suppress(NotFound):
            return FileTopic(self.places.data, topic).plan()[1]
        return 0

    def _stats(self, topic: str) -> dict[str, Any] | None:
        path = topic.replace("://", "/")
        with suppress(OSError, ValueError):
            address = f"http://127.0.0.1:{self.http}/admin/v2/{path}/stats"
            with urllib.request.urlopen(address, timeout=1.0) as answer:
                return dict(json.load(answer))
        return None


def run(settings: Settings, view: View) -> Outcome:
    """Run the demo. The report page stays; `keep` keeps the rest, too.

    SIGTERM and SIGHUP end it at once, and all of its processes; so does a second Ctrl-C.
    """
    if settings.to is not None:
        settings.to.mkdir(parents=True, exist_ok=True)
    places = Places(Path(tempfile.mkdtemp(prefix="holdfast-demo.", dir=settings.to)))
    show = Show(settings, places, view)
    before = {each: signal.signal(each, _leave) for each in (signal.SIGTERM, signal.SIGHUP)}
    try:
        show.prepare()
        show.run()
        show.rest()
        frames = show.frames()
        account = show.audit()
        levels = show.levels()
        show.end()
    except BaseException:
        for each in (signal.SIGINT, *before):  # once is enough
            signal.signal(each, signal.SIG_IGN)
        show.end(gently=False)
        if not settings.keep:
            shutil.rmtree(places.root, ignore_errors=True)
        raise
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    outcome = Outcome(account, show.scene, show.faults, places, frames, levels)
    if outcome.good and not settings.keep:
        tidy(places)
    return outcome


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def tidy(places: Places) -> None:
    """Nothing stays but the report and the account."""
    for each in places.root.iterdir():
        if each.is_dir():
            shutil.rmtree(each)
        elif each not in (places.report, places.account):
            each.unlink()
