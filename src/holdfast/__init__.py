"""holdfast: messaging that does not lose its grip.

Example:
    >>> import holdfast
    >>> q = holdfast.Queue.create("greetings", capacity=1 << 20)
    >>> q.put(b"hello")
    >>> with q.get(timeout=1.0) as message:
    ...     bytes(message.data)
    b'hello'
    >>> q.detach()
    >>> holdfast.Queue.unlink("greetings")
"""

from holdfast.errors import (
    Busy,
    Closed,
    Corrupt,
    CursorModifying,
    Denied,
    Empty,
    Exists,
    Fenced,
    Full,
    HoldfastError,
    LayoutMismatch,
    Locked,
    Misuse,
    NoQuorum,
    NoSpace,
    NotFound,
    Outdated,
    PeerDied,
    Stale,
    Terminated,
    Timeout,
    TooManyParticipants,
    Unsupported,
)
from holdfast.memory import Holder, Message, Messages, Participant, Queue, QueueStats, Recovered

__version__ = "0.1.0"

__all__ = [
    "Busy",
    "Closed",
    "Corrupt",
    "CursorModifying",
    "Denied",
    "Empty",
    "Exists",
    "Fenced",
    "Full",
    "Holder",
    "HoldfastError",
    "LayoutMismatch",
    "Locked",
    "Message",
    "Messages",
    "Misuse",
    "NoQuorum",
    "NoSpace",
    "NotFound",
    "Outdated",
    "Participant",
    "PeerDied",
    "Queue",
    "QueueStats",
    "Recovered",
    "Stale",
    "Terminated",
    "Timeout",
    "TooManyParticipants",
    "Unsupported",
    "__version__",
]
