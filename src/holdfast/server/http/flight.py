"""Return the address of Arrow Flight, for reads of whole topics."""

from __future__ import annotations

from holdfast.errors import Unsupported
from holdfast.server.http.answers import FlightAnswer
from holdfast.server.http.routing import Call, Routes
from holdfast.server.listening import bracketed

route = Routes("flight", "/holdfast/v1", "broker", action="consume")


@route("GET", "/flight", answer=FlightAnswer, statuses={Unsupported: 404})
async def flight(call: Call) -> FlightAnswer:
    """Return the address of Arrow Flight, and start it if necessary.

    For roles that may consume from some topic. Flight needs the same credentials. 404: Flight is not
    available, with the reason."""
    found = call.server.options.flight
    if found is None:
        raise Unsupported("Flight is disabled; set flight.enabled, and restart the server")
    secure = call.request.scheme == "https"
    port = await found.port(secure)
    host = found.host or call.request.url.host or "127.0.0.1"
    host = bracketed(host)
    here = call.server.addresses(call.request)
    return FlightAnswer(
        url=f"{'grpc+tls' if secure else 'grpc'}://{host}:{port}",
        broker_url=here.broker_url,
        broker_url_tls=here.broker_url_tls,
    )
