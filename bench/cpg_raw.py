"""Measure raw CPG: messages of one size between Corosyncs on this machine.

It is the physical reference for the cluster's throughput at the same batch size:

    python -m bench.cpg_raw --size 32768 --seconds 3 --senders 3
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TypeVar

from holdfast.demo.cluster.nodes import Nodes
from holdfast.group.cpg.carrier import Message
from holdfast.group.cpg.library import Cpg

T = TypeVar("T")

UNDER_WAY = 16
"""Messages of each sender that did not come back yet; more only wait in Corosync."""
TURN = 64


@dataclass(frozen=True)
class Raw:
    """The outcome of a run."""

    size_bytes: int
    nodes: int
    senders: int
    seconds: float
    messages: int
    """Messages that every node received."""

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds

    @property
    def bytes_per_s(self) -> float:
        return self.messages_per_s * self.size_bytes


class Member(Cpg):
    """A process's connection to the Corosync of a node."""

    def __init__(self, nodes: Nodes, number: int) -> None:
        super().__init__("cpg-raw")
        self._nodes = nodes
        self._number = number
        self.received = 0
        self.under_way = 0

    def _place(self, call: Callable[[], T]) -> T:
        return self._nodes.inside(self._number, call)

    def arrived(self) -> None:
        for _ in range(TURN):
            item = self.take()
            if item is None:
                return
            if isinstance(item, Message):
                self.received += 1
                self.under_way -= item.sender.node == self._number
        asyncio.get_running_loop().call_soon(self.arrived)


async def measure(nodes: Nodes, size: int, seconds: float, senders: int) -> Raw:
    """Send messages for some time, and count them at the slowest node."""
    members = [Member(nodes, number) for number in nodes.numbers]
    for member in members:
        await member.join(member.arrived)
    data = bytes(size)
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        for member in members[:senders]:
            while member.under_way < UNDER_WAY and member.send(data):
                member.under_way += 1
        await asyncio.sleep(0)
    while any(member.under_way for member in members[:senders]):
        await asyncio.sleep(0)
    outcome = Raw(
        size, len(members), senders, time.perf_counter() - began, min(each.received for each in members)
    )
    for member in members:
        await member.leave()
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=32 << 10, help="bytes of a message (%(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--senders", type=int, default=3, help="nodes that send (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
    given = parser.parse_args()
    with Nodes(given.nodes) as nodes:
        outcome = asyncio.run(measure(nodes, given.size, given.seconds, given.senders))
    if given.json:
        print(json.dumps({**asdict(outcome), "bytes_per_s": outcome.bytes_per_s}))
    else:
        print(f"{outcome.messages_per_s:,.0f} messages/s, {outcome.bytes_per_s / 1e6:,.1f} MB/s ({outcome})")


if __name__ == "__main__":
    main()
