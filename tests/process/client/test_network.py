"""`holdfast.client` on real networks: TLS, tokens, several hosts, silence, forks, threads, and servers that
are killed at every step."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from holdfast import AuthenticationFailed, Closed, Corrupt, Timeout
from holdfast.client import Client
from tests.kit import KIT, module_command
from tests.kit.certificates import Authority
from tests.kit.processes import PATIENCE_S, until
from tests.kit.served import Served, served
from tests.kit.server.ingest_world import stored
from tests.kit.slices import pick

TIMEOUT_S = 30.0


def url_of(*ports: int) -> str:
    return "holdfast://" + ",".join(f"127.0.0.1:{port}" for port in ports)


def commit(client: Client, key: str, batch: int, topic: str, *data: bytes) -> bool:
    stage = client.stage()
    stage.append(topic, data)
    return client.sink_commit(key, batch, [stage.close()])


# -- TLS ----------------------------------------------------------------------------------------------


class Secure:
    """A server that speaks TLS alone, and its authority."""

    def __init__(self, server: Served, authority: Authority, secret: Path) -> None:
        self.server, self.secret = server, secret
        self.trusting = ssl.create_default_context(cafile=str(authority.ca))
        self.url = f"holdfast+ssl://localhost:{server.ready['tls_port']}"

    def token(self, role: str, lasts_s: float = 3600.0) -> str:
        claims = {"sub": role, "exp": int(time.time() + lasts_s)}
        return jwt.encode(claims, self.secret.read_bytes(), algorithm="HS256")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    place = tmp_path_factory.mktemp("secure")
    authority = Authority(place / "authority")
    certificate, key = authority.certify("localhost")
    secret = place / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    settings = (
        f"tls.certificate={certificate}",
        f"tls.key={key}",
        "listen.port=off",
        "authentication.methods=token",
        f"authentication.token.secret_file={secret}",
    )
    words = [word for each in settings for word in ("--set", each)]
    server = Served("--data", str(place / "data"), "--tls-port", "0", "--http-port", "off", *words)
    yield Secure(server, authority, secret)
    server.close()


def test_a_token_over_tls(secure: Secure) -> None:
    with Client(secure.url, tls=secure.trusting, token=secure.token("spark"), timeout=TIMEOUT_S) as client:
        assert commit(client, "k", 1, "a", b"1", bytes(3 << 20))
        assert client.progress("a", "s", create=True).visible == 2


def test_threads_over_tls(secure: Secure) -> None:
    """Large requests leave while answers come in: one session, many threads."""
    with Client(secure.url, tls=secure.trusting, token=secure.token("spark"), timeout=TIMEOUT_S) as client:
        stages = [client.stage() for _ in range(6)]

        def fill(number: int) -> None:
            for at in range(12):
                stages[number].append("b", [bytes(1 << (4 * (at % 5))), os.urandom(50_000)])

        threads = [threading.Thread(target=fill, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60.0)
        assert client.sink_commit("b", 1, [stage.close() for stage in stages])
        assert client.progress("b", "s", create=True).visible == 6 * 12 * 2


def test_a_token_that_runs_out_is_shown_anew(tmp_path: Path, secure: Secure) -> None:
    """The function is called for each connection, and when the broker requests a new token."""
    asked = 0

    def token() -> str:
        nonlocal asked
        asked += 1
        return secure.token("spark", lasts_s=3.0)

    with Client(secure.url, tls=secure.trusting, token=token, timeout=TIMEOUT_S) as client:
        client.progress("a", "s", create=True)
        first = client._link
        until(lambda: client.progress("a", "s").visible >= 0 and asked >= 2, TIMEOUT_S)
        client.progress("a", "s")
        if client._link is first:
            assert first is not None
            assert first.broken is None


def test_a_token_that_ran_out(secure: Secure) -> None:
    for token in (secure.token("spark", lasts_s=-10.0), None):
        with (
            Client(secure.url, tls=secure.trusting, token=token, timeout=TIMEOUT_S) as client,
            pytest.raises(AuthenticationFailed),
        ):
            client.progress("a", "s")


def test_an_authority_that_nobody_knows(secure: Secure) -> None:
    """At once: waiting does not help. The token is not shown."""
    asked: list[str] = []

    def token() -> str:
        asked.append("token")
        return secure.token("spark")

    with (
        Client(secure.url, token=token, timeout=600.0) as client,
        pytest.raises(AuthenticationFailed, match="cannot prove its identity"),
    ):
        client.stage()
    assert asked == []


def test_a_name_that_is_not_in_the_certificate(secure: Secure, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *given: real("127.0.0.1", *given))
    url = secure.url.replace("localhost", "elsewhere.test")
    with (
        Client(url, tls=secure.trusting, token=secure.token("spark"), timeout=600.0) as client,
        pytest.raises(AuthenticationFailed, match=r"elsewhere\.test"),
    ):
        client.stage()


def test_the_wrong_kind_of_port(secure: Secure, server: Served) -> None:
    plain = f"holdfast://localhost:{secure.server.ready['tls_port']}"
    with Client(plain, timeout=1.0) as client, pytest.raises(Timeout):
        client.stage()
    tls = f"holdfast+ssl://localhost:{server.ready['port']}"
    with Client(tls, tls=secure.trusting, timeout=1.0) as client, pytest.raises(Timeout):
        client.stage()


def test_the_port_of_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as web:

        def answer() -> None:
            connection, _ = web.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        refused = pytest.raises(Corrupt, match=r"not Pulsar's protocol .* use the broker's Pulsar port")
        with Client(url_of(web.getsockname()[1]), timeout=5.0) as client, refused:
            client.stage()
        answering.join()


def test_tls_to_somebody_who_says_nothing(secure: Secure) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"holdfast+ssl://localhost:{deaf.getsockname()[1]}"
        with Client(url, tls=secure.trusting, timeout=0.5) as client, pytest.raises(Timeout):
            client.stage()


# -- several hosts ------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def test_the_first_host_is_dead(server: Served) -> None:
    with Client(url_of(free_port(), server.ready["port"]), timeout=TIMEOUT_S) as client:
        assert commit(client, "dead", 1, "dead", b"x")


def visits(listener: socket.socket) -> int:
    """How many have connected since the last time."""
    listener.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def test_the_first_host_is_silent(server: Served) -> None:
    """The first host accepts and is silent; the second gets its share of the time."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = url_of(deaf.getsockname()[1], server.ready["port"])
        with Client(url, timeout=6.0) as client:
            assert commit(client, "silent", 1, "silent", b"x")
            assert client._link is not None
            assert visits(deaf) == 1
            client._link.break_off(Closed("for this test"))
            client.progress("silent", "s", create=True)
            assert visits(deaf) == 0, "it began with the one that was silent"


def test_the_server_moves(tmp_path: Path) -> None:
    data, first, second = tmp_path / "data", free_port(), free_port()
    with Client(url_of(first, second), timeout=TIMEOUT_S) as client:
        for batch, (port, number) in enumerate(
            [(first, signal.SIGTERM), (second, signal.SIGKILL), (first, signal.SIGKILL)], 1
        ):
            with served(data, "--port", str(port)) as server:
                assert commit(client, "moves", batch, "orders", b"%d" % batch)
                server.end(number)
    assert asyncio.run(stored(data, "orders")) == [b"1", b"2", b"3"]


# -- silence ------------------------------------------------------------------------------------------


class Mute:
    """A proxy whose first connection stops carrying bytes on request."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.mute = threading.Event()
        self.connections = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                self.connections += 1
                far = socket.create_connection(("127.0.0.1", self._port))
                self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(
                        target=self._carry, args=(*pair, self.connections == 1), daemon=True
                    ).start()

    def _carry(self, one: socket.socket, other: socket.socket, first: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                if not (first and self.mute.is_set()):
                    other.sendall(data)

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def test_a_connection_whose_other_end_has_vanished(server: Served) -> None:
    """One request waits in vain. The next one has a connection of its own."""
    between = Mute(server.ready["port"])
    try:
        with Client(url_of(between.port), timeout=2.0) as client:
            client.progress("vanished", "s", create=True)
            between.mute.set()
            with pytest.raises(Timeout, match="may be repeated"):
                client.progress("vanished", "s")
            client._timeout = TIMEOUT_S
            client.progress("vanished", "s")
            assert between.connections == 2
    finally:
        between.close()


def test_a_server_that_does_not_read(tmp_path: Path) -> None:
    """A request larger than the buffers on the way ends in time, and happens once."""
    with served(tmp_path / "data") as server:
        with Client(server.url, timeout=TIMEOUT_S) as client:
            stage = client.stage()
            stage.append("orders", [b"1"])
            client._timeout = 1.0
            server.process.send_signal(signal.SIGSTOP)
            with pytest.raises(Timeout, match=r"did not carry out stage_append in 1\.0 s"):
                stage.append("orders", [bytes(4 << 20)])
            server.process.send_signal(signal.SIGCONT)
            client._timeout = TIMEOUT_S
            stage.append("orders", [bytes(4 << 20)])
            assert client.sink_commit("k", 1, [stage.close()])
        assert server.end() == 0
    assert asyncio.run(stored(tmp_path / "data", "orders")) == [b"1", bytes(4 << 20)]


def test_threads_do_not_wait_for_one_that_connects() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, contextlib.ExitStack() as ending:
        client = ending.enter_context(Client(url_of(deaf.getsockname()[1]), timeout=0.5))
        told: list[Exception] = []

        def ask() -> None:
            try:
                client.stage()
            except Timeout as error:
                told.append(error)

        def took_s(count: int) -> float:
            begin = time.monotonic()
            threads = [threading.Thread(target=ask) for _ in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(TIMEOUT_S)
            return time.monotonic() - begin

        one = took_s(1)
        assert took_s(20) < 10 * one, "one after another"
        assert len(told) == 21


# -- forks, asyncio -----------------------------------------------------------------------------------


def in_a_child(work: Any) -> str:
    """Return the result of `work`, or its error, from a forked child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            told = str(work())
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(write, told.encode())
        os._exit(0)
    os.close(write)
    try:
        assert select.select([read], [], [], 60.0)[0], "the child hangs"
        return os.read(read, 1 << 16).decode()
    finally:
        os.close(read)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_has_a_connection_of_its_own(server: Served) -> None:
    with Client(server.url, timeout=TIMEOUT_S) as client:
        assert commit(client, "fork", 1, "fork", b"parent")
        link = client._link
        assert link is not None
        assert in_a_child(lambda: commit(client, "fork", 2, "fork", b"child")) == "True"
        assert in_a_child(client.close) == "None"
        assert client._link is link
        assert client.progress("fork", "s", create=True).visible == 2
        assert link.broken is None, "the child has closed its parent's connection"


def test_a_fork_while_a_thread_connects(server: Served) -> None:
    """The child is not stuck by locks that threads of the parent held."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = Client(url_of(deaf.getsockname()[1], server.ready["port"]), timeout=TIMEOUT_S)
        thread = threading.Thread(target=lambda: client.progress("fork2", "s", create=True))
        thread.start()
        until(client._lock.locked)
        deaf.settimeout(PATIENCE_S)
        accepted = deaf.accept()[0]

        def child() -> int:
            client._addresses = client._addresses[1:]
            return client.progress("fork2", "t", create=True).visible

        assert in_a_child(child) == "0"
        accepted.close()  # the parent's thread goes on with the next host
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
        client.close()


def test_asyncio(server: Served) -> None:
    """The client blocks; a loop gives it to threads."""

    async def one(client: Client, number: int) -> Any:
        def fill() -> Any:
            stage = client.stage()
            stage.append("asyncio", [b"%d" % number])
            return stage.close()

        return await asyncio.to_thread(fill)

    async def main() -> None:
        with Client(server.url, timeout=TIMEOUT_S) as client:
            receipts = await asyncio.gather(*(one(client, number) for number in range(20)))
            assert await asyncio.to_thread(client.sink_commit, "asyncio", 1, receipts)
            found = await asyncio.to_thread(client.progress, "asyncio", "s", create=True)
            assert found.visible == 20

    asyncio.run(main())


def test_closing_while_somebody_waits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        client = Client(url_of(deaf.getsockname()[1]), timeout=1.0)
        told: list[BaseException] = []

        def ask() -> None:
            try:
                client.stage()
            except (Closed, Timeout) as error:
                told.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        until(client._lock.locked)
        client.close()
        thread.join(TIMEOUT_S)
        assert isinstance(told[0], Closed)


# -- a server that is killed at every step of a batch --------------------------------------------------


def armed(data: Path, port: int, step: str) -> subprocess.Popen[bytes]:
    """`holdfast serve` that is killed at a step of its journal."""
    return subprocess.Popen(
        [
            *module_command(KIT / "server/kills.py"),
            *("", step, "serve", "--json"),
            *("--data", str(data), "--port", str(port), "--http-port", "off"),
            *("--log-level", "error", "--set", "ingest.enabled=false"),
            *("--set", "broker.retention_bytes=-1"),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


@pytest.mark.timeout(400)
def test_a_server_that_dies_at_every_step_of_a_batch(tmp_path: Path) -> None:
    """Kill each life one round later: in every request of a batch, before its answer.

    The client repeats the request by itself; every batch is there once, whole.
    """
    data, port = tmp_path / "data", free_port()
    steps = [
        f"{name}:{passes}"
        for passes in range(pick(test=2, nightly=4))
        for name in ("journal_written", "journal_synced", "round_done")
    ]
    lives = iter(steps)
    running = threading.Event()
    ended, kills = False, 0
    process = armed(data, port, "")

    def keep_serving() -> None:
        nonlocal process, kills
        while not ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                kills += process.wait(0.1) == -signal.SIGKILL
                step = next(lives, "")
                process = armed(data, port, step)
                if not step:
                    running.set()

    keeper = threading.Thread(target=keep_serving)
    batches = 0
    with Client(url_of(port), timeout=120.0) as client:
        client.progress("a", "s", create=True)
        client.progress("b", "s", create=True)
        process.kill()
        keeper.start()
        try:
            while not running.is_set():
                batches += 1
                stage, other = client.stage(), client.stage()
                stage.append("a", [b"%d" % batches])
                other.append("b", [b"%d" % batches, b"and"])
                stage.append("a", [b"%d again" % batches])
                receipts = [stage.close(), other.close()]
                client.sink_commit("k", batches, receipts)
                assert not client.sink_commit("k", batches, receipts)
                at = client.progress("a", "s")
                assert at.visible == 2 * batches
                client.advance("a", "s", at.visible, at.reset_number)
        finally:
            ended = True
            keeper.join()
        assert client.progress("a", "s").acked_to == 2 * batches
        process.terminate()
        assert process.wait(PATIENCE_S) == 0
    assert kills >= len(steps)
    numbers = range(1, batches + 1)
    assert asyncio.run(stored(data, "a")) == [
        data for number in numbers for data in (b"%d" % number, b"%d again" % number)
    ]
    assert asyncio.run(stored(data, "b")) == [data for number in numbers for data in (b"%d" % number, b"and")]
