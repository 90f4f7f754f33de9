"""Checks of expensive commands: carried out in slices, once, or not at all (I89)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from holdfast._core import encode_messages
from holdfast.broker.dispatch.dispatcher import Dispatcher
from holdfast.broker.topic import Topic
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pace import Appetite
from holdfast.server.pulsar import delivery as sink
from holdfast.server.pulsar import extensions
from holdfast.server.pulsar.connection import TURN_ITEMS, Connection
from holdfast.server.pulsar.delivery import WireConsumer
from holdfast.server.steps import Steps
from tests.kit.server.cost_checks import until
from tests.kit.server.cost_world import STEP_INSTRUCTIONS, CostWorld, steps_of
from tests.kit.server.wire_raw import Raw, Type, frame_of, full


def filled(world: CostWorld, count: int) -> tuple[Raw, list[Any]]:
    """Return a client with a Shared consumer that holds `count` messages, and their ids."""

    async def fill() -> None:
        async with world.broker.producer("t") as producer:
            await producer.send_many([b"x"] * count)

    world.run(fill())
    raw = world.raw()
    raw.subscribe("t", sub_type=1)
    raw.flow(count)
    return raw, [each.message_id for each in raw.messages(count)]


def many_ids_are_redelivered_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    slices: list[int] = []
    real = WireConsumer._redeliver

    def noted(self: WireConsumer, ids: Any) -> None:
        slices.append(len(ids))
        real(self, ids)

    monkeypatch.setattr(sink, "SLICE_IDS", 10)
    monkeypatch.setattr(WireConsumer, "_redeliver", noted)
    with CostWorld() as world:
        raw, ids = filled(world, 35)
        kind = Type.REDELIVER_UNACKNOWLEDGED_MESSAGES
        raw.socket.sendall(
            frame_of(kind, consumer_id=1, message_ids=ids)
            + frame_of(Type.FLOW, consumer_id=1, messagePermits=35)
        )
        again = [each.message_id.entryId for each in raw.messages(35)]
        assert sorted(again) == [each.entryId for each in ids]
        assert slices == [10, 10, 10, 5]
        raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=full("t"))  # the connection is read again


def many_parts_are_acknowledged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "SLICE_IDS", 10)
    slices: list[int] = []
    real = WireConsumer._ack_parts

    def noted(self: WireConsumer, parts: Any, *more: Any) -> Any:
        slices.append(len(parts))
        return real(self, parts, *more)

    monkeypatch.setattr(WireConsumer, "_ack_parts", noted)
    with CostWorld() as world:
        raw, ids = filled(world, 35)
        parts = [pb.MessageIdData(ledgerId=each.ledgerId, entryId=each.entryId, ack_set=[6]) for each in ids]
        raw.ack(*parts, request=5)
        assert not raw.expect(Type.ACK_RESPONSE).HasField("error")
        assert slices == [10, 10, 10, 5]
        assert world.broker.topic(full("t")).state.subscriptions["s"].acks.partial_count == 35


def acknowledgements_are_taken_a_few_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of ACKs with receipts, each turn of the loop carries out a few."""
    count, per_turn = 2000, list[int]()
    real = Connection._take

    def take(self: Connection, data: Any) -> None:
        before = acked[0]
        real(self, data)
        per_turn.append(acked[0] - before)

    acked = [0]
    with CostWorld() as world:
        raw, ids = filled(world, 10)
        real_acked = WireConsumer.acked

        def counted(self: WireConsumer, *arguments: Any) -> None:
            acked[0] += 1
            real_acked(self, *arguments)

        monkeypatch.setattr(WireConsumer, "acked", counted)
        monkeypatch.setattr(Connection, "_take", take)
        fields: dict[str, Any] = {"consumer_id": 1, "ack_type": 0, "message_id": ids[:1]}
        frames = [frame_of(Type.ACK, request_id=number, **fields) for number in range(count)]
        raw.socket.sendall(b"".join(frames))
        for number in range(count):
            assert raw.expect(Type.ACK_RESPONSE).request_id == number
        assert sum(per_turn) == count
        assert max(per_turn) == TURN_ITEMS


def many_entries_are_acknowledged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledge every second of many entries: other work has turns in between."""
    monkeypatch.setattr(sink, "SLICE_IDS", 10)
    sizes: list[int] = []
    real = Dispatcher.ack_ranges

    def noted(self: Dispatcher, ranges: Any, number: int, receipt: bool = False) -> Any:
        sizes.append(len(ranges))
        return real(self, ranges, number, receipt)

    monkeypatch.setattr(Dispatcher, "ack_ranges", noted)
    with CostWorld() as world:
        raw, ids = filled(world, 90)
        raw.ack(*ids[::2], request=1)
        assert not raw.expect(Type.ACK_RESPONSE).HasField("error")
        assert sizes == [10, 10, 10, 10, 5]
        raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
        raw.flow(100)
        left = [each.message_id.entryId for each in raw.messages(45)]
        assert sorted(left) == [each.entryId for each in ids[1::2]]


def a_command_that_is_too_large_costs_its_connection(kind: int, fields: dict[str, Any]) -> None:
    with CostWorld() as world:
        raw = world.raw()
        raw.tell(kind, request_id=1, **fields)
        ((answer, error),) = raw.closed()
        assert (answer, error.error) == (Type.ERROR, pb.NotAllowedError)
        assert "are allowed" in error.message


def what_a_sink_sends_is_judged_in_small_steps() -> None:
    """Thousands of entries or parts are judged with turns of the loop in between."""
    entry = encode_messages([b"x"], "raw", 0, 1)[0]
    part = {"stage": bytes(16), "topic_id": 1, "count": 1, "digest": 1}
    with CostWorld(topics=1) as world:
        connection, (topic,) = world.connection(world.raw()), world.broker.topics
        name = world.broker.topics[topic].name
        append = pb.CommandStageAppend(
            request_id=1, stage=bytes(16), topic=name, at=0, entries=[entry] * 4000
        )
        commit = pb.CommandSinkCommit(request_id=1, key="k", batch=1, parts=[part] * 4000)
        for steps in (
            world.run(steps_of(extensions.stage_append(connection, append))),
            world.run(steps_of(extensions.sink_commit(connection, commit))),
        ):
            assert 10 < len(steps) < 100
            assert max(steps) < STEP_INSTRUCTIONS


def one_of_many_takes_a_step_in_a_turn() -> None:
    """Of twenty tasks, some cancelled, each turn of the loop runs one step, in order."""
    taken: list[int] = []

    async def work(number: int) -> None:
        steps = Steps()
        for _ in range(3):
            taken.append(number)
            await steps.pause()

    async def crowd() -> list[int]:
        tasks = [asyncio.create_task(work(number)) for number in range(20)]
        await asyncio.sleep(0)  # they have started
        tasks[3].cancel()
        counts = []
        while not all(each.done() for each in tasks):
            before = len(taken)
            await asyncio.sleep(0)
            counts.append(len(taken) - before)
        return counts

    counts = asyncio.run(crowd())
    others = [number for number in range(20) if number != 3]
    assert max(counts) == 1
    assert taken == [*range(20), *others, *others]


def who_is_asked_for_a_sign_of_life_is_asked_once() -> None:
    """The number of requests for what it holds does not matter."""
    with CostWorld() as world:
        holder, others = world.raw(), world.raw()
        holder.subscribe("t")
        for number in range(20):
            others.tell(
                Type.SUBSCRIBE,
                topic=full("t"),
                consumer_id=number,
                request_id=number,
                subscription="s",
                subType=0,
            )
        asking = world.connection(others)._requests
        until(lambda: len(asking._under_way) == 20)
        assert holder.hear()[0] == Type.PING
        heard = []
        with contextlib.suppress(TimeoutError):
            heard.append(holder.hear(0.05))
        assert heard == []
        holder.tell(Type.PONG)
        for _ in range(20):
            assert others.hear()[1].error == pb.ConsumerBusy


def the_last_message_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = 0
    real = Topic.read

    async def counted(self: Topic, *arguments: Any) -> Any:
        nonlocal reads
        reads += 1
        return await real(self, *arguments)

    with CostWorld() as world:
        raw, ids = filled(world, 3)
        monkeypatch.setattr(Topic, "read", counted)
        for _ in range(5):
            last = raw.ask(Type.GET_LAST_MESSAGE_ID, Type.GET_LAST_MESSAGE_ID_RESPONSE, consumer_id=1)
            assert last.last_message_id.entryId == ids[-1].entryId
        assert reads == 1


def less_is_read_of_a_client_whose_commands_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Appetite, "TURN_S", -1.0)
    with CostWorld() as world:
        raw = world.raw()
        for _ in range(10):
            raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=full("t"))
        assert len(world.connection(raw).get_buffer(-1)) == Appetite.LEAST
        monkeypatch.setattr(Appetite, "TURN_S", 1e9)
        for _ in range(10):
            raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=full("t"))
        assert len(world.connection(raw).get_buffer(-1)) == 256 << 10
