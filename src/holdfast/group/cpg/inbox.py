"""Events of one sender as they arrive: whole again, and each number once.

A sender numbers its events. The receiver takes the number that it expects, and nothing else. So a repeated
event is dropped, and so are those behind a gap, on all members alike. A gap comes from a change of view,
which drops events that are not whole. Their sender then sends from there again.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.group.cpg.wire import Batch, Evict, Fragment


class Stream:
    """The events of one sender in a view.

    Example:
        >>> stream = Stream(expected=5)
        >>> stream.take(Batch(4, [b"four", b"five"]))
        [b'five']
        >>> stream.take(Fragment(6, 4, 0, b"si")), stream.take(Fragment(6, 4, 2, b"x."))
        ([], [b'six.'])
    """

    def __init__(self, expected: int) -> None:
        self.expected = expected
        """The number of the next event."""
        self._parts: list[bytes | memoryview] = []
        """The begin of the event with the expected number, joined once it is whole."""
        self._size = 0

    def take(self, body: Batch | Fragment | Evict) -> list[bytes | Evict]:
        """Return what is whole and next, in order."""
        if isinstance(body, Fragment):
            return self._join(body)
        first = body.number if isinstance(body, Evict) else body.first
        items: Sequence[bytes | Evict] = [body] if isinstance(body, Evict) else body.events
        known = self.expected - first
        if not 0 <= known <= len(items):
            return []
        new = list(items[known:])
        if new:
            self.expected += len(new)
            self.drop_partial()
        return new

    def drop_partial(self) -> bool:
        """Forget the begin of an event; return whether there was one."""
        dropped, self._parts, self._size = bool(self._parts), [], 0
        return dropped

    def _join(self, fragment: Fragment) -> list[bytes | Evict]:
        if fragment.number != self.expected:
            return []
        if fragment.offset == 0:
            self.drop_partial()
        if self._size != fragment.offset:
            return []
        self._parts.append(fragment.data)
        self._size += len(fragment.data)
        if self._size < fragment.size:
            return []
        event = b"".join(self._parts)
        self.drop_partial()
        self.expected += 1
        return [event]
