"""`holdfast.client`: stages, commits and progress over the network, with connections that break."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import socket
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from holdfast import (
    AuthenticationFailed,
    Closed,
    Corrupt,
    CursorModifying,
    Denied,
    Misuse,
    NotFound,
    Timeout,
)
from holdfast.client import Client
from holdfast.pipeline.jobs.subscriptions import DirectorySubscriptions
from holdfast.server.pulsar import extensions
from tests.kit.served import Served, served
from tests.kit.server.ingest_world import stored


@pytest.fixture
def client(server: Served) -> Iterator[Client]:
    with Client(server.url.replace("pulsar://", "holdfast://"), timeout=10.0) as it:
        yield it


def test_a_batch_is_published_once(client: Client) -> None:
    stage, other = client.stage(), client.stage()
    assert stage.append("a", [b"rope", b"tar"], key="smith", properties={"k": "v"}) == 2
    stage.append("persistent://public/default/a", [b"nails"])
    other.append("b", (b"%d" % i for i in range(1000)), batch=10)
    receipts = [pickle.loads(pickle.dumps(stage.close())), other.close()]
    before = client.progress("a", "s", create=True)
    assert client.sink_commit("nightly", 1, receipts)
    assert not client.sink_commit("nightly", 1, receipts)
    assert client.sink_commit_at("nightly", 0, receipts) == (False, 1), "it is further"
    assert client.progress("a", "s").visible == before.visible + 3
    assert client.progress("b", "s", create=True).visible == 100
    with pytest.raises(NotFound, match="there is no stage"):
        client.sink_commit("nightly", 2, receipts)


def test_a_stage_that_is_not_whole_is_not_published(client: Client) -> None:
    stage = client.stage()
    stage.append("c", [b"x"])
    receipt = stage.close()
    with pytest.raises(Closed):
        stage.append("c", [b"y"])
    again = client.stage(stage.id)  # another task continues with it
    with pytest.raises(Corrupt):
        again.append("c", [b"y"])
    with pytest.raises(Misuse):
        again.append("c", [b"y", b"z"])
    wrong = type(receipt)(receipt.stage, ((receipt.parts[0][0], 1, 12345),))
    with pytest.raises(Corrupt):
        client.sink_commit("c", 1, [wrong])
    stage.drop()
    stage.drop()
    with pytest.raises(NotFound):
        client.sink_commit("c", 1, [receipt])
    assert client.progress("c", "s", create=True).visible == 0


def test_large_appends_go_in_pieces(client: Client) -> None:
    stage = client.stage()
    stage.append("large", (os.urandom(300_000) for _ in range(20)))
    stage.append("large", [b"x" * (4 << 20)])
    with pytest.raises(Misuse):
        stage.append("large", [b"x" * (6 << 20)])
    assert client.sink_commit("large", 1, [stage.close()])
    assert client.progress("large", "s", create=True).visible == 21


def test_entries_are_looked_at(client: Client) -> None:
    with pytest.raises(Corrupt):
        client.stage().append_entries("d", [b"no entry at all"])


def test_progress(client: Client) -> None:
    stage = client.stage()
    stage.append("e", [b"%d" % i for i in range(10)])
    client.sink_commit("e", 1, [stage.close()])
    with pytest.raises(NotFound):
        client.progress("e", "s")
    with pytest.raises(NotFound):
        client.progress("no-such-topic", "s")
    at = client.progress("e", "s", create=True, start="earliest")
    assert (at.acked_to, at.first, at.visible) == (0, 0, 10)
    at = client.advance("e", "s", 4, at.reset_number)
    assert at.acked_to == 4
    assert client.advance("e", "s", 4, at.reset_number) == at, "again is harmless"
    assert client.advance("e", "s", 2, at.reset_number).acked_to == 4, "never back"
    with pytest.raises(CursorModifying):
        client.advance("e", "s", 6, at.reset_number + 1)
    with pytest.raises(Misuse):
        client.advance("e", "s", 11, at.reset_number)
    assert client.progress("e", "s").acked_to == 4


def delete_topic(server: Served, name: str) -> None:
    url = f"{server.http_url}/admin/v2/persistent/public/default/{name}?force=true"
    with urllib.request.urlopen(urllib.request.Request(url, method="DELETE")):
        pass


def test_progress_is_of_one_topic(tmp_path: Path) -> None:
    """Positions of a topic are refused by a new topic of the same name."""
    with served(tmp_path / "data", http=True) as server, Client(server.url, timeout=10.0) as client:

        def fill(batch: int) -> None:
            stage = client.stage()
            stage.append("e", [b"%d" % i for i in range(10)])
            client.sink_commit("e", batch, [stage.close()])

        fill(1)
        old = client.progress("e", "s", create=True, start="earliest")
        moved = client.advance("e", "s", 4, old.reset_number, old.incarnation)
        assert (moved.acked_to, moved.incarnation) == (4, old.incarnation)
        delete_topic(server, "e")
        for gone in (old.incarnation, b""):
            with pytest.raises(NotFound):
                client.advance("e", "s", 6, old.reset_number, gone)
        with pytest.raises(NotFound):
            client.progress("e", "s", create=True, incarnation=old.incarnation)
        with pytest.raises(NotFound):
            client.progress("e", "s")
        fill(2)
        new = client.progress("e", "s", create=True, start="earliest")
        assert new.incarnation != old.incarnation
        with pytest.raises(NotFound, match="deleted and created again"):
            client.advance("e", "s", 6, new.reset_number, old.incarnation)
        with pytest.raises(NotFound, match="deleted and created again"):
            client.progress("e", "s", incarnation=old.incarnation)
        assert client.progress("e", "s", incarnation=new.incarnation) == new, "nothing was changed"
    holder = DirectorySubscriptions(str(tmp_path / "data"))
    with pytest.raises(NotFound, match="deleted and created again"):
        holder.advance("e", "s", 6, new.reset_number, old.incarnation)
    with pytest.raises(NotFound, match="deleted and created again"):
        holder.progress("e", "s", create=True, incarnation=old.incarnation)
    assert holder.advance("e", "s", 6, new.reset_number, new.incarnation).acked_to == 6


def test_threads_share_a_client(client: Client) -> None:
    stages = [client.stage() for _ in range(8)]
    workers = [
        threading.Thread(target=lambda stage=stage: [stage.append("f", [b"x"]) for _ in range(20)])
        for stage in stages
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(20.0)
    assert client.sink_commit("f", 1, [stage.close() for stage in stages])
    assert client.progress("f", "s", create=True).visible == 160


def test_what_is_under_way_is_bounded() -> None:
    class Reading:
        paused = False

        def pause(self, why: str) -> None:
            self.paused = True

        def go_on(self, why: str) -> None:
            self.paused = False

    connection: Any = Reading()
    extensions.took(connection, extensions.UNDER_WAY_BYTES)
    assert not connection.paused
    extensions.took(connection, 1)
    assert connection.paused
    extensions.took(connection, 1)
    extensions.took(connection, -2)
    assert not connection.paused


class Proxy:
    """A proxy that cuts the connection after a number of bytes, in one direction."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cuts: list[tuple[int, int]] = []
        """Of the connections to come: how many bytes to the server, and back, until it is cut."""
        self.connections = 0
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            far = socket.create_connection(("127.0.0.1", self._port))
            self._open += [near, far]
            there, back = self.cuts.pop(0) if self.cuts else (1 << 60, 1 << 60)
            for one, other, most in ((near, far, there), (far, near, back)):
                threading.Thread(target=self._carry, args=(one, other, most), daemon=True).start()

    @staticmethod
    def _carry(one: socket.socket, other: socket.socket, most: int) -> None:
        with contextlib.suppress(OSError):
            while most > 0 and (data := one.recv(min(most, 65536))):
                other.sendall(data)
                most -= len(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def test_a_connection_that_breaks_anywhere_changes_nothing(server: Served) -> None:
    """Cut after every few bytes of the conversation: what was asked happens once."""
    proxy = Proxy(server.ready["port"])
    try:
        for number in range(40):
            proxy.cuts = [(40 + 13 * number, 1 << 60), (1 << 60, 60 + 11 * number)]
            with Client(f"pulsar://127.0.0.1:{proxy.port}", timeout=10.0) as client:
                stage = client.stage()
                stage.append("broken", [b"%d" % number, b"x" * 100])
                stage.append("broken", [b"y"])
                client.sink_commit("broken", number + 1, [stage.close()])
        assert proxy.connections > 60
    finally:
        proxy.close()
    with Client(server.url) as client:
        assert client.progress("broken", "s", create=True).visible == 40 * 3


def test_the_server_is_killed_and_comes_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data) as first:
        port = first.ready["port"]
        client = Client(f"holdfast://127.0.0.1:{port}", timeout=20.0)
        stage = client.stage()
        stage.append("orders", [b"1", b"2"])
        first.process.kill()
        first.process.wait()
    with served(data, "--port", str(port)) as second:
        stage.append("orders", [b"3"])
        receipt = stage.close()
        assert client.sink_commit("k", 1, [receipt])
        second.process.kill()
        second.process.wait()
    with served(data, "--port", str(port)) as third:
        assert not client.sink_commit("k", 1, [receipt])
        client.close()
        assert third.end() == 0
    assert asyncio.run(stored(data, "orders")) == [b"1", b"2", b"3"]


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        with Client(f"holdfast://127.0.0.1:{port}", timeout=0.3) as client, pytest.raises(Timeout):
            client.stage()
    with (
        Client(f"holdfast://127.0.0.1:{port}", timeout=0.3) as client,
        pytest.raises(Timeout, match=r"in 0\.3 s: \S+:\d+: Connection refused; .* Start the server"),
    ):
        client.stage()
    with pytest.raises(Closed):
        client.stage()


@pytest.mark.parametrize("url", ["", "http://x", "holdfast://", "holdfast://a:b", "pulsar://h:1/path"])
def test_bad_addresses(url: str) -> None:
    with pytest.raises(Misuse, match="broker's address"):
        Client(url)


SETTINGS = """
[authentication]
methods = ["token"]
token.secret_file = "{secret}"

[authorization]
enabled = true

[[authorization.grants]]
roles = ["spark"]
on = "public/default/allowed"
allow = ["produce", "consume"]

[[authorization.grants]]
roles = ["eve"]
on = "public/default/hers"
allow = ["produce"]
"""


def test_what_a_role_may_do(tmp_path: Path) -> None:
    secret, settings = tmp_path / "secret", tmp_path / "settings"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    settings.write_text(SETTINGS.format(secret=secret))
    token = {
        role: jwt.encode({"sub": role}, secret.read_bytes(), algorithm="HS256")
        for role in ("spark", "eve", "nobody")
    }
    with (
        served(tmp_path / "data", "--config", str(settings)) as server,
        Client(server.url, token=token["spark"]) as spark,
        Client(server.url, token=token["eve"]) as eve,
        Client(server.url, token=token["nobody"]) as nobody,
    ):
        stage = spark.stage()
        stage.append("allowed", [b"x"])
        with pytest.raises(Denied):
            stage.append("forbidden", [b"x"])
        receipt = stage.close()
        with pytest.raises(Denied):
            eve.sink_commit("k", 1, [receipt])
        with pytest.raises(Denied):
            eve.progress("allowed", "s", create=True)
        assert eve.sink_commit("k", 9, []), "her own"
        for forbidden in (nobody.stage, lambda: nobody.sink_commit("k", 9, [])):
            with pytest.raises(Denied, match="may not stage entries"):
                forbidden()
        with pytest.raises(Misuse):
            eve.sink_commit("", 1, [])
        assert spark.sink_commit("k", 1, [receipt])
        at = spark.progress("allowed", "s", create=True, start="earliest")
        with pytest.raises(Denied):
            eve.advance("allowed", "s", 1, at.reset_number)
        assert spark.advance("allowed", "s", 1, at.reset_number).acked_to == 1


def test_who_it_is(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(32))
    secret.chmod(0o600)
    settings = ["authentication.methods=token", f"authentication.token.secret_file={secret}"]
    with served(tmp_path / "data", *(word for each in settings for word in ("--set", each))) as server:
        good = jwt.encode({"sub": "spark"}, secret.read_bytes(), algorithm="HS256")
        with Client(server.url, token=lambda: good) as client:
            assert client.progress("t", "s", create=True).visible == 0
        with Client(server.url, token="bad", timeout=5.0) as client, pytest.raises(AuthenticationFailed):
            client.progress("t", "s")
