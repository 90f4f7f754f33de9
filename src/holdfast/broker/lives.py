"""Decide which subscriptions have expired, and which topics are inactive.

Both decisions need the state and a log time alone. The owner of a topic asks here before it submits an event,
and the event asks again when it is applied (`holdfast.broker.events.expiry`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.broker.partitions import partitions_of

if TYPE_CHECKING:
    from holdfast.broker.state import BrokerState, SubscriptionState, TopicState

CAUGHT_UP = "delete_when_subscriptions_caught_up"
NO_SUBSCRIPTIONS = "delete_when_no_subscriptions"
SECOND = 1_000_000_000


class Inactivity(msgspec.Struct, array_like=True, frozen=True):
    """When an unused topic is deleted, where no policy of it or its namespace tells."""

    seconds: float = 0.0
    """0: it is not deleted."""
    caught_up: bool = False
    """Also with subscriptions, if none has a backlog."""
    retention_s: float = 0.0

    @staticmethod
    def of(options: Any) -> Inactivity:
        """Return those of a broker's options."""
        return Inactivity(options.inactive_topic_s, options.inactive_topic_caught_up, options.retention_s)


# -- subscriptions -------------------------------------------------------------------------------------


def expiry_ns(state: BrokerState, topic: TopicState, otherwise_s: float) -> int:
    """Return the age at which subscriptions of a topic expire; 0: never."""
    seconds = state.effective(topic).subscription_expiry_s
    return int((otherwise_s if seconds is None else seconds) * SECOND)


def has_expired(state: BrokerState, subscription: SubscriptionState, otherwise_s: float, time: int) -> bool:
    """Return whether a subscription had no consumer for as long as its policy says (**I301**)."""
    if subscription.consumers:
        return False
    age_ns = expiry_ns(state, state.topics[subscription.topic], otherwise_s)
    return age_ns > 0 and state.uptime.now(time) - subscription.used >= age_ns


# -- topics --------------------------------------------------------------------------------------------


def inactive_ns(state: BrokerState, topic: TopicState, otherwise: Inactivity) -> int:
    """Return the time after which an unused topic is deleted; 0: it is not.

    A topic with retention is kept for that time at least; without limit, it is never deleted.
    """
    policies = state.effective(topic)
    wanted = otherwise.seconds > 0 if policies.inactive_delete is None else policies.inactive_delete
    seconds = otherwise.seconds if policies.inactive_s is None else policies.inactive_s
    kept = otherwise.retention_s if policies.retention_s is None else policies.retention_s
    if not wanted or kept < 0:
        return 0
    return int(max(seconds, kept) * SECOND)


def is_unused(state: BrokerState, topic: TopicState, otherwise: Inactivity) -> bool:
    """Return whether nothing uses a topic now.

    Users are producers, consumers, stages, exchanges that route to it, and by its mode subscriptions.
    """
    if topic.producers or topic.waiting or topic.id in state.exchanges:
        return False
    subscriptions, mode = topic.subscriptions.values(), state.effective(topic).inactive_mode
    if mode == CAUGHT_UP or (mode is None and otherwise.caught_up):
        end = topic.ledgers.end
        if any(each.consumers or each.acks.count(end) for each in subscriptions):
            return False
    elif subscriptions:
        return False
    if any(topic.id in stage.topics for stage in state.stages.values()):
        return False
    return not any(topic.id in each.bindings for each in state.exchanges.all.values())


def whole(state: BrokerState, topic: TopicState) -> list[TopicState]:
    """Return the topic, or of a partition all partitions of its topic."""
    parent = state.partitioned.parent(topic.name)
    return [topic] if parent is None else partitions_of(state, parent[0])


def is_inactive(state: BrokerState, topic: TopicState, otherwise: Inactivity, time: int) -> bool:
    """Return whether a topic, with all its partitions, was unused for long enough (**I302**)."""
    for each in whole(state, topic):
        state.refresh(each)
        age_ns, quiet = inactive_ns(state, each, otherwise), each.quiet
        if not age_ns or quiet is None or quiet.end != each.ledgers.end:
            return False
        if state.uptime.now(time) - quiet.since < age_ns or not is_unused(state, each, otherwise):
            return False
    return True
