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
    """The base of every error that holdfast raises on purpose."""

    pid: int | None = None
    """The process that holds what this call waits for; None if no process does."""

    done: int = 0
    """For `put_many`: how many messages were put before this error."""

    executed: bool | None = None
    """For a call of a service that has no answer: False if it did not and will not run, else None."""


class Timeout(HoldfastError, TimeoutError):
    """The time of a waiting call ran out.

    A put found no room, or a get found no message. The text names the process that the call waited for.
    """


class Full(HoldfastError, queue.Full):
    """A put with `timeout=0` found no room.

    Of a service: its samples do not allow another subscriber or loan.
    """


class Empty(HoldfastError, queue.Empty):
    """A get with `timeout=0` found no message."""


class Closed(HoldfastError):
    """The queue, client or group is closed.

    A put stored nothing. For a get of a queue, every message was delivered and settled.
    """


class PeerDied(HoldfastError):
    """The process that was to answer has died, or is not there.

    `executed` is False if the call of a service did not run.
    """


class Refused(HoldfastError):
    """The provider of a service refused a call or a value; the text says why."""


class Corrupt(HoldfastError):
    """Bytes were found that no participant can have written.

    A damaged message is set aside, and the next call goes on. After damage to a control word the queue must
    be created again.
    """


class BadSchema(HoldfastError):
    """The definition of a schema is not valid for its type, or is too large."""


class IncompatibleSchema(HoldfastError):
    """A schema does not fit those of its topic.

    The text names the strategy and the field.
    """


class LayoutMismatch(HoldfastError):
    """The segment is from another version of the library, or has other parameters."""


class Misuse(HoldfastError):
    """The call is wrong: a bad argument, a large message, use after detach or fork."""


class Exists(HoldfastError, FileExistsError):
    """A segment, topic or subscription of that name exists already."""


class NotFound(HoldfastError, FileNotFoundError):
    """A segment, topic, subscription or message of that name does not exist."""


class DataLoss(NotFound):
    """Entries to read were trimmed, or deleted with their topic.

    With the option `failOnDataLoss=false` the source reads on behind them.
    """


class NoSpace(HoldfastError, OSError):
    """The file system cannot hold the segment; nothing was created."""


class Denied(HoldfastError, PermissionError):
    """Access was denied, by a file's permissions or owner, or by a role's grants.

    A link in the place of a file is denied, too.
    """


class AuthenticationFailed(Denied):
    """The client did not prove its identity. The text holds no secret."""


class TooManyConnections(HoldfastError):
    """The server has its largest number of connections, in all or from this address."""


class LimitReached(HoldfastError):
    """A limit of the server's settings is reached; the text names setting and limit."""


class QuotaExceeded(HoldfastError):
    """The backlog of a topic exceeds its quota, so producers are refused.

    Producers can open again when the backlog is below the quota.
    """


class QuotaHold(QuotaExceeded):
    """The same, for a quota that lets producers wait: open again later."""


class BadConfiguration(HoldfastError, ValueError):
    """A setting is not valid; the text names its key, its source and valid values."""


class Locked(HoldfastError):
    """Another process holds the data directory; `pid` and the text name it."""


class Stale(HoldfastError):
    """The segment is from before the last boot, so its bytes may be incomplete."""


class TooManyParticipants(HoldfastError):
    """A living process holds each slot of the segment."""


class Unsupported(HoldfastError):
    """The file system, kernel or broker does not have a feature that the call needs."""


class Unannounced(Unsupported):
    """A joining member has not told yet what it knows; submit again soon."""


class NoQuorum(HoldfastError):
    """The view has no majority to order events; submit again in a quorate view."""


class CursorModifying(HoldfastError):
    """The cursor is being reset, or another change of the cursor came first.

    A read is refused while the cursor is being reset. A change is refused after another change.
    """

    number: int | None = None
    """For a refused change: the cursor's reset number now."""


class Outdated(HoldfastError):
    """The acknowledgement is from before a reset and changes nothing.

    The reset decided which entries are delivered again. Of a batch that reads a compacted view: the view was
    removed after the plan.
    """


class Busy(HoldfastError):
    """An attached producer or consumer does not share: close it, wait, or force."""


class Fenced(HoldfastError):
    """A newer producer has taken over, or the producer's session has ended.

    To go on, open the producer again.
    """


class Terminated(HoldfastError):
    """The topic was terminated: its entries can be read, but nothing can be published."""


__all__ = [
    "AuthenticationFailed",
    "BadConfiguration",
    "BadSchema",
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
    "IncompatibleSchema",
    "LayoutMismatch",
    "LimitReached",
    "Locked",
    "Misuse",
    "NoQuorum",
    "NoSpace",
    "NotFound",
    "Outdated",
    "PeerDied",
    "QuotaExceeded",
    "QuotaHold",
    "Refused",
    "Stale",
    "Terminated",
    "Timeout",
    "TooManyConnections",
    "TooManyParticipants",
    "Unannounced",
    "Unsupported",
]
