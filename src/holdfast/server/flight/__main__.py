"""Run the Flight process: `python -m holdfast.server.flight DESCRIPTOR`, started by the server.

It stops when the server dies: the kernel closes their link, a socket. During the import of Arrow the process
does not read the link, so the kernel sends a signal as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.server.flight.link import Link, Ready, Setup
from holdfast.server.logs import Log, logging_to

PR_SET_PDEATHSIG = 1

log = Log("holdfast.flight")


def main(descriptor: int) -> int:
    """Serve until the server stops, or until no reads come for a while."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    link = Link(socket.socket(fileno=descriptor))
    setup = link.receive(Setup)
    if setup is None:
        return 0
    with logging_to(sys.stderr, setup.log_level, setup.log_format), contextlib.suppress(BrokenPipeError):
        _stay_small(setup.memory_bytes)
        try:
            from holdfast.server.flight.service import Service
        except ImportError as error:
            words = f"Flight needs {error.name or 'pyarrow'}: pip install pyarrow where the server runs"
            link.send(Ready(unsupported=words))
            return 1
        try:
            service = Service(setup, link)
        except (HoldfastError, OSError, ValueError) as error:
            link.send(Ready(failed=str(error)))
            return 1
        link.send(Ready(service.port, service.tls_port))
        log.info("Flight stops", pid=os.getpid(), why=link.run(service.places.over))
    return 0


def _stay_small(memory_bytes: int) -> None:
    """Limit memory, so that the kernel kills this process before the broker: its readers retry."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


if __name__ == "__main__":
    status = main(int(sys.argv[1]))
    sys.stderr.flush()
    os._exit(status)  # at once: threads of Arrow may still read for clients that have left
