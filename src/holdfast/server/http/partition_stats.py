"""Sum up the stats of partitions, as Pulsar's tools expect them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from holdfast.server.http.answers import (
    ConsumerAnswer,
    PartitionsStatsAnswer,
    PublisherAnswer,
    SubscriptionAnswer,
    TopicAnswer,
)

_NEWEST = (
    *("topic_creation_time_stamp", "last_publish_time_stamp"),
    *("last_compaction_succeed_timestamp", "last_compaction_failed_timestamp"),
    "last_compaction_duration_time_in_mills",
    *("backlog_quota_limit_size", "backlog_quota_limit_time", "oldest_backlog_message_age_seconds"),
)
"""Numbers of which the largest one counts."""
_OLDEST = ("earliest_msg_publish_time_in_backlog",)
_KEPT = ("priority_level", "producer_id")
"""Numbers of which the first one counts."""


Whole = TypeVar("Whole", bound=TopicAnswer)


def summed(partitions: Iterable[TopicAnswer]) -> PartitionsStatsAnswer:
    """Return the sums of partitions. Subscriptions, consumers and producers are summed by name."""
    return summed_into(PartitionsStatsAnswer(), partitions)


def summed_into(whole: Whole, partitions: Iterable[TopicAnswer]) -> Whole:
    """Add partitions to an answer, and return it."""
    publishers: dict[str, PublisherAnswer] = {}
    for each in partitions:
        _add(whole, each)
        _add(whole.compaction, each.compaction)
        for publisher in each.publishers:
            _add_named(publishers, publisher.producer_name, publisher, PublisherAnswer())
        for name, subscription in each.subscriptions.items():
            _add_subscription(whole.subscriptions, name, subscription)
        whole.deduplication_status = each.deduplication_status
        whole.backlog_exceeded |= each.backlog_exceeded
        whole.alternate = whole.alternate or each.alternate
        whole.backlog_exceeded_by |= each.backlog_exceeded_by
    whole.publishers = list(publishers.values())
    whole.average_msg_size = whole.bytes_in_counter / whole.msg_in_counter if whole.msg_in_counter else 0.0
    return whole


def _add_subscription(known: dict[str, SubscriptionAnswer], name: str, more: SubscriptionAnswer) -> None:
    consumers: dict[str, ConsumerAnswer] = {}
    for each in [*(known[name].consumers if name in known else ()), *more.consumers]:
        _add_named(consumers, each.consumer_name, each, ConsumerAnswer())
    idle = name in known and not known[name].msg_backlog
    _add_named(known, name, more, SubscriptionAnswer())
    if idle and more.msg_backlog:  # the words are those of a partition that has something to deliver
        known[name].diagnosis = more.diagnosis
    found = known[name]
    found.consumers = list(consumers.values())
    found.type = found.type or more.type
    found.active_consumer_name = found.active_consumer_name or more.active_consumer_name
    found.is_durable = found.durable = more.durable


def _add_named(known: dict[str, Any], name: str, more: Any, empty: Any) -> None:
    """Add numbers under a name; other fields are those of the first one."""
    if name not in known:
        known[name] = msgspec.structs.replace(more)
    else:
        _add(known[name], more)


def _add(to: Any, more: Any) -> None:
    """Add the numbers of a struct to those of another one."""
    for name in more.__struct_fields__:
        here, value = getattr(to, name), getattr(more, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or name in _KEPT:
            continue
        if name in _NEWEST:
            setattr(to, name, max(here, value))
        elif name in _OLDEST:
            setattr(to, name, min((each for each in (here, value) if each), default=0))
        else:
            setattr(to, name, here + value)
