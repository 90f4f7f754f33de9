"""Options of a broker that limit the use of topics without a policy."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

QuotaAction = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]
"""Effect on a topic whose backlog exceeds its quota, by Pulsar's names."""
QUOTA_ACTIONS: tuple[QuotaAction, ...] = get_args(QuotaAction)

EVICTION: QuotaAction = "consumer_backlog_eviction"


@dataclass(frozen=True)
class LimitOptions:
    """The limits of topics without a policy; 0: no limit.

    Example:
        >>> LimitOptions(producers_max=10).producers_max
        10
    """

    producers_max: int = 0
    """Producers of a topic, attached or waiting; 0: no limit."""
    consumers_max: int = 0
    """Consumers of a topic; 0: no limit."""
    subscription_consumers_max: int = 0
    """Consumers of a subscription; 0: no limit."""
    topics_max: int = 0
    """Topics of a namespace; 0: no limit."""
    subscription_unacked_max: int = 0
    """Unacknowledged messages of a subscription at which it gets no further ones; 0: no limit."""
    backlog_bytes: int = 0
    """Backlog quota of a topic: bytes behind its slowest subscription; 0: no quota."""
    backlog_age_s: float = 0.0
    """Backlog quota of a topic: age of the oldest message that a subscription has not acknowledged; 0: no
    quota."""
    backlog_action: QuotaAction = "producer_request_hold"
    """Effect of an exceeded quota: `producer_request_hold`, `producer_exception` or
    `consumer_backlog_eviction`."""
    publish_rate_messages: int = 0
    """Messages that the producers of a topic at one member may publish in a second; 0: no limit."""
    publish_rate_bytes: int = 0
    """Bytes, likewise."""
    dispatch_rate_messages: int = 0
    """Messages of a topic that one member delivers in a second; 0: no limit."""
    dispatch_rate_bytes: int = 0
    """Bytes, likewise."""
    subscription_rate_messages: int = 0
    """Messages of one subscription that one member delivers in a second; 0: no limit."""
    subscription_rate_bytes: int = 0
    """Bytes, likewise."""
    subscribe_rate: int = 0
    """How often one consumer may subscribe to a topic in a period; 0: no limit."""
    subscribe_rate_period_s: float = 30.0
    """The period of `subscribe_rate`."""


LIMIT_OPTIONS = tuple(each.name for each in fields(LimitOptions) if each.name != "backlog_action")
"""Options that have the name of the policy which they stand in for."""
