"""Random events of partitioned topics, for the storm."""

from __future__ import annotations

import random
from typing import Any

from holdfast.broker.events import (
    AutoCreationSet,
    Event,
    ExchangeCreate,
    PartitionsDelete,
    PartitionsSet,
    PartitionsSubscribe,
    PartitionsUnsubscribe,
    TopicCreate,
    TopicDelete,
)
from holdfast.broker.partitions import AutoCreation
from holdfast.broker.state import BrokerState, Policies
from holdfast.names import topic_name


def event(rng: random.Random, state: BrokerState) -> Event:
    """Return an event that mostly fits the state."""

    def pick(values: Any, otherwise: Any) -> Any:
        values = list(values)
        return rng.choice(values) if values and rng.random() < 0.95 else otherwise

    known = state.partitioned.topics
    fresh = rng.choice([*map(topic_name, ("w", "p1", "p2", "t/n/p1")), "non-persistent://t/n/v"])
    name, count = pick(known, fresh), rng.randrange(5)
    if not known or rng.random() < 0.2:
        policies = Policies(deduplication=rng.choice([None, True]))
        return PartitionsSet(fresh, count, rng.randbytes(16), policies=policies, managed=rng.random() < 0.3)
    if rng.random() < 0.1:
        clash = pick([*known, *(f"{each}-partition-{rng.randrange(4)}" for each in known)], fresh)
        return rng.choice(
            [
                TopicCreate(clash, rng.randbytes(16)),
                ExchangeCreate(clash, rng.randbytes(16), "fanout"),
                TopicDelete(state.names.get(clash, 0), force=True),
            ]
        )
    if rng.random() < 0.06:
        return PartitionsDelete(name, rng.random() < 0.5)
    subscription = rng.choice("abc")
    return rng.choice(
        [
            PartitionsSet(name, count + rng.randrange(3), rng.randbytes(16), grow=True),
            PartitionsSubscribe(name, subscription, rng.random() < 0.5, {"a": "b"}),
            PartitionsSubscribe(name, subscription, rng.random() < 0.5),
            PartitionsUnsubscribe(name, subscription, rng.random() < 0.5),
            AutoCreationSet(
                pick(state.namespaces.policies, "x/y"),
                rng.choice([None, AutoCreation(), AutoCreation(False, 3), AutoCreation(True, -1)]),
            ),
        ]
    )
