"""A simple model of a queue: blocks on an endless line of granules.

`tests/conformance/test_queue_model.py` plays the same random calls on this and on the real queue.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

State = Literal["ready", "taken", "returned", "done", "pad"]
GRANULE, HEADER = 64, 32


def granules(size: int) -> int:
    return -(-(size + HEADER) // GRANULE)


@dataclass
class Block:
    position: int
    length: int
    state: State
    data: bytes = b""
    deliveries: int = 0
    owner: int = -1


@dataclass
class Figures:
    put: int = 0
    put_bytes: int = 0
    delivered: int = 0
    redelivered: int = 0
    settled: int = 0
    given_back: int = 0
    dead_lettered: int = 0


@dataclass
class Model:
    capacity: int  # in granules
    at_most_once: bool
    max_deliveries: int  # 0: no limit
    closed: bool = False
    blocks: list[Block] = field(default_factory=list)
    dead_letters: list[bytes] = field(default_factory=list)
    figures: Figures = field(default_factory=Figures)

    def __post_init__(self) -> None:
        self.head = self.tail = self.capacity

    def reclaim(self) -> None:
        while self.blocks and self.blocks[0].state in ("done", "pad"):
            gone = self.blocks.pop(0)
            self.tail = gone.position + gone.length

    def _claim(self, length: int) -> int | None:
        """Return the position of free granules, or None; one stays for the end mark."""
        while True:
            self.reclaim()
            rest = self.capacity - self.head % self.capacity
            extent = min(length, rest)
            if self.head + extent + 1 > self.tail + self.capacity:
                return None
            position = self.head
            self.head += extent
            if extent == length:
                return position
            self.blocks.append(Block(position, extent, "pad"))  # a block does not cross the end of the ring

    def put_many(self, messages: list[bytes]) -> tuple[Literal["ok", "full", "closed"], int]:
        """Put messages; return the outcome, and how many were put."""
        done = 0
        while done < len(messages):
            end, length = done, 0
            while end < len(messages) and length + granules(len(messages[end])) <= self.capacity // 2:
                length += granules(len(messages[end]))
                end += 1
            if self.closed:
                return "closed", done
            position = self._claim(length)
            if position is None:
                return "full", done
            for data in messages[done:end]:
                self.blocks.append(Block(position, granules(len(data)), "ready", data))
                position += granules(len(data))
                self.figures.put += 1
                self.figures.put_bytes += len(data)
            done = end
        return "ok", done

    def take(self, wanted: int, owner: int) -> list[Block] | Literal["empty", "closed"]:
        """Take returned messages one at a time, then new ones; bury those returned too often."""
        while True:
            returned = [block for block in self.blocks if block.state == "returned"]
            found = returned[:1] or [block for block in self.blocks if block.state == "ready"][:wanted]
            if not found:
                others = any(block.state == "taken" and block.owner != owner for block in self.blocks)
                return "closed" if self.closed and not others else "empty"
            if self.max_deliveries and found[0].deliveries >= self.max_deliveries:
                found[0].state = "done"
                self.dead_letters.append(found[0].data)
                self.figures.dead_lettered += 1
                self.figures.settled += 1
                continue
            for block in found:
                block.state, block.owner = "taken", owner
            return found

    def deliver(self, wanted: int, owner: int) -> list[Block] | Literal["empty", "closed"]:
        found = self.take(wanted, owner)
        if not isinstance(found, str):
            self.figures.delivered += len(found)
            self.figures.redelivered += sum(block.deliveries > 0 for block in found)
        return found

    def settle(self, block: Block) -> None:
        assert block.state == "taken"
        block.state = "done"
        self.figures.settled += 1

    def give_back(self, block: Block) -> None:
        assert block.state == "taken"
        self.figures.given_back += 1
        if self.at_most_once:
            block.state = "done"
        else:
            block.state = "returned"
            block.deliveries += 1

    def put_aside(self, block: Block) -> None:
        """Undo a take: the message was not delivered after all."""
        block.state = "returned"

    def purge(self, owner: int) -> int:
        count = 0
        while not isinstance(found := self.deliver(1024, owner), str):
            count += len(found)
            for block in found:
                self.settle(block)
        return count

    def count(self, state: State) -> int:
        return sum(block.state == state for block in self.blocks)
