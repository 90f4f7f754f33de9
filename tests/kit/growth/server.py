"""Months of a real server in minutes: rounds that create and delete everything.

A round is a fixed list of steps, so that every figure at its end equals that of the round before. The clients
implement the protocol themselves: they do the same each time, and some things that no library does.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import holdfast
import holdfast.local.producer as producer_module
from holdfast.client import Client
from holdfast.errors import NotFound
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit import module_command
from tests.kit.growth import watched
from tests.kit.growth.figures import BYTES, COUNT, MEMORY, OBJECTS, Kind, Run
from tests.kit.processes import private_memory, until
from tests.kit.served import Served
from tests.kit.server.definitions import definition
from tests.kit.server.wire_raw import Raw, Type, frame_of, full, id_of

AGE_S = 0.1
"""Names, stages and sinks that are unused for this long expire."""
SETTINGS = {
    "broker.sync": "os",
    "broker.housekeeping_s": 0.03,
    "broker.deduplication_age_s": AGE_S,
    "broker.stage_age_s": AGE_S,
    "broker.sink_age_s": AGE_S,
    "broker.roll_entries": 20,
    "broker.snapshot_bytes": 100_000,
    "broker.snapshot_s": 0.2,
    "broker.journal_bytes": 1 << 18,
    "broker.reserve_bytes": 1 << 16,
    "limits.volatile_s": 0.1,
    "ingest.queue_bytes": 1 << 16,
    "flight.enabled": "false",
    "log.level": "warning",
}
JOURNAL = Kind("", 10.0)
"""Spare files are kept, by the amount written before the last snapshots."""
ADMIN = "/admin/v2/persistent/public/default"
PROBES = 8
"""How many messages have their calls counted, each by itself."""
QUIET_S = 10.0
"""How long a round waits for objects to go; the rest is counted, and shows as growth."""
LEAKING_S = 0.4
"""The same with planted leaks, which never go."""


class ServerMonths:
    """A server, its clients, and the figures of both."""

    def __init__(self, directory: Path, leaks: Sequence[str] = ()) -> None:
        self.quiet_s = LEAKING_S if leaks else QUIET_S
        self.data, self.runtime = directory / "data", directory / "runtime"
        self.runtime.mkdir()
        door = directory / "door"
        environment = {
            watched.DOOR: str(door),
            watched.LEAKS_PLANTED: "|".join(leaks),
            "HOLDFAST_RUNTIME_DIR": str(self.runtime),
            "PYTHONHASHSEED": "0",
        }
        settings = [f"--set={key}={value}" for key, value in SETTINGS.items()]
        self.server = Served(
            *("--data", str(self.data), "--port", "0", "--http-port", "0", *settings),
            environment=environment,
            command=module_command(watched.__file__),
        )
        self.pid = self.server.process.pid
        self.watch = watched.Watch(door)
        self.at = 0
        self._written = self._calls = 0
        assert self.http("PUT", f"{ADMIN}/probe") == 204
        assert self.http("POST", f"{ADMIN}/probe/deduplicationEnabled", "true") in (200, 204)
        self.rest: dict[str, int] = {}
        """Return the sizes of the tables when only the probe's topic exists."""
        self._probe()
        gone = ("connections", "sessions", "producer names")
        with contextlib.suppress(AssertionError):  # some leaks keep them
            until(lambda: not any(self.watch.ask("tables")[each] for each in gone), self.quiet_s)
        self.rest = self.watch.ask("tables")
        self.watch.ask("rest")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.close()
        self.server.close()

    # -- a round ---------------------------------------------------------------------------------------

    def round(self) -> None:
        self.at += 1
        before = self._io()
        for work in WORKS:
            work(self)
        self._written = self._io() - before
        self.wait_until_quiet()
        self._probe()
        self.wait_until_quiet()

    def wait_until_quiet(self) -> None:
        """Wait until all that expires has expired."""
        with contextlib.suppress(AssertionError):
            until(lambda: not self._left() and not self._replies(), self.quiet_s)

    def _left(self) -> list[str]:
        """Return what is left of the round. Ledgers of the topic that stays may vary."""
        now: dict[str, int] = self.watch.ask("tables")
        return [name for name, count in now.items() if name != "ledgers" and count > self.rest[name]]

    def _replies(self) -> list[Path]:
        return list(self.runtime.glob("*.reply"))

    def _probe(self) -> None:
        """Count the calls of fixed work: publish, consume, acknowledge."""
        with self.raw() as raw:
            raw.produce("probe", producer_name="probe")
            raw.subscribe("probe", subscription="probe", consumer=2)
            found = []
            for number in range(PROBES):
                self.watch.ask("begin")
                raw.send(PROBES * self.at + number, b"probe")
                raw.expect(Type.SEND_RECEIPT)
                raw.flow(1, consumer=2)
                ack = _ack(raw.expect(Type.MESSAGE))
                raw.ask(Type.ACK, Type.ACK_RESPONSE, **{**ack, "consumer_id": 2})
                found.append(self.watch.ask("end"))
            self._calls = min(found)  # housekeeping runs beside some of them

    def _io(self) -> int:
        rows = dict(line.split(": ") for line in Path(f"/proc/{self.pid}/io").read_text().splitlines())
        return int(rows["wchar"])

    # -- figures ---------------------------------------------------------------------------------------

    def figures(self) -> dict[str, tuple[Kind, float]]:
        self.watch.ask("tidy")
        tables, inside = self.watch.ask("tables"), self.watch.ask("held")
        found: dict[str, tuple[Kind, float]] = {
            "descriptors": (COUNT, len(self._descriptors()) - self._journal()),
            "descriptors of the journal": (JOURNAL, self._journal()),
            "threads": (COUNT, count_in(f"/proc/{self.pid}/task")),
            "mappings": (COUNT, Path(f"/proc/{self.pid}/maps").read_text().count("\n")),
            "private memory": (MEMORY, private_memory(self.pid) / 1024),
            "files of the data directory": (COUNT, files_in(self.data) - files_in(self.data / "journal")),
            "files of the journal": (JOURNAL, files_in(self.data / "journal")),
            "files of the runtime directory": (COUNT, files_in(self.runtime)),
            "snapshot": (BYTES, self.watch.ask("snapshot")),
            "calls of a probe": (OBJECTS, self._calls),
            "bytes written in a round": (Kind("B", 20_000), self._written),
        }
        found |= {name: (COUNT, count) for name, count in tables.items()}
        found["objects"] = (OBJECTS, inside["objects"])
        found["entries of containers"] = (OBJECTS, inside["entries of containers"])
        found["allocated blocks"] = (Kind("", 400), inside["allocated blocks"])
        found["allocated bytes"] = (Kind("B", 64 << 10), inside["allocated bytes"])
        return found

    def _descriptors(self) -> list[str]:
        found = []
        for each in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found.append(str(each.readlink()))
        return found

    def _journal(self) -> int:
        return sum("/data/journal/" in each for each in self._descriptors())

    # -- steps of a round ------------------------------------------------------------------------------

    def name(self, what: str, number: int = 0) -> str:
        """Return a new name; all names have the same length."""
        return f"{what}-{self.at:06d}-{number:02d}"

    def raw(self, greet: bool = True) -> Raw:
        """Connect; small frames leave at once."""
        made = Raw(self.server.url, greet=greet)
        made.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def http(self, method: str, path: str, body: str | None = None) -> int:
        port = self.server.ready["http_port"]
        link = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            link.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = link.getresponse()
            answer.read()
            return answer.status
        finally:
            link.close()

    def connections(self) -> None:
        """Connect clients that leave politely, silently, within a frame, or with a reset."""
        greeting = frame_of(Type.CONNECT, client_version="raw", protocol_version=19)
        for number in range(4):
            self.raw().close()
            for cut in (0, 3, len(greeting) - 1):
                raw = self.raw(greet=False)
                raw.socket.sendall(greeting[:cut])
                if number % 2:
                    _reset(raw.socket)
                raw.close()
            with self.raw() as raw:
                raw.socket.sendall(struct.pack(">II", 1 << 20, 40) + bytes(3000 * number))
            with self.raw() as raw:
                raw.socket.sendall(b"\xff" * 64)
                raw.closed()

    def producers(self) -> None:
        """Produce under new names to a topic that deduplicates; close some, cut some off."""
        topic = self.name("dedup")
        assert self.http("PUT", f"{ADMIN}/{topic}") == 204
        assert self.http("POST", f"{ADMIN}/{topic}/deduplicationEnabled", "true") in (200, 204)
        for number in range(6):
            with self.raw() as raw:
                raw.produce(topic, producer_name=self.name("sensor", number))
                raw.send(number, b"x" * 100)
                raw.expect(Type.SEND_RECEIPT)
                if number % 2:
                    raw.ask(Type.CLOSE_PRODUCER, producer_id=1)
        assert self.http("DELETE", f"{ADMIN}/{topic}?force=true") == 204
        with self.raw() as raw:  # names on a topic that stays expire by age
            raw.produce("probe", producer_name=self.name("guest"))
            raw.send(1, b"x")
            raw.expect(Type.SEND_RECEIPT)
        self._drain()

    def _drain(self) -> None:
        """Consume the one message that is left on the probe's topic."""
        with self.raw() as raw:
            raw.subscribe("probe", subscription="probe")
            raw.flow(1)
            raw.ask(Type.ACK, Type.ACK_RESPONSE, **_ack(raw.expect(Type.MESSAGE)))

    def consumers(self) -> None:
        """Consume with every type, durable and not; acknowledge, give back and leave messages."""
        topic = self.name("topic")
        assert self.http("PUT", f"{ADMIN}/{topic}/subscription/keeper") == 204
        with self.raw() as raw:
            raw.publish(topic, 60)  # ledgers roll
        for number in range(6):
            with self.raw() as raw:
                kind, durable = (0, 1, 2)[number % 3], number < 4
                raw.subscribe(topic, subscription=self.name("s", number), sub_type=kind, durable=durable)
                raw.flow(20)
                got = _messages(raw, 20)
                raw.ask(Type.ACK, Type.ACK_RESPONSE, **_ack(*got[:7]))
                raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
                if number == 0:
                    raw.ask(Type.SEEK, consumer_id=1, message_id=id_of(got[3]))
                elif number == 1:
                    raw.ask(Type.UNSUBSCRIBE, consumer_id=1)
                elif number == 2:
                    raw.ask(Type.CLOSE_CONSUMER, consumer_id=1)
                elif number == 5:
                    _reset(raw.socket)
        for number in (0, 2, 3):
            path = f"{ADMIN}/{topic}/subscription/{self.name('s', number)}?force=true"
            assert self.http("DELETE", path) == 204
        assert self.http("DELETE", f"{ADMIN}/{topic}?force=true") == 204

    def schemas(self) -> None:
        """Create schemas of topics that are deleted, watched and looked up."""
        topics = [self.name("typed", number) for number in range(2)]
        with self.raw() as raw:
            raw.watch("public/default/typed-.*")
            for topic in topics:
                with self.raw() as other:
                    other.produce(topic)
                for version in range(3):
                    schema = pb.Schema(
                        name=topic, type=pb.Schema.Json, schema_data=definition(mark=f"v{version}")
                    )
                    answer = Type.GET_OR_CREATE_SCHEMA_RESPONSE
                    raw.ask(Type.GET_OR_CREATE_SCHEMA, answer, topic=full(topic), schema=schema)
            raw.ask(
                Type.GET_TOPICS_OF_NAMESPACE,
                Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
                namespace="public/default",
            )
            raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=full(topics[0]), authoritative=False)
            for topic in topics:
                assert self.http("DELETE", f"{ADMIN}/{topic}?force=true") == 204

    def refusals(self) -> None:
        """Send requests that are refused, each with a new name."""
        with self.raw() as raw:
            for number in range(5):
                missing = f"persistent://nobody/{self.name('ns', number)}/t"
                raw.ask(Type.PRODUCER, Type.ERROR, topic=missing, producer_id=number)
                fields = {"subscription": "s", "consumer_id": number, "subType": 0}
                raw.ask(Type.SUBSCRIBE, Type.ERROR, topic=missing, **fields)
        for number in range(5):
            assert self.http("GET", f"{ADMIN}/{self.name('missing', number)}/stats") == 404

    def routes(self) -> None:
        """Read metrics, statistics and namespaces; cut off HTTP connections."""
        assert self.http("GET", "/metrics") == 200
        assert self.http("GET", "/admin/v2/brokers/health") == 200
        assert self.http("GET", f"{ADMIN}/probe/stats") == 200
        assert self.http("GET", f"{ADMIN}/probe/internalStats") == 200
        space = f"/admin/v2/namespaces/public/{self.name('ns')}"
        assert self.http("PUT", space) == 204
        assert self.http("DELETE", space) == 204
        for number in range(4):
            with socket.create_connection(("127.0.0.1", self.server.ready["http_port"])) as link:
                link.sendall(
                    b"PUT /admin/v2/persistent/x HTTP/1.1\r\nContent-Length: 900\r\n\r\nhalf"[: 20 * number]
                )
                if number % 2:
                    _reset(link)

    def sinks(self) -> None:
        """Commit stages, drop some, and leave some behind with their connection."""
        topic = self.name("sunk")
        with Client(self.server.url.replace("pulsar", "holdfast", 1)) as client:
            while True:
                stage = client.stage()
                stage.append(topic, [b"row"] * 10)
                try:
                    assert client.sink_commit(self.name("query"), 1, [stage.close()])
                    break
                except NotFound:  # on a machine that stalls, the stage may expire
                    continue
            client.stage().drop()
            client.stage().append(topic, [b"left behind"] * 10)
        assert self.http("DELETE", f"{ADMIN}/{topic}?force=true") == 204

    def ingest(self) -> None:
        """Produce on this machine; close some producers, and kill some with their queue."""
        topics = [self.name("local", number) for number in range(2)]
        for topic in (topics[0], "probe"):  # the second queue expires by age, not with its topic
            publish(topic, self.runtime).close()
        kill_in(lambda: publish(topics[1], self.runtime))
        kill_in(lambda: ask("probe", self.runtime))
        for topic in topics:
            assert self.http("DELETE", f"{ADMIN}/{topic}?force=true") == 204
        self._drain()


WORKS: tuple[Callable[[ServerMonths], None], ...] = (
    *(ServerMonths.connections, ServerMonths.producers, ServerMonths.consumers, ServerMonths.schemas),
    *(ServerMonths.refusals, ServerMonths.routes, ServerMonths.sinks, ServerMonths.ingest),
)
"""The steps of a round."""


def kill_in(work: Callable[[], object]) -> None:
    """Call a function in a process that is then killed."""
    pid = os.fork()
    if pid == 0:
        try:
            held = work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
        assert held
    os.waitpid(pid, 0)


def publish(topic: str, runtime: Path) -> holdfast.Producer:
    producer = holdfast.Producer(topic, directory=runtime)
    producer.put(b"row")
    producer.flush(timeout=10)
    return producer


def ask(topic: str, runtime: Path) -> None:
    """Ask for a queue, and die before reading the reply."""
    vars(producer_module)["read_own"] = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    holdfast.Producer(topic, directory=runtime)


def _ack(*messages: Any) -> dict[str, Any]:
    return {"consumer_id": 1, "ack_type": 0, "message_id": [id_of(each) for each in messages]}


def _messages(raw: Raw, count: int) -> list[Any]:
    """Return the next messages, and ignore other commands of the server."""
    got: list[Any] = []
    while len(got) < count:
        kind, message = raw.hear()
        if kind == Type.MESSAGE:
            got.append(message)
    return got


def _reset(link: socket.socket) -> None:
    """Let a close send a reset, in any state."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def count_in(directory: str) -> int:
    return sum(1 for _ in Path(directory).iterdir())


def files_in(directory: Path) -> int:
    return sum(len(files) for _, _, files in os.walk(directory))


def months(directory: Path, rounds: Iterable[int], warm_up: int, leaks: Sequence[str] = ()) -> Run:
    """Run the rounds; return their figures."""
    run = Run("server", warm_up)
    with ServerMonths(directory, leaks) as world:
        for _ in rounds:
            world.round()
            run.note(world.figures())
    return run
