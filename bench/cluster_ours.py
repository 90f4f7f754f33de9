"""Three brokers on three Corosync nodes of one machine, under the load generator."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.answers import BenchError
from bench.cluster_servers import used_by
from bench.server_load import read
from bench.server_ours import Frames, Ours, Type, command_of, frame
from bench.server_process import Used
from holdfast.demo.cluster.brokers import PULSAR_PORT, Brokers
from holdfast.demo.cluster.nodes import Nodes
from holdfast.protocol import pulsar_pb2 as pb

OURS = "holdfast, three members"
UP_S = 90.0
LOOK_S = 0.02
AWAY_S = 20.0
"""How long a message may take after a death."""


class Rig:
    """Nodes, and a broker on each."""

    def __init__(self, directory: Path) -> None:
        self.nodes = Nodes(3).__enter__()
        self.brokers = Brokers(self.nodes, directory, "--log-level", "warning")
        self.killed: set[int] = set()

    def start(self) -> None:
        for part in self.brokers.parts.values():
            part.start()
        self.wait_serving(self.nodes.numbers)

    def wait_serving(self, wanted: list[int]) -> None:
        self.wait(lambda: self.serving() == wanted, f"the brokers of nodes {wanted} do not serve")

    def serving(self) -> list[int]:
        return self.nodes.inside(0, self.brokers.serving)

    def wait(self, done: Callable[[], bool], words: str, limit_s: float = UP_S) -> None:
        until = time.monotonic() + limit_s
        while not done():
            if (said := self.last_words()) or time.monotonic() > until:
                raise BenchError(f"{words} within {limit_s:.0f} s: {said}")
            time.sleep(LOOK_S)

    def last_words(self) -> str:
        """Return what brokers said that ended by themselves."""
        parts = self.brokers.parts.items()
        return " ".join(filter(None, (part.failed() for node, part in parts if node not in self.killed)))[
            :800
        ]

    def status(self, node: int) -> Any:
        """Return the status of a member, or the words why it does not serve."""
        return self.nodes.inside(0, lambda: self.brokers.ask(node, "cluster/status"))

    def connect(self, node: int) -> socket.socket:
        """Connect to a member from the place of clients, in another namespace."""

        def open_wire() -> socket.socket:
            return socket.create_connection((self.nodes.address(node), PULSAR_PORT), 10.0)

        wire = self.nodes.inside(0, open_wire)
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.sendall(frame(Type.CONNECT, client_version="bench", protocol_version=19))
        greeting = Frames()
        while not greeting(read(wire)):
            pass
        return wire

    def pid(self, node: int) -> int:
        process = self.brokers.parts[node].process
        assert process is not None
        return process.pid

    def kill(self, node: int, with_corosync: bool = False) -> float:
        """Kill a broker, or its whole node; return the moment before."""
        self.killed.add(node)
        begin = time.monotonic()
        if with_corosync:  # first, so that it cannot tell the others about its broker
            os.kill(self.nodes.pid(node), signal.SIGKILL)
        os.kill(self.pid(node), signal.SIGKILL)
        return begin

    def revive(self, node: int, with_corosync: bool = False, fresh: bool = False) -> float:
        """Start what was killed, if `fresh` without its files. Return the moment of the start."""
        self.brokers.parts[node].end()
        if with_corosync:
            self.nodes.kill(node)
            self.nodes.start(node)
            self.nodes.wait_ring()
        if fresh:
            shutil.rmtree(self.brokers.data(node))
        self.brokers.parts[node].start()
        self.killed.discard(node)
        return time.monotonic()

    def used(self) -> Used:
        """Return the processor time of all brokers and all Corosyncs."""
        return used_by([*map(self.pid, self.nodes.numbers), *map(self.nodes.pid, self.nodes.numbers)])

    def close(self) -> None:
        for part in self.brokers.parts.values():
            part.end()
        self.nodes.close()


class OurCluster(Ours):
    """A cluster of three, and one connection to its first member."""

    name = OURS
    durability = "ordered by Corosync; fdatasync of a majority, and of the member itself, before the receipt"

    def __init__(self, directory: Path) -> None:
        self.rig = Rig(directory)
        try:
            self.rig.start()
            self._topics = itertools.count(1)
            self._requests = itertools.count(1)
            self.wire = self.connect()
        except BaseException:
            self.rig.close()
            raise

    def connect(self) -> socket.socket:
        return self.rig.connect(self.rig.nodes.numbers[0])

    def used(self) -> Used:
        return self.rig.used()

    def close(self) -> None:
        self.wire.close()
        self.rig.close()


class Consumer:
    """A consumer at one member, which counts what comes."""

    def __init__(self, rig: Rig, node: int, topic: str, kind: int, permits: int) -> None:
        self.node, self.wire = node, rig.connect(node)
        self.frames = Frames(keep=True)
        self._ask(
            Type.SUBSCRIBE,
            topic=topic,
            subscription="bench",
            consumer_id=1,
            subType=kind,
            initialPosition=1,
            consumer_name=f"consumer-{node}",
        )
        self.flow(permits)

    def _ask(self, kind: int, **fields: Any) -> None:
        self.wire.sendall(frame(kind, request_id=1, **fields))
        while True:
            for answer in self.commands():
                if answer.type == Type.ERROR:
                    raise BenchError(answer.error.message)
                if answer.type == Type.SUCCESS:
                    return

    def commands(self) -> list[Any]:
        """Return the commands that one read brings; wait for it."""
        self.frames(read(self.wire))
        assert self.frames.kept is not None
        found = [command_of(each) for each in self.frames.kept]
        self.frames.kept.clear()
        return found

    def messages(self) -> list[Any]:
        """Return ids of messages that one read brings."""
        return [each.message.message_id for each in self.commands() if each.type == Type.MESSAGE]

    def flow(self, permits: int) -> None:
        self.wire.sendall(frame(Type.FLOW, consumer_id=1, messagePermits=permits))

    def ack(self, ids: list[Any]) -> None:
        at = [pb.MessageIdData(ledgerId=each.ledgerId, entryId=each.entryId) for each in ids]
        self.wire.sendall(frame(Type.ACK, consumer_id=1, ack_type=0, message_id=at))

    def close(self) -> None:
        self.wire.close()
