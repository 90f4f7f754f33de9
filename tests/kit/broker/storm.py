"""A storm of random events over a few topics, repeatable by its seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

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
    MemberAnnounce,
    NamespaceCreate,
    NamespaceDelete,
    NamespaceUpdate,
    OptionsChange,
    OptionsSet,
    OwnershipAsk,
    OwnershipRelease,
    OwnershipReturn,
    PolicySet,
    ProducerClose,
    ProducerOpen,
    RedeliveryNote,
    Reset,
    SchemaAdd,
    SchemaDelete,
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
    TopicsReady,
    TopicTerminate,
    TopicTruncate,
    Unload,
    UnreplicatedSet,
    UpdateBegin,
)
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.machine import Machine
from holdfast.broker.member_state import MemberInfo
from holdfast.broker.state import Policies
from holdfast.group import Member
from holdfast.names import topic_name
from tests.kit.broker import storm_compaction, storm_lives, storm_partitions, storm_routing
from tests.kit.broker.events import ME, OTHER, Publish, Rig


class Storm:
    """Creates events that mostly fit the state, and some that do not."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rig = Rig()
        self.refused = 0
        self.snapshots: list[tuple[list[bytes], int]] = []
        """Parts of a snapshot, and where the journal continues behind them."""
        self.digests: list[tuple[int, int, bytes]] = []
        """Frames in the journal and in the history at the time of each snapshot, and the digest."""

    def run(self, frames: int, look: Callable[[Rig], None] | None = None) -> Rig:
        for _ in range(frames):
            if self.rng.random() < 0.04:
                members = self.rng.choice([(ME,), (ME, OTHER), (ME, OTHER), (ME, OTHER), (OTHER,)])
                self.rig.enter(*members, unclean=self.rng.random() < 0.3)
            else:
                member = self.rng.choice([ME, OTHER])
                count = self.rng.choice([1, 1, 2, 5])
                applied = self.rig.apply(*(self.event(member) for _ in range(count)), member=member)
                self.refused += sum(isinstance(each, Exception) for each in applied.outcomes)
            if self.rng.random() < 0.05:
                self.rig.time += self.rng.randrange(1 << 36)
                self.snapshots.append((self.rig.machine.capture().parts, len(self.rig.journal)))
                ends = len(self.rig.journal), len(self.rig.history)
                self.digests.append((*ends, self.rig.machine.digest()))
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
                self.topic_event,
                self.ack,
                self.ack,
                self.ack,
                self.revision,
                self.stage,
                self.stage,
                self.namespace,
                lambda: self.cluster(member),
                lambda: storm_lives.event(rng, state),
                lambda: storm_lives.event(rng, state),
                lambda: storm_routing.event(rng, state),
                lambda: storm_compaction.event(rng, state),
                lambda: (storm_partitions if rng.random() < 0.6 else storm_routing).event(rng, state),
                lambda: self.session(member),
                lambda: self.session(member),
                lambda: self.ownership(member),
                lambda: self.ownership(member),
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

    def cluster(self, member: Member) -> Event:
        rng = self.rng
        if rng.random() < 0.3:
            known = self.rig.machine.state.topics
            lacking = [each.id for each in known.values() if member in each.unready]
            if lacking and rng.random() < 0.7:
                return TopicsReady(member, [rng.choice(lacking), 99])
            return UpdateBegin(member, [*known][: rng.randrange(1, 4)])
        if rng.random() < 0.15:  # of its node, sometimes of another; also names that topics have
            node, name = rng.choice([member.node, member.node, 3]), rng.choice([self.topic_name(), "u", "v"])
            return UnreplicatedSet(topic_name(name), node, rng.random() < 0.2, rng.random() < 0.6)
        if rng.random() < 0.5:
            return OptionsSet({rng.choice("abc"): rng.choice([1, 2.5, True])}, rng.random() < 0.5)
        if rng.random() < 0.3:
            return OptionsChange({rng.choice("abc"): rng.choice([1, 2.5, True])}, [rng.choice("abc")])
        facts = rng.choice([("1.0", {10: 2, 2: 1}), ("1.1", {2: 1, 10: 2, 99: 1})])
        sender = member if rng.random() < 0.9 else rng.choice([ME, OTHER])
        return MemberAnnounce(
            MemberInfo(
                sender, rng.choice("mn"), program=facts[0], versions=facts[1], listeners={"a": ("u", "v")}
            )
        )

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
        if topic.id in state.exchanges:
            entries = storm_routing.entries(rng, len(entries))
        sequence = rng.randrange(40)
        return Publish(topic.id, producer.session, entries, producer.epoch, producer.name, sequence)

    def topic_event(self) -> Event:
        rng, state = self.rng, self.rig.machine.state
        topic = self.pick(each for each in state.topics if each not in state.exchanges)
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
            *[DeduplicationForget(topic, name) for name in "pqr"],
            *[DeduplicationForget(topic, name) for name in "pqr"],
            DeduplicationExpire(topic, max(0, self.rig.time - rng.choice([0, 2000, 1 << 35]))),
            SchemaAdd(topic, rng.choice([b"a", b"b", b"c"]), rng.choice([None, 0, 1])),
            SchemaDelete(topic),
            Unload(*rng.choice([(topic, ""), (0, "public/default"), (topic, "x/y")])),
        ]
        if rng.random() < 0.03:
            return TimeRepair(max(0, self.rig.machine.log.time - rng.choice([0, 500, 5000])))
        if rng.random() < 0.15:
            choices = [TopicDelete(topic, rng.random() < 0.5), TopicTerminate(topic), TopicTruncate(topic)]
        return rng.choice(choices)

    def ack(self) -> Event:
        rng, state = self.rng, self.rig.machine.state
        subscription = state.subscriptions.get(self.pick(state.subscriptions))
        if subscription is None:
            return Ack(99, 0)
        low = subscription.acks.acked_to
        number = subscription.reset_number - (rng.random() < 0.3)
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

    def ownership(self, member: Member) -> Event:
        rng, state = self.rng, self.rig.machine.state
        if rng.random() < 0.15:
            return self.redelivery_note()
        known = state.subscriptions
        aside = [each.id for each in known.values() if member in each.idle or member in each.held]
        subscription = known.get(self.pick(aside if rng.random() < 0.7 else known))
        if subscription is None:
            return self.to_release(member)
        low, number = subscription.acks.acked_to, subscription.reset_number - (rng.random() < 0.1)
        if member in subscription.idle and rng.random() < 0.5:
            return OwnershipAsk(subscription.id, member, [*subscription.full])
        ranges = [(low, low + rng.randrange(1, 30))]
        return OwnershipReturn(subscription.id, member, max(number, 0), ranges, [(low, 1)])

    def redelivery_note(self) -> Event:
        """Also of entries that are acknowledged, or not there."""
        rng, known = self.rng, self.rig.machine.state.subscriptions
        subscription = known.get(self.pick(known))
        if subscription is None:
            return RedeliveryNote(99, 0)
        low, number = subscription.acks.acked_to, subscription.reset_number - (rng.random() < 0.1)
        counts = [(max(0, low - 3) + rng.randrange(30), rng.randrange(1, 4)) for _ in range(3)]
        return RedeliveryNote(subscription.id, max(number, 0), counts)

    def to_release(self, member: Member) -> Event:
        rng, known = self.rng, self.rig.machine.state.subscriptions
        mine = [each.id for each in known.values() if each.owner == member and len(each.attached) > 1]
        subscription = known.get(self.pick(mine if rng.random() < 0.9 else known))
        if subscription is None:
            return self.join(member)
        low, taken = subscription.acks.acked_to, subscription.taken - (rng.random() < 0.2)
        number = subscription.reset_number - (rng.random() < 0.1)
        ends = sorted({low + rng.randrange(30) for _ in range(6)})
        ranges = list(zip(ends[::2], ends[1::2], strict=False))
        counts, idle = [(low + rng.randrange(30), rng.randrange(1, 4))], rng.random() < 0.5
        event = OwnershipRelease(
            subscription.id, max(taken, 0), member, max(number, 0), ranges, counts, ranges, idle
        )
        if subscription.type != "key_shared":
            return event
        hashes = rng.randbytes(2 * sum(end - first for first, end in ranges))
        full = [each for each in subscription.consumers if rng.random() < 0.3]
        to = rng.choice([None, *subscription.attached])
        return msgspec.structs.replace(event, hashes=hashes, full=full, to=to)

    def join(self, member: Member) -> Event:
        """Join a subscription that is shared, or that shares keys (I263, I264)."""
        rng = self.rng
        id_ = self.pick(self.rig.machine.state.subscriptions)
        if id_ % 2:
            return ConsumerJoin(id_, "c", "shared", 0, member)
        first = rng.randrange(4)
        sticky = KeyShared(((first, first + rng.randrange(3)),), rng.random() < 0.1)
        return ConsumerJoin(id_, "c", "key_shared", 0, member, KeyShared() if id_ % 4 else sticky)

    def session(self, member: Member) -> Event:
        rng, state = self.rng, self.rig.machine.state
        if rng.random() < 0.35:
            session = self.pick(state.sessions)
            return rng.choice([ProducerClose(session), ConsumerLeave(session)])
        if rng.random() < 0.05:
            return self.join(member)
        if rng.random() < 0.5:
            kind: Any = rng.choice(["exclusive", "failover", "shared", "shared", "shared"])
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
    require_digests(storm)
    for snapshot, journal in storm.snapshots:
        assert rig.restarted(snapshot, journal).digest() == expected, "a snapshot gives another state"


def require_digests(storm: Storm) -> None:
    """Require that the journal gave the same state at each snapshot: later events hide differences."""
    rig, machine, done = storm.rig, Machine(), 0
    for frames, given, expected in storm.digests:
        for frame in rig.journal[done:frames]:
            machine.redo(*frame)
        done = frames
        assert rig.fed(machine, given).digest() == expected, "the journal gave another state on the way"
