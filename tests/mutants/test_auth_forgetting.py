"""Servers that forget one authorization: the checks of every path and command must notice."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.http.server import ROUTES
from tests.kit import served as served_by
from tests.kit.served import Served
from tests.kit.server import auth_everywhere

B = pb.BaseCommand
Check = Callable[[Served], None]


@dataclass(frozen=True)
class Forgetful:
    """A mutant: the text that runs before the server starts, and the checks that notice."""

    mistake: str
    checks: tuple[Check, ...]
    """Each of them must notice."""


def commands(kinds: Iterable[int]) -> tuple[Check, ...]:
    return tuple(functools.partial(auth_everywhere.command_asks, kind) for kind in kinds)


def paths() -> tuple[Check, ...]:
    """Return the checks of paths that only read: a deleted topic would spoil the next."""
    looking = [route for route in ROUTES if route.method == "GET" and route.path not in auth_everywhere.KNOWN]
    return tuple(
        functools.partial(auth_everywhere.path_asks, route)
        for route in looking
        if route.action not in ("health", "describe")
    )


STAGES = (B.STAGE_OPEN, B.STAGE_CLOSE, B.STAGE_DROP)

SERVERS = {
    "no command asks": Forgetful(
        "from holdfast.server.pulsar.connection import Connection\n"
        "Connection.authorize = lambda *_, **__: None\n",
        commands(sorted(auth_everywhere.ASKING)),
    ),
    "no path asks": Forgetful(
        "from holdfast.server.auth.access import Access\nAccess._allows_http = lambda *_: True\n", paths()
    ),
    "stages need no grant": Forgetful(
        "from holdfast.server.auth.authorization import Authorizer\n"
        "Authorizer.allows_somewhere = lambda *_: True\n",
        commands(STAGES),
    ),
    "clients behind a proxy are ignored": Forgetful(
        "from holdfast.server.pulsar.connection import Connection\n"
        "def authorize(self, action, name, subscription='', behind=''):\n"
        "    self.options.authorize(self.role, action, name, subscription)\n"
        "Connection.authorize = authorize\n",
        (functools.partial(auth_everywhere.proxy_is_asked, "stranger"),),
    ),
    "clients behind a proxy of HTTP are ignored": Forgetful(
        "from holdfast.server.auth import access\naccess.ORIGINAL_PRINCIPAL = 'X-Other'\n",
        (auth_everywhere.proxy_is_asked_over_http,),
    ),
    "errors are shown before authentication": Forgetful(
        "from holdfast.server.http import server\n"
        "async def call(self, route, request):\n"
        "    return server.Call(self, route, request)\n"
        "server.HttpServer._call = call\n",
        tuple(
            functools.partial(auth_everywhere.stranger_is_not_told_what_is_wrong, route)
            for route in auth_everywhere.NAMING
            if "{tenant}" in route.path
        ),
    ),
}


@pytest.fixture
def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    program = tmp_path / "holdfast"
    text = f"#!{sys.executable}\nimport sys\nfrom holdfast.cli import main\n{request.param}sys.exit(main())\n"
    program.write_text(text)
    program.chmod(0o700)
    monkeypatch.setattr(served_by, "COMMAND", str(program))
    with auth_everywhere.granting(tmp_path) as server:
        yield server


@pytest.mark.parametrize(
    ("server", "checks"),
    [(each.mistake, each.checks) for each in SERVERS.values()],
    ids=SERVERS,
    indirect=["server"],
)
def test_who_forgets_is_noticed(server: Served, checks: tuple[Check, ...]) -> None:
    assert checks
    for check in checks:
        with pytest.raises((AssertionError, ValueError)):
            check(server)
