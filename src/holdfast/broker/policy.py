"""Policies that apply to a topic: its own, else its namespace's, else the broker's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from holdfast.broker.events import LedgerTrim

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic

Value = TypeVar("Value", int, float)


@dataclass(frozen=True)
class Limits:
    """When a topic's open ledger is sealed, and when its messages expire."""

    roll_bytes: int
    roll_entries: int
    roll_age_s: float
    ttl_s: float | None


def limits(broker: Broker, topic: Topic) -> Limits:
    """Return the current limits of a topic."""
    own, above, options = topic.state.policies, broker.machine.state.inherited(topic.state), broker.options
    return Limits(
        roll_bytes=_first(own.roll_bytes, above.roll_bytes, options.roll_bytes),
        roll_entries=_first(own.roll_entries, above.roll_entries, options.roll_entries),
        roll_age_s=_first(own.roll_age_s, above.roll_age_s, options.roll_age_s),
        ttl_s=above.ttl_s if own.ttl_s is None else own.ttl_s,
    )


def trim_event(broker: Broker, topic: Topic) -> LedgerTrim:
    """Return the event that trims a topic; it carries the broker's options."""
    options = broker.options
    retention_ns = -1 if options.retention_s < 0 else int(options.retention_s * 1e9)
    return LedgerTrim(topic.state.id, options.retention_bytes, retention_ns)


def _first(own: Value | None, above: Value | None, otherwise: Value) -> Value:
    if own is not None:
        return own
    return otherwise if above is None else above
