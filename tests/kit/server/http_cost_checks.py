"""Checks of the cost of HTTP clients for the others (I91).

A page is made once for all, an incomplete body takes no slot of a request, and answers are sent as they are
read.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from holdfast.broker.topic import Topic
from holdfast.server import steps as step_module
from holdfast.server.http import scraping
from holdfast.server.http.connection import HttpConnection
from holdfast.server.http.pulsar_stats import Looks
from holdfast.server.logs import Refusals
from tests.kit.server.cost_world import STEP_INSTRUCTIONS, CostWorld, steps_of
from tests.kit.server.wire_raw import full

MIB = 1 << 20
PATIENCE_S = 10.0
"""Seconds to wait for what must happen."""
SCALE = 5
"""Factor by which a crowd and the steps of its answers are smaller than in a server."""
HEALTH = "/admin/v2/brokers/health"


def request(method: str, path: str, body: bytes = b"", length: int | None = None) -> bytes:
    """Return a request; its body may be shorter than its declared length."""
    size = len(body) if length is None else length
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode() + body


@contextlib.contextmanager
def client(world: CostWorld, receive_bytes: int = 0) -> Iterator[socket.socket]:
    with socket.socket() as channel:
        if receive_bytes:
            channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        channel.settimeout(PATIENCE_S)
        channel.connect(("127.0.0.1", world.http.port or 0))
        yield channel


def status(channel: socket.socket) -> int:
    """Return the status of the next answer."""
    return int(channel.recv(1 << 16).split()[1])


def whole(channel: socket.socket) -> bytes:
    """Return the body of an answer with a declared length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += channel.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    (length,) = (
        int(line[16:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += channel.recv(1 << 16)
    return body


async def unsent(world: CostWorld) -> int:
    """Return the bytes that wait to be sent over HTTP, in all."""
    found = [each._transport for each in world.http.connections.values()]
    return sum(0 if each is None else each.get_write_buffer_size() for each in found)


# -- bodies --------------------------------------------------------------------------------------------


def open_bodies_take_nobodys_place() -> None:
    """Send more bodies than requests may run: health and administration are still answered."""
    with CostWorld(http={"http_requests": 3}) as world, contextlib.ExitStack() as open_:
        for _ in range(10):
            channel = open_.enter_context(client(world))
            channel.sendall(request("PUT", "/admin/v2/tenants/x", b"{", length=1000))
        world.run(wait_for(lambda: world.http._under_way == 10))
        for path in (HEALTH, "/admin/v2/brokers/ready", "/status.html", "/admin/v2/tenants", "/metrics"):
            with client(world) as other:
                other.sendall(request("GET", path))
                assert status(other) == 200, path


def health_has_a_place_in_any_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    with CostWorld(http={"http_requests": 3}) as world:
        monkeypatch.setattr(world.http, "_working", 3)
        for path, expected in ((HEALTH, 200), ("/status.html", 200), ("/admin/v2/tenants", 503)):
            with client(world) as other:
                other.sendall(request("GET", path))
                assert status(other) == expected, path


def a_body_has_its_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.http")
    with CostWorld(http={"frame_s": 0.1}) as world, client(world) as slow:
        slow.sendall(request("PUT", "/admin/v2/tenants/x", b"{", length=1000))
        answer = slow.recv(1 << 16)
        assert answer.split()[1] == b"400"
        assert b"limits.frame_s" in answer
        assert world.budget.held == 0
    assert "limits.frame_s" in caplog.records[-1].__dict__["fields"]["why"]


def bodies_count_for_what_is_held() -> None:
    with CostWorld(held_bytes=MIB, http={"http_body_bytes": MIB}) as world, contextlib.ExitStack() as open_:
        answers = []
        for _ in range(4):
            channel = open_.enter_context(client(world))
            channel.sendall(request("PUT", "/admin/v2/tenants/x", b" " * 400_000, length=500_000))
            answers.append(channel)
            world.run(settle())
        assert world.budget.held <= MIB
        for refused in answers[2:]:
            answer = refused.recv(1 << 16)
            assert answer.split()[1] == b"503"
            assert b"limits.held_bytes" in answer


async def wait_for(true: Any) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():
            await asyncio.sleep(0.002)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0.002)


# -- answers -------------------------------------------------------------------------------------------


def scrapes_at_the_same_time_share_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """For twenty of them one page is made and shared."""
    asked, sheet, make = 0, scraping.Scrapes.sheet, scraping.Scrapes._make

    async def counted(scrapes: scraping.Scrapes) -> scraping.Sheet:
        nonlocal asked
        asked += 1
        return await sheet(scrapes)

    async def late(scrapes: scraping.Scrapes) -> scraping.Sheet:
        await wait_for(lambda: asked == 20)
        return await make(scrapes)

    monkeypatch.setattr(scraping.Scrapes, "sheet", counted)
    monkeypatch.setattr(scraping.Scrapes, "_make", late)
    with CostWorld(topics=300) as world, contextlib.ExitStack() as open_:
        channels = [open_.enter_context(client(world, receive_bytes=1 << 16)) for _ in range(20)]
        for channel in channels:
            channel.sendall(request("GET", "/metrics"))
        world.run(wait_for(lambda: world.http.scrapes.made == 1))
        world.run(settle())
        assert world.run(unsent(world)) < 20 * 256 << 10
        pages = [whole(channel) for channel in channels]
        assert len(set(pages)) == 1
        assert len(pages[0]) > MIB
        assert pages[0].count(b"topic-00299") > 30
        assert world.http.scrapes.made == 1


def slow_scrapers_keep_two_pages_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each asks when the last page is old: the third gets the second's."""
    with CostWorld(topics=100) as world, contextlib.ExitStack() as open_:
        channels = [open_.enter_context(client(world, receive_bytes=1 << 14)) for _ in range(5)]
        for channel in channels:
            channel.sendall(request("GET", "/metrics"))
            world.run(settle())
        assert world.http.scrapes.made == 2
        size = max(each.size for each in world.http.scrapes._alive)
        assert size <= world.budget.held <= 2 * size + 100_000
        for channel in channels:
            whole(channel)
        world.run(settle())
        assert world.budget.held <= size


def making_a_page_lets_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop has many turns while a page is made."""
    monkeypatch.setattr(scraping, "STEP_S", 0.0)
    with CostWorld(topics=200) as world:

        async def turns() -> int:
            count = 0
            making = asyncio.ensure_future(world.http.scrapes.sheet())
            while not making.done():
                count += 1
                await asyncio.sleep(0)
            return count

        assert world.run(turns()) > 190


def large_answers_leave_as_they_are_read(path: str) -> None:
    """Pipelined by clients that do not read: at most two pieces each wait, and count."""
    with CostWorld(topics=1000, name_bytes=400) as world, contextlib.ExitStack() as open_:
        channels = [open_.enter_context(client(world, receive_bytes=1 << 16)) for _ in range(3)]
        for channel in channels:
            channel.sendall(request("GET", f"/admin/v2/{path}") * 30)
        world.run(settle())
        assert world.run(unsent(world)) < 3 * 512 << 10
        assert world.budget.held > MIB
        whole(channels[0])
        for channel in channels:
            channel.close()
        world.run(wait_for(lambda: world.budget.held == 0))


def who_goes_in_the_middle_of_an_answer_is_no_mistake(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is logged as an error: otherwise a client could fill the log."""
    with CostWorld(topics=1000, name_bytes=400) as world:
        for _ in range(3):
            with client(world, 4096) as channel:
                channel.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                channel.sendall(request("GET", "/admin/v2/persistent/public/default"))
                assert channel.recv(100)
        world.run(wait_for(lambda: not world.http.connections))
        world.idle()
        said = [each for each in caplog.records if each.levelname == "ERROR" and each.name != "asyncio"]
        assert not said  # asyncio would report unretrieved exceptions of earlier tasks here


def answers_that_are_too_much_for_all_are_refused() -> None:
    with CostWorld(topics=1000, name_bytes=400, held_bytes=MIB) as world, contextlib.ExitStack() as open_:
        told = []
        for _ in range(4):
            channel = open_.enter_context(client(world, receive_bytes=1 << 14))
            channel.sendall(request("GET", "/admin/v2/persistent/public/default"))
            world.run(settle())
            told.append(channel)
        assert [status(each) for each in told] == [200, 200, 503, 503]
        assert world.budget.held <= MIB


def a_client_that_reads_its_answer_byte_by_byte_is_closed() -> None:
    world = CostWorld(topics=1000, name_bytes=400, http={"keep_alive_s": 60.0})
    with world, client(world, receive_bytes=1 << 14) as slow:
        slow.sendall(request("GET", "/admin/v2/persistent/public/default"))
        world.run(settle())
        (connection,) = world.http.connections.values()
        world.run(look(connection, 0))
        slow.recv(1)
        world.run(look(connection, 59))
        assert connection._transport is not None
        world.run(look(connection, 61))
        world.run(wait_for(lambda: not world.http.connections))


def a_look_at_a_crowd_takes_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of consumers, producers and holes: the loop has turns in between."""
    monkeypatch.setattr(step_module, "STEP_ITEMS", step_module.STEP_ITEMS / SCALE)
    with CostWorld(topics=0) as world:
        world.run(world.create(["t"], ("s", "other")))
        world.run(scattered(world, 1200 // SCALE))
        raw = world.raw()
        for number in range(100 // SCALE):
            raw.subscribe("t", number, sub_type=1)
            raw.produce("t", number)
        topic, looks = world.broker.topic(full("t")), Looks(world.http)
        shown: tuple[Callable[[Topic], Coroutine[Any, Any, Any]], ...]
        shown = (looks.topic, looks.internal, looks.info)
        for show in shown:
            steps = world.run(steps_of(show(topic)))
            assert len(steps) > 2, f"{show} takes no steps"
            assert max(steps) < STEP_INSTRUCTIONS / SCALE, show


def a_topic_may_be_deleted_while_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is shown as it was: the log, which forgets it, raises no error."""
    monkeypatch.setattr("holdfast.server.steps.STEP_ITEMS", 0.1)

    async def deleted_meanwhile(world: CostWorld, name: str) -> None:
        deleted = asyncio.Event()
        monkeypatch.setattr("holdfast.server.steps.Line.wait", lambda line: deleted.wait())
        topic = world.broker.topic(full("t"))
        shown = asyncio.ensure_future(getattr(Looks(world.http), name)(topic))
        await world.broker.admin.delete_topic("t", force=True)
        assert not shown.done(), f"{name} takes no step"
        deleted.set()
        await asyncio.wait([shown])
        assert shown.exception() is None, name

    with CostWorld() as world:
        for name in ("topic", "internal", "info", "backlog"):
            world.run(world.create(["t"], ("s", "other")))
            world.run(scattered(world, 20))
            world.run(deleted_meanwhile(world, name))


async def scattered(world: CostWorld, holes: int) -> None:
    """Publish messages, and acknowledge every other one."""
    async with world.broker.producer("t") as producer:
        await producer.send_many([b"x"] * (2 * holes))
    topic = world.broker.topic(full("t"))
    for subscription in topic.state.subscriptions.values():
        ranges = [(number, number + 1) for number in range(1, 2 * holes, 2)]
        subscription.acks.ack_ranges(ranges, topic.state.ledgers.end)


async def look(connection: HttpConnection, after_s: float) -> None:
    """Run the connection's check as if it were `after_s` later."""
    real = connection._loop
    connection._loop = Later(real, after_s)  # type: ignore[assignment]
    try:
        connection.look()
    finally:
        connection._loop = real


class Later:
    def __init__(self, loop: asyncio.AbstractEventLoop, after_s: float) -> None:
        self._loop = loop
        self._after_s = after_s

    def time(self) -> float:
        return self._loop.time() + self._after_s


def refusals_of_http_are_logged_with_their_reason_and_throttled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "holdfast.http")
    with CostWorld() as world, client(world) as channel:
        for _ in range(Refusals.BURST + 20):
            channel.sendall(request("PUT", "/admin/v2/tenants/bad%20name"))
            assert status(channel) == 412
    lines = [each.__dict__["fields"] for each in caplog.records]
    assert Refusals.BURST <= len(lines) <= Refusals.BURST + 5
    assert {(each["status"], each["method"]) for each in lines} == {(412, "PUT")}
    assert all("cannot name a tenant" in each["why"] for each in lines)
