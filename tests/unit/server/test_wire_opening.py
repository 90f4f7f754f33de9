"""Clients that open while their topic is deleted, or while their grant ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from holdfast.errors import Denied
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server import ServerOptions
from holdfast.server.pulsar.rechecking import recheck
from holdfast.server.registry import versions
from tests.kit.server.http_world import HttpWorld
from tests.kit.server.schema_checks import ONE
from tests.kit.server.wire_raw import Raw, Type, full

SCHEMA = {"name": "s", "type": ONE.type, "schema_data": ONE.schema_data}
revoked: set[str] = set()
"""Subscriptions that their role may not use any more."""


def authorize(role: str, action: str, name: str, subscription: str = "") -> None:
    if subscription in revoked:
        raise Denied(f"{subscription} is not for {role!r}")


@pytest.fixture(scope="module")
def world() -> Iterator[HttpWorld]:
    with HttpWorld(wire=ServerOptions(port=0, authorize=authorize)) as found:
        yield found


@pytest.fixture
def raw(world: HttpWorld) -> Iterator[Raw]:
    assert world.wire is not None
    with closing(Raw(f"pulsar://127.0.0.1:{world.wire.port}")) as found:
        yield found


def after(
    monkeypatch: pytest.MonkeyPatch, name: str, once: Callable[..., Awaitable[None]]
) -> list[Callable[..., Awaitable[None]]]:
    """Let something happen after the first call of a function of the registry."""
    real, left = getattr(versions, name), [once]

    async def wrapped(*arguments: Any, **options: Any) -> Any:
        found = await real(*arguments, **options)
        if left:
            await left.pop()(*arguments)
        return found

    monkeypatch.setattr(versions, name, wrapped)
    return left


@pytest.mark.parametrize("moment", ["compare", "admit_producer"])
def test_a_producer_has_all_of_it_on_a_new_topic(
    world: HttpWorld, raw: Raw, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """The topic is deleted while its producer opens; the new one has the schema, too."""

    async def delete(*arguments: Any) -> None:
        await world.broker.admin.delete_topic(arguments[1].name, force=True)

    left = after(monkeypatch, moment, delete)
    name = f"deleted-after-{moment}"
    found = raw.produce(name, schema=SCHEMA, initial_subscription_name="first")
    topic = world.broker.topic(full(name))
    assert not left
    assert (found.schema_version, len(topic.schemas), [*topic.subscriptions]) == (bytes(8), 1, ["first"])


def test_a_producer_that_asks_again_has_its_version(raw: Raw) -> None:
    answers = [raw.produce("again", schema=SCHEMA).schema_version for _ in range(2)]
    assert answers == [bytes(8)] * 2


@pytest.mark.parametrize("durable", [True, False])
def test_a_grant_that_ends_while_a_consumer_joins(
    world: HttpWorld, raw: Raw, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """A look at those that have joined does not find this one yet."""
    name = f"revoked-{durable}"

    async def revoke(*arguments: Any) -> None:
        assert world.wire is not None
        revoked.add(name)
        assert recheck(world.wire, "public/default") == 0

    after(monkeypatch, "admit_consumer", revoke)
    fields: dict[str, Any] = {"consumer_id": 1, "subType": 0, "durable": durable}
    raw.tell(Type.SUBSCRIBE, request_id=7, topic=full(name), subscription=name, schema=SCHEMA, **fields)
    answer = raw.expect(Type.ERROR)
    assert (answer.request_id, answer.error) == (7, pb.AuthorizationError)
    assert world.wire is not None
    assert not world.wire.attached
