"""Common steps of the tests' programs (kit/server/wire_world.py)."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from tests.kit.server.wire_world import pulsar


def numbers(first: int, end: int) -> list[bytes]:
    """Return b"7", b"8", …"""
    return [b"%d" % n for n in range(first, end)]


def send_all(producer: Any, payloads: Iterable[bytes], **options: Any) -> list[Any]:
    """Send without waiting for each; return the ids. Options may be functions of the number."""
    ids: list[Any] = []
    done = threading.Event()
    sent = list(payloads)

    def receipt(result: Any, message_id: Any) -> None:
        ids.append((result, message_id))
        if len(ids) == len(sent):
            done.set()

    for n, data in enumerate(sent):
        given = {name: option(n) if callable(option) else option for name, option in options.items()}
        producer.send_async(data, receipt, **given)
    producer.flush()
    assert done.wait(20), f"{len(ids)} of {len(sent)} receipts came"
    assert all(result == pulsar.Result.Ok for result, _ in ids), ids
    return [message_id for _, message_id in ids]


def fill(client: Any, topic: str, count: int) -> list[Any]:
    """Publish numbers, each an entry of its own; return their ids."""
    producer = client.create_producer(topic)
    ids = send_all(producer, numbers(0, count))
    producer.close()
    return ids


def receive(consumer: Any, count: int, timeout_ms: int = 20_000) -> list[Any]:
    """Receive `count` messages."""
    return [consumer.receive(timeout_ms) for _ in range(count)]


def data_of(messages: Iterable[Any]) -> list[bytes]:
    return [message.data() for message in messages]


def nothing_comes(consumer: Any, timeout_ms: int = 200) -> None:
    try:
        message = consumer.receive(timeout_ms)
    except pulsar.Timeout:
        return
    raise AssertionError(f"{message.data()!r} came, and nothing should")


def until(condition: Callable[[], object], timeout_s: float = 20.0) -> None:
    limit = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < limit, "what the test waits for did not happen"
        time.sleep(0.002)


def restarted(admin: Any, pid: int) -> bool:
    """Return whether the server answers, in another process than this one."""
    with contextlib.suppress(OSError, ValueError):  # it is being started
        return bool(admin.pid() != pid)
    return False


def tells(condition: Callable[[], object]) -> bool:
    """Return whether the condition is true; false before the client has created its topic."""
    with contextlib.suppress(RuntimeError):
        return bool(condition())
    return False


def refused(error: Any, call: Callable[[], object]) -> Any:
    """Require that the call raises this error; return it."""
    try:
        call()
    except error as caught:
        return caught
    raise AssertionError(f"expected {error}")
