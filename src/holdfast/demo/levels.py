"""Levels of the sensors: events of services, which taps store in a topic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.client import Client, Reader
from holdfast.demo.settings import LEVELS
from holdfast.errors import NotFound
from holdfast.memory.service import Event, Service

if TYPE_CHECKING:
    from holdfast.memory.service import Proxy, Skeleton

EVERY_S = 0.05
"""Between two levels of a sensor."""


class Sensor(Service):
    """A sensor as its neighbours see it."""

    level = Event(dtype="f8", samples=16)


class LevelMeter:
    """Sends the level of a sensor now and then."""

    def __init__(self, skeleton: Skeleton) -> None:
        self._skeleton, self._next = skeleton, 0.0

    def tell(self, level: float) -> None:
        now = time.monotonic()
        if now >= self._next:
            self._next = now + EVERY_S
            with self._skeleton.level.loan() as sample:
                sample[...] = level


def taps(sensors: Iterable[str]) -> list[str]:
    """Return the arguments of the broker."""
    return [word for name in sensors for word in ("--tap", f"Sensor.{name}/level={LEVELS}")]


@dataclass(frozen=True)
class Levels:
    """The account of all levels."""

    sent: int = 0
    stored: int = 0
    missed: int = 0
    """Counted by the taps: the sensor was faster."""
    away: int = 0
    """Sent while the broker was not there."""
    twice: int = 0
    """Stored more than once, or out of order."""
    gaps: int = 0
    """Gaps in the numbers that no tap has counted."""
    gaps_max: int = 0
    """How many that can be, from the number of kills."""

    def faults(self) -> list[str]:
        """Return everything that must not be, in words."""
        found = {
            f"{self.twice} levels were stored twice or out of order": self.twice > 0,
            f"{self.gaps} gaps in the levels; the kills explain at most {self.gaps_max}": self.gaps
            > self.gaps_max,
            f"{-self.away} levels were stored that no sensor sent": self.away < 0,
        }
        return [words for words, wrong in found.items() if wrong]


def account_of(
    sent: Mapping[str, int], stored: Iterable[Mapping[str, str]], gaps_max: Mapping[str, int]
) -> Levels:
    """Compare the sent numbers with the properties of the stored messages, by sensor."""
    numbers: dict[str, list[tuple[int, int]]] = {name: [] for name in sent}
    for each in stored:
        name = each["holdfast.source"].removeprefix("Sensor.").partition("/")[0]
        numbers[name].append((int(each["holdfast.sequence"]), int(each["holdfast.missed"])))
    pairs = [pair for found in numbers.values() for pair in pairwise(found)]
    kept = sum(len(found) for found in numbers.values())
    missed = sum(missed for found in numbers.values() for _, missed in found)
    return Levels(
        sent=sum(sent.values()),
        stored=kept,
        missed=missed,
        away=sum(sent.values()) - kept - missed,
        twice=sum(after[0] <= before[0] for before, after in pairs),
        gaps=sum(after[0] > before[0] and after[0] != before[0] + 1 + after[1] for before, after in pairs),
        gaps_max=sum(gaps_max.values()),
    )


class Listening:
    """Proxies of all sensors: they keep the numbers of a killed sensor going."""

    def __init__(self, runtime: Path, sensors: Iterable[str]) -> None:
        self._runtime = runtime
        self._proxies: dict[str, Proxy | None] = dict.fromkeys(sensors)

    def connect(self) -> bool:
        """Connect to sensors that are offered; return whether all are connected."""
        for name, proxy in self._proxies.items():
            if proxy is None:
                with suppress(NotFound):
                    self._proxies[name] = Sensor.find(name, 0, application="demo", directory=self._runtime)
        return None not in self._proxies.values()

    def account(self, url: str, gaps_max: Mapping[str, int]) -> tuple[Levels, list[str]]:
        """Read the topic, when all sensors have ended; return the account and faults."""
        sent: dict[str, int] = {}
        faults: list[str] = []
        for name, proxy in self._proxies.items():
            if proxy is not None:
                sent[name] = proxy.stats().elements[0].published
                faults += [f"service of {name}: {fault}" for fault in proxy.check()]
        levels = account_of(sent, _properties(url), gaps_max)
        return levels, faults + levels.faults()

    def close(self) -> None:
        for proxy in self._proxies.values():
            if proxy is not None:
                proxy.close()


def _properties(url: str) -> list[dict[str, str]]:
    """Return the properties of all messages of the topic."""

    async def read(client: Client) -> list[Any]:
        found: list[Any] = []
        async with Reader(client, LEVELS) as reader:
            while await reader.has_more():
                found += await reader.receive_many(1000, 10.0)
        return found

    with Client(url) as client:
        return [message.properties for message in asyncio.run(read(client))]
