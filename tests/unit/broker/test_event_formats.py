"""Pin the bytes of every event: earlier journals must decode, and members must agree."""

from __future__ import annotations

import pytest

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
    ViewChange,
    decode,
    kinds,
)
from holdfast.broker.state import Policies
from holdfast.group import Member

ME = Member(2, 2)
POLICIES = Policies(retention_bytes=5, ttl_s=3, deduplication=True)

FORMATS: list[tuple[int, int, Event, str]] = [
    (2, 1, ViewChange([ME, Member(node=3, incarnation=2)], True), "9292920202920302c3"),
    (10, 2, TopicCreate("ä", b"t1", POLICIES, True), "94a2c3a4c40274319805c003c0c0c0c3c0c3"),
    (11, 1, TopicDelete(1, True), "9201c3"),
    (12, 1, TopicTerminate(1), "9101"),
    (13, 1, TopicTruncate(1), "9101"),
    (14, 2, PolicySet(1, POLICIES, ["ä", "b"]), "93019805c003c0c0c0c3c092a2c3a4a162"),
    (20, 1, LedgerRoll(1, 2), "920102"),
    (21, 1, LedgerTrim(1, 2, 3), "93010203"),
    (30, 1, SubscriptionCreate(1, "ä", 2, {"ä": "b"}), "9401a2c3a40281a2c3a4a162"),
    (31, 1, SubscriptionDelete(1, True), "9201c3"),
    (
        32,
        1,
        Ack(1, 2, [(3, 4), (5, 6)], 7, [(8, b"t1"), (9, b"t2")], True),
        "9601029292030492050607929208c40274319209c4027432c3",
    ),
    (33, 1, Reset(1, b"t1", 2, 3), "9401c40274310203"),
    (34, 1, Fence(1, b"t1", 2), "9301c402743102"),
    (35, 1, Advance(1, 2, 3, 4, b"t1"), "9501020304c4027431"),
    (40, 1, ProducerOpen(1, "ä", "exclusive", ME, 2, 3), "9601a2c3a4a96578636c75736976659202020203"),
    (41, 1, ProducerClose(1), "9101"),
    (42, 1, DeduplicationForget(1, "ä"), "9201a2c3a4"),
    (43, 1, DeduplicationExpire(1, 2), "920102"),
    (50, 1, ConsumerJoin(1, "ä", "failover", 2, ME), "9501a2c3a4a86661696c6f76657202920202"),
    (51, 1, ConsumerLeave(1), "9101"),
    (60, 1, StageOpen(b"t1"), "91c4027431"),
    (61, 1, StageAppend(b"t1", 1, 2, [b"t1", b"t2"]), "94c4027431010292c4027431c4027432"),
    (62, 1, StageDrop(b"t1", 1), "92c402743101"),
    (
        63,
        1,
        SinkCommit("ä", 1, [(b"t1", 2, 3, 4), (b"t2", 5, 6, 7)]),
        "93a2c3a4019294c402743102030494c4027432050607",
    ),
    (64, 1, SinkForget(1), "9101"),
    (70, 1, TenantCreate("ä", ["ä", "b"], ["ä", "b"]), "93a2c3a492a2c3a4a16292a2c3a4a162"),
    (71, 1, TenantUpdate("ä", ["ä", "b"], ["ä", "b"]), "93a2c3a492a2c3a4a16292a2c3a4a162"),
    (72, 1, TenantDelete("ä", True), "92a2c3a4c3"),
    (73, 1, NamespaceCreate("ä", POLICIES), "92a2c3a49805c003c0c0c0c3c0"),
    (74, 1, NamespaceUpdate("ä", POLICIES, ["ä", "b"]), "93a2c3a49805c003c0c0c0c3c092a2c3a4a162"),
    (75, 1, NamespaceDelete("ä", True), "92a2c3a4c3"),
    (80, 1, SchemaAdd(1, b"t1"), "9201c4027431"),
    (90, 1, TimeRepair(1), "9101"),
]
"""Kind, version, an event, its body."""


@pytest.mark.parametrize(("kind", "version", "event", "body"), FORMATS)
def test_bodies_stay_as_they_are(kind: int, version: int, event: Event, body: str) -> None:
    assert (event.kind, event.version, event.encode().hex()) == (kind, version, body)
    assert decode(kind, version, bytes.fromhex(body)) == event


def test_every_kind_is_pinned() -> None:
    assert [row[0] for row in FORMATS] == list(kinds())
