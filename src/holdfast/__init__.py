"""holdfast: messaging that does not lose its grip.

`Queue` hands messages between processes through shared memory. `Channel` hands over buffers of live data; the
newest data always get in. `Loop` is a channel whose buffers come back through a ring. `Service` gives many
consumers the events, fields and methods of one provider. `Broker` keeps messages on disk, in topics with
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
    BadSchema,
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
    IncompatibleSchema,
    LayoutMismatch,
    LimitReached,
    Locked,
    Misuse,
    NoQuorum,
    NoSpace,
    NotFound,
    Outdated,
    PeerDied,
    Refused,
    Stale,
    Terminated,
    Timeout,
    TooManyConnections,
    TooManyParticipants,
    Unsupported,
)
from holdfast.ids import EARLIEST, LATEST, MessageId
from holdfast.memory import (
    Channel,
    ChannelConsumer,
    ChannelProducer,
    ChannelStats,
    Displaced,
    Handle,
    Holder,
    Item,
    Loan,
    Loop,
    Message,
    Messages,
    Participant,
    Pushed,
    Queue,
    QueueStats,
    Recovered,
)

if TYPE_CHECKING:
    from holdfast.broker import Broker, BrokerOptions
    from holdfast.client import Client
    from holdfast.local import Producer
    from holdfast.memory.service import (
        Departed,
        Event,
        Field,
        Method,
        Proxy,
        Service,
        ServiceStats,
        Skeleton,
        Subscription,
    )

__version__ = "0.1.0"
_SERVICE = frozenset(
    ("Departed", "Event", "Field", "Method", "Proxy", "Service", "ServiceStats", "Skeleton", "Subscription")
)


if not TYPE_CHECKING:  # or every name would be one of the module's

    def __getattr__(name: str) -> object:
        """Load broker and services on first use, so that programs with queues start fast."""
        if name in _SERVICE:
            import holdfast.memory.service

            return getattr(holdfast.memory.service, name)
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
    "BadSchema",
    "Broker",
    "BrokerOptions",
    "Busy",
    "Channel",
    "ChannelConsumer",
    "ChannelProducer",
    "ChannelStats",
    "Client",
    "Closed",
    "Corrupt",
    "CursorModifying",
    "DataLoss",
    "Denied",
    "Departed",
    "Displaced",
    "Empty",
    "Event",
    "Exists",
    "Fenced",
    "Field",
    "Full",
    "Handle",
    "Holder",
    "HoldfastError",
    "IncompatibleSchema",
    "Item",
    "LayoutMismatch",
    "LimitReached",
    "Loan",
    "Locked",
    "Loop",
    "Message",
    "MessageId",
    "Messages",
    "Method",
    "Misuse",
    "NoQuorum",
    "NoSpace",
    "NotFound",
    "Outdated",
    "Participant",
    "PeerDied",
    "Producer",
    "Proxy",
    "Pushed",
    "Queue",
    "QueueStats",
    "Recovered",
    "Refused",
    "Service",
    "ServiceStats",
    "Skeleton",
    "Stale",
    "Subscription",
    "Terminated",
    "Timeout",
    "TooManyConnections",
    "TooManyParticipants",
    "Unsupported",
    "__version__",
]
