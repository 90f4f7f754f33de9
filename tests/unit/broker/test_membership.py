"""Facts about members, owners of topics, shared options, and versions that all members know."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.broker import Broker, BrokerOptions, Quota
from holdfast.broker.events import (
    Done,
    MemberAnnounce,
    OptionsSet,
    TenantCreate,
    TopicCreate,
    kinds,
)
from holdfast.broker.limit_options import LimitOptions
from holdfast.broker.machine import Machine
from holdfast.broker.membership import (
    DECIDING,
    LIMITS,
    agreed_version,
    owner_of_topic,
    present,
    require_options,
    require_version,
)
from holdfast.broker.quota import StateLimits
from holdfast.errors import Corrupt, LimitReached, Misuse, Unannounced, Unsupported
from holdfast.group import LocalGroup, Member
from holdfast.names import topic_name
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.config import Limits
from holdfast.server.http.refusals import refusal_of
from holdfast.server.pulsar.commands import refusal
from tests.kit.broker import member_checks
from tests.kit.broker.brokers import on_broker
from tests.kit.broker.crowd import A, B, C, CrowdedGroup, info_of
from tests.kit.broker.events import ME, OTHER, Rig, nothing_happens, refused
from tests.kit.broker.member_checks import SMALL, crowded, grown_kind, sent
from tests.kit.waiting import eventually

NAMES = [topic_name(f"topic{number}") for number in range(200)]

# -- facts ---------------------------------------------------------------------------------------------


def test_a_member_announces_itself() -> None:
    rig = Rig()
    rig.do(MemberAnnounce(info_of(ME)))
    rig.do(MemberAnnounce(info_of(OTHER)), OTHER)
    assert rig.state.announced.info == {1: info_of(ME), 2: info_of(OTHER)}
    nothing_happens(rig, MemberAnnounce(info_of(ME)))
    rig.do(MemberAnnounce(info_of(ME, url="pulsar://moved:1")))
    assert rig.state.announced.info[1].url == "pulsar://moved:1"
    again = Member(2, 5)
    rig.enter(ME, again)
    rig.do(MemberAnnounce(info_of(again)), again)
    assert rig.state.announced.info[2].member == again, "facts are kept by node"


def test_refused_announcements() -> None:
    rig = Rig()
    refused(rig, MemberAnnounce(info_of(OTHER)), Misuse, "member 1.1 cannot announce 2.1; only itself")
    gone = Member(2, 9)
    refused(rig, MemberAnnounce(info_of(gone)), Misuse, "not in the view", member=gone)


def test_members_have_one_state() -> None:
    """I49: other members, the journal redone, and a snapshot with the journal behind it."""
    rig = Rig()
    empty = rig.machine.digest()
    rig.do(MemberAnnounce(info_of(ME)))
    rig.do(OptionsSet({"roll_entries": 5}, first=True))
    snapshot, at = rig.machine.capture().parts, len(rig.journal)
    rig.do(MemberAnnounce(info_of(OTHER)), OTHER)
    rig.do(OptionsSet({"retention_s": 2.5, "deduplication": True}))
    digest = rig.machine.digest()
    assert digest != empty
    assert rig.twin().digest() == rig.restarted().digest() == rig.restarted(snapshot, at).digest() == digest
    machine = Machine()
    machine.load(rig.machine.capture().parts)
    assert machine.state.announced.info == rig.state.announced.info
    assert machine.state.decided.values == rig.state.decided.values
    for change in (MemberAnnounce(info_of(ME, name="else")), OptionsSet({"deduplication": False})):
        rig.do(change)
        assert rig.machine.digest() != digest
        digest = rig.machine.digest()


def test_facts_under_another_node_are_damage() -> None:
    rig = Rig()
    rig.do(MemberAnnounce(info_of(ME)))
    rig.state.announced.info = {7: info_of(ME)}
    with pytest.raises(AssertionError, match="I44: node 7"):
        rig.machine.check()
    rig.state.announced.info = {1: info_of(ME)}
    *parts, last = rig.machine.capture().parts
    with pytest.raises(Corrupt):
        Machine().load([*parts, last[:-3]])


def test_a_broker_alone_pays_nothing(tmp_path: Path) -> None:
    async def main(broker: Broker) -> tuple[int, int]:
        broker.membership.announce("here", url="pulsar://here:1")
        broker.membership.tend()
        await broker.settle()
        assert broker.membership.alone
        assert (broker.membership.members(), broker.membership.owner("x")) == ([], None)
        assert broker.decided is broker.options
        assert (broker.membership.shared(), broker.membership.differing()) == ({}, {})
        assert "holdfast_cluster_" not in broker.metrics()
        return broker.stats().events, len(broker.machine.capture().parts)

    assert on_broker(tmp_path, main, roll_entries=7, **SMALL) == (1, 3)  # the view; no part more


# -- owners --------------------------------------------------------------------------------------------


def with_members(*members: Member, announced: tuple[Member, ...] = ()) -> Rig:
    rig = Rig()
    rig.enter(*members)
    for each in announced:
        rig.do(MemberAnnounce(info_of(each)), each)
    return rig


def test_present_are_members_that_can_serve() -> None:
    assert present(with_members(C, A, B).state) == (A, B, C), "no facts yet: all"
    assert present(with_members(C, A, B, announced=(B, C)).state) == (B, C)
    rig = with_members(A, B, announced=(A, B))
    rig.enter(A, Member(2, 2))
    assert present(rig.state) == (A,), "facts of an earlier life do not count"


def test_each_topic_has_one_owner_and_members_share_them() -> None:
    rig = with_members(A, B, C)
    owners = {name: owner_of_topic(rig.state, name) for name in NAMES}
    for member in (A, B, C):
        assert list(owners.values()).count(member) > len(NAMES) // 6
    rig.enter(A, C)
    for name, owner in owners.items():
        if owner != B:
            assert owner_of_topic(rig.state, name) == owner, "only topics of the member that left move"
    rig.enter(A, Member(2, 2), C)
    back = {name: owner_of_topic(rig.state, name) for name in NAMES}
    assert {name for name in NAMES if back[name] == Member(2, 2)} == {n for n in NAMES if owners[n] == B}


def test_the_hash_is_for_ever() -> None:
    """Members of different programs must agree: change nothing here."""
    state = with_members(A, B, C).state
    assert [owner_of_topic(state, name) for name in NAMES[:8]] == [B, A, A, C, A, C, A, C]
    rig = Rig()
    rig.enter()
    assert owner_of_topic(rig.state, NAMES[0]) is None


def test_the_owner_of_most_subscriptions_owns_the_topic() -> None:
    rig = with_members(A, B, C)
    topic = rig.topic("orders")
    subscriptions: list[Any] = [rig.subscription(topic, name) for name in "stuv"]
    by_hash = owner_of_topic(rig.state, topic.name)
    for member in (A, B, C):
        for each in subscriptions:
            each.owner = None
        subscriptions[0].owner = member
        assert owner_of_topic(rig.state, topic.name) == member
        others = [each for each in (A, B, C) if each != member]
        subscriptions[1].owner = subscriptions[2].owner = others[0]
        assert owner_of_topic(rig.state, topic.name) == others[0]
    for each, owner in zip(subscriptions, (A, B, C, Member(9, 9)), strict=True):
        each.owner = owner
    assert owner_of_topic(rig.state, topic.name) == by_hash, "as many each; one is not present"


def test_only_the_owner_keeps_house(tmp_path: Path) -> None:
    asyncio.run(member_checks.only_the_owner_keeps_house(tmp_path))


def test_the_lowest_member_leads(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowded(tmp_path, me=B, others=(A, C)) as (broker, group):
            assert not broker.membership.leads
            assert broker.membership.leader is None
            group.enter(C)
            assert broker.membership.leads
            group.announce(C)
            assert not broker.membership.leads, "members that have announced themselves come first"
            assert broker.membership.leader == info_of(C)
            broker.membership.announce("here")
            await broker.settle()
            assert broker.membership.leads

    asyncio.run(main())


# -- announcing ----------------------------------------------------------------------------------------


def test_a_broker_announces_itself_until_it_is_known(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowded(tmp_path, others=(B,)) as (broker, group):
            assert not sent(group, MemberAnnounce), "only with facts"
            broker.membership.announce("here", url="pulsar://here:1")
            broker.membership.tend()
            await broker.settle()
            (event,) = sent(group, MemberAnnounce)
            assert (event.info.member, event.info.url) == (A, "pulsar://here:1")
            assert event.info.versions == {number: kind.version for number, kind in kinds().items()}
            group.enter(B, C)
            broker.membership.tend()
            await broker.settle()
            assert len(sent(group, MemberAnnounce)) == 1, "it is known: members keep it"
            broker.membership.announce("here", url="pulsar://here:2")
            await broker.settle()
            assert broker.membership.members()[0].url == "pulsar://here:2"
            group.announce(B)
            group.enter(C)
            assert [each.node for each in broker.membership.absent()] == [2]

    asyncio.run(main())


# -- options -------------------------------------------------------------------------------------------


def test_options_are_stored_as_they_are() -> None:
    rig = Rig()
    assert rig.do(OptionsSet({"a": 1, "b": 2.5}, first=True)) == Done()
    assert nothing_happens(rig, OptionsSet({"a": 7}, first=True)) == Done(changed=False)
    rig.do(OptionsSet({"a": 7, "c": True}, first=True))
    assert rig.state.decided.values == {"a": 1, "b": 2.5, "c": True}, "values that are set stay"
    rig.do(OptionsSet({"a": 7}))
    nothing_happens(rig, OptionsSet({"a": 7}))
    assert rig.state.decided.values == {"a": 7, "b": 2.5, "c": True}


def test_names_of_shared_options() -> None:
    own = BrokerOptions()
    assert all(hasattr(own, name) for name in DECIDING)
    assert {each.name for each in fields(LimitOptions)} <= set(DECIDING), (
        "limits are the same for all members"
    )
    protocol = {name for name in vars(StateLimits) if not name.startswith("_")}
    assert set(LIMITS) == protocol
    for bad, match in (
        ({"sync": True}, "'sync' is not an option of the cluster; there are: create_topics"),
        ({"roll_entries": -1}, "roll_entries is -1; use 0 to"),
        ({"roll_entries": 2.5}, "a whole number"),
        ({"retention_s": float("nan")}, "retention_s"),
        ({"limits.topics": True}, "limits.topics is true; use a whole number"),
        ({"limits.topics": -1}, "limits.topics is -1"),
        ({"limits.topics": "5"}, "limits.topics is '5'; use a whole number"),
        ({"roll_entries": "5"}, "roll_entries is '5'; use a whole number"),
        ({"backlog_action": "other"}, "backlog_action is 'other'; use 'producer_request_hold'"),
        ({"backlog_action": 1}, "backlog_action is 1; use 'producer_request_hold'"),
    ):
        with pytest.raises(Misuse, match=match):
            require_options(bad, own)


def test_the_first_member_brings_its_options(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowded(tmp_path, roll_entries=7, retention_s=60.0) as (broker, group):
            (event,) = sent(group, OptionsSet)
            assert event.first
            assert set(event.values) == set(DECIDING)
            assert broker.membership.shared()["roll_entries"] == 7
            quota = Quota(broker, Limits(topics=3))
            quota.start()
            await eventually(lambda: broker.membership.shared().get("limits.topics") == 3)
            quota.stop()

    asyncio.run(main())


def test_values_of_the_cluster_win(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rolling, limits and namespaces follow the state; a differing configuration is reported."""

    async def main() -> None:
        async with crowded(
            tmp_path, me=B, others=(A,), roll_entries=1000, require_namespaces=False, sync="os"
        ) as (broker, group):
            quota = Quota(broker, Limits(topics=100))
            quota.start()
            assert broker.decided is broker.options, "nothing is decided yet"
            assert not sent(group, OptionsSet), "another member leads"
            group.say(A, OptionsSet({"roll_entries": 2, "require_namespaces": True, "limits.topics": 2}))
            with caplog.at_level(logging.WARNING, "holdfast.cluster"):
                broker.membership.tend()
                broker.membership.tend()
            assert (broker.decided.roll_entries, broker.decided.sync) == (2, "os")
            assert broker.decided is broker.decided, "derived once"
            assert broker.membership.differing() == {
                "roll_entries": (2, 1000),
                "require_namespaces": (True, False),
                "limits.topics": (2, 100),
            }
            told = [record.getMessage() for record in caplog.records]
            assert len(told) == 3, "each difference once"
            assert "roll_entries = 1000, and the cluster 2, which applies" in told[1]
            with pytest.raises(Exception, match="no namespace"):
                await broker.admin.create_topic("no/where/x")
            with pytest.raises(Exception, match="no namespace"):
                await broker.admin.create_exchange("no/where/x")
            await broker.admin.create_topic("a")
            await broker.admin.create_topic("b")
            with pytest.raises(LimitReached, match="exceed the limit of 2"):
                await broker.admin.create_topic("c")
            await broker.membership.set_options({"limits.topics": 3})
            await broker.admin.create_topic("c")
            with pytest.raises(Misuse, match="roll_entries"):
                await broker.membership.set_options({"roll_entries": -5})
            await broker.membership.set_options({"limits.topics": 10, "deduplication": True})
            assert not broker.options.deduplication
            await broker.admin.create_topic("d")
            await broker.admin.create_exchange("e")
            state = broker.machine.state
            for name in ("d", "e"):
                topic = state.topics[state.names[topic_name(name)]]
                assert state.deduplicates(topic), name
            await broker.admin.create_tenant("t")
            await broker.admin.create_namespace("t/plain", deduplication=False)
            await broker.admin.create_exchange("t/plain/e")
            topic = state.topics[state.names[topic_name("t/plain/e")]]
            assert not state.deduplicates(topic), "its namespace comes before the options"
            await broker.membership.set_options({"backlog_action": "producer_exception"})
            assert broker.decided.backlog_action == "producer_exception"
            quota.stop()

    asyncio.run(main())


# -- versions ------------------------------------------------------------------------------------------


def test_the_version_that_all_know() -> None:
    with grown_kind() as grown:
        rig = with_members(A, B)
        assert agreed_version(rig.state, grown) == 1, "no facts: the base"
        rig.do(MemberAnnounce(info_of(A)), A)
        assert agreed_version(rig.state, grown) == 1
        rig.do(MemberAnnounce(info_of(B)), B)
        assert agreed_version(rig.state, grown) == 2
        newer = info_of(B)
        rig.do(MemberAnnounce(msgspec.structs.replace(newer, versions=newer.versions | {250: 9})), B)
        assert agreed_version(rig.state, grown) == 2, "not above the own program's"
        rig.enter(A, Member(2, 2))
        assert agreed_version(rig.state, grown) == 1, "another life may be another program"
        assert agreed_version(Machine().state, grown) == 2, "alone"
    with grown_kind(base_version=0) as grown:
        rig = with_members(A, B)
        with pytest.raises(Unsupported, match=r"member 1.1 has not announced itself, and may not know Grown"):
            require_version(rig.state, grown)
        with pytest.raises(Unannounced) as caught:
            require_version(rig.state, grown)
        assert refusal(caught.value).code == pb.ServiceNotReady, "clients retry while a member joins"
        answer = refusal_of(caught.value)
        assert answer is not None
        assert (answer.status, answer.headers) == (503, {"Retry-After": "1"})


def test_every_version_is_the_base_of_the_first_cluster() -> None:
    """Kinds that are added later have base 0; later versions keep their base."""
    later = {"PartitionsSet", "PartitionsDelete", "AutoCreationSet", "PartitionsSubscribe"}
    later |= {"PartitionsUnsubscribe", "SchemaDelete", "RedeliveryNote"}
    later |= {"BacklogCheck", "BacklogEvict", "SubscriptionExpire", "TopicQuiet", "TopicExpire", "UptimeTick"}
    later |= {"CompactionRequest", "CompactionBegin", "CompactionAppend", "CompactionDone"}
    later |= {"CompactionSettle", "CompactionDrop", "CompactionForget"}
    later |= {"PropertiesSet", "PermissionSet", "SubscriptionRolesSet", "SubscriptionAuthSet"}
    for kind in kinds().values():
        assert kind.base == (0 if kind.__name__ in later else kind.version), kind


def test_older_versions_are_the_leading_fields() -> None:
    with grown_kind() as grown:
        assert grown(3, 4).encode() == grown(3, 4).encode(2) == msgspec.msgpack.encode([3, 4])
        assert grown(3).encode(1) == msgspec.msgpack.encode([3])
        with pytest.raises(Unsupported, match="version 1 of Grown cannot carry its second"):
            grown(3, 4).encode(1)
    with pytest.raises(Unsupported, match="version 1 of TopicCreate cannot carry it"):
        TopicCreate("x", bytes(16)).encode(1)
    with pytest.raises(Misuse, match="name of TenantCreate must be text"):
        TenantCreate(name=5).encode()  # type: ignore[arg-type]


def test_events_are_sent_as_all_members_know_them(tmp_path: Path) -> None:
    asyncio.run(member_checks.events_are_sent_as_all_members_know_them(tmp_path))


# -- frames, figures -----------------------------------------------------------------------------------


def test_frames_fit_the_group(tmp_path: Path) -> None:
    assert LocalGroup().frame_bytes == 1 << 20
    assert CrowdedGroup().frame_bytes == 32 << 10

    asyncio.run(member_checks.frames_fit_the_group(tmp_path))


def test_figures(tmp_path: Path) -> None:
    async def main() -> None:
        async with crowded(tmp_path) as (broker, _):
            await broker.admin.create_topic("orders")
            await broker.admin.create_subscription("orders", "s")
            (subscription,) = list[Any](broker.machine.state.subscriptions.values())
            subscription.owner = A
            page = dict(
                line.rsplit(" ", 1)
                for line in broker.metrics().splitlines()
                if line.startswith("holdfast_cluster_")
            )
            label = '{cluster="standalone"}'
            assert page == {
                f"holdfast_cluster_members{label}": "3",
                f"holdfast_cluster_quorate{label}": "1",
                f"holdfast_cluster_view{label}": "1",
                f"holdfast_cluster_owned_subscriptions{label}": "1",
                f"holdfast_cluster_stable_lag_events{label}": "0",
                f"holdfast_cluster_lacking_topics{label}": "0",
            }

    asyncio.run(main())
