"""The HTTP server refuses unknown, too many, slow and too large requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from holdfast.errors import (
    AuthenticationFailed,
    Closed,
    Corrupt,
    CursorModifying,
    Denied,
    Misuse,
    NoSpace,
    TooManyConnections,
)
from holdfast.errors import Timeout as TookTooLong
from holdfast.server.http import HttpOptions, HttpServer
from holdfast.server.http import server as http_server
from holdfast.server.http.connection import HttpConnection
from holdfast.server.http.server import ROUTES
from holdfast.server.http.setup import HttpAction
from tests.kit.certificates import Authority
from tests.kit.processes import until
from tests.kit.server.http_world import HttpWorld, T, http
from tests.kit.waiting import eventually

__all__ = ["http"]


# -- who may -------------------------------------------------------------------------------------------


def test_every_route_asks_who_may() -> None:
    """Every route authorizes its action and resource before it reads or changes anything."""
    asked: list[tuple[str, HttpAction, str]] = []

    async def nobody(request: web.Request, action: HttpAction, resource: str) -> str | None:
        asked.append((request.method, action, resource))
        raise Denied("you may not")

    with HttpWorld(HttpOptions(port=0, authorize=nobody)) as world:
        before = world.broker.machine.log.next_d
        for route in ROUTES:
            path = route.path
            for name, value in {
                "tenant": "public",
                "namespace": "default",
                "topic": "orders",
                "subscription": "s",
                "exchange": "orders",
                "cluster": "standalone",
                "bundle": "0x00000000_0xffffffff",
                "setting": "broker.roll_entries",
                "value": "5",
                "role": "billing",
                "key": "team",
            }.items():
                path = path.replace(f"{{{name}}}", value)
            for name in ("node", "ledger", "entry", "timestamp", "seconds", "count", "position", "version"):
                path = path.replace(f"{{{name}}}", "1")
            refused = world.ask(route.method, path, data=b"no json")
            assert (refused.status, refused.reason) == (403, "you may not"), path
            method, action, resource = asked[-1]
            assert (method, action) == (route.method, route.action)
            expected = {
                "broker": "broker",
                "tenant": "public",
                "namespace": "public/default",
                "topic": "persistent://public/default/orders",
            }
            domain = "non-" if "/non-persistent/" in path and route.of == "topic" else ""
            assert resource == domain + expected[route.of], path
        assert world.broker.machine.log.next_d == before
    assert len(asked) == len(ROUTES)


def test_whoever_is_not_known_is_told_how_to_show_it() -> None:
    async def known(request: web.Request, action: HttpAction, resource: str) -> str | None:
        if request.headers.get("Authorization") != "Bearer sesame":
            raise AuthenticationFailed("show a token")
        return "boss"

    with HttpWorld(HttpOptions(port=0, authorize=known, challenge='Bearer realm="here"')) as world:
        refused = world.ask("GET", "/metrics")
        assert (refused.status, refused.reason) == (401, "show a token")
        assert refused.headers["WWW-Authenticate"] == 'Bearer realm="here"'
        assert world.ask("GET", "/metrics", headers={"Authorization": "Bearer sesame"}).status == 200


def test_changes_are_logged_with_their_role(caplog: pytest.LogCaptureFixture) -> None:
    async def boss(request: web.Request, action: HttpAction, resource: str) -> str | None:
        return "boss"

    caplog.set_level("INFO", "holdfast.http")
    with HttpWorld(HttpOptions(port=0, authorize=boss)) as world:
        world.done("PUT", f"{T}/orders")
        world.get(f"{T}/orders/stats")
    (line,) = caplog.records
    fields: dict[str, Any] = line.__dict__["fields"]
    assert (fields["method"], fields["path"], fields["status"]) == ("PUT", f"{T}/orders", 204)
    assert (fields["role"], fields["peer"]) == ("boss", "127.0.0.1")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://elsewhere.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 204),
        ({}, 204),
    ],
)
def test_web_pages_of_elsewhere_change_nothing(http: HttpWorld, headers: dict[str, str], status: int) -> None:
    topic = http.topic(subscription="s")
    assert http.ask("POST", f"{topic}/subscription/s/skip_all", headers=headers).status == status


NAMES = {"localhost": 200, "127.0.0.1": 200, "[::1]": 200, "evil.example": 403, "localhost.evil.example": 403}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_elsewhere_does_not_lead_here(name: str) -> None:
    """DNS rebinding: evil.example resolves to 127.0.0.1, so its page is of the same site."""
    for options, expected in (
        (HttpOptions(port=0, local_names=True), NAMES[name]),
        (HttpOptions(port=0), 200),
    ):
        with HttpWorld(options) as world:
            for host in (name, f"{name}:{world.server.port}"):
                headers = {"Host": host, "Origin": f"http://{host}"}
                assert world.ask("GET", "/admin/v2/tenants", headers=headers).status == expected


HOSTS = {"": 200, ":8080": 200, "a_b.c-d": 200, "[::1]:1": 200}
HOSTS |= dict.fromkeys(["[", "[::1", "[::1]:x", "a:b:c", "a b", "a@b", "a/b", "a:999999", "\xff", "a%"], 400)


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_none(host: str, http: HttpWorld) -> None:
    """Refused at every path; the client is told, not a mistake of the program logged."""
    for path in ("/admin/v2/tenants", "/lookup/v2/topic/persistent/public/default/x"):
        with socket.create_connection(("127.0.0.1", http.server.port), timeout=10) as channel:
            lines = (
                f"GET {path} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nConnection: close\r\n\r\n"
            )
            channel.sendall(lines.encode("latin-1"))
            assert int(channel.recv(65536).split()[1]) == HOSTS[host]


def test_a_client_that_names_no_host(http: HttpWorld) -> None:
    """HTTP/1.0, as in simple health checks: the answer has the address of the socket."""
    with socket.create_connection(("127.0.0.1", http.server.port), timeout=10) as channel:
        channel.sendall(b"GET /admin/v2/clusters/standalone HTTP/1.0\r\n\r\n")
        answer = b""
        while data := channel.recv(65536):
            answer += data
    assert answer.split()[1] == b"200"
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["serviceUrl"] == http.server.url


# -- how much ------------------------------------------------------------------------------------------


def test_a_body_has_its_limit() -> None:
    with HttpWorld(HttpOptions(port=0, http_body_bytes=1000)) as world:
        large = json.dumps({"adminRoles": ["x" * 2000]})
        refused = world.ask("PUT", "/admin/v2/tenants/a", data=large)
        assert (refused.status, "larger than limits.http_body_bytes" in refused.reason) == (413, True)
        # Nor does it matter whether the length is told beforehand.

        async def pieces() -> Any:
            for _ in range(100):
                yield b"x" * 100

        assert world.ask("PUT", "/admin/v2/tenants/a", data=pieces()).status == 413
        assert world.ask("PUT", "/admin/v2/tenants/a", json={"adminRoles": ["x" * 200]}).status == 204


@pytest.mark.parametrize(
    "body",
    [
        *(b"{", b"[1,2]", b'"word"', b"\xff\xfe", b"[" * 100_000, b'{"adminRoles": 7}', b"1" * 5000, b"nul"),
        *(b'{"adminRoles": ["\xff\xfe"]}', b'{"\xff": 1}'),
    ],
)
def test_a_body_that_is_not_what_is_described(http: HttpWorld, body: bytes) -> None:
    refused = http.ask("PUT", "/admin/v2/tenants/never", data=body)
    assert refused.status == 400
    assert "/openapi.json" in refused.reason or "deeply" in refused.reason
    assert "never" not in http.get("/admin/v2/tenants")


def test_a_compressed_body_does_not_grow(http: HttpWorld) -> None:
    import gzip

    refused = http.ask(
        "PUT",
        "/admin/v2/tenants/never",
        data=gzip.compress(b" " * 50_000_000),
        headers={"Content-Encoding": "gzip"},
    )
    assert refused.status == 400


def test_too_many_requests_are_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with HttpWorld(HttpOptions(port=0, http_requests=3)) as world:
        gate = world.run(make_event())

        async def wait(request: web.Request, action: HttpAction, resource: str) -> str | None:
            await gate.wait()
            return None

        monkeypatch.setattr(world.server, "options", HttpOptions(port=0, http_requests=3, authorize=wait))

        async def work() -> Counter[int]:
            tasks = [asyncio.create_task(world.asking("GET", "/admin/v2/tenants")) for _ in range(8)]
            await eventually(lambda: sum(task.done() for task in tasks) >= 5)
            gate.set()
            answers = await asyncio.gather(*tasks)
            refused = [each for each in answers if each.status == 503]
            assert all("in progress" in each.reason for each in refused)
            assert all(each.headers["Retry-After"] == "1" for each in refused)
            return Counter(each.status for each in answers)

        assert world.run(work()) == {200: 3, 503: 5}


async def make_event() -> asyncio.Event:
    return asyncio.Event()


def test_connections_are_counted_and_refused() -> None:
    inside: list[str] = []

    def enter(address: str) -> None:
        if len(inside) >= 2:
            raise TooManyConnections("two are enough")
        inside.append(address)

    with HttpWorld(HttpOptions(port=0, enter=enter, leave=inside.remove)) as world:
        port = world.server.port
        with (
            socket.create_connection(("127.0.0.1", port)),
            socket.create_connection(("127.0.0.1", port)),
            socket.create_connection(("127.0.0.1", port)) as third,
        ):
            third.settimeout(5)
            answer = b""
            while data := third.recv(1000):
                answer += data
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert answer.endswith(b'{"reason":"two are enough"}')
            assert inside == ["127.0.0.1"] * 2
        until(lambda: not inside)
        assert world.ask("GET", "/status.html").status == 200


# -- how long ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"GET /status.html HTTP/1.1\r\nHost: x\r\nX-Slow: ", b"\x16\x03\x01\x02"]
)
def test_who_does_not_say_what_it_wants_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "LOOK_S", 0.02)
    with HttpWorld(HttpOptions(port=0, unauthenticated_s=0.1)) as world:
        with socket.create_connection(("127.0.0.1", world.server.port)) as slow:
            slow.settimeout(20)  # it ends sooner, or this is a time-out
            slow.sendall(sent)
            try:
                while slow.recv(1000):
                    pass
            except ConnectionResetError:
                pass
        assert not world.server.connections or world.ask("GET", "/status.html").status == 200


def test_who_does_not_read_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not read its answers would hold a place forever, without credentials."""
    monkeypatch.setattr(http_server, "LOOK_S", 0.02)
    ask = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with HttpWorld(HttpOptions(port=0, keep_alive_s=0.3, unauthenticated_s=30.0)) as world:
        with socket.socket() as deaf, socket.socket() as slow:
            for each in (deaf, slow):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                each.settimeout(10)
                each.connect(("127.0.0.1", world.server.port))
                each.sendall(ask * 100)
            gone, read = False, 0
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and not gone:
                read += len(slow.recv(65536))  # a client that reads slowly stays
                gone = len(world.server.connections) == 1
                time.sleep(0.01)
            assert gone
            assert read > 0
            with contextlib.suppress(ConnectionResetError):
                while deaf.recv(1 << 20):
                    pass
        assert world.ask("GET", "/status.html").status == 200


@pytest.mark.parametrize("apart", [True, False])
def test_a_second_request_that_is_never_finished_is_closed(
    apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "LOOK_S", 0.02)
    look, looks = HttpConnection.look, list[HttpConnection]()

    def counted(self: HttpConnection) -> None:
        looks.append(self)
        look(self)

    monkeypatch.setattr(HttpConnection, "look", counted)
    with (
        HttpWorld(HttpOptions(port=0, unauthenticated_s=0.1, keep_alive_s=30.0 if apart else 0.3)) as world,
        socket.create_connection(("127.0.0.1", world.server.port)) as slow,
    ):
        slow.settimeout(5)
        whole, part = b"GET /status.html HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /sta"
        slow.sendall(whole)
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        until(lambda: len(looks) > (8 if apart else 3))  # silent between requests: that is allowed
        if apart:
            slow.sendall(whole)
            assert slow.recv(1000).startswith(b"HTTP/1.1 200")
            slow.sendall(part)
        else:
            slow.sendall(whole + part)
        try:
            while slow.recv(1000):
                pass
        except ConnectionResetError:
            pass


def test_a_request_that_takes_too_long_is_answered() -> None:
    async def slow(request: web.Request, action: HttpAction, resource: str) -> str | None:
        await asyncio.Event().wait()
        return None

    with HttpWorld(HttpOptions(port=0, request_s=0.05, authorize=slow)) as world:
        refused = world.ask("GET", "/status.html")
        assert (refused.status, "may have taken effect" in refused.reason) == (504, True)


def test_a_body_that_never_comes_is_not_waited_for() -> None:
    with (
        HttpWorld(HttpOptions(port=0, request_s=0.1)) as world,
        socket.create_connection(("127.0.0.1", world.server.port)) as slow,
    ):
        slow.settimeout(5)
        slow.sendall(b"PUT /admin/v2/tenants/x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert slow.recv(1000).startswith(b"HTTP/1.1 504 ")


# -- what goes wrong -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (Closed("it stops"), 503, "it stops"),
        (NoSpace("the disk is full"), 503, "the disk is full"),
        (CursorModifying("another reset"), 409, "another reset"),
        (TookTooLong("not in time"), 504, "not in time"),
        (Misuse("no"), 412, "no"),
        (Corrupt("ledger 7 at 99"), 500, "the server's log"),
        (ZeroDivisionError("oops"), 500, "the server's log"),
    ],
)
def test_errors_of_the_broker(
    http: HttpWorld, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int, reason: str
) -> None:
    def fail(name: str) -> Any:
        raise error

    monkeypatch.setattr(http.broker.admin, "subscriptions", fail)
    refused = http.ask("GET", f"{http.topic()}/subscriptions")
    assert (refused.status, reason in refused.reason) == (status, True)
    assert ("Retry-After" in refused.headers) == (status == 503)
    assert "oops" not in refused.reason


def test_a_broker_that_has_ended_is_not_well() -> None:
    with HttpWorld() as world:
        assert world.ask("GET", "/admin/v2/brokers/health").body == b"ok"

        async def end() -> None:
            world.broker.engine.end(Closed("the disk is gone"))

        world.run(end())
        for path in ("/admin/v2/brokers/health", "/admin/v2/brokers/ready", "/status.html"):
            refused = world.ask("GET", path)
            assert (refused.status, "its log says why" in refused.reason) == (503, True)
            assert (
                "the disk is gone" not in refused.reason
            )  # health needs no authentication, so its answer has no details
        assert b'holdfast_up{cluster="standalone"} 0' in world.ask("GET", "/metrics").body
        assert world.ask("PUT", f"{T}/orders").status == 503


def test_a_broker_that_confirms_nothing_is_not_well(monkeypatch: pytest.MonkeyPatch) -> None:
    from holdfast.server.http import brokers

    monkeypatch.setattr(brokers, "HEALTH_S", 0.05)

    async def never() -> None:
        await asyncio.Event().wait()

    with HttpWorld() as world:
        monkeypatch.setattr(world.broker.engine, "settle", never)
        refused = world.ask("GET", "/admin/v2/brokers/health")
        assert (refused.status, "check its disk" in refused.reason) == (503, True)
        monkeypatch.undo()


UNREADABLE = [
    b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization : Bearer sesame\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic " + b"sesame" * 3000 + b"\r\n\r\n",
    b"GET /?token=sesame HTTP/9.9\r\nHost: a\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nsesame",
    b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 6\r\nContent-Length: 7\r\n\r\nsesame!",
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\nsesame",
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X%d: sesame\r\n" % n for n in range(1000)) + b"\r\n",
    b"GET / HTTP/1.1\nHost: sesame\n\n",
]


@pytest.mark.parametrize("sent", UNREADABLE, ids=range(len(UNREADABLE)))
def test_what_cannot_be_read_is_not_repeated(
    sent: bytes, http: HttpWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A malformed request is repeated neither to its sender nor in the log.

    The bytes behind it are not taken for a request, even if a proxy before us does so."""
    caplog.set_level("DEBUG")
    with socket.create_connection(("127.0.0.1", http.server.port)) as channel:
        channel.settimeout(10)
        channel.sendall(sent)
        answer = b""
        try:
            while data := channel.recv(65536):
                answer += data
        except ConnectionResetError:
            pass
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (answer.count(b"HTTP/1."), head.split()[1]) == (1, b"400")
    assert b"Server: holdfast\r\n" in head + b"\r\n"
    assert json.loads(body) == {"reason": "the request is not valid HTTP"}
    assert "sesame" not in caplog.text
    ours = [each for each in caplog.records if each.name.startswith(("holdfast", "aiohttp"))]
    assert {each.levelname for each in ours} <= {"DEBUG", "INFO"}


def test_strange_requests_do_no_harm(http: HttpWorld) -> None:
    """Bytes that are not HTTP, and malformed paths, do not disturb other requests."""
    for sent in (
        b"\x00" * 1000,
        b"GET " + b"/" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /%ff%fe HTTP/1.1\r\nHost: \xff\r\nConnection: close\r\n\r\n",
        b"GET /status.html HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
        b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
    ):
        with socket.create_connection(("127.0.0.1", http.server.port)) as stranger:
            stranger.settimeout(5)
            stranger.sendall(sent)
            stranger.shutdown(socket.SHUT_WR)
            answer = b""
            try:
                while data := stranger.recv(10_000):
                    answer += data
            except ConnectionResetError:
                pass
            assert not answer or answer[9:10] == b"4", (sent[:60], answer)
    assert http.ask("GET", "/admin/v2/brokers/health").status == 200


# -- its life ------------------------------------------------------------------------------------------


def test_stopping_answers_what_is_under_way() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request, action: HttpAction, resource: str) -> str | None:
        begun.set()
        await go_on.wait()
        return None

    with HttpWorld(HttpOptions(port=0, authorize=slow)) as world:

        async def work() -> int:
            task = asyncio.create_task(world.asking("PUT", f"{T}/orders"))
            await begun.wait()
            stopping = asyncio.create_task(world.server.stop(3600.0))  # no longer than it has to answer
            await asyncio.sleep(0)
            go_on.set()
            await stopping
            return (await task).status

        assert world.run(work()) == 204
        assert "persistent://public/default/orders" in world.broker.machine.state.names
        with pytest.raises(aiohttp.ClientConnectionError):
            world.ask("GET", "/status.html")


def test_a_server_needs_a_port_and_a_certificate(http: HttpWorld) -> None:
    for options in (HttpOptions(port=None), HttpOptions(port=0, https_port=0)):
        with pytest.raises(Misuse):
            http.run(HttpServer(http.broker, options).start())
    taken = HttpServer(http.broker, HttpOptions(port=http.server.port))
    with pytest.raises(OSError, match=str(http.server.port)):
        http.run(taken.start())


@pytest.fixture(scope="module")
def authority(shared_path: Path) -> Authority:
    return Authority(shared_path)


def test_https(authority: Authority) -> None:
    chain, key = authority.certify("localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(chain, key)
    trust = ssl.create_default_context(cafile=str(authority.ca))
    with HttpWorld(HttpOptions(port=None, https_port=0, tls=context)) as world:
        assert world.server.url.startswith("https://")
        assert world.ask("GET", "/status.html", ssl=trust).status == 200
        answer = world.ask("GET", "/admin/v2/clusters/standalone", ssl=trust).json
        assert answer["serviceUrlTls"] == f"https://127.0.0.1:{world.server.https_port}"
        assert answer["serviceUrl"] == ""
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            world.ask("GET", "/status.html")
        with socket.create_connection(("127.0.0.1", world.server.https_port)) as plain:
            plain.sendall(b"GET /status.html HTTP/1.1\r\nHost: x\r\n\r\n")
            plain.settimeout(5)
            assert b"200" not in plain.recv(1000)
        assert world.ask("GET", "/status.html", ssl=trust).status == 200
