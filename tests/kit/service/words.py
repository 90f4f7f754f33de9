"""Words of a service's file, read and overwritten by a test (native/holdfast/service/layout.hpp)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from holdfast import Service
from holdfast.memory.service.elements import Element

PAGE, SPEC, LINE = 4096, 1024, 64
PARTICIPANT, IDENTITY, NOTICE, SLOTS, NOTICES = 128, 128, 160, 64, 128
TRACER, PROVIDER = 62, 63
WRITING = 1 << PROVIDER
COUNTS = 32
"""The offset of the counters in a participant's entry."""


def up(size: int, to: int = LINE) -> int:
    return -(-size // to) * to


class Words:
    """The file of an instance."""

    def __init__(self, kind: type[Service], instance: str) -> None:
        self.path = Path(os.environ["HOLDFAST_RUNTIME_DIR"]) / f"holdfast.service.{kind._name}.{instance}"
        self.elements: Mapping[str, Element] = kind._elements
        self.epoch = PAGE + up(SPEC * len(self.elements), PAGE)
        self.provider_bell = self.epoch + LINE
        self.participants = self.epoch + 2 * LINE
        self.identities = self.participants + SLOTS * PARTICIPANT
        self.notices = self.identities + SLOTS * IDENTITY
        self.control: dict[str, int] = {}
        self.data: dict[str, int] = {}
        at = up(self.notices + NOTICES * NOTICE)
        for name, element in self.elements.items():
            self.control[name] = at
            request = up(element.tuple_of(name)[7])
            at = up(at + LINE + 256 + up(8 * element.samples) + element.calls * (LINE + LINE + request))
        at = up(at, PAGE)
        for name, element in self.elements.items():
            self.data[name] = at
            size, response = up(element.tuple_of(name)[6]), up(element.tuple_of(name)[8])
            heads = up(8 * element.samples) + 2 * up(4 * element.samples)
            at = up(at + LINE + heads + element.samples * size + element.calls * (LINE + response))

    def counters(self, slot: int) -> int:
        return self.participants + PARTICIPANT * slot + COUNTS

    def notice(self, place: int) -> int:
        return self.notices + NOTICE * place

    def log(self, name: str, slot: int) -> int:
        return self.control[name] + LINE + 4 * slot

    def word(self, name: str, sample: int) -> int:
        return self.control[name] + LINE + 256 + 8 * sample

    def call(self, name: str, place: int) -> int:
        return self.word(name, 0) + up(8 * self.elements[name].samples) + LINE * place

    def published(self, name: str) -> int:
        return self.data[name]

    def sequence(self, name: str, sample: int) -> int:
        return self.data[name] + LINE + 8 * sample

    def index(self, name: str, number: int) -> int:
        samples = self.elements[name].samples
        return self.sequence(name, 0) + up(8 * samples) + 4 * (number % samples)

    def length(self, name: str, sample: int) -> int:
        return self.index(name, 0) + up(4 * self.elements[name].samples) + 4 * sample

    def read(self, offset: int, width: int = 8) -> int:
        return int.from_bytes(self.path.read_bytes()[offset : offset + width], "little")

    def write(self, offset: int, value: int, width: int = 8) -> None:
        with self.path.open("r+b") as file:
            file.seek(offset)
            file.write(value.to_bytes(width, "little"))
