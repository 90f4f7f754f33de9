"""HTTP has the same credentials, roles and limits as the Pulsar protocol."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator

import pytest

from tests.kit.processes import until
from tests.kit.served import Served, served
from tests.kit.server.auth_world import (
    PASSWORD,
    SECRET,
    World,
    ask,
    basic,
    bearer,
    greeting,
    status,
    token,
    told,
)

GRANTS = """
[[authorization.grants]]
roles = ["owner"]
on = "public"
allow = ["admin"]

[http]
metrics_roles = ["prometheus"]
"""
TOPIC = "/admin/v2/persistent/public/default/orders"
TOPICS = "/admin/v2/persistent/public/default"


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Served]:
    arguments = ["--config", world.configure(extra=GRANTS), "--https-port", "0", "--log-level", "debug"]
    with served(world.directory / "data", *arguments, http=True) as server:
        assert ask(server, "PUT", TOPIC, bearer("root"))[0] == 204
        assert ask(server, "PUT", f"{TOPIC}/subscription/s", bearer("root"))[0] == 204
        yield server


# -- who it is ----------------------------------------------------------------------------------------


CREDENTIALS: dict[str, tuple[str | None, int]] = {
    "token": (bearer("root"), 200),
    "token that lasts": (bearer("root", exp=time.time() + 10**6), 200),
    "nothing": (None, 401),
    "expired token": (bearer("root", exp=time.time() - 5), 401),
    "token with another key": (f"Bearer {token('root', 'another' * 8)}", 401),
    "no token": ("Bearer", 401),
    "nonsense": ("Basic nonsense", 401),
    "another scheme": ("Negotiate x", 401),
    "wrong password": (basic("anna", "wrong"), 401),
    "password of who may not": (basic("anna", PASSWORD), 403),
    "token of who may not": (bearer("billing"), 403),
}


@pytest.mark.parametrize("case", CREDENTIALS)
def test_credentials(case: str, server: Served) -> None:
    credentials, expected = CREDENTIALS[case]
    found, body, headers = ask(server, "GET", "/admin/v2/tenants", credentials)
    assert found == expected
    if found == 401:
        assert headers["WWW-Authenticate"].startswith("Bearer, Basic realm=")
    if found != 200:
        assert set(json.loads(body)) == {"reason"}
        assert SECRET not in body


def test_the_log_of_a_refusal_names_the_role(server: Served) -> None:
    assert ask(server, "GET", "/admin/v2/tenants", bearer("billing"))[0] == 403
    until(lambda: "status=403" in server.logs())
    lines = [each for each in server.logs().splitlines() if "status=403" in each]
    assert any("role=billing" in each for each in lines)
    assert not any("role=None" in each for each in lines), lines


def test_certificates(world: World, server: Served) -> None:
    def role_of(name: str | None) -> int:
        context = ssl.create_default_context(cafile=str(world.authority.ca))
        if name is not None:
            context.load_cert_chain(*world.authority.certify(name))
        channel = http.client.HTTPSConnection(
            "localhost", server.ready["https_port"], context=context, timeout=10
        )
        try:
            channel.request("GET", "/admin/v2/tenants")
            return channel.getresponse().status
        finally:
            channel.close()

    assert role_of("root") == 200
    assert role_of("carla") == 403
    assert role_of(None) == 401


# -- what it may do -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/admin/v2/tenants", {"root"}),
        ("PUT", "/admin/v2/tenants/new", {"root"}),
        ("GET", "/admin/v2/cluster/status", {"root"}),
        ("POST", "/admin/v2/cluster/leave", {"root"}),
        ("POST", "/admin/v2/cluster/evict/2", {"root"}),
        ("POST", "/admin/v2/cluster/free", {"root"}),
        ("GET", "/admin/v2/namespaces/public", {"root", "owner"}),
        ("GET", "/admin/v2/namespaces/public/default/topics", {"root", "owner", "billing"}),
        ("GET", f"{TOPIC}/stats", {"root", "owner"}),
        ("POST", f"{TOPIC}/subscription/s/skip_all", {"root", "owner", "billing"}),
        ("GET", "/lookup/v2/topic/persistent/public/default/orders", {"root", "owner", "billing"}),
        ("GET", "/metrics", {"root", "prometheus"}),
        ("GET", "/holdfast/v1/flight", {"root", "owner", "billing"}),
        ("GET", "/openapi.json", {"root", "owner", "billing", "prometheus", "stranger"}),
        ("DELETE", f"{TOPICS}/nothing", {"root", "owner"}),
    ],
)
def test_roles(method: str, path: str, allowed: set[str], server: Served) -> None:
    """A role without the right gets 401 or 403; with it, another status."""
    assert status(server, method, path) == 401
    for role in ("root", "owner", "billing", "prometheus", "stranger"):
        found = status(server, method, path, bearer(role))
        assert (found != 403) == (role in allowed), (role, found)
        assert found not in (401, 500)


def test_a_tenant_names_its_own_admins(server: Served) -> None:
    """`adminRoles` count for objects in the tenant, as a grant of `admin`, not for itself."""
    tenant, there = "/admin/v2/tenants/shop", "/admin/v2/persistent/shop/eu/orders"

    def name(method: str, *roles: str) -> None:
        body = json.dumps({"adminRoles": roles}).encode()
        assert ask(server, method, tenant, bearer("root"), body)[0] == 204

    name("PUT", "keeper")
    assert status(server, "PUT", "/admin/v2/namespaces/shop/eu", bearer("stranger")) == 403
    assert status(server, "PUT", "/admin/v2/namespaces/shop/eu", bearer("keeper")) == 204
    assert status(server, "PUT", there, bearer("keeper")) == 204
    assert status(server, "GET", f"{there}/stats", bearer("keeper")) == 200
    assert status(server, "GET", tenant, bearer("keeper")) == 200
    assert status(server, "GET", "/holdfast/v1/flight", bearer("keeper")) == 200  # may read its topics
    for method, path in (("DELETE", tenant), ("GET", "/admin/v2/tenants"), ("GET", f"{TOPIC}/stats")):
        assert status(server, method, path, bearer("keeper")) == 403
    assert ask(server, "POST", tenant, bearer("keeper"), b'{"adminRoles":["keeper"]}')[0] == 403
    name("POST", "another")
    assert status(server, "GET", f"{there}/stats", bearer("keeper")) == 403
    assert status(server, "GET", "/holdfast/v1/flight", bearer("keeper")) == 403
    assert status(server, "DELETE", f"{tenant}?force=true", bearer("root")) == 204
    assert status(server, "GET", f"{there}/stats", bearer("another")) == 403


def test_refused_changes_nothing(server: Served) -> None:
    assert status(server, "DELETE", TOPIC, bearer("billing")) == 403
    assert status(server, "DELETE", TOPIC) == 401
    assert status(server, "GET", f"{TOPIC}/stats", bearer("root")) == 200


def test_health_is_for_everybody(server: Served) -> None:
    assert ask(server, "GET", "/admin/v2/brokers/health")[:2] == (200, "ok")
    assert status(server, "GET", "/admin/v2/brokers/health", "Bearer nonsense") == 200


def test_what_is_open_can_be_chosen(world: World) -> None:
    flags = ["--set", "http.health_open=no", "--set", "http.metrics_open=yes"]
    arguments = ["--config", world.configure(), "--https-port", "0", *flags]
    with served(world.directory / "other", *arguments, http=True) as server:
        assert status(server, "GET", "/admin/v2/brokers/health") == 401
        assert status(server, "GET", "/admin/v2/brokers/health", bearer("stranger")) == 200
        assert status(server, "GET", "/metrics") == 200


def test_without_authentication_everybody_may(world: World) -> None:
    with served(world.directory / "open", http=True) as server:
        assert status(server, "GET", "/admin/v2/tenants") == 200
        assert status(server, "GET", "/admin/v2/tenants", "Bearer whatever") == 200
        assert status(server, "GET", "/metrics") == 200


# -- limits and logs ----------------------------------------------------------------------------------


def test_limits_are_shared(world: World) -> None:
    """Connections of both protocols count together; heads and bodies have their limits."""
    limits = ["connections=3", "unauthenticated_s=2", "http_body_bytes=1k"]
    flags = [part for each in limits for part in ("--set", f"limits.{each}")]
    with served(world.directory / "limited", *flags, http=True) as server:
        idle = server.sockets()
        large = ask(server, "POST", f"{TOPIC}/subscription/s/resetcursor", body=b"x" * 2000)
        assert large[0] in (404, 413)
        places = [("127.0.0.1", server.ready[name]) for name in ("port", "http_port", "http_port")]
        until(lambda: server.sockets() == idle)  # the request above has gone
        held = [socket.create_connection(place, timeout=10) for place in places]
        until(lambda: server.sockets() == idle + 3)
        with socket.create_connection(places[0], timeout=10) as fourth:
            fourth.sendall(greeting())
            assert "limits.connections allows" in told(fourth)[0].error.message
        assert status(server, "GET", "/admin/v2/brokers/health") == 503
        held[1].sendall(b"GET / HTTP/1.1\r\nHost: a\r\n")  # and no more
        for each in held:
            assert b"200" not in each.recv(1000)
            each.close()
        assert status(server, "GET", "/admin/v2/brokers/health") == 200


def test_no_secret_is_in_the_log(server: Served) -> None:
    """I112, over HTTP."""
    shown = [bearer("root"), basic("anna", PASSWORD), "Bearer nonsense-but-secret"]
    for each in shown:
        status(server, "GET", f"/admin/v2/tenants?token={token('root')}", each)
    logs = server.logs()
    assert "path=/admin/v2/tenants" in logs
    secrets = [SECRET, PASSWORD, token("root"), "nonsense-but-secret", basic("anna", PASSWORD)]
    assert not [secret for secret in secrets if secret in logs]
