"""Checks of the administration of compaction, for tests and for their mutants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest import mock

from holdfast.broker.compaction.source import CompactionSource
from holdfast.broker.events import CompactionRequest, Event
from tests.kit.processes import PATIENCE_S
from tests.kit.server.http_world import HttpWorld

NS = "/admin/v2/namespaces/public/default"
THRESHOLD = "compactionThreshold"
KEYS = 3


def keyed(http: HttpWorld, messages: int = 10) -> str:
    """Create a topic with messages of three keys; return its path."""
    topic = http.topic()
    http.run(fill(http, topic, messages))
    return topic


async def fill(http: HttpWorld, topic: str, messages: int) -> None:
    async with http.broker.producer(topic.rpartition("/")[2]) as producer:
        for number in range(messages):
            await producer.send(b"%d" % number, key=f"key {number % KEYS}")


def compaction(http: HttpWorld, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = http.get(f"{topic}/compaction")
    return found


def compacted(http: HttpWorld, topic: str, status: str = "SUCCESS") -> dict[str, Any]:
    """Compact a topic, and wait until that has ended; return its state."""
    http.done("PUT", f"{topic}/compaction")
    return ended(http, topic, status)


def ended(http: HttpWorld, topic: str, status: str = "SUCCESS") -> dict[str, Any]:
    """Wait until no compaction of a topic runs; return its state, which has this status."""

    async def wait() -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await http.asking("GET", f"{topic}/compaction")).json["status"] == "RUNNING":
                await asyncio.sleep(0.001)

    http.run(wait())
    found = compaction(http, topic)
    assert found["status"] == status, found
    return found


@contextlib.contextmanager
def failing(words: str = "the disk is torn") -> Iterator[None]:
    """Let compactions fail when they read."""
    with mock.patch.object(CompactionSource, "next", side_effect=OSError(words)):
        yield


@contextlib.contextmanager
def waiting(http: HttpWorld) -> Iterator[None]:
    """Let compactions wait before they read."""
    released = asyncio.Event()
    following = CompactionSource.next

    async def later(source: CompactionSource) -> Any:
        await released.wait()
        return await following(source)

    async def release() -> None:
        released.set()

    with mock.patch.object(CompactionSource, "next", later):
        yield
    http.run(release())


@contextlib.asynccontextmanager
async def held(http: HttpWorld) -> AsyncIterator[asyncio.Future[None]]:
    """Delay the confirmation of a requested compaction. The future is done when one is requested."""
    loop = asyncio.get_running_loop()
    asked, release = loop.create_future(), asyncio.Event()
    engine = http.broker.engine
    submit = engine.submit

    def later(event: Event) -> Any:
        confirmed = submit(event)
        if not isinstance(event, CompactionRequest):
            return confirmed
        asked.set_result(None)

        async def wait() -> Any:
            await release.wait()
            return await confirmed

        return asyncio.ensure_future(wait())

    with mock.patch.object(engine, "submit", later):
        yield asked
        release.set()


def a_request_is_answered_when_it_is_durable(http: HttpWorld) -> None:
    """Other requests are answered meanwhile."""
    topic = keyed(http)

    async def scene() -> int:
        async with held(http) as asked:
            request = asyncio.ensure_future(http.asking("PUT", f"{topic}/compaction"))
            await asked
            for _ in range(5):  # each takes the loop through more turns than the answer would
                assert (await http.asking("GET", f"{topic}/compaction")).status == 200
            assert not request.done(), "it was answered before it was durable"
        return (await request).status

    assert http.run(scene()) == 204
    ended(http, topic)


def a_failure_is_told_and_does_not_stay(http: HttpWorld) -> None:
    """The status is ERROR with the reason, and the view stays until a later success."""
    topic = keyed(http)
    before = compacted(http, topic)
    http.run(fill(http, topic, 1))
    with failing("the disk is torn"):
        found = compacted(http, topic, "ERROR")
    assert "the disk is torn" in found["lastError"]
    assert found["errorTimestamp"] > 0
    assert (found["view"], found["failed"]) == (before["view"], 1)
    stats = http.get(f"{topic}/stats")["compaction"]
    assert stats["lastCompactionFailedTimestamp"] == found["errorTimestamp"]
    found = compacted(http, topic)
    assert (found["lastError"], found["view"], found["succeeded"]) == ("", before["view"] + 1, 2)


def the_nearest_threshold_decides(http: HttpWorld) -> None:
    """The topic's wins over the namespace's, and 0 means only on request."""
    topic = keyed(http)

    def look() -> None:
        async def work() -> None:
            broker = http.broker
            broker.compactions.look_at(
                broker.topic(f"persistent://public/default/{topic.rpartition('/')[2]}")
            )
            await broker.settle()

        http.run(work())

    http.done("PUT", f"{NS}/{THRESHOLD}", json=1)
    try:
        http.done("POST", f"{topic}/{THRESHOLD}", json=0)
        assert http.get(f"{topic}/{THRESHOLD}?applied=true") == 0
        look()
        assert compaction(http, topic)["status"] == "NOT_RUN"
        http.done("DELETE", f"{topic}/{THRESHOLD}")
        assert http.get(f"{topic}/{THRESHOLD}") is None
        assert http.get(f"{topic}/{THRESHOLD}?applied=true") == compaction(http, topic)["threshold"] == 1
        look()
        assert ended(http, topic)["view"] == 1
    finally:
        http.done("DELETE", f"{NS}/{THRESHOLD}")
