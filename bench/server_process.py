"""The process of a measured server: start, processor time, memory, end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from bench.answers import BenchError

TICKS = os.sysconf("SC_CLK_TCK")
START_S = 60.0
END_S = 20.0


@dataclass(frozen=True)
class Used:
    """Processor time of a process and its descendants, in seconds."""

    user_s: float
    system_s: float

    def since(self, before: Used) -> Used:
        return Used(self.user_s - before.user_s, self.system_s - before.system_s)


class ServerProcess:
    """A server and its child processes."""

    running: ClassVar[list[ServerProcess]] = []
    """All servers that were started and not ended."""

    def __init__(
        self, command: Sequence[str], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "log"
        self.began = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=directory,
                env={**os.environ, **(environment or {})},
                start_new_session=True,  # so that the whole group can be ended, and nothing else
            )
        self.running.append(self)

    def used(self) -> Used:
        user = system = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                user, system = user + int(fields[11]), system + int(fields[12])
        return Used(user / TICKS, system / TICKS)

    def resident_bytes(self) -> int:
        pages = 0
        for pid in self.pids():
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def pids(self) -> list[int]:
        """Return the process and its descendants."""
        parents: dict[int, int] = {}
        for each in Path("/proc").iterdir():
            if each.name.isdecimal():
                with contextlib.suppress(OSError):
                    fields = (each / "stat").read_text().rpartition(")")[2].split()
                    parents[int(each.name)] = int(fields[1])
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def wait_for(self, port: int) -> socket.socket:
        """Connect as soon as the server listens."""
        while True:
            try:
                made = socket.create_connection(("127.0.0.1", port), 10.0)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return made
            except OSError:
                if self.process.poll() is not None or time.monotonic() - self.began > START_S:
                    said = self.log.read_text(errors="replace")[-800:]
                    raise BenchError(f"{self.process.args!r} does not listen: {said}") from None
                time.sleep(0.002)

    @classmethod
    def end_all(cls) -> None:
        for each in list(cls.running):
            each.end()

    def end(self) -> None:
        if self in self.running:
            self.running.remove(self)
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
                return


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def found(program: str) -> str | None:
    """Return the path of a program, also from folders of an administrator's PATH."""
    return shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/lib/rabbitmq/bin")
