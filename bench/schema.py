"""Measure what schemas cost: opening producers and consumers, new versions, publishes.

`python -m bench.schema` prints one line per measurement: the median of interleaved rounds, with the smallest
and the largest. The server is `holdfast serve` in a process of its own; the client sends plain frames.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.server_ours import Ours
from holdfast.protocol import pulsar_pb2 as pb

Type = pb.BaseCommand
SMALL, LARGE = 3, 1000
"""Fields of the definitions."""


def schema(fields: int, more: int = 0) -> pb.Schema:
    """Return an Avro schema.

    `more` further fields have defaults, so each number makes a version that fits.
    """
    members: list[dict[str, Any]] = [{"name": f"field{n}", "type": "string"} for n in range(fields)]
    members += [{"name": f"more{n}", "type": ["null", "int"], "default": None} for n in range(more)]
    definition = json.dumps({"type": "record", "name": "Order", "fields": members})
    return pb.Schema(name="s", type=pb.Schema.Avro, schema_data=definition.encode())


class Openings:
    """Opens and closes producers or consumers of a topic that has this schema."""

    def __init__(self, ours: Ours, given: pb.Schema | None) -> None:
        self._ours = ours
        self._more = {} if given is None else {"schema": given}
        self.topic = ours.open()
        ours._ask(Type.CLOSE_PRODUCER, producer_id=1)
        self.produce()

    def produce(self) -> None:
        self._ours._ask(Type.PRODUCER, topic=self.topic, producer_id=2, **self._more)
        self._ours._ask(Type.CLOSE_PRODUCER, producer_id=2)

    def consume(self) -> None:
        self._ours._ask(
            Type.SUBSCRIBE, topic=self.topic, subscription="s", consumer_id=1, subType=1, **self._more
        )
        self._ours._ask(Type.CLOSE_CONSUMER, consumer_id=1)


def timed(work: Callable[[], None], count: int) -> float:
    """Return microseconds per call."""
    began = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - began) / count * 1e6


def tell(name: str, unit: str, found: list[float]) -> None:
    print(f"{name:<44} {statistics.median(found):12,.0f} {unit}  ({min(found):,.0f} to {max(found):,.0f})")


def openings(ours: Ours, rounds: int, count: int) -> None:
    cases = {
        "without a schema": Openings(ours, None),
        f"with a known one of {SMALL} fields": Openings(ours, schema(SMALL)),
        f"with a known one of {LARGE:,} fields": Openings(ours, schema(LARGE)),
    }
    works = [
        (f"open and close a {role} {case}", getattr(opened, name))
        for role, name in (("producer", "produce"), ("consumer", "consume"))
        for case, opened in cases.items()
    ]
    found: dict[str, list[float]] = {name: [] for name, _ in works}
    for _ in range(rounds):
        for name, work in works:
            found[name].append(timed(work, count))
    for name, values in found.items():
        tell(name, "µs", values)


def versions(ours: Ours, count: int) -> None:
    """Add versions one by one; each is compared with the newest, both ways."""
    for fields in (SMALL, LARGE):
        opened, found = Openings(ours, schema(fields)), []
        for more in range(1, count + 1):
            opened._more = {"schema": schema(fields, more)}
            found.append(timed(opened.produce, 1))
        tell(f"add a version, {fields:,} fields", "µs", found)


def publishes(ours: Ours, rounds: int, seconds: float) -> None:
    """Publish through a producer without and with a schema, one entry per message."""
    from bench.server_load import CHUNK, flood
    from bench.server_ours import Frames

    found: dict[str, list[float]] = {"without a schema": [], "with a schema": []}
    for _ in range(rounds):
        for name, given in (("without a schema", None), ("with a schema", schema(SMALL))):
            topic = ours.open()
            ours._ask(Type.CLOSE_PRODUCER, producer_id=1)
            more = {} if given is None else {"schema": given}
            ours._ask(Type.PRODUCER, topic=topic, producer_id=1, **more)
            load = flood(ours.wire, ours.sends(100, False), CHUNK, Frames(), seconds, 1, ours.depth)
            found[name].append(load.messages / load.seconds)
    for name, values in found.items():
        tell(f"publish 100 B {name}", "messages/s", values)


def measure(where: Path, rounds: int, count: int, seconds: float) -> None:
    """Print all figures."""
    ours = Ours(where)
    try:
        openings(ours, rounds, count)
        versions(ours, max(2, count // 10))
        publishes(ours, rounds, seconds)
    finally:
        ours.wire.close()
        ours.server.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds")
    parser.add_argument("--count", type=int, default=200, help="openings per round")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each publish")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-schema.") as path:
        measure(Path(path), options.rounds, options.count, options.seconds)


if __name__ == "__main__":
    main()
