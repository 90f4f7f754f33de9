"""A broker's directory whose counters start where a test wants them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from holdfast import _core
from holdfast.broker.machine import Machine
from holdfast.broker.state import TopicState
from holdfast.group import Position
from holdfast.ledger.journal.files import JournalFiles
from holdfast.ledger.layout import DIRECTORIES, FORMAT, PAGE, FileKind, file_header
from holdfast.ledger.ledgers import LedgerTable
from holdfast.ledger.snapshot import format as snapshot_format
from holdfast.names import topic_name
from holdfast.system import SystemDisk
from holdfast.system.file_steps import write_all

INCARNATION = bytes(range(16))
TOPIC = "orders"


@dataclass(frozen=True)
class Age:
    """The counters of a broker; the topic `orders` exists, and its entries are trimmed."""

    d: int = 0
    """The number of the last event."""
    ledger: int = 1
    """The id of the next ledger."""
    ordinal: int = 0
    """The ordinal of the topic's next entry."""
    ids: int = 1
    """The next id of a topic, a subscription, a session."""
    journal: int = 1
    """The number of the journal file."""
    time_ns: int = 0
    view: int = 0
    sequence: int | None = None
    """The last sequence number of the producer `p`."""

    def machine(self) -> Machine:
        """Return a machine with these counters."""
        machine = Machine(_core.Log(self.d + 1, self.ledger, self.time_ns))
        state = machine.state
        state.position = Position(self.view, 0)
        topic = TopicState(self.ids, topic_name(TOPIC), bytes(16), self.time_ns)
        topic.ledgers = LedgerTable((), self.ordinal)
        state.topics[topic.id] = topic
        state.names[topic.name] = topic.id
        state.log.add_topic(topic.id, self.ordinal)
        if self.sequence is not None:
            state.log.set_topic(topic.id, deduplicate=True)
            state.log.set_sequence(topic.id, "p", self.sequence, self.time_ns)
        state.next_topic = self.ids + 1
        state.next_subscription = state.next_session = self.ids
        state.check()
        return machine

    def make(self, path: Path, journal_bytes: int = 1 << 16) -> Path:
        """Create a directory in which a broker with these counters was closed."""
        path.mkdir()
        asyncio.run(self._make(SystemDisk(path), journal_bytes))
        return path

    async def _make(self, disk: SystemDisk, journal_bytes: int) -> None:
        captured = self.machine().capture()
        for directory in DIRECTORIES:
            await disk.make_directory(directory)
        await (await JournalFiles(disk, INCARNATION, journal_bytes).create(self.journal)).close()
        file = await disk.open(FORMAT, create=True)
        await write_all(file, 0, file_header(FileKind.DIRECTORY, 0, INCARNATION))
        await file.close()
        meta = snapshot_format.Meta(
            d=self.d,
            position=captured.position,
            clean=True,
            time_ns=self.time_ns,
            next_ledger=self.ledger,
            journal=self.journal,
            journal_offset=PAGE,
            journal_d=self.d,
            ledgers=b"",
        )
        await snapshot_format.write(disk, meta, captured.parts, INCARNATION)
        await snapshot_format.name(disk, self.d)
