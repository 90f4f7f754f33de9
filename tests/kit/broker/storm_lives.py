"""Random events of limits, lives, properties and permissions, for the storm."""

from __future__ import annotations

import random
from typing import Any

from holdfast.broker.events import (
    BacklogCheck,
    BacklogEvict,
    Event,
    PermissionSet,
    PolicySet,
    PropertiesSet,
    SubscriptionAuthSet,
    SubscriptionExpire,
    SubscriptionRolesSet,
    TopicExpire,
    TopicQuiet,
    UptimeTick,
)
from holdfast.broker.limit_options import QUOTA_ACTIONS
from holdfast.broker.lives import Inactivity, is_inactive, is_unused
from holdfast.broker.state import BrokerState, Policies
from holdfast.broker.topic_policies import MODES

BRIEF_S = 1e-9
"""Policies with this age are due as soon as an event looks at them."""


def event(rng: random.Random, state: BrokerState) -> Event:
    """Return an event that mostly fits the state."""
    make: Any = rng.choice([quota, quota, quota, quota, life, life, life, life, properties, permission])
    chosen: Event = make(rng, state)
    return chosen


def pick(rng: random.Random, values: Any, otherwise: Any) -> Any:
    values = list(values)
    return rng.choice(values) if values and rng.random() < 0.95 else otherwise


def quota(rng: random.Random, state: BrokerState) -> Event:
    """Give a topic a quota, or look at it with the options of the sender."""
    topic = pick(rng, state.topics, 0)
    if rng.random() < 0.3:
        quotas = Policies(
            backlog_bytes=rng.choice([None, 50, 500]),
            backlog_bytes_action=rng.choice([None, *QUOTA_ACTIONS]),
            backlog_age_s=rng.choice([None, 1.0]),
            backlog_age_action=rng.choice([None, *QUOTA_ACTIONS]),
        )
        return PolicySet(topic, quotas, ["backlog_bytes", "backlog_bytes_action", "backlog_age_s"])
    action, acked_to = rng.choice(QUOTA_ACTIONS), rng.choice([-1, 0, 5])
    if topic in state.topics and rng.random() < 0.5:
        acked_to = state.topics[topic].acked_to
    if rng.random() < 0.5:
        return BacklogCheck(topic, rng.choice([0, 60]), rng.choice([0.0, 2.0]), action, acked_to, 0)
    return BacklogEvict(topic, rng.choice([0, 60]), rng.choice([0.0, 2.0]), action, rng.randrange(40))


def life(rng: random.Random, state: BrokerState) -> Event:
    """Let time pass for subscriptions and topics; few of them end, for others need them."""
    topic, draw = pick(rng, state.topics, 0), rng.random()
    ages = Policies(subscription_expiry_s=rng.choice([None, BRIEF_S]), inactive_mode=rng.choice(MODES))
    if draw < 0.2:
        return PolicySet(topic, ages, ["subscription_expiry_s", "inactive_mode"])
    if draw < 0.4:
        return UptimeTick()
    if draw < 0.55:
        unused = [each.id for each in state.subscriptions.values() if not each.consumers]
        return SubscriptionExpire(pick(rng, unused, 99), rng.choice([0.0, BRIEF_S, BRIEF_S]))
    brief = Inactivity(BRIEF_S, rng.random() < 0.5)
    otherwise = rng.choice([Inactivity(), brief, brief, brief])
    if draw < 0.7:
        unused = [each.id for each in state.topics.values() if is_unused(state, each, brief)]
        return TopicQuiet(pick(rng, unused, topic), rng.random() < 0.2, otherwise)
    quiet = [each.id for each in state.topics.values() if is_inactive(state, each, brief, state.log.time)]
    return TopicExpire(pick(rng, quiet, topic), brief if quiet else otherwise)


def properties(rng: random.Random, state: BrokerState) -> Event:
    """Change properties of one kind of place; two kinds at once are refused."""
    namespace = rng.choice(["", "", pick(rng, state.namespaces.policies, "x/y")])
    topics = [] if namespace else [pick(rng, state.topics, 99)]
    subscriptions = [] if topics and rng.random() < 0.6 else [pick(rng, state.subscriptions, 99)]
    if subscriptions and rng.random() < 0.9:
        namespace, topics = "", []
    values = {rng.choice("ab"): rng.choice("xyz")} if rng.random() < 0.7 else {}
    return PropertiesSet(namespace, topics, subscriptions, values, [rng.choice("ab")], rng.random() < 0.2)


def permission(rng: random.Random, state: BrokerState) -> Event:
    namespace, role = pick(rng, state.namespaces.policies, "x/y"), rng.choice("rs")
    place = rng.choice([namespace, f"{namespace}/{rng.choice('wx')}"])
    return rng.choice(
        [
            PermissionSet(place, role, rng.choice([[], ["produce"], ["consume", "produce"], ["fly"]])),
            SubscriptionRolesSet(
                namespace, rng.choice("ab"), rng.choice([[], ["r"], ["r", "s"]]), gone=rng.random() < 0.3
            ),
            SubscriptionAuthSet(namespace, rng.random() < 0.5),
        ]
    )
