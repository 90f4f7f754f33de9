"""NATS JetStream and RabbitMQ as three servers on loopback, under the same load generator."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import time
from pathlib import Path

from bench.answers import BenchError
from bench.cluster_servers import Servers
from bench.server_peers import Nats
from bench.server_process import ServerProcess, Used, found, free_port
from bench.server_rabbit import RabbitQuorum

MEMBERS = (1, 2, 3)
FORM_S = 60.0
ASK_S = 0.5
CONTROL_S = 60.0


class NatsThree(Nats):
    """A stream with three replicas; the generator is connected to the stream's leader."""

    name = "NATS JetStream, R3"
    durability = "page cache of a majority: synced every two minutes"
    replicas = 3

    def __init__(self, directory: Path) -> None:
        program = found(self.program)
        assert program is not None
        ports = {number: free_port() for number in MEMBERS}
        routes = {number: f"nats://127.0.0.1:{free_port()}" for number in MEMBERS}
        self._port_of = {f"n{number}": port for number, port in ports.items()}
        self.server = Servers(
            {
                port: ServerProcess(
                    [
                        *(program, "-a", "127.0.0.1", "-p", str(port), "-n", f"n{number}", "-js"),
                        *("-sd", str(directory / f"js{number}"), "--cluster_name", "bench"),
                        *("--cluster", routes[number], "--routes", ",".join(routes.values())),
                    ],
                    directory / f"n{number}",
                )
                for number, port in ports.items()
            }
        )
        self.port = ports[1]
        self._streams, self._asked = itertools.count(1), itertools.count(1)
        self.wire = self._connect()
        self._wait_formed()

    def _wait_formed(self) -> None:
        """Wait until three servers have a leader: before, requests get no answer, or an error."""
        self._open()
        self._stream = ""  # a stream is not deleted before it has a leader of its own

    def _ask(self, subject: str, body: object) -> bytes:
        """Ask until an answer comes. Without a leader a server is silent, or refuses."""
        until = time.monotonic() + FORM_S
        data = json.dumps(body).encode()
        said = b"no answer"
        while time.monotonic() < until:
            inbox = b"inbox.a%d" % next(self._asked)  # of its own: an earlier answer may still come
            self.wire.sendall(b"PUB %b %b %d\r\n%b\r\n" % (subject.encode(), inbox, len(data), data))
            if (heard := self._heard(inbox)) and b'"error"' not in heard:
                return heard
            said = heard or said
            time.sleep(ASK_S)
        raise BenchError(f"NATS does not answer {subject}: {said.decode(errors='replace')[:300]}")

    def _heard(self, inbox: bytes) -> bytes:
        """Return the answer to an inbox, or nothing if none comes."""
        heard, head = b"", re.compile(rb"MSG %b 1 (\d+)\r\n" % inbox)
        self.wire.settimeout(ASK_S)
        with contextlib.suppress(TimeoutError):
            while not (found := head.search(heard)) or len(heard) < found.end() + int(found[1]):
                heard += self.wire.recv(1 << 16)
            return heard[found.end() : found.end() + int(found[1])]
        return b""

    def _open(self) -> None:
        super()._open()
        told = self._ask(f"$JS.API.STREAM.INFO.{self._stream}", {})
        leader = json.loads(told)["cluster"]["leader"]
        self.port = self._port_of[leader]
        self.wire.close()
        self.wire = self._connect()

    def used(self) -> Used:
        return self.server.used()


class RabbitThree(RabbitQuorum):
    """A quorum queue on three nodes; the generator is connected to the queue's leader."""

    name = "RabbitMQ, quorum of three"
    durability = "Raft log of a majority, fsync before the confirm"

    def __init__(self, directory: Path) -> None:
        self._mapper = free_port()
        ports = {number: free_port() for number in MEMBERS}
        self._names = [f"bench{number}@localhost" for number in MEMBERS]
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "enabled_plugins").write_text("[].\n")
        (directory / ".erlang.cookie").write_text("HOLDFASTBENCHCLUSTER")
        (directory / ".erlang.cookie").chmod(0o400)
        self._environment = {
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(self._mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
        }
        servers: dict[int, ServerProcess] = {}
        self.server = Servers(servers)
        for number, port in ports.items():
            servers[port] = self._member(directory / f"r{number}", number, port)
            servers[port].wait_for(port).close()  # one after another: the first makes the cluster
        self.port = ports[1]
        self._queues = itertools.count(1)
        self._unread = []
        self._require_three()
        self.wire = self._connect()

    def _member(self, directory: Path, number: int, port: int) -> ServerProcess:
        directory.mkdir()
        names = "".join(
            f"cluster_formation.classic_config.nodes.{at} = {name}\n"
            for at, name in enumerate(self._names, 1)
        )
        (directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{port}\nloopback_users = none\nlog.console = true\n"
            f"cluster_formation.peer_discovery_backend = classic_config\n{names}"
        )
        program = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
        return ServerProcess(
            [str(program if program.exists() else found(self.program))],
            directory,
            {
                **self._environment,
                "RABBITMQ_NODENAME": self._names[number - 1],
                "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
                "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
                "RABBITMQ_LOG_BASE": str(directory),
                "RABBITMQ_PID_FILE": str(directory / "pid"),
                "RABBITMQ_DIST_PORT": str(free_port()),
            },
        )

    def _require_three(self) -> None:
        """Check that the nodes are one cluster; else the queue would have fewer replicas."""
        program = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")
        done = subprocess.run(
            [
                *(str(program if program.exists() else found("rabbitmqctl")), "-n", self._names[0]),
                *("eval", "length(rabbit_nodes:all_running())."),
            ],
            env={**os.environ, **self._environment, "RABBITMQ_NODENAME": self._names[0]},
            capture_output=True,
            text=True,
            timeout=CONTROL_S,
            check=False,
        )
        if done.stdout.strip() != "3":
            raise BenchError(
                f"RabbitMQ's three nodes did not form a cluster: {(done.stdout + done.stderr)[-500:]}"
            )

    def used(self) -> Used:
        return self.server.used()
