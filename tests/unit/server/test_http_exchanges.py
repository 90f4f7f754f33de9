"""Exchanges, alternates and moves over HTTP, and by the commands against a server."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from holdfast.errors import Denied
from holdfast.server.http import HttpOptions
from tests.kit.cli.data import Cli
from tests.kit.cli.data import cli as cli
from tests.kit.server.http_world import Elsewhere, HttpWorld, T, holdfast, http

__all__ = ["holdfast", "http"]

X = "/admin/v2/exchanges/public/default"


def send(http: HttpWorld, name: str, data: bytes, key: str | None = None) -> None:
    async def work() -> None:
        async with http.broker.producer(name) as p:
            await p.send(data, key=key, properties={"of": "x"})

    http.run(work())


def name(path: str) -> str:
    return path.rpartition("/")[2]


def test_an_exchange_from_creation_to_deletion(http: HttpWorld) -> None:
    red = http.topic(subscription="s")
    http.done("PUT", f"{X}/e1-dead", json={"kind": "fanout"})
    http.done("PUT", f"{X}/e1", json={"kind": "topic", "alternate": "e1-dead"})
    assert http.ask("PUT", f"{X}/e1").status == 409
    assert http.ask("PUT", f"{X}/e2", json={"kind": "headers"}).status == 400
    assert http.ask("PUT", f"{X}/e2", json={"alternate": "missing"}).status == 404
    assert "persistent://public/default/e1" in http.get(X)
    http.done("POST", f"{X}/e1/bindings", json={"topic": name(red), "key": "*.red"})
    assert http.ask("POST", f"{X}/e1/bindings", json={"topic": "missing"}).status == 404
    send(http, "e1", b"to red", "a.red")
    send(http, "e1", b"lost", "b")
    found = http.get(f"{X}/e1")
    assert found["bindings"] == [{"topic": f"persistent://public/default/{name(red)}", "key": "*.red"}]
    assert (found["published"], found["routed"], found["to_alternate"]) == (2, 1, 1)
    assert (found["unreplicated"], found["alternate"]) == (False, "persistent://public/default/e1-dead")
    assert http.backlog(red) == 1
    assert http.ask("DELETE", f"{X}/e1-dead").status == 412, "it is an alternate"
    http.done("DELETE", f"{X}/e1/alternate")
    http.done("DELETE", f"{X}/e1-dead")
    assert http.ask("DELETE", f"{X}/e1/bindings?topic={name(red)}&key=none").status == 404
    http.done("DELETE", f"{X}/e1/bindings?topic={name(red)}&key=*.red")
    assert http.ask("DELETE", f"{X}/e1/bindings").status == 404
    assert http.get(f"{X}/e1")["bindings"] == []
    http.done("DELETE", f"{X}/e1")
    assert http.ask("GET", f"{X}/e1").status == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/misspelt", {"kindd": "fanout"}),
        ("PUT", "/misspelt", {"kind": "fanout", "alternates": "e1-dead"}),
        ("POST", "/misspelt/bindings", {"topic": "red", "pattern": "*.red"}),
    ],
)
def test_a_misspelt_field_is_refused(http: HttpWorld, method: str, path: str, body: dict[str, str]) -> None:
    """Without it, the exchange has another kind or the binding no key: messages are dropped."""
    found = http.ask(method, X + path, json=body)
    assert (found.status, "unknown field" in found.reason) == (400, True)
    assert "persistent://public/default/misspelt" not in http.get(X)


def test_an_exchange_is_refused_as_a_topic(http: HttpWorld) -> None:
    http.done("PUT", f"{X}/e3")
    for method, path in (("GET", "/stats"), ("DELETE", ""), ("PUT", "/subscription/s"), ("POST", "/purge")):
        assert "is an exchange" in http.ask(method, f"{T}/e3{path}").reason
    assert f"{T}/e3" not in http.get(T)


def test_reject_take_and_move(http: HttpWorld) -> None:
    work, morgue = http.topic(messages=4, subscription="s"), http.topic(subscription="s")
    at = f"{work}/subscription/s"
    ledger = http.get(f"{work}/internalStats")["ledgers"][0]["ledgerId"]
    assert http.ask("POST", f"{at}/reject/{ledger}/0").status == 404, "no alternate"
    http.done("PUT", f"{X}/e4", json={"kind": "fanout"})
    http.done("POST", f"{X}/e4/bindings", json={"topic": name(morgue)})
    http.done("POST", f"{work}/alternate", json="e4")
    assert http.get(f"{work}/alternate") == "persistent://public/default/e4"
    assert [http.ask("POST", f"{at}/reject/{ledger}/0").json for _ in range(2)] == [True, False]
    assert http.ask("POST", f"{at}/reject/{ledger}/99").status == 404
    taken = http.ask("POST", f"{at}/take")
    assert (taken.body, taken.headers["X-Pulsar-Message-ID"]) == (b"message 1", f"{ledger}:1")
    assert http.ask("POST", f"{at}/move?to={name(morgue)}&count=1").json == 1
    assert http.ask("POST", f"{at}/move").status == 404
    assert http.backlog(morgue) == 2
    http.done("POST", f"{at}/alternate", json="e4")
    assert http.get(f"{at}/alternate") == "persistent://public/default/e4"
    http.done("DELETE", f"{at}/alternate")
    assert http.ask("POST", f"{at}/take").body == b"message 3"
    assert http.ask("POST", f"{at}/take").status == 404
    assert http.ask("POST", f"{morgue}/purge").json == 2
    assert http.ask("POST", f"{at}/drain").json == 0
    assert http.ask("POST", f"{work}/drain").json == 0
    assert http.ask("GET", f"{work}/stats").status == 404


def test_rings_and_last_values(http: HttpWorld) -> None:
    topic = http.topic()
    assert http.get(f"{topic}/ring") == {"entries": None, "bytes": None}
    http.done("POST", f"{topic}/ring", json={"entries": 7})
    assert http.get(f"{topic}/ring?applied=true") == {"entries": 7, "bytes": None}
    assert http.ask("POST", f"{topic}/ring", json={"bytes": 0}).status == 412
    http.done("DELETE", f"{topic}/ring")
    http.done("POST", f"{topic}/lastValue", json=True)
    assert http.get(f"{topic}/lastValue") is True
    http.done("DELETE", f"{topic}/lastValue")
    assert http.get(f"{topic}/lastValue") is None


def test_both_ends_need_a_grant() -> None:
    """A role of one namespace cannot send messages to a topic of another."""

    async def authorize(request: web.Request, action: Any, resource: str) -> str | None:
        if "secret" in resource:
            raise Denied(f"no grant of {action} on {resource}")
        return None

    options = HttpOptions(
        port=0, broker_url="pulsar://127.0.0.1:6650", flight=Elsewhere(), authorize=authorize
    )
    with HttpWorld(options) as world:
        topic = world.topic(messages=1, subscription="s")
        world.run(world.broker.admin.create_topic("secret"))
        world.run(world.broker.admin.create_exchange("secret-x"))
        world.done("PUT", f"{X}/mine")
        for method, path, body in (
            ("POST", f"{X}/mine/bindings", {"topic": "secret"}),
            ("PUT", f"{X}/other", {"alternate": "secret-x"}),
            ("POST", f"{X}/mine/alternate", "secret-x"),
            ("POST", f"{topic}/alternate", "secret-x"),
            ("POST", f"{topic}/subscription/s/alternate", "secret-x"),
            ("POST", f"{topic}/subscription/s/move?to=secret", None),
            ("GET", f"{X}/secret-x", None),
        ):
            assert world.ask(method, path, json=body).status == 403, path
        assert world.backlog(topic) == 1


# -- commands ------------------------------------------------------------------------------------------


def test_commands_of_exchanges(holdfast: Cli, request: pytest.FixtureRequest) -> None:
    local = "directory" in request.node.name
    x, dead, red, morgue = (f"command-{each}" for each in ("x", "dead", "red", "morgue"))
    holdfast.says("topic", "create", red, morgue)
    for topic in (red, morgue):
        holdfast.says("subscription", "create", topic, "s")
    assert holdfast.says("exchange", "create", dead, "--kind", "fanout") == f"{dead}: created\n"
    holdfast.says("exchange", "create", x, "--kind", "topic", "--alternate", dead)
    holdfast.says("exchange", "bind", dead, morgue)
    assert holdfast.says("exchange", "bind", x, red, "*.red") == f"{red}: bound to {x}\n"
    if local:  # a server's messages need its binary port
        holdfast.says("topic", "produce", x, "one", "--key", "a.red")
        holdfast.says("topic", "produce", x, "two")
        found = holdfast.answer("exchange", "info", x)
        assert (found["published"], found["routed"], found["to_alternate"]) == (2, 1, 1)
        assert "1 routed, 1 to the alternate" in holdfast.says("exchange", "info", x)
        assert holdfast.says("topic", "get", red, "s") == "one"
        assert holdfast.answer("topic", "move", morgue, "s", red) == {
            "moved": 1,
            "to": f"persistent://public/default/{red}",
        }
    assert "no message that can be taken" in holdfast.complains("topic", "get", morgue, "s")
    assert x in holdfast.says("exchange", "ls")
    holdfast.says("exchange", "alternate", red, dead)
    holdfast.says("exchange", "alternate", red, dead, "--subscription", "s")
    holdfast.says("exchange", "alternate", red, "--subscription", "s")
    assert "no message 99:0" in holdfast.complains("topic", "reject", red, "s", "99:0")
    assert holdfast.answer("topic", "purge", red)["entries"] == (2 if local else 0)
    assert holdfast.answer("topic", "drain", red)["moved"] == 0
    shown = holdfast.answer("topic", "set", morgue, "--ring-entries", "5", "--last-value", "yes")
    assert (shown["ring_entries"], shown["last_value"]) == (5, True)
    shown = holdfast.answer("topic", "set", morgue, "--ring-entries", "default", "--last-value", "default")
    assert (shown["ring_entries"], shown["last_value"]) == (None, None)
    assert "alternate" in holdfast.complains("exchange", "delete", dead)
    holdfast.says("exchange", "unbind", dead, morgue)
    holdfast.says("topic", "create", red)
    unbound = holdfast.complains("exchange", "unbind", dead, morgue, "k")
    assert f"has no binding to persistent://public/default/{morgue} with the key 'k'" in unbound
    for words in (["info", red], ["delete", red], ["bind", red, morgue], ["alternate", morgue, red]):
        assert "it is a topic; name an exchange" in holdfast.complains("exchange", *words)
    created = holdfast.complains("topic", "create", x)
    assert f"the exchange persistent://public/default/{x} exists already; use another name" in created
    holdfast.says("exchange", "delete", dead, "--force")
    assert "create it first" in holdfast.complains("exchange", "info", dead)
    assert holdfast.says("exchange", "delete", x) == f"deleted {x}\n"
