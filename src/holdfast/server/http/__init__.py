"""HTTP: administration, lookup, metrics and health, at the paths of Pulsar.

Promises upward: what is answered with success is durable; what is refused says why, and what to do; a request
costs a bounded amount of memory and time. Needs from below: a broker, and the server of the binary protocol
if there is one, to tell where it is and who is connected.
"""

from holdfast.server.http.options import Authorize, HttpAction, HttpOptions
from holdfast.server.http.server import HttpServer

__all__ = ["Authorize", "HttpAction", "HttpOptions", "HttpServer"]
