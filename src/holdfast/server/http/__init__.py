"""HTTP: administration, lookup, metrics and health, at the paths of Pulsar.

Promises upward: a change that is answered with success is durable. A refusal says why, and what to do. A
request costs a bounded amount of memory and time. Needs from below: a broker, and the server of the binary
protocol, if any, for its address and its connections.
"""

from holdfast.server.http.server import HttpServer
from holdfast.server.http.setup import Authorize, HttpAction, HttpOptions

__all__ = ["Authorize", "HttpAction", "HttpOptions", "HttpServer"]
