"""The server: a broker on the network, for the official Pulsar clients.

Promises upward: the official clients connect, publish, subscribe, acknowledge, seek and read as they do with
Pulsar. An answer to a client is a promise of the broker. A slow, silent or hostile client costs the others
nothing. Needs from below: a `Broker`, and the core for all work per message.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.server.pulsar.listener import Server
    from holdfast.server.pulsar.setup import Advertised, Credentials, Identity, ServerOptions

__all__ = ["Advertised", "Credentials", "Identity", "Server", "ServerOptions"]


def __getattr__(name: str) -> object:
    """Import a name at its first use, so that programs load only what they need."""
    if name not in __all__:
        raise AttributeError(f"module 'holdfast.server' has no attribute {name!r}")
    module = "holdfast.server.pulsar.listener" if name == "Server" else "holdfast.server.pulsar.setup"
    return getattr(import_module(module), name)
