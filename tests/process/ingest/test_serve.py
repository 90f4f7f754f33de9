"""Local ingest against a real `holdfast serve` in another process, as a user's programs meet it."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Closed, Full, Misuse, NoSpace, NotFound, Timeout
from holdfast.local.place import brokers
from tests.kit.processes import PATIENCE_S, Start, tell, until
from tests.kit.served import Served, served
from tests.kit.server.ingest_world import stored
from tests.kit.slices import pick

SMALL = ("--set", "ingest.queue_bytes=64K")


def call(server: Served, method: str, path: str) -> bytes:
    request = urllib.request.Request(server.http_url + path, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        found: bytes = answer.read()
        return found


def figure(server: Served, name: str) -> float:
    """One of /metrics."""
    found = re.search(rf"^{name}{{[^}}]*}} (\S+)$", call(server, "GET", "/metrics").decode(), re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def test_a_producer_that_starts_before_the_server(tmp_path: Path, start: Start) -> None:
    def child() -> None:
        tell("waiting")
        with holdfast.Producer("orders", timeout=60.0) as p:
            p.put(b"first")
        tell("done")

    early = start(child)
    assert early.hear() == "waiting"
    with served(tmp_path / "data") as server:
        assert early.hear(60.0) == "done"
        assert server.end() == 0
    assert asyncio.run(stored(tmp_path / "data", "orders")) == [b"first"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_the_server_restarts_with_full_queues(tmp_path: Path, number: signal.Signals) -> None:
    data = tmp_path / "data"
    with served(data, *SMALL) as server:
        producers = [holdfast.Producer(f"t{n}", timeout=PATIENCE_S) for n in range(5)]
        server.end(number)
    put: dict[int, list[bytes]] = {}
    for n, p in enumerate(producers):
        put[n] = []
        with contextlib.suppress(Full):
            while True:
                message = b"%d:%d" % (n, len(put[n])) + bytes(500)
                p.put(message, timeout=0)
                put[n].append(message)
        with pytest.raises(Timeout, match="has died: start it again"):
            p.put(bytes(510), timeout=0.05)
        assert len(put[n]) > 50
    with served(data, *SMALL) as server:
        for p in producers:
            p.put(b"behind", timeout=PATIENCE_S)
            p.close()
        assert server.end() == 0
    for n, messages in put.items():
        assert asyncio.run(stored(data, f"t{n}")) == [*messages, b"behind"]


def test_a_full_disk_is_said_and_waited_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data, *SMALL) as server:
        p = holdfast.Producer("orders")
        p.put(b"0")
        p.flush(PATIENCE_S)
        server.end(signal.SIGKILL)
    p.put(b"1")
    everything = shutil.disk_usage(tmp_path).total  # so much can never be free
    with served(data, *SMALL, "--set", f"broker.reserve_bytes={everything}", http=True) as server:
        until(lambda: figure(server, "holdfast_ingest_queues_waiting") == 1)
        with pytest.raises(Timeout, match="the broker says"):
            p.flush(0.05)
        with pytest.raises(NoSpace):
            holdfast.Producer("others")
        assert figure(server, "holdfast_ingest_refused_total") == 1
        server.end(signal.SIGTERM)
    with served(data, *SMALL, http=True) as server:
        p.close(PATIENCE_S)
        assert figure(server, "holdfast_ingest_queues_waiting") == 0
        assert server.end() == 0
    assert asyncio.run(stored(data, "orders")) == [b"0", b"1"]


def test_a_topic_is_deleted_while_producers_publish(tmp_path: Path) -> None:
    """Producers get an error, or publish to the next topic of that name; nothing twice."""
    data = tmp_path / "data"
    ended = threading.Event()
    told: list[str] = []
    confirmed: list[bytes] = []

    def publish(label: int) -> None:
        number = 0
        while not ended.is_set():
            with contextlib.suppress(NotFound, Closed):  # the topic was deleted under it
                p = holdfast.Producer("orders", timeout=PATIENCE_S)
                try:
                    while not ended.is_set():
                        message = b"%d:%d" % (label, number)
                        number += 1
                        place = p.put(message, timeout=PATIENCE_S)
                        p.wait(place, timeout=PATIENCE_S)
                        confirmed.append(message)
                except (NotFound, Closed) as error:
                    told.append(str(error))
                finally:
                    p._leave()

    with served(data, *SMALL, http=True) as server:
        threads = [threading.Thread(target=publish, args=(label,)) for label in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            before = len(confirmed)
            until(lambda before=before: len(confirmed) > before + 20)  # type: ignore[misc]
            call(server, "DELETE", "/admin/v2/persistent/public/default/orders?force=true")
        before = len(confirmed)
        until(lambda: len(confirmed) > before + 20)
        ended.set()
        for thread in threads:
            thread.join(PATIENCE_S)
        assert server.end() == 0
    assert told
    found = asyncio.run(stored(data, "orders"))
    assert len(found) == len(set(found))
    assert set(confirmed[-10:]) <= set(found)


def test_many_topics_and_many_producers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with served(data, *SMALL, http=True) as server:
        producers = [holdfast.Producer(f"t{n}", timeout=60.0) for n in range(pick(test=60, nightly=200))]
        crowd = [holdfast.Producer("crowd", timeout=60.0) for _ in range(pick(test=40, nightly=100))]
        for turn in range(3):
            for each in (*producers, *crowd):
                each.put(b"%d" % turn, timeout=60.0)
        for each in (*producers, *crowd):
            each.flush(60.0)
        assert figure(server, "holdfast_ingest_queues") == len(producers) + 1
        assert figure(server, "holdfast_ingest_messages_total") == 3 * (len(producers) + len(crowd))
        assert figure(server, "holdfast_ingest_bytes_total") > 3 * (len(producers) + len(crowd))
        for each in (*producers, *crowd):
            each.close()
        assert server.end() == 0
        assert "Traceback" not in server.logs()
    for n in (0, len(producers) // 2, len(producers) - 1):
        assert asyncio.run(stored(data, f"t{n}")) == [b"0", b"1", b"2"]
    assert sorted(asyncio.run(stored(data, "crowd"))) == sorted([b"0", b"1", b"2"] * len(crowd))


def test_two_servers_for_one_runtime_directory(tmp_path: Path, runtime_directory: Path) -> None:
    with served(tmp_path / "a") as first, served(tmp_path / "b") as second:
        with pytest.raises(Misuse, match="choose one"):
            holdfast.Producer("orders")
        for name in "ab":
            with holdfast.Producer("orders", data=tmp_path / name) as p:
                p.put(name.encode())
        shutil.copytree(tmp_path / "a", tmp_path / "copy", ignore=shutil.ignore_patterns("lock*"))
        with served(tmp_path / "copy") as copy:
            until(lambda: "local publishing through shared memory is off" in copy.logs())
            with holdfast.Producer("orders", data=tmp_path / "a") as p:
                p.put(b"not to the copy")
            assert copy.end() == 0
        for server in (first, second):
            assert server.end() == 0
    assert brokers(runtime_directory)[0] == []
    assert asyncio.run(stored(tmp_path / "a", "orders")) == [b"a", b"not to the copy"]
    assert asyncio.run(stored(tmp_path / "b", "orders")) == [b"b"]


def test_the_limit_of_the_server_holds_here(tmp_path: Path) -> None:
    """A message that no consumer would take is not let in."""
    with served(tmp_path / "data", "--set", "limits.message_bytes=10000") as server:
        with holdfast.Producer("orders") as p:
            with pytest.raises(Misuse, match="the largest is 10000"):
                p.put(bytes(10_000))
            p.put(bytes(9_000))
        assert server.end() == 0


def test_damage_by_one_producer_is_told_and_counted(tmp_path: Path) -> None:
    with served(tmp_path / "data", *SMALL, http=True) as server:
        good, bad = holdfast.Producer("good"), holdfast.Producer("bad")
        bad._queue.put(b"no entry at all")
        with pytest.raises(holdfast.Corrupt, match="position"):
            bad.wait(1 << 40, timeout=PATIENCE_S)
        good.put(b"fine")
        good.close()
        until(lambda: figure(server, "holdfast_ingest_queues_damaged_total") == 1)
        assert server.end() == 0
        assert "the ingest queue of persistent://public/default/bad ends" in server.logs()
        bad._leave()


# -- asyncio ------------------------------------------------------------------------------------------


def test_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with await holdfast.Producer.aopen("orders", timeout=PATIENCE_S) as p:
            places = await asyncio.gather(*(p.aput(b"%d" % n) for n in range(50)))
            await p.await_confirmed(max(places), timeout=PATIENCE_S)
            assert p.confirmed >= max(places)
            assert await p.aput_many([b"50", b"51"], batch=2) > max(places)
            assert await p.aput_many([]) >= max(places)
            await p.aflush(PATIENCE_S)
            assert not p.pending
        with pytest.raises(Closed):
            await p.aput(b"x")
        with pytest.raises(Closed):
            await p.aflush()
        await p.aclose()

    with served(tmp_path / "data", *SMALL) as server:
        asyncio.run(main())
        assert server.end() == 0
    assert sorted(asyncio.run(stored(tmp_path / "data", "orders")), key=int) == [b"%d" % n for n in range(52)]


def test_asyncio_waits_without_stopping_the_loop(tmp_path: Path) -> None:
    """Without a server, puts and flushes of a loop end in time without blocking it."""
    data = tmp_path / "data"

    async def ticks(count: list[int]) -> None:
        while True:
            await asyncio.sleep(0.005)
            count[0] += 1

    async def ticked(count: list[int]) -> None:
        """The loop has run what was begun before, and goes on."""
        seen = count[0]
        while count[0] < seen + 2:
            await asyncio.sleep(0)

    async def full(p: Any) -> int:
        put = 0
        try:
            while True:
                await p.aput(bytes(1000), timeout=0)
                put += 1
        except Full:
            return put

    async def main(p: Any) -> int:
        count = [0]
        ticking = asyncio.create_task(ticks(count))
        put = await full(p)
        for waiting in (p.aput(bytes(1000), timeout=0.5), p.aflush(timeout=0.5), p.aflush(timeout=0)):
            with pytest.raises(Timeout, match="has died: start it again"):
                await waiting
        assert count[0] > 10
        slow = asyncio.create_task(p.aput(bytes(1000)))
        await ticked(count)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        waiting = asyncio.create_task(p.aflush())
        await ticked(count)
        ticking.cancel()
        with served(data, *SMALL) as server:
            await asyncio.wait_for(waiting, 60.0)
            await p.aclose(60.0)
            assert server.end() == 0
        return put

    with served(data, *SMALL) as server:
        p = holdfast.Producer("orders")
        server.end(signal.SIGKILL)
    put = asyncio.run(main(p))
    assert asyncio.run(stored(data, "orders")) == [bytes(1000)] * put
