"""holdfast: messaging that does not lose its grip.

`Queue` hands messages between processes through shared memory. `Broker` keeps them on disk, in topics with
subscriptions. `Producer` publishes to a server on this machine through shared memory. `Client` writes to many
topics at once, exactly once. Their errors are in `holdfast.errors`.

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

from typing import TYPE_CHECKING

from holdfast.errors import (
    AuthenticationFailed,
    BadConfiguration,
    Busy,
    Closed,
    Corrupt,
    CursorModifying,
    DataLoss,
    Denied,
    Empty,
    Exists,
    Fenced,
    Full,
    HoldfastError,
    LayoutMismatch,
    LimitReached,
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
    TooManyConnections,
    TooManyParticipants,
    Unsupported,
)
from holdfast.ids import EARLIEST, LATEST, MessageId
from holdfast.memory import Holder, Message, Messages, Participant, Queue, QueueStats, Recovered

if TYPE_CHECKING:
    from holdfast.broker import Broker, BrokerOptions
    from holdfast.client import Client
    from holdfast.local import Producer

__version__ = "0.1.0"


if not TYPE_CHECKING:  # or every name would be one of the module's

    def __getattr__(name: str) -> object:
        """Load the broker on first use, so that programs with queues alone start fast."""
        if name in ("Broker", "BrokerOptions"):
            import holdfast.broker

            return getattr(holdfast.broker, name)
        if name == "Client":
            import holdfast.client

            return holdfast.client.Client
        if name == "Producer":
            import holdfast.local

            return holdfast.local.Producer
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


__all__ = [
    "EARLIEST",
    "LATEST",
    "AuthenticationFailed",
    "BadConfiguration",
    "Broker",
    "BrokerOptions",
    "Busy",
    "Client",
    "Closed",
    "Corrupt",
    "CursorModifying",
    "DataLoss",
    "Denied",
    "Empty",
    "Exists",
    "Fenced",
    "Full",
    "Holder",
    "HoldfastError",
    "LayoutMismatch",
    "LimitReached",
    "Locked",
    "Message",
    "MessageId",
    "Messages",
    "Misuse",
    "NoQuorum",
    "NoSpace",
    "NotFound",
    "Outdated",
    "Participant",
    "PeerDied",
    "Producer",
    "Queue",
    "QueueStats",
    "Recovered",
    "Stale",
    "Terminated",
    "Timeout",
    "TooManyConnections",
    "TooManyParticipants",
    "Unsupported",
    "__version__",
]
