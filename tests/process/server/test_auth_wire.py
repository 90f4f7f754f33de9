"""Authenticate the official client: tokens, passwords, TLS, certificates, against the real server."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.certificates import DAY, Authority
from tests.kit.processes import until
from tests.kit.served import Served, served
from tests.kit.server.auth_client import AuthClient
from tests.kit.server.auth_world import (
    PASSWORD,
    SECRET,
    World,
    commands,
    connect,
    frame,
    greeting,
    token,
    told,
)
from tests.kit.waiting import waits_out


@pytest.fixture(scope="module")
def server(world: World) -> Iterator[Served]:
    """A server with all methods, without anonymous clients."""
    with served(world.directory / "data", "--config", world.configure(), "--tls-port", "0") as server:
        yield server


@pytest.fixture(scope="module")
def client() -> Iterator[AuthClient]:
    client = AuthClient()
    yield client
    client.close()


# -- who is let in ------------------------------------------------------------------------------------

FAR = time.time() + 10**6
"""Long after the run, which may begin long before the test."""

# Action, credentials and result. The client retries where it is not admitted at all.
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "token": ({"token": token("billing"), "do": "produce"}, "ok"),
    "token, consume": ({"token": token("billing"), "do": "consume"}, "ok"),
    "token, read": ({"token": token("looker"), "do": "read", "topic": "open-news"}, "ok"),
    "token, asyncio": ({"token": token("billing"), "do": "produce, asyncio"}, "ok"),
    "certificate, asyncio": ({"certificate": "carla", "do": "produce, asyncio", "tls": True}, "ok"),
    "token of a role without grants, asyncio": (
        {"token": token("stranger"), "do": "produce, asyncio"},
        "AuthorizationError",
    ),
    "token of a superuser": ({"token": token("root"), "do": "produce"}, "ok"),
    "token that lasts": ({"token": token("billing", exp=FAR), "do": "produce"}, "ok"),
    "token of a role without grants": ({"token": token("stranger"), "do": "produce"}, "AuthorizationError"),
    "produce where only consume is granted": (
        {"token": token("looker"), "do": "produce", "topic": "open-news"},
        "AuthorizationError",
    ),
    "consume from another topic": ({"token": token("looker"), "do": "consume"}, "AuthorizationError"),
    "read from another topic": ({"token": token("looker"), "do": "read"}, "AuthorizationError"),
    "expired token": ({"token": token("billing", exp=time.time() - 5), "do": "produce"}, "Timeout"),
    "token before its time": (
        {"token": token("billing", nbf=FAR), "do": "produce"},
        "Timeout",
    ),
    "token with another key": ({"token": token("billing", "another" * 8), "do": "produce"}, "Timeout"),
    "nonsense for a token": ({"token": "nonsense", "do": "produce"}, "Timeout"),
    "nothing": ({"do": "produce"}, "Timeout"),
    "password": ({"user": ["anna", PASSWORD], "do": "produce"}, "ok"),
    "wrong password": ({"user": ["anna", "wrong"], "do": "produce"}, "Timeout"),
    "unknown user": ({"user": ["nobody", PASSWORD], "do": "produce"}, "Timeout"),
    "token over TLS": ({"token": token("billing"), "do": "produce", "tls": True}, "ok"),
    "certificate": ({"certificate": "carla", "do": "produce", "tls": True}, "ok"),
    "certificate of a stranger": (
        {"certificate": "dora", "do": "produce", "tls": True},
        "AuthorizationError",
    ),
    "certificate of another authority": ({"certificate": "forged", "do": "produce", "tls": True}, "Timeout"),
    "certificate that has expired": ({"certificate": "late", "do": "produce", "tls": True}, "Timeout"),
    "certificate over an open port": ({"certificate": "carla", "do": "produce"}, "Timeout"),
    "no certificate where one is the method": ({"tls": True, "do": "produce"}, "Timeout"),
    "server that the client does not trust": (
        {"token": token("billing"), "do": "produce", "tls": True, "trust": "other"},
        "Timeout",
    ),
}


@pytest.fixture(scope="module")
def outcomes(world: World, server: Served, client: AuthClient) -> dict[str, str]:
    other = Authority(world.directory / "other", "another authority")
    files = {name: world.authority.certify(name) for name in ("carla", "dora")}
    files["late"] = world.authority.certify("carla", begin=-2 * DAY, end=-DAY, file="late")
    files["forged"] = other.certify("carla", file="forged")
    trust = {True: world.authority.ca, "other": other.ca}
    jobs = []
    for job, expected in CASES.values():
        made = {"topic": "orders"} | job | ({"timeout_s": 2} if expected == "Timeout" else {})
        made["url"] = server.tls_url if job.get("tls") else server.url
        if "certificate" in job:
            made["certificate"] = [str(each) for each in files[job["certificate"]]]
        if job.get("tls"):
            made["trust"] = str(trust[job.get("trust", True)])
        jobs.append(made)
    return dict(zip(CASES, client.run(jobs), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_who_is_let_in(case: str, outcomes: dict[str, str]) -> None:
    expected = CASES[case][1]
    if expected == "Timeout":  # not let in; which error that is for the client depends on its mood
        assert outcomes[case] in ("Timeout", "ConnectError", "AuthenticationError", "Disconnected")
    else:
        assert outcomes[case] == expected


def test_no_secret_is_in_the_log(server: Served, outcomes: dict[str, str]) -> None:
    """I112: no credential of the tests above is in the log, even at debug."""
    logs = server.logs()
    assert "the token has expired" in logs
    assert "unknown user, or wrong password" in logs
    secrets = [SECRET, PASSWORD, "eyJ", *(job["token"] for job, _ in CASES.values() if "token" in job)]
    assert not [secret for secret in secrets if secret in logs]


def test_the_anonymous_role(world: World, client: AuthClient) -> None:
    config = world.configure('anonymous_role = "guest"')
    with served(world.directory / "guests", "--config", config, "--tls-port", "0") as server:
        jobs = [
            {"do": "consume", "topic": "open-news"},
            {"do": "produce", "topic": "open-news"},
            {"do": "consume", "topic": "orders"},
            {"do": "produce", "topic": "orders", "token": token("billing")},
        ]
        outcomes = client.run([job | {"url": server.url} for job in jobs])
    assert outcomes == ["ok", "AuthorizationError", "AuthorizationError", "ok"]


def test_a_token_is_renewed_while_connected(server: Served, client: AuthClient) -> None:
    """It expires again and again, the client sends another one, and nothing is interrupted."""
    before = server.logs()
    job = {"do": "renew", "url": server.url, "topic": "renewed", "role": "billing", "secret": SECRET}
    [found] = client.run([job | {"lasts_s": 2, "seconds": 30.0, "asked": 3}])
    assert found["fault"] == ""
    assert found["asked"] == 3
    assert found["sent"] > 3
    assert server.logs() == before  # one connection all the time, and no client was closed


def test_who_cannot_renew_is_closed(server: Served, client: AuthClient) -> None:
    """The supplier has run dry: an expired token is all that it can show."""
    job = {"do": "renew", "url": server.url, "topic": "renewed", "role": "billing", "secret": SECRET}
    [found] = client.run([job | {"lasts_s": 2, "seconds": 30.0, "good": 1}])
    assert found["fault"] == "Timeout"
    assert found["sent"] > 0
    assert "the token has expired" in server.logs()


# -- before authentication -----------------------------------------------------------------------------


EARLY = {
    "ping": frame(pb.BaseCommand.PING, ping=pb.CommandPing()),
    "lookup": frame(
        pb.BaseCommand.LOOKUP,
        lookupTopic=pb.CommandLookupTopic(topic="persistent://public/default/x", request_id=1),
    ),
    "producer": frame(
        pb.BaseCommand.PRODUCER,
        producer=pb.CommandProducer(topic="persistent://public/default/x", producer_id=1, request_id=1),
    ),
    "answer to a question that nobody asked": frame(
        pb.BaseCommand.AUTH_RESPONSE,
        authResponse=pb.CommandAuthResponse(
            response=pb.AuthData(auth_method_name="token", auth_data=token("root").encode())
        ),
    ),
    "nonsense": b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff",
    "a frame without end": b"\x7f\xff\xff\xff\x00\x00\x00\x04",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("early", EARLY)
def test_nothing_is_served_before_authentication(early: str, server: Served) -> None:
    """I113: an error at most, then the end. Later bytes are not read."""
    with connect(server) as channel:
        channel.sendall(EARLY[early] + EARLY["lookup"])
        channel.shutdown(socket.SHUT_WR)
        answers = told(channel)
    assert [each.type for each in answers] in ([], [pb.BaseCommand.ERROR])


def test_what_comes_behind_a_bad_greeting_is_not_served(server: Served) -> None:
    with connect(server) as channel:
        channel.sendall(greeting("basic", b"anna:wrong") + EARLY["producer"] + EARLY["lookup"])
        assert [each.type for each in told(channel)] == [pb.BaseCommand.ERROR]


def test_a_refusal_says_why(server: Served) -> None:
    expired = token("billing", exp=time.time() - 5).encode()
    with connect(server) as channel:
        channel.sendall(greeting("token", expired))
        [answer] = told(channel)
    assert (answer.error.error, answer.error.message) == (pb.AuthenticationError, "the token has expired")


@pytest.mark.parametrize("refreshes", [True, False])
def test_a_token_that_expires(refreshes: bool, server: Served) -> None:
    """A client that can renew its token keeps its role; other clients are closed."""
    flags = pb.FeatureFlags(supports_auth_refresh=refreshes)
    soon = token("billing", exp=int(time.time()) + 2).encode()
    with connect(server) as channel:
        channel.sendall(greeting("token", soon, feature_flags=flags))
        assert commands(channel.recv(65536))[0].type == pb.BaseCommand.CONNECTED
        [asked] = commands(channel.recv(65536))
        if not refreshes:
            assert (asked.error.error, told(channel)) == (pb.AuthenticationError, [])
            return
        assert asked.authChallenge.challenge.auth_method_name == "token"
        other = pb.AuthData(auth_method_name="token", auth_data=token("root").encode())
        channel.sendall(
            frame(pb.BaseCommand.AUTH_RESPONSE, authResponse=pb.CommandAuthResponse(response=other))
        )
        [refused] = told(channel)
    assert refused.error.error == pb.AuthenticationError
    assert refused.error.message.startswith("the new credentials are of the role")


def test_another_role_cannot_take_over_a_connection(server: Served) -> None:
    """Nor without being asked."""
    response = pb.AuthData(auth_method_name="token", auth_data=token("root").encode())
    with connect(server) as channel:
        channel.sendall(greeting("token", token("billing").encode()))
        assert commands(channel.recv(65536))[0].type == pb.BaseCommand.CONNECTED
        channel.sendall(
            frame(pb.BaseCommand.AUTH_RESPONSE, authResponse=pb.CommandAuthResponse(response=response))
        )
        channel.shutdown(socket.SHUT_WR)
        answers = told(channel)
    assert answers[-1].type == pb.BaseCommand.ERROR


def test_limits(world: World, client: AuthClient) -> None:
    """Limits of silence, connections and frame sizes close one client and disturb no other."""
    limits = ["connections=8", "connections_per_address=4", "unauthenticated_s=2", "message_bytes=2k"]
    flags = [part for each in limits for part in ("--set", f"limits.{each}")]
    arguments = ["--config", world.configure(), "--tls-port", "0", *flags]
    with served(world.directory / "limited", *arguments) as server:
        with (
            waits_out(1.9),  # the two seconds of the limit
            connect(server) as silent,
            connect(server) as slow,
            connect(server),
            connect(server),
        ):
            with connect(server) as fifth:
                [refusal] = told(fifth)
                assert "4 connections from 127.0.0.1" in refusal.error.message
            slow.sendall(greeting("token", token("billing").encode())[:-1])
            assert {each.type for each in told(silent) + told(slow)} <= {pb.BaseCommand.ERROR}
        with connect(server) as large:
            large.sendall(greeting("token", token("billing").encode()))
            [connected] = commands(large.recv(65536))
            assert connected.connected.max_message_size == 2048
            large.sendall((1 << 20).to_bytes(4, "big") + b"\x00\x00\x00\x04")
            [refusal] = told(large)
            assert refusal.type == pb.BaseCommand.ERROR
        job = {"do": "produce", "url": server.url, "topic": "orders", "token": token("billing")}
        assert client.run([job]) == ["ok"]


def test_handshakes_that_never_end_count(world: World) -> None:
    """On both TLS ports they count as connections, and are closed soon."""
    limits = ["connections=3", "unauthenticated_s=2"]
    flags = [part for each in limits for part in ("--set", f"limits.{each}")]
    arguments = ["--config", world.configure(), "--tls-port", "0", "--https-port", "0", *flags]
    with served(world.directory / "handshakes", *arguments) as server:
        ports = [server.ready[name] for name in ("tls_port", "https_port", "https_port")]
        idle = server.sockets()
        held = [socket.create_connection(("127.0.0.1", port), timeout=10) for port in ports]
        for each in held:
            each.sendall(b"\x16\x03\x01")
        until(lambda: server.sockets() == idle + 3)
        with connect(server) as fourth:
            [refusal] = told(fourth)
            assert "3 connections, the most that limits.connections allows" in refusal.error.message
        for each in held:
            assert told(each) == []
            each.close()
        with connect(server) as later:
            later.sendall(greeting("token", token("billing").encode()))
            assert commands(later.recv(65536))[0].type == pb.BaseCommand.CONNECTED
