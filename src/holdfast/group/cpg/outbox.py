"""Own events until they are delivered: their numbers, and the frames that carry them.

Small events of a turn share a frame. A large one is divided. Events stay here until this member has delivered
them, because a change of view can drop an event of which only a part was ordered. `rewind` sends from there
again; the receivers take each number once (`inbox`).
"""

from __future__ import annotations

from collections import deque
from itertools import islice

from holdfast.group.cpg.wire import Batch, Evict, Fragment
from holdfast.group.interface import Member

BATCH_BYTES = 64 << 10
"""A batch is sent when it has this size. CPG carries as much in 32 KiB, but wakes twice as often."""
FRAGMENT_BYTES = 64 << 10
"""The size of fragments. From 128 KiB on CPG is mostly busy; above 1,047,552 libcpg blocks its caller."""
EVENTS_MAX = 4096
"""The most events of a batch: it bounds a turn of the loop."""

Own = bytes | Evict


class Outbox:
    """Events and orders of this member, in the order of submission.

    Example:
        >>> box = Outbox()
        >>> box.add(b"one"), box.add(b"two")
        (1, 2)
        >>> box.peek()
        Batch(first=1, events=[b'one', b'two'])
        >>> box.sent()
        >>> box.peek() is None, box.delivered(1)
        (True, b'one')
    """

    def __init__(self, batch_bytes: int = BATCH_BYTES, fragment_bytes: int = FRAGMENT_BYTES) -> None:
        self.batch_bytes = batch_bytes
        self._fragment_bytes = fragment_bytes
        self.next_number = 1
        self.unsent_bytes = 0
        self._sent: deque[Own] = deque()
        """Items that were sent, and not delivered."""
        self._unsent: deque[Own] = deque()
        self._offset = 0
        """Bytes of the first unsent item that were sent as fragments."""
        self._peeked = (0, 0)
        """Items that the frame of the last `peek` completes, and the offset after it."""

    def __len__(self) -> int:
        return len(self._sent) + len(self._unsent)

    @property
    def first(self) -> int:
        """The number of the first item that was not delivered."""
        return self.next_number - len(self)

    def add(self, event: bytes) -> int:
        """Append an event, and return its number."""
        return self._append(event)

    def add_evict(self, target: Member, reason: str) -> int:
        """Append an order to evict, and return its number."""
        return self._append(Evict(self.next_number, target, reason))

    def _append(self, item: Own) -> int:
        self._unsent.append(item)
        self.unsent_bytes += _size(item)
        self.next_number += 1
        return self.next_number - 1

    def peek(self) -> Batch | Fragment | Evict | None:
        """Return the next frame to send, or None. `sent` confirms it."""
        if not self._unsent:
            return None
        item = self._unsent[0]
        number = self.next_number - len(self._unsent)
        if isinstance(item, Evict):
            self._peeked = (1, 0)
            return item
        if len(item) > self.batch_bytes:
            part = memoryview(item)[self._offset : self._offset + self._fragment_bytes]
            end = self._offset + len(part)
            self._peeked = (1, 0) if end == len(item) else (0, end)
            return Fragment(number, len(item), self._offset, part)
        events: list[bytes] = []
        size = 0
        for each in islice(self._unsent, EVENTS_MAX):
            if isinstance(each, Evict) or (events and size + len(each) > self.batch_bytes):
                break
            events.append(each)
            size += len(each)
        self._peeked = (len(events), 0)
        return Batch(number, events)

    def sent(self) -> None:
        """Note that the frame of the last `peek` was sent."""
        count, self._offset = self._peeked
        for _ in range(count):
            item = self._unsent.popleft()
            self.unsent_bytes -= _size(item)
            self._sent.append(item)

    def delivered(self, number: int) -> Own | None:
        """Remove an item that this member has delivered; None if it is not the next."""
        if number != self.first or not len(self):
            return None
        if self._sent:
            return self._sent.popleft()
        # A frame from before a rewind brought it, so it need not be sent again.
        item = self._unsent.popleft()
        self.unsent_bytes -= _size(item)
        self._offset = 0
        return item

    def rewind(self) -> None:
        """Send again from the first item that was not delivered."""
        self.unsent_bytes += sum(map(_size, self._sent))
        self._unsent.extendleft(reversed(self._sent))
        self._sent.clear()
        self._offset = 0


def _size(item: Own) -> int:
    return 0 if isinstance(item, Evict) else len(item)
