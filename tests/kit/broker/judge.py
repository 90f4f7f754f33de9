"""Account for the promises of a kill storm on a broker (kit/broker/kills.py), life after life."""

from __future__ import annotations

import json
import pickle
import random
import struct
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ID = struct.Struct("<II")
PLACES = 16
"""A message of a batch has the number ordinal × PLACES + its index in the batch."""
TABLE = random.Random(21).randbytes(1 << 16)
Sub = tuple[str, str]
Row = tuple[int, int, int, int, int, int]
"""A message: ordinal, index in the batch, ledger, entry, producer, number."""


def content(producer: int, number: int) -> bytes:
    """Return a payload; most are small, some are large."""
    mixed = (producer * 2654435761 + number * 2246822519) >> 5
    size = mixed % (90 if mixed & 15 else 3000)
    start = mixed % 60_000
    return ID.pack(producer, number) + TABLE[start : start + size]


@dataclass
class Seen:
    """The contents of a broker when a life had opened it."""

    topics: dict[str, list[Row]]
    left: dict[Sub, list[int]]
    """The unacknowledged messages of each subscription."""
    resets: dict[Sub, int]
    bounds: dict[str, tuple[int, int]]
    """The first ordinal of a topic, and the one after its last."""


@dataclass
class Account:
    """The counts of a storm, and its faults."""

    plan: str
    seed: int
    lives: int = 0
    kills: int = 0
    clean: int = 0
    audits: int = 0
    confirmed: int = 0
    found_unconfirmed: int = 0
    receipted: int = 0
    soft_acks_lost: int = 0
    resets: int = 0
    resets_in_doubt: int = 0
    log_bytes: int = 0
    seconds: float = 0.0
    steps: dict[str, int] = field(default_factory=dict)
    """How often a life died by itself at each step."""
    faults: list[str] = field(default_factory=list)

    def words(self) -> str:
        left_out = ("plan", "seed", "faults", "seconds", "steps")
        counts = {k: v for k, v in asdict(self).items() if k not in left_out}
        told = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in counts.items())
        steps = sum(self.steps.values())
        return f"{self.plan} (seed {self.seed}): {told}, at steps {steps}; {self.seconds:.1f} s"


@dataclass
class Acked:
    """Messages by their numbers: all below one number, and some above it."""

    below: int = 0
    above: set[int] = field(default_factory=set)

    def __contains__(self, key: int) -> bool:
        return key < self.below or key in self.above

    def add(self, keys: Iterable[int], below: int) -> None:
        self.above.update(keys)
        self.below = max(self.below, below)


@dataclass
class Cursor:
    """Messages that are acknowledged for certain, and messages that may be."""

    sure: Acked = field(default_factory=Acked)
    maybe: Acked = field(default_factory=Acked)
    all_maybe: bool = False
    resets: int = 0
    resetting: int | None = None
    """The target of a reset that was requested and not reported."""


class Judge:
    """Compares the records of each life with the contents that the next life finds."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.offset = 0
        self.asked: dict[tuple[str, int], int] = {}
        """By topic and producer: a publish was requested for the numbers below this."""
        self.confirmed: dict[tuple[str, int], int] = {}
        """By topic and producer: the numbers below this were confirmed."""
        self.places: dict[tuple[str, int, int], tuple[int, int]] = {}
        """The id with which a message was confirmed or seen."""
        self.cursors: dict[Sub, Cursor] = {}
        self.first: dict[str, int] = {"kept": 0, "plain": 0}
        self.end: dict[str, int] = {"kept": 0, "plain": 0}
        self.clean = False

    def fault(self, *words: object) -> None:
        self.account.faults.append(" ".join(str(word) for word in words)[:2000])

    def read(self, directory: Path, life: int, clean: bool) -> None:
        """Read the records of the life that has ended."""
        with (directory / "log").open("rb") as log:
            log.seek(self.offset)
            lines = log.read().splitlines(keepends=True)
        for line in lines:
            self.offset += len(line)
            record = json.loads(line)
            if record[0] == "SEEN":
                self.look(pickle.loads((directory / f"seen.{life}").read_bytes()))
                (directory / f"seen.{life}").unlink()
            else:
                self.take(record)
        self.clean = clean
        self.account.clean += clean

    # -- records ---------------------------------------------------------------------------------------

    def take(self, record: list[Any]) -> None:
        kind, *rest = record
        if kind == "START":
            self.started(*rest)
        elif kind in ("p", "P", "F"):
            self.published(kind, *rest)
        else:
            self.acknowledged(kind, self.cursors.setdefault((rest[0][0], rest[0][1]), Cursor()), rest[1:])

    def started(self, topic: str, producer: int, at: int) -> None:
        """Check a producer's start: not below the last confirmed, nor above the last requested."""
        who = (topic, producer)
        if not self.confirmed.get(who, 0) <= at <= self.asked.get(who, 0):
            self.fault(who, "goes on at", at, "confirmed", self.confirmed.get(who, 0), self.asked.get(who, 0))
        self.asked[who] = at

    def published(
        self,
        kind: str,
        topic: str,
        producer: int,
        at: int,
        count: int,
        places: list[list[int]] | None = None,
        again: list[int] | None = None,
    ) -> None:
        who = (topic, producer)
        if kind == "p":
            self.asked[who] = at + count
            return
        self.confirmed[who] = at + count
        self.account.confirmed += count
        for number, place in enumerate(places or [], at):
            self.places[topic, producer, number] = (place[0], place[1])
        if any(ledger != -1 for ledger in again or []):
            self.fault(who, "before", at, "were sent again and stored again:", again)

    def acknowledged(self, kind: str, cursor: Cursor, rest: list[Any]) -> None:
        keys: list[int] = []
        below = 0
        if kind in ("a", "A"):
            keys = rest[0]
        elif kind in ("c", "C"):
            below = rest[0] + 1
        elif kind == "k":
            cursor.all_maybe = True
            return
        elif kind == "K":
            below = (rest[0] + 1) * PLACES
        elif kind == "r":
            cursor.resetting = rest[0]
            return
        else:
            self.account.resets += 1
            self.was_reset(cursor, rest[0])
            return
        cursor.maybe.add(keys, below)
        if kind.isupper():
            cursor.sure.add(keys, below)
            self.account.receipted += len(keys) if kind == "A" else 1

    def was_reset(self, cursor: Cursor, target: int) -> None:
        cursor.sure, cursor.maybe = Acked(target * PLACES), Acked(target * PLACES)
        cursor.all_maybe = False
        cursor.resets += 1
        cursor.resetting = None

    # -- what the next life finds ----------------------------------------------------------------------

    def look(self, seen: Seen) -> None:
        self.account.audits += 1
        for topic, rows in seen.topics.items():
            self.look_at_bounds(topic, *seen.bounds[topic])
            self.look_at_topic(topic, rows)
            self.look_for_lost(topic, rows)
        for sub, left in seen.left.items():
            self.look_at_cursor(sub, set(left), seen)

    def look_at_bounds(self, topic: str, first: int, end: int) -> None:
        """Check that only acknowledged messages were trimmed, and no confirmed one is beyond the end."""
        if first < self.first[topic] or (topic == "kept" and first):
            self.fault(topic, "begins at", first, "after", self.first[topic])
        for (of, name), cursor in self.cursors.items():
            gone = [at for at in range(self.first[topic], first) if at * PLACES not in cursor.maybe]
            if of == topic and gone and not cursor.all_maybe:
                self.fault(topic, "was trimmed to", first, name, "had yet to acknowledge", gone[:9])
        told = len({place for (of, _, _), place in self.places.items() if of == topic})
        if end < max(told, self.first[topic]):
            self.fault(topic, "ends at", end, "and", told, "entries were told")
        self.first[topic], self.end[topic] = first, end

    def look_at_topic(self, topic: str, rows: list[Row]) -> None:
        """Check that every message exists once, with its id, in the order of its producer."""
        ids = [(ledger, entry, place) for _, place, ledger, entry, _, _ in rows]
        if ids != sorted(set(ids)):
            self.fault(topic, "has ids out of order or twice")
        ordinals = sorted({row[0] for row in rows})
        if ordinals != list(range(self.first[topic], self.end[topic])):
            self.fault(topic, "has", ordinals[:3], "to", ordinals[-3:], self.first[topic], self.end[topic])
        last: dict[int, int] = {}
        for _, _, ledger, entry, producer, number in rows:
            known = self.places.setdefault((topic, producer, number), (ledger, entry))
            if known != (ledger, entry):
                self.fault(topic, producer, number, "had the id", known, "and now has", (ledger, entry))
            if number != last.get(producer, number - 1) + 1:
                self.fault(topic, producer, "has", number, "after", last[producer])
            if producer not in last and topic == "kept" and number != 0:
                self.fault("kept: producer", producer, "begins with", number)
            last[producer] = number

    def look_for_lost(self, topic: str, rows: list[Row]) -> None:
        """Check that confirmed messages exist or were trimmed, and that no other message exists."""
        last = {row[4]: row[5] for row in rows}
        begin = (rows[0][2], rows[0][3]) if rows else None
        for (of, producer), confirmed in self.confirmed.items():
            if of != topic or last.get(producer, -1) + 1 >= confirmed:
                continue
            place = self.places.get((topic, producer, confirmed - 1))
            if topic == "kept" or (begin is not None and place is not None and place >= begin):
                self.fault(topic, producer, confirmed - 1, place, "is lost; there is", last.get(producer))
        for producer, number in last.items():
            who = (topic, producer)
            if number >= self.asked.get(who, 0):
                self.fault(topic, producer, number, "was never sent")
            self.account.found_unconfirmed += max(0, number + 1 - self.confirmed.get(who, 0))
            self.confirmed[who] = max(self.confirmed.get(who, 0), number + 1)

    def look_at_cursor(self, sub: Sub, left: set[int], seen: Seen) -> None:
        cursor = self.cursors.setdefault(sub, Cursor())
        if cursor.resetting is not None and seen.resets[sub] == cursor.resets + 1:
            self.account.resets_in_doubt += 1
            self.was_reset(cursor, cursor.resetting)
        cursor.resetting = None
        if seen.resets[sub] != cursor.resets:
            self.fault(sub, "has", seen.resets[sub], "resets;", cursor.resets, "were reported")
        cursor.resets = seen.resets[sub]
        every = {ordinal * PLACES + place for ordinal, place, *_ in seen.topics[sub[0]]}
        back = sorted(key for key in left if key in cursor.sure)
        if back:
            self.fault(sub, back[:20], "were acknowledged with a receipt and are back")
        gone = sorted(key for key in every - left if key not in cursor.maybe)
        if gone and not cursor.all_maybe:
            self.fault(sub, gone[:20], "were never acknowledged and are gone")
        lost = sum(key in cursor.maybe for key in left)
        self.account.soft_acks_lost += lost
        if self.clean and lost and not cursor.all_maybe:
            self.fault(sub, "a clean end lost", lost, "acknowledgements")
        below = min(left, default=seen.bounds[sub[0]][1] * PLACES)
        above = {key for key in every if key > below} - left
        cursor.sure, cursor.maybe = Acked(below, above), Acked(below, set(above))
        cursor.all_maybe = False
