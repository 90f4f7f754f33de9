"""The writer on real files: reported bytes are there, after failures, signals and forks."""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from pathlib import Path

import pytest

from holdfast import Misuse, _core
from holdfast._core import Log, Writer
from tests.kit.ledger.log_bytes import ledger_file
from tests.kit.ledger.log_world import World, journaled
from tests.kit.ledger.writers import world as world
from tests.kit.waiting import waits_out


def test_round_trip(world: World) -> None:
    d = 0
    for i in range(50):
        d = world.publish(1 + i % 2, b"%d" % i * 50, b"", urgent=i % 3 == 0)
    assert world.durable(d)[:2] == (50, 50)
    world.check()
    report = world.writer.poll()
    assert report.journal_offset == (world.directory / "journal").stat().st_size
    assert (report.error, report.journals, report.journal_first_d) == (None, 1, 1)
    assert not select.select([world.writer], [], [], 0)[0]
    unsynced = world.writer.ledgers()
    assert [(row[0], row[3]) for row in unsynced] == [(n, world.log.tail(n)[4]) for n in (1, 2)]
    for ledger, data, index, size in unsynced:
        os.fsync(data)
        os.close(data)
        os.close(index)
        world.writer.synced(ledger, size)
    assert world.writer.ledgers() == []


def test_the_thread_needs_no_gil(world: World) -> None:
    """This loop never releases the GIL, and the writer goes on."""
    d = world.publish(1, b"x" * 100_000)
    poll = world.writer.poll
    deadline = time.monotonic() + 20
    while poll().durable_d < d:
        assert time.monotonic() < deadline


def test_stop_lets_other_threads_run(world: World) -> None:
    turns = [0]
    running = threading.Event()

    def count() -> None:
        while not running.is_set():
            turns[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    for i in range(6):
        world.publish(1, b"%d" % i * 8_000_000, urgent=False)
    before = turns[0]
    world.writer.stop()
    after = turns[0]
    running.set()
    thread.join()
    assert after > before
    assert world.writer.poll().durable_d == 6


def test_a_writer_that_is_forgotten_ends(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.use_journal("journal")
    world.writer.start()
    world.durable(world.publish(1, b"x"))
    before = threading_count()
    del world.writer
    assert threading_count() == before - 1


def threading_count() -> int:
    """Count the threads of this process, as the system sees them."""
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.parametrize("op", ["journal_write", "ledger_write", "index_write", "ledger_open"])
def test_what_failed_is_written_after_resume(world: World, op: str) -> None:
    d = world.publish(1, b"before") if op != "ledger_open" else 0
    world.durable(d)
    _core.arm_fault(op, 1, errno.ENOSPC)
    d = world.publish(1, b"failed")
    assert world.failed()[:2] == (op, errno.ENOSPC)
    assert world.writer.poll().durable_d == d - 1
    later = world.publish(2, b"later")
    time.sleep(0.02)  # nothing must be written meanwhile
    assert world.writer.poll().durable_d == d - 1
    world.writer.resume()
    world.durable(later)
    world.check()


def test_a_failed_sync_moves_the_round(world: World) -> None:
    world.durable(world.publish(1, b"before"))
    _core.arm_fault("sync")
    d = world.publish(1, b"failed")
    assert world.failed()[0] == "journal_sync"
    assert world.writer.poll()[:2] == (d - 1, d - 1)
    with pytest.raises(Misuse, match="never repeated on the same file"):
        world.writer.resume()
    world.use_journal("journal2")
    world.writer.resume()
    report = world.durable(d)
    assert (report.journals, report.journal_first_d) == (2, d)
    assert journaled(world.directory / "journal2", d) == {1: [b"failed"], 2: []}
    assert ledger_file(world.directory, 1) == [b"before", b"failed"]


@pytest.mark.parametrize("size", [1, 5, 4095])
def test_short_writes(world: World, size: int) -> None:
    _core.arm_fault("write", 1, -size, times=0)
    world.durable(world.publish(1, b"x" * 9001, b"y"))
    assert _core.faults_fired() > 3
    _core.disarm_fault()
    world.check()


def test_every_failure_once(tmp_path: Path) -> None:
    """The N-th call fails, N rising until a run without failure; each run ends complete."""
    for op in ("write", "open", "sync"):
        number = 0
        while True:
            number += 1
            directory = tmp_path / f"{op}{number}"
            directory.mkdir()
            world = World(directory)
            world.use_journal("journal0")
            _core.arm_fault(op, number, errno.EIO)
            world.writer.start()
            journals = ["journal0"]
            for i in range(3):
                d = world.publish(1, b"a%d" % i)
                d = world.publish(2, b"b%d" % i)
                while world.wait(d).error:
                    journals.append(f"journal{len(journals)}")
                    world.use_journal(journals[-1])
                    world.writer.resume()
            world.writer.stop()
            assert [ledger_file(directory, world.log.tail(n)[1]) for n in (1, 2)] == [
                world.sent[1],
                world.sent[2],
            ]
            if not _core.faults_fired():
                break
        _core.disarm_fault()
        assert number > 2, op


def test_sync_modes(tmp_path: Path) -> None:
    for sync in ("group", "always", "os"):
        (tmp_path / sync).mkdir()
        world = World(tmp_path / sync, sync)
        world.use_journal("journal")
        world.writer.start()
        world.durable(world.publish(1, b"x", urgent=False))
        world.check()
        world.writer.stop()
    with pytest.raises(Misuse, match="group, always or os"):
        Writer(Log(), str(tmp_path), "never")


def test_os_is_durable_before_its_sync(tmp_path: Path) -> None:
    world = World(tmp_path, "os")
    world.use_journal("journal")
    world.writer.start()
    _core.arm_fault("sync")
    world.durable(world.publish(1, b"x"))
    world.check()
    assert _core.faults_fired() == 0
    world.writer.stop()  # syncs
    assert world.failed()[0] == "journal_sync"


def test_what_is_not_urgent_waits_ten_milliseconds(world: World) -> None:
    with waits_out(0.010):
        world.durable(world.publish(1, b"x", urgent=False))
