"""Real processes for tests: a function of a test file runs in its own Python.

Both sides talk through pipes. The function's source is sent, so that the child starts fast (without pytest).
It must be self-contained: it sees only its arguments, its own imports, and the names that `main` lists.

    def echo(name: str) -> None:           # in the child
        with Queue.open(name) as q:
            tell(q.get_bytes(timeout=10))

    child = Child(echo, "work")            # in the test
    assert child.hear() == b"x"
    child.wait()

Values are sent as Python literals: numbers, strings, bytes, None, and containers of them.
"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import holdfast
from holdfast import Queue, _core

PATIENCE_S = 20.0
"""How long a test waits for what must happen. Only a failure takes that long."""

T = TypeVar("T")

# A run in the background ignores Ctrl-C, and its children would, too.
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    and threading.current_thread() is threading.main_thread()
):
    signal.signal(signal.SIGINT, signal.default_int_handler)


def until(condition: Callable[[], T], timeout: float = PATIENCE_S) -> T:
    """Wait for a condition to become true, and return its value."""
    limit = time.monotonic() + timeout
    pause_s = 0.0005
    while True:
        if value := condition():
            return value
        assert time.monotonic() < limit, "what the test waits for did not happen"
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.01)


def process_state(pid: int) -> str:
    """Return R running, S sleeping, T stopped, Z dead and not yet waited for, "" gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def cpu_s(pid: int) -> float:
    """Return the processor time of a process's threads: compare it, do not limit it."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(each.read_text().split()[0]) for each in tasks) / 1e9


def wakeups(pid: int) -> int:
    """Return how often the threads of a process have gone to sleep so far."""
    tasks = Path(f"/proc/{pid}/task").glob("*/status")
    return sum(int(each.read_text().split("\nvoluntary_ctxt_switches:")[1].split()[0]) for each in tasks)


def comes_to_rest(pid: int, work_s: float, tries: int = 12) -> bool:
    """Return whether a process soon idles while this one wakes up fifty times.

    An idle process wakes up less than half as often, and needs less than a hundredth of `work_s`. That is the
    processor time of some work before, which may still be finishing.
    """
    for _ in range(tries):
        woken, used = wakeups(pid), cpu_s(pid)
        for _ in range(50):
            time.sleep(0.01)  # nothing must happen meanwhile
        if wakeups(pid) - woken < 25 and cpu_s(pid) - used < work_s / 100:
            return True
    return False


def private_memory(pid: int) -> int:
    """Return a process's resident bytes, without shared ones such as the page cache."""
    resident, shared = Path(f"/proc/{pid}/statm").read_text().split()[1:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


class Child:
    """A function of a test file, running in a process of its own."""

    def __init__(self, function: Callable[..., None], *args: object) -> None:
        import inspect  # here, not above: the child does without it, and starts faster

        lines, first = inspect.getsourcelines(function)
        job = (function.__code__.co_filename, first, function.__name__, "".join(lines), args)
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by `end`)
        self._pending = b""
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )
        self.pid = self._process.pid
        self.tell(job)

    def tell(self, value: object) -> None:
        """Send a value, for `hear()` in the child."""
        assert self._process.stdin is not None
        self._process.stdin.write(repr(value).encode() + b"\n")

    def hear(self, timeout: float = PATIENCE_S) -> Any:
        """Return the next value from the child; fail with the child's errors if it ended."""
        import select

        assert self._process.stdout is not None
        limit = time.monotonic() + timeout
        while b"\n" not in self._pending:
            # Not select(): a test of many children has descriptors beyond its 1024.
            poll = select.poll()
            poll.register(self._process.stdout, select.POLLIN)
            ready = poll.poll(max(0.0, limit - time.monotonic()) * 1000)
            assert ready, f"child {self.pid} told nothing in {timeout} s\n{self.errors()}"
            got = os.read(self._process.stdout.fileno(), 1 << 16)
            assert got, f"child {self.pid} ended (status {self._process.wait()}) instead\n{self.errors()}"
            self._pending += got
        line, _, self._pending = self._pending.partition(b"\n")
        return ast.literal_eval(line.decode())

    def errors(self) -> str:
        """Return what the child wrote to its standard error."""
        self._errors.seek(0)
        return self._errors.read()

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL; return when the process is gone and the kernel has dropped its locks."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Send SIGSTOP; return when the process has stopped."""
        self.signal(signal.SIGSTOP)
        self.wait_stopped()

    def wait_stopped(self) -> None:
        """Wait for a child that stops itself, for example at an armed point."""
        until(lambda: process_state(self.pid) in ("T", "Z", ""))
        assert process_state(self.pid) == "T", f"child {self.pid} ended instead of stopping\n{self.errors()}"

    def go_on(self) -> None:
        self.signal(signal.SIGCONT)

    def wait(self, status: int = 0, timeout: float = PATIENCE_S) -> None:
        """Wait for the end with this status; a negative one means a signal."""
        got = self._process.wait(timeout)
        assert got == status, f"child {self.pid} ended with status {got}, not {status}\n{self.errors()}"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """End the process now, in any state, and release its resources."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()


Start = Callable[..., Child]
"""The type of the fixture `start`."""


# -- in the child -------------------------------------------------------------------------------------


def tell(value: object) -> None:
    """Send a value to the test."""
    data = repr(value).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def hear() -> Any:
    """Wait for a value from the test. Ends the process if the test is gone."""
    line = bytearray()
    while not line.endswith(b"\n"):
        got = os.read(0, 1)  # one at a time: later bytes may be for a forked child
        if not got:
            os._exit(3)
        line += got
    return ast.literal_eval(line.decode())


def main() -> None:
    path, first, name, source, args = hear()
    if source[0] == " ":  # a function within a function
        source, first = "if True:\n" + source, first - 1
    names: dict[str, Any] = {
        "__name__": "__main__",
        "hear": hear,
        "tell": tell,
        "until": until,
        "holdfast": holdfast,
        "Queue": Queue,
        "_core": _core,
        "os": os,
        "signal": signal,
        "sys": sys,
        "threading": threading,
        "time": time,
        "Path": Path,
    }
    flags = 0x1000000  # annotations are not evaluated: they may name imports of the test alone
    exec(compile("\n" * (first - 1) + source, path, "exec", flags, dont_inherit=True), names)
    names[name](*args)


if __name__ == "__main__":
    main()
