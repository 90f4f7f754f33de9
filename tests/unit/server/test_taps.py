"""Taps of a simulated service: samples are stored once, in order, with their numbers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from holdfast import Event, Field, Method, NoSpace, NotFound, Timeout
from holdfast.broker import Broker, BrokerOptions
from holdfast.server import taps
from holdfast.server.config import Tap
from holdfast.server.taps import Taps

Work = Callable[[Broker, "Source", Taps], Awaitable[None]]


@dataclass
class FakeSample:
    """A sample, as the core returns it."""

    sequence: int
    data: bytes
    missed: int = 0
    released: bool = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.released = True


class Source:
    """A service of one event and one field: proxy, class and subscription in one."""

    def __init__(self) -> None:
        self.name = "Camera.left"
        self.elements = {"frame": Event(dtype="u1", shape=(2, 3)), "gain": Field("f8"), "reset": Method()}
        self.offered, self.exists = True, True
        self.epoch, self.provider_pid = 1, 1
        self.waiting: deque[FakeSample] = deque()
        self.given: list[FakeSample] = []
        self.subscribed: list[tuple[int, int]] = []
        self.looks = 0

    # the class
    def of(self, name: str) -> Self:
        assert name == self.name
        self.looks += 1
        if not self.exists:
            raise NotFound(f"there is no service {name}")
        return self

    async def afind(self, instance: str, timeout: float, *, application: str) -> Self:
        assert (instance, timeout, application) == ("left", 0, "holdfast serve")
        if not self.offered:
            raise NotFound("not offered")
        return self

    # the proxy, its event and its subscription
    @property
    def frame(self) -> Self:
        return self

    gain = frame

    def subscribe(self, max_samples: int, *, history: int) -> Self:
        self.subscribed.append((max_samples, history))
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    async def atake(self, timeout: float) -> FakeSample:
        if not self.waiting:
            await asyncio.sleep(timeout)
            raise Timeout("no new sample")
        sample = self.waiting.popleft()
        self.given.append(sample)
        return sample

    def send(self, *sequences: int, missed: int = 0, data: bytes = b"abcdef") -> None:
        self.waiting += [FakeSample(each, data, missed) for each in sequences]


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    made = Source()
    monkeypatch.setattr(taps, "Service", made)
    monkeypatch.setattr(taps, "LOOK_S", 0.0005)
    return made


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Lines of the log."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(f"{record.getMessage()} {record.__dict__}")  # type: ignore[method-assign]
    logger = logging.getLogger("holdfast.server.taps")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield found
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)


def run(path: Path, source: Source, work: Work, event: str = "frame", **options: Any) -> list[Any]:
    """Run a tap while `work` goes on; return the messages of the topic."""

    async def main() -> list[Any]:
        broker = await Broker.start(path / "data", BrokerOptions(sync="os"))
        try:
            running = Taps(broker, [Tap("Camera.left", event, "frames", 4)], **options)
            running.start()
            await work(broker, source, running)
            await running.stop()
            if not broker.has_topic("persistent://public/default/frames"):
                return []
            return list(await broker.admin.examine("frames", count=2000))
        finally:
            await broker.close()

    return asyncio.run(main())


async def reaches(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0)


def figure(taps: Taps, name: str) -> float:
    [running] = taps._taps
    return dict(running.counts())[f"holdfast_tap_{name}"]


def told(messages: list[Any]) -> list[tuple[int, int]]:
    """Sequence number and missed samples of each message."""
    named = [each.properties for each in messages]
    return [(int(each["holdfast.sequence"]), int(each["holdfast.missed"])) for each in named]


def test_each_sample_is_a_message_with_its_numbers(tmp_path: Path, source: Source) -> None:
    async def work(broker: Broker, source: Source, taps: Taps) -> None:
        source.send(1, 2)
        source.send(6, missed=3)
        await reaches(lambda: figure(taps, "messages_total") == 3)
        assert (figure(taps, "connected"), figure(taps, "missed_total")) == (1, 3)
        assert (figure(taps, "bytes_total"), figure(taps, "errors_total")) == (18, 0)

    messages = run(tmp_path, source, work)
    assert told(messages) == [(1, 0), (2, 0), (6, 3)]
    assert [bytes(each.data) for each in messages] == [b"abcdef"] * 3
    assert messages[0].properties == {
        "holdfast.source": "Camera.left/frame",
        "holdfast.sequence": "1",
        "holdfast.missed": "0",
        "holdfast.epoch": "1",
        "holdfast.dtype": "|u1",
        "holdfast.shape": "2,3",
    }
    assert all(each.event_time is not None for each in messages)
    assert all(each.released for each in source.given)


def test_a_full_disk_is_waited_out_with_bounded_memory(
    tmp_path: Path, source: Source, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker, source: Source, taps: Taps) -> None:
        full = True
        admit = broker.admit

        async def refuse(size: int) -> None:
            if full:
                raise NoSpace("the disk is full")
            await admit(size)

        monkeypatch.setattr(broker, "admit", refuse)
        source.send(*range(1, 1001))
        await reaches(lambda: len(source.given) == 256)
        failed = figure(taps, "errors_total")
        await reaches(lambda: figure(taps, "errors_total") > failed + 5)
        assert len(source.given) == 256
        assert figure(taps, "messages_total") == 0
        full = False
        await reaches(lambda: figure(taps, "messages_total") == 1000)

    assert told(run(tmp_path, source, work)) == [(each, 0) for each in range(1, 1001)]
    assert sum("a tap cannot store samples" in line for line in lines) == 1
    assert sum("a tap can store samples again" in line for line in lines) == 1


def test_a_run_whose_outcome_is_not_known_is_stored_once(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(broker: Broker, source: Source, taps: Taps) -> None:
        publish, calls = broker.publish_entries, 0

        def forgetful(*arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            future = publish(*arguments)
            if calls > 2:
                return future
            lost: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda _: lost.set_exception(Timeout("no answer")))
            return lost

        monkeypatch.setattr(broker, "publish_entries", forgetful)
        source.send(1, 2, 3)
        await reaches(lambda: figure(taps, "messages_total") == 3)
        assert figure(taps, "errors_total") == 2

    assert told(run(tmp_path, source, work)) == [(1, 0), (2, 0), (3, 0)]


def test_a_sample_that_is_too_large_is_counted_as_missed(
    tmp_path: Path, source: Source, lines: list[str]
) -> None:
    async def work(broker: Broker, source: Source, taps: Taps) -> None:
        source.send(1)
        source.send(4, 5, missed=1, data=bytes(2000))
        source.send(6)
        await reaches(lambda: figure(taps, "messages_total") == 2)
        assert (figure(taps, "missed_total"), figure(taps, "errors_total")) == (4, 2)

    assert told(run(tmp_path, source, work, message_bytes_max=1000)) == [(1, 0), (6, 4)]
    assert sum("sample 4 has 2000 bytes; the largest message has 1000" in line for line in lines) == 1


def test_an_element_that_the_service_does_not_have(tmp_path: Path, source: Source, lines: list[str]) -> None:
    for event in ("nothing", "reset"):

        async def work(broker: Broker, source: Source, taps: Taps) -> None:
            await reaches(lambda: figure(taps, "errors_total") > 3)
            assert figure(taps, "connected") == 0

        assert run(tmp_path, source, work, event) == []
        words = f"service Camera.left has no event or field {event!r}; those that it has: frame, gain"
        assert sum(words in line for line in lines) == 1


def test_samples_from_before_are_wanted_only_if_they_are_new(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tap that has seen no segment takes the history of the next one."""
    monkeypatch.setattr(taps, "RELEASE_S", 0.0)

    async def work(broker: Broker, source: Source, taps: Taps) -> None:
        await reaches(lambda: figure(taps, "connected") == 1)
        source.offered = False
        await reaches(lambda: figure(taps, "connected") == 0)
        source.offered = True
        await reaches(lambda: figure(taps, "connected") == 1)
        source.offered = source.exists = False
        looks = source.looks
        await reaches(lambda: source.looks > looks + 2)
        source.offered = source.exists = True
        await reaches(lambda: figure(taps, "connected") == 1)

    run(tmp_path, source, work)
    assert source.subscribed[0] == (4, 0)
    assert source.subscribed[-1] == (4, 4)
    assert {*source.subscribed[1:-1]} == {(4, 0)}


@pytest.mark.parametrize("event", ["frame", "gain"])
def test_the_first_sample_of_a_new_segment_is_stored(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """Its epoch, number and data may equal those of the last sample before."""
    monkeypatch.setattr(taps, "RELEASE_S", 0.0)

    async def work(broker: Broker, source: Source, taps: Taps) -> None:
        source.send(1)
        await reaches(lambda: figure(taps, "messages_total") == 1)
        source.offered = source.exists = False
        looks = source.looks
        await reaches(lambda: source.looks > looks + 2)
        source.send(1)
        source.offered = source.exists = True
        await reaches(lambda: len(source.given) == 2)
        source.send(2)
        await reaches(lambda: len(source.given) == 3)

    assert told(run(tmp_path, source, work, event)) == [(1, 0), (1, 0), (2, 0)]


def test_the_value_of_a_field_is_not_stored_again(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taps, "RELEASE_S", 0.0)

    async def work(broker: Broker, source: Source, taps: Taps) -> None:
        source.send(1)
        await reaches(lambda: figure(taps, "messages_total") == 1)
        before = len(source.subscribed)
        source.offered = False
        await reaches(lambda: figure(taps, "connected") == 0)
        source.send(1, 2)
        source.offered = True
        await reaches(lambda: len(source.subscribed) > before and figure(taps, "messages_total") == 2)

    assert told(run(tmp_path, source, work, "gain")) == [(1, 0), (2, 0)]
    assert {*source.subscribed} == {(4, 1)}


def test_numbers_go_on_in_the_next_life(tmp_path: Path, source: Source) -> None:
    async def work(broker: Broker, source: Source, taps: Taps) -> None:
        source.send(len(source.given) + 1, len(source.given) + 2)
        await reaches(lambda: figure(taps, "messages_total") == 2)

    run(tmp_path, source, work)
    assert told(run(tmp_path, source, work)) == [(1, 0), (2, 0), (3, 0), (4, 0)]
