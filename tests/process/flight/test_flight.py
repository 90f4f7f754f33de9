"""Read topics over the network: the same rows as by path, under kills and roles."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.flight as flight
import pytest

from holdfast.columns.address import Address
from holdfast.columns.decoding import Wish
from holdfast.columns.files import FilePlace, open_place
from holdfast.columns.remote import RemotePlace
from holdfast.columns.schema import COLUMNS
from holdfast.columns.tickets import Read
from holdfast.errors import (
    AuthenticationFailed,
    BadConfiguration,
    Corrupt,
    Denied,
    HoldfastError,
    Misuse,
    NotFound,
    Timeout,
    Unsupported,
)
from holdfast.server.http import HttpOptions
from tests.kit.processes import until
from tests.kit.served import Served, served
from tests.kit.server import flight_world
from tests.kit.server.auth_world import World, token
from tests.kit.server.flight_world import (
    LARGE,
    PREFIX,
    Cut,
    by_path,
    by_url,
    children,
    flight_pid,
    gone,
    publish_all_kinds,
    table,
)
from tests.kit.server.http_world import HttpWorld
from tests.kit.slices import seeds

ROOT = token("root")


@pytest.fixture(scope="module")
def server(world: World, data: Path) -> Iterator[Served]:
    """One with all methods of authentication, with TLS and without."""
    more = ["--config", world.configure(), "--https-port", "0", "--tls-port", "0", "--set", "flight.reads=3"]
    with served(data, *more, http=True, environment={"HOLDFAST_LOG_LEVEL": "debug"}) as server:
        publish_all_kinds(server, ROOT)
        yield server
        assert "call failed" not in server.logs()


def where(server: Served, credentials: str | None = f"Bearer {ROOT}") -> dict[str, str]:
    headers = {} if credentials is None else {"Authorization": credentials}
    with urlopen(Request(f"{server.http_url}/holdfast/v1/flight", headers=headers), timeout=60) as answer:
        found: dict[str, str] = json.load(answer)
        return found


def refusal(server: Served) -> int:
    """Return the status of a refused request where Flight is."""
    with pytest.raises(HTTPError) as refused:
        where(server, None)
    refused.value.close()
    return refused.value.code


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    flight_world.narrow(monkeypatch)


# -- the same as by path ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds("flight rows", test=1))
def test_the_same_rows_by_url_as_by_path(server: Served, data: Path, seed: int) -> None:
    """I160, of all kinds of entries, over ledgers, in ranges cut anywhere."""
    choose = random.Random(seed)
    place = RemotePlace(server.http_url, ROOT)
    assert place.topics() == FilePlace(str(data)).topics()
    for name in ("orders", "open-news", "kinds"):
        near, far = by_path(data, name), place.open(f"{PREFIX}/{name}")
        first, visible = near.plan()
        assert (far.plan(), far.incarnation) == ((first, visible), near.incarnation)
        assert far.weights(first, visible) == near.weights(first, visible)
        assert far.weights(first, visible, 500) == near.weights(first, visible, 500)
        for stop in choose.sample(range(first, visible), 5):
            assert far.open_chunks(first, stop, []) == near.open_chunks(first, stop, [])
        for moment in (0, 1 << 50, int(time.time() * 1000) - 1000):
            assert far.at_time(moment) == near.at_time(moment)
        every = [*COLUMNS, "encryption"]
        for columns in (every, ["value"], choose.sample(every, 4)):
            expected = table(near, first, visible, Wish(columns))
            assert expected.num_rows > 300
            assert table(far, first, visible, Wish(columns)).equals(expected, check_metadata=True)
        for _ in range(4):
            start, stop = sorted(choose.randrange(first, visible + 1) for _ in range(2))
            assert table(far, start, stop).equals(table(near, start, stop))


def test_filters_are_done_over_there(server: Served, data: Path) -> None:
    near, far = by_path(data, "orders"), by_url(server, "orders", ROOT)
    for wish in (
        Wish(["value"], keys=(b"k3", b"k7")),
        Wish(["key", "position"], keys=(b"k1",), publish_min_us=0, publish_max_us=1 << 61),
        Wish(["value"], publish_max_us=5),
    ):
        expected = table(near, *near.plan(), wish)
        assert table(far, *near.plan(), wish).equals(expected)
    assert expected.num_rows == 0
    assert {each.name for each in dataclasses.fields(Wish)} < set(Read.__struct_fields__)  # none is forgotten


def test_what_comes_meanwhile_is_seen_by_the_next_plan(server: Served, data: Path) -> None:
    from holdfast.client import Client

    far = by_url(server, "kinds", ROOT)
    _, before = far.plan()
    with Client(server.url.replace("pulsar", "holdfast"), token=ROOT) as client:
        stage = client.stage()
        stage.append("kinds", [b"new"])
        client.sink_commit("meanwhile", 1, [stage.close()])
    assert far.plan()[1] == before + 1
    assert table(far, before, before + 1, Wish(["value"])).to_pylist() == [{"value": b"new"}]


# -- who may ------------------------------------------------------------------------------------------


def test_rules_are_those_of_http(server: Served) -> None:
    """I161: a role reads the topics it may consume, and does not learn of others."""
    looker = RemotePlace(server.http_url, token("looker"))
    assert looker.topics() == [f"{PREFIX}/open-news"]
    assert looker.open(f"{PREFIX}/open-news").plan()[0] == 0
    with pytest.raises(Denied, match=r"the role 'looker' may not consume from .*orders"):
        looker.open(f"{PREFIX}/orders")
    with pytest.raises(Denied):
        looker.open(f"{PREFIX}/there-is-none")
    with pytest.raises(Denied, match="the role 'stranger' may not consume from any topic"):
        RemotePlace(server.http_url, token("stranger")).topics()
    for bad in ("nonsense", token("root", "another" * 8), token("root", exp=time.time() - 5), None):
        with pytest.raises(AuthenticationFailed):
            RemotePlace(server.http_url, bad, timeout_s=60).topics()


def calls(client: flight.FlightClient, options: flight.FlightCallOptions) -> list[Any]:
    """One of each kind that Flight has."""
    described, ticket = flight.FlightDescriptor.for_path("orders"), flight.Ticket(b"{}")
    return [
        lambda: list(client.list_actions(options)),
        lambda: list(client.list_flights(options=options)),
        lambda: list(client.do_action(flight.Action("topics", b""), options)),
        lambda: list(client.do_action(flight.Action("nonsense", b""), options)),
        lambda: client.get_flight_info(described, options),
        lambda: client.get_schema(described, options),
        lambda: client.do_get(ticket, options).read_all(),
        lambda: client.do_put(described, pa.schema([]), options)[0].close(),
        lambda: client.do_exchange(described, options)[1].read_all(),
    ]


def test_nothing_is_answered_before_authentication(server: Served) -> None:
    """I162, for every call; an authenticated client learns only that the call does not exist."""
    client = flight.FlightClient(where(server)["url"])
    for shown in ([], [(b"authorization", b"Bearer nonsense")], [(b"authorization", b"Nonsense")]):
        options = flight.FlightCallOptions(headers=shown, timeout=20)
        for call in calls(client, options):
            with pytest.raises((flight.FlightUnauthenticatedError, OSError), match="Unauthenticated"):
                call()
    twice = [
        (b"authorization", b"Bearer " + token("looker").encode()),
        (b"authorization", f"Bearer {ROOT}".encode()),
    ]
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(client.list_actions(flight.FlightCallOptions(headers=twice)))
    import base64

    from tests.kit.server.auth_world import PASSWORD

    password = b"Basic " + base64.b64encode(f"anna:{PASSWORD}".encode())
    known = flight.FlightCallOptions(headers=[(b"authorization", password)], timeout=20)
    told = {each.type for each in client.list_actions(known)}
    assert told == {"topics", "plan", "time", "weights", "chunks", "schemas"}
    for call in calls(client, known)[3:]:
        with pytest.raises(
            Exception, match=r"no action|malformed|Unimplemented|NotImplemented|Not implemented"
        ) as refused:
            call()
        assert not isinstance(refused.value, flight.FlightUnauthenticatedError)


def test_http_tells_who_is_known_where_it_is(server: Served) -> None:
    found = where(server, f"Bearer {token('looker')}")
    assert found["url"].startswith("grpc://127.0.0.1:")
    assert found["brokerUrl"] == server.url
    assert refusal(server) == 401
    options = {"service.url": server.http_url, "token": ROOT, "timeout": 20.0}
    assert Address.beside(options, "a subscription").url == server.url
    assert Address.beside({"service.url": "holdfast://x:1"}, "a subscription").url == "holdfast://x:1"


def test_tls_where_http_has_it(server: Served, world: World, data: Path) -> None:
    url = f"https://localhost:{server.ready['https_port']}"
    place = RemotePlace(url, ROOT, str(world.authority.ca))
    far = place.open(f"{PREFIX}/orders")
    assert place.where().url.startswith("grpc+tls://localhost:")
    assert place.binary_url() == server.tls_url
    assert table(far, 100, 300).equals(table(by_path(data, "orders"), 100, 300))
    binary = RemotePlace(server.tls_url, ROOT, str(world.authority.ca))
    assert binary.where().url == place.where().url
    assert table(binary.open(f"{PREFIX}/orders"), 100, 300).equals(table(far, 100, 300))
    with pytest.raises(AuthenticationFailed):
        RemotePlace(server.tls_url, "no token", str(world.authority.ca)).topics()
    for trust in (None, str(world.directory / "there-is-none")):
        with pytest.raises(BadConfiguration, match="tlsTrustCertsFilePath"):
            RemotePlace(url, ROOT, trust, timeout_s=60).topics()
    with pytest.raises(BadConfiguration):  # no TLS there
        RemotePlace(server.http_url.replace("http:", "https:"), ROOT).topics()
    plain = flight.FlightClient(place.where().url.replace("grpc+tls:", "grpc:"))
    with pytest.raises(flight.FlightError):
        list(plain.list_actions(flight.FlightCallOptions(timeout=20)))


@contextlib.contextmanager
def answering(words: bytes) -> Iterator[str]:
    """A server that always sends the same bytes, and hangs up."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                channel, _ = listener.accept()
                with channel:
                    channel.recv(1 << 16)
                    channel.sendall(words)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_wrong_addresses_say_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(Timeout, match=f"{nobody} did not answer for 0.5 s.*HTTP address"):
            RemotePlace(nobody, timeout_s=0.5).topics()
    with pytest.raises(BadConfiguration, match=r"is service\.url right"):
        RemotePlace("http://no-such-host.invalid:8080").topics()
    with answering(b"\0\0\0\5hello") as url, pytest.raises(BadConfiguration, match="does not speak HTTP"):
        RemotePlace(url).topics()
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"
    with answering(half) as url, pytest.raises(Timeout, match="was cut"):
        RemotePlace(url, timeout_s=0.5).topics()
    other = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    with answering(other) as url, pytest.raises(BadConfiguration, match="answers something else"):
        RemotePlace(url).topics()
    for wrong in ("ftp://127.0.0.1:6650", "127.0.0.1:8080", "http://"):
        with pytest.raises(BadConfiguration, match=r"such as http://127\.0\.0\.1:8080"):
            open_place(None, wrong)
    with pytest.raises(Misuse, match=r"path .*or service\.url"):
        open_place(None, None)


# -- nothing of a ticket is believed -------------------------------------------------------------------

TICKET: dict[str, Any] = {"topic": f"{PREFIX}/orders", "start": 0, "stop": 10, "columns": ["value"]}
CHANGES: list[dict[str, Any]] = [
    {"topic": "../../../etc/passwd"},
    {"topic": "persistent://public/default/../../../etc/passwd"},
    {"topic": "persistent://../../x"},
    {"topic": "/etc/passwd"},
    {"topic": "orders\0"},
    {"topic": ""},
    {"topic": 7},
    {"topic": "x" * 100_000},
    {"topic": f"{PREFIX}/there-is-none"},
    {"incarnation": "00" * 16},
    {"incarnation": "zz"},
    {"stop": 9001},
    {"stop": 1 << 61},
    {"stop": 1 << 64},
    {"stop": -1},
    {"start": -5},
    {"start": 11},
    {"start": 1.5},
    {"start": None},
    {"skip": -1},
    {"columns": []},
    {"columns": ["nonsense"]},
    {"columns": ["value", "value"]},
    {"columns": ["value"] * 100},
    {"columns": "value"},
    {"keys": ["not base64!"]},
    {"keys": 5},
    {"publish_min_us": 1 << 70},
    {"more": 1},
]
HOSTILE = [
    b"",
    b"\xff" * 100,
    b"{" * 100_000,
    b"[1, 2, 3]",
    b'"orders"',
    b" " * (2 << 20),
    *(json.dumps(TICKET | change).encode() for change in CHANGES),
]


def test_hostile_tickets_get_an_error_and_nothing_else(server: Served) -> None:
    """I163: names are parsed, numbers compared with what is visible; the process goes on."""
    client = flight.FlightClient(where(server)["url"])
    pid = flight_pid(server)
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {ROOT}".encode())], timeout=20)
    for ticket in HOSTILE:
        with pytest.raises(flight.FlightError) as refused:
            client.do_get(flight.Ticket(ticket), options).read_all()
        kind = json.loads(refused.value.extra_info)["kind"]
        assert kind in ("Misuse", "NotFound"), (ticket[:100], refused.value)
        for action in ("plan", "time", "weights", "chunks"):
            with pytest.raises(flight.FlightError) as refused:
                list(client.do_action(flight.Action(action, ticket), options))
            assert json.loads(refused.value.extra_info)["kind"] in ("Misuse", "NotFound")
    skipped = json.dumps(TICKET | {"skip": 1 << 60}).encode()
    assert client.do_get(flight.Ticket(skipped), options).read_all().num_rows == 0
    whole = client.do_get(flight.Ticket(json.dumps(TICKET).encode()), options).read_all()
    assert whole.num_rows == 10
    assert flight_pid(server) == pid


def test_beyond_visible_is_not_read(server: Served) -> None:
    far = by_url(server, "orders", ROOT)
    _, visible = far.plan()
    for start, stop in ((0, visible + 1), (visible, visible + 1)):
        with pytest.raises(Misuse, match="not a range below"):
            table(far, start, stop)


# -- damage --------------------------------------------------------------------------------------------


def damage(file: Path, old: bytes, new: bytes) -> None:
    place = file.read_bytes().index(old)
    with file.open("r+b") as opened:
        opened.seek(place)
        opened.write(new)


def test_damage_is_named_with_its_position(server: Served, data: Path) -> None:
    """A bad block below visible is damage, not a tail; mode=permissive counts and omits it."""
    near, far = by_path(data, "open-news"), by_url(server, "open-news", ROOT)
    stop = near.plan()[1]
    expected = table(near, 0, stop, Wish(["value", "position"])).to_pylist()
    [at] = [row["position"] for row in expected if row["value"] == b"news 321"]
    [victim] = [each for each in (data / "ledgers").glob("*.data") if b"news 321" in each.read_bytes()]
    damage(victim, b"news 321", b"news 123")
    try:
        with pytest.raises(Corrupt, match=rf"open-news, position {at}: .*{victim.name}"):
            table(far, 0, stop)
        rows = far.decoding(0, stop, Wish(["value", "position"], permissive=True))
        found = [row for batch in rows.batches() for row in batch.to_pylist()]
        assert found == [row for row in expected if row["position"] != at]
        assert rows.damaged == 1
        [corrupt] = table(far, at, at + 1, Wish(["corrupt"], permissive=True)).to_pylist()
        assert f"position {at}" in corrupt["corrupt"]
    finally:
        damage(victim, b"news 123", b"news 321")
    until(lambda: "damage in visible entries" in server.logs())


# -- deaths --------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("narrow")
def test_killed_in_the_middle_the_reader_goes_on(server: Served, data: Path) -> None:
    """I164: each row comes once; the next request starts a new process."""
    far = by_url(server, "large", ROOT)
    pid = flight_pid(server)
    cut = Cut(far, 0, LARGE, lambda: os.kill(pid, signal.SIGKILL))
    assert cut.read().equals(table(by_path(data, "large"), 0, LARGE, Wish(["value", "position"])))
    assert flight_pid(server) != pid
    until(lambda: "Flight process died" in server.logs())


@pytest.mark.usefixtures("narrow")
def test_certificates_are_read_anew_by_a_new_process(server: Served, data: Path) -> None:
    far = by_url(server, "large", ROOT)
    pid = flight_pid(server)

    def reload() -> None:
        server.process.send_signal(signal.SIGHUP)
        until(lambda: gone(pid))

    cut = Cut(far, 0, LARGE, reload)
    assert cut.read().num_rows == LARGE


@pytest.mark.usefixtures("narrow")
def test_a_read_that_nobody_wants_any_more_gives_its_place_back(server: Served) -> None:
    """With all three places taken a reader waits, and a cancelled one frees its place."""
    readers = [by_url(server, "large", ROOT).decoding(0, LARGE, Wish(["value"])) for _ in range(4)]
    begun = [reader.batches() for reader in readers[:3]]
    assert all(next(each).num_rows for each in begun)
    client = flight.FlightClient(where(server)["url"])
    options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {ROOT}".encode())], timeout=20)
    with pytest.raises(flight.FlightUnavailableError, match="3 reads are in progress"):
        client.do_get(flight.Ticket(json.dumps(TICKET).encode()), options).read_all()
    for each in begun:
        each.close()  # type: ignore[attr-defined]
    assert sum(batch.num_rows for batch in readers[3].batches()) == LARGE


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize(
    "way",
    # in `make test` test_server_killed_and_restarted_in_the_middle with "port" asks HTTP anew, too
    [pytest.param("http_port", marks=pytest.mark.nightly), "port"],
)
def test_server_killed_and_restarted_in_the_middle(filled: Path, tmp_path: Path, way: str) -> None:
    """The Flight process ends with its server; the reader waits, and continues where it was.

    By the binary address it finds the new port of HTTP.
    """
    data = shutil.copytree(filled, tmp_path / "data")
    with served(data, http=True) as first:
        option, port = f"--{way.replace('_', '-')}", str(first.ready[way])
        url = first.http_url if way == "http_port" else first.url
        far = RemotePlace(url, timeout_s=60).open(f"{PREFIX}/large")
        pid = flight_pid(first)
        second: list[Served] = []

        def restart() -> None:
            assert first.end(signal.SIGKILL) == -signal.SIGKILL
            until(lambda: gone(pid))
            second.append(Served("--data", str(data), "--port", "0", "--http-port", "0", option, port))

        try:
            cut = Cut(far, 0, LARGE, restart)
            assert cut.read().equals(table(by_path(data, "large"), 0, LARGE, Wish(["value", "position"])))
            again = flight_pid(second[0])
            assert second[0].end() == 0
            assert gone(again)
        finally:
            for each in second:
                each.close()


@pytest.mark.usefixtures("narrow")
def test_trimmed_meanwhile(filled: Path, tmp_path: Path) -> None:
    """Trimmed entries, and a new topic of the name, are errors as by path."""
    data = shutil.copytree(filled, tmp_path / "data")
    with served(data, "--set", "broker.snapshot_s=0.2", http=True) as server:
        far = by_url(server, "large")
        admin = f"{server.http_url}/admin/v2/{PREFIX.replace('://', '/')}"

        def truncate() -> None:
            urlopen(Request(f"{admin}/large/truncate", method="DELETE"), timeout=60).close()
            until(lambda: len(list((data / "ledgers").glob("*.data"))) < LARGE // 4000)

        cut = Cut(far, 0, LARGE, truncate)
        with pytest.raises(NotFound, match="trimmed"):
            cut.read()
        positions = [row for batch in cut.found for row in batch.column("position").to_pylist()]
        assert positions == list(range(len(positions)))
        assert cut.rows.at == len(positions)
        assert 0 < len(positions) < LARGE
        with pytest.raises(NotFound, match="trimmed"):
            table(far, 0, 10)
        assert table(far, *far.plan()).num_rows == 0
        orders = by_url(server, "orders")
        for method in ("DELETE", "PUT"):
            urlopen(Request(f"{admin}/orders", method=method), timeout=60).close()
        with pytest.raises(NotFound):
            orders.plan()


# -- the process ---------------------------------------------------------------------------------------


def test_the_broker_stays_small(tmp_path: Path) -> None:
    """No process runs before the first read, or for long after the last one.

    The server never loads Arrow; its secrets are not passed on.
    """
    secret = {"HOLDFAST_AUTHENTICATION_TOKEN_AUDIENCE": "", "HOLDFAST_HTTP_METRICS_OPEN": "true"}
    with served(tmp_path / "data", "--set", "flight.idle_s=2", http=True, environment=secret) as server:
        assert children(server.process.pid) == []
        place = RemotePlace(server.http_url)
        assert place.topics() == []
        pid = flight_pid(server)
        assert "libarrow" in Path(f"/proc/{pid}/maps").read_text()
        assert "libarrow" not in Path(f"/proc/{server.process.pid}/maps").read_text()
        assert b"HOLDFAST_" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "500"
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert limits.split("Max data size")[1].split()[0] == str(4 << 30)
        until(lambda: gone(pid))
        until(lambda: "no reads for flight.idle_s" in server.logs())
        assert place.topics() == []
        assert flight_pid(server) != pid


def test_without_arrow_it_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ModuleNotFoundError('no', name='pyarrow')")
    with served(tmp_path / "data", http=True, environment={"PYTHONPATH": str(tmp_path)}) as server:
        with pytest.raises(Unsupported, match="Flight needs pyarrow: pip install pyarrow"):
            RemotePlace(server.http_url, timeout_s=60).topics()
        assert refusal(server) == 404


def ask_in_vain(server: Served) -> None:
    try:
        where(server, None)
    except HTTPError as error:
        error.close()
    except OSError:
        pass  # it has gone


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_while_flight_starts(tmp_path: Path, number: signal.Signals) -> None:
    script = "open('{}', 'w').close(); import time; time.sleep(600)"
    (tmp_path / "pyarrow.py").write_text(script.format(tmp_path / "asleep"))
    with served(tmp_path / "data", http=True, environment={"PYTHONPATH": str(tmp_path)}) as server:
        asking = threading.Thread(target=ask_in_vain, args=[server])
        asking.start()
        pid = flight_pid(server)
        until((tmp_path / "asleep").exists)
        assert server.end(number) == (0 if number is signal.SIGTERM else -number)
        until(lambda: gone(pid))
        asking.join()


def test_switched_off_it_says_so() -> None:
    off = HttpOptions(port=0)
    with HttpWorld(off) as http, pytest.raises(Unsupported, match=r"disabled; set flight\.enabled"):
        RemotePlace(http.server.url).topics()


def test_a_port_that_is_taken_is_said_and_tried_again(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with served(tmp_path / "data", "--set", f"flight.port={port}", http=True) as server:
            with pytest.raises(Timeout, match="Flight did not start"):
                RemotePlace(server.http_url, timeout_s=0.5).topics()
            taken.close()
            assert RemotePlace(server.http_url).topics() == []
            assert where(server, None)["url"].endswith(f":{port}")


def test_errors_keep_their_kind() -> None:
    from holdfast.columns.tickets import Trouble
    from holdfast.errors import DataLoss

    for error in (NotFound("a"), Corrupt("b"), Denied("c"), HoldfastError("d")):
        again = Trouble.of(error).error()
        assert (type(again), str(again)) == (type(error), str(error))
    assert type(Trouble.of(DataLoss("x")).error()) is DataLoss
    assert type(Trouble("Exception", "x").error()) is HoldfastError
    assert type(Trouble("__name__", "x").error()) is HoldfastError
