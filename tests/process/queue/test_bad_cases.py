"""Test bad conditions around a queue: a full disk, other users, a reboot."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import (
    Empty,
    NoSpace,
    Queue,
    Stale,
    _core,
)
from tests.kit.processes import Start, hear, tell
from tests.kit.queue.queues import drain
from tests.kit.queue.segments import BOOT_ID, patch, segment

# -- a full file system -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def free_bytes(place: Path) -> int:
    status = os.statvfs(place)
    return status.f_bavail * status.f_bsize


def test_no_room_for_a_queue(small_disk: Path) -> None:
    before = free_bytes(small_disk)
    with pytest.raises(NoSpace, match=r"needs \d+ more bytes and .* has \d+ bytes free") as caught:
        Queue.create("big", capacity=8 << 20, directory=str(small_disk))
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == errno.ENOSPC
    assert [*small_disk.iterdir()] == [], "nothing is left behind"
    assert free_bytes(small_disk) == before
    Queue.create("fits", capacity=1 << 19, directory=str(small_disk)).detach()
    with pytest.raises(NoSpace):
        Queue.create("second", capacity=1 << 19, directory=str(small_disk))
    assert Queue.list(directory=str(small_disk)) == ["fits"]


def test_no_room_for_the_dead_letter_queue_either(small_disk: Path) -> None:
    with pytest.raises(NoSpace):  # one of them fits, both do not
        Queue.create("q", capacity=1 << 19, max_deliveries=1, dead_letter="d", directory=str(small_disk))
    assert [*small_disk.iterdir()] == []


def lap_a_full_disk(directory: str) -> None:
    with Queue.open("q", directory=directory) as q:
        for i in range(64):
            q.put(bytes([i]) * q.message_size_max)
            assert q.get_bytes() == bytes([i]) * q.message_size_max
        tell("done")


def test_a_disk_that_fills_up_later_harms_no_queue(small_disk: Path, start: Start) -> None:
    """Create allocates all memory: the first touch of the last pages raises no SIGBUS."""
    Queue.create("q", capacity=1 << 18, directory=str(small_disk)).detach()
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "junk").write_bytes(bytes(1 << 20))
    assert free_bytes(small_disk) == 0
    child = start(lap_a_full_disk, str(small_disk))
    assert child.hear() == "done"
    child.wait()


# -- permissions ------------------------------------------------------------------------------------------


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


def as_another(uid: int, gid: int, groups: list[int], name: str, call: str) -> None:
    os.setgroups(groups)
    os.setgid(gid)
    os.setuid(uid)
    try:
        if call == "open":
            with Queue.open(name) as q:
                tell(q.get_bytes(timeout=0))
                q.put(b"from %d" % uid)
        elif call == "hold":
            q = Queue.open(name)
            message = q.get(timeout=0)
            tell(bytes(message))
            hear()
        elif call == "create":
            Queue.create(name, capacity=4096)
        elif call == "unlink":
            Queue.unlink(name)
        tell("done")
    except holdfast.HoldfastError as error:
        tell((type(error).__name__, str(error)))


@root_only
@pytest.mark.parametrize(
    ("call", "words"),
    [("open", "its creator can share it with mode= and group="), ("create", "needs write permission"),
     ("unlink", "only its owner or root may")],
    ids=["open", "create", "unlink"],
)  # fmt: skip
def test_somebody_else_is_refused(
    runtime_directory: Path, q: Queue, start: Start, call: str, words: str
) -> None:
    runtime_directory.chmod(0o755)
    q.put(b"secret")
    child = start(as_another, 12345, 12345, [], "other" if call == "create" else "q", call)
    kind, told = child.hear()
    assert kind == "Denied"
    assert words in told
    assert str(runtime_directory) in told
    child.wait()
    assert Queue.list() == ["q"]
    assert q.stats().delivered == 0
    assert segment("q").stat().st_mode & 0o777 == 0o600


@root_only
def test_a_queue_shared_with_a_group(runtime_directory: Path, start: Start) -> None:
    runtime_directory.chmod(0o755)
    with Queue.create("q", capacity=4096, mode=0o660, group=4242) as q:
        status = segment("q").stat()
        assert (status.st_mode & 0o777, status.st_gid) == (0o660, 4242)
        for uid, gid, groups in ((12345, 4242, []), (12346, 12346, [4242])):
            q.put(b"x")
            child = start(as_another, uid, gid, groups, "q", "open")
            assert child.hear() == b"x"
            assert child.hear() == "done"
            assert q.get_bytes(timeout=0) == b"from %d" % uid
        assert start(as_another, 12347, 12347, [], "q", "open").hear()[0] == "Denied"
        q.put(b"held")  # death across users
        child = start(as_another, 12345, 4242, [], "q", "hold")
        assert child.hear() == b"held"
        child.kill()
        with q.get(timeout=10) as message:
            assert (bytes(message), message.redelivered) == (b"held", 1)


# -- a reboot ---------------------------------------------------------------------------------------------


def leave_behind(name: str) -> None:
    """Two holders and a writer, none of which says good-bye."""
    first, second, third = (Queue.open(name) for _ in range(3))
    held = [first.get(timeout=0), second.get(timeout=0)]
    _core.arm("put_payload", "kill", 1)
    tell(len(held))
    third.put(b"half")


def test_a_segment_from_before_a_reboot(q: Queue, start: Start) -> None:
    q.put_many([b"a", b"b", b"c"])
    q.detach()
    child = start(leave_behind, "q")
    assert child.hear() == 2
    child.wait(-signal.SIGKILL)
    patch("q", BOOT_ID, b"\x11" * 16)
    with pytest.raises(Stale, match=r"from before the last boot.*adopt=True"):
        Queue.open("q")
    with pytest.raises(Stale):
        Queue.create("q", capacity=1 << 16, exist_ok=True)
    with Queue.open("q", adopt=True) as again:
        assert sorted(drain(again)) == [b"a", b"b", b"c"], "all that was put and not settled"
        with pytest.raises(Empty):
            again.get(timeout=0)
        again.put(b"new")
        stats = again.stats()
        assert (stats.taken, stats.writing, stats.handed_on, stats.skipped) == (0, 0, 2, 1)
        with Queue.open("q") as other:  # it is of this boot now
            assert other.get_bytes(timeout=0) == b"new"
        assert again.check() == []
