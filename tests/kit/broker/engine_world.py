"""An engine with a store whose durability the test controls."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.broker.engine import Engine
from holdfast.broker.machine import Applied, Machine
from holdfast.errors import HoldfastError
from holdfast.group import LocalGroup, Position
from holdfast.system import SystemClock


class World:
    """An engine on a local group. `durable` is what its disk does."""

    def __init__(self, group: LocalGroup | None = None) -> None:
        self.machine = Machine()
        self.group = group or LocalGroup(explicit_holds=True)
        self.settlements: list[Applied] = []
        self.told: list[str] = []
        self.ends: list[HoldfastError] = []
        self.stable: list[Position] = []
        self.engine = Engine(self.machine, self, self.group, SystemClock(), self)

    # the store
    def applied(self) -> None:
        self.machine.log.take_round()

    def set_stable(self, position: Position) -> None:
        self.stable.append(position)

    async def flush(self) -> None:
        self.durable()

    # the observer
    def settled(self, applied: Applied) -> None:
        self.settlements.append(applied)

    def ended(self, reason: HoldfastError) -> None:
        self.ends.append(reason)

    def durable(self, d: int | None = None) -> None:
        self.engine.on_durable(self.machine.log.next_d - 1 if d is None else d)

    def submit(self, name: str, event: Any) -> asyncio.Future[Any]:
        future = self.engine.submit(event)
        future.add_done_callback(lambda done: self.told.append(name))
        return future


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def started(group: LocalGroup | None = None) -> World:
    world = World(group)
    await world.group.start(world.engine)
    world.durable()
    return world
