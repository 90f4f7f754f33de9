"""Policies that apply to a topic: its own, else its namespace's, else the broker's options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from holdfast.broker.dispatch.schedule import Times
from holdfast.broker.events import LedgerTrim
from holdfast.broker.topic_policies import SILENT, Policies
from holdfast.errors import Misuse
from holdfast.names import namespace_of

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.topic import Topic

Level = Literal["topic", "namespace", "broker"]
"""The place of the value of a policy that applies."""

RING_LEDGER_ENTRIES = 1000
RING_LEDGER_BYTES = 1 << 20
"""Ledgers of small rings may have this size: many small files cost more than the entries."""


@dataclass(frozen=True)
class Limits:
    """When a topic's open ledger is sealed, and when its messages expire."""

    roll_bytes: int
    roll_entries: int
    roll_age_s: float
    ttl_s: float
    """0.0: messages do not expire."""


def limits(broker: Broker, topic: Topic) -> Limits:
    """Return the current limits of a topic."""
    found = broker.limiting.of(topic)
    assert found.roll_bytes is not None
    assert found.roll_entries is not None
    roll_bytes, roll_entries = found.roll_bytes, found.roll_entries
    if found.ring_bytes is not None:  # a ring is deleted by whole ledgers, so they are not larger than it
        roll_bytes = min(roll_bytes, max(found.ring_bytes, RING_LEDGER_BYTES))
    if found.ring_entries is not None:
        roll_entries = min(roll_entries, max(found.ring_entries, RING_LEDGER_ENTRIES))
    return Limits(roll_bytes, roll_entries, found.roll_age_s or 0.0, found.ttl_s or 0.0)


class PolicyValue(NamedTuple):
    """A policy of a topic or a namespace."""

    own: Any
    """The value that is set there; None: none is."""
    applied: Any
    """The value that applies, to topics without their own; None: none does."""
    level: Level | None
    """The place of the value that applies."""


def of_topic(broker: Broker, topic: Topic) -> dict[str, PolicyValue]:
    """Return all policies of a topic."""
    above = broker.machine.state.inherited(topic.state)
    return _values({"topic": topic.state.policies, "namespace": above, "broker": broker.limiting.least})


def of_namespace(broker: Broker, name: str) -> dict[str, PolicyValue]:
    """Return all policies of a namespace.

    Raises:
        NotFound: the namespace does not exist.
    """
    own = broker.machine.state.namespaces.require(name)
    return _values({"namespace": own, "broker": broker.limiting.least})


def _values(levels: dict[Level, Policies]) -> dict[str, PolicyValue]:
    """Return the first value of each policy, in the order of the levels."""
    tables = [(level, policies.fields()) for level, policies in levels.items()]
    found: dict[str, PolicyValue] = {}
    for name, own in tables[0][1].items():
        given = ((level, values[name]) for level, values in tables if values[name] is not None)
        level, applied = next(given, (None, None))
        found[name] = PolicyValue(own, applied, level)
    return found


def policies_of_new(broker: Broker, full: str, policies: Policies) -> Policies:
    """Return the policies of a new topic: deduplication may be the default."""
    above = broker.machine.state.namespaces.policies.get(namespace_of(full), SILENT)
    default = broker.decided.deduplication and policies.deduplication is above.deduplication is None
    return msgspec.structs.replace(policies, deduplication=True) if default else policies


def delivery_times(broker: Broker, topic: Topic) -> Callable[[], Times]:
    """Return a function that tells how delivery times apply to a topic now."""

    def times() -> Times:
        found = broker.limiting.of(topic)
        return Times(broker.log_time_now(), bool(found.delayed_delivery), found.delayed_tick_s or 0.0)

    return times


def require_delay(broker: Broker, topic: Topic, deliver_at_ms: int, now_ms: int) -> None:
    """Check the delivery time of a message against the longest delay of its topic.

    Raises:
        Misuse: the delay is longer.
    """
    most_s = broker.limiting.of(topic).delayed_most_s
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
