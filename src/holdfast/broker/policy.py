"""Policies that apply to a topic: its own, else its namespace's, else the broker's options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from holdfast.broker.dispatch.schedule import Times
from holdfast.broker.events import LedgerTrim
from holdfast.errors import Misuse

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic

Value = TypeVar("Value", bool, int, float)

RING_LEDGER_ENTRIES = 1000
RING_LEDGER_BYTES = 1 << 20
"""Ledgers of small rings may have this size: many small files cost more than the entries."""


@dataclass(frozen=True)
class Limits:
    """When a topic's open ledger is sealed, and when its messages expire."""

    roll_bytes: int
    roll_entries: int
    roll_age_s: float
    ttl_s: float | None


def limits(broker: Broker, topic: Topic) -> Limits:
    """Return the current limits of a topic."""
    own, above, options = topic.state.policies, broker.machine.state.inherited(topic.state), broker.decided
    roll_bytes = _first(own.roll_bytes, above.roll_bytes, options.roll_bytes)
    roll_entries = _first(own.roll_entries, above.roll_entries, options.roll_entries)
    ring = own.over(above)
    if ring.ring_bytes is not None:  # a ring is deleted by whole ledgers, so they are not larger than it
        roll_bytes = min(roll_bytes, max(ring.ring_bytes, RING_LEDGER_BYTES))
    if ring.ring_entries is not None:
        roll_entries = min(roll_entries, max(ring.ring_entries, RING_LEDGER_ENTRIES))
    return Limits(
        roll_bytes=roll_bytes,
        roll_entries=roll_entries,
        roll_age_s=_first(own.roll_age_s, above.roll_age_s, options.roll_age_s),
        ttl_s=above.ttl_s if own.ttl_s is None else own.ttl_s,
    )


def delivery_times(broker: Broker, topic: Topic) -> Callable[[], Times]:
    """Return a function that tells how delivery times apply to a topic now."""
    options = broker.options

    def times() -> Times:
        own, above = topic.state.policies, broker.machine.state.inherited(topic.state)
        return Times(
            broker.log_time_now(),
            bool(_first(own.delayed_delivery, above.delayed_delivery, options.delayed_delivery)),
            _first(own.delayed_tick_s, above.delayed_tick_s, options.delayed_tick_s),
        )

    return times


def require_delay(broker: Broker, topic: Topic, deliver_at_ms: int, now_ms: int) -> None:
    """Check the delivery time of a message against the longest delay of its topic.

    Raises:
        Misuse: the delay is longer.
    """
    most_s = broker.machine.state.effective(topic.state).delayed_most_s
    if most_s and deliver_at_ms > now_ms + most_s * 1000:
        raise Misuse(
            f"a message to {topic.name} with a delay of {(deliver_at_ms - now_ms) / 1000:.3f} s; the policy "
            f"delayed_most_s allows {most_s} s. Nothing was published"
        )


def trim_event(broker: Broker, topic: Topic) -> LedgerTrim:
    """Return the event that trims a topic; it carries the options that apply."""
    options = broker.decided
    retention_ns = -1 if options.retention_s < 0 else int(options.retention_s * 1e9)
    return LedgerTrim(topic.state.id, options.retention_bytes, retention_ns)


def _first(own: Value | None, above: Value | None, otherwise: Value) -> Value:
    if own is not None:
        return own
    return otherwise if above is None else above
