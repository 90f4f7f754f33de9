"""Raw CPG: `python -m bench.cluster_raw ROLE GROUP SIZE SECONDS WINDOW`, a process on each node.

It is the physical reference of a cluster: Corosync orders messages and hands them to three processes, which
only count them. A watcher writes down when Corosync changes the list of processes.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field

from bench.answers import BenchError
from bench.server_load import Load
from holdfast.demo.cluster.nodes import Nodes
from holdfast.group.cpg.carrier import CarrierLost, Item, Listed
from holdfast.group.cpg.library import Cpg

LAST = b"!"
BUSY_S = 0.0005
LIMIT_S = 60.0


@dataclass
class Counter:
    """Counts the messages of a group, and the processes in it."""

    carrier: Cpg
    messages: int = 0
    processes: int = 0
    last: bool = False
    lists: list[tuple[float, int]] = field(default_factory=list)
    """When a list came, on the clock of all processes of the machine, and its processes."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def arrived(self) -> None:
        while (item := self._taken()) is not None:
            if isinstance(item, Listed):
                self.processes = len(item.processes)
                self.lists.append((time.monotonic(), self.processes))
            elif item.data == LAST:
                self.last = True
            else:
                self.messages += 1
        self.changed.set()

    def _taken(self) -> Item | None:
        try:
            return self.carrier.take()
        except CarrierLost as lost:
            sys.exit(str(lost))  # its Corosync was killed

    async def change(self) -> None:
        self.changed.clear()
        await self.changed.wait()


async def joined(group: str) -> Counter:
    counter = Counter(Cpg(group))
    await counter.carrier.join(counter.arrived)
    counter.arrived()
    return counter


async def send(group: str, size: int, seconds: float, window: int) -> None:
    """Send messages, with at most `window` under way; then one that ends the receivers."""
    counter, data, sent = await joined(group), bytes(size), 0
    while counter.processes < 3:
        await counter.change()
    begin = time.monotonic()
    while time.monotonic() < begin + seconds:
        if sent - counter.messages >= window:
            await counter.change()
        elif counter.carrier.send(data):
            sent += 1
        else:
            await asyncio.sleep(BUSY_S)
    while not counter.carrier.send(LAST):
        await asyncio.sleep(BUSY_S)
    while not counter.last:
        await counter.change()
    tell({"messages": sent, "begin": begin, "end": time.monotonic()})


async def receive(group: str) -> None:
    """Count messages until the last one."""
    counter = await joined(group)
    while not counter.last:
        await counter.change()
    tell({"messages": counter.messages, "end": time.monotonic()})


async def watch(group: str) -> None:
    """Tell each change of the list until this process is killed."""
    counter = await joined(group)
    while True:
        while counter.lists:
            tell(counter.lists.pop(0))
        await counter.change()


def tell(what: object) -> None:
    print(json.dumps(what), flush=True)


def command(role: str, group: str, size: int = 0, seconds: float = 0.0, window: int = 0) -> list[str]:
    return [sys.executable, "-m", "bench.cluster_raw", role, group, str(size), str(seconds), str(window)]


def measure(nodes: Nodes, group: str, size: int, seconds: float, window: int) -> Load:
    """Return messages and the time until the slowest of three processes had them all."""
    roles = dict.fromkeys(nodes.numbers, "receive") | {nodes.numbers[0]: "send"}
    processes = [
        nodes.popen(
            number,
            command(role, group, size, seconds, window),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, role in roles.items()
    ]
    told = []
    for process in processes:
        try:
            out, words = process.communicate(timeout=seconds + LIMIT_S)
        except subprocess.TimeoutExpired:
            raise BenchError("raw CPG: a process did not end") from None
        if process.returncode != 0:
            raise BenchError(f"raw CPG: {words[-500:]}")
        told.append(json.loads(out))
    if len({each["messages"] for each in told}) != 1:
        raise BenchError(f"raw CPG: members got different numbers of messages: {told}")
    return Load(told[0]["messages"], max(each["end"] for each in told) - told[0]["begin"])


def main() -> None:
    role, group, size, seconds, window = sys.argv[1:]
    if role == "send":
        asyncio.run(send(group, int(size), float(seconds), int(window)))
    else:
        asyncio.run({"receive": receive, "watch": watch}[role](group))


if __name__ == "__main__":
    main()
