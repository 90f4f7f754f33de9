"""Faults around a queue: permissions, other versions, a reboot, strange files."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import (
    Corrupt,
    Denied,
    HoldfastError,
    LayoutMismatch,
    Misuse,
    NotFound,
    Queue,
    Stale,
    Unsupported,
)
from tests.kit.queue.queues import fill
from tests.kit.queue.segments import BOOT_ID, CONTROLS, FINGERPRINT, VERSION, patch, patch_header, segment


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
        (VERSION, b"\xff" * 4, "layout version: 4294967295 found, 2 expected"),
        (FINGERPRINT, b"\xff" * 8, "layout fingerprint: 0xffffffffffffffff found"),
        (FINGERPRINT, b"\x01\x02\x03\x04\x05\x06\x07\x08", "layout fingerprint: 0x0807060504030201 found"),
    ],
    ids=["version", "the last version", "the last fingerprint", "fingerprint"],
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


class Detaching:
    """Detaches a queue when it is collected."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._cycle = self

    def __del__(self) -> None:
        self._queue.detach()


def test_a_finaliser_detaches_before_a_batch_is_copied(q: Queue) -> None:
    """The copies were of blocks that `detach` had given back: other consumers could have them."""
    q.put_many([b"a", b"b"])
    copy, enable, threshold = q.get_many(2).tobytes, gc.enable, gc.get_threshold()

    def collect_and_copy() -> None:
        gc.set_threshold(1)
        Detaching(q)
        unused: list[list[int]] = [[] for _ in range(1000)]  # so that the next list is allocated
        enable()
        copy()  # Python 3.11 collects in that allocation, later ones before the call or after it
        assert unused
        q.put(b"c")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(Misuse, match="was detached") as caught:
            collect_and_copy()
        where = caught.traceback[-1].lineno - caught.traceback[-1].frame.code.firstlineno
        assert where == 5 or sys.version_info >= (3, 12)
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
