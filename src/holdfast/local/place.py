"""Find brokers of the same user, by files in the runtime directory.

A serving broker writes a descriptor and holds a lock on it for as long as it lives. The lock is the kernel's
word: a descriptor without a holder is stale.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import stat
import struct
import weakref
from dataclasses import dataclass
from pathlib import Path

from holdfast import _core
from holdfast.errors import Denied, Locked, NoSpace

DESCRIPTOR = "holdfast.broker."
FILES = "holdfast.ingest."
_LOCK = "hhqqi4x"  # struct flock


def directory_of(given: str | os.PathLike[str] | None) -> Path:
    """`$HOLDFAST_RUNTIME_DIR`, else /dev/shm, unless another is given."""
    return Path(given or _core.default_directory())


def boot() -> str:
    """This boot of the machine: what was in shared memory before it is gone."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().replace("-", "")[:8]


def origin(node: int) -> str:
    """Return the beginning of identities: the node, if in a cluster, and the boot.

    Members of a cluster share the positions of all producers. Boots are not enough to tell their identities
    apart: members of a test run on one machine.
    """
    return f"n{node}.{boot()}" if node else boot()


def is_of_node(identity: str, node: int) -> bool:
    """Return whether a node made an identity; node 0 is a broker alone.

    Example:
        >>> is_of_node("n2.5a5a5a5a.00ff", 2), is_of_node("n2.5a5a5a5a.00ff", 0), is_of_node("5a5a5a5a.0", 0)
        (True, False, True)
    """
    found = re.match(r"n([0-9]+)\.", identity)  # a boot is hexadecimal: it has no n
    return (int(found[1]) if found else 0) == node


@dataclass(frozen=True)
class Names:
    """The names of queues and files of a data directory. Identity: origin and token."""

    directory: Path
    incarnation: str
    """Of the data directory, in hexadecimal. Members of a cluster share it: `n` and the node follow."""

    @classmethod
    def of(cls, directory: Path, incarnation: bytes, node: int) -> Names:
        """Return the names of a broker; node 0: it is alone.

        Example:
            >>> Names.of(Path("/dev/shm"), bytes(16), 2).door
            'ingest.0000000000000000n2.door'
        """
        return cls(directory, incarnation.hex() + (f"n{node}" if node else ""))

    @property
    def mark(self) -> str:
        """The part of all names that tells brokers apart."""
        incarnation, n, node = self.incarnation.partition("n")
        return f"{incarnation[:16]}{n}{node}"

    @property
    def door(self) -> str:
        """The queue of requests."""
        return f"ingest.{self.mark}.door"

    def queue(self, topic: str, identity: str) -> str:
        """Name the ingest queue of a topic; a deleted topic's successor has another."""
        return f"ingest.{self.mark}.{hashlib.sha256(topic.encode()).hexdigest()[:16]}.{identity}"

    def file(self, queue: str) -> Path:
        """The segment file of a queue."""
        return self.directory / f"holdfast.queue.{queue}"

    def account(self, identity: str) -> Path:
        return self.directory / f"{FILES}{self.mark}.{identity}.account"

    def reply(self, token: str) -> Path:
        return self.directory / f"{FILES}{self.mark}.{token}.reply"

    def found(self, kind: str) -> list[Path]:
        """Files of this data directory: `account` or `reply`."""
        return sorted(self.directory.glob(f"{FILES}{self.mark}.*.{kind}"))


# -- files --------------------------------------------------------------------------------------------


def open_own(path: Path, writable: bool = False) -> int | None:
    """Open a regular file of this user; None: it does not exist.

    Raises:
        Denied: it belongs to another user, or is not a file.
    """
    flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Denied(f"{path} cannot be opened: {error.strerror}") from error
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
        os.close(fd)
        raise Denied(f"{path} belongs to uid {status.st_uid}, or is not a file: local ingest is for one user")
    return fd


def read_own(path: Path) -> bytes | None:
    """Read a small file of this user; None: it does not exist."""
    fd = open_own(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(1 << 16)


def put_file(path: Path, data: bytes) -> None:
    """A small file for this user alone, which is there whole or not at all."""
    made = path.with_name(f"{path.name}.{secrets.token_hex(4)}.new")
    try:
        fd = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        made.rename(path)
    except OSError as error:
        made.unlink(missing_ok=True)
        raise NoSpace(f"{path} cannot be written: {error.strerror}; is there room, and may you?") from error


def identity(status: os.stat_result) -> tuple[int, int]:
    """Return what tells a file from one that has its name later."""
    return status.st_dev, status.st_ino


def names_file(path: Path, file: tuple[int, int]) -> bool:
    """Return whether this path still names that file."""
    with contextlib.suppress(OSError):
        return identity(path.lstat()) == file
    return False


# -- the descriptor -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A broker that lives, or did when its descriptor was looked at."""

    pid: int
    incarnation: str
    data: str
    """Its data directory."""
    path: Path

    def lives(self) -> bool:
        """Does it hold its descriptor?"""
        fd = open_own(self.path)
        if fd is None:
            return False
        try:
            return _held(fd)
        finally:
            os.close(fd)


class Announcement:
    """The descriptor of a broker that serves, held."""

    def __init__(self, names: Names, data: str) -> None:
        """Raises Locked: another process holds it, with the same data (a copy of the directory?)."""
        self.path = names.directory / f"{DESCRIPTOR}{names.incarnation}"
        self._text = json.dumps({"pid": os.getpid(), "incarnation": names.incarnation, "data": data}).encode()
        self._fd, self._file = self._locked()
        _announced.add(self)

    def _locked(self) -> tuple[int, tuple[int, int]]:
        while True:
            fd = self._lock()
            file = identity(os.fstat(fd))
            if names_file(self.path, file):
                return fd, file
            os.close(fd)  # a broker that stopped removed it under us

    def is_there(self) -> bool:
        """Tell whether the file and its descriptor are still there."""
        return self._is_open() and names_file(self.path, self._file)

    def _is_open(self) -> bool:
        with contextlib.suppress(OSError):
            return identity(os.fstat(self._fd)) == self._file
        return False

    def _lock(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise Denied(f"{self.path} cannot be made: {error.strerror}") from error
        try:
            if os.fstat(fd).st_uid != os.geteuid():
                raise Denied(f"{self.path} belongs to another user; set $HOLDFAST_RUNTIME_DIR")
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
        except BlockingIOError:
            os.close(fd)
            raise Locked(f"{self.path} is held: a copy of this data directory is being served") from None
        except BaseException:
            os.close(fd)
            raise
        return fd

    def show(self) -> None:
        """Producers find it from now on."""
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, self._text, 0)

    def renew(self) -> bool:
        """Write the descriptor anew if it was removed or replaced; answers whether it was.

        Raises:
            Locked, Denied: another process has the path now.
        """
        if self.is_there():
            return False
        old = [self._fd] if self._is_open() else []  # else the number may be the new one's
        self._fd, self._file = self._locked()
        for fd in old:
            os.close(fd)
        self.show()
        return True

    def close(self) -> None:
        """Take it away, unless it is another's by now."""
        if self.is_there():
            self.path.unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Let it go as it is."""
        _announced.discard(self)
        if self._is_open():
            os.close(self._fd)


_announced: weakref.WeakSet[Announcement] = weakref.WeakSet()


def _leave_in_child() -> None:
    """A forked child must not make a dead broker look alive."""
    for announcement in list(_announced):
        announcement.leave()


os.register_at_fork(after_in_child=_leave_in_child)


def _held(fd: int) -> bool:
    asked = struct.pack(_LOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind: int = struct.unpack(_LOCK, fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))[0]
    return kind != fcntl.F_UNLCK


def brokers(directory: Path) -> tuple[list[Found], list[Path]]:
    """Find living brokers of this user, and descriptors without a holder."""
    live: list[Found] = []
    stale: list[Path] = []
    for path in sorted(directory.glob(f"{DESCRIPTOR}*")):
        try:
            fd = open_own(path)
        except Denied:
            continue  # another user's
        if fd is None:
            continue
        with os.fdopen(fd, "rb") as file:
            if not _held(fd):
                stale.append(path)
                continue
            try:
                told = json.loads(file.read(1 << 16))
                live.append(Found(told["pid"], told["incarnation"], told["data"], path))
            except (ValueError, KeyError, TypeError):
                continue  # it is just being written
    return live, stale
