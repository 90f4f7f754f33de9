"""The one error tree: each exception says what happened, to which object, what to do.

Example:
    >>> import holdfast
    >>> try:
    ...     holdfast.Queue.open("no-such-queue")
    ... except holdfast.NotFound as error:
    ...     print(type(error).__name__)
    NotFound
"""

from __future__ import annotations

import queue


class HoldfastError(Exception):
    """Everything that holdfast raises on purpose."""

    pid: int | None = None
    """The process in the way, where there is one: it holds what this call waits for."""

    done: int = 0
    """For `put_many`: how many messages were put before this error."""


class Timeout(HoldfastError, TimeoutError):
    """A waiting call found no room or no message in its time; the text names who is in the way."""


class Full(HoldfastError, queue.Full):
    """`timeout=0` and no room."""


class Empty(HoldfastError, queue.Empty):
    """`timeout=0` and no message."""


class Closed(HoldfastError):
    """The stream has ended: nothing more can be put, or all was delivered and settled."""


class PeerDied(HoldfastError):
    """The process that was to answer is gone."""


class Corrupt(HoldfastError):
    """Bytes that no participant can have written.

    In a message: it is set aside, the next call goes on. In a control word: the queue must be made anew.
    """


class LayoutMismatch(HoldfastError):
    """The segment was made by another version of the library, or with other parameters than asked for."""


class Misuse(HoldfastError):
    """The caller's mistake: a message too large, use after detach or fork, a wrong argument."""


class Exists(HoldfastError, FileExistsError):
    """A segment, topic or subscription of that name is there already."""


class NotFound(HoldfastError, FileNotFoundError):
    """There is no segment, topic, subscription or message of that name."""


class DataLoss(NotFound):
    """What was to be read is gone: trimmed, or with its topic. Option failOnDataLoss=false reads on."""


class NoSpace(HoldfastError, OSError):
    """The file system cannot hold the segment; nothing was made."""


class Denied(HoldfastError, PermissionError):
    """Permissions, ownership, or a link where a file should be; a role that may not do this."""


class AuthenticationFailed(Denied):
    """Who asks did not prove who they are. The text can be told to anybody: there is no secret in it."""


class TooManyConnections(HoldfastError):
    """The server has as many connections, in all or from this address, as its configuration allows."""


class LimitReached(HoldfastError):
    """The server's configuration allows no more of this: the text names the setting and the limit."""


class BadConfiguration(HoldfastError, ValueError):
    """A setting that cannot be: the text names its key, where it stands, and what would be right."""


class Locked(HoldfastError):
    """Another process holds the data directory; `pid` and the text name it."""


class Stale(HoldfastError):
    """The segment is from before the last boot, and nothing vouches for its bytes."""


class TooManyParticipants(HoldfastError):
    """Every slot of the segment is held by a living process."""


class Unsupported(HoldfastError):
    """This file system or kernel cannot give what is needed."""


class NoQuorum(HoldfastError):
    """There is no majority to order the event: wait for a quorate view, then submit it again."""


class CursorModifying(HoldfastError):
    """A read was refused because its cursor is being reset; a change, because another came before it."""

    number: int | None = None
    """For a refused change: the cursor's reset number now."""


class Outdated(HoldfastError):
    """An acknowledgement from before a reset: it changes nothing; the reset decided what comes again."""


class Busy(HoldfastError):
    """Somebody is attached who does not share: detach it, wait for it, or force."""


class Fenced(HoldfastError):
    """A newer producer has taken over, or this one's session has ended: open it again if it should go on."""


class Terminated(HoldfastError):
    """The topic was terminated: what it holds can be read, nothing more can be published."""


__all__ = [
    "AuthenticationFailed",
    "BadConfiguration",
    "Busy",
    "Closed",
    "Corrupt",
    "CursorModifying",
    "DataLoss",
    "Denied",
    "Empty",
    "Exists",
    "Fenced",
    "Full",
    "HoldfastError",
    "LayoutMismatch",
    "LimitReached",
    "Locked",
    "Misuse",
    "NoQuorum",
    "NoSpace",
    "NotFound",
    "Outdated",
    "PeerDied",
    "Stale",
    "Terminated",
    "Timeout",
    "TooManyConnections",
    "TooManyParticipants",
    "Unsupported",
]
