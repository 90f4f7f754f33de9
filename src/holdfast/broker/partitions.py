"""Partitioned topics: their number of partitions, and how missing topics are created.

A partitioned topic is a name and a number. Each partition is a topic of its own, `orders-partition-3`, with
its own ledgers, subscriptions and producers. The partitions of a persistent topic are created, added and
deleted by one event each time, so no crash leaves a part of them. A non-persistent partitioned topic is the
number alone.

Invariants, asserted by `BrokerState.check()`:

- I280: a persistent partitioned topic has all partitions from 0 on. Exchanges do not count as partitions.
- I281: the name of a partitioned topic is not that of a topic, of an exchange or of an unreplicated topic.
- I282: all partitions have the schemas of partition 0: one list.
- I283: a namespace with a policy for missing topics exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from holdfast.broker.part import Part
from holdfast.errors import Exists, Misuse
from holdfast.formatting import plural
from holdfast.names import is_persistent, partition_name, partition_of

if TYPE_CHECKING:
    from holdfast.broker.state import BrokerState, TopicState

PARTITIONS_MAX = 10_000
"""Partitions of a topic. One event creates all of them."""


class AutoCreation(msgspec.Struct, array_like=True, frozen=True):
    """How missing topics are created when a client names them.

    Example:
        >>> AutoCreation(partitions=4).is_partitioned
        True
    """

    allow: bool = True
    partitions: int = 0
    """Number of partitions of a new topic; 0: it is not partitioned."""

    @property
    def is_partitioned(self) -> bool:
        return self.partitions > 0

    def require_sound(self) -> None:
        """Raise Misuse for a number of partitions that is not possible."""
        if not 0 <= self.partitions <= PARTITIONS_MAX:
            raise Misuse(
                f"missing topics cannot get {self.partitions} partitions; use 0 (not partitioned) "
                f"to {PARTITIONS_MAX}"
            )


class PartitionedTopic(msgspec.Struct, array_like=True, frozen=True):
    """A partitioned topic."""

    count: int
    """Number of partitions."""
    created: int
    """In log time."""


class Partitioned(Part):
    """All partitioned topics. A broker without any has no byte of them in its snapshots."""

    def __init__(self) -> None:
        self.topics: dict[str, PartitionedTopic] = {}
        """By full name."""
        self.passing = 0
        """Number of partitions of all non-persistent topics."""
        self.auto_creation: dict[str, AutoCreation] = {}
        """By namespace: how missing topics are created. Others follow the broker's options."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.auto_creation)

    def put(self, full: str, topic: PartitionedTopic) -> None:
        """Set the number of partitions of a topic."""
        self.passing += 0 if is_persistent(full) else topic.count - self.count(full)
        self.topics[full] = topic

    def remove(self, full: str) -> None:
        """Forget a partitioned topic."""
        self.passing -= 0 if is_persistent(full) else self.count(full)
        del self.topics[full]

    def count(self, full: str) -> int:
        """Return the number of partitions of a topic; 0: it is not partitioned."""
        found = self.topics.get(full)
        return 0 if found is None else found.count

    def parent(self, full: str) -> tuple[str, int] | None:
        """Return the partitioned topic of a partition, and its index; None: it has none."""
        found = partition_of(full)
        return found if found is not None and found[1] < self.count(found[0]) else None

    def require_free(self, full: str) -> None:
        """Refuse the name of a new topic or exchange.

        Raises:
            Exists: a partitioned topic has the name.
            Misuse: the name is of a partition that a partitioned topic does not have.
        """
        if (count := self.count(full)) > 0:
            raise Exists(
                f"the topic {full} exists already, with {plural(count, 'partition')}; use another name"
            )
        found = partition_of(full)
        if found is not None and found[0] in self.topics:
            raise Misuse(
                f"{found[0]} has {plural(self.count(found[0]), 'partition')}, and none has the index "
                f"{found[1]}; add partitions to it"
            )

    def names_of(self, full: str) -> list[str]:
        """Return the names of a topic's partitions; empty: it is not partitioned."""
        return [partition_name(full, index) for index in range(self.count(full))]


def partitions_of(state: BrokerState, full: str) -> list[TopicState]:
    """Return the partitions of a persistent topic, in order; empty: it is not partitioned."""
    names = state.partitioned.names_of(full) if is_persistent(full) else []
    return [state.topics[state.names[name]] for name in names]


def schema_holder(state: BrokerState, topic: TopicState) -> TopicState:
    """Return the topic that keeps a topic's schemas: of a partition, partition 0.

    All partitions share the list itself (I282).
    """
    parent = state.partitioned.parent(topic.name)
    return topic if parent is None else state.topics[state.names[partition_name(parent[0], 0)]]


def check_partitions(state: BrokerState) -> None:
    """Assert I280 to I283."""
    own = state.partitioned
    counted = sum(each.count for full, each in own.topics.items() if not is_persistent(full))
    assert own.passing == counted, f"I280: {counted} partitions are not persistent, not {own.passing}"
    for full, found in own.topics.items():
        assert 0 < found.count <= PARTITIONS_MAX, f"I280: {full} has {found.count} partitions"
        assert full not in state.names, f"I281: {full} is partitioned, and a topic"
        assert full not in state.unreplicated.places, f"I281: {full} is partitioned, and unreplicated"
        if not is_persistent(full):
            continue
        first = state.names.get(partition_name(full, 0))
        for name in state.partitioned.names_of(full):
            id = state.names.get(name)  # noqa: A001
            assert id is not None, f"I280: {full} has {found.count} partitions, and {name} does not exist"
            assert id not in state.exchanges, f"I280: {name} is an exchange"
            assert first is not None
            shared = state.topics[id].schemas is state.topics[first].schemas
            assert shared, f"I282: {name} has schemas of its own"
    for namespace in state.partitioned.auto_creation:
        assert namespace in state.namespaces.policies, f"I283: there is no namespace {namespace}"
