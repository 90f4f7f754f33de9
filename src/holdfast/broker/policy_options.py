"""Options of a broker that stand in for policies of topics and namespaces."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

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

TYPES = ("exclusive", "failover", "shared", "key_shared")
"""The types of subscriptions."""


def types_of(text: str) -> tuple[str, ...]:
    """Return the types of subscriptions that a text names, in the order of `TYPES`.

    Example:
        >>> types_of("shared, exclusive"), types_of("all")
        (('exclusive', 'shared'), ())
    """
    named = {each.strip() for each in text.split(",")}
    return tuple(each for each in TYPES if each in named) if named <= {*TYPES} else ()


@dataclass(frozen=True)
class PolicyOptions:
    """Values that apply to topics without a policy.

    Example:
        >>> PolicyOptions(ttl_s=60.0).ttl_s
        60.0
    """

    ttl_s: float = 0.0
    """Age at which messages count as acknowledged; 0: never."""
    delayed_most_s: float = 0.0
    """Longest delay of a message; one with a longer delay is refused. 0: no limit."""
    schema_strategy: Strategy = "FULL"
    """Which schemas may follow those of a topic: `FULL`, `BACKWARD`, `FORWARD`, each also with
    `_TRANSITIVE`, `ALWAYS_COMPATIBLE` or `ALWAYS_INCOMPATIBLE`."""
    schema_auto_update: bool = True
    """Producers may add schemas; else only administrators may."""
    schema_enforced: bool = False
    """Producers without a schema are refused if the topic has one."""
    subscription_types: str = ",".join(TYPES)
    """Types of subscriptions that consumers may use, with commas between them."""


_PLAIN = tuple(each.name for each in fields(PolicyOptions) if each.name != "subscription_types")


def standing_in(options: Any) -> dict[str, Any]:
    """Return the values of options by the policies for which they stand in.

    Example:
        >>> from holdfast.broker import BrokerOptions
        >>> found = standing_in(BrokerOptions(create_subscriptions=False, subscription_types="shared"))
        >>> found["auto_subscribe"], found["subscription_types"]
        (False, ('shared',))
    """
    caught_up = options.inactive_topic_caught_up
    return {
        **{name: getattr(options, name) for name in (*_PLAIN, *_SAME)},
        "subscription_types": types_of(options.subscription_types),
        "inactive_delete": options.inactive_topic_s > 0,
        "inactive_mode": f"delete_when_{'subscriptions_caught_up' if caught_up else 'no_subscriptions'}",
        "inactive_s": options.inactive_topic_s,
        "auto_subscribe": options.create_subscriptions,
        "deduplication": False,  # a new topic gets the option as its own policy
    }


_SAME = (
    *("retention_bytes", "retention_s", "roll_bytes", "roll_entries", "roll_age_s"),
    *("delayed_delivery", "delayed_tick_s", "subscription_expiry_s", "compaction_threshold"),
)
"""Options that have the name of the policy which they stand in for."""
