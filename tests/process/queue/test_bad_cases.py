"""What goes wrong around a queue: a full disk, wrong permissions, other versions, a reboot, strange files."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import (
    Corrupt,
    Denied,
    Empty,
    HoldfastError,
    LayoutMismatch,
    Misuse,
    NoSpace,
    NotFound,
    Queue,
    Stale,
    Unsupported,
    _core,
)
from tests.kit.processes import Start, hear, tell
from tests.kit.queue.queues import drain, fill
from tests.kit.queue.segments import BOOT_ID, CONTROLS, FINGERPRINT, VERSION, patch, patch_header, segment

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
    """All memory was allocated by create: no SIGBUS when the ring's last pages are first touched."""
    Queue.create("q", capacity=1 << 18, directory=str(small_disk)).detach()
    with pytest.raises(OSError, match="No space left"):
        (small_disk / "junk").write_bytes(bytes(1 << 20))
    assert free_bytes(small_disk) == 0
    child = start(lap_a_full_disk, str(small_disk))
    assert child.hear() == "done"
    child.wait()


def test_no_such_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path / "missing", tmp_path / "file"):
        with pytest.raises(NotFound, match="HOLDFAST_RUNTIME_DIR"):
            Queue.create("q", directory=str(place))
    with pytest.raises(NotFound):
        Queue.open("q", directory=str(tmp_path / "missing"))


def test_a_file_system_that_cannot_do_it() -> None:
    with pytest.raises((Unsupported, Denied, NotFound)):
        Queue.create("q", capacity=4096, directory="/proc")


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


def test_the_mode_is_not_weakened_by_the_umask() -> None:
    old = os.umask(0o077)
    try:
        Queue.create("q", capacity=4096, mode=0o666).detach()
    finally:
        os.umask(old)
    assert segment("q").stat().st_mode & 0o777 == 0o666


def test_a_group_that_does_not_exist() -> None:
    with pytest.raises(Misuse, match="no-such-group"):
        Queue.create("q", capacity=4096, group="no-such-group")
    assert Queue.list() == []


# -- files that are no queues -----------------------------------------------------------------------------


def test_strange_files(tmp_path: Path) -> None:
    segment("empty").write_bytes(b"")
    segment("short").write_bytes(b"HOLDFAST")
    segment("text").write_bytes(b"not a segment at all\n" * 500)
    segment("zero").write_bytes(bytes(65536))
    for name in ("empty", "short", "text", "zero"):
        with pytest.raises(Corrupt, match=name):
            Queue.open(name)
    segment("folder").mkdir()
    segment("link").symlink_to(tmp_path)
    os.mkfifo(segment("fifo"))
    for name in ("folder", "link", "fifo"):
        with pytest.raises(Denied, match=name):
            Queue.open(name)
    assert Queue.list() == ["empty", "short", "text", "zero"], "only what could be one"
    shutil.rmtree(segment("folder"))


def test_a_segment_cut_short_or_renamed(q: Queue) -> None:
    q.detach()
    whole = segment("q").read_bytes()
    segment("cut").write_bytes(whole[: len(whole) // 2])
    segment("renamed").write_bytes(whole)
    with pytest.raises(Corrupt, match=r"cut"):
        Queue.open("cut")
    with pytest.raises(Corrupt, match='name: "q" found, "renamed" expected'):
        Queue.open("renamed")


# -- other versions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (VERSION, (99).to_bytes(4, "little"), "layout version: 99 found, 2 expected"),
        (FINGERPRINT, b"\x01\x02\x03\x04\x05\x06\x07\x08", "layout fingerprint: 0x0807060504030201 found"),
    ],
    ids=["version", "fingerprint"],
)
def test_two_versions_of_the_library(q: Queue, offset: int, value: bytes, words: str) -> None:
    q.put(b"x")
    q.detach()
    patch_header("q", offset, value)
    before = segment("q").read_bytes()
    attempts: list[Callable[[], Queue]] = [
        lambda: Queue.open("q"),
        lambda: Queue.open("q", adopt=True),
        lambda: Queue.create("q", capacity=1 << 16, exist_ok=True),
    ]
    for attempt in attempts:
        with pytest.raises(LayoutMismatch, match="another version of holdfast") as caught:
            attempt()
    assert words in str(caught.value)
    assert segment("q").read_bytes() == before, "nothing of it was touched"


def test_a_header_that_was_overwritten(q: Queue) -> None:
    q.detach()
    patch("q", FINGERPRINT, b"\xff" * 8)  # without its sum: no version wrote this
    with pytest.raises(Corrupt, match="header checksum"):
        Queue.open("q")


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


def test_a_damaged_segment_from_before_a_reboot_is_not_adopted(q: Queue) -> None:
    q.put(b"a")
    q.detach()
    patch("q", BOOT_ID, b"\x11" * 16)
    patch("q", CONTROLS, b"\xff" * 8)  # the head
    with pytest.raises((LayoutMismatch, Corrupt), match="head"):
        Queue.open("q", adopt=True)
    with pytest.raises(Stale):  # and not half adopted
        Queue.open("q")


def test_adopt_changes_nothing_for_a_segment_of_this_boot(q: Queue) -> None:
    q.put(b"x")
    with Queue.open("q", adopt=True) as other:
        assert other.get_bytes(timeout=0) == b"x"


# -- control words that somebody overwrote ----------------------------------------------------------------


@pytest.mark.parametrize("word", ["head", "read", "tail"])
def test_an_overwritten_control_word_is_an_error_not_a_crash(q: Queue, word: str) -> None:
    q.put(b"x")
    patch("q", CONTROLS + 128 * ["head", "read", "tail"].index(word), b"\xff" * 8)
    assert any(word in fault for fault in q.check())
    calls: list[Callable[[], object]] = [
        lambda: q.get_bytes(timeout=0),
        lambda: q.put(b"y", timeout=0),
        lambda: fill(q, b"z" * 900),
    ]
    told = []
    for call in calls:
        try:
            call()
        except Corrupt as error:
            told.append(str(error))
        except HoldfastError:
            pass
    assert told
    assert all("holdfast doctor q" in words for words in told)
