"""Identities of local ingest in a cluster carry the node."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from holdfast import Producer
from holdfast.local.intake import Ingest
from holdfast.local.place import boot
from holdfast.names import INGEST, topic_name
from tests.kit.broker import member_checks
from tests.kit.broker.crowd import A, B
from tests.kit.broker.member_checks import crowded


def test_identities_of_others_stay(data: Path, runtime_directory: Path) -> None:
    asyncio.run(member_checks.identities_of_others_stay(data, runtime_directory))


def test_names_carry_the_node(data: Path, runtime_directory: Path) -> None:
    def put(*messages: bytes) -> None:
        with Producer("orders", directory=str(runtime_directory)) as producer:
            for each in messages:
                producer.put(each)

    async def main(*messages: bytes) -> set[str]:
        async with crowded(data, me=B, others=(A,)) as (broker, _), Ingest(broker, data):
            await asyncio.to_thread(put, *messages)
            stored = await broker.admin.examine("orders", count=9)
            assert [each.data for each in stored][-len(messages) :] == list(messages)
            return set(broker.producers_known(broker.topic(topic_name("orders"))))

    names = asyncio.run(main(b"1", b"2"))
    assert {name.rpartition(".")[0] for name in names} == {f"{INGEST}n2.{boot()}"}


def test_members_of_one_machine_serve_side_by_side(data: Path, runtime_directory: Path) -> None:
    """Members share the incarnation of their directory: one is a copy of the other."""
    other = data.with_name("other")

    def put(where: Path) -> None:
        with Producer("orders", data=str(where), directory=str(runtime_directory)) as producer:
            producer.put(where.name.encode())

    async def main() -> list[bytes]:
        async with crowded(data) as (broker, _):
            await broker.admin.create_topic("orders")
        shutil.copytree(data, other)
        async with (
            crowded(data, view_id=2) as (first, _),
            crowded(other, me=B, others=(A,), view_id=2) as (second, _),
            Ingest(first, data),
            Ingest(second, other),
        ):
            assert first.incarnation == second.incarnation
            await asyncio.to_thread(put, data)
            await asyncio.to_thread(put, other)
            stored = [await broker.admin.examine("orders", count=9) for broker in (first, second)]
            return [each.data for messages in stored for each in messages]

    assert asyncio.run(main()) == [b"data", b"other"]
