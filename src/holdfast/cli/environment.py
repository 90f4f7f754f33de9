"""Check that this machine is fit for holdfast, by trying each thing where possible."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from holdfast.formatting import plural, size_words

SMALL = 64 << 20
"""The size of /dev/shm in many containers, by default."""
FUTEX_WAITV = 449
"""The same system call number on x86-64 and aarch64."""
FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""The kernel's own, which is never a container's."""
FLOCK = struct.Struct("hhqqi4x")
"""struct flock on 64-bit Linux: type, whence, start, length, pid."""


@dataclass(frozen=True)
class Check:
    """The result of one check. `bad`: queues cannot work; `warn`: they may surprise."""

    what: str
    status: Literal["ok", "note", "warn", "bad"]
    words: str


def checks(directory: str) -> list[Check]:
    """Everything about the machine and the directory."""
    return [
        kernel(),
        processors(),
        pid_namespace(),
        futex_waitv(),
        runtime_directory(directory),
        *(
            found
            for check in (writable, space, file_system, temporary_file, locks)
            for found in check(directory)
        ),
        *remove_ipc(directory, Path("/")),
    ]


def kernel() -> Check:
    release = os.uname().release
    found = re.match(r"(\d+)\.(\d+)", release)
    old = found is not None and (int(found[1]), int(found[2])) < (3, 15)
    return Check(
        "kernel", "bad" if old else "ok", f"{release} {os.uname().machine}" + ("; needs 3.15" if old else "")
    )


def processors() -> Check:
    usable = len(os.sched_getaffinity(0))
    words = f"{usable} of {os.cpu_count()} usable"
    return (
        Check("CPUs", "note", f"{words}; with one, spinning does not help")
        if usable == 1
        else Check("CPUs", "ok", words)
    )


def pid_namespace() -> Check:
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return Check("pid namespace", "note", "unknown, without /proc")
    if namespace == FIRST_PID_NAMESPACE:
        return Check("pid namespace", "ok", "the machine's own")
    words = "one of its own (a container?): pids of others mean nothing here; deaths are noticed all the same"
    return Check("pid namespace", "note", words)


def futex_waitv() -> Check:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(FUTEX_WAITV, None, 0, 0, None, 0)
    if ctypes.get_errno() == errno.EINVAL:  # it is there, and does not like to wait for nothing
        return Check("futex_waitv", "ok", "there")
    words = (
        f"missing ({os.strerror(ctypes.get_errno())}): asyncio looks every millisecond instead of sleeping"
    )
    return Check("futex_waitv", "note", words)


def runtime_directory(directory: str) -> Check:
    configured = os.environ.get("HOLDFAST_RUNTIME_DIR")
    source = "HOLDFAST_RUNTIME_DIR" if configured and directory == configured else "--directory"
    words = f"{directory} ({'default' if directory == '/dev/shm' and not configured else source})"
    if not Path(directory).is_dir():
        return Check("directory", "bad", f"{words} is not there: create it, or choose another")
    return Check("directory", "ok", words)


def writable(directory: str) -> Iterator[Check]:
    if not Path(directory).is_dir():
        return
    if os.access(directory, os.W_OK | os.X_OK):
        yield Check("writable", "ok", "by this user")
    else:
        yield Check("writable", "bad", f"user {os.geteuid()} may not create files in {directory}")


def space(directory: str) -> Iterator[Check]:
    if not Path(directory).is_dir():
        return
    found = os.statvfs(directory)
    total, free = found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
    words = f"{size_words(free)} free of {size_words(total)}"
    if total <= SMALL:
        yield Check(
            "space", "warn", f"{words}; in a container ask for more, as with docker run --shm-size=1g"
        )
    elif free <= SMALL:
        yield Check("space", "warn", f"{words}: little is left; remove unused queues")
    else:
        yield Check("space", "ok", words)


def file_system(directory: str) -> Iterator[Check]:
    kind = file_system_of(directory)
    if kind is None:
        return
    if kind in ("tmpfs", "ramfs"):
        yield Check("file system", "ok", f"{kind}: memory")
    else:
        yield Check(
            "file system",
            "note",
            f"{kind}: queues are written back to a disk now and then, and outlive a reboot",
        )


def file_system_of(directory: str) -> str | None:
    """The type of the mount that holds the directory."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        real = Path(directory).resolve()
    except OSError:
        return None
    best, kind = -1, None
    for line in lines:
        left, _, right = line.partition(" - ")
        mounted = Path(left.split()[4].replace("\\040", " "))
        if real.is_relative_to(mounted) and len(mounted.parts) >= best:
            best, kind = len(mounted.parts), right.split()[0]
    return kind


def temporary_file(directory: str) -> Iterator[Check]:
    """Try what creates a queue: a file without a name, allocated, named at the end."""
    try:
        fd = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        yield Check(
            "O_TMPFILE", "bad", f"not in {directory}: {error.strerror}; use tmpfs, ext4, xfs or btrfs"
        )
        return
    try:
        os.posix_fallocate(fd, 0, 4096)
        yield Check("O_TMPFILE", "ok", "works, and memory can be allocated up front")
    except OSError as error:
        yield Check("O_TMPFILE", "bad", f"memory cannot be allocated up front: {error.strerror}")
    finally:
        os.close(fd)


def locks(directory: str) -> Iterator[Check]:
    """Try the lock that proves a death: held, refused to others, released at the end."""
    try:
        holder = os.open(directory, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return  # told by temporary_file
    try:
        with closing(os.fdopen(os.open(f"/proc/self/fd/{holder}", os.O_RDWR | os.O_CLOEXEC), "rb")) as other:
            held, refused = lock(holder), lock(other.fileno())
            os.close(holder)
            holder = -1
            released = lock(other.fileno())
    except OSError as error:
        yield Check("OFD locks", "bad", f"cannot be tried: {error.strerror}")
        return
    finally:
        if holder >= 0:
            os.close(holder)
    if held and not refused and released:
        yield Check("OFD locks", "ok", "held, refused to others, released by the kernel")
    else:
        yield Check("OFD locks", "bad", "do not work here: the death of a process could not be proven")


def lock(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except BlockingIOError:
        return False
    return True


def remove_ipc(directory: str, root: Path) -> Iterator[Check]:
    """Check whether systemd-logind empties /dev/shm after a user's last session."""
    if not (root / "run/systemd/system").is_dir() or not Path(directory).is_relative_to("/dev/shm"):
        return
    files = [root / "usr/lib/systemd/logind.conf", root / "etc/systemd/logind.conf"]
    for folder in ("usr/lib", "etc", "run"):
        files += sorted((root / folder / "systemd/logind.conf.d").glob("*.conf"))
    value = "yes"
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        for line in re.findall(r"^\s*RemoveIPC\s*=\s*(\S+)", text, re.MULTILINE):
            value = line.lower()
    if value in ("no", "false", "off", "0"):
        yield Check("RemoveIPC", "ok", "off: queues stay when their user logs out")
    elif os.geteuid() < 1000:
        yield Check("RemoveIPC", "ok", "on, but not for system users such as this one")
    else:
        words = (
            "on: when this user's last session ends, systemd-logind removes their queues from /dev/shm; set "
            "RemoveIPC=no in logind.conf, run as a system user, or set HOLDFAST_RUNTIME_DIR"
        )
        yield Check("RemoveIPC", "warn", words)


def summary(found: list[Check]) -> str:
    """One line."""
    bad = sum(each.status == "bad" for each in found)
    warn = sum(each.status == "warn" for each in found)
    if bad:
        return f"this machine is not fit for queues here: {plural(bad, 'fault')}"
    return "this machine is fit for queues" + (f", with {plural(warn, 'warning')}" if warn else "")
