"""Checks of the limits on durable state that clients create, over each protocol (I90)."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import http.client
import json
from collections.abc import Callable
from typing import Any

from holdfast._core import encode_messages
from holdfast.broker.events import SchemaAdd, SubscriptionCreate
from holdfast.errors import LimitReached
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.config import Limits
from tests.kit.server.cost_world import CostWorld
from tests.kit.server.definitions import definition
from tests.kit.server.wire_raw import Raw, Type, full


class Clients:
    """One client of each protocol."""

    def __init__(self, world: CostWorld) -> None:
        self.world = world
        self.raw: Raw = world.raw()

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Return status and reason of a request over HTTP."""
        link = http.client.HTTPConnection("127.0.0.1", self.world.http.port or 0, timeout=10)
        link.request(method, f"/admin/v2/{path}", None if body is None else json.dumps(body))
        answer = link.getresponse()
        text = answer.read().decode()
        link.close()
        return answer.status, text

    def told(self, kind: int, success: int, **fields: Any) -> str:
        """Return the error of a request; empty: it succeeded."""
        self.raw.tell(kind, request_id=77, **fields)
        got, message = self.raw.hear()
        if got == success and not getattr(message, "error_message", ""):
            return ""
        assert (getattr(message, "error", None) or message.error_code) == pb.NotAllowedError, message
        return str(getattr(message, "message", "") or message.error_message)

    # -- one more of each kind -------------------------------------------------------------------------

    def topic(self, number: int) -> str:
        return self.told(Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=full(f"t{number}"), producer_id=number)

    def topic_by_http(self, number: int) -> str:
        status, text = self.ask("PUT", f"persistent/public/default/h{number}")
        assert status in (204, 412)
        return text

    def subscription(self, number: int, **more: Any) -> str:
        fields = {"subType": 0, "subscription": f"s{number}", **more}
        return self.told(Type.SUBSCRIBE, Type.SUCCESS, topic=full("t"), consumer_id=number, **fields)

    def subscription_by_http(self, number: int) -> str:
        status, text = self.ask("PUT", f"persistent/public/default/t/subscription/h{number}")
        assert status in (204, 412)
        return text

    def initial_subscription(self, number: int) -> str:
        """Create a subscription with a producer."""
        more = {"initial_subscription_name": f"i{number}"}
        return self.told(
            Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=full("t"), producer_id=100 + number, **more
        )

    def schema(self, number: int, size: int = 40) -> str:
        schema = {"name": f"{number}", "type": 2, "schema_data": definition(size, f"{number}")}
        kind, answer = Type.GET_OR_CREATE_SCHEMA, Type.GET_OR_CREATE_SCHEMA_RESPONSE
        return self.told(kind, answer, topic=full("t"), schema=schema)

    def namespace(self, number: int) -> str:
        status, text = self.ask("PUT", f"namespaces/public/n{number}")
        assert status in (204, 412)
        return text

    def tenant(self, number: int, roles: tuple[str, ...] = ()) -> str:
        status, text = self.ask("PUT", f"tenants/t{number}", {"adminRoles": roles})
        assert status in (204, 412)
        return text

    def passing_partition(self, number: int) -> str:
        """Create a non-persistent topic with a partition, or one partition more."""
        path, method = "non-persistent/public/default/p0/partitions", "POST" if number == 1 else "PUT"
        status, text = self.ask(method, path.replace("p0", f"p{number * (number > 1)}"), 1 + (number == 1))
        assert status in (204, 412)
        return text

    def stage(self, number: int) -> str:
        return self.told(Type.STAGE_OPEN, Type.SUCCESS, stage=number.to_bytes(16, "big"))

    def sink(self, number: int) -> str:
        return self.told(Type.SINK_COMMIT, Type.SINK_COMMITTED, key=f"k{number}", batch=1)


COUNTS: list[tuple[str, Callable[[Clients, int], str], int]] = [
    ("topics", Clients.topic, 0),
    ("topics", Clients.topic_by_http, 0),
    ("topics", Clients.passing_partition, 0),
    ("subscriptions", Clients.subscription, 0),
    ("subscriptions", Clients.subscription_by_http, 0),
    ("subscriptions", Clients.initial_subscription, 0),
    ("subscriptions_per_topic", Clients.subscription, 0),
    ("subscriptions_per_topic", Clients.subscription_by_http, 0),
    ("schemas_per_topic", Clients.schema, 0),
    ("namespaces", Clients.namespace, 2),
    ("namespaces", Clients.tenant, 2),
    ("stages", Clients.stage, 0),
    ("sinks", Clients.sink, 0),
]
"""Setting, how to create one more, how many exist at the start."""


def so_many_and_no_more(setting: str, make: Callable[[Clients, int], str], there: int) -> None:
    topics = [] if setting == "topics" else ["t"]
    with CostWorld(limits=dataclasses.replace(Limits(), **{setting: 3 + there})) as world:
        world.run(world.create(topics))
        clients = Clients(world)
        made = [make(clients, number) for number in range(5)]
        assert made[:3] == ["", "", ""], made
        assert all(f"limits.{setting}" in each for each in made[3:]), made


def what_is_deleted_makes_room() -> None:
    with CostWorld(limits=Limits(topics=2, subscriptions=1, metadata_bytes=2000)) as world:
        clients = Clients(world)
        for _ in range(20):
            assert clients.topic_by_http(1) == ""
            assert clients.ask("PUT", "persistent/public/default/h1/subscription/s")[0] == 204
            assert clients.topic_by_http(2) == ""
            assert "limits.topics" in clients.topic_by_http(3)
            assert clients.ask("DELETE", "persistent/public/default/h1?force=true")[0] == 204
            assert clients.ask("DELETE", "persistent/public/default/h2?force=true")[0] == 204


def what_is_deleted_makes_room_on_a_busy_server() -> None:
    """Requests are under way all the time, so that nothing is ever counted anew."""
    with CostWorld(limits=Limits(topics=3)) as world:
        quota: Any = world.broker.engine.guard
        quota.__self__._topics.take("a slow one")
        clients, force = Clients(world), "?force=true"
        for _ in range(10):
            assert clients.topic_by_http(1) == clients.topic_by_http(2) == ""
            assert "there are 3 topics" in clients.topic_by_http(3)
            for number in (1, 2):
                assert clients.ask("DELETE", f"persistent/public/default/h{number}{force}")[0] == 204


def what_is_deleted_is_not_held() -> None:
    """The count of schemas once kept the schemas of up to a thousand deleted topics."""
    mark = b"a schema that nothing else has"

    def held() -> int:
        gc.collect()
        lists = [each for each in gc.get_objects() if type(each) is list and len(each) == 1]
        return sum(type(each[0]) is bytes and mark in each[0] for each in lists)

    with CostWorld(limits=Limits()) as world:
        clients = Clients(world)
        for number in range(2):
            assert clients.topic_by_http(0) == ""
            schema = pb.Schema(
                name="t", type=pb.Schema.Json, schema_data=definition(100, f"{mark.decode()} {number}")
            )
            answer = Type.GET_OR_CREATE_SCHEMA_RESPONSE
            assert clients.told(Type.GET_OR_CREATE_SCHEMA, answer, topic=full("h0"), schema=schema) == ""
            assert number or held() >= 1
            assert clients.ask("DELETE", "persistent/public/default/h0?force=true")[0] == 204
        assert held() == 0


def many_at_once_are_counted_exactly() -> None:
    """Requests under way count; those that fail, or find an existing object, do not."""
    with CostWorld(limits=Limits(topics=10)) as world:
        raw = world.raw()
        for number in range(30):
            raw.tell(Type.PRODUCER, topic=full(f"t{number // 2}"), producer_id=number, request_id=number)
        heard = [raw.hear()[0] for _ in range(30)]
        assert heard.count(Type.PRODUCER_SUCCESS) == 20
        assert len(world.broker.topics) == 10


def many_at_once_are_counted_for_their_topic(setting: str) -> None:
    """Requests under way count for their topic, too; the same one twice counts once."""
    limits: dict[str, Any] = {setting: 3}
    with CostWorld(limits=Limits(**limits)) as world:
        world.run(world.create(["t", "u"]))
        state = world.broker.machine.state

        async def at_once(topic: str) -> list[Any]:
            id_ = world.broker.topic(full(topic)).state.id
            events: list[Any] = []
            for number in range(10):
                name = f"s{number // 2}"
                schema = setting == "schemas_per_topic"
                events.append(SchemaAdd(id_, name.encode()) if schema else SubscriptionCreate(id_, name, 0))
            told, refused = [], []
            for event in events:  # in one turn of the loop
                try:
                    told.append(world.broker.engine.submit(event))
                except LimitReached as error:
                    refused.append(str(error))
            assert all(f"limits.{setting}" in each for each in refused)
            await asyncio.gather(*told, return_exceptions=True)
            topic_state = state.topics[id_]
            return [len(told), len(topic_state.subscriptions) + len(topic_state.schemas)]

        for topic in ("t", "u"):
            assert world.run(at_once(topic)) == [6, 3]


def properties_and_schemas_have_a_size() -> None:
    limits = Limits(properties_bytes=1000, schema_bytes=1000)
    with CostWorld(limits=limits, properties_bytes=1000) as world:
        world.run(world.create(["t"]))
        clients = Clients(world)
        large = [{"key": "k", "value": "v" * 1000}]
        small = [{"key": "k", "value": "v" * 900}]
        assert "limits.properties_bytes" in clients.subscription(1, subscription_properties=large)
        assert "limits.properties_bytes" in clients.subscription(1, metadata=large)
        assert clients.subscription(1, metadata=small, subscription_properties=small) == ""
        more: dict[str, Any] = {"topic": full("t"), "producer_id": 1, "metadata": large}
        told = clients.told(Type.PRODUCER, Type.PRODUCER_SUCCESS, **more)
        assert "limits.properties_bytes" in told
        assert "limits.schema_bytes" in clients.schema(1, size=1000)
        assert clients.schema(1, size=900) == ""
        assert "limits.properties_bytes" in clients.tenant(1, roles=("r" * 250,) * 5)
        assert clients.tenant(1, roles=("r" * 250,) * 3) == ""
        key = {"key": "k" * 2000, "batch": 1}
        assert "sink's key" in clients.told(Type.SINK_COMMIT, Type.SINK_COMMITTED, **key)


def names_properties_and_schemas_have_a_limit_in_all() -> None:
    with CostWorld(limits=Limits(metadata_bytes=5000)) as world:
        world.run(world.create(["t"]))
        clients = Clients(world)
        assert clients.schema(1, size=2000) == ""
        assert clients.schema(1, size=2000) == ""  # the same again takes no room
        large = [{"key": "k", "value": "v" * 2000}]
        assert clients.subscription(1, subscription_properties=large) == ""
        assert "limits.metadata_bytes" in clients.schema(2, size=2000)
        assert "limits.metadata_bytes" in clients.subscription(2, subscription_properties=large)
        name = "n" * 1000
        assert "limits.metadata_bytes" in clients.ask("PUT", f"persistent/public/default/{name}")[1]
        assert clients.ask("DELETE", "persistent/public/default/t?force=true")[0] == 204
        assert clients.ask("PUT", f"persistent/public/default/{name}")[0] == 204


def properties_at_once_are_counted_together() -> None:
    """So many requests succeed as have room together, not each by itself."""
    with CostWorld(limits=Limits(properties_bytes=3500)) as world:
        world.run(world.create(["t"]))
        admin = world.broker.admin

        async def at_once() -> list[Any]:
            calls = (admin.set_topic_properties("t", {f"k{at}": "v" * 1000}) for at in range(20))
            return await asyncio.gather(*calls, return_exceptions=True)

        refused = [each for each in world.run(at_once()) if isinstance(each, LimitReached)]
        assert (len(refused), len(admin.topic_properties("t"))) == (17, 3)
        world.run(admin.set_topic_properties("t", {"k": "v"}, ["k0", "k1", "k2"]))
        world.run(admin.set_topic_properties("t", {"k0": "v" * 3000}))
        assert world.broker.quota is not None
        assert not world.broker.quota._coming


def what_is_removed_needs_no_room() -> None:
    """Grants are revoked, and properties removed, also where the limit is exceeded."""
    with CostWorld(limits=Limits(metadata_bytes=5000)) as world:
        world.run(world.create(["t"]))
        admin = world.broker.admin
        world.run(admin.permit("public/default", "shop", ["produce"]))
        world.run(admin.set_subscription_roles("public/default", "audit", ["boss", "shop"]))
        world.run(admin.set_topic_properties("t", {"k": "v" * 2000}))
        topics = map(Clients(world).topic_by_http, range(1000))
        assert "limits.metadata_bytes" in next(filter(None, topics))
        assert world.broker.quota is not None
        world.broker.quota._own = Limits(metadata_bytes=100, properties_bytes=100)
        world.run(admin.permit("public/default", "shop", []))
        world.run(admin.drop_subscription_role("public/default", "audit", "shop"))
        world.run(admin.set_topic_properties("t", {}, ["k"]))
        assert admin.permissions("public/default") == {}
        assert admin.subscription_roles("public/default") == {"audit": ["boss"]}
        assert admin.topic_properties("t") == {}


def a_restart_counts_what_is_there() -> None:
    with CostWorld(topics=5, limits=Limits(topics=5)) as world:
        assert "limits.topics" in Clients(world).topic_by_http(1)


# -- masks of acknowledgements -------------------------------------------------------------------------


def batches(raw: Raw, topic: str, sizes: list[int]) -> list[Any]:
    """Publish batches of these sizes, and receive them; return their ids."""
    raw.produce(topic)
    raw.subscribe(topic, sub_type=1)
    for number, size in enumerate(sizes):
        entry = encode_messages([b"m"] * size, "raw", number, 1, batch=size)[0]
        raw.tell(Type.SEND, entry, producer_id=1, sequence_id=number, num_messages=size)
        raw.expect(Type.SEND_RECEIPT)
    raw.flow(sum(sizes))
    return [each.message_id for each in raw.messages(len(sizes))]


def acknowledge(raw: Raw, id: Any, words: list[int], request: int = 5) -> Any:  # noqa: A002
    """Acknowledge a part of a batch; return the answer."""
    raw.ack(part_of(id, words), request=request)
    answer = raw.expect(Type.ACK_RESPONSE)
    assert not answer.HasField("error"), answer
    return answer


def part_of(id: Any, words: list[int]) -> Any:  # noqa: A002
    return pb.MessageIdData(ledgerId=id.ledgerId, entryId=id.entryId, ack_set=words)


def acks_of(world: CostWorld, topic: str) -> Any:
    return world.broker.topic(full(topic)).state.subscriptions["s"].acks


def a_false_mask_is_not_kept(size: int) -> None:
    """A long mask for a small batch is stored as long as the batch."""
    with CostWorld() as world:
        raw = world.raw()
        ids = batches(raw, "t", [size] * 3)
        before = world.broker.store.stats().journal_bytes
        for number, each in enumerate(ids):
            acknowledge(raw, each, [(1 << 63) - 2, *[(1 << 63) - 1] * 80_000], number)
        _, _, kept = acks_of(world, "t").pack()
        assert sum(len(mask) for _, mask in kept) <= 3 * (size // 8 + 1)
        assert world.broker.store.stats().journal_bytes - before < 50_000
        if size > 1:
            assert {mask[0] & 1 for _, mask in kept} == {0}  # the first message of each is acknowledged
        else:
            assert acks_of(world, "t").count(3) == 0


def a_true_mask_of_a_large_batch_is_kept() -> None:
    with CostWorld() as world:
        raw = world.raw()
        (batch,) = batches(raw, "t", [5000])
        words = [(1 << 63) - 2, *[-1] * 77, 0xFF]
        acknowledge(raw, batch, words)
        ((_, mask),) = acks_of(world, "t").pack()[2]
        assert int.from_bytes(mask, "little").bit_count() == 62 + 77 * 64 + 8
        acknowledge(raw, batch, [])
        assert acks_of(world, "t").count(1) == 0


def every_mask_of_a_confirmed_request_counts() -> None:
    """A client with large batches acknowledges parts of many of them at once."""
    with CostWorld() as world:
        raw = world.raw()
        ids = batches(raw, "t", [2000] * 12)
        words = [-2, *[-1] * 30, 0xFFFF]
        raw.ack(*(part_of(each, words) for each in ids), request=5)
        raw.ack(*(part_of(each, [-4, *words[1:]]) for each in ids), request=6)
        for request in (5, 6):
            answer = raw.expect(Type.ACK_RESPONSE)
            assert (answer.request_id, answer.HasField("error")) == (request, False)
        kept = acks_of(world, "t").pack()[2]
        assert [int.from_bytes(mask, "little").bit_count() for _, mask in kept] == [1998] * 12
        raw.tell(Type.PING)
        raw.expect(Type.PONG)  # it is read again


def a_seek_with_a_false_mask_keeps_nothing() -> None:
    with CostWorld() as world:
        raw = world.raw()
        (batch,) = batches(raw, "t", [10])
        to = pb.MessageIdData(ledgerId=batch.ledgerId, entryId=batch.entryId, ack_set=[-2, *[-1] * 80_000])
        raw.ask(Type.SEEK, consumer_id=1, message_id=to)
        ((_, mask),) = acks_of(world, "t").pack()[2]
        assert int.from_bytes(mask, "little") == 0b1111111110


def so_many_batches_are_acknowledged_in_part() -> None:
    """Beyond that number parts are refused, and the whole batch is acknowledged or redelivered."""
    with CostWorld(partial_batches=2) as world:
        raw = world.raw()
        ids = batches(raw, "t", [3, 3, 3, 2000])
        for number, each in enumerate(ids[:2]):
            acknowledge(raw, each, [0b110], number)
        for id, words in ((ids[2], [0b110]), (ids[3], [-2, *[-1] * 30, 0xFFFF])):  # noqa: A001
            raw.ack(part_of(id, words), request=5)
            answer = raw.expect(Type.ACK_RESPONSE)
            assert answer.error == pb.NotAllowedError
            assert "limits.partial_batches" in answer.message
        acks = acks_of(world, "t")
        assert (acks.partial_count, acks.count(3)) == (2, 3)
        acknowledge(raw, ids[2], [])
        assert acks.count(3) == 2


def every_limit_of_the_settings_is_tried() -> None:
    """Each kind of durable state has a row above, or a test of its own."""
    durable = {name for name, _, _ in COUNTS}
    durable |= {"properties_bytes", "schema_bytes", "metadata_bytes", "partial_batches"}
    others = {
        *("message_bytes", "connections", "connections_per_address", "unauthenticated_s"),
        *("requests_in_flight", "producers_per_connection", "consumers_per_connection"),
        *("watchers_per_connection", "held_bytes", "frame_s", "keepalive_s", "liveness_s", "volatile_s"),
        *("write_bytes", "http_body_bytes", "http_requests", "shutdown_s"),
    }
    assert {each.name for each in dataclasses.fields(Limits)} == durable | others
