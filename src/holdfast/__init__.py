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
    Closed,
    Corrupt,
    CursorModifying,
    Denied,
    Empty,
    Exists,
    Full,
    HoldfastError,
    LayoutMismatch,
    Locked,
    Misuse,
    NoQuorum,
    NoSpace,
    NotFound,
    PeerDied,
    Stale,
    Timeout,
    TooManyParticipants,
    Unsupported,
)
from holdfast.memory import Holder, Message, Messages, Participant, Queue, QueueStats, Recovered

__version__ = "0.1.0"

__all__ = [
    "Closed",
    "Corrupt",
    "CursorModifying",
    "Denied",
    "Empty",
    "Exists",
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
    "Participant",
    "PeerDied",
    "Queue",
    "QueueStats",
    "Recovered",
    "Stale",
    "Timeout",
    "TooManyParticipants",
    "Unsupported",
    "__version__",
]
