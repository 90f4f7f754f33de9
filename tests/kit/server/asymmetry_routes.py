"""Measure what a request over HTTP costs, with a path for each route."""

from __future__ import annotations

import re
import socket
import threading
import time

from holdfast.server.http.routing import Route
from tests.kit.server.asymmetry import PATIENCE_S, Cost, Counting, Population, quiet, read_some, send_all

PARTS = {"tenant": "public", "namespace": "default", "topic": "t", "subscription": "s"}
PARTS |= {"cluster": "standalone", "ledger": "1", "entry": "1", "timestamp": "1", "seconds": "1"}
PARTS |= {"bundle": "0x00000000_0xffffffff", "setting": "broker.roll_entries", "value": "1048576"}
PARTS |= {"role": "someone", "key": "k"}
PARTS |= {"version": "0", "count": "1", "position": "1", "exchange": "x", "node": "1"}
ROUTES_PIPELINED = 20
UNTOUCHED: tuple[str, ...] = ("DELETE", "/unload", "/terminate", "/truncate", "/purge", "/drain", "/take")
UNTOUCHED += ("/clearBacklog", "/unsubscribe", "/all_subscription")
"""Routes that would delete what other rows need: they are tried on a topic that does not exist."""


def route_path(route: Route) -> str:
    """Return a path that the route serves."""
    parts = dict(PARTS)
    if any(word in f"{route.method} {route.path}" for word in UNTOUCHED):
        parts |= {"topic": "gone", "namespace": "gone", "tenant": "gone"}
    return re.sub(r"{(\w+)}", lambda found: parts[found[1]], route.path)


def route_request(route: Route, body: bytes) -> bytes:
    head = f"{route.method} {route_path(route)} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


def cost_of_route(population: Population, request: bytes, count: int) -> Cost:
    """Return the cost of `count` pipelined requests of a client that reads later."""
    world, answered, most = population.world, 0, 0
    before = world.budget.held

    def look() -> None:
        nonlocal most
        transports = [each._transport for each in list(world.http.connections.values())]
        waiting = sum(0 if each is None else each.get_write_buffer_size() for each in transports)
        most = max(most, waiting + world.budget.held - before)

    def read() -> None:
        nonlocal answered
        answered += read_some(channel)

    with socket.create_connection(("127.0.0.1", world.http.port or 0), timeout=0.05) as channel:
        population.rest()
        served = world.http.requests
        with Counting(world) as meter:
            sending = threading.Thread(target=send_all, args=(channel, request * count), daemon=True)
            sending.start()
            quiet(meter, look)
            limit = time.monotonic() + PATIENCE_S
            while world.http.requests < served + count and world.http.connections:
                assert time.monotonic() < limit, "not everything is answered"
                read()
            quiet(meter, read)
    return Cost(count, len(request) * count, meter.steps, answered, most)
