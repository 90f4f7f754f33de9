"""A real server and a real client for tests, each in its own process.

    @program
    def test_it(client: Any, topic: str) -> None:
        client.create_producer(topic).send(b"x")

is a test: its body runs in the client's process. It may ask for `client`, `topic` (a new one), `connect`
(opens further clients), `url` and `admin` (the server's administration). `async def` gets asyncio's client.
One server and one client serve all tests; a server with other options is started once, too.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kit import KIT, module_command
from tests.kit.server.wire_server import Admin

START_S = 20.0
PROGRAM_S = 60.0

pulsar: Any = None
"""The official client's module, in the client's process."""
if os.environ.get("WIRE_CLIENT"):
    pulsar = importlib.import_module("pulsar")


class ServerProcess:
    """A server on a directory of its own."""

    def __init__(self, broker: dict[str, Any] | None = None, server: dict[str, Any] | None = None) -> None:
        self.directory = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="holdfast-wire."))
        self._options = [json.dumps(broker or {}), json.dumps(server or {})]
        self._errors = (self.directory / "errors").open("ab")
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        self.admin = Admin(str(self.directory / "door"))
        self.start()
        atexit.register(self.end)

    def start(self, port: int = 0) -> None:
        if port:
            self._options[1] = json.dumps({**json.loads(self._options[1]), "port": port})
        self._process = subprocess.Popen(
            [*module_command(KIT / "server/wire_server.py"), str(self.directory), *self._options],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "HOLDFAST_RUNTIME_DIR": str(self.directory)},
        )
        self.pid = self._process.pid
        self.url = _line(self._process, START_S, self.errors).strip()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def errors(self) -> str:
        return (self.directory / "errors").read_text()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it; return its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        status = self._process.wait(START_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
        return status

    def restart(self, number: int = signal.SIGTERM) -> None:
        """Restart it on the same port, so that clients reconnect."""
        port = self.port
        self.stop(number)
        self.start(port)

    def end(self) -> None:
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop(signal.SIGKILL)
        self._errors.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class ClientProcess:
    """A process that runs programs with the official client."""

    def __init__(self) -> None:
        self._errors = tempfile.NamedTemporaryFile("a+", prefix="holdfast-client.")  # noqa: SIM115
        self._process = self._started()
        self._owes = False
        """A job has begun whose end was not read."""
        atexit.register(self.end)

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            module_command(KIT / "server/wire_client.py"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, "WIRE_CLIENT": "1"},
        )

    def run(self, job: dict[str, Any]) -> None:
        self.begin(job)
        self.finish(job["timeout_s"])

    def begin(self, job: dict[str, Any]) -> None:
        if self._owes:  # a test failed between begin and finish: its answer is not this job's
            self._leave()
            self._process = self._started()
        self._owes = True
        self._errors.truncate(0)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._process.stdin.flush()

    def finish(self, timeout_s: float) -> None:
        fault = json.loads(_line(self._process, timeout_s + 5, self.errors))
        self._owes = False
        assert not fault, f"{fault}\n{self.errors()[-3000:]}"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def errors(self) -> str:
        return Path(self._errors.name).read_text()

    def end(self) -> None:
        self._leave()
        self._errors.close()

    def _leave(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()


def _line(process: subprocess.Popen[bytes], timeout_s: float, errors: Callable[[], str]) -> str:
    assert process.stdout is not None
    ready = select.select([process.stdout], [], [], timeout_s)[0]
    assert ready, f"process {process.pid} said nothing in {timeout_s} s\n{errors()[-3000:]}"
    line = process.stdout.readline()
    assert line, f"process {process.pid} ended (status {process.wait()})\n{errors()[-3000:]}"
    return line.decode()


HASTY = {"unauthenticated_s": 0.4, "keepalive_s": 0.4, "liveness_s": 0.3}
"""Options of a server with short timeouts."""

_servers: dict[str, ServerProcess] = {}
_clients: list[ClientProcess] = []
_numbers = itertools.count(1)


def server(**broker: Any) -> ServerProcess:
    """Return the server with these options of the broker, which all tests share."""
    return shared(broker)


def shared(broker: dict[str, Any] | None = None, server: dict[str, Any] | None = None) -> ServerProcess:
    """Return the server with these options, which all tests share."""
    key = json.dumps([broker or {}, server or {}], sort_keys=True)
    if key not in _servers:
        _servers[key] = ServerProcess(broker, server)
    return _servers[key]


def client() -> ClientProcess:
    if _clients and not _clients[-1].alive:
        _clients.pop().end()
    if not _clients:
        _clients.append(ClientProcess())
    return _clients[-1]


def job_of(test: Any, at: ServerProcess, timeout_s: float = PROGRAM_S) -> dict[str, Any]:
    """Return the job with which the client's process runs a test's program."""
    return {
        "module": test.__module__,
        "function": test.__name__,
        "url": at.url,
        "door": str(at.directory / "door"),
        "topic": f"{test.__name__}-{next(_numbers)}",
        "timeout_s": timeout_s,
    }


def with_broker(**broker: Any) -> Callable[[Any], Callable[[], None]]:
    """Like `program`, with a broker of these options."""

    def make(function: Any) -> Callable[[], None]:
        def test() -> None:
            client().run(job_of(test, server(**broker)))

        test.__name__, test.__module__ = function.__name__, function.__module__
        test.__doc__ = function.__doc__
        test.program = function  # type: ignore[attr-defined]
        return test

    return make


def program(function: Any) -> Callable[[], None]:
    """Make a test of a client's program."""
    return with_broker()(function)
