"""A model of partitioned topics: numbers of partitions, and the backlog of each subscription.

The machine publishes to random partitions, so each message has one partition. Every subscription of the
whole must get every message that was published since it exists, also those of partitions that came later.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from holdfast.broker.events import (
    Ack,
    Event,
    PartitionsDelete,
    PartitionsSet,
    PartitionsSubscribe,
    PartitionsUnsubscribe,
    TopicCreate,
    TopicDelete,
)
from holdfast.errors import HoldfastError
from holdfast.names import partition_name, topic_name
from holdfast.server.pulsar.patterns import TopicPattern
from tests.kit.broker.events import Publish, Rig

NAMES = [topic_name(each) for each in ("orders", "bills")]
TOKEN = bytes(range(16))

wholes = st.sampled_from(NAMES)
subscriptions = st.sampled_from(["a", "b"])


class PartitionMachine(RuleBasedStateMachine):
    """A broker's machine beside the model."""

    @initialize()
    def begin(self) -> None:
        self.rig = Rig()
        self.counts: dict[str, int] = {}
        self.plain: set[str] = set()
        self.ends: dict[str, int] = {}
        """Messages that were published, by partition."""
        self.open: dict[tuple[str, str], set[int]] = {}
        """By partition and subscription: messages to be delivered."""

    def partitions(self, whole: str, count: int | None = None) -> list[str]:
        return [
            partition_name(whole, n) for n in range(self.counts.get(whole, 0) if count is None else count)
        ]

    def tried(self, event: Event, possible: bool) -> bool:
        """Apply an event, which must be accepted exactly if the model finds it possible."""
        (outcome,) = self.rig.apply(event).outcomes
        refused = isinstance(outcome, HoldfastError)
        assert refused != possible, f"{event}: {outcome}"
        return possible

    @rule(whole=wholes, count=st.integers(0, 4))
    def create(self, whole: str, count: int) -> None:
        free = whole not in self.counts and whole not in self.plain
        free = free and not self.plain.intersection(self.partitions(whole, count))
        if self.tried(PartitionsSet(whole, count, TOKEN), free and count > 0):
            self.counts[whole] = count
            self.ends.update(dict.fromkeys(self.partitions(whole), 0))

    @rule(whole=wholes, count=st.integers(0, 6))
    def grow(self, whole: str, count: int) -> None:
        before = self.counts.get(whole, 0)
        new = self.partitions(whole, count)[before:]
        possible = before > 0 and count >= before and not self.plain.intersection(new)
        if self.tried(PartitionsSet(whole, count, TOKEN, grow=True), possible):
            self.counts[whole] = count
            kept = {name for at, name in self.open if at == partition_name(whole, 0)}
            for each in new:
                self.ends[each] = 0
                self.open.update({(each, name): set() for name in kept})

    @rule(whole=wholes, force=st.booleans())
    def delete(self, whole: str, force: bool) -> None:
        names = self.partitions(whole)
        used = any(at in names for at, _ in self.open) or any(
            self.rig.state.topics[self.rig.state.names[each]].producers for each in names
        )
        if self.tried(PartitionsDelete(whole, force), bool(names) and (force or not used)):
            del self.counts[whole]
            for each in names:
                del self.ends[each]
            self.open = {key: left for key, left in self.open.items() if key[0] not in names}

    @rule(whole=wholes, index=st.integers(0, 5))
    def create_plain(self, whole: str, index: int) -> None:
        """A topic with the name of a partition, or of the whole."""
        name = whole if index == 5 else partition_name(whole, index)
        possible = whole not in self.counts and name not in self.plain
        if self.tried(TopicCreate(name, TOKEN), possible):
            self.plain.add(name)

    @rule(whole=wholes, index=st.integers(0, 5))
    def delete_plain(self, whole: str, index: int) -> None:
        name = whole if index == 5 else partition_name(whole, index)
        known = self.rig.state.names.get(name, 0)
        if self.tried(TopicDelete(known, force=True), name in self.plain):
            self.plain.discard(name)

    @rule(whole=wholes, name=subscriptions, from_end=st.booleans())
    def subscribe(self, whole: str, name: str, from_end: bool) -> None:
        missing = [each for each in self.partitions(whole) if (each, name) not in self.open]
        if self.tried(PartitionsSubscribe(whole, name, from_end), bool(missing)):
            for each in missing:
                self.open[each, name] = set() if from_end else set(range(self.ends[each]))

    @rule(whole=wholes, name=subscriptions)
    def unsubscribe(self, whole: str, name: str) -> None:
        there = [each for each in self.partitions(whole) if (each, name) in self.open]
        if self.tried(PartitionsUnsubscribe(whole, name), bool(there)):
            for each in there:
                del self.open[each, name]

    @rule(whole=wholes, at=st.integers(0, 5))
    def publish(self, whole: str, at: int) -> None:
        names = self.partitions(whole)
        if not names:
            return
        name = names[at % len(names)]
        topic = self.rig.state.topics[self.rig.state.names[name]]
        opened = self.rig.producer(topic, f"p{self.rig.state.next_session}")
        self.rig.do(Publish(topic.id, opened.session, [b"x"], opened.epoch, opened.name))
        for (where, _), left in self.open.items():
            if where == name:
                left.add(self.ends[name])
        self.ends[name] += 1

    @rule(data=st.data())
    def acknowledge(self, data: Any) -> None:
        due = sorted((key, at) for key, left in self.open.items() for at in left)
        if due:
            (where, name), at = data.draw(st.sampled_from(due))
            topic = self.rig.state.topics[self.rig.state.names[where]]
            self.rig.do(Ack(topic.subscriptions[name].id, 0, [(at, at + 1)]))
            self.open[where, name].discard(at)

    @rule(by_snapshot=st.booleans())
    def restart(self, by_snapshot: bool) -> None:
        """Continue with what a restart has: the journal, or a snapshot."""
        rig = self.rig
        again = (
            rig.restarted(rig.machine.capture().parts, len(rig.journal)) if by_snapshot else rig.restarted()
        )
        assert again.digest() == rig.machine.digest(), "a restart gives another state"
        while again.log.take_round() is not None:
            pass  # it was written before the restart
        rig.machine = again

    @invariant()
    def agrees(self) -> None:
        state = self.rig.state
        assert {name: each.count for name, each in state.partitioned.topics.items()} == self.counts
        assert set(state.names) == self.plain | self.ends.keys()
        found = {
            (topic.name, name): [at for at in range(topic.ledgers.end) if not each.acks.is_acked(at)]
            for topic in state.topics.values()
            for name, each in topic.subscriptions.items()
        }
        assert found == {key: sorted(left) for key, left in self.open.items()}

    @invariant()
    def patterns_have_all_partitions(self) -> None:
        for whole in self.counts:
            pattern = TopicPattern(re.escape(whole.partition("://")[2]))
            found = pattern.select(sorted(self.rig.state.names))
            assert set(found) >= set(self.partitions(whole)), "a partition is left out of a pattern"
