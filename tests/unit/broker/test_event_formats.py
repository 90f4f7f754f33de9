"""Pin the bytes of every event: earlier journals must decode, and members must agree."""

from __future__ import annotations

import pytest

from holdfast.broker.events import (
    Ack,
    AckOffer,
    Advance,
    AlternateSet,
    Answer,
    AutoCreationSet,
    BacklogCheck,
    BacklogEvict,
    Bind,
    ConsumerJoin,
    ConsumerLeave,
    DeduplicationExpire,
    DeduplicationForget,
    Event,
    ExchangeCreate,
    ExchangeDelete,
    Fence,
    LedgerRoll,
    LedgerTrim,
    MemberAnnounce,
    MemberHello,
    Move,
    MoveAsk,
    NamespaceCreate,
    NamespaceDelete,
    NamespaceUpdate,
    OptionsChange,
    OptionsSet,
    OwnerAnswer,
    OwnershipAsk,
    OwnershipRelease,
    OwnershipReturn,
    PartitionsDelete,
    PartitionsSet,
    PartitionsSubscribe,
    PartitionsUnsubscribe,
    PermissionSet,
    PolicySet,
    ProducerClose,
    ProducerOpen,
    PropertiesSet,
    RedeliveryNote,
    Reset,
    RingTrim,
    Row,
    SchemaAdd,
    SchemaDelete,
    SinkCommit,
    SinkForget,
    StageAppend,
    StageDrop,
    StageOpen,
    SubscriptionAuthSet,
    SubscriptionCreate,
    SubscriptionDelete,
    SubscriptionExpire,
    SubscriptionRolesSet,
    Supersede,
    TenantCreate,
    TenantDelete,
    TenantUpdate,
    TimeRepair,
    TopicCreate,
    TopicDelete,
    TopicExpire,
    TopicQuiet,
    TopicsReady,
    TopicTerminate,
    TopicTruncate,
    TransferMark,
    Unbind,
    Unload,
    UnreplicatedSet,
    UpdateBegin,
    UptimeTick,
    ViewChange,
    decode,
    kinds,
)
from holdfast.broker.key_shared import KeyShared
from holdfast.broker.lives import Inactivity
from holdfast.broker.member_state import MemberInfo
from holdfast.broker.partitions import AutoCreation
from holdfast.broker.state import Policies
from holdfast.group import Member

ME = Member(2, 2)
POLICIES = Policies(retention_bytes=5, ttl_s=3, deduplication=True, ring_entries=4)
EARLIER = "dc001105c003c0c0c0c3c004c0c0c0c0c0c0c0c0"
"""These policies, before limits were among them."""
PACKED = "dc002d05c003c0c0c0c3c004" + 36 * "c0"

FORMATS: list[tuple[int, int, Event, str]] = [
    (2, 1, ViewChange([ME, Member(node=3, incarnation=2)], True), "9292920202920302c3"),
    (3, 1, MemberHello(7, b"t1"), "9207c4027431"),
    (4, 1, TransferMark(b"t1"), "91c4027431"),
    (5, 1, UpdateBegin(ME, [1, 2]), "92920202920102"),
    (6, 1, TopicsReady(ME, [1, 2]), "92920202920102"),
    (
        10,
        6,
        TopicCreate("ä", b"t1", POLICIES, True, 7, {"b": "ä"}),
        "96a2c3a4c4027431" + PACKED + "c30781a162a2c3a4",
    ),
    (11, 2, TopicDelete(1, True, True), "9301c3c3"),
    (12, 1, TopicTerminate(1), "9101"),
    (13, 1, TopicTruncate(1), "9101"),
    (14, 6, PolicySet(1, POLICIES, ["ä", "b"]), "9301" + PACKED + "92a2c3a4a162"),
    (
        15,
        2,
        PartitionsSet("ä", 3, b"t1", True, POLICIES, True, 7, {"b": "ä"}),
        "98a2c3a403c4027431c3" + PACKED + "c30781a162a2c3a4",
    ),
    (16, 1, PartitionsDelete("ä", True), "92a2c3a4c3"),
    (17, 1, AutoCreationSet("ä", AutoCreation(False, 3)), "92a2c3a492c203"),
    (18, 1, PartitionsSubscribe("ä", "b", False, {"ä": "b"}), "94a2c3a4a162c281a2c3a4a162"),
    (19, 1, PartitionsUnsubscribe("ä", "b", True), "93a2c3a4a162c3"),
    (20, 1, LedgerRoll(1, 2), "920102"),
    (21, 1, LedgerTrim(1, 2, 3), "93010203"),
    (30, 1, SubscriptionCreate(1, "ä", 2, {"ä": "b"}), "9401a2c3a40281a2c3a4a162"),
    (31, 2, SubscriptionDelete(1, True, True), "9301c3c3"),
    (
        32,
        1,
        Ack(1, 2, [(3, 4), (5, 6)], 7, [(8, b"t1"), (9, b"t2")], True),
        "9601029292030492050607929208c40274319209c4027432c3",
    ),
    (33, 1, Reset(1, b"t1", 2, 3), "9401c40274310203"),
    (34, 1, Fence(1, b"t1", 2), "9301c402743102"),
    (35, 1, Advance(1, 2, 3, 4, b"t1"), "9501020304c4027431"),
    (36, 1, RedeliveryNote(1, 2, [(3, 4)]), "93010291920304"),
    (40, 2, ProducerOpen(1, "ä", "exclusive", ME, 2, 3, 7), "9701a2c3a4a96578636c7573697665920202020307"),
    (41, 1, ProducerClose(1), "9101"),
    (42, 1, DeduplicationForget(1, "ä"), "9201a2c3a4"),
    (43, 1, DeduplicationExpire(1, 2), "920102"),
    (
        50,
        3,
        ConsumerJoin(1, "ä", "key_shared", 2, ME, KeyShared(((3, 4),), True), 7, 8),
        "9801a2c3a4aa6b65795f736861726564029202029291920304c30708",
    ),
    (51, 1, ConsumerLeave(1), "9101"),
    (
        52,
        2,
        OwnershipRelease(1, 2, ME, 3, [(4, 5)], [(6, 7)], [(8, 9)], True, b"t1", [5], ME),
        "9b010292020203919204059192060791920809c3c40274319105920202",
    ),
    (53, 2, OwnershipAsk(1, ME, [3]), "93019202029103"),
    (54, 1, OwnershipReturn(1, ME, 2, [(3, 4)], [(5, 6)]), "9501920202029192030491920506"),
    (55, 1, AckOffer(1, ME, 2, 3, [(4, 5)], [(6, b"t1")]), "9601920202020391920405919206c4027431"),
    (56, 1, MoveAsk(1, ME, 2, 3, "move", 4, 5, 6, 7), "99019202020203a46d6f766504050607"),
    (
        57,
        1,
        OwnerAnswer(ME, 1, Answer("ä", "b", 2, 3, 4, 5, 6, 7, b"t1")),
        "939202020199a2c3a4a162020304050607c4027431",
    ),
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
    (
        65,
        1,
        ExchangeCreate("ä", b"t1", "topic", 2, True, False, True),
        "97a2c3a4c4027431a5746f70696302c3c2c3",
    ),
    (66, 1, ExchangeDelete(1, True), "9201c3"),
    (67, 1, Bind(1, 2, "ä"), "930102a2c3a4"),
    (68, 1, Unbind(1, 2, "ä"), "930102a2c3a4"),
    (70, 1, TenantCreate("ä", ["ä", "b"], ["ä", "b"]), "93a2c3a492a2c3a4a16292a2c3a4a162"),
    (71, 1, TenantUpdate("ä", ["ä", "b"], ["ä", "b"]), "93a2c3a492a2c3a4a16292a2c3a4a162"),
    (72, 1, TenantDelete("ä", True), "92a2c3a4c3"),
    (73, 5, NamespaceCreate("ä", POLICIES), "92a2c3a4" + PACKED),
    (
        74,
        5,
        NamespaceUpdate("ä", POLICIES, ["ä", "b"]),
        "93a2c3a4" + PACKED + "92a2c3a4a162",
    ),
    (75, 1, NamespaceDelete("ä", True), "92a2c3a4c3"),
    (76, 1, AlternateSet(1, 2, 3), "93010203"),
    (
        77,
        1,
        Move([1, 2], [3, 4], -1, [Row(5, b"t1"), Row(6, b"t2", 3, b"\x05")]),
        "94920102920304ff929405c402743100c4009406c402743203c40105",
    ),
    (78, 1, RingTrim(1), "9101"),
    (79, 1, Supersede(1, [(2, 3), (5, 6)]), "920192920203920506"),
    (80, 2, SchemaAdd(1, b"t1", 5), "9301c402743105"),
    (
        81,
        1,
        MemberAnnounce(MemberInfo(ME, "ä", "a", "b", "c", "d", "e", "f", {1: 2}, {"l": ("g", "h")}, (3, 4))),
        "919b920202a2c3a4a161a162a163a164a165a16681010281a16c92a167a168920304",
    ),
    (82, 1, OptionsSet({"ä": 1, "b": True}, True), "9282a2c3a401a162c3c3"),
    (83, 1, UnreplicatedSet("ä", 2, True, False, True), "95a2c3a402c3c2c3"),
    (84, 1, Unload(1, "a/b"), "9201a3612f62"),
    (85, 1, OptionsChange({"b": 1}, ["ä"]), "9281a1620191a2c3a4"),
    (86, 1, SchemaDelete(1), "9101"),
    (90, 1, TimeRepair(1), "9101"),
    (
        94,
        1,
        BacklogCheck(1, 2, 3.0, "producer_exception", 4, 5),
        "960102cb4008000000000000b270726f64756365725f657863657074696f6e0405",
    ),
    (
        95,
        1,
        BacklogEvict(1, 2, 3.0, "producer_exception", 4),
        "950102cb4008000000000000b270726f64756365725f657863657074696f6e04",
    ),
    (100, 1, SubscriptionExpire(1, 2.0), "9201cb4000000000000000"),
    (
        101,
        1,
        TopicQuiet(1, True, Inactivity(2.0, True, 3.0)),
        "9301c393cb4000000000000000c3cb4008000000000000",
    ),
    (
        102,
        1,
        TopicExpire(1, Inactivity(2.0, True, 3.0)),
        "920193cb4000000000000000c3cb4008000000000000",
    ),
    (103, 1, UptimeTick(), "90"),
    (
        104,
        1,
        PropertiesSet("ä", [1], [2, 3], {"b": "ä"}, ["c"], True),
        "96a2c3a4910192020381a162a2c3a491a163c3",
    ),
    (105, 1, PermissionSet("ä", "b", ["consume"]), "93a2c3a4a16291a7636f6e73756d65"),
    (106, 1, SubscriptionRolesSet("ä", "b", ["c"]), "93a2c3a4a16291a163"),
    (107, 1, SubscriptionAuthSet("ä", True), "92a2c3a4c3"),
]
"""Kind, version, an event, its body."""


@pytest.mark.parametrize(("kind", "version", "event", "body"), FORMATS)
def test_bodies_stay_as_they_are(kind: int, version: int, event: Event, body: str) -> None:
    assert (event.kind, event.version, event.encode().hex()) == (kind, version, body)
    assert decode(kind, version, bytes.fromhex(body)) == event


OLDER: list[tuple[int, int, Event, str]] = [
    (10, 5, TopicCreate("ä", b"t1", POLICIES, True), "94a2c3a4c4027431" + EARLIER + "c3"),
    (14, 5, PolicySet(1, POLICIES, ["ä", "b"]), "9301" + EARLIER + "92a2c3a4a162"),
    (15, 1, PartitionsSet("ä", 3, b"t1", True, POLICIES, True), "96a2c3a403c4027431c3" + EARLIER + "c3"),
    (40, 1, ProducerOpen(1, "ä", "exclusive", ME, 2, 3), "9601a2c3a4a96578636c75736976659202020203"),
    (50, 2, ConsumerJoin(1, "ä", "failover", 2, ME), "9601a2c3a4a86661696c6f76657202920202c0"),
    (73, 4, NamespaceCreate("ä", POLICIES), "92a2c3a4" + EARLIER),
    (74, 4, NamespaceUpdate("ä", POLICIES, ["ä", "b"]), "93a2c3a4" + EARLIER + "92a2c3a4a162"),
    (10, 3, TopicCreate("ä", b"t1", POLICIES, True), "94a2c3a4c40274319b05c003c0c0c0c3c004c0c0c3"),
    (10, 2, TopicCreate("ä", b"t1", Policies(ttl_s=3), True), "94a2c3a4c402743198c0c003c0c0c0c0c0c3"),
    (11, 1, TopicDelete(1, True), "9201c3"),
    (14, 2, PolicySet(1, Policies(ttl_s=3), ["ä", "b"]), "930198c0c003c0c0c0c0c092a2c3a4a162"),
    (31, 1, SubscriptionDelete(1, True), "9201c3"),
    (80, 1, SchemaAdd(1, b"t1"), "9201c4027431"),
    (50, 1, ConsumerJoin(1, "ä", "failover", 2, ME), "9501a2c3a4a86661696c6f76657202920202"),
    (
        52,
        1,
        OwnershipRelease(1, 2, ME, 3, [(4, 5)], [(6, 7)], [(8, 9)], True),
        "98010292020203919204059192060791920809c3",
    ),
    (53, 1, OwnershipAsk(1, ME), "9201920202"),
    (73, 1, NamespaceCreate("ä", Policies(ttl_s=3)), "92a2c3a498c0c003c0c0c0c0c0"),
    (74, 1, NamespaceUpdate("ä", Policies(ttl_s=3)), "92a2c3a498c0c003c0c0c0c0c0"),
]


@pytest.mark.parametrize(("kind", "version", "event", "body"), OLDER)
def test_bodies_of_older_journals_decode(kind: int, version: int, event: Event, body: str) -> None:
    assert version < event.version
    assert decode(kind, version, bytes.fromhex(body)) == event


def test_every_kind_is_pinned() -> None:
    assert [row[0] for row in FORMATS] == list(kinds())
