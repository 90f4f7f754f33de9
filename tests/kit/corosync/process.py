"""A member in a process of its own, which prints the calls that it gets.

Run inside a node: `python -m tests.kit.corosync.process NAME NODE NODES INCARNATION`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys

from holdfast.demo.cluster.nodes import Nodes
from holdfast.group import Listener, View
from holdfast.group.cpg import CpgGroup
from holdfast.group.cpg.library import Cpg
from tests.kit.corosync.members import INCARNATIONS

STRANGE = [
    b"",
    b"hello",
    b"HFcg\x01",
    b"HFcg\x01\x01" + b"\xff" * 200,
    b"HFcg\x01\x02" + b"\xff" * 200,
    b"HFcg\x01\x03" + b"\xff" * 200,
    b"HFcg\x63\x01" + bytes(200),
    bytes(100_000),
]


class Printer(Listener):
    """Prints views and the end."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def on_view(self, view: View) -> None:
        print("view", view.id, *(member.node for member in view.members), flush=True)

    def on_lost(self, reason: str) -> None:
        print("lost", reason, flush=True)
        self.lost.set()


async def main(name: str, node: str, nodes: str, incarnation: str) -> None:
    printer = Printer()
    numbers = [int(number) for number in nodes.split(",")]
    group = CpgGroup(
        name=name,
        node=int(node),
        nodes=numbers,
        incarnation=int(incarnation),
        view_floor=0,
        explicit_holds=True,  # it holds nothing, because the checker does not see its holds
        evict_s=None,
    )
    await group.start(printer)
    await printer.lost.wait()


async def stranger(name: str) -> None:
    """Join the group of another program, and send bytes that mean nothing to it."""
    carrier = Cpg(name)
    await carrier.join(lambda: None)
    while True:
        while carrier.take() is not None:
            pass
        for words in STRANGE:
            carrier.send(words)
        await asyncio.sleep(0.05)


def start(nodes: Nodes, name: str, number: int) -> subprocess.Popen[str]:
    """Start a member in a process of its own inside a node."""
    numbers = ",".join(map(str, nodes.numbers))
    command = [sys.executable, "-m", "tests.kit.corosync.process", name, str(number), numbers]
    return nodes.popen(number, [*command, str(next(INCARNATIONS))], stdout=subprocess.PIPE, text=True)


def start_stranger(nodes: Nodes, name: str, number: int) -> subprocess.Popen[str]:
    """Start a program inside a node that uses the same group name."""
    return nodes.popen(number, [sys.executable, "-m", "tests.kit.corosync.process", name], text=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]) if len(sys.argv) > 2 else stranger(sys.argv[1]))
