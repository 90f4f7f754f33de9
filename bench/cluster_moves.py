"""Changes of a cluster: hand-over, deaths, and a member that joins a backlog."""

from __future__ import annotations

import itertools
import json
import select
import subprocess
import threading
import time
from dataclasses import dataclass
from typing import Any

from bench import cluster_raw
from bench.answers import BenchError
from bench.cluster_ours import AWAY_S, Consumer, OurCluster
from bench.server_load import CHUNK, flood, read
from bench.server_ours import BATCH, Frames
from holdfast.ledger.layout import INCOMPLETE
from holdfast.protocol import pulsar_pb2 as pb

SHARED, FAILOVER = pb.CommandSubscribe.Shared, pb.CommandSubscribe.Failover
REST_S = 0.05
"""Pause between hand-overs: the member without permits has asked for its turn meanwhile."""
HELD = 10
SLICE_S = 0.25
LOOK_S = 0.02
JOIN_S = 120.0
BACKLOG_SIZE = 1024
_groups = itertools.count(1)


@dataclass(frozen=True)
class Join:
    """A member without files that joined a backlog."""

    backlog_bytes: int
    copied_bytes: int
    """The backlog, and what was published until the copy began."""
    start_s: float
    """From the start of its process until it began to copy: mostly Python's start."""
    copy_s: float
    """From then on until it had the wiring, the journal and open ledgers."""
    serve_s: float
    """From then on until it served."""
    whole_s: float
    """From then on until it had all ledgers: it serves a topic when it has those of the topic."""
    before_rate: float
    """Messages a second before, with two members."""
    during_rate: float
    """The same from the begin of the copy until it had all ledgers."""

    @property
    def bytes_per_s(self) -> float:
        return self.copied_bytes / (self.copy_s + self.serve_s + self.whole_s)

    @property
    def slowed(self) -> float:
        return 1 - self.during_rate / self.before_rate


def next_messages(consumers: list[Consumer], limit_s: float) -> tuple[Consumer, list[Any], float]:
    """Wait until one consumer gets messages; return it, their ids, and the moment."""
    until = time.monotonic() + limit_s
    by_wire = {consumer.wire: consumer for consumer in consumers}
    while True:
        ready = select.select(list(by_wire), [], [], max(0.0, until - time.monotonic()))[0]
        moment = time.monotonic()
        if not ready:
            raise BenchError(f"no message came within {limit_s:.0f} s")
        for wire in ready:
            if ids := by_wire[wire].messages():
                return by_wire[wire], ids, moment


def hand_overs(cluster: OurCluster, count: int) -> list[float]:
    """Return seconds from an owner's last message to the next owner's first one.

    Both have one permit, and two messages become visible at once. The owner delivers the first. Without
    permits it releases the subscription in the same turn. The next owner delivers the second.
    """
    topic = cluster.open()
    consumers = [Consumer(cluster.rig, node, topic, SHARED, 1) for node in (2, 3)]
    two = cluster.sends(100, False, 2)
    times = []
    try:
        for _ in range(count):
            time.sleep(REST_S)
            cluster.wire.sendall(two)
            first, ids, begin = next_messages(consumers, AWAY_S)
            first.ack(ids)
            other = consumers[1 - consumers.index(first)]
            _, ids, end = next_messages([other], AWAY_S)
            other.ack(ids)
            times.append(end - begin)
            confirmed = Frames()
            missing = 2
            while missing > 0:
                missing -= confirmed(read(cluster.wire))
            for consumer in consumers:
                consumer.flow(1)
    finally:
        for consumer in consumers:
            consumer.close()
    return times


def fail_over(cluster: OurCluster, with_corosync: bool = False) -> tuple[float, float | None]:
    """Kill the owner of a subscription, with its Corosync if asked.

    Return the seconds until another member delivers its first message, then those until that member's
    Corosync lists one process less. The second is None if only the broker is killed.
    """
    rig = cluster.rig
    rig.wait_serving(rig.nodes.numbers)
    topic = cluster.open()
    consumers = [Consumer(rig, node, topic, FAILOVER, 100) for node in (2, 3)]
    watchers: dict[int, Any] = {}
    try:
        if with_corosync:
            watchers = start_watchers(cluster)
        cluster.wire.sendall(cluster.sends(100, False, HELD))
        owner, ids, _ = next_messages(consumers, AWAY_S)
        while len(ids) < HELD:
            ids += next_messages([owner], AWAY_S)[1]
        other = consumers[1 - consumers.index(owner)]
        time.sleep(2 * REST_S)
        begin = rig.kill(owner.node, with_corosync)
        _, _, end = next_messages([other], AWAY_S)
        detected = noticed(watchers[other.node], begin) if with_corosync else None
    finally:
        for consumer in consumers:
            consumer.close()
        for process in watchers.values():
            process.kill()
    rig.revive(owner.node, with_corosync)
    rig.wait_serving(rig.nodes.numbers)
    return end - begin, detected


def start_watchers(cluster: OurCluster) -> dict[int, subprocess.Popen[str]]:
    """Start a process in each node that tells the changes of its group's list."""
    nodes, group = cluster.rig.nodes, f"watch-{next(_groups)}"
    found = {
        number: nodes.popen(
            number,
            cluster_raw.command("watch", group),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for number in nodes.numbers
    }
    for process in found.values():
        while (told := told_by(process)) is not None and told[1] < len(nodes.numbers):
            pass
        if told is None:
            raise BenchError("a watcher of Corosync's lists ended")
    return found


def told_by(process: subprocess.Popen[str]) -> tuple[float, int] | None:
    assert process.stdout is not None
    line = process.stdout.readline()
    return tuple(json.loads(line)) if line else None


def noticed(process: subprocess.Popen[str], begin: float) -> float:
    """Return seconds from a death until a watcher's Corosync listed fewer processes."""
    told = told_by(process)
    if told is None:
        raise BenchError("a watcher of Corosync's lists ended")
    return told[0] - begin


class Publishing(threading.Thread):
    """Publishes without pause, in slices whose rates are kept."""

    def __init__(self, cluster: OurCluster) -> None:
        super().__init__(daemon=True)
        self._cluster = cluster
        cluster.open()
        self._chunk = cluster.sends(BACKLOG_SIZE, True)
        self._stopped = False
        self.slices: list[tuple[float, float, int]] = []
        """Begin, end and messages of each."""
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            while not self._stopped:
                begin = time.monotonic()
                wire, depth = self._cluster.wire, self._cluster.depth
                load = flood(wire, self._chunk, CHUNK, Frames(), SLICE_S, BATCH, depth)
                self.slices.append((begin, time.monotonic(), load.messages))
        except (BenchError, OSError) as error:
            self.error = error

    def stop(self) -> None:
        self._stopped = True
        self.join()
        if self.error is not None:
            raise BenchError(f"publishing beside the join failed: {self.error}")

    def before(self, moment: float) -> int:
        """Return the messages of the slices that ended before a moment."""
        return sum(messages for _, end, messages in self.slices if end <= moment)

    def rate(self, begin: float, end: float) -> float:
        """Return messages a second of the slices that touch a time."""
        touching = [each for each in self.slices if each[1] > begin and each[0] < end]
        if not touching:
            raise BenchError("nothing was published beside the join")
        return sum(each[2] for each in touching) / sum(each[1] - each[0] for each in touching)


def join(cluster: OurCluster, backlog_bytes: int, seconds: float) -> Join:
    """Let a member without files join a backlog, while a producer publishes at another one."""
    rig, node = cluster.rig, 3
    rig.wait_serving(rig.nodes.numbers)
    rig.kill(node)
    stored, topic_chunk = 0, cluster.sends(BACKLOG_SIZE, True)
    cluster.open()
    while stored < backlog_bytes:
        load = flood(cluster.wire, topic_chunk, CHUNK, Frames(), SLICE_S, BATCH, cluster.depth)
        stored += load.messages * BACKLOG_SIZE
    publishing = Publishing(cluster)
    publishing.start()
    try:
        time.sleep(seconds)
        rig.wait(lambda: len(publishing.slices) > 1 or not publishing.is_alive(), "nothing is published")
        begun = rig.revive(node, fresh=True)
        before = publishing.rate(0.0, begun)
        copying, copied = 0.0, 0.0
        until = time.monotonic() + JOIN_S + backlog_bytes / 1e6
        while not isinstance(status := rig.status(node), dict):
            now = time.monotonic()
            if now > until:
                raise BenchError(f"the member does not serve after its join: {status} {rig.last_words()}")
            if "transferring" in status:
                copying, copied = copying or now, now
            time.sleep(LOOK_S)
        served = time.monotonic()
        mark, limit_s = rig.brokers.data(node) / INCOMPLETE, until - served
        rig.wait(lambda: not mark.exists(), "the member does not get all ledgers", limit_s)
        whole = time.monotonic()
    finally:
        publishing.stop()
    copying = copying or begun  # it was over between two looks
    copied = copied or served
    total = stored + publishing.before(copying) * BACKLOG_SIZE
    during = publishing.rate(copying, whole)
    times = (copying - begun, copied - copying, served - copied, whole - served)
    return Join(stored, total, *times, before, during)
