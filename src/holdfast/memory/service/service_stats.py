"""Results of `stats()` and `check()` of skeletons and proxies, from the core's inspection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.errors import Corrupt
from holdfast.memory.service.elements import KINDS
from holdfast.memory.stats import sums_of


@dataclass(frozen=True)
class ServiceUser:
    """A process that is connected to an instance, or was."""

    slot: int
    role: str
    """provider, proxy or tracer."""
    pid: int
    application: str
    alive: bool
    """The kernel says so: its lock is held."""
    attached: bool
    """It has not left. Attached and not alive: it died, and is not cleared yet."""
    joined_ms: int


@dataclass(frozen=True)
class ElementStats:
    """Figures of one element."""

    name: str
    kind: str
    """event, field or method."""
    samples: int
    size_bytes: int
    published: int
    """The sequence number of the newest sample."""
    free: int
    """Samples that the provider may fill."""
    held: int
    """Samples that proxies or the tracer hold."""
    writing: int
    subscribers: int
    granted: int
    """Samples that all subscribers together may hold."""
    max_subscribers: int
    calls: int
    calls_under_way: int


@dataclass(frozen=True)
class ServiceStats:
    """Figures of an instance. Those of a busy one are of slightly different moments."""

    name: str
    epoch: int
    """How often it was offered."""
    offered: bool
    elements: tuple[ElementStats, ...]
    users: tuple[ServiceUser, ...]
    sent: int
    sent_bytes: int
    taken: int
    missed: int
    """Samples that subscribers passed over."""
    called: int
    answered: int
    recovered: int
    """Dead processes that were cleared."""
    corrupt: int
    unheard: int
    """Deaths of which no provider hears: 128 other notices were waiting for one."""
    notices: int
    """Deaths that a provider has not heard of yet."""


def service_stats_of(name: str, seen: dict[str, Any]) -> ServiceStats:
    """Build the record from the result of the core's inspection.

    Raises:
        Corrupt: the segment cannot be read.
    """
    if "elements" not in seen:
        raise Corrupt(f"service {name} is damaged: {'; '.join(seen['faults'])}")
    people = seen["people"]
    users = tuple(
        ServiceUser(
            each["slot"], each["role"], each["pid"], each["application"], each["alive"], each["active"],
            each["joined_ms"],
        )
        for each in people
        if each["active"] or each["alive"]
    )  # fmt: skip
    sums = sums_of(people)
    counters = (
        "sent",
        "sent_bytes",
        "taken",
        "missed",
        "called",
        "answered",
        "recovered",
        "corrupt",
        "unheard",
    )
    return ServiceStats(
        name=name,
        epoch=seen["epoch"],
        offered=any(each.role == "provider" and each.alive and each.attached for each in users),
        elements=tuple(map(_element, seen["elements"])),
        users=users,
        notices=len(seen["notices"]),
        **{key: sums[key] for key in counters},
    )


def _element(each: dict[str, Any]) -> ElementStats:
    samples = each["samples"]
    return ElementStats(
        name=each["name"],
        kind=KINDS.get(each["kind"], "?"),
        samples=len(samples),
        size_bytes=each["size"],
        published=each["published"],
        free=sum(not sample["holders"] and not sample["writing"] for sample in samples),
        held=sum(bool(sample["holders"]) for sample in samples),
        writing=sum(sample["writing"] for sample in samples),
        subscribers=len(each["logs"]),
        granted=sum(log["samples"] for log in each["logs"]),
        max_subscribers=each["max_subscribers"],
        calls=len(each["calls"]),
        calls_under_way=sum(call["state"] != "idle" for call in each["calls"]),
    )


def faults_of_service(seen: dict[str, Any]) -> list[str]:
    """Return all faults of a segment in words."""
    return list(seen["faults"])
