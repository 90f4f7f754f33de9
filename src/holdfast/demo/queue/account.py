"""Compare what producers put and consumers got, by the records of all processes."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from holdfast.demo.queue.workers import BATCH, GOT, PUT
from holdfast.demo.records import read_record


@dataclass(frozen=True)
class Account:
    """The account of a run. `lost`, `unmarked`, `invented` and `damaged` must be 0."""

    confirmed: int
    """Puts that returned to their producer and were written down by it."""
    unconfirmed: int
    """Delivered messages whose producer was killed between the put's effect and its record."""
    delivered: int
    """Distinct messages that a consumer got."""
    redelivered: int
    """Deliveries that were marked as not the first one."""
    lost: int
    """Confirmed and never delivered."""
    unmarked: int
    """Deliveries that looked like an earlier one of the same message: the mark did not tell them apart."""
    invented: int
    """Messages that no producer can have put."""
    damaged: int
    """Messages whose checksum was wrong."""

    @property
    def balanced(self) -> bool:
        return not (self.lost or self.unmarked or self.invented or self.damaged)


def read_puts(file: Path) -> array[int]:
    """The confirmed numbers of one producer; a record that death cut short does not count."""
    return array("Q", read_record(file, PUT.size))


def read_gets(file: Path) -> Iterable[tuple[int, int, int]]:
    """(producer, redelivered, number) of everything that one consumer got."""
    return GOT.iter_unpack(read_record(file, GOT.size))


def balance(records: Path) -> Account:
    """Compares all records in a directory."""
    puts = {int(file.suffix[1:]): read_puts(file) for file in records.glob("producer.*") if _is_record(file)}
    # Most messages are delivered once, unmarked: a byte each. The others are few: a set each.
    first = {ident: bytearray(len(numbers) + BATCH) for ident, numbers in puts.items()}
    again: dict[tuple[int, int], set[int]] = {}
    again_count = unmarked = invented = damaged = 0
    for file in records.glob("consumer.*"):
        if not _is_record(file):
            continue
        for producer, redelivered, number in read_gets(file):
            marks = first.get(producer)
            if producer == 0:
                damaged += 1
            elif marks is None or number >= len(marks):
                invented += 1
            elif redelivered == 0:
                unmarked += marks[number]
                marks[number] = 1
            else:
                again_count += 1
                seen = again.setdefault((producer, number), set())
                unmarked += redelivered in seen
                seen.add(redelivered)
    for producer, number in again:
        first[producer][number] = 1  # also where the first consumer died before it wrote anything down
    delivered = sum(sum(marks) for marks in first.values())
    lost = confirmed = confirmed_delivered = 0
    for ident, numbers in puts.items():
        there = sum(first[ident][number] for number in numbers)
        confirmed += len(numbers)
        confirmed_delivered += there
        lost += len(numbers) - there
    return Account(
        confirmed=confirmed,
        unconfirmed=delivered - confirmed_delivered,
        delivered=delivered,
        redelivered=again_count,
        lost=lost,
        unmarked=unmarked,
        invented=invented,
        damaged=damaged,
    )


def _is_record(file: Path) -> bool:
    return file.suffix[1:].isdecimal()
