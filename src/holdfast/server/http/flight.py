"""Where whole topics are read over the network."""

from __future__ import annotations

from holdfast.errors import Unsupported
from holdfast.server.http.answers import FlightAnswer
from holdfast.server.http.routing import Call, Routes
from holdfast.server.listening import bracketed

route = Routes("flight", "/holdfast/v1", "broker", action="consume")


@route("GET", "/flight", answer=FlightAnswer, statuses={Unsupported: 404})
async def flight(call: Call) -> FlightAnswer:
    """Where Arrow Flight listens; it does so from now on, if it did not before. For whoever may consume from
    some topic; the credentials of this request are to be shown there, too. 404: this server has none, and
    why."""
    found = call.server.options.flight
    if found is None:
        raise Unsupported("Flight is switched off here; set flight.enabled, and restart the server")
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
