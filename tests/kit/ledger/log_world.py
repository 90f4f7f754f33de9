"""A log with its writer in a directory, and expected files. Works without pytest."""

from __future__ import annotations

import os
import select
from pathlib import Path

from holdfast._core import Log, Report, Writer
from tests.kit.ledger.log_bytes import PAGE, entries_of, events_of, frame, ledger_file, publish, rounds_of

INCARNATION = bytes(range(16))
SALT = int.from_bytes(INCARNATION[:8], "little")


def journaled(path: Path, first_d: int = 1) -> dict[int, list[bytes]]:
    """Return the entries of both topics in the whole rounds of a journal."""
    out: dict[int, list[bytes]] = {1: [], 2: []}
    for each in rounds_of(path.read_bytes(), first_d, SALT):
        for part in each:
            for _, _, body in events_of(part.frame):
                topic, entries = entries_of(body)
                out[topic] += entries
    return out


class World:
    """A log with two topics and a writer, in a directory of its own."""

    def __init__(self, directory: Path, sync: str = "group") -> None:
        self.directory = directory
        (directory / "ledgers").mkdir()
        self.log = Log()
        for topic in (1, 2):
            self.log.add_topic(topic)
            self.log.open_session(topic, topic, "p", 0)
        self.writer = Writer(self.log, str(directory), sync, INCARNATION)
        self.sent: dict[int, list[bytes]] = {1: [], 2: []}

    def use_journal(self, name: str) -> None:
        descriptor = os.open(self.directory / name, os.O_RDWR | os.O_CREAT)
        self.writer.use_journal(descriptor, PAGE)
        os.close(descriptor)

    def publish(self, topic: int, *entries: bytes, urgent: bool = True) -> int:
        self.sent[topic] += entries
        self.log.begin(frame([publish(topic, topic, 0, "p", [(0, 1, data) for data in entries])]), 1, 1)
        assert self.log.step() is None
        return self.log.finish(urgent).last_d

    def wait(self, d: int) -> Report:
        """Wait until D is durable, or the writer fails."""
        while True:
            report = self.writer.poll()
            if report.error or report.durable_d >= d:
                return report
            assert select.select([self.writer], [], [], 20)[0], "nothing happens"

    def durable(self, d: int) -> Report:
        report = self.wait(d)
        assert report.error is None
        return report

    def failed(self) -> tuple[str, int, str]:
        error = self.wait(1 << 60).error
        assert error is not None
        return error

    def check(self, journal: str = "journal") -> None:
        """Check that journal and ledgers have all entries."""
        assert journaled(self.directory / journal) == self.sent
        for topic, entries in self.sent.items():
            ledger = self.log.tail(topic)[1]
            assert not entries or ledger_file(self.directory, ledger) == entries
