"""Decide from the state whether a topic may have one more client, subscription or partition.

An event asks here when it is applied. So two members cannot both let the last one in (**I320**). The limit is
the policy of the topic, else of its namespace, else the option that the event carries; 0: unlimited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.broker.topic_policies import SILENT
from holdfast.errors import Busy, LimitReached, QuotaExceeded, QuotaHold
from holdfast.formatting import plural

if TYPE_CHECKING:
    from holdfast.broker.state import BrokerState, SubscriptionState, TopicState


def require_producers(state: BrokerState, topic: TopicState, there: int, option: int) -> None:
    """Raise Busy if a topic with `there` other producers cannot have another one."""
    most = _limit(state.effective(topic).producers_max, option)
    if most and there >= most:
        raise Busy(
            f"{topic.name} has {plural(there, 'producer')}, the most that producers_max allows; close one, "
            "or raise the limit (`holdfast topic limits`)"
        )


def require_consumers(
    state: BrokerState, subscription: SubscriptionState, topic_option: int, subscription_option: int
) -> None:
    """Raise Busy if a subscription, or its topic, cannot have another consumer."""
    topic = state.topics[subscription.topic]
    policies = state.effective(topic)
    most = _limit(policies.subscription_consumers_max, subscription_option)
    if most and len(subscription.consumers) >= most:
        there = plural(len(subscription.consumers), "consumer")
        raise Busy(
            f"the subscription {subscription.name!r} of {topic.name} has {there}, the most that "
            "subscription_consumers_max allows; close one, or raise the limit (`holdfast topic limits`)"
        )
    most = _limit(policies.consumers_max, topic_option)
    if most and (count := sum(len(each.consumers) for each in topic.subscriptions.values())) >= most:
        raise Busy(
            f"{topic.name} has {plural(count, 'consumer')}, the most that consumers_max allows; close one, "
            "or raise the limit (`holdfast topic limits`)"
        )


def require_subscriptions(state: BrokerState, topic: TopicState) -> None:
    """Raise LimitReached if a topic cannot have another subscription."""
    most = state.effective(topic).subscriptions_max
    if most and len(topic.subscriptions) >= most:
        there = plural(len(topic.subscriptions), "subscription")
        raise LimitReached(
            f"{topic.name} has {there}, the most that subscriptions_max allows; delete one, or raise the "
            "limit (`holdfast topic limits`)"
        )


def require_topics(state: BrokerState, namespace: str, more: int, option: int) -> None:
    """Raise LimitReached if a namespace cannot have so many more topics."""
    most = _limit(state.namespaces.policies.get(namespace, SILENT).topics_max, option)
    if most and (count := state.count_topics(namespace)) + more > most:
        raise LimitReached(
            f"the namespace {namespace} has {plural(count, 'topic')}, and {more} more exceed the limit of "
            f"{most} (topics_max); delete some, or raise the limit (`holdfast namespace limits`)"
        )


def require_quota(topic: TopicState) -> None:
    """Raise QuotaExceeded or QuotaHold if the topic's backlog exceeds a quota that stops producers."""
    exceeded = topic.exceeded
    if not exceeded:
        return
    which = " and ".join(exceeded)
    text = f"the backlog of {topic.name} exceeds its quota by {which}; consume it, or raise the quota"
    if "producer_exception" in exceeded.values():
        raise QuotaExceeded(text)
    raise QuotaHold(f"{text}. Producers can open when it is below")


def _limit(policy: int | None, option: int) -> int:
    return option if policy is None else policy
