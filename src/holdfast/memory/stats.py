"""Results of `Queue.stats()` and `Queue.recover()`: frozen, with units in the names."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Participant:
    """One attachment of a process."""

    slot: int
    pid: int
    """The pid in the process's own namespace. For people: no decision depends on it."""
    alive: bool
    """The kernel says so: its lock is held."""
    attached: bool
    """It has not detached. Attached and not alive: it died, and is not recovered yet."""
    joined_ms: int
    """When it attached, in milliseconds since the epoch."""


@dataclass(frozen=True)
class Holder:
    """The blocks that one participant holds.

    A slow consumer appears here; its messages are not taken from it.
    """

    slot: int
    pid: int
    alive: bool
    taken: int
    """Messages that it got and has not settled."""
    writing: int
    """Blocks that it has claimed and not finished writing."""
    fenced: int
    """Blocks of a writer that was too slow: consumers pass them, their space waits for the writer."""
    oldest_ms: int
    """How long it has held the oldest of them."""


@dataclass(frozen=True)
class QueueStats:
    """Figures of a queue. Those of a busy queue are of slightly different moments."""

    name: str
    capacity_bytes: int
    message_size_max: int
    delivery: str
    closed: bool
    ready: int
    """Messages that wait for their first delivery."""
    returned: int
    """Messages that came back and wait for another delivery."""
    taken: int
    writing: int
    fenced_blocks: int
    used_bytes: int
    """From the oldest block still in use to the head, settled ones in between included."""
    free_bytes: int
    participants: tuple[Participant, ...]
    holders: tuple[Holder, ...]
    put: int
    put_bytes: int
    delivered: int
    redelivered: int
    settled: int
    given_back: int
    skipped: int
    """Blocks of dead writers that consumers pass over."""
    handed_on: int
    """Messages of dead consumers that went to others."""
    released: int
    """Messages of dead consumers that were dropped (at-most-once)."""
    fenced: int
    """Puts that exceeded the stall limit and started again."""
    dead_lettered: int
    dead_letter_blocked: bool
    """Messages wait for room in the dead-letter queue (as this process saw it last)."""
    corrupt: int
    """Damaged messages that were set aside."""
    positions_left: int
    """64-byte granules until the 52 bits of positions are used up."""


@dataclass(frozen=True)
class Recovered:
    """Blocks of dead participants that `Queue.recover()` repaired."""

    skipped: int
    handed_on: int
    released: int


def participants_of(people: list[dict[str, Any]]) -> tuple[Participant, ...]:
    """Return the attachments, without free slots whose counters are kept."""
    return tuple(
        Participant(each["slot"], each["pid"], each["alive"], each["active"], each["joined_ms"])
        for each in people
        if each["active"] or each["alive"]
    )


def sums_of(people: list[dict[str, Any]]) -> Counter[str]:
    """Return the counters of a segment: the sums over all its slots."""
    sums = Counter[str]()
    for each in people:
        sums.update(each["counts"])
    return sums


def stats_of(name: str, seen: dict[str, Any], dead_letter_blocked: bool = False) -> QueueStats:
    """Build the record from the result of `_core.inspect`."""
    params, queue, people = seen["params"], seen["queue"], seen["people"]
    blocks = queue["blocks"]
    known = {each["slot"]: each for each in people}
    holders = tuple(
        Holder(
            slot=each["slot"],
            pid=known[each["slot"]]["pid"] if each["slot"] in known else 0,
            alive=each["slot"] in known and known[each["slot"]]["alive"],
            taken=each["taken"],
            writing=each["writing"],
            fenced=each["fenced"],
            oldest_ms=each["oldest_ms"],
        )
        for each in queue["holders"]
    )
    sums = sums_of(people)
    used = 64 * (queue["end"] - queue["tail"])
    return QueueStats(
        name=name,
        capacity_bytes=params["capacity"],
        message_size_max=params["message_size_max"],
        delivery=params["delivery"],
        closed=queue["closed"],
        ready=blocks["READY"],
        returned=blocks["RETRY"],
        taken=blocks["TAKEN"],
        writing=blocks["RESERVED"],
        fenced_blocks=blocks["FENCED"],
        used_bytes=used,
        free_bytes=max(0, params["capacity"] - used),
        participants=participants_of(people),
        holders=holders,
        dead_letter_blocked=dead_letter_blocked,
        positions_left=queue["positions_left"],
        **{
            key: sums[key]
            for key in (
                "put",
                "put_bytes",
                "delivered",
                "redelivered",
                "settled",
                "given_back",
                "skipped",
                "handed_on",
                "released",
                "fenced",
                "dead_lettered",
                "corrupt",
            )
        },
    )
