"""holdfast as its users write it: default checksum, at-least-once, every message settled."""

from __future__ import annotations

import os
from dataclasses import dataclass

from bench.links import Kind, Receiver, Sender, Setting
from holdfast import Queue

SPIN_S = 1.0  # for round trips without sleep; by default a waiting call spins for some microseconds only
VIEW_STRIDE = 4096  # a view is read once per page, so that each page of the payload has arrived


@dataclass(frozen=True)
class Holdfast:
    name: str

    @staticmethod
    def make(setting: Setting) -> Holdfast:
        name = f"bench-{os.getpid()}-{os.urandom(4).hex()}"
        Queue.create(name, capacity=setting.capacity).detach()
        return Holdfast(name)

    def sender(self) -> Sender:
        return HoldfastEnd(self.name)

    def receiver(self) -> Receiver:
        return HoldfastEnd(self.name)

    def destroy(self) -> None:
        Queue.unlink(self.name)


class HoldfastEnd:
    def __init__(self, name: str) -> None:
        self.queue = Queue.open(name)
        self.default_spin = self.queue.spin

    def put(self, data: bytes, count: int) -> None:
        q = self.queue
        for _ in range(count):
            q.put(data)

    def get(self, count: int, reading: str) -> bytes:
        q = self.queue
        if reading == "view":
            total = 0
            for _ in range(count - 1):
                with q.get() as message:
                    total += sum(message.data[::VIEW_STRIDE])
            count = 1  # the last one is copied for the check
        for _ in range(count):
            with q.get() as message:
                data = bytes(message.data)
        return data

    def put_many(self, batch: list[bytes], count: int) -> None:
        q = self.queue
        for _ in range(count):
            q.put_many(batch)

    def get_many(self, length: int, count: int, reading: str) -> list[bytes]:
        q = self.queue
        left = length * count
        if reading == "iterate":
            while left > 0:
                with q.get_many(length) as messages:
                    batch = [bytes(message.data) for message in messages]
                left -= len(batch)
        else:
            while left > 0:
                with q.get_many(length) as messages:
                    batch = messages.tobytes()
                left -= len(batch)
        return batch

    def send(self, data: bytes) -> None:
        self.queue.put(data)

    rouse = send

    def prepare(self, spinning: bool) -> None:
        self.queue.spin = SPIN_S if spinning else self.default_spin

    def wait(self) -> bytes:
        with self.queue.get() as message:
            return bytes(message.data)

    spin = wait

    def close(self) -> None:
        self.queue.detach()


HOLDFAST = Kind("holdfast", Holdfast.make, readings=("copy", "iterate", "view"))
