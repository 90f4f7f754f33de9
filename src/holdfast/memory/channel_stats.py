"""Results of `Channel.stats()` and `Channel.check()`, from the core's inspection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.errors import Corrupt
from holdfast.memory.stats import Participant, participants_of, sums_of

POSITION_MAX = 1 << 62


@dataclass(frozen=True)
class ChannelStats:
    """Figures of a channel. Those of a busy channel are of slightly different moments."""

    name: str
    slots: int
    slot_size_bytes: int
    loans: int
    holds: int
    overflow: bool
    laps: int
    dtype: str | None
    shape: tuple[int, ...] | None
    producers: int
    priorities: int
    loop: bool
    """The consumer's buffers come back through a ring of their own."""
    buffers: int
    """All of them: `slots + loans + holds`, for each producer and priority."""
    ready: int
    """Data that wait for the consumer."""
    held: int
    """Buffers that a consumer has, or that views keep after a role was closed."""
    returning: int
    """Buffers of a loop on their way back to the producer."""
    free: int
    """The producers' buffers, their loans included."""
    producer: Participant | None
    """The first producer that is there."""
    attached_producers: tuple[Participant | None, ...]
    """By number."""
    consumer: Participant | None
    participants: tuple[Participant, ...]
    pushed: int
    pushed_bytes: int
    displaced: int
    """Data that went back to the producer because the ring was full."""
    cancelled: int
    popped: int
    lost: int
    """Data that consumers noticed as overwritten."""
    released: int
    starved: int
    """Pops that were overtaken more often than `laps` allows."""
    recovered: int
    """Buffers of dead participants that came back. In a loop also those that a closed consumer sent back."""
    corrupt: int
    positions_left: int
    """Pushes until the 62 bits of positions are used up, for the producer that has the fewest."""


def channel_stats_of(name: str, seen: dict[str, Any]) -> ChannelStats:
    """Build the record from the result of the core's inspection.

    Raises:
        Corrupt: the segment cannot be read.
    """
    if "channel" not in seen:
        raise Corrupt(f"channel {name} is damaged: {'; '.join(seen['faults'])}")
    params, channel, people = seen["params"], seen["channel"], seen["people"]
    participants = {each.slot: each for each in participants_of(people)}
    lanes, held, returning = channel["lanes"], channel["held"], channel["returning"]
    sums = sums_of(people)
    buffers = (params["slots"] + params["loans"] + params["holds"]) * len(lanes)
    producers = tuple(participants.get(each - 1) for each in channel["producers"])
    counters = (
        "pushed", "pushed_bytes", "displaced", "cancelled", "popped", "lost", "released", "starved",
        "recovered", "corrupt",
    )  # fmt: skip
    return ChannelStats(
        name=name,
        slots=params["slots"],
        slot_size_bytes=params["slot_size"],
        loans=params["loans"],
        holds=params["holds"],
        overflow=params["overflow"],
        laps=params["laps"],
        dtype=params["dtype"] or None,
        shape=tuple(int(each) for each in params["shape"].split(",") if each) if params["dtype"] else None,
        producers=params["producers"],
        priorities=params["priorities"],
        loop=params["loop"],
        buffers=buffers,
        ready=sum(lane["datums"] for lane in lanes),
        held=held,
        returning=returning,
        free=max(0, buffers - channel["in_ring"] - returning - held),
        producer=next((each for each in producers if each is not None), None),
        attached_producers=producers,
        consumer=participants.get(channel["consumer"] - 1),
        participants=tuple(participants.values()),
        positions_left=max(0, POSITION_MAX - max(lane["end"] for lane in lanes)),
        **{key: sums[key] for key in counters},
    )


def channel_faults(seen: dict[str, Any]) -> list[str]:
    """Return all faults of a segment in words."""
    faults = list(seen["faults"])
    if "channel" in seen and seen["channel"]["overtaken"]:
        faults.append("the channel was too busy for a complete look; look again")
    return faults
