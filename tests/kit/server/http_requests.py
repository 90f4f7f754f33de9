"""Requests and their expected answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.kit.server.http_world import Answer, HttpWorld, T


@dataclass(frozen=True)
class Request:
    """A request and its expected answer. A path without `/` follows a topic's."""

    path: str
    status: int = 204
    json: Any = None
    method: str | None = None
    """Another than the route's."""
    expect: Any = None
    """The JSON, or part of the text of a refusal, or a question to the answer."""

    def ask(self, world: HttpWorld, method: str, topic: str) -> None:
        between = "" if self.path[:1] in ("", "?") else "/"
        path = self.path if self.path.startswith("/") else topic + between + self.path
        more = {} if self.json is None else {"json": self.json}
        found = world.ask(self.method or method, path, **more)
        assert found.status == self.status, (path, found)
        if found.status == 204:
            assert found.body == b""
        elif found.status >= 400:
            assert (self.expect or "") in found.reason, found
            assert found.headers["Content-Type"].startswith("application/json")
        if callable(self.expect):
            assert self.expect(found), found
        elif self.expect is not None and found.status == 200:
            assert found.json == self.expect, found


def has(*keys: str) -> Callable[[Answer], bool]:
    """The answer has these fields."""
    return lambda answer: set(keys) <= set(answer.json)


def says(text: str) -> Callable[[Answer], bool]:
    return lambda answer: text in answer.body.decode()


def absent(path: str, status: int = 404, expect: str = "no topic", **more: Any) -> Request:
    """The same of a topic that is not there."""
    return Request(f"{T}/absent" + (f"/{path}" if path else ""), status, expect=expect, **more)
