"""Ids of messages: `ledger:entry[:batch]`."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.errors import HoldfastError, Misuse

NUMBER_MAX = (1 << 63) - 1
"""The largest id, position or counter: programs that read them have 64 bits with a sign."""

BATCH_MESSAGES_MAX = 1 << 24
"""The most messages of a batch, as in the core."""


def require_left(number: int, what: str) -> None:
    """Check that a counter has numbers left. Events check before they change anything.

    Example:
        >>> require_left(1, "ids of topics")

    Raises:
        HoldfastError: the counter is used up.
    """
    if number > NUMBER_MAX:
        raise HoldfastError(
            f"the broker has used up its 63 bits of {what}; start a broker in a new data directory"
        )


class MessageId(NamedTuple):
    """The id of a message. Ids rise along a topic, and compare as tuples.

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
    """The index of the message in its batch; −1 for a single message, or for a whole batch."""

    def __str__(self) -> str:
        whole = f"{self.ledger}:{self.entry}"
        return whole if self.batch < 0 else f"{whole}:{self.batch}"

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Parse the text that `str` returns, or `earliest`, or `latest`.

        Raises:
            Misuse: the text is not a message id.
        """
        if text in _NAMED:
            return _NAMED[text]
        numbers = text.split(":")
        if len(numbers) not in (2, 3) or not all(each.isascii() and each.isdecimal() for each in numbers):
            raise Misuse(f"{_short(text)} is not a message id; it looks like 3:5, or 3:5:2 within a batch")
        if any(len(each) > DIGITS_MAX or int(each) > NUMBER_MAX for each in numbers):
            raise Misuse(f"{_short(text)} is not a message id: its numbers are at most {NUMBER_MAX}")
        return cls(*map(int, numbers))


def _short(text: str) -> str:
    return repr(text) if len(text) <= 80 else f"{text[:40]!r}… ({len(text)} characters)"


DIGITS_MAX = 40
"""The most digits of a number, leading zeros included. Python refuses to read thousands."""

EARLIEST = MessageId(-1, -1)
"""The position before the first entry that is kept."""

LATEST = MessageId(NUMBER_MAX, NUMBER_MAX)
"""The position behind the last entry."""

_NAMED = {"earliest": EARLIEST, "latest": LATEST}
