"""Run the command `holdfast` as a user does, and create queues for it."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast import Queue, _core
from holdfast.cli import main
from tests.kit import ROOT

COMMAND = str(Path(sys.executable).parent / "holdfast")
HEAD_AT, RING_BYTES = 4096, 64 << 10


def run(*arguments: str, data: bytes = b"", status: int = 0) -> subprocess.CompletedProcess[bytes]:
    """Run the command in this process, ten times as fast as in a new Python."""
    with _stream() as given, _stream() as out, _stream() as err:
        given.buffer.write(data)
        given.seek(0)
        before = sys.stdin, sys.stdout, sys.stderr
        sys.stdin, sys.stdout, sys.stderr = given, out, err
        try:
            found = main(arguments)
        except SystemExit as ended:  # wrong usage
            found = ended.code if isinstance(ended.code, int) else 1
        finally:
            sys.stdin, sys.stdout, sys.stderr = before
        said = [_whole(each) for each in (out, err)]
    assert found == status, (arguments, found, *said)
    return subprocess.CompletedProcess(arguments, found, *said)


def _stream() -> io.TextIOWrapper:
    return tempfile.TemporaryFile("w+", encoding="utf-8")


def _whole(stream: io.TextIOWrapper) -> bytes:
    stream.flush()
    stream.seek(0)
    return bytes(stream.buffer.read())


def run_process(
    *arguments: str, data: bytes = b"", status: int = 0, timeout: float = 60.0
) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a user does, in a process of its own."""
    done = subprocess.run([COMMAND, *arguments], input=data, capture_output=True, timeout=timeout)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def says(*arguments: str, data: bytes = b"", status: int = 0) -> str:
    """Return its standard output; only a failure writes to standard error."""
    done = run(*arguments, data=data, status=status)
    assert (done.stderr == b"") == (status == 0), done.stderr
    return done.stdout.decode()


def complains(*arguments: str, data: bytes = b"", status: int = 1) -> str:
    done = run(*arguments, data=data, status=status)
    words = done.stderr.decode()
    assert "Traceback" not in words
    return words


def answer(*arguments: str, status: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", status=status).stdout)


PACKAGES = {"promtool": "prometheus", "systemd-analyze": "systemd"}
"""Packages of the tools that only `make nightly` needs."""


def run_tool(tool: str, *arguments: str | Path, text: str = "") -> tuple[int, str]:
    """Run a tool of another package; return its exit status, and both of its streams."""
    assert shutil.which(tool), f"{tool} is missing: install the package {PACKAGES[tool]}"
    done = subprocess.run(
        [tool, *arguments],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def sessions() -> list[str]:
    """Return the sessions on the page of the command line, in their order."""
    page = (ROOT / "docs/guide/cli.md").read_text(encoding="utf-8")
    return re.findall(r"^```console\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def follow(session: str) -> None:
    """Run a session; compare each output with the page, where `...` matches anything."""
    path = f"{Path(COMMAND).parent}:{os.environ['PATH']}"
    for step in session.split("$ ")[1:]:
        line, _, expected = step.partition("\n")
        done = subprocess.run(
            ["sh", "-c", line], env=os.environ | {"PATH": path}, capture_output=True, timeout=30
        )
        assert (done.returncode, done.stderr) == (0, b""), (line, done.stderr)
        pattern = ".*".join(map(re.escape, expected.split("...")))
        assert re.fullmatch(pattern, done.stdout.decode()), (line, done.stdout)


def made(name: str = "orders", *messages: bytes) -> str:
    with Queue.create(name, capacity=RING_BYTES) as queue:
        queue.put_many(messages)
    return name


def in_a_process(work: Callable[[], object]) -> int:
    """Run `work` in a child process, which then dies with all that it holds."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    return pid


def dead_with_two_taken_and_one_half_written(name: str) -> None:
    """Let two processes die that lived at the same time, each with a slot."""
    ready, go = os.pipe(), os.pipe()

    def reader() -> None:
        queue = Queue.open(name)
        keep = [queue.get(), queue.get()]
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os.kill(os.getpid(), signal.SIGKILL)  # here: messages out of scope would be given back
        assert keep

    def writer() -> None:
        queue = Queue.open(name)
        _core.arm("put_payload")
        queue.put(b"never finished")

    first = in_a_process(reader)
    os.read(ready[0], 1)
    os.waitpid(in_a_process(writer), 0)
    os.write(go[1], b"x")
    os.waitpid(first, 0)
    for end in (*ready, *go):
        os.close(end)


def overwrite(directory: Path, name: str, offset: int, data: bytes) -> None:
    with (directory / f"holdfast.queue.{name}").open("r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(data)
