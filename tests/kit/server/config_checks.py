"""Checks of the configuration, for tests and for their mutants."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from holdfast.errors import BadConfiguration
from holdfast.server.config import Secret
from holdfast.server.settings import Settings, _locate, as_toml, load

SECRET = "a secret that no log may show, 32 bytes long"


def read(text: str, directory: Path, environment: dict[str, str] | None = None, *flags: str) -> Settings:
    file = directory / "holdfast.toml"
    file.write_text(text)
    return load(file, environment or {}, [("--set", *flag.split("=", 1)) for flag in flags])  # type: ignore[misc]


def refused(text: str, directory: Path, environment: dict[str, str] | None = None, *flags: str) -> list[str]:
    with pytest.raises(BadConfiguration) as caught:
        read(text, directory, environment, *flags)
    return str(caught.value).replace(f"{directory}/", "").splitlines()


def flag_wins_over_variable_over_file(tmp_path: Path) -> None:
    text = "[listen]\nport = 1\ntls_port = 2\nhttp_port = 3\n[tls]\ncertificate = 'c'\nkey = 'k'\n"
    variables = {"HOLDFAST_LISTEN_TLS_PORT": "22", "HOLDFAST_LISTEN_HTTP_PORT": "33"}
    found = read(text, tmp_path, variables, "listen.http_port=333")
    listen = found.config.listen
    assert (listen.port, listen.tls_port, listen.http_port) == (1, 22, 333)
    assert found.origin("listen.port") == f"{tmp_path}/holdfast.toml:2"
    assert found.origin("listen.tls_port") == "$HOLDFAST_LISTEN_TLS_PORT"
    assert found.origin("listen.http_port") == "--set"
    assert found.origin("listen.https_port") == "default"


LINES = '''\
# Everything that can stand in a file, and where it is.
data = "a" # one

[listen] # two
"host" = """\
127.0.0.1"""
port = 1

[[authorization.grants]]
roles = [
  "a", # [[not.a.table]]
  "b",
]
on = 'x'
allow = ["produce"]

[[ authorization . "grants" ]]
roles = ["c"]
on = "y"
allow = ["produce"]

[limits]
connections = 1_000

[authentication]
methods = ["token"]
token = { role_claim = "sub", secret_file = "x" }

[log]
level = "info"
'''


def every_key_is_found_where_it_stands() -> None:
    wanted: dict[tuple[str | int, ...], int] = {
        ("data",): 2,
        ("listen",): 4,
        ("listen", "host"): 5,
        ("listen", "port"): 6,
        ("authorization", "grants"): 8,
        ("authorization", "grants", 0): 8,
        ("authorization", "grants", 0, "roles"): 9,
        ("authorization", "grants", 0, "on"): 13,
        ("authorization", "grants", 1): 16,
        ("authorization", "grants", 1, "on"): 18,
        ("limits", "connections"): 22,
        ("authentication", "token", "secret_file"): 26,
        ("log", "level"): 29,
        ("nowhere",): 1,
    }
    assert tomllib.loads(LINES)["listen"] == {"host": "127.0.0.1", "port": 1}
    assert _locate(LINES, set(wanted)) == wanted


def an_empty_variable_does_not_open_every_network(tmp_path: Path) -> None:
    """Refuse `HOLDFAST_LISTEN_HOST=$ADDRESS` if the shell has not set $ADDRESS."""
    (told,) = refused("", tmp_path, {"HOLDFAST_LISTEN_HOST": ""})
    assert told.startswith("$HOLDFAST_LISTEN_HOST: listen.host: is empty")


def keys_that_nobody_asks_for(tmp_path: Path) -> None:
    """Refuse keys without their method: the operator did not mean to let all clients in."""
    (told,) = refused("[authentication]\ntoken.secret_file = 'a'\nmethods = []\n", tmp_path)
    assert "authentication.methods does not name token" in told


def secrets_are_not_shown(tmp_path: Path) -> None:
    found = read(f"[authentication]\nmethods = ['token']\ntoken.secret = '{SECRET}'\n", tmp_path)
    assert found.config.authentication.token.secret == Secret(SECRET)
    assert SECRET not in repr(found) + str(found.config.authentication.token.secret) + as_toml(found)
    assert "# secret is set, and not shown" in as_toml(found)
