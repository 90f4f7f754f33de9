"""Three servers of a peer as one contestant: processor time, waiting, end."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from pathlib import Path

from bench.server_process import TICKS, ServerProcess, Used


def used_by(pids: Iterable[int]) -> Used:
    """Return the processor time of these processes, without their children."""
    user = system = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            user, system = user + int(fields[11]), system + int(fields[12])
    return Used(user / TICKS, system / TICKS)


class Servers(ServerProcess):
    """Three servers that look like one to the load generator."""

    def __init__(self, servers: dict[int, ServerProcess]) -> None:
        self.by_port = servers

    def used(self) -> Used:
        each = [server.used() for server in self.by_port.values()]
        return Used(sum(one.user_s for one in each), sum(one.system_s for one in each))

    def wait_for(self, port: int) -> socket.socket:
        return self.by_port[port].wait_for(port)

    def end(self) -> None:
        for server in self.by_port.values():
            server.end()
