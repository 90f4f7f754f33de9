"""`holdfast bench server`: the server on the network, beside other durable servers."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import running, server_plain
from bench.answers import BenchError
from bench.figures import percentiles_us
from bench.running import file_system, machine, parts_argument, sizes_argument
from bench.server_client import Official
from bench.server_figures import OURS, RATE, Idle, Key, Report, Sample
from bench.server_load import CHUNK, DEPTH, Load
from bench.server_ours import BATCH, Ours
from bench.server_peers import Nats, RedisAlways, RedisEverysec
from bench.server_process import ServerProcess, found
from bench.server_rabbit import RabbitClassic, RabbitQuorum

CONTESTANTS: tuple[Any, ...] = (Ours, RedisAlways, RedisEverysec, Nats, RabbitClassic, RabbitQuorum)
PARTS = ("idle", "frames", "client", "latency", "peers")
CONSUMED = 300_000
PEERS_CONSUMED = 20_000
"""Peers take longer per message, so fewer give the same precision."""
SYNC_BYTES = 4096


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="holdfast bench server",
        description="Measure `holdfast serve` with the official Pulsar client and with a load generator of "
        "pre-encoded frames (Python, plain sockets). Redis Streams, NATS JetStream and RabbitMQ run under "
        "the same generator in the same run. The report has rates, the server's CPU per message, latencies, "
        "start, idle memory, and the meaning of each server's confirmation. It names peers that are not "
        "installed: Debian's packages are redis-server, nats-server, rabbitmq-server.",
    )
    add = made.add_argument
    add("--sizes", type=sizes_argument, default=[100, 1024], help="payload sizes (100,1k)")
    add("--seconds", type=float, default=2.0, help="length of one measurement (2)")
    add("--rounds", type=int, default=3, help="measurements of every cell (3)")
    add(
        "--only",
        type=parts_argument(PARTS),
        default=set(PARTS),
        help=f"parts to measure, separated by commas; of: {', '.join(PARTS)}",
    )
    add("--where", type=Path, metavar="DIR", help="a directory on the disk to measure")
    add("--quick", action="store_true", help="a first impression; too short for a comparison")
    add("--json", type=Path, metavar="FILE", help="write all samples to FILE, too")
    return made


class Run:
    """One run: servers one after another, so that idle threads do not disturb another server."""

    def __init__(
        self, options: argparse.Namespace, parts: set[str], directory: Path, say: Callable[[str], None]
    ) -> None:
        self.options, self.parts, self.directory, self.say = options, parts, directory, say
        self.report = Report(
            {**machine(("holdfast", "pulsar-client", "protobuf")), "file_system": file_system(directory)},
            {
                **{name: getattr(options, name) for name in ("sizes", "seconds", "rounds")},
                "window": CHUNK * DEPTH,
                "batch": BATCH,
            },
        )
        self.starts = 0

    def go(self) -> Report:
        report = self.report
        chosen = []
        for kind in CONTESTANTS if "peers" in self.parts else (Ours,):
            if kind is Ours or found(kind.program) is not None:
                chosen.append(kind)
                report.durability[kind.name] = kind.durability
            else:
                report.absent[kind.name] = f"{kind.program} is not installed: apt-get install {kind.program}"
        if "client" in self.parts and find_spec("pulsar") is None:
            report.absent["official client"] = "pulsar-client is not installed"
            self.parts.discard("client")
        for turn in range(self.options.rounds):
            if "latency" in self.parts:
                report.syncs.append(self.syncs())
                plain = server_plain.latencies(self.directory, RATE, self.options.seconds)
                report.plain.append(percentiles_us(plain))
            for kind in random.sample(chosen, len(chosen)):
                if kind.name not in report.failed:
                    self.say(f"round {turn + 1} of {self.options.rounds}: {kind.name}")
                    self.contestant(kind)
        order = [each.name for each in chosen]  # not the order of the first round
        report.idle = {name: report.idle[name] for name in order if name in report.idle}
        report.latencies = {name: report.latencies[name] for name in order if name in report.latencies}
        report.samples = dict(
            sorted(report.samples.items(), key=lambda pair: order.index(pair[0].contestant))
        )
        return report

    def contestant(self, kind: Any) -> None:
        self.starts += 1
        place = self.directory / f"{self.starts}"
        try:
            begin = time.monotonic()
            server = kind(place)
            server.first()
            start_s = time.monotonic() - begin
            used = server.server.used()
            try:
                self.measure(server, start_s, used.user_s + used.system_s)
            finally:
                server.close()
        except (BenchError, OSError) as error:  # only this contestant is given up
            self.report.failed[kind.name] = str(error)[:500]
        finally:
            ServerProcess.end_all()
            shutil.rmtree(place, ignore_errors=True)

    def measure(self, server: Any, start_s: float, start_cpu_s: float) -> None:
        options, report, name = self.options, self.report, server.name
        if "idle" in self.parts:
            report.idle.setdefault(name, []).append(idle(server, start_s, start_cpu_s, options))
        for size in options.sizes if "frames" in self.parts else ():
            measures = ["publish", "publish batched"] if name == OURS else ["publish"]
            for measure in measures:
                self.sample(
                    server,
                    Key(name, "frames", measure, size),
                    lambda size=size, measure=measure: server.publish(  # type: ignore[misc]
                        size, options.seconds, measure != "publish"
                    ),
                )
            server.prepare(size, CONSUMED if name == OURS and not options.quick else PEERS_CONSUMED)
            self.sample(server, Key(name, "frames", "consume", size), server.consume)
        if "latency" in self.parts:
            times = percentiles_us(server.latencies(100, RATE, 2 * options.seconds))
            report.latencies.setdefault(name, []).append(times)
        if "client" in self.parts and name == OURS:
            self.official(server)

    def sample(self, server: Any, key: Key, work: Callable[[], Load]) -> None:
        before = server.server.used()
        load = work()
        used = server.server.used().since(before)
        self.report.add(key, Sample(load.messages, load.seconds, used.user_s, used.system_s))

    def official(self, server: Ours) -> None:
        client = Official(server.url)
        try:
            client.order("publish", "warm-up", 100, False, 0.1)
            for size in self.options.sizes:
                for measure, work, batched in (
                    ("publish batched", "publish", True),
                    ("publish", "publish", False),
                    ("consume", "consume", False),
                ):
                    topic = f"official-{size}-{batched}"
                    before = server.server.used()
                    messages, seconds, cpu = client.order(work, topic, size, batched, self.options.seconds)
                    used = server.server.used().since(before)
                    key = Key(OURS, "client", measure, size)
                    self.report.add(key, Sample(messages, seconds, used.user_s, used.system_s, cpu))
        finally:
            client.close()

    def syncs(self) -> tuple[float, float]:
        """Time fdatasync of 4 KiB overwritten, 1,000 a second: the limit of the disk."""
        file = os.open(self.directory / "syncs", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            wanted = int(RATE * self.options.seconds)
            os.pwrite(file, bytes(SYNC_BYTES * wanted), 0)
            os.fsync(file)
            times = []
            page = random.randbytes(SYNC_BYTES)
            for at in range(wanted):
                begin = time.perf_counter_ns()
                os.pwrite(file, page, at * SYNC_BYTES)
                os.fdatasync(file)
                took = time.perf_counter_ns() - begin
                times.append(took)
                time.sleep(max(0.0, 1 / RATE - took / 1e9))
            return percentiles_us(times)
        finally:
            os.close(file)


def idle(server: Any, start_s: float, start_cpu_s: float, options: argparse.Namespace) -> Idle:
    time.sleep(0.5)
    before, begin = server.server.used(), time.monotonic()
    time.sleep(2 * options.seconds)
    used = server.server.used().since(before)
    busy = (used.user_s + used.system_s) / (time.monotonic() - begin)
    return Idle(start_s, start_cpu_s, server.server.resident_bytes(), busy)


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.quick:
        options.rounds, options.seconds = 1, min(options.seconds, 0.3)
    try:
        return running.run(options, lambda directory: Run(options, options.only, directory, running.say).go())
    finally:
        ServerProcess.end_all()
