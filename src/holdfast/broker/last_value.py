"""Find entries of last-value topics whose keys have newer values, and drop them.

Promises upward: an entry of a key is dropped after a newer entry of the same key is visible, never before. A
batch is dropped when each of its messages has a newer one. Entries without a key, and batches whose keys
cannot be read, stay. Needs from below: a topic that can be read, and `Supersede`.

The table of keys is volatile. After a start it is read again from the entries that the topic still has.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.broker.batches import keys_of
from holdfast.broker.events import Supersede
from holdfast.errors import HoldfastError, Misuse, Unsupported

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic

READ_BYTES = 1 << 20
READ_ENTRIES = 1000


class LastValues:
    """The newest entry of each key of one topic.

    Example:
        >>> values = LastValues()
        >>> values.add(0, ["a", "b"]), values.add(1, ["a"]), values.add(2, ["b"])
        ([], [], [0])
    """

    def __init__(self) -> None:
        self.read_to = 0
        """Entries below this ordinal are in the table."""
        self._newest: dict[str, int] = {}
        self._live: dict[int, int] = {}
        """By ordinal: the number of keys whose newest value it has."""

    def add(self, ordinal: int, keys: list[str]) -> list[int]:
        """Note the keys of the next entry, and return the entries that it supersedes."""
        gone: list[int] = []
        own = set(keys)
        if "" in own and len(own) > 1:  # a message without a key stays, and its batch with it
            self._live[ordinal] = 1
        for key in sorted(own - {""}):
            before = self._newest.get(key)
            self._newest[key] = ordinal
            self._live[ordinal] = self._live.get(ordinal, 0) + 1
            if before is not None:
                self._live[before] -= 1
                if not self._live[before]:
                    del self._live[before]
                    gone.append(before)
        return gone


class LastValueTopics:
    """The tables of all last-value topics of a broker, each with at most one task."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tables: dict[int, LastValues] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def grown(self, topic: Topic) -> None:
        """Read new entries of a last-value topic, unless a task does."""
        if topic.id in self._tasks or not self._broker.machine.state.effective(topic.state).last_value:
            return
        table = self._tables.setdefault(topic.id, LastValues())
        if table.read_to < topic.visible:
            task = asyncio.get_running_loop().create_task(self._run(topic, table), name="last values")
            self._tasks[topic.id] = task
            task.add_done_callback(lambda done: self._ended(topic, done))

    def gone(self, topic: int) -> None:
        """Forget a topic that was deleted."""
        self._tables.pop(topic, None)
        if (task := self._tasks.get(topic)) is not None:
            task.cancel()

    async def stop(self) -> None:
        """Cancel all tasks."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, topic: Topic, done: asyncio.Task[None]) -> None:
        if self._tasks.get(topic.id) is done:  # cancelled before it began
            del self._tasks[topic.id]
        error = None if done.cancelled() else done.exception()
        if error is None or isinstance(error, HoldfastError):
            return  # else housekeeping tries again
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"values of {topic.name} could not be read; it tries again", "exception": error}
        )

    async def _run(self, topic: Topic, table: LastValues) -> None:
        """Read what is new; entries that become visible after the last look start another task."""
        try:
            await self._read(topic, table)
        finally:
            self._tasks.pop(topic.id, None)  # at once: the callback of a task runs a turn later

    async def _read(self, topic: Topic, table: LastValues) -> None:
        while table.read_to < topic.visible:
            entries = await topic.read_on(table.read_to, READ_ENTRIES, READ_BYTES)
            if entries is None:
                return
            gone: list[int] = []
            for index in range(len(entries)):
                ordinal = entries.first_ordinal + index
                gone += table.add(ordinal, readable_keys(entries.entry(index)))
                table.read_to = ordinal + 1
            known = self._broker.machine.state.thinned.get(topic.id)
            gone = [each for each in gone if known is None or not known.superseded.is_acked(each)]
            if gone:
                await self._submit(topic, gone)
            await asyncio.sleep(0)

    async def _submit(self, topic: Topic, gone: list[int]) -> None:
        ranges: list[tuple[int, int]] = []
        for ordinal in sorted(gone):
            if ranges and ranges[-1][1] == ordinal:
                ranges[-1] = (ranges[-1][0], ordinal + 1)
            else:
                ranges.append((ordinal, ordinal + 1))
        dropped = False
        try:
            await self._broker.engine.submit(Supersede(topic.id, ranges))
            known = self._broker.machine.state.thinned.get(topic.id)
            dropped = known is not None and known.superseded.is_acked(gone[0])
        finally:
            if not dropped:  # refused, or the policy has ended; the table says that they are: read again
                self._tables.pop(topic.id, None)


def readable_keys(entry: bytes) -> list[str]:
    """Return the keys of an entry.

    If they cannot be read, the key is empty, so that the entry stays.
    """
    try:
        return keys_of(entry)
    except (Misuse, Unsupported):
        return [""]
