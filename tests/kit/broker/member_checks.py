"""Checks of a broker among members of a cluster, for tests and mutants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.events import (
    Context,
    Done,
    Event,
    LedgerRoll,
    MemberAnnounce,
    TenantCreate,
    base,
    decode,
)
from holdfast.broker.membership import owner_of_topic
from holdfast.broker.state import BrokerState
from holdfast.errors import Unsupported
from holdfast.group import Member
from holdfast.local.intake import Ingest
from holdfast.local.place import boot
from holdfast.names import INGEST, topic_name
from tests.kit.broker.crowd import A, B, C, CrowdedGroup, info_of
from tests.kit.broker.events import events_in

SMALL: dict[str, Any] = {"sync": "os", "journal_bytes": 1 << 16, "reserve_bytes": 1 << 16, "snapshot_s": 1e9}
KIND = 250
"""A kind that only tests have."""


@asynccontextmanager
async def crowded(
    path: Path, me: Member = A, others: tuple[Member, ...] = (B, C), view_id: int = 1, **options: Any
) -> AsyncIterator[tuple[Broker, CrowdedGroup]]:
    """Open a broker among members that exist only in its view."""
    group = CrowdedGroup(me, others, view_id)
    broker = await Broker.start(path, BrokerOptions(**{**SMALL, **options}), group=group)
    try:
        await broker.settle()  # the view
        await broker.settle()  # what the broker has submitted because of it
        yield broker, group
    finally:
        await broker.close()


def sent(group: CrowdedGroup, kind: type[Event]) -> list[Any]:
    """Return the events of a kind that the real member has sent."""
    found = (row for frame in group.frames for row in events_in(frame))
    return [decode(*row) for row in found if row[0] == kind.kind]


@contextmanager
def grown_kind(base_version: int = 1) -> Iterator[Any]:
    """Register a kind whose second version has a field more, for a while."""
    with mock.patch.dict(base._kinds), mock.patch.dict(base._decoders):

        @base.event(KIND, version=2, base=base_version, older=(1,))
        class Grown(Event, frozen=True):
            """An event that has grown."""

            first: int
            second: int = 0

            def apply(self, state: BrokerState, context: Context) -> Done:
                return Done(changed=False)

        yield Grown


async def events_are_sent_as_all_members_know_them(path: Path) -> None:
    """A member of an older program gets the fields that it knows, or nothing."""
    with grown_kind() as grown:
        async with crowded(path) as (broker, group):
            old = info_of(B, program="0.9")
            group.announce(C)
            group.say(B, MemberAnnounce(msgspec.structs.replace(old, versions=old.versions | {KIND: 1})))
            broker.membership.announce("here")
            await broker.settle()
            await broker.engine.submit(grown(7))
            rows = [row for frame in group.frames for row in events_in(frame) if row[0] == KIND]
            assert rows == [(KIND, 1, msgspec.msgpack.encode([7]))], "a version that B does not know"
            with pytest.raises(Unsupported, match=r"version 1 of Grown cannot carry its second; update"):
                broker.engine.submit(grown(7, 8))
            del old.versions[KIND]
            group.say(B, MemberAnnounce(old))
            with pytest.raises(Unsupported, match=r"member 2.1 \(node2\) runs holdfast 0.9.*Grown; update"):
                broker.engine.submit(grown(7))
            group.enter(C)
            await broker.engine.submit(grown(7, 8))


async def only_the_owner_keeps_house(path: Path) -> None:
    """Each topic is full; this member seals the ledgers of those that it owns."""
    async with crowded(path, roll_entries=2) as (broker, group):
        names = [topic_name(f"topic{number}") for number in range(12)]
        for name in names:
            async with broker.producer(name) as producer:
                for _ in range(3):
                    await producer.send(b"x")
        await broker.settle()
        state = broker.machine.state
        owned = {name for name in names if owner_of_topic(state, name) == A}
        assert 0 < len(owned) < len(names)
        sealed = {state.topics[each.topic].name for each in sent(group, LedgerRoll)}
        assert sealed == owned, "a topic that another member owns, or none of the own ones"


async def frames_fit_the_group(path: Path) -> None:
    """Many events of one turn are sent in frames of about the group's size."""
    async with crowded(path) as (broker, group):
        before = len(group.frames)
        await asyncio.gather(
            *(broker.engine.submit(TenantCreate(f"{number}", ["r" * 900])) for number in range(100))
        )
        sizes = [len(frame) for frame in group.frames[before:]]
        assert max(sizes) < (32 << 10) + 2000
        assert len(sizes) in (3, 4)


async def identities_of_others_stay(path: Path, runtime: Path) -> None:
    """Local ingest forgets positions of its own node's earlier boots, and no others."""
    names = {
        "own, earlier": f"{INGEST}n2.00000000.a",
        "own, this boot": f"{INGEST}n2.{boot()}.b",
        "another node's": f"{INGEST}n1.00000000.c",
        "of a broker alone": f"{INGEST}00000000.d",
        "not of ingest": "n2.00000000.e",
    }
    async with crowded(path, me=B, others=(A,)) as (broker, _):
        await broker.admin.create_topic("orders", deduplication=True)
        topic = broker.topic(topic_name("orders"))
        for name in names.values():
            opened = await broker.sessions.open_producer(topic, name)
            await broker.publish_entries(topic, opened.session, opened.epoch, name, [(5, 1, b"x")])
            await broker.sessions.close_producer(opened.session)
        assert set(broker.producers_known(topic)) == set(names.values())
        async with Ingest(broker, path, directory=runtime):
            await broker.settle()
            await asyncio.sleep(0)
        left = set(broker.producers_known(topic))
        gone = sorted(set(names.values()) - left)
        assert gone == [names["own, earlier"]], f"forgotten: {gone}"
