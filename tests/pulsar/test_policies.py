"""Policies of topics, subscriptions and roles, as programs with the official client meet them."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from tests.kit import KIT, module_command
from tests.kit.served import Served, served
from tests.kit.server.auth_world import SECRET
from tests.kit.server.wire_raw import Raw

LIVES = """
[broker]
housekeeping_s = 0.2
subscription_expiry_s = 1.0
roll_entries = 10
"""
ROLES = """
[broker]
housekeeping_s = 0.2

[authentication]
methods = ["token"]

[authentication.token]
secret_file = "secret"

[authorization]
enabled = true
superusers = ["root"]
"""
PROGRAM_S = 60.0


def run(server: Served, name: str) -> None:
    """Run a program of tests/kit/server/policy_programs.py to its end."""
    command = module_command(KIT / "server/policy_programs.py")
    ended = subprocess.run(
        [*command, name, server.url, server.http_url],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}{ended.stderr[-3000:]}{server.logs()[-3000:]}"


def config(directory: Path, text: str) -> str:
    (directory / "secret").write_text(SECRET)
    (directory / "secret").chmod(0o600)
    (directory / "holdfast.toml").write_text(text)
    return str(directory / "holdfast.toml")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on which subscriptions expire after a second, with small ledgers."""
    directory = tmp_path_factory.mktemp("lives")
    with served(directory / "data", "--config", config(directory, LIVES), http=True) as server:
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with roles, and without grants in its configuration."""
    directory = tmp_path_factory.mktemp("roles")
    with served(directory / "data", "--config", config(directory, ROLES), http=True) as server:
        yield server


@pytest.mark.parametrize("program", ["expiry_of_subscriptions", "inactive_topics"])
def test_lives(server: Served, program: str) -> None:
    run(server, program)


@pytest.mark.parametrize("program", ["retention", "time_to_live"])
def test_what_stays(server: Served, program: str) -> None:
    """Effects on messages, and the errors of requests that make no sense."""
    run(server, program)


@pytest.mark.parametrize("program", ["properties", "subscription_types", "auto_subscription_creation"])
def test_what_topics_allow(server: Served, program: str) -> None:
    run(server, program)


def test_properties_of_a_new_subscription(server: Served) -> None:
    """The official client of Python has no such option, so these are raw frames."""
    with Raw(server.url) as raw:
        raw.subscribe("told", subscription_properties=[pb.KeyValue(key="for", value="invoices")])
    place = f"{server.http_url}/admin/v2/persistent/public/default/told/subscription/s/properties"
    with urllib.request.urlopen(place, timeout=10) as answer:
        assert json.loads(answer.read()) == {"for": "invoices"}


@pytest.mark.parametrize("program", ["terminate", "terminate_drained", "truncate", "unload"])
def test_ends_of_topics(server: Served, program: str) -> None:
    """Of a topic and of a partitioned one."""
    run(server, program)


@pytest.mark.parametrize("program", ["permissions", "subscription_roles", "misused_permissions", "oauth2"])
def test_permissions(guarded: Served, program: str) -> None:
    run(guarded, program)


def test_a_permission_without_authorization(server: Served) -> None:
    run(server, "without_authorization")


def test_permissions_after_a_kill(tmp_path: Path) -> None:
    arguments = ("--config", config(tmp_path, ROLES))
    with served(tmp_path / "data", *arguments, http=True) as server:
        run(server, "granted_before_a_restart")
        server.end(signal.SIGKILL)
    with served(tmp_path / "data", *arguments, http=True) as server:
        run(server, "granted_after_a_restart")
