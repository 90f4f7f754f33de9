"""The server: a broker on the network, for Pulsar's clients as they are.

Promises upward: the official clients connect, publish, subscribe, acknowledge, seek and read as they do with
Pulsar; what they are told is what the broker promises; a client that is slow, silent or hostile costs the
others nothing. Needs from below: a `Broker`, and the core for everything that is done per message.
"""

from holdfast.wire.options import Advertised, Credentials, Identity, ServerOptions
from holdfast.wire.server import Server

__all__ = ["Advertised", "Credentials", "Identity", "Server", "ServerOptions"]
