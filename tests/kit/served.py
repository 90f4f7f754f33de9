"""`holdfast serve` in a process of its own, as a user starts it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.kit.command import COMMAND

END_S = 20.0


class Served:
    """A running server: its ports, its log, and its exit status."""

    def __init__(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        command: Sequence[str] = (),
    ) -> None:
        self.process = subprocess.Popen(
            [*(command or (COMMAND,)), "serve", "--json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (environment or {}),
        )
        self._lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(END_S)
            logs = self.logs()
            self.close()
            raise AssertionError(f"it did not start: {logs}")
        self.ready: dict[str, Any] = json.loads(line)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.append(line)

    @property
    def url(self) -> str:
        return f"pulsar://127.0.0.1:{self.ready['port']}"

    @property
    def tls_url(self) -> str:
        return f"pulsar+ssl://localhost:{self.ready['tls_port']}"

    @property
    def http_url(self) -> str:
        return f"http://127.0.0.1:{self.ready['http_port']}"

    def set_partitions(self, name: str, count: int, grow: bool = False) -> None:
        """Create a partitioned topic of public/default, or add partitions to it; needs HTTP."""
        place = f"{self.http_url}/admin/v2/persistent/public/default/{name}/partitions"
        body, method = json.dumps(count).encode(), "POST" if grow else "PUT"
        kind = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(place, body, kind, method=method), timeout=30.0).close()

    def logs(self) -> str:
        """Return its log; all of it once it has ended."""
        if self.process.poll() is not None:
            self._reading.join(END_S)
        return "".join(self._lines)

    def sockets(self) -> int:
        """Return how many sockets it has open: one for each accepted connection."""
        found = 0
        for each in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                found += str(each.readlink()).startswith("socket:")
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it; return its exit status."""
        self.process.send_signal(number)
        return self.process.wait(END_S)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(END_S)
        self._reading.join(END_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@contextlib.contextmanager
def served(
    data: Path, *arguments: str, environment: dict[str, str] | None = None, http: bool = False
) -> Iterator[Served]:
    """Start a server on free ports, and stop it at the end of the block."""
    ports = ["--port", "0", "--http-port", "0" if http else "off"]
    server = Served("--data", str(data), *ports, *arguments, environment=environment)
    try:
        yield server
    finally:
        server.close()
