"""Read batches by URL while the broker changes its files and processes are killed.

The broker appends, rolls and trims. Entry and number are the same here. A reader must return right rows, each
entry once. Only entries that were trimmed before the end of the read may be missing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from pyspark.sql.types import StructType

from holdfast.client import Client
from holdfast.columns.files import FilePlace
from holdfast.errors import HoldfastError
from holdfast.pipeline.options import parse
from holdfast.pipeline.source.batch import BatchReader
from tests.kit.processes import until
from tests.kit.served import Served
from tests.kit.server.flight_world import PREFIX, children, gone, narrow
from tests.kit.slices import pick, seeds

ORDERS = f"{PREFIX}/orders"
KEPT = 12_000
"""Entries, about: older ones are acknowledged, and trimmed."""
AT_ONCE = 300
READERS = 3
LIMIT_S = 150.0
ENOUGH = pick(test=(3, 1), nightly=(12, 6))
"""Kills of Flight and trims; restarts, reads that were cut, and whole reads of each reader."""
SETTINGS = {
    "broker.roll_entries": "700",
    "broker.retention_s": "0",
    "broker.snapshot_s": "1",
    "broker.housekeeping_s": "0.2",
    "broker.sync": "os",
}


def value(number: int) -> bytes:
    """Several batches of rows make what is kept."""
    return b"%08d" % number * 256


class Storm:
    """A server that is filled, trimmed, killed and restarted, and its readers."""

    def __init__(self, data: Path, seed: int) -> None:
        self.data = data
        self.random = random.Random(seed)
        self.ports = ["--port", "0", "--http-port", "0"]
        self.server = self.start()
        self.ports = [
            "--port",
            str(self.server.ready["port"]),
            "--http-port",
            str(self.server.ready["http_port"]),
        ]
        self.url = self.server.http_url
        self.written = 0
        self.killed = self.cuts = 0
        self.handed_over = 0
        """Batches of rows."""
        self.restarts = 0
        self.trims = 0
        self.reads = [0] * READERS
        self.ended = threading.Event()
        self.wrong: list[str] = []

    def start(self) -> Served:
        more = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
        return Served("--data", str(self.data), *self.ports, *more)

    def ask(self, method: str, path: str) -> None:
        url = f"{self.url}/admin/v2/{ORDERS.replace('://', '/')}{path}"
        urlopen(Request(url, method=method), timeout=20).close()

    # -- who does something ----------------------------------------------------------------------------

    def write(self) -> None:
        """Numbered messages, each once however often the server dies; what is old is acknowledged."""
        with Client(self.server.url.replace("pulsar", "holdfast"), timeout=60.0) as client:
            batch = 1
            while not self.ended.wait(0.05):
                try:
                    stage = client.stage()
                    stage.append("orders", [value(self.written + i) for i in range(AT_ONCE)])
                    client.sink_commit("storm", batch, [stage.close()])
                except HoldfastError:
                    continue  # it was killed meanwhile: the same batch again
                batch += 1
                self.written += AT_ONCE
                if self.written > KEPT:
                    with contextlib.suppress(OSError):
                        self.ask("POST", f"/subscription/s/skip/{AT_ONCE}")
                        self.trims += 1

    def kill(self) -> None:
        """Kill Flight while it starts or after some rows; now and then kill the server."""
        while not self.ended.is_set():
            goal = self.handed_over + self.random.choice([0, 1, 3, 10, 30])
            while self.handed_over < goal and not self.ended.wait(0.005):
                pass
            self.ended.wait(self.random.uniform(0.0, 0.1))
            if self.killed >= 3 * (self.restarts + 1):
                self.server.end(signal.SIGKILL)
                self.server.close()
                self.server = self.start()
                self.restarts += 1
            self.kill_flight()

    def kill_flight(self) -> None:
        with contextlib.suppress(OSError):
            for pid in children(self.server.process.pid):
                if not gone(pid):
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1

    def read(self, number: int) -> None:
        """All that there is, over and over."""
        given = {"topic": ORDERS, "service.url": self.url, "failOnDataLoss": "false", "timeout": "60s"}
        schema = StructType().add("value", "binary").add("position", "long")
        while not self.ended.is_set():
            reader = BatchReader(parse({**given, "minPartitions": str(number + 1)}, "source"), schema)
            splits = reader.partitions()
            before = splits[-1].stop
            found: list[tuple[int, bytes]] = []
            for split in splits:
                for batch in reader.read(split):
                    rows = zip(batch.column(1).to_pylist(), batch.column(0).to_pylist(), strict=True)
                    found.extend(rows)
                    self.handed_over += 1
                    if number == 0:  # one of them is slow, and is cut in the middle now and then
                        time.sleep(0.02)
                        if self.reads[0] % 3 == 1 and len(found) == batch.num_rows:
                            self.kill_flight()
                            self.cuts += 1
            self.judge(found, before)
            self.reads[number] += 1

    def judge(self, found: list[tuple[int, bytes]], stop: int) -> None:
        """The rows up to `stop` are right, each there once; what is missing was trimmed."""
        positions = [position for position, _ in found]
        first, _ = FilePlace(str(self.data)).open(ORDERS).plan()
        if wrong := [each for each in found if each[1] != value(each[0])]:
            self.wrong.append(f"a value is another's: at {wrong[0][0]}")
        if positions != sorted(set(positions)):
            self.wrong.append("a row comes twice, or in another order")
        if missing := set(range(first, stop)) - set(positions):
            self.wrong.append(
                f"{len(missing)} rows are missing, from {min(missing)} on; the first is {first}"
            )
        if positions and positions[-1] >= stop:
            self.wrong.append("a row comes that was not planned")

    # -- all of them -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def blowing(self) -> Iterator[None]:
        works: list[Any] = [(self.write, ()), (self.kill, ())]
        works += [(self.read, (number,)) for number in range(READERS)]
        threads = [threading.Thread(target=self.run, args=(work, given)) for work, given in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.ended.set()
            for thread in threads:
                thread.join()
            self.server.close()

    def run(self, work: Any, given: Any) -> None:
        try:
            work(*given)
        except Exception as error:
            if not self.ended.is_set():
                self.wrong.append(f"{work.__name__}: {error!r}")
                self.ended.set()

    def enough(self) -> bool:
        often, seldom = ENOUGH
        done = min(self.killed, self.trims) >= often and min(self.restarts, self.cuts, *self.reads) >= seldom
        return done or bool(self.wrong)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", seeds("flight storm", test=1, nightly=5))
def test_batches_by_url_in_a_storm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counts: Callable[[str], None], seed: int
) -> None:
    """I160, I164."""
    narrow(monkeypatch)
    storm = Storm(tmp_path / "data", seed)
    storm.ask("PUT", "")
    storm.ask("PUT", "/subscription/s")
    with storm.blowing():
        until(storm.enough, LIMIT_S)
    assert storm.wrong == []
    counts(f"{storm.killed} kills of Flight, {storm.restarts} of the server, {sum(storm.reads)} whole reads")
