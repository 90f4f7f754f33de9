"""The settings of topics and namespaces, as the state keeps them."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from holdfast.broker.limit_options import QUOTA_ACTIONS, QuotaAction
from holdfast.broker.options import range_missed
from holdfast.broker.policy_options import STRATEGIES as STRATEGIES  # also for those that import it from here
from holdfast.broker.policy_options import TYPES as TYPES
from holdfast.broker.policy_options import Strategy as Strategy
from holdfast.errors import Misuse

DeleteMode = Literal["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"]
"""Which topics count as unused, by Pulsar's names."""
MODES: tuple[DeleteMode, ...] = get_args(DeleteMode)


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
    """Age at which a message counts as acknowledged; 0: never."""
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
    producers_max: int | None = None
    """Producers of a topic, attached or waiting. 0 in this and the next ones: no limit."""
    consumers_max: int | None = None
    """Consumers of a topic."""
    subscription_consumers_max: int | None = None
    """Consumers of a subscription."""
    subscriptions_max: int | None = None
    """Durable subscriptions of a topic."""
    topics_max: int | None = None
    """Topics of a namespace; without effect as a topic's policy."""
    message_bytes_max: int | None = None
    """Size of the largest entry with its metadata; a larger one is refused."""
    unacked_max: int | None = None
    """Unacknowledged messages of a consumer at which it gets no further ones."""
    subscription_unacked_max: int | None = None
    """Those of all consumers of a subscription together."""
    backlog_bytes: int | None = None
    """Backlog quota: bytes behind the slowest subscription."""
    backlog_bytes_action: QuotaAction | None = None
    backlog_age_s: float | None = None
    """Backlog quota: age of the oldest message that a subscription has not acknowledged."""
    backlog_age_action: QuotaAction | None = None
    publish_rate_messages: int | None = None
    """Messages that the producers at one member may publish in a second."""
    publish_rate_bytes: int | None = None
    dispatch_rate_messages: int | None = None
    """Messages of a topic that one member delivers in `dispatch_rate_period_s`."""
    dispatch_rate_bytes: int | None = None
    dispatch_rate_period_s: float | None = None
    subscription_rate_messages: int | None = None
    """Messages of one subscription that one member delivers in `subscription_rate_period_s`."""
    subscription_rate_bytes: int | None = None
    subscription_rate_period_s: float | None = None
    subscribe_rate: int | None = None
    """How often one consumer may subscribe in `subscribe_rate_period_s`."""
    subscribe_rate_period_s: float | None = None
    subscription_expiry_s: float | None = None
    """Time without a consumer after which a subscription is deleted; 0: never."""
    inactive_delete: bool | None = None
    """Delete a topic that is unused."""
    inactive_mode: DeleteMode | None = None
    """Whether a topic with subscriptions counts as unused, if none has a backlog."""
    inactive_s: float | None = None
    """Time after which an unused topic is deleted."""
    auto_subscribe: bool | None = None
    """Consumers create missing subscriptions."""
    subscription_types: tuple[str, ...] | None = None
    """Types that consumers may use: those of `TYPES`, in this order."""
    compaction_threshold: int | None = None
    """Bytes behind the compacted view at which the topic is compacted; 0: only on request."""

    def fields(self) -> dict[str, Any]:
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
        _require_mode(self.inactive_mode)
        _require_types(self.subscription_types)
        for name, value in self.fields().items():
            if name.endswith("_action") and value is not None and value not in QUOTA_ACTIONS:
                raise Misuse(f"the policy {name} cannot be {value!r}; use {', '.join(QUOTA_ACTIONS)}")
            zero = not name.startswith(("roll_", "ring_", "inactive_s")) and not name.endswith("_period_s")
            if (
                value is not None
                and not isinstance(value, str | tuple)
                and (possible := range_missed(name, value, zero))
            ):
                raise Misuse(f"the policy {name} cannot be {value}; use {possible}")


_NAMES = Policies.__struct_fields__
LIMIT_POLICIES = _NAMES[_NAMES.index("producers_max") : _NAMES.index("subscribe_rate_period_s") + 1]
"""Names of the limits: see `holdfast.broker.limiting`."""


def _require_mode(mode: str | None) -> None:
    if mode is not None and mode not in MODES:
        raise Misuse(f"the policy inactive_mode cannot be {mode!r}; use {' or '.join(MODES)}")


def _require_types(types: tuple[str, ...] | None) -> None:
    if types is not None and (not types or types != tuple(each for each in TYPES if each in types)):
        raise Misuse(
            f"the policy subscription_types cannot be {list(types)}; name one or more of {', '.join(TYPES)}, "
            "each once, in this order"
        )


SILENT = Policies()
"""Policies without any value."""
