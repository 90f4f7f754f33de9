"""Answer refusals as JSON: a reason, and a status that Pulsar's tools know.

- 400: the JSON or the query cannot be parsed.
- 401: the credentials are missing or invalid. 403: no grant allows the action.
- 404: the topic, subscription, namespace or message does not exist.
- 405: the topic is partitioned, and the request needs a single topic.
- 409: the object exists already, a client prevents the change, or a reset is in progress.
- 422: a topic cannot have so few partitions, or the definition of a schema is not valid.
- 412: a name or position is invalid, a topic or subscription is in use, or a limit is reached.
- 413: the body is too large.
- 501: the feature is not built, or not enabled in this server.
- 503: the broker's disk is full, it stops, or too many requests are in progress.
- 504: the request took too long; it may have taken effect.
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
    errors.BadSchema: 422,
    errors.Exists: 409,
    errors.IncompatibleSchema: 409,
    errors.Busy: 409,
    errors.CursorModifying: 409,
    errors.Terminated: 409,
    errors.LimitReached: 412,
    errors.Misuse: 412,
    errors.Unsupported: 412,
    errors.Unannounced: 503,
    errors.Timeout: 504,
    TimeoutError: 504,
    errors.QuotaExceeded: 409,
    errors.NoSpace: 503,
    errors.NoQuorum: 503,
    errors.Closed: 503,
    errors.TooManyConnections: 503,
}


class Reason(msgspec.Struct):
    """The reason of a refusal, and what to do."""

    reason: str


class Refusal(Exception):
    """A request is answered with an error status."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = dict(headers or {})

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(Reason(str(self)))

    def plain(self) -> bytes:
        """Return the whole answer, for a connection whose request is not read."""
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
    """Return the refusal for an error; None: a bug or damage.

    `special` statuses take precedence.
    """
    for kind in type(error).__mro__:
        status = (special or {}).get(kind, STATUSES.get(kind))
        if status is not None:
            text = str(error) or "the request took too long, and may have taken effect; check, then retry"
            return Refusal(status, text, {"Retry-After": "1"} if status == 503 else None)
    return None
