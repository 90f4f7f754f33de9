"""The plain program beside which the broker is measured, and durable queues for Python.

Every contestant keeps confirmed messages through a power cut: a batch counts when the system has synced it.
"""

from __future__ import annotations

import os
import sqlite3
import time
from importlib import import_module
from typing import Any

from bench.broker_stations import Sample, Setting, Stopwatch, payloads
from bench.figures import percentiles_us

LEDGER_SYNC_BYTES = 64 << 20
"""The plain program that syncs both copies syncs the second as often as the broker takes a snapshot."""
READ_BYTES = 1 << 20


class Plain:
    """Writes the same bytes twice and syncs one copy, without checksums, ids or recovery.

    With `sync_both` the second copy is synced, too, as often as the broker does it. With `in_place` the
    synced copy is written over and over into a file that has its blocks already, like the broker's journal.
    """

    def __init__(self, setting: Setting, sync_both: bool = False, in_place: bool = False) -> None:
        self.setting = setting
        self.sync_both = sync_both
        self.in_place = in_place
        setting.directory.mkdir(parents=True, exist_ok=True)
        self.data = payloads(setting.size, setting.batch)
        self.files: tuple[int, int] | None = None

    def rounds(self, messages: int, rounds: int, total_bytes: int) -> Sample:
        """Write `total_bytes` in as many rounds as the broker had; count `messages`."""
        each = max(1, total_bytes // max(1, rounds))
        buffer = os.urandom(min(each, 64 << 20))
        journal, ledger = self._fresh()
        if self.in_place:
            _write(journal, bytes(LEDGER_SYNC_BYTES + len(buffer)))
            os.fdatasync(journal)
            os.lseek(journal, 0, os.SEEK_SET)
        unsynced = 0
        with Stopwatch() as watch:
            for _ in range(rounds):
                _write(journal, buffer)
                os.fdatasync(journal)
                _write(ledger, buffer)
                unsynced += len(buffer)
                if unsynced >= LEDGER_SYNC_BYTES:
                    unsynced = 0
                    if self.sync_both:
                        os.fdatasync(ledger)
                    if self.in_place:
                        os.lseek(journal, 0, os.SEEK_SET)
        return watch.sample(messages, rounds, rounds * len(buffer))

    def single(self, count: int) -> tuple[float, float]:
        """Write and sync messages one by one; return µs, median and p99."""
        journal, ledger = self._fresh()
        times = []
        for at in range(count):
            data = self.data[at % len(self.data)]
            start = time.perf_counter_ns()
            _write(journal, data)
            os.fdatasync(journal)
            _write(ledger, data)
            times.append(time.perf_counter_ns() - start)
        return percentiles_us(times)

    def consume(self, batches: int) -> Sample:
        """Read the payloads of `batches` back, each as `bytes`."""
        _, ledger = self._fresh()
        whole = b"".join(self.data)
        for _ in range(batches):
            _write(ledger, whole)
        size, at, messages = self.setting.size, 0, 0
        per_read = max(1, READ_BYTES // size) * size
        with Stopwatch() as watch:
            while chunk := os.pread(ledger, per_read, at):
                messages += len([chunk[start : start + size] for start in range(0, len(chunk), size)])
                at += len(chunk)
        return watch.sample(messages)

    def rest(self) -> None:
        """Sync, so that the next contestant's syncs have nothing of ours to write."""
        for file in self.files or ():
            os.fdatasync(file)

    def close(self) -> None:
        for file in self.files or ():
            os.close(file)
        self.files = None

    def _fresh(self) -> tuple[int, int]:
        self.close()
        flags = os.O_CREAT | os.O_RDWR | os.O_TRUNC | os.O_CLOEXEC
        names = (self.setting.directory / "journal", self.setting.directory / "ledger")
        first, second = (os.open(name, flags, 0o600) for name in names)
        self.files = first, second
        return first, second


def _write(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


class Peer:
    """A queue driven batch by batch. `put` and `take` return when the disk has it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        setting.directory.mkdir(parents=True, exist_ok=True)
        self.data = payloads(setting.size, setting.batch)

    def put(self, batch: list[bytes]) -> None:
        raise NotImplementedError

    def take(self, count: int) -> int:
        """Get at most `count` messages as bytes, remove them durably, and return how many."""
        raise NotImplementedError

    def publish(self, batches: int) -> Sample:
        with Stopwatch() as watch:
            for _ in range(batches):
                self.put(self.data)
        return watch.sample(batches * len(self.data), batches)

    def single(self, count: int) -> tuple[float, float]:
        times = []
        for at in range(count):
            one = [self.data[at % len(self.data)]]
            start = time.perf_counter_ns()
            self.put(one)
            times.append(time.perf_counter_ns() - start)
        self.drain()
        return percentiles_us(times)

    def acknowledge(self, batches: int) -> Sample:
        """Consume and acknowledge, each batch durably."""
        wanted, taken = batches * len(self.data), 0
        with Stopwatch() as watch:
            while taken < wanted:
                got = self.take(len(self.data))
                if got == 0:
                    break
                taken += got
        return watch.sample(taken)

    def drain(self) -> None:
        while self.take(len(self.data)):
            pass

    def rest(self) -> None:
        pass

    def close(self) -> None:
        pass


class Sqlite(Peer):
    """sqlite3 as a queue in the usual form: WAL, synchronous=FULL, one transaction per batch.

    It also writes everything twice (the log, then the table at a checkpoint) and syncs the log at each
    commit.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.base = sqlite3.connect(setting.directory / "queue.db", isolation_level=None)
        self.base.execute("PRAGMA journal_mode=WAL")
        self.base.execute("PRAGMA synchronous=FULL")
        self.base.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, data BLOB NOT NULL)")

    def put(self, batch: list[bytes]) -> None:
        self.base.execute("BEGIN IMMEDIATE")
        self.base.executemany("INSERT INTO queue (data) VALUES (?)", [(data,) for data in batch])
        self.base.execute("COMMIT")

    def take(self, count: int) -> int:
        rows = self.base.execute("SELECT id, data FROM queue ORDER BY id LIMIT ?", (count,)).fetchall()
        if rows:
            self.base.execute("BEGIN IMMEDIATE")
            self.base.execute("DELETE FROM queue WHERE id <= ?", (rows[-1][0],))
            self.base.execute("COMMIT")
        return len(rows)

    def rest(self) -> None:
        self.base.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close(self) -> None:
        self.base.close()


class PersistQueue(Peer):
    """persist-queue's SQLiteQueue, with bytes instead of pickled objects.

    It commits each message by itself, so it has no batches to compare.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        module = import_module("persistqueue")
        self.queue: Any = module.SQLiteQueue(str(setting.directory), auto_commit=True, serializer=Bytes)

    def put(self, batch: list[bytes]) -> None:
        for data in batch:
            self.queue.put(data)

    def take(self, count: int) -> int:
        taken = min(count, int(self.queue.qsize()))
        for _ in range(taken):
            self.queue.get(block=False)
        return taken

    def close(self) -> None:
        self.queue.close()


class Bytes:
    """A serializer that does nothing."""

    @staticmethod
    def dumps(value: bytes) -> bytes:
        return value

    @staticmethod
    def loads(value: bytes) -> bytes:
        return value


class Lmdb(Peer):
    """LMDB with numbers as keys, appended in order, one synced transaction per batch.

    It is the fastest embedded store for Python. It writes everything once, because committed pages do not
    move.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.base: Any = import_module("lmdb").open(str(setting.directory), map_size=16 << 30)
        self.first = self.next = 0

    def put(self, batch: list[bytes]) -> None:
        rows = [((self.next + at).to_bytes(8, "big"), data) for at, data in enumerate(batch)]
        with self.base.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti(rows, append=True)
        self.next += len(rows)

    def take(self, count: int) -> int:
        taken = 0
        with self.base.begin(write=True) as transaction, transaction.cursor() as cursor:
            alive = cursor.first()
            while alive and taken < count:
                bytes(cursor.value())
                alive = cursor.delete()
                taken += 1
        return taken

    def close(self) -> None:
        self.base.close()


PEERS: dict[str, tuple[type[Peer], str | None, bool]] = {
    "sqlite3, WAL, synchronous=FULL": (Sqlite, None, True),
    "lmdb": (Lmdb, "lmdb", True),
    "persist-queue (SQLiteQueue)": (PersistQueue, "persistqueue", False),
}
"""By name: the contestant, the module that it needs, whether it has batches."""
