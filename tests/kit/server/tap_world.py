"""Processes for tests of taps: a camera whose frames have numbers, and readers."""

from __future__ import annotations

import asyncio
import os
import re
import time
import urllib.request
from typing import Any

import holdfast
from holdfast.client import Client, Reader
from tests.kit.processes import PATIENCE_S, hear, tell
from tests.kit.served import Served

TAP = ("--tap", "Camera.left/frame=frames")


def camera() -> None:
    """Offer a camera; send as many frames as the test says. For `start`."""

    class Camera(holdfast.Service):
        frame = holdfast.Event(dtype="u8", shape=(2,), samples=64)

    with Camera.offer("left") as skeleton:
        tell(skeleton.reused)
        while True:
            count, pause_s = hear()
            for _ in range(count):
                with skeleton.frame.loan() as frame:
                    frame[:] = skeleton.frame.sequence + 1, os.getpid()
                time.sleep(pause_s)
            tell(skeleton.frame.sequence)


def figure(server: Served, name: str) -> float:
    """Return a figure of the first tap, of /metrics."""
    with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=PATIENCE_S) as answer:
        page = answer.read().decode()
    pattern = rf'^holdfast_tap_{name}{{[^}}]*tap="Camera.left/\w+",topic="persistent://[^}}]*}} (\S+)$'
    found = re.search(pattern, page, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def accounted(server: Served) -> float:
    """Return how many samples the first tap has stored or missed."""
    return figure(server, "messages_total") + figure(server, "missed_total")


def messages(server: Served, topic: str = "frames") -> list[Any]:
    """Read the whole topic over the network."""

    async def read(client: Client) -> list[Any]:
        found: list[Any] = []
        async with Reader(client, topic) as reader:
            while await reader.has_more():
                found += await reader.receive_many(1000, PATIENCE_S)
        return found

    with Client(server.url) as client:
        return asyncio.run(read(client))


def numbers(found: list[Any]) -> list[tuple[int, int]]:
    """Return sequence number and missed samples of each message."""
    named = [each.properties for each in found]
    return [(int(each["holdfast.sequence"]), int(each["holdfast.missed"])) for each in named]
