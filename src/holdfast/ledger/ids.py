"""The id of a message as users see it: `ledger:entry[:batch]`."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.errors import Misuse


class MessageId(NamedTuple):
    """Where a message stands. Along a topic ids rise; tuples compare as ids do.

    Example:
        >>> MessageId(3, 5) < MessageId(3, 6) < MessageId(4, 0)
        True
        >>> print(MessageId(3, 5), MessageId(3, 5, batch=2))
        3:5 3:5:2
        >>> MessageId.parse("3:5:2")
        MessageId(ledger=3, entry=5, batch=2)
    """

    ledger: int
    entry: int
    batch: int = -1
    """The message's place in its batch; −1 for an entry that is one message, or for a batch as a whole."""

    def __str__(self) -> str:
        whole = f"{self.ledger}:{self.entry}"
        return whole if self.batch < 0 else f"{whole}:{self.batch}"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """From what `str` made of it; `earliest` and `latest` are known, too.

        Raises:
            Misuse: it is none.
        """
        if text in _NAMED:
            return _NAMED[text]
        numbers = text.split(":")
        if len(numbers) not in (2, 3) or not all(each.isascii() and each.isdecimal() for each in numbers):
            raise Misuse(f"{text!r} is not a message id; it looks like 3:5, or 3:5:2 within a batch")
        return cls(*map(int, numbers))


EARLIEST = MessageId(-1, -1)
"""Before everything that is kept."""

LATEST = MessageId((1 << 63) - 1, (1 << 63) - 1)
"""Behind everything that was published."""

_NAMED = {"earliest": EARLIEST, "latest": LATEST}
