"""Unreplicated topics and exchanges: names for all, content in their node's log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.events import (
    ExchangeCreate,
    NamespaceCreate,
    NamespaceDelete,
    TenantDelete,
    TopicCreate,
    UnreplicatedSet,
)
from holdfast.broker.member_state import Place
from holdfast.errors import Busy, Closed, Exists, Misuse, NotFound
from holdfast.names import topic_name
from tests.kit.broker.brokers import on_broker
from tests.kit.broker.crowd import A, B, C, CrowdedGroup
from tests.kit.broker.events import ME, OTHER, Rig, nothing_happens, refused
from tests.kit.broker.member_checks import SMALL, crowded

ONLY = topic_name("only")
TOKEN = bytes(16)

# -- names ---------------------------------------------------------------------------------------------


def test_a_name_belongs_to_one_node() -> None:
    rig = Rig()
    rig.do(UnreplicatedSet(ONLY, OTHER.node), OTHER)
    assert rig.state.unreplicated.places == {ONLY: Place(OTHER.node)}
    assert not rig.do(UnreplicatedSet(ONLY, OTHER.node), OTHER).changed
    refused(rig, UnreplicatedSet(ONLY, ME.node), Exists, "exists already, unreplicated on node 2")
    refused(rig, UnreplicatedSet(ONLY, OTHER.node, True), Exists, "the topic .* exists", member=OTHER)
    refused(rig, TopicCreate(ONLY, TOKEN), Exists, "unreplicated on node 2; use another name")
    refused(rig, ExchangeCreate(ONLY, TOKEN, "fanout"), Exists, "unreplicated on node 2")
    nothing_happens(rig, UnreplicatedSet(ONLY, ME.node, gone=True))
    rig.do(UnreplicatedSet(ONLY, OTHER.node, gone=True))
    rig.do(TopicCreate(ONLY, TOKEN))
    refused(rig, UnreplicatedSet(ONLY, ME.node), Exists, "exists already, and is replicated")


def test_refused_names() -> None:
    rig = Rig()
    refused(rig, UnreplicatedSet("only", ME.node), Misuse, "say it in full")
    refused(rig, UnreplicatedSet(ONLY, OTHER.node), Misuse, "cannot name topics of node 2; only its own")
    there = topic_name("no/where/only")
    refused(rig, UnreplicatedSet(there, ME.node, managed=True), NotFound, "no/where")


def test_a_namespace_with_unreplicated_topics_stays() -> None:
    """Also by force: their content is in logs that this event does not reach."""
    rig = Rig()
    rig.do(NamespaceCreate("public/kept"))
    rig.do(UnreplicatedSet(topic_name("public/kept/only"), ME.node, managed=True))
    for event in (NamespaceDelete("public/kept", force=True), TenantDelete("public", force=True)):
        refused(rig, event, Busy, "public/kept has 1 unreplicated topic or exchange")


def test_members_have_one_state() -> None:
    """I49: other members, the journal redone, and a snapshot with the journal behind it."""
    rig = Rig()
    empty = rig.machine.digest()
    rig.do(UnreplicatedSet(ONLY, ME.node))
    snapshot, at = rig.machine.capture().parts, len(rig.journal)
    rig.do(UnreplicatedSet(topic_name("x"), OTHER.node, exchange=True), OTHER)
    digest = rig.machine.digest()
    assert digest != empty
    assert rig.twin().digest() == rig.restarted().digest() == rig.restarted(snapshot, at).digest() == digest
    assert rig.restarted().state.unreplicated.places[topic_name("x")] == Place(OTHER.node, True)


def test_a_name_in_both_is_damage() -> None:
    rig = Rig()
    rig.do(TopicCreate(ONLY, TOKEN))
    rig.state.unreplicated.places[ONLY] = Place(1)
    with pytest.raises(AssertionError, match="I245"):
        rig.machine.check()


# -- a member ------------------------------------------------------------------------------------------


@asynccontextmanager
async def member(path: Path, view_id: int = 1) -> AsyncIterator[tuple[Broker, Broker, CrowdedGroup]]:
    """Open both brokers of a member, whose others have told about themselves."""
    async with crowded(path / "common", view_id=view_id) as (broker, group):
        local = await Broker.start(path / "local", BrokerOptions(**SMALL, create_topics=False))
        try:
            group.announce(B, C)
            broker.membership.announce("here")
            broker.unreplicated.use(local)
            await broker.settle()
            yield broker, local, group
        finally:
            await local.close()


def test_a_member_has_two_logs(tmp_path: Path) -> None:
    async def work() -> None:
        async with member(tmp_path) as (broker, local, group):
            await broker.admin.create_topic("only", unreplicated=True, retention_bytes=-1)
            frames = len(group.frames)
            async with local.producer("only") as producer:
                await producer.send(b"kept here")
            assert len(group.frames) == frames, "I246: the cluster saw the message"
            assert (broker.admin.topics(), local.admin.topics()) == ([], [ONLY])
            assert broker.has_topic(ONLY)
            assert broker.unreplicated.broker_of(ONLY) is local
            assert broker.unreplicated.broker_of(topic_name("else")) is broker
            assert local.admin.policies("only").retention_bytes == -1
            with pytest.raises(Misuse, match="node 1 alone has it; look it up"):
                await broker.ensure_topic("only")
            with pytest.raises(Exists, match="unreplicated on node 1"):
                await broker.admin.create_topic("only", unreplicated=True)
        async with member(tmp_path, view_id=9) as (broker, local, _):
            assert local.admin.topic_stats("only").entries == 1
            assert local.admin.topic_stats("only").unreplicated
            assert broker.unreplicated.places() == {ONLY: Place(A.node)}
            await local.admin.delete_topic("only", force=True)
            await broker.unreplicated.settle()
            assert broker.unreplicated.places() == {}
            await broker.ensure_topic("only")

    asyncio.run(work())


def test_names_of_other_nodes(tmp_path: Path) -> None:
    """They are known, not served; a name of an absent node can be freed."""

    async def work() -> None:
        async with member(tmp_path) as (broker, _, group):
            group.say(B, UnreplicatedSet(ONLY, B.node))
            group.say(B, UnreplicatedSet(topic_name("x"), B.node, exchange=True))
            await broker.settle()
            unreplicated = broker.unreplicated
            assert unreplicated.broker_of(ONLY) is None
            assert unreplicated.served("public/default") == [ONLY]
            assert unreplicated.served("public/default", exchanges=True) == [topic_name("x")]
            with pytest.raises(Misuse, match="node 2 alone has it; delete it there"):
                await unreplicated.free(ONLY)
            with pytest.raises(Misuse, match="node 2 alone has it"):
                await broker.admin.delete_exchange("x")
            group.enter(C)
            await broker.settle()
            assert unreplicated.served("public/default") == []
            assert unreplicated.where(ONLY).endswith("node 2 alone has it, which is absent")
            await unreplicated.free(ONLY)
            with pytest.raises(NotFound, match="nothing was freed"):
                await unreplicated.free(ONLY)
            assert list(unreplicated.places()) == [topic_name("x")]

    asyncio.run(work())


def test_a_creation_that_the_local_log_refuses_frees_the_name(tmp_path: Path) -> None:
    async def work() -> None:
        async with member(tmp_path) as (broker, _, _):
            with pytest.raises(NotFound, match="there is no exchange"):
                await broker.admin.create_exchange("x", "fanout", alternate="missing", unreplicated=True)
            with pytest.raises(Misuse, match="no exchange of kind"):
                await broker.admin.create_exchange("x", "square", unreplicated=True)
            await broker.unreplicated.settle()
            assert broker.unreplicated.places() == {}

    asyncio.run(work())


def test_exchanges_bind_topics_of_their_own_log(tmp_path: Path) -> None:
    async def work() -> None:
        async with member(tmp_path) as (broker, local, _):
            await broker.admin.create_topic("common")
            await broker.admin.create_topic("only", unreplicated=True)
            await broker.admin.create_exchange("everywhere", "fanout")
            await broker.admin.create_exchange("here", "fanout", unreplicated=True)
            await local.admin.bind("here", "only")
            await broker.admin.bind("everywhere", "common")
            with pytest.raises(
                Misuse, match=r"everywhere is replicated, and .*only is unreplicated, on node 1"
            ):
                await broker.admin.bind("everywhere", "only")
            with pytest.raises(Misuse, match=r"here is unreplicated, on node 1, and .*common is not"):
                await local.admin.bind("here", "common")
            with pytest.raises(NotFound):
                await local.admin.bind("here", "nowhere")
            await local.admin.create_subscription("only", "s")
            for name in ("common", "everywhere"):  # they exist, in the other log
                with pytest.raises(Misuse, match=f"{name} is not unreplicated on node 1"):
                    await local.admin.move("only", "s", name)
            with pytest.raises(Misuse, match="everywhere is not unreplicated on node 1"):
                await local.admin.set_alternate("only", "everywhere")
            with pytest.raises(NotFound, match="there is no exchange"):
                await local.admin.set_alternate("only", "nowhere")
            async with local.producer("here") as producer:
                await producer.send(b"routed")
            assert local.admin.topic_stats("only").entries == 1
            assert local.admin.exchange_stats("here").unreplicated
            assert not broker.admin.exchange_stats("everywhere").unreplicated

    asyncio.run(work())


def test_a_broker_alone_has_none(tmp_path: Path) -> None:
    async def work(broker: Broker) -> None:
        with pytest.raises(Misuse, match="not a member of a cluster: none of its topics is replicated"):
            await broker.admin.create_topic("only", unreplicated=True)
        with pytest.raises(Misuse, match="not a member of a cluster"):
            await broker.admin.create_exchange("x", unreplicated=True)
        assert not broker.has_topic(ONLY)

    on_broker(tmp_path, work)


def test_a_member_whose_local_log_is_closed(tmp_path: Path) -> None:
    async def work() -> None:
        async with crowded(tmp_path) as (broker, _):
            with pytest.raises(Closed, match="its local log is not open"):
                await broker.admin.create_topic("only", unreplicated=True)

    asyncio.run(work())
