"""Nodes of a cluster on one machine: a Corosync each, in its own namespaces.

Each node has a network, mount and ipc namespace. A bridge joins the networks; it is in a namespace of its
own, too, so that nothing of the machine changes. Number 0 is a place on that bridge without a Corosync, for
clients.

```
   0: bridge, 10.77.0.100            every node: /dev/shm, /run, /etc/corosync and
   ├── 1: eth0, 10.77.0.1            /var/lib/corosync of its own
   ├── 2: eth0, 10.77.0.2
   └── 3: eth0, 10.77.0.3            a cut from 1 to 3: node 1 sends to a hardware address that nobody has
```

A cut is made at the sender, for one receiver. So links may fail in one direction, or between some nodes only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from holdfast.cluster.corosync import Node, corosync_conf
from holdfast.errors import Misuse, NotFound, Timeout

T = TypeVar("T")

PROGRAMS = {
    "corosync": "corosync",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
"""Programs that a rig runs, and their packages."""
NAMESPACES = {"net": 0x40000000, "mnt": 0x00020000, "ipc": 0x08000000}
CLONE_FS = 0x00000200
SUBNET = "10.77.0"
PLACE = 100
"""The last part of the address of number 0."""
NOWHERE = "02:00:00:00:ff:ff"
"""A hardware address that no node has."""
MTU = 9000
UP_S = 30.0
APART: Any = {"start_new_session": True}
"""For every process of a rig: Ctrl-C in a terminal is for the program that has the rig."""


def lacks() -> str | None:
    """Return the reason why no rig can run here, or None."""
    missing = sorted({package for name, package in PROGRAMS.items() if _program(name) is None})
    if missing:
        words = " ".join(missing)
        return f"there is no {words}; install it (Debian, Ubuntu: apt-get install {words} libcpg4)"
    if os.geteuid() != 0:
        return "this process is not root; nodes in namespaces need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)"
    probe = subprocess.run([_needed("unshare"), "-n", "-m", "-i", "true"], capture_output=True, text=True)
    if probe.returncode != 0:
        return f"namespaces are not allowed here ({probe.stderr.strip()}); run it on a host that allows them"
    return None


class Nodes:
    """Corosync daemons on one machine, which can be killed, paused and cut off.

    `etc` has the files of `/etc/corosync` by their names, the same on every node. Without it the daemons get
    the configuration of `holdfast cluster init`, without encryption.

    Example:
        >>> with Nodes(3) as nodes:                     # doctest: +SKIP
        ...     nodes.cut(3)                            # from all others
        ...     nodes.heal()
        ...     nodes.kill(2)
        ...     nodes.start(2)
        ...     nodes.run(1, ["corosync-cfgtool", "-s"])

    Raises:
        NotFound: a program is missing, or this process may not make namespaces.
    """

    def __init__(self, count: int = 3, etc: Mapping[str, bytes] | None = None) -> None:
        reason = lacks()
        if reason is not None:
            raise NotFound(f"no nodes can be started: {reason}")
        self.numbers = list(range(1, count + 1))
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-nodes."))
        self._etc = etc
        self._holders: dict[int, subprocess.Popen[bytes]] = {}
        self._daemons: dict[int, subprocess.Popen[bytes]] = {}
        self._others: list[subprocess.Popen[Any]] = []
        # Processes inside a node end with the thread that started them. So one thread starts them all.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="nodes")

    def __enter__(self) -> Self:
        try:
            self._lay()
            for number in self.numbers:
                self._launch(number)
            for number in self.numbers:
                self.wait_up(number)
            self.wait_ring()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop every process of the rig, and remove its files."""
        for process in [*self._others, *self._daemons.values()]:
            _kill(process)
        for holder in self._holders.values():
            _kill(holder)
        self._others, self._daemons, self._holders = [], {}, {}
        self._starter.shutdown()
        shutil.rmtree(self.directory, ignore_errors=True)

    # -- daemons ---------------------------------------------------------------------------------------

    def pid(self, number: int) -> int:
        """Return the process id of a node's Corosync."""
        if number not in self._daemons:
            raise Misuse(f"node {number} has no Corosync now; start it with start({number})")
        return self._daemons[number].pid

    def start(self, number: int) -> None:
        """Start the Corosync of a node, and wait until it answers."""
        self._launch(number)
        self.wait_up(number)

    def kill(self, number: int) -> None:
        """Kill the Corosync of a node with SIGKILL."""
        self.pid(number)
        _kill(self._daemons.pop(number))
        # A dead daemon leaves its shared memory; a node that restarts has a fresh one.
        self.run(number, ["sh", "-c", "rm -rf /dev/shm/qb-* /run/corosync* /var/run/corosync*"])

    def pause(self, number: int) -> None:
        os.kill(self.pid(number), signal.SIGSTOP)

    def resume(self, number: int) -> None:
        os.kill(self.pid(number), signal.SIGCONT)

    def wait_up(self, number: int, timeout: float = UP_S) -> None:
        """Wait until the Corosync of a node answers."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            if self._daemons[number].poll() is not None:
                break
            done = subprocess.run(
                self.command(number, ["corosync-cfgtool", "-s"]), capture_output=True, check=False, **APART
            )
            if done.returncode == 0:
                return
            time.sleep(0.05)
        raise Timeout(f"the Corosync of node {number} did not start; the end of its log:\n{self.log(number)}")

    def wait_ring(self, timeout: float = UP_S) -> None:
        """Wait until the Corosyncs of all nodes are in one ring."""
        until = time.monotonic() + timeout
        while any(self._ring(number) != self.numbers for number in self.numbers):
            if time.monotonic() > until:
                rings = {number: self._ring(number) for number in self.numbers}
                raise Timeout(f"the nodes form no common ring within {timeout} s: {rings}; see their logs")
            time.sleep(0.05)

    def _ring(self, number: int) -> list[int]:
        """Return the nodes that a node's Corosync is connected with."""
        command = self.command(number, ["corosync-quorumtool", "-l"])
        done = subprocess.run(command, capture_output=True, text=True, check=False, **APART)
        rows = [line.split() for line in done.stdout.splitlines()]
        return sorted(int(row[0]) for row in rows if row and row[0].isdigit())

    def repair(self) -> None:
        """Heal all links, and start or resume every Corosync."""
        self.heal()
        for number in self.numbers:
            if number not in self._daemons or self._daemons[number].poll() is not None:
                self._launch(number)
            else:
                self.resume(number)
        for number in self.numbers:
            self.wait_up(number)
        self.wait_ring()

    def log(self, number: int, lines: int = 20) -> str:
        """Return the end of a daemon's log."""
        with contextlib.suppress(FileNotFoundError):
            text = (self._home(number) / "corosync.log").read_text(errors="replace")
            return "\n".join(text.splitlines()[-lines:])
        return "(no log)"

    # -- links -----------------------------------------------------------------------------------------

    def address(self, number: int) -> str:
        """Return the address of a node; number 0 is the place of clients."""
        return f"{SUBNET}.{number or PLACE}"

    def cut(self, *numbers: int) -> None:
        """Cut these nodes off from all others; they stay connected to each other."""
        for one in numbers:
            for other in self.numbers:
                if other not in numbers:
                    self.cut_one_way(one, other)
                    self.cut_one_way(other, one)

    def cut_one_way(self, sender: int, receiver: int) -> None:
        """Lose everything that one node sends to another."""
        self._neighbour(sender, receiver, NOWHERE)

    def heal(self) -> None:
        """Connect all nodes with each other."""
        for one in self.numbers:
            for other in self.numbers:
                if one != other:
                    self._neighbour(one, other, _hardware(other))

    # -- inside a node ---------------------------------------------------------------------------------

    def command(self, number: int, command: Sequence[str]) -> list[str]:
        """Return a command line inside a node; the process ends with its starting thread."""
        enter = [_needed("nsenter"), "-t", str(self._holders[number].pid), "-n", "-m", "-i"]
        return [*enter, _needed("setpriv"), "--pdeathsig", "KILL", *command]

    def run(self, number: int, command: Sequence[str]) -> str:
        """Run a command inside a node, and return its output."""
        line = self.command(number, command)
        done: subprocess.CompletedProcess[str] = subprocess.run(
            line, capture_output=True, text=True, check=False, **APART
        )
        if done.returncode != 0:
            raise Misuse(f"{' '.join(command)} failed in node {number}: {done.stderr or done.stdout}")
        return done.stdout

    def popen(self, number: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a process inside a node; `close` kills it."""
        process = self._start(number, command, **options)
        self._others.append(process)
        return process

    def _start(self, number: int, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        line = self.command(number, command)
        made: Future[subprocess.Popen[Any]] = self._starter.submit(
            lambda: subprocess.Popen(line, **options, **APART)
        )
        return made.result()

    def inside(self, number: int, call: Callable[[], T]) -> T:
        """Call a function in a thread that is inside a node, and return its result.

        File descriptors that it opens belong to the node's network, also when other threads use them.
        """
        results: list[T] = []
        errors: list[BaseException] = []
        pid = self._holders[number].pid

        def work() -> None:
            try:
                with _entered(pid):
                    results.append(call())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work, name=f"inside node {number}")
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    # -- the rig ---------------------------------------------------------------------------------------

    def _home(self, number: int) -> Path:
        return self.directory / f"node{number}"

    def _lay(self) -> None:
        """Make the namespaces, the bridge and the links."""
        for number in [0, *self.numbers]:
            home = self._home(number)
            for folder in ("etc", "lib"):
                (home / folder).mkdir(parents=True)
            for name, content in (self._etc or self._plain(home)).items():
                (home / "etc" / name).write_bytes(content)
            self._holders[number] = self._hold(home)
        self._ip(0, "link add lan type bridge", "link set lo up")
        self._ip(0, f"addr add {self.address(0)}/24 dev lan", "link set lan up")
        for number in self.numbers:
            pid = self._holders[number].pid
            self._ip(
                0,
                f"link add port{number} mtu {MTU} type veth"
                f" peer name eth0 address {_hardware(number)} mtu {MTU} netns {pid}",
                f"link set port{number} master lan up",
            )
            self._ip(
                number, "link set lo up", f"addr add {self.address(number)}/24 dev eth0", "link set eth0 up"
            )
        self.heal()

    def _plain(self, home: Path) -> dict[str, bytes]:
        """Return the configuration of a node whose traffic is not encrypted."""
        nodes = [Node(number, self.address(number)) for number in self.numbers]
        conf = corosync_conf("holdfast", nodes, encrypted=False, log=str(home / "corosync.log"))
        return {"corosync.conf": conf.encode()}

    def _hold(self, home: Path) -> subprocess.Popen[bytes]:
        """Start a process that keeps the namespaces of a node until this process ends."""
        script = (
            "mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /run && mkdir -p /run/lock"
            " && mkdir -p /etc/corosync /var/lib/corosync"
            f" && mount --bind {home}/etc /etc/corosync && mount --bind {home}/lib /var/lib/corosync"
            " && echo ready && exec cat"
        )
        holder = subprocess.Popen(
            [_needed("unshare"), "-n", "-m", "-i", "sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            **APART,
        )
        assert holder.stdout is not None
        if holder.stdout.readline() != b"ready\n":
            _kill(holder)
            raise Misuse("the mounts of a node failed; are tmpfs and bind mounts allowed on this machine?")
        return holder

    def _launch(self, number: int) -> None:
        if number in self._daemons and self._daemons[number].poll() is None:
            raise Misuse(f"the Corosync of node {number} runs; kill it first with kill({number})")
        # With priority: on a busy machine a daemon that waits for a processor looks like a dead one.
        self._daemons[number] = self._start(
            number,
            ["nice", "-n", "-15", _needed("corosync"), "-f"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _neighbour(self, sender: int, receiver: int, hardware: str) -> None:
        self._ip(sender, f"neigh replace {self.address(receiver)} lladdr {hardware} dev eth0 nud permanent")

    def _ip(self, number: int, *lines: str) -> None:
        done = subprocess.run(
            self.command(number, [_needed("ip"), "-batch", "-"]),
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            check=False,
            **APART,
        )
        if done.returncode != 0:
            raise Misuse(f"ip failed in node {number}: {done.stderr.strip()} ({'; '.join(lines)})")


@contextlib.contextmanager
def _entered(pid: int) -> Iterator[None]:
    """Move this thread into the namespaces of a process; the thread must end afterwards."""
    libc = ctypes.CDLL(None, use_errno=True)
    # A thread that shares its working directory with others cannot change its mount namespace.
    _checked(libc.unshare(CLONE_FS))
    for name, flag in NAMESPACES.items():
        descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _checked(libc.setns(descriptor, flag))
        finally:
            os.close(descriptor)
    yield


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _hardware(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _needed(name: str) -> str:
    path = _program(name)
    if path is None:
        raise NotFound(f"there is no program {name}; install the package {PROGRAMS.get(name, name)}")
    return path


def _kill(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()
