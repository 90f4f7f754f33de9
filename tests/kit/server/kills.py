"""Kill storms on a server: `holdfast serve` is killed under load, again and again.

Meanwhile clients of the official library publish and consume, each in a process of its own, and reconnect by
themselves. At the end the account must be exact. Each confirmed message exists with its confirmed id, in the
order of its producer. With deduplication it exists once, and no other message exists. Consumers got all of
them, and messages acknowledged with a receipt were not redelivered.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.kit import KIT, module_command
from tests.kit.command import COMMAND

ONCE, PLAIN = "once", "plain"
"""The topic with deduplication, and the one without."""
READY_S = 30.0
END_S = 60.0
STEPS = ("journal_written", "journal_synced", "ledger_written", "round_done")
Id = tuple[int, int, int]


@dataclass(frozen=True)
class Plan:
    """The settings of a storm."""

    name: str = "group"
    kills: int = 1_000_000
    seconds: float = 10.0
    seed: int = 0
    life_s: float = 0.8
    """The average duration of a life, from its start."""
    orderly: float = 0.1
    """The share of lives that end by SIGTERM, so that clients are told."""
    settings: tuple[str, ...] = ()
    """Settings of the broker: KEY=VALUE."""
    armed: float = 0.5
    """The share of lives that die at a step between journal and answer, where clients send again."""
    steps: tuple[str, ...] = STEPS
    pause_s: float = 0.004
    """Pause of producers after every few messages: the server is to be busy when killed, not the machine."""
    deduplication: str = "yes"
    """With "no" the storm must notice."""
    broken: str = ""
    """The name of a broken broker (kit/broker/mutants.py), which the storm must notice."""


PLANS = (
    Plan("group"),
    Plan("os", settings=("broker.sync=os",)),
    Plan("snapshots", settings=("broker.snapshot_bytes=20000", "broker.roll_entries=100")),
    Plan("short lives", life_s=0.45, orderly=0.3),
)


@dataclass
class Account:
    """The counts of a storm, and its faults."""

    plan: str
    seed: int
    kills: int = 0
    stops: int = 0
    confirmed: int = 0
    stored: int = 0
    consumed: int = 0
    consumed_again: int = 0
    receipted: int = 0
    resent: int = 0
    """Confirmed as a duplicate: it had been stored before the server was killed."""
    stored_twice: int = 0
    """Messages stored twice on the topic without deduplication, where that is allowed."""
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def words(self) -> str:
        counts = {k: v for k, v in asdict(self).items() if k not in ("plan", "seed", "seconds", "faults")}
        told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in counts.items())
        return f"{self.plan} (seed {self.seed}): {told}; {self.seconds:.1f} s"


class Client:
    """A client in a process of its own."""

    def __init__(self, directory: Path, name: str, work: str, limit_s: float, **arguments: Any) -> None:
        self.name, self.answer = name, directory / f"{name}.json"
        self._errors = directory / f"{name}.errors"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [
                    *module_command(KIT / "server/kill_client.py"),
                    *(work, str(self.answer)),
                    json.dumps({**arguments, "limit_s": limit_s}),
                ],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
            )

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()

    def result(self) -> dict[str, Any]:
        """Return what it wrote; under "error" why it wrote nothing."""
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.kill()
        if not self.answer.exists():
            return {"error": f"{self.name} did not end: {self._errors.read_text()[-1500:]}"}
        found: dict[str, Any] = json.loads(self.answer.read_text())
        return found

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Storm:
    """Starts servers, one after another, on one directory and one port, and ends them."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        self.plan, self.directory = plan, directory
        self.random = random.Random(plan.seed)
        self.account = Account(plan.name, plan.seed)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"pulsar://127.0.0.1:{self.port}"
        self.clients: dict[str, Client] = {}
        self.server: subprocess.Popen[bytes] | None = None
        self._said = 0
        """Bytes that earlier servers have written to the log."""

    def run(self) -> Account:
        begin = time.monotonic()
        data = str(self.directory / "data")
        create = ["topic", "create", ONCE, "--deduplication", self.plan.deduplication, "--data", data]
        subprocess.run([*self.command(""), *create], check=True, capture_output=True)
        try:
            self.start(armed=False)
            self.ready()
            self.attach()
            while (
                time.monotonic() - begin < self.plan.seconds
                and self.account.kills < self.plan.kills
                and not self.account.faults
            ):
                self.life()
            self.life(last=True)
            self.settle()
        finally:
            for client in self.clients.values():
                client.kill()
            if self.server is not None:
                self.server.kill()
                self.server.wait()
        self.account.seconds = time.monotonic() - begin
        return self.account

    # -- the server ------------------------------------------------------------------------------------

    def command(self, step: str) -> list[str]:
        """Return the command `holdfast`, with the plan's fault or deadly step, if any."""
        if self.plan.broken or step:
            return [*module_command(__file__), self.plan.broken, step]
        return [COMMAND]

    def start(self, armed: bool = True) -> None:
        settings = ("broker.retention_bytes=-1", "ingest.enabled=false", *self.plan.settings)
        step = ""
        if armed and self.random.random() < self.plan.armed:
            step = f"{self.random.choice(self.plan.steps)}:{self.random.randrange(5, 200)}"
        with (self.directory / "server.errors").open("ab") as errors:
            self._said = errors.tell()
            self.server = subprocess.Popen(
                [
                    *(
                        *self.command(step),
                        "serve",
                        "--data",
                        str(self.directory / "data"),
                        "--port",
                        str(self.port),
                    ),
                    *("--http-port", "off", "--log-level", "warning"),
                    *(part for each in settings for part in ("--set", each)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=os.environ | {"PYTHONFAULTHANDLER": "1"},
            )

    def ready(self) -> None:
        limit = time.monotonic() + READY_S
        while time.monotonic() < limit:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert self.server is not None
            if self.server.poll() is not None:
                if self.server.returncode == -signal.SIGKILL:
                    return  # it died at a step of its recovery
                break
            time.sleep(0.02)
        said = (self.directory / "server.errors").read_text()[-2000:]
        self.account.faults.append(f"the server does not start: {said}")

    def life(self, last: bool = False) -> None:
        """Let the server run for a while and end; start the next one."""
        assert self.server is not None
        try:
            self.server.wait(self.random.expovariate(1 / self.plan.life_s) + 0.05)
        except subprocess.TimeoutExpired:
            self.end(signal.SIGTERM if self.random.random() < self.plan.orderly else signal.SIGKILL)
        else:
            self.ended(self.server.returncode)
        self.start(armed=not last)
        if self.random.random() < 0.8:  # otherwise it may be killed while it recovers
            self.ready()

    def end(self, number: signal.Signals) -> None:
        assert self.server is not None
        self.server.send_signal(number)
        try:
            status = self.server.wait(END_S)
        except subprocess.TimeoutExpired:
            self.server.send_signal(signal.SIGABRT)  # it writes its stacks
            status = self.server.wait(END_S)
        self.ended(status)

    def ended(self, status: int) -> None:
        said = (self.directory / "server.errors").read_bytes()[self._said :].decode(errors="replace")[-4000:]
        if status == -signal.SIGKILL or (status == -signal.SIGTERM and "is ready" not in said):
            self.account.kills += 1  # SIGTERM kills an interpreter that has no handler yet
        elif status == 0:
            self.account.stops += 1
        else:
            self.account.faults.append(f"the server ended with status {status}: {said}")

    # -- the clients -----------------------------------------------------------------------------------

    def client(self, name: str, work: str, **arguments: Any) -> Client:
        limit_s = min(self.plan.seconds, 3600.0) + 2 * END_S
        made = Client(self.directory, name, work, limit_s, url=self.url, **arguments)
        self.clients[name] = made
        return made

    def attach(self) -> None:
        pause = self.plan.pause_s
        self.client("consumer-1", "consume", topic=ONCE, subscription="shared", shared=True)
        self.client("consumer-2", "consume", topic=ONCE, subscription="shared", shared=True)
        self.client("consumer-3", "consume", topic=PLAIN, subscription="exclusive", shared=False)
        self.client("receipted", "receipted", topic=ONCE, subscription="receipted")
        self.client("producer-1", "produce", topic=ONCE, number=1, batched=False, pause_s=pause)
        self.client("producer-2", "produce", topic=ONCE, number=2, batched=True, pause_s=pause)
        self.client("producer-3", "produce", topic=PLAIN, number=3, batched=False, pause_s=pause)

    def results(self, *names: str, end: bool = True) -> list[dict[str, Any]]:
        for name in names if end else ():
            self.clients[name].end()
        found = [self.clients.pop(name).result() for name in names]
        for each in found:
            for key in ("error", "failed", "bad", "faults"):
                if each.get(key):
                    self.account.faults.append(str(each[key])[:1500])
        return found

    def settle(self) -> None:
        """Kill no more; let all clients finish, and compare their results."""
        self.ready()
        produced = self.results("producer-1", "producer-2", "producer-3")
        consumed = self.results("consumer-1", "consumer-2", "consumer-3")
        receipted = self.results("receipted")[0]
        for name, topic in (("reader-1", ONCE), ("reader-2", PLAIN)):
            self.client(name, "read", topic=topic)
        read = self.results("reader-1", "reader-2", end=False)
        if not self.account.faults:
            judge = Judge(self.account)
            judge.produced(ONCE, read[0]["rows"], {1: produced[0], 2: produced[1]})
            judge.produced(PLAIN, read[1]["rows"], {3: produced[2]})
            judge.consumed("shared", read[0]["rows"], [*consumed[0]["got"], *consumed[1]["got"]])
            judge.consumed("exclusive", read[1]["rows"], consumed[2]["got"])
            judge.receipted(read[0]["rows"], receipted)
        self.end(signal.SIGTERM)


class Judge:
    """Compares what clients were told with what exists."""

    def __init__(self, account: Account) -> None:
        self.account = account

    def fault(self, *words: object) -> None:
        self.account.faults.append(" ".join(map(str, words))[:1500])

    def produced(self, topic: str, rows: list[list[int]], told: dict[int, dict[str, Any]]) -> None:
        """Check the rows of a topic: ledger, entry, index in the batch, producer, number."""
        self.account.stored += len(rows)
        for producer, each in told.items():
            numbers = [row[4] for row in rows if row[3] == producer]
            places: dict[int, list[Id]] = {}
            for row in rows:
                if row[3] == producer:
                    places.setdefault(row[4], []).append((row[0], row[1], row[2]))
            confirmed = {n: (ledger, entry, batch) for n, ledger, entry, batch in each["confirmed"]}
            self.account.confirmed += len(confirmed)
            if lost := sorted(confirmed.keys() - places.keys()):
                self.fault(topic, "producer", producer, len(lost), "confirmed messages are lost:", lost[:20])
            if strange := [n for n in places if not 1 <= n <= each["asked"]]:
                self.fault(topic, "producer", producer, "never sent", strange[:20])
            firsts = list(dict.fromkeys(numbers))
            if firsts != sorted(firsts):
                self.fault(topic, "producer", producer, "its messages are not in their order")
            twice = len(numbers) - len(places)
            if topic == ONCE and twice:
                again = [n for n, where in places.items() if len(where) > 1]
                self.fault(topic, "producer", producer, again[:20], "are stored again")
            self.account.stored_twice += twice
            self._ids(topic, producer, confirmed, places)

    def _ids(self, topic: str, producer: int, confirmed: dict[int, Id], places: dict[int, list[Id]]) -> None:
        """Check that each message has its confirmed id; a duplicate's confirmation has none."""
        for number, place in confirmed.items():
            if place[0] in (-1, 2**64 - 1):
                self.account.resent += 1
            elif number in places and place not in places[number]:
                self.fault(topic, producer, number, "was confirmed at", place, "and is at", places[number])

    def consumed(self, subscription: str, rows: list[list[int]], got: list[list[int]]) -> None:
        stored = {(row[3], row[4]) for row in rows}
        taken = {(producer, number) for producer, number in got}
        self.account.consumed += len(taken)
        self.account.consumed_again += len(got) - len(taken)
        if missing := sorted(stored - taken):
            self.fault(subscription, "never got", len(missing), "messages:", missing[:20])
        if strange := sorted(taken - stored):
            self.fault(subscription, "got what is not there:", strange[:20])

    def receipted(self, rows: list[list[int]], told: dict[str, Any]) -> None:
        entries = {(row[0], row[1]) for row in rows}
        got = {(ledger, entry) for ledger, entry in told["got"]}
        self.account.receipted += len(told["receipted"])
        if missing := sorted(entries - got):
            self.fault("receipted never got", len(missing), "entries:", missing[:20])
        if strange := sorted(got - entries):
            self.fault("receipted got what is not there:", strange[:20])


def run(plan: Plan, keep: str | None = None) -> Account:
    """Run a storm; copy the directory of a faulty one to `keep`."""
    with tempfile.TemporaryDirectory(prefix="holdfast-served.") as directory:
        account = Storm(plan, Path(directory)).run()
        if account.faults and keep:
            shutil.copytree(directory, keep, dirs_exist_ok=True)
        return account


def serve_otherwise(broken: str, step: str, arguments: list[str]) -> int:
    """Run `holdfast serve` with a fault, or with a deadly step (`name:passes before`)."""
    from holdfast import _core
    from holdfast.cli import main

    if broken:
        import pytest

        from tests.kit.broker.mutants import MUTANTS

        MUTANTS[broken](pytest.MonkeyPatch())
    if step:
        name, _, passes = step.partition(":")
        _core.arm(name, "kill", int(passes))
    return main(arguments)


if __name__ == "__main__":
    sys.exit(serve_otherwise(sys.argv[1], sys.argv[2], sys.argv[3:]))
