"""The least that a durable server does: receive, overwrite 4 KiB, sync, answer.

It has no protocol, one client, and no data that can be read again. Its time beyond one fdatasync is the cost
of sockets, and of two processes that wake each other.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from bench.server_load import paced

MESSAGE_BYTES = 200
PAGE_BYTES = 4096
FILE_BYTES = 16 << 20


def latencies(directory: Path, rate: float, seconds: float) -> list[int]:
    """Return ns from when each message was due to its answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = [sys.executable, "-m", "bench.server_plain", str(directory / "plain")]
        server = subprocess.Popen([*command, str(listener.fileno())], pass_fds=[listener.fileno()])
        try:
            with socket.create_connection(listener.getsockname()) as wire:
                wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wire.sendall(bytes(MESSAGE_BYTES))
                wire.recv(1)  # it is ready
                return paced(wire, bytes(MESSAGE_BYTES), answers, rate, seconds)
        finally:
            server.kill()
            server.wait()


def answers(data: bytes) -> int:
    """Count answers: one byte each."""
    return len(data)


def serve(path: str, listener: socket.socket) -> None:
    """Serve one client until it disconnects."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.pwrite(file, bytes(FILE_BYTES), 0)
    os.fsync(file)
    wire, _ = listener.accept()
    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    at = rest = 0
    while data := wire.recv(1 << 16):
        os.pwrite(file, data[:PAGE_BYTES].ljust(PAGE_BYTES), at)
        os.fdatasync(file)
        at = (at + PAGE_BYTES) % FILE_BYTES
        whole, rest = divmod(rest + len(data), MESSAGE_BYTES)
        wire.sendall(bytes(whole))


if __name__ == "__main__":
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
