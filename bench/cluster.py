"""`holdfast bench cluster`: three members on one machine, beside other replicated servers."""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import cluster_disk, cluster_moves, cluster_raw, running
from bench.answers import BenchError
from bench.cluster_figures import CPG, DISK, Key, Report
from bench.cluster_ours import OURS, OurCluster
from bench.cluster_peers import NatsThree, RabbitThree
from bench.running import file_system, machine, parts_argument, size_argument, sizes_argument
from bench.server_figures import Sample
from bench.server_load import CHUNK, Load
from bench.server_ours import BATCH
from bench.server_process import ServerProcess, found
from holdfast.demo.cluster.nodes import lacks
from holdfast.errors import HoldfastError
from holdfast.group.cpg.outbox import BATCH_BYTES

CONTESTANTS: tuple[Any, ...] = (OurCluster, NatsThree, RabbitThree)
PARTS = ("rates", "limits", "hand-over", "fail-over", "join", "peers")
DEPTH = 8
"""Chunks in flight, more than to one server: a message is ordered and synced before its answer."""
CONSUMED = 20_000
HAND_OVERS = 100
OWN = ("/dev/shm", "/run")
"""Directories that differ in every node."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="holdfast bench cluster",
        description="Measure three members on one machine: `holdfast serve` on three Corosync nodes, each in "
        "namespaces of its own. NATS JetStream with three replicas and RabbitMQ quorum queues on three nodes "
        "run under the same load generator in the same run. The limits are raw CPG, and three processes that "
        "write as much to the disk. Hand-over, fail-over and the join of a backlog are timed, too. It needs "
        "root and Corosync. Debian's packages: corosync libcpg4 nats-server rabbitmq-server.",
    )
    add = made.add_argument
    add("--sizes", type=sizes_argument, default=[100, 1024], help="payload sizes (100,1k)")
    add("--seconds", type=float, default=2.0, help="length of one measurement (2)")
    add("--rounds", type=int, default=3, help="measurements of every cell (3)")
    add("--join-bytes", type=size_argument, default=64 << 20, help="backlog of a join (64M; record: 1024M)")
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
    """One run: clusters one after another, so that idle threads do not disturb another cluster."""

    def __init__(self, options: argparse.Namespace, directory: Path, say: Callable[[str], None]) -> None:
        self.options, self.parts, self.directory, self.say = options, options.only, directory, say
        self.report = Report(
            {**machine(("holdfast", "protobuf")), "file_system": file_system(directory)},
            {
                **{name: getattr(options, name) for name in ("sizes", "seconds", "rounds", "join_bytes")},
                "window": CHUNK * DEPTH,
                "batch": BATCH,
            },
        )
        self.numbers = itertools.count(1)

    def go(self) -> Report:
        report = self.report
        chosen = []
        for kind in CONTESTANTS if {"peers", "rates"} <= self.parts else (OurCluster,):
            if kind is OurCluster or found(kind.program) is not None:
                chosen.append(kind)
                report.durability[kind.name] = kind.durability
            else:
                report.absent[kind.name] = f"{kind.program} is not installed: apt-get install {kind.program}"
        for turn in range(self.options.rounds):
            if "limits" in self.parts:
                self.disk()
            for kind in random.sample(chosen, len(chosen)):
                if kind.name not in report.failed:
                    self.say(f"round {turn + 1} of {self.options.rounds}: {kind.name}")
                    self.contestant(kind)
        order = [each.name for each in chosen]  # not the order of the first round
        report.samples = dict(
            sorted(report.samples.items(), key=lambda pair: order.index(pair[0].contestant))
        )
        return report

    def disk(self) -> None:
        """Write rounds of half the window: what waits while the last round is synced."""
        messages = CHUNK * DEPTH // 2
        for size in self.options.sizes:
            load = cluster_disk.measure(self.directory / "disk", messages * size, self.options.seconds)
            self.limit(DISK, size, load.messages * messages / load.seconds)
        shutil.rmtree(self.directory / "disk")

    def limit(self, name: str, size: int, rate: float) -> None:
        self.report.limits.setdefault((name, size), []).append(rate)

    def contestant(self, kind: Any) -> None:
        place = self.directory / f"{next(self.numbers)}"
        place.mkdir()
        try:
            servers = kind(place)
            servers.depth = DEPTH
            try:
                servers.first()
                if "rates" in self.parts:
                    self.rates(servers)
                if kind is OurCluster:
                    self.ours(servers)
            finally:
                servers.close()
        except (BenchError, HoldfastError, OSError) as error:  # only this contestant is given up
            self.report.failed[kind.name] = f"{type(error).__name__}: {error}"[:1000]
        finally:
            ServerProcess.end_all()
            shutil.rmtree(place, ignore_errors=True)

    def rates(self, servers: Any) -> None:
        options = self.options
        for size in options.sizes:
            for measure in ("publish", "publish batched") if servers.name == OURS else ("publish",):
                self.sample(
                    servers,
                    Key(servers.name, measure, size),
                    lambda size=size, measure=measure: servers.publish(  # type: ignore[misc]
                        size, options.seconds, measure != "publish"
                    ),
                )
            servers.prepare(size, CHUNK if options.quick else CONSUMED)
            self.sample(servers, Key(servers.name, "consume", size), servers.consume)

    def sample(self, servers: Any, key: Key, work: Callable[[], Load]) -> None:
        before = servers.used()
        load = work()
        used = servers.used().since(before)
        self.report.add(key, Sample(load.messages, load.seconds, used.user_s, used.system_s))

    def ours(self, cluster: OurCluster) -> None:
        """Measure what only a cluster of ours has, and the limits of its Corosync."""
        options, report = self.options, self.report
        for size in options.sizes if "limits" in self.parts else ():
            each = BATCH_BYTES / size  # as much as a member puts into one of CPG's messages
            window = max(2, int(CHUNK * DEPTH / each))
            group = f"raw-{next(self.numbers)}"
            load = cluster_raw.measure(cluster.rig.nodes, group, BATCH_BYTES, options.seconds, window)
            self.limit(CPG, size, load.messages * each / load.seconds)
        if "hand-over" in self.parts:
            report.hand_overs.append(cluster_moves.hand_overs(cluster, 3 if options.quick else HAND_OVERS))
        if "fail-over" in self.parts:
            report.broker_deaths.append(cluster_moves.fail_over(cluster)[0])
            whole, noticed = cluster_moves.fail_over(cluster, with_corosync=True)
            assert noticed is not None
            report.node_deaths.append((whole, noticed))
        if "join" in self.parts:
            report.joins.append(cluster_moves.join(cluster, options.join_bytes, options.seconds))


def main(argv: Sequence[str] | None = None) -> int:
    made = parser()
    options = made.parse_args(argv)
    if (reason := lacks()) is not None:
        made.error(f"no cluster can run here: {reason}")
    where = (options.where or Path(tempfile.gettempdir())).resolve()
    if any(where.is_relative_to(each) for each in OWN):
        made.error(f"--where {where}: each node has {' and '.join(OWN)} of its own; choose another directory")
    if options.quick:
        options.rounds, options.seconds = 1, min(options.seconds, 0.3)
        options.join_bytes = min(options.join_bytes, 1 << 20)
    try:
        return running.run(options, lambda directory: Run(options, directory, running.say).go())
    finally:
        ServerProcess.end_all()
