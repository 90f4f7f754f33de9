"""The settings of topics and namespaces, as the state keeps them."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from holdfast.broker.options import range_missed
from holdfast.errors import Misuse

Strategy = Literal[
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
]
"""Which schemas may follow those of a topic, by Pulsar's names."""
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


class Policies(msgspec.Struct, array_like=True, frozen=True):
    """The settings of a topic or a namespace.

    None: the value from above applies, of the topic's namespace or of the broker's options. Values below zero
    are refused, except −1.

    Example:
        >>> Policies(ttl_s=60.0).fields()["ttl_s"]
        60.0
    """

    retention_bytes: int | None = None
    """Bytes kept of entries that all subscriptions have acknowledged; −1: no limit."""
    retention_s: float | None = None
    """Time for which acknowledged entries are kept; −1: no limit. An entry within either limit stays."""
    ttl_s: float | None = None
    """Age at which a message counts as acknowledged."""
    roll_bytes: int | None = None
    roll_entries: int | None = None
    roll_age_s: float | None = None
    deduplication: bool | None = None
    retention_both: bool | None = None
    """Only entries within both limits stay, as in Pulsar; a limit of −1 is then not applied."""
    ring_entries: int | None = None
    """Entries of a ring topic: older ones are dropped for all subscriptions."""
    ring_bytes: int | None = None
    """Bytes of a ring topic, likewise."""
    last_value: bool | None = None
    """Of each key only the newest entry stays in the backlogs."""
    schema_strategy: Strategy | None = None
    """Which schemas may follow those of a topic."""
    schema_auto_update: bool | None = None
    """Producers may add schemas."""
    schema_enforced: bool | None = None
    """Producers without a schema are refused if the topic has one."""
    delayed_delivery: bool | None = None
    """Whether Shared and Key_Shared subscriptions hold messages back until their delivery time."""
    delayed_tick_s: float | None = None
    """Least time between two looks for messages that are due."""
    delayed_most_s: float | None = None
    """Longest delay of a message; one with a longer delay is refused. 0: no limit."""

    def fields(self) -> dict[str, int | float | bool | str | None]:
        """Return the values by name."""
        return msgspec.structs.asdict(self)

    def over(self, inherited: Policies) -> Policies:
        """Return these policies, with inherited values in place of None."""
        if inherited is SILENT:
            return self
        own = ((name, value) for name, value in self.fields().items() if value is not None)
        return msgspec.structs.replace(inherited, **dict(own))

    def require_sound(self) -> None:
        """Raise Misuse for a value that is out of its range."""
        strategy = self.schema_strategy
        if strategy is not None and strategy not in STRATEGIES:
            raise Misuse(f"the policy schema_strategy cannot be {strategy!r}; use {', '.join(STRATEGIES)}")
        for name, value in self.fields().items():
            zero = not name.startswith(("roll_", "ring_"))
            if (
                value is not None
                and not isinstance(value, str)
                and (possible := range_missed(name, value, zero))
            ):
                raise Misuse(f"the policy {name} cannot be {value}; use {possible}")


SILENT = Policies()
"""Policies without any value."""
