"""Refusals: a status and a reason, as JSON. The statuses are those that Pulsar's tools know.

| status | when |
|---|---|
| 400 | the request cannot be read: its JSON, its query |
| 401, 403 | who is it; it may not |
| 404 | there is no such topic, subscription, namespace, message |
| 409 | it is there already; somebody is in the way; a reset is under way |
| 412 | a name or a position that cannot be; a topic or subscription that is in use; a limit of the settings |
| 413 | too large a body |
| 503 | the broker cannot confirm anything now: its disk is full, it stops, too many requests |
| 504 | it took too long: whether it happened is not known |
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web

from holdfast import errors

Statuses = Mapping[type[Exception], int]

STATUSES: dict[type[Exception], int] = {
    errors.AuthenticationFailed: 401,
    errors.Denied: 403,
    errors.NotFound: 404,
    errors.Exists: 409,
    errors.Busy: 409,
    errors.CursorModifying: 409,
    errors.Terminated: 409,
    errors.LimitReached: 412,
    errors.Misuse: 412,
    errors.Unsupported: 412,
    errors.Timeout: 504,
    TimeoutError: 504,
    errors.NoSpace: 503,
    errors.NoQuorum: 503,
    errors.Closed: 503,
    errors.TooManyConnections: 503,
}


class Reason(msgspec.Struct):
    """Why something was refused, and what to do."""

    reason: str


class Refusal(Exception):
    """A request that is answered with a status other than those of success."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(Reason(str(self)))

    def plain(self) -> bytes:
        """The whole answer, for somebody whose request is not read."""
        head = f"HTTP/1.1 {self.status} Refused\r\nContent-Type: application/json\r\nConnection: close\r\n"
        return f"{head}Content-Length: {len(self.body)}\r\n\r\n".encode() + self.body

    def response(self) -> web.Response:
        return web.Response(
            body=self.body,
            status=self.status,
            headers=self.headers,
            content_type="application/json",
        )


def refusal_of(error: Exception, special: Statuses | None = None) -> Refusal | None:
    """The refusal that an error stands for; None: it is a mistake of this program, or damage.

    `special` statuses go before the usual ones.
    """
    for kind in type(error).__mro__:
        status = (special or {}).get(kind, STATUSES.get(kind))
        if status is not None:
            text = str(error) or "it took too long; whether it happened is not known: look, then ask again"
            return Refusal(status, text, {"Retry-After": "1"} if status == 503 else None)
    return None
