"""A storm of random events over a few topics, repeatable by its seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from holdfast.broker.events import (
    Ack,
    Advance,
    ConsumerJoin,
    ConsumerLeave,
    DeduplicationExpire,
    DeduplicationForget,
    Event,
    Fence,
    LedgerRoll,
    LedgerTrim,
    NamespaceCreate,
    NamespaceDelete,
    NamespaceUpdate,
    PolicySet,
    ProducerClose,
    ProducerOpen,
    Reset,
    SchemaAdd,
    SinkCommit,
    SinkForget,
    StageAppend,
    StageDrop,
    StageOpen,
    SubscriptionCreate,
    SubscriptionDelete,
    TenantCreate,
    TenantDelete,
    TenantUpdate,
    TimeRepair,
    TopicCreate,
    TopicDelete,
    TopicTerminate,
    TopicTruncate,
)
from holdfast.broker.state import Policies
from holdfast.group import Member
from holdfast.names import topic_name
from tests.kit.broker.events import ME, OTHER, Publish, Rig


class Storm:
    """Creates events that mostly fit the state, and some that do not."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rig = Rig()
        self.refused = 0
        self.snapshots: list[tuple[list[bytes], int]] = []
        """Parts of a snapshot, and where the journal continues behind them."""

    def run(self, frames: int, look: Callable[[Rig], None] | None = None) -> Rig:
        for _ in range(frames):
            if self.rng.random() < 0.04:
                members = self.rng.choice([(ME,), (ME, OTHER), (OTHER,)])
                self.rig.enter(*members, unclean=self.rng.random() < 0.3)
            else:
                member = self.rng.choice([ME, OTHER])
                count = self.rng.choice([1, 1, 2, 5])
                applied = self.rig.apply(*(self.event(member) for _ in range(count)), member=member)
                self.refused += sum(isinstance(each, Exception) for each in applied.outcomes)
            if self.rng.random() < 0.05:
                self.rig.time += self.rng.randrange(1 << 36)
                self.snapshots.append((self.rig.machine.capture().parts, len(self.rig.journal)))
            if look is not None:
                look(self.rig)
        return self.rig

    # -- picking ---------------------------------------------------------------------------------------

    def pick(self, values: Any, otherwise: Any = 0) -> Any:
        values = list(values)
        return self.rng.choice(values) if values and self.rng.random() < 0.97 else otherwise

    def ordinal(self) -> int:
        return self.rng.randrange(120)

    def event(self, member: Member) -> Event | Publish:
        rng, state = self.rng, self.rig.machine.state
        if rng.random() < 0.35:
            return self.publish()
        make: Callable[[], Event] = rng.choice(
            [
                self.topic_event,
                self.ack,
                self.ack,
                self.ack,
                self.revision,
                self.stage,
                self.stage,
                self.namespace,
                lambda: self.session(member),
                lambda: self.session(member),
                lambda: SubscriptionCreate(
                    self.pick(state.topics), rng.choice("abc"), rng.choice([-1, 0, self.ordinal()])
                ),
            ]
        )
        return make()

    def namespace(self) -> Event:
        rng, known = self.rng, self.rig.machine.state.namespaces
        tenant = rng.choice(["public", "t", "u"])
        name = rng.choice([f"{tenant}/{rng.choice('mn')}", self.pick(known.policies, "x/y")])
        policies = Policies(
            retention_bytes=rng.choice([None, 100]),
            ttl_s=rng.choice([None, 5.0]),
            deduplication=rng.choice([None, True, False]),
        )
        choices: list[Event] = [
            TenantCreate(tenant, rng.choices("ab", k=2)),
            TenantUpdate(tenant, rng.choices("abc", k=2), ["c"]),
            NamespaceCreate(name, policies),
            NamespaceUpdate(name, policies, rng.choice([None, ["ttl_s"], ["deduplication"]])),
        ]
        if rng.random() < 0.25:
            choices = [
                TenantDelete(tenant, rng.random() < 0.2),
                NamespaceDelete(name, rng.random() < 0.2),
                NamespaceDelete(name),
            ]
        return rng.choice(choices)

    def topic_name(self) -> str:
        name = self.rng.choice("wxyz")
        return topic_name(name if self.rng.random() < 0.7 else f"t/n/{name}")

    def publish(self) -> Publish:
        rng, state = self.rng, self.rig.machine.state
        topic = state.topics.get(self.pick(state.topics))
        producer = None if topic is None else self.pick(topic.producers.values(), None)
        entries = [rng.randbytes(rng.randrange(40)) for _ in range(rng.randrange(1, 6))]
        if topic is None or producer is None:
            return Publish(99, 1, entries)
        sequence = rng.randrange(40)
        return Publish(topic.id, producer.session, entries, producer.epoch, producer.name, sequence)

    def topic_event(self) -> Event:
        rng, state = self.rng, self.rig.machine.state
        topic = self.pick(state.topics)
        table = state.topics[topic].ledgers if topic else None
        policies = Policies(
            retention_bytes=rng.choice([None, -1, 0, 200]),
            retention_s=rng.choice([None, 0, 5.0]),
            deduplication=rng.choice([None, True]),
        )
        ledger = (table.open_ledger or 0) if table else 3
        choices: list[Event] = [
            TopicCreate(self.topic_name(), rng.randbytes(16), policies),
            TopicCreate(self.topic_name(), rng.randbytes(16), policies, managed=rng.random() < 0.5),
            LedgerRoll(topic, ledger),
            LedgerRoll(topic, ledger),
            LedgerTrim(topic, rng.choice([0, 100]), rng.choice([0, 1 << 35])),
            LedgerTrim(topic),
            PolicySet(topic, policies, rng.choice([None, ["deduplication"], ["retention_s"]])),
            DeduplicationForget(topic, rng.choice("pqr")),
            DeduplicationExpire(topic, max(0, self.rig.time - rng.choice([0, 2000, 1 << 35]))),
            SchemaAdd(topic, rng.choice([b"a", b"b", b"c"])),
        ]
        if rng.random() < 0.02:
            return TimeRepair(max(0, self.rig.machine.log.time - rng.choice([0, 500, 5000])))
        if rng.random() < 0.1:
            choices = [TopicDelete(topic, rng.random() < 0.5), TopicTerminate(topic), TopicTruncate(topic)]
        return rng.choice(choices)

    def ack(self) -> Event:
        rng, state = self.rng, self.rig.machine.state
        subscription = state.subscriptions.get(self.pick(state.subscriptions))
        if subscription is None:
            return Ack(99, 0)
        low = subscription.acks.acked_to
        number = subscription.reset_number - (rng.random() < 0.1)
        ranges = [(at, at + rng.randrange(1, 4)) for at in (low + rng.randrange(20) for _ in range(3))]
        bits = [(low + rng.randrange(20), rng.randbytes(rng.randrange(3)))]
        cumulative = low + 3 if rng.random() < 0.2 else 0
        return Ack(subscription.id, max(number, 0), ranges, cumulative, bits, rng.random() < 0.5)

    def revision(self) -> Event:
        rng, state = self.rng, self.rig.machine.state
        subscription = state.subscriptions.get(self.pick(state.subscriptions))
        if subscription is None:
            return Reset(99, b"t", 0, 0)
        number, token = subscription.reset_number - (rng.random() < 0.1), rng.choice([b"", b"t", b"u", b"v"])
        return rng.choice(
            [
                Reset(subscription.id, token, number, self.ordinal()),
                Fence(subscription.id, token, number),
                Advance(subscription.id, number, to=self.ordinal(), token=token),
                Advance(subscription.id, number, skip=rng.randrange(5), token=token),
                SubscriptionDelete(subscription.id, force=rng.random() < 0.2),
            ]
        )

    def session(self, member: Member) -> Event:
        rng, state = self.rng, self.rig.machine.state
        if rng.random() < 0.35:
            session = self.pick(state.sessions)
            return rng.choice([ProducerClose(session), ConsumerLeave(session)])
        if rng.random() < 0.4:
            kind: Any = rng.choice(["exclusive", "failover", "shared", "shared"])
            return ConsumerJoin(self.pick(state.subscriptions), "c", kind, rng.randrange(2), member)
        access: Any = rng.choice(
            ["shared"] * 6
            + ["exclusive", "wait-for-exclusive", "wait-for-exclusive", "exclusive-with-fencing"]
        )
        name = rng.choice(["p", "q", "r", ""])
        return ProducerOpen(
            self.pick(state.topics), name, access, member, rng.randrange(3), rng.choice([-1, -1, 0, 1, 2])
        )

    def stage(self) -> Event:
        rng, state = self.rng, self.rig.machine.state
        stage = state.stages.get(self.pick(state.stages))
        if stage is None or rng.random() < 0.1:
            return StageOpen(rng.randbytes(16))
        if rng.random() < 0.6:
            topic = self.pick(state.topics)
            at = stage.topics[topic].count if topic in stage.topics else 0
            entries = [rng.randbytes(rng.choice([10, 20_000])) for _ in range(rng.randrange(1, 4))]
            return StageAppend(stage.id, topic, at, entries)
        receipts = [
            (each.id, part.topic, part.count, part.digest)
            for each in (stage, state.stages[self.pick(state.stages, stage.id)])
            for part in each.topics.values()
        ]
        return rng.choice(
            [
                SinkCommit(rng.choice("kl"), rng.randrange(1 << 20), list(dict.fromkeys(receipts))),
                SinkCommit(rng.choice("kl"), rng.randrange(1 << 20), list(dict.fromkeys(receipts))),
                StageDrop(stage.id, rng.choice([0, self.rig.time - (1 << 34)])),
                SinkForget(self.rig.time - (1 << 36)),
            ]
        )


def agree(storm: Storm) -> None:
    """I49: members that were given the same events are equal, also after a restart."""
    rig = storm.rig
    expected = rig.machine.digest()
    assert rig.twin().digest() == expected, "another member drifted apart"
    assert rig.restarted().digest() == expected, "the journal gives another state"
    for snapshot, journal in storm.snapshots:
        assert rig.restarted(snapshot, journal).digest() == expected, "a snapshot gives another state"
