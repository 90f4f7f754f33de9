"""Test the limits around Flight: slow, stuck, too many, too large, too late."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.client import Client
from holdfast.columns import remote
from holdfast.columns.address import Address
from holdfast.columns.decoding import Wish
from holdfast.columns.remote import RemoteDecoding, RemotePlace, RemoteTopic, _Away, _Busy, _Patience
from holdfast.columns.tickets import Mark, Read
from holdfast.errors import (
    AuthenticationFailed,
    BadConfiguration,
    Closed,
    Corrupt,
    NotFound,
    Timeout,
    TooManyConnections,
)
from holdfast.server.flight import link as links
from holdfast.server.flight import places as counting
from holdfast.server.flight.link import Link, Told, frame
from holdfast.server.flight.places import Places
from holdfast.server.flight.service import _told
from tests.kit.ledger.entry_bytes import METADATA, Fields, entry
from tests.kit.ledger.topic_bytes import compress
from tests.kit.processes import until
from tests.kit.served import Served, served
from tests.kit.server.auth_world import World, token
from tests.kit.server.flight_world import LARGE, PREFIX, by_path, flight_pid, gone, narrow, table

ROOT = token("root")

# -- memory --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [MemoryError("x"), pa.lib.ArrowMemoryError("malloc of size 1000 failed")])
def test_who_finds_no_room_comes_again(error: Exception) -> None:
    """It is not told that anything is damaged, and does not end."""
    with pytest.raises(_Away, match="no memory"), RemotePlace("http://nowhere").reached(), _told():
        raise error


def test_a_message_that_opens_to_a_gigabyte(tmp_path: Path) -> None:
    """I163: 33 KB of one producer end no read: the position is refused or skipped."""
    fields: Fields = [(METADATA["producer_name"], b"p"), (METADATA["sequence_id"], 1)]
    fields.append((METADATA["publish_time"], 1))
    large: Fields = [*fields, (METADATA["compression"], 3), (METADATA["uncompressed_size"], 1 << 30)]
    sent = [entry(fields, b"a"), entry(large, compress(3, bytes(1 << 30))), entry(fields, b"b")]
    with served(tmp_path / "data", http=True) as server, Client(server.url) as client:
        client.progress("orders", "billing", create=True, start="earliest")
        stage = client.stage()
        stage.append_entries("orders", sent)
        client.sink_commit("fill", 0, [stage.close()])
        topic = RemotePlace(server.http_url, timeout_s=20.0).open(f"{PREFIX}/orders")
        found = [row["value"] for row in table(topic, 0, 3, Wish(["value"], permissive=True)).to_pylist()]
        assert found == [b"a", b"b"]
        with pytest.raises(Corrupt, match=r"orders, position 1: .* would have 1073741824 bytes"):
            table(topic, 0, 3)


# -- patience ------------------------------------------------------------------------------------------


class Clock:
    """Replaces the module `time`: sleeping takes no time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(remote, "time", made)
    monkeypatch.setattr(counting, "time", made)
    return made


class Scripted(RemotePlace):
    """One row an entry; before some entries something breaks, or ends (None)."""

    def __init__(self, breaks: Mapping[int, list[Any]], clock: Clock, silent_s: float = 0.0) -> None:
        super().__init__("http://nowhere", timeout_s=60.0)
        self._breaks = breaks
        self._clock = clock
        self._silent_s = silent_s

    def rows(self, ticket: Read) -> Iterator[tuple[pa.RecordBatch, Mark]]:
        for at in range(ticket.start, ticket.stop):
            if self._breaks.get(at):
                self._clock.now += self._silent_s
                if (broken := self._breaks[at].pop(0)) is None:
                    return
                raise broken
            yield pa.record_batch({"position": [at]}), Mark(at + 1, 0, end=at + 1 == ticket.stop)


def read(place: RemotePlace, clock: Clock, each_s: float = 0.0) -> list[int]:
    found = []
    reading = RemoteDecoding(RemoteTopic(place, "orders", b""), 0, 10, Wish(["position"]))
    for batch in reading.batches():
        found += batch.column(0).to_pylist()
        clock.now += each_s
    return found


def test_how_long_rows_are_used_does_not_count(clock: Clock) -> None:
    """I165: a consumer of hours, and then one short cut: it goes on."""
    place = Scripted({5: [_Away("cut"), _Away("not there yet")]}, clock)
    assert read(place, clock, each_s=7200.0) == list(range(10))


def test_how_long_it_was_silent_does_not_count(clock: Clock) -> None:
    """A machine that fell silent is noticed late, and there may be another by then."""
    assert read(Scripted({5: [_Away("cut")]}, clock, silent_s=330.0), clock) == list(range(10))


def test_who_is_away_is_asked_for_so_long(clock: Clock) -> None:
    began = clock.now
    with pytest.raises(Timeout, match="http://nowhere did not answer for 60 s: cut; is the server running"):
        read(Scripted({5: [_Away("cut")] * 1000}, clock), clock)
    assert 55.0 < clock.now - began <= 60.0
    often = {at: [_Away("cut"), None] * 15 for at in range(10)}
    assert read(Scripted(often, clock), clock) == list(range(10))  # each time it got on


def test_who_has_no_place_is_asked_longer_and_not_for_ever(clock: Clock) -> None:
    began = clock.now
    with pytest.raises(
        Timeout, match=r"no free place for this read for 600 s: full; set flight\.reads higher"
    ):
        read(Scripted({5: [_Busy("full")] * 10_000}, clock), clock)
    assert 590.0 < clock.now - began <= 600.0
    began = clock.now
    mixed = [*[_Busy("full")] * 300, _Away("cut"), _Away("cut"), *[_Busy("full")] * 100]
    assert read(Scripted({0: mixed}, clock), clock) == list(range(10))
    assert clock.now - began > 300.0


class Counting(_Patience):
    """Counts from the last success, as if the rows took no time."""

    def got_on(self) -> None:
        super().got_on()
        self._away_since = vars(remote)["time"].monotonic()


class Patient(_Patience):
    """Waits for a place for ever."""

    def wait(self, error: Exception) -> None:
        self._busy_since = None
        super().wait(error)


@pytest.mark.parametrize(
    ("mutant", "check", "sign"),
    [
        (Counting, test_how_long_rows_are_used_does_not_count, Timeout),
        (Counting, test_how_long_it_was_silent_does_not_count, Timeout),
        (Patient, test_who_has_no_place_is_asked_longer_and_not_for_ever, pytest.fail.Exception),
    ],
)
def test_wrong_patience_is_noticed(
    mutant: Any, check: Any, sign: Any, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "_Patience", mutant)
    with pytest.raises(sign):
        check(clock)


# -- the link ------------------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "ANSWER_S", 0.3)


@pytest.mark.usefixtures("hasty")
def test_a_server_that_does_not_hear_holds_up_nobody() -> None:
    """With a full buffer a caller gets an error in time, and the process ends."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Link(theirs)
        ended: list[str] = []
        running = threading.Thread(target=lambda: ended.append(link.run(lambda: "")))
        running.start()
        names = ["x" * 1000] * 200
        asking = [threading.Thread(target=ask_in_vain, args=[link, names]) for _ in range(8)]
        for each in asking:
            each.start()
        for each in (*asking, running):
            each.join(20)
            assert not each.is_alive()
        assert ended == ["the server has stopped"]
        with pytest.raises(Closed):
            link.ask(None, [])


def ask_in_vain(link: Link, names: list[str]) -> None:
    with contextlib.suppress(Closed, Timeout):
        link.ask(None, names)
        raise AssertionError("an answer came")


def test_more_questions_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "ASKS_MAX", 3)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        link = Link(theirs)
        running = threading.Thread(target=link.run, args=[lambda: ""])
        asking = [threading.Thread(target=link.ask, args=[None, []]) for _ in range(3)]
        for each in (running, *asking):
            each.start()
        until(lambda: len(link._waiting) == 3)
        with pytest.raises(Closed, match="too many requests at once"):
            link.ask(None, [])
        for number in (1, 2, 3):
            ours.sendall(frame(Told(number)))
        for each in asking:
            each.join(20)
        ours.shutdown(socket.SHUT_RDWR)
        running.join(20)


# -- places --------------------------------------------------------------------------------------------


def test_places_are_counted_and_given_back(clock: Clock) -> None:
    places = Places(2, 300.0)
    with places.read(int), places.read(int):
        with pytest.raises(TooManyConnections, match="2 reads are in progress"), places.read(int):
            raise AssertionError
        with places.call():
            clock.now += 1000.0
            assert places.over() == ""  # a caller asks
    clock.now += 299.0
    assert places.over() == ""
    clock.now += 2.0
    assert places.over() == "no reads for flight.idle_s"
    with contextlib.ExitStack() as many:
        for _ in range(counting.CALLS_MAX):
            many.enter_context(places.call())
        with pytest.raises(TooManyConnections, match="64 requests"), places.call():
            raise AssertionError


def test_when_nobody_takes_anything_and_others_wait(clock: Clock) -> None:
    def refuse() -> None:
        with contextlib.suppress(TooManyConnections), places.read(int):
            raise AssertionError

    places, taken = Places(2, 300.0), [0]
    with places.read(lambda: taken[0]), places.read(int):
        clock.now += 301.0
        assert places.over() == ""  # no caller waits
        refuse()
        assert places.over().startswith("no reader has taken rows for flight.idle_s")
        taken[0] += 1
        assert places.over() == ""  # one of them gets on, though perhaps without rows
        clock.now += 301.0
        assert places.over() == ""  # the waiting caller is gone
    with places.read(int):
        clock.now += 301.0
        assert places.over() == ""  # there is a place


# -- a real server -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(world: World, data: Path) -> Iterator[Served]:
    config = world.configure().replace("holdfast.toml", "strict.toml")
    text = (world.directory / "holdfast.toml").read_text()
    Path(config).write_text(text.replace("[tls]", '[tls]\nclient_certificates = "required"'))
    more = ["--config", config, "--https-port", "0", "--tls-port", "0"]
    with served(data, *more, "--set", "flight.reads=2", "--set", "flight.idle_s=1", http=True) as server:
        yield server
        assert "call failed" not in server.logs()


def large(server: Served, shown: str = ROOT, **more: Any) -> RemoteTopic:
    return RemotePlace(server.http_url, shown, timeout_s=30.0, **more).open(f"{PREFIX}/large")


def test_readers_that_stop_in_the_middle_do_not_keep_others_out(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I165: two idle readers hold both places; a third is served; the two continue."""
    narrow(monkeypatch)
    wish = Wish(["position", "value"])
    begun = [(large(server).decoding(0, LARGE, wish).batches(), list[int]()) for _ in range(2)]
    for batches, found in begun:
        found += next(batches).column(0).to_pylist()
    pid = flight_pid(server)
    other = large(server).decoding(0, LARGE, wish)
    assert sum(batch.num_rows for batch in other.batches()) == LARGE
    until(lambda: gone(pid))
    assert "no reader has taken rows for flight.idle_s, and others wait" in server.logs()
    for batches, found in begun:
        assert len(found) < LARGE
        for batch in batches:
            found += batch.column(0).to_pylist()
        assert found == list(range(LARGE))


def test_a_token_that_ends_in_the_middle(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Started reads are delivered; a cut behind that end is an error at once."""
    narrow(monkeypatch)
    large(server)  # the process is there

    ends = int(time.time()) + 4
    topics = [large(server, token("root", exp=ends)) for _ in range(2)]
    whole, cut = (each.decoding(0, LARGE, Wish(["position", "value"])).batches() for each in topics)
    rows = next(whole).num_rows
    next(cut)
    until(lambda: time.time() > ends + 1)
    assert rows + sum(batch.num_rows for batch in whole) == LARGE
    os.kill(flight_pid(server), signal.SIGKILL)
    with pytest.raises(AuthenticationFailed, match="expired"):
        list(cut)


def test_certificates_on_both_sides(server: Served, world: World, data: Path) -> None:
    """With a client certificate it is read; otherwise the error names the setting."""
    url = f"https://localhost:{server.ready['https_port']}"
    shown = [str(each) for each in world.authority.certify("reader")]
    ca = str(world.authority.ca)
    far = RemotePlace(url, ROOT, ca, *shown).open(f"{PREFIX}/orders")
    assert table(far, 100, 300).equals(table(by_path(data, "orders"), 100, 300))
    names = ("tlsTrustCertsFilePath", "tlsCertificateFilePath", "tlsKeyFilePath")
    options = {"service.url": url, "token": ROOT, **dict(zip(names, (ca, *shown), strict=True))}
    address = Address.beside(options, "a subscription")
    assert address.url == server.tls_url
    with address.client(20.0) as client:
        assert client.progress("orders", "s", create=True, start="earliest").acked_to == 0
    both = world.directory / "both.pem"
    both.write_text("".join(Path(each).read_text() for each in shown))
    assert RemotePlace(url, ROOT, ca, str(both)).open(f"{PREFIX}/orders").plan() == far.plan()
    with pytest.raises((BadConfiguration, Timeout), match="tlsCertificateFilePath to this client's"):
        RemotePlace(url, ROOT, ca, timeout_s=0.5).topics()
    from tests.kit.certificates import Authority

    other = Authority(world.directory / "other")
    with pytest.raises(BadConfiguration, match=r"certificate verify failed.*tlsTrustCertsFilePath"):
        RemotePlace(url, ROOT, str(other.ca), *shown).topics()
    with pytest.raises((BadConfiguration, Timeout), match="tlsCertificateFilePath to this client's"):
        RemotePlace(url, ROOT, ca, *map(str, other.certify("reader")), timeout_s=0.5).topics()
    with pytest.raises(BadConfiguration, match=r"tlsCertificateFilePath .*there-is-none"):
        RemotePlace(url, ROOT, ca, "there-is-none").topics()
    with pytest.raises(BadConfiguration, match="tlsKeyFilePath is given without tlsCertificateFilePath"):
        RemotePlace(url, ROOT, ca, None, shown[1]).topics()


def test_a_name_that_the_certificate_does_not_have(world: World, tmp_path: Path) -> None:
    """HTTP is believed, and Flight is not: it is said which setting is wrong."""
    more = ["--config", world.configure(), "--https-port", "0", "--tls-port", "0"]
    elsewhere = ["--set", "listen.host=0.0.0.0", "--set", "flight.host=127.0.0.2"]
    with served(tmp_path / "data", *more, *elsewhere) as server:
        place = RemotePlace(f"https://localhost:{server.ready['https_port']}", ROOT, str(world.authority.ca))
        place.timeout_s = 0.5
        with pytest.raises(Timeout, match=r"certificate.*; flight\.host of the server must be a name in its"):
            place.topics()


def descriptors(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def memory_mb(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) >> 10


def test_nothing_is_left_open_and_nothing_piles_up(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads that ended, were given up or asked for nonsense leave nothing.

    Readers that take nothing cost little memory.
    """
    narrow(monkeypatch)
    shutil.copytree(filled, tmp_path / "data")
    with served(tmp_path / "data", "--set", "flight.reads=16", http=True) as server:

        def use() -> None:
            for _ in range(4):
                topic = large(server)
                topic.at_time(0), topic.weights(0, LARGE)
                assert table(topic, 0, 2000, Wish(["position"])).num_rows == 2000
                begun = topic.decoding(0, LARGE, Wish(["value"])).batches()
                next(begun)
                begun.close()  # type: ignore[attr-defined]
                with pytest.raises(NotFound):
                    topic.place.open(f"{PREFIX}/none")

        use()
        pid = flight_pid(server)
        before, ours = descriptors(pid), descriptors("self")
        for _ in range(5):
            use()
        gc.collect()  # errors hold on to their clients until then
        until(lambda: descriptors(pid) <= before + 8)  # of twenty times
        until(lambda: descriptors("self") <= ours + 8)
        used = memory_mb(pid)
        stopped = [large(server).decoding(0, LARGE, Wish(["value"])).batches() for _ in range(16)]
        for each in stopped:
            next(each)
        assert memory_mb(pid) - used < 16 * LARGE // 1000 / 2, "half of all that they would read"
        assert flight_pid(server) == pid
