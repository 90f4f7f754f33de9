"""Commands against a server with authorization: each needs only the grants of its work."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.cli.servers import Cli
from tests.kit.served import Served, served
from tests.kit.server.auth_world import make_world, token

GRANTS = """
[[authorization.grants]]
roles = ["maker"]
on = "public/default/t"
allow = ["produce"]
[[authorization.grants]]
roles = ["taker"]
on = "public/default/t*"
allow = ["consume"]
"""

As = Callable[[str], Cli]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("roles")
    config = make_world(folder).configure(extra=GRANTS)
    with served(folder / "data", "--config", config, "--tls-port", "0", http=True) as one:
        yield one


@pytest.fixture
def role(server: Served, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> As:
    cli = Cli(capfdbinary, monkeypatch, server.http_url)

    def speak(name: str) -> Cli:
        monkeypatch.setenv("HOLDFAST_TOKEN", token(name))
        return cli

    return speak


def texts(cli: Cli, *arguments: str) -> list[str]:
    return [json.loads(line)["text"] for line in cli.says(*arguments, "--json").splitlines()]


def test_a_role_needs_only_the_grants_of_its_work(role: As) -> None:
    """Every command listed all topics of the broker first, which only a superuser may."""
    role("root").says("topic", "create", "t", "other")
    maker = role("maker")
    assert maker.says("topic", "produce", "t", "--lines", data=b"0\n1\n2\n3\n") == (
        "published 4 messages, the last is 1:3\n"
    )
    taker = role("taker")
    assert taker.says("topic", "consume", "t", "--lines", "--start", "1:2") == "2\n3\n"
    assert "key" not in taker.says("topic", "peek", "t", "--count", "2")
    assert texts(taker, "topic", "peek", "t", "--start", "1:1") == ["1", "2", "3"]
    # The state of a cursor needs the grant of admin, but the change is done and told.
    assert taker.says("subscription", "create", "t", "s", "--start", "earliest") == "created: s\n"
    assert taker.says("topic", "consume", "t", "--subscription", "s", "--count", "1", "--lines") == "0\n"
    assert texts(taker, "subscription", "peek", "t", "s") == ["1", "2", "3"]
    assert taker.answer("subscription", "skip", "t", "s", "1") == {
        "topic": "persistent://public/default/t",
        "name": "s",
    }
    assert taker.says("topic", "consume", "t", "--subscription", "s", "--lines") == "2\n3\n"
    assert taker.says("subscription", "reset", "t", "s", "--earliest") == "reset: s\n"
    assert taker.says("subscription", "clear", "t", "s") == "cleared: s\n"
    assert taker.says("subscription", "rm", "t", "s") == "removed s of t\n"


def test_a_refusal_names_the_missing_grant(role: As) -> None:
    role("root").says("topic", "create", "t", "other", "--exist-ok")
    refused = {
        ("maker", "topic", "consume", "t"): "needs a grant of consume",
        ("maker", "topic", "produce", "other", "x"): "produce, consume or admin on public/default/other ",
        ("taker", "topic", "produce", "t", "x"): "needs a grant of produce on public/default/t ",
        ("taker", "topic", "stats", "t"): "needs a grant of admin on public/default/t ",
        ("taker", "subscription", "ls", "t"): "needs a grant of admin on public/default/t ",
        ("taker", "topic", "ls"): "only authorization.superusers may",
    }
    for (name, *words), expected in refused.items():
        assert expected in role(name).complains(*words), words
    # A topic that does not exist is told without a list of those that do.
    assert role("taker").complains("topic", "consume", "tt") == "holdfast: there is no topic tt\n"
