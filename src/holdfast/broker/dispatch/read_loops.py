"""Read loops of a cursor: at most one sequential and one replay read.

```
 begin: revision noted ──► await topic.read ──► outdated? ──► position moves ──► outdated? ──► handed over
        (refused in a window)                     │ (a)        (sequential)        │ (b)
                                                  └────────── dropped ◄────────────┘
```

A sequential read begins at the read position and moves it past the entries that it read. A replay read is of
entries that were delivered before and are to be redelivered; it never moves the position. A direct read calls
the topic without all this (**I54**). Between (a) and (b) a read is *half* in flight: a reset there must find
it, too (**I55**).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from holdfast._core import Dispatch, Entries
from holdfast.broker.compaction.reading import CompactedReading
from holdfast.broker.dispatch.acking import Acking
from holdfast.broker.dispatch.pacing import Pace
from holdfast.broker.dispatch.recent import Recent
from holdfast.broker.dispatch.revision import Revision, RevisionController
from holdfast.broker.dispatch.types import Cursor, DispatchOptions, TopicReader
from holdfast.broker.ranges import merged, without
from holdfast.errors import Corrupt, CursorModifying, HoldfastError, NotFound
from holdfast.system import Clock

LOG = logging.getLogger("holdfast.broker")
Kind = Literal["sequential", "replay"]
Throttle = Callable[[Entries], Awaitable[None]]
Runs = list[tuple[int, int]]

GAP_MAX = 16
"""Entries between two wanted ones of a replay read: to read them in vain costs less than another read."""
KEYED_GAP_MAX = 256
"""The same for key_shared: entries that wait for one of many consumers lie far apart."""
STEPS_MAX = 1000
"""Runs of entries that are passed at once in search of the next one to read."""
STEPS_FEW = 8
"""So many runs are passed again by each search; after more, the position follows."""
LONG_RUN = 64
"""Acknowledged entries in a row before which a sequential read stops."""


@dataclass(slots=True)
class Read:
    """One read in flight."""

    kind: Kind
    revision: Revision
    start: int
    count: int
    runs: Runs
    """Of a replay read: the ranges that are wanted, within `count` entries from `start` on."""
    began_ns: int
    moved: tuple[int, int] | None = None
    """Of a sequential read: the range that the position has passed, until it is handed over."""


class Reading:
    """Reads entries for consumers, and hands them over if they are still current."""

    def __init__(
        self,
        topic: TopicReader,
        cursor: Cursor,
        table: Dispatch,
        revision: RevisionController,
        acking: Acking,
        hand: Callable[[Entries, Runs | None], None],
        clock: Clock,
        options: DispatchOptions,
        damage: Callable[[Exception], None],
        throttle: Throttle | None = None,
    ) -> None:
        self._topic = topic
        self._compacted: CompactedReading | None = None
        """It reads a compacted view in place of the topic."""
        self._cursor = cursor
        self._table = table
        self._revision = revision
        self._acking = acking
        self._hand = hand
        self._clock = clock
        self._options = options
        self._damage = damage
        self._throttle = throttle
        self.pace: Pace | None = None
        """The rates of deliveries; None: there are none."""
        self._one_by_one = False
        """The last run had a damaged entry: single reads find out which."""
        self.damaged = 0
        """Number of damaged entries that were skipped."""
        self.position = max(cursor.acks.acked_to, topic.first)
        self._recent = Recent()
        self.ended: Callable[[], None] = self.pump
        """Called when a loop has ended: the other kind may have waited for it."""
        self._current: dict[Kind, Read] = {}
        self._tasks: dict[Kind, asyncio.Task[None]] = {}
        """The current tasks; a new revision leaves them behind."""
        self._left_behind: dict[asyncio.Task[None], None] = {}  # ordered, so that simulations repeat
        self._stopped = False
        self.halted = False
        """Another member dispatches: no reads."""
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = 0.0
        self.last_error = ""
        self._damaged: tuple[int, Corrupt] | None = None
        """The ordinal and the error of an entry that could not be read by the last attempt."""
        self.begun: dict[Kind, int] = {"sequential": 0, "replay": 0}
        self.refused = 0
        self.dropped = 0
        self.released = 0

    @property
    def position(self) -> int:
        """Where the next sequential read begins. Entries to be read again lie below it (**I266**)."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        self._position = self._table.position = position

    @property
    def compacted(self) -> CompactedReading | None:
        """The compacted view that it reads; None: it reads the topic."""
        return self._compacted

    @property
    def first(self) -> int:
        """The lowest ordinal that can be read."""
        return self._topic.first

    def read_from(self, topic: TopicReader) -> None:
        """Read a topic, or its compacted view, from now on. The caller sets the position."""
        self._topic = topic
        self._compacted = topic if isinstance(topic, CompactedReading) else None

    def put(self, position: int) -> None:
        """Set the position after a reset: a compacted cursor continues in the newest view (**I312**)."""
        self.position = position
        self.renew()

    def renew(self) -> None:
        """Continue in the newest view, if it reads compacted."""
        if self._compacted is not None:
            self._compacted.renew()

    # -- when to read ----------------------------------------------------------------------------------

    def pump(self) -> None:
        """Start reads, if there are entries to read and consumers with permits."""
        if self._stopped or self.halted or self._retry is not None or self._table.wanted == 0:
            return
        if self._table.keyed and self._tasks:
            return  # one read at a time: the next one depends on the hashes that this one finds
        if self._table.to_replay:
            if "replay" not in self._tasks and not self._is_moving():
                self._spawn("replay")
        elif (
            "sequential" not in self._tasks
            and not self._waits_for_replay()
            and self._pass_gaps() < self._topic.visible
            and self._table.ahead_left
            and not self._is_moving()
        ):
            self._spawn("sequential")

    @property
    def is_busy(self) -> bool:
        """Whether reads are under way, or can be started."""
        if self._tasks or self._retry is not None:
            return True
        table = self._table
        if table.wanted == 0:
            return False
        return table.to_replay or (table.ahead_left > 0 and self._next_position() < self._topic.visible)

    @property
    def damage(self) -> tuple[int, Corrupt] | None:
        """The next entry and its error, if it is damaged; also after the consumers left."""
        if self._damaged is None:
            return None
        table = self._table
        coming = table.replay_first if table.to_replay else self._next_position()
        return self._damaged if self._damaged[0] == coming else None

    def oldest(self) -> Read | None:
        """Return the read that has been in flight longest."""
        return min(self._current.values(), key=lambda read: read.began_ns, default=None)

    @property
    def in_flight(self) -> tuple[Kind, ...]:
        """The kinds of reads in flight."""
        return tuple(sorted(self._current))

    def leave_behind(self) -> None:
        """Leave reads in flight behind, because the revision changes; their results will be dropped.

        Entries that they were to hand over are put back, to be read again.
        """
        for read in self._current.values():
            self._put_back(read)
        self._current.clear()
        self._recent.clear()
        self._left_behind.update(dict.fromkeys(self._tasks.values()))
        self._tasks.clear()
        self._forget_failure()

    def stop(self) -> None:
        """Cancel all reads, and start no more."""
        self._stopped = True
        if self._retry is not None:
            self._retry.cancel()
        self._left_behind.update(dict.fromkeys(self._tasks.values()))
        self._tasks.clear()
        self._current.clear()
        for task in self._left_behind:
            task.cancel()

    def _put_back(self, read: Read | None) -> None:
        if read is not None:
            self._table.put_back([read.moved] if read.moved else read.runs)

    def _waits_for_replay(self) -> bool:
        """Return whether a sequential read must wait. Redelivery comes first, and keeps the order."""
        ordered = self._table.single or self._table.keyed
        return self._table.to_replay or (ordered and "replay" in self._tasks)

    def _next_position(self) -> int:
        """Return the next ordinal that is open, is due, and that no consumer holds.

        After many steps the search ends early, at any entry. Reads leave out those that are not to be read.
        """
        at, before, steps = max(self.position, self._topic.first), -1, 0
        while at != before and steps < STEPS_MAX:
            before, steps = at, steps + 1
            at = self._table.next_free(self._acking.next_open(at))
            if self._compacted is not None:
                at = min(self._compacted.next_kept(at), self._topic.visible)
        if steps > STEPS_FEW:  # entries that are given back, or become due, are read as a replay
            self.position = at
        return at

    def _pass_gaps(self) -> int:
        """Return the next ordinal to read. Acknowledge places without entries before it."""
        at, view, acks = self._next_position(), self._compacted, self._cursor.acks
        if self._is_moving():
            return at
        if view is None and acks.acked_to < self._topic.first:  # a compacted consumer was there before
            self._acking.leave_out([(acks.acked_to, self._topic.first)])
        if view is not None and at > self.position:
            if acks.count(at) > acks.count(self.position):
                covered = self._acking.covered(self.position, at)
                for first, end in without([(self.position, at)], merged(covered)):
                    self._acking.leave_out(view.gaps(first, end))
            self.position = at
        return at

    @property
    def has_work(self) -> bool:
        """Whether there are entries to read."""
        return self._table.to_replay or self._next_position() < self._topic.visible

    def _is_moving(self) -> bool:
        """Return whether a reset was applied and is not stable yet; then `pump` is called.

        A member that submitted the reset has a window; the others have only this.
        """
        return self._cursor.reset_number != self._revision.reset_number

    def _spawn(self, kind: Kind) -> None:
        task = asyncio.get_running_loop().create_task(
            self._serve(kind), name=f"{kind} reads of {self._topic.name} for {self._cursor.name}"
        )
        self._tasks[kind] = task
        task.add_done_callback(lambda done: self._ended(kind, done))

    def _ended(self, kind: Kind, task: asyncio.Task[None]) -> None:
        self._left_behind.pop(task, None)
        if self._tasks.get(kind) is task:
            self._put_back(self._current.pop(kind, None))
            del self._tasks[kind]
        error = None if task.cancelled() else task.exception()
        if error is not None:  # an error in this code: report it, since no caller waits for the task
            context: dict[str, Any] = {"message": f"{task.get_name()} failed", "exception": error}
            task.get_loop().call_exception_handler(context)

    # -- reading ---------------------------------------------------------------------------------------

    async def _serve(self, kind: Kind) -> None:
        """Read while there are entries and permits, and this task is current."""
        me = asyncio.current_task()
        refused = self.refused
        while self._tasks.get(kind) is me:
            read = self._begin(kind)
            if read is None:
                break
            try:
                entries = self._recent.find(read.start) if kind == "replay" else None
                if entries is None:
                    size = self._options.read_bytes
                    size = size if self.pace is None else min(size, self.pace.read_bytes)
                    entries = await self._topic.read(read.start, read.count, size)
            except (HoldfastError, OSError) as error:
                if self._failed(read, error):
                    continue
                break
            await self._complete(read, entries)
            await asyncio.sleep(0)  # other subscriptions have a turn
        if self._tasks.get(kind) is me:
            del self._tasks[kind]
            self._current.pop(kind, None)
            if self.refused == refused:  # else the end of the window calls `pump`
                self.ended()

    def _begin(self, kind: Kind) -> Read | None:
        most = self._options.read_entries if self.pace is None else self.pace.read_entries
        wanted = min(self._table.wanted_entries, 1 if self._one_by_one else most)
        if self._stopped or self.halted or wanted == 0 or self._is_moving():
            return None
        try:
            revision = self._revision.begin_read()
        except CursorModifying:
            self.refused += 1
            return None
        read = self._replay(revision, wanted) if kind == "replay" else self._sequential(revision, wanted)
        if read is not None:
            self._current[kind] = read
            self.begun[kind] += 1
        return read

    def _replay(self, revision: Revision, wanted: int) -> Read | None:
        if self._table.replay_first < self._topic.first:
            self._table.release(0, self._topic.first)  # trimmed, so it cannot be read again
        runs = self._table.take_replay(wanted, KEYED_GAP_MAX if self._table.keyed else GAP_MAX)
        if not runs:
            return None
        start, end = runs[0][0], runs[-1][1]
        return Read("replay", revision, start, end - start, runs, self._clock.monotonic_ns())

    def _sequential(self, revision: Revision, wanted: int) -> Read | None:
        if self._waits_for_replay():
            return None
        start = self._pass_gaps()
        wanted = min(wanted, self._topic.visible - start, self._table.ahead_left)
        if wanted <= 0:
            return None
        # Entries before the start are held or acknowledged: if one is given back, it is read as a replay.
        self.position = start
        wanted = self._before_long_run(start, wanted)
        return Read("sequential", revision, start, wanted, [], self._clock.monotonic_ns())

    def _before_long_run(self, start: int, wanted: int) -> int:
        """Return how many entries to read before the next long run of acknowledged ones."""
        acks = self._cursor.acks
        if wanted - (acks.count(start + wanted) - acks.count(start)) < LONG_RUN:
            return wanted
        for first, end in acks.acked_in(start, start + wanted):
            if end - first >= LONG_RUN and first > start:
                return first - start
        return wanted

    async def _complete(self, read: Read, entries: Entries) -> None:
        self._retry_s = 0.0
        self.last_error, self._damaged = "", None
        self._one_by_one = False
        if self._revision.is_outdated(read.revision):
            self._drop(read, entries)
            return
        end = entries.first_ordinal + len(entries)
        if read.kind == "sequential":
            self.position = end
            read.moved = (entries.first_ordinal, end)
        elif end < read.runs[-1][1]:  # the ledger ended, or the size limit was reached
            self._table.put_back(_from(read.runs, end))
            read.runs = _up_to(read.runs, end)
        if self._throttle is not None:
            await self._throttle(entries)
        if self.pace is not None:
            await self.pace.wait(sum(map(entries.messages, range(len(entries)))), entries.size)
        if self._revision.is_outdated(read.revision) or self._is_moving():
            self._drop(read, entries)
            return
        read.moved = None
        if self._compacted is not None:
            self._leave_out_gaps(entries)
        self._hand(entries, read.runs if read.kind == "replay" else None)
        if self._table.keyed:
            self._keep(read, entries)
        read.runs = []

    def _leave_out_gaps(self, entries: Entries) -> None:
        """Acknowledge what compaction has left out of a run: places, and messages of batches."""
        assert self._compacted is not None
        first = entries.first_ordinal
        self._acking.leave_out(self._compacted.gaps(first, first + len(entries)))
        self._acking.leave_open((first + place, mask) for place, mask in entries.open_masks())

    def _keep(self, read: Read, entries: Entries) -> None:
        """Keep entries that wait for the consumers of their keys: these may be ready soon."""
        if not self._table.replay_entries:
            self._recent.clear()
        elif self._recent.find(read.start) is None:
            self._recent.keep(entries)

    def _drop(self, read: Read, entries: Entries) -> None:
        """Count a read of an older revision as dropped; its entries are released."""
        self.dropped += 1
        self.released += len(entries)

    def _failed(self, read: Read, error: HoldfastError | OSError) -> bool:
        """Handle a read that failed. Returns True if the loop continues at once."""
        if self._revision.is_outdated(read.revision):
            self.dropped += 1
            return False  # `leave_behind` has put its entries back
        self._table.put_back(read.runs)
        read.runs = []
        if isinstance(error, NotFound) and read.start < self._topic.first:
            return False  # trimmed meanwhile: the next read begins after it
        if isinstance(error, NotFound):  # else consumers would wait, and get no error
            error = Corrupt(f"{error}: other code has removed the file of a ledger; restore a backup")
        if isinstance(error, Corrupt) and read.count > 1:
            self._one_by_one = True
            return True
        if isinstance(error, Corrupt) and self._options.skip_damaged:
            LOG.warning("skipped and acknowledged a damaged entry (skip_damaged): %s", error)
            self._skip(read)
            return True
        if isinstance(error, Corrupt):
            self._damaged = (read.start, error)
            self._topic.note_damage(read.start)
            self._damage(error)
        self.last_error = str(error)
        self._retry_s = min(max(2 * self._retry_s, self._options.retry_first_s), self._options.retry_most_s)
        self._retry = asyncio.get_running_loop().call_later(self._retry_s, self._try_again)
        return False

    def _skip(self, read: Read) -> None:
        """Acknowledge the damaged entry of a single read, which no consumer has received."""
        self.damaged += 1
        self._one_by_one = False
        if read.kind == "sequential":
            self.position = max(self.position, read.start + 1)
        self._acking.leave_out([(read.start, read.start + 1)])

    def _forget_failure(self) -> None:
        """Forget the error of an earlier position, so that reads continue at the new one."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._retry_s, self.last_error, self._one_by_one = 0.0, "", False

    def _try_again(self) -> None:
        self._retry = None
        self.pump()


def _from(runs: Runs, at: int) -> Runs:
    return [(max(first, at), end) for first, end in runs if end > at]


def _up_to(runs: Runs, at: int) -> Runs:
    return [(first, min(end, at)) for first, end in runs if first < at]
