"""Run three brokers on one machine, and break them one after another.

Senders and receivers at all members go on meanwhile.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from holdfast._core import Batch
from holdfast.columns import FileTopic
from holdfast.demo import stage
from holdfast.demo.cluster.balance import Account, account
from holdfast.demo.cluster.brokers import Brokers
from holdfast.demo.cluster.nodes import Nodes
from holdfast.demo.cluster.roles import SUBSCRIPTION, TOPIC, Client, parsed, received_of
from holdfast.demo.processes import Part
from holdfast.demo.records import confirmed
from holdfast.demo.stage import View
from holdfast.errors import HoldfastError, NotFound

LOOK_S = 0.5
START_S = 60.0
"""How long the cluster may take to form."""
REST_S = 60.0
"""How long the clients may take to come to rest."""
Fault = Literal["kill", "cut", "corosync", "pause", "power"]
FAULTS: dict[Fault, str] = {
    "kill": "kill -9 of a broker",
    "cut": "a node is cut off from the others",
    "corosync": "kill -9 of a node's Corosync",
    "pause": "a broker stands still (SIGSTOP)",
    "power": "all brokers and all Corosyncs are killed at once",
}
"""The faults. Each is mended after half of its share of the run."""


@dataclass(frozen=True)
class Settings:
    """One run."""

    seconds: float = 40.0
    rate: float = 1_000.0
    """Messages per second of all senders together."""
    clients: int = 4
    """Senders, and as many receivers; each begins at another member."""
    faults: tuple[Fault, ...] = ("kill", "cut")
    """Faults in their order; each has an equal share of the run."""
    keep: bool = False
    chaos: ClassVar[bool] = False
    """Faults are planned here, not drawn."""


@dataclass
class MemberLook:
    """The facts about one member that a view shows."""

    node: int
    state: str = "starting"
    view: int = 0
    owns: int = 0


@dataclass
class Scene(stage.Scene):
    """The state that a view shows."""

    settings: Settings
    parts: list[Part]
    members: list[MemberLook] = field(default_factory=list)
    owner: str = "–"
    backlog: int = 0
    confirmed: int = 0
    received: int = 0


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    account: Account | None
    scene: Scene
    faults: list[str]
    root: Path

    @property
    def good(self) -> bool:
        return self.account is not None and self.account.balanced and not self.faults


class Show(stage.Stage):
    """The nodes, brokers and clients of one run."""

    scene: Scene

    def __init__(self, settings: Settings, root: Path, nodes: Nodes, view: View) -> None:
        super().__init__(Scene(settings, [], phase="starting"), view)
        self.root, self.nodes = root, nodes
        self.records = root / "records"
        self.scene.members = [MemberLook(node) for node in nodes.numbers]
        self.plan: list[tuple[float, functools.partial[None]]] = []
        self.broken: list[tuple[Fault, int]] = []
        """Faults that are not mended yet, and their nodes."""
        self.away: set[int] = set()
        """Nodes whose broker was killed."""
        self.records.mkdir(parents=True)
        self.brokers = Brokers(nodes, root, "--set", "broker.deduplication=true")
        clients = [
            self._client(role, number)
            for role in ("sender", "receiver")
            for number in range(1, settings.clients + 1)
        ]
        self.scene.parts = [*self.brokers.parts.values(), *clients]

    # -- the parts -------------------------------------------------------------------------------------

    def _client(self, role: str, number: int) -> Part:
        url = self.brokers.url(self.nodes.numbers[(number - 1) % len(self.nodes.numbers)])
        rate = self.settings.rate / self.settings.clients
        name = f"{role}-{number}"
        job = Client(role, name, url, str(self.records), rate, os.getpid())
        command = self.nodes.command(0, job.command())
        return Part(role, name, lambda _: command, self.root / "logs" / name, {})

    def _of(self, kind: str) -> list[Part]:
        return [part for part in self.scene.parts if part.kind == kind]

    # -- the show --------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Wait until all members serve, then let the clients begin."""
        for part in self._of("broker"):
            part.start()
        formed = self.wait(time.monotonic() + START_S, lambda: self._serving() == len(self.nodes.numbers))
        if not formed:
            self.faults.append(f"the cluster did not form within {START_S:.0f} s; see {self.root}/logs")
            return
        self.scene.tell("the cluster has formed: every member serves")
        for part in (*self._of("receiver"), *self._of("sender")):
            part.start()
        self._plan_faults(time.monotonic())

    def _plan_faults(self, now: float) -> None:
        """Plan each fault: at another node, from its first to its last quarter."""
        faults = self.settings.faults
        for at, fault in enumerate(faults):
            share = self.settings.seconds / len(faults)
            node = self.nodes.numbers[(at + 1) % len(self.nodes.numbers)]
            begin = now + share * (at + 0.25)
            self.plan.append((begin, functools.partial(self._break, fault, node)))
            self.plan.append((begin + share / 2, functools.partial(self._mend, fault, node)))

    def _break(self, fault: Fault, node: int) -> None:
        everywhere = self.nodes.numbers if fault == "power" else [node]
        self.broken.append((fault, node))
        self.scene.tell(f"node {', '.join(map(str, everywhere))}: {FAULTS[fault]}")
        if fault == "cut":
            self.nodes.cut(node)
        elif fault == "pause":
            self._signal(node, signal.SIGSTOP)
        for each in everywhere:
            if fault in ("kill", "power"):
                self.brokers.parts[each].end()
                self.away.add(each)
            if fault in ("corosync", "power"):
                self.nodes.kill(each)

    def _mend(self, fault: Fault, node: int) -> None:
        everywhere = self.nodes.numbers if fault == "power" else [node]
        if fault == "cut":
            self.nodes.heal()
        elif fault == "pause":
            self._signal(node, signal.SIGCONT)
        for each in everywhere:
            if fault in ("corosync", "power"):
                self.nodes.start(each)
            if fault in ("kill", "power"):
                self.away.discard(each)
                self.brokers.parts[each].start()
        self.broken.remove((fault, node))
        self.scene.tell(f"node {', '.join(map(str, everywhere))}: mended")

    def _signal(self, node: int, number: signal.Signals) -> None:
        process = self.brokers.parts[node].process
        assert process is not None
        process.send_signal(number)

    def keep_up(self, now: float) -> None:
        while self.plan and self.plan[0][0] <= now:
            self.plan.pop(0)[1]()
        self.tend()

    def tend(self) -> None:
        """Note parts that ended by themselves."""
        for part in self.scene.parts:
            broken = part in [self.brokers.parts[node] for node in self.away]
            fault = None if part.alive or broken else part.failed()
            if fault is not None and len(self.faults) < 10:
                self.faults.append(fault)
                part.process = None

    def rest(self) -> None:
        """Let senders finish, receivers catch up, and all members serve again."""
        self.plan.clear()
        for fault, node in list(self.broken):  # the run ended early
            self._mend(fault, node)
        self.scene.phase = "coming to rest"
        until = time.monotonic() + REST_S
        self._require(until, lambda: self._serving() == len(self.nodes.numbers), "not all members serve")
        for kind in ("sender", "receiver"):
            if kind == "receiver":
                self._require(until, lambda: self._caught_up(), "the receivers do not catch up")
            for part in self._of(kind):
                part.ask()
            self._require(until, lambda: not self._alive(kind), f"the {kind}s do not end")  # noqa: B023
        self.tend()

    def _alive(self, kind: str) -> bool:
        return any(part.alive for part in self._of(kind))

    def _caught_up(self) -> bool:
        return self.look(now=True) and self.scene.backlog == 0

    def _require(self, until: float, done: Callable[[], bool], words: str) -> None:
        if not self.wait(until, done):
            self.faults.append(f"{words} within {REST_S:.0f} s")

    def audit(self) -> Account:
        """Compare the records of the clients with the files of every member."""
        self.scene.phase = "auditing"
        for part in self._of("broker"):
            part.ask()
        self._require(time.monotonic() + REST_S, lambda: not self._alive("broker"), "the brokers do not end")
        stored = {node: self._stored(node) for node in self.nodes.numbers}
        return account(confirmed(self.records), stored, received_of(self.records))

    def _stored(self, node: int) -> list[tuple[str, int]]:
        """Read all messages of the topic from the files of one member."""
        found: list[tuple[str, int]] = []
        try:
            topic = FileTopic(self.brokers.data(node), TOPIC)
            first, end = topic.plan()
            while first < end:
                entries = topic.run(first, end)
                found += [parsed(message.data) for message in Batch(entries)]
                first += len(entries)
        except NotFound:  # it has no entry; the account misses what was confirmed
            return found
        except HoldfastError as error:
            self.faults.append(f"the topic of node {node} could not be read: {error}")
        return found

    def end(self) -> None:
        """End every process; none outlives the show."""
        for part in self.scene.parts:
            part.end()
        self.scene.phase = "over"
        self.view(self.scene)

    # -- looking ---------------------------------------------------------------------------------------

    def _serving(self) -> int:
        self.look()
        return sum(each.state == "serves" for each in self.scene.members)

    def look(self, now: bool = False) -> bool:
        """Ask every member over HTTP. Return whether one of them told the backlog."""
        moment = time.monotonic()
        if moment < self.look_at and not now:
            return False
        self.look_at = moment + LOOK_S
        scene = self.scene
        answers = self.nodes.inside(0, lambda: [self._ask(each.node) for each in scene.members])
        told = False
        for each, (status, queues) in zip(scene.members, answers, strict=True):
            if isinstance(status, str):
                each.state, each.view, each.owns = _state(status), 0, 0
            else:
                each.state, each.view, each.owns = "serves", status["view"], status["ownedSubscriptions"]
            for queue in queues:
                for sub in queue["subscriptions"]:
                    if queue["topic"] == TOPIC and sub["name"] == SUBSCRIPTION:
                        scene.owner, scene.backlog, told = _owner(sub["owner"]), sub["backlog"], True
        scene.confirmed = sum(confirmed(self.records).values())
        scene.received = sum(path.read_bytes().count(b"\n") for path in self.records.glob("*.received"))
        self.view(scene)
        return told

    def _ask(self, node: int) -> tuple[dict[str, Any] | str, list[dict[str, Any]]]:
        """Return status and queues of a member; a text says why it does not answer."""
        status = self.brokers.ask(node, "cluster/status")
        queues = self.brokers.ask(node, "cluster/queues") if isinstance(status, dict) else []
        return status, queues if isinstance(queues, list) else []


def _state(refusal: str) -> str:
    """Return the state in a member's refusal, without its reason."""
    return refusal.removeprefix("this node is not serving: ").partition(";")[0]


def _owner(member: str | None) -> str:
    """Return the node of a member `node.incarnation`."""
    return "–" if member is None else f"node {member.partition('.')[0]}"


def run(settings: Settings, view: View) -> Outcome:
    """Run the demo.

    Raises:
        NotFound: Corosync is missing, or this process may not make namespaces; the text says what to do.
    """
    root = Path(tempfile.mkdtemp(prefix="holdfast-cluster."))
    assert threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, _leave) for each in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.getsignal(signal.SIGINT)
    found: Account | None = None
    try:
        with Nodes(3) as nodes:
            show = Show(settings, root, nodes, view)
            try:
                show.run()
                if not show.faults:
                    show.rest()
                    found = show.audit()
            finally:
                for each in before:  # once is enough: nothing stops the clearing up
                    signal.signal(each, signal.SIG_IGN)
                show.end()
        outcome = Outcome(found, show.scene, show.faults, root)
        if outcome.good and not settings.keep:
            shutil.rmtree(root, ignore_errors=True)
    except BaseException:
        if not settings.keep:
            shutil.rmtree(root, ignore_errors=True)
        raise
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    return outcome


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)
