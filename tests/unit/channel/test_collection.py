"""Roles and waiting tasks that the interpreter collects, at any moment and in any thread."""

from __future__ import annotations

import asyncio
import gc
import select
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Channel, ChannelConsumer
from holdfast.memory import waiter
from tests.kit.processes import until


@pytest.fixture(autouse=True)
def _no_collection_of_its_own() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def channel(runtime_directory: object) -> Iterator[Channel]:
    with Channel.create("c", slots=2, slot_size=8) as made:
        yield made


def abandon(consumer: ChannelConsumer) -> None:
    """Leave a task that waits for a datum in a loop that is closed."""

    async def main() -> None:
        asyncio.ensure_future(consumer.apop())  # noqa: RUF006
        while not waiter.waiter()._watches:
            await asyncio.sleep(0.001)

    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)
    loop.run_until_complete(main())
    loop.close()
    until(lambda: not waiter.waiter()._watches)


def readable(consumer: ChannelConsumer) -> bool:
    """Whether the waiter notifies, as it does after 50 ms at the latest."""
    return bool(select.select([consumer.fileno()], [], [], 20)[0])


def test_an_abandoned_task_is_collected_while_another_begins_to_wait(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = channel.consumer()
    abandon(consumer)
    consumer.arm()
    assert readable(consumer)  # so that the waiter has forgotten the task

    class CollectingWatch(waiter.Watch):
        def __init__(self, *args: Any) -> None:
            gc.collect()
            super().__init__(*args)

    monkeypatch.setattr(waiter, "Watch", CollectingWatch)
    thread = threading.Thread(target=consumer.arm, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "arm() hangs"
    assert readable(consumer)


def test_a_role_is_collected_while_it_is_notified(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer: Any = channel.consumer()
    consumer.arm()
    consumer.itself = consumer
    collected = threading.Event()
    identity = waiter._identity

    def collect(fd: int) -> Any:
        if threading.current_thread().name == "holdfast-waiter" and not collected.is_set():
            collected.set()
            gc.collect()
        return identity(fd)

    monkeypatch.setattr(waiter, "_identity", collect)
    del consumer
    assert collected.wait(20)
    with Channel.create("other", slots=2, slot_size=8) as other:
        consumer = other.consumer()
        consumer.arm()
        assert readable(consumer)


def test_the_role_of_an_abandoned_task_is_free(channel: Channel) -> None:
    abandon(channel.consumer())

    def is_free() -> bool:
        gc.collect()
        return not any(each.pid for each in [channel.stats().consumer] if each is not None)

    until(is_free)
    channel.consumer()
