"""Direct connections between simulated nodes: delays, splits, cuts at any byte, crashes."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, copy_context

from holdfast.cluster.peers import QUIET_S, Handler
from holdfast.errors import HoldfastError
from tests.kit.sim.loop import CURRENT, Life
from tests.kit.sim.randomness import SeededRandomness
from tests.kit.sim.world import Sim, SimNode

BYTES_PER_S = 100e6


class Wires:
    """All connections of a simulation."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.chance = SeededRandomness(sim.seed, "wires")
        self.handlers: dict[int, tuple[Handler, Life, Context]] = {}
        self.delay_s = (50e-6, 2e-3)
        self.cut = 0.0
        """Share of messages that end their connection instead."""
        self.damage = 0
        """How many of the next large messages arrive with a changed byte."""
        self.bytes = 0
        """Bytes that were sent so far, by all."""

    def reach(self, one: int, other: int) -> bool:
        return self.sim.network.connected(one, other)


class SimChannel:
    """One end of a connection."""

    def __init__(self, wires: Wires, here: int, there: int, context: Context) -> None:
        self._wires, self._here, self._there = wires, here, there
        self._context = context
        self._inbox: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._broken = self._closed = False
        self.peer: SimChannel | None = None
        self._due = 0.0

    async def send(self, message: bytes) -> None:
        wires = self._wires
        if self._broken or not wires.reach(self._here, self._there):
            self._broken = True
            raise ConnectionResetError("the connection has ended")
        wires.bytes += len(message)
        if wires.damage and len(message) > 1000:
            wires.damage -= 1
            message = message[:500] + bytes([message[500] ^ 1]) + message[501:]
        loop = asyncio.get_running_loop()
        wire_s = wires.chance.between(*wires.delay_s) + len(message) / BYTES_PER_S
        self._due = max(self._due, loop.time() + wire_s)  # messages do not overtake each other
        assert self.peer is not None
        cut = wires.chance.happens(wires.cut)
        loop.call_at(self._due, self.peer._take, None if cut else message, context=self.peer._context)
        await asyncio.sleep(wire_s)

    def _take(self, message: bytes | None) -> None:
        if message is None or not self._wires.reach(self._here, self._there):
            self._broken = True
        else:
            self._inbox.append(message)
        self._arrived.set()

    async def receive(self, timeout: float = QUIET_S) -> bytes:
        async with asyncio.timeout(timeout):
            while not self._inbox:
                if self._broken:
                    raise ConnectionResetError("the connection has ended")
                self._arrived.clear()
                await self._arrived.wait()
        return self._inbox.popleft()

    async def close(self) -> None:
        self._broken = True
        if not self._closed:
            self._closed = True
            assert self.peer is not None
            at = asyncio.get_running_loop().time() + self._wires.delay_s[1]
            asyncio.get_running_loop().call_at(at, self.peer._take, None, context=self.peer._context)


class SimLink:
    """The `Link` of one life of a node."""

    def __init__(self, wires: Wires, node: SimNode) -> None:
        self._wires, self._node = wires, node

    async def serve(self, handler: Handler) -> None:
        context = copy_context()
        context.run(CURRENT.set, self._node.life)
        self._wires.handlers[self._node.number] = (handler, self._node.life, context)

    async def connect(self, node: int) -> SimChannel:
        wires, here = self._wires, self._node.number
        await asyncio.sleep(wires.chance.between(*wires.delay_s))
        handler, life, context = wires.handlers.get(node, (None, None, None))
        if handler is None or life is None or not life.alive or not wires.reach(here, node):
            raise ConnectionRefusedError(f"node {node} does not answer")
        assert context is not None
        mine = copy_context()
        one, other = SimChannel(wires, here, node, mine), SimChannel(wires, node, here, context)
        one.peer, other.peer = other, one

        async def serve() -> None:
            try:
                await handler(here, other)
            except (HoldfastError, OSError) as error:
                self._node.trace("link", type(error).__name__)
            except Exception as error:
                wires.sim.loop.failures.append(error)
            finally:
                await other.close()

        asyncio.get_running_loop().create_task(serve(), context=context)
        return one

    async def close(self) -> None:
        self._wires.handlers.pop(self._node.number, None)
