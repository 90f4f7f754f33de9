"""Checks of logs, for tests and for their mutants."""

from __future__ import annotations

import base64
import io
from typing import Any

import jwt

from holdfast.server.logs import Log, logging_to, masked

SECRET = "0123456789abcdef0123456789abcdef"


TOKEN = jwt.encode({"sub": "billing"}, SECRET)


def logged(style: Any, work: Any) -> list[str]:
    stream = io.StringIO()
    with logging_to(stream, "info", style):
        work(Log("holdfast.test"))
    return stream.getvalue().splitlines()


def a_line_is_one_line() -> None:
    """A client's text cannot look like a line of the server's own."""

    def work(log: Log) -> None:
        log.warning("topic a\n2026-01-01T00:00:00Z info forged", role="x\ny z=1")

    for style in ("text", "json"):
        [line] = logged(style, work)
        assert "\\" in line


def what_looks_like_a_secret_does_not_get_out(text: str) -> None:
    """I112."""
    secrets = [TOKEN.split(".")[2], SECRET, base64.b64encode(b"anna:sesame-and-more").decode()]
    assert not any(secret in masked(f"refused {text}, closed") for secret in secrets)

    def work(log: Log) -> None:
        log.info(text, field=text)

    for style in ("text", "json"):
        assert not any(secret in "".join(logged(style, work)) for secret in secrets)
