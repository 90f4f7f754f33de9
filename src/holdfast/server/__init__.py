"""The server: a broker on the network, for the official Pulsar clients.

Promises upward: the official clients connect, publish, subscribe, acknowledge, seek and read as they do with
Pulsar; what they are told is what the broker promises; a client that is slow, silent or hostile costs the
others nothing. Needs from below: a `Broker`, and the core for everything that is done per message.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.server.pulsar.listener import Server
    from holdfast.server.pulsar.options import Advertised, Credentials, Identity, ServerOptions

__all__ = ["Advertised", "Credentials", "Identity", "Server", "ServerOptions"]


def __getattr__(name: str) -> object:
    """Loaded when it is asked for: who needs a small part of this layer does not wait for the rest."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.server' has no attribute {name!r}")
    module = "holdfast.server.pulsar.listener" if name == "Server" else "holdfast.server.pulsar.options"
    return getattr(import_module(module), name)
