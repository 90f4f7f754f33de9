"""Checks of the cost of one client for the others (I89, I91).

Requests take turns, no answer is computed that cannot be written, and what is held for a client is limited.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast.broker import ConsumerStats
from holdfast.broker.dispatch import looking
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server import running
from holdfast.server.budget import Budget
from holdfast.server.logs import Refusals
from holdfast.server.pulsar import lookup, patterns
from holdfast.server.pulsar.connection import Connection
from holdfast.server.pulsar.requests import Request
from holdfast.server.pulsar.turns import REQUESTS_BYTES, TURN_REQUESTS, Turns
from tests.kit.server.cost_world import CostWorld, Steps, held
from tests.kit.server.wire_raw import Raw, Type, frame_of, full

MIB = 1 << 20


def until(true: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait for what must happen."""

    async def wait() -> None:
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.002)

    asyncio.run(wait())


def lists(count: int) -> bytes:
    """Return `count` pipelined requests for a topic list."""
    ask: dict[str, Any] = {"namespace": "public/default"}
    return b"".join(frame_of(Type.GET_TOPICS_OF_NAMESPACE, request_id=n, **ask) for n in range(count))


# -- requests ------------------------------------------------------------------------------------------


def no_answers_are_computed_for_a_client_that_does_not_read() -> None:
    """Of sixty large lists a few wait; the others are computed when the client reads."""
    with CostWorld(topics=1000, name_bytes=400, write_bytes=MIB) as world:
        raw = world.raw(receive_bytes=1 << 16)
        raw.socket.sendall(lists(60))
        connection = world.connection(raw)
        until(lambda: connection.stalled)
        world.idle()
        assert held(connection) < 2 * MIB
        assert world.budget.held >= held(connection) > MIB  # it counts for the whole process
        other = world.raw()
        other.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=full("t"))
        for number in range(60):
            answer = raw.expect(Type.GET_TOPICS_OF_NAMESPACE_RESPONSE)
            assert (answer.request_id, len(answer.topics)) == (number, 1000)
        world.idle()
        assert world.budget.held == 0


def requests_of_one_connection_let_those_of_others_pass() -> None:
    """A second client is answered early, although a thousand lists are queued before it."""
    with CostWorld(topics=1) as world:
        greedy, modest = (world.connection(world.raw()) for _ in range(2))
        begun: list[Connection] = []

        async def crowd() -> None:
            begin = Connection._carry_out

            async def noted(self: Connection, request: Any, message: Any) -> None:
                begun.append(self)
                await begin(self, request, message)

            for each in (greedy, modest):
                each._requests._carry_out = noted.__get__(each)
            command = pb.CommandGetTopicsOfNamespace(namespace="public/default", request_id=1)
            request = next(each for each in lookup_requests() if each.name == "getTopicsOfNamespace")
            for _ in range(900):
                greedy._request(request, command, 100)
            modest._request(request, command, 100)

        world.run(crowd())
        until(lambda: len(begun) == 901)
        assert begun.index(modest) <= 1


def large_requests_begin_one_per_turn() -> None:
    """A large request takes a turn of the loop; several small ones share one."""
    with CostWorld(topics=1) as world:
        connections = [world.connection(world.raw()) for _ in range(3)]
        begun: list[int] = []
        """The number of requests started in each turn."""

        async def count(size: int) -> list[int]:
            turns, turn = world.server.turns, Turns._turn
            asked = pb.CommandLookupTopic(topic="t", request_id=1)
            request = next(each for each in lookup_requests() if each.name == "lookupTopic")

            def counted() -> None:
                waiting = sum(len(each._requests._waiting) for each in connections)
                turn(turns)
                begun.append(waiting - sum(len(each._requests._waiting) for each in connections))

            begun.clear()
            turns._turn = counted  # type: ignore[method-assign]
            for each in connections:
                for _ in range(8):
                    each._request(request, asked, size)
            while sum(begun) < 24:
                await asyncio.sleep(0)
            return [*begun]

        assert max(world.run(count(100))) == TURN_REQUESTS
        assert max(world.run(count(60_000))) == 1


def requests_that_wait_count_for_what_is_held() -> None:
    """A connection with megabytes of waiting requests is not read; they count for the process."""
    with CostWorld() as world:
        raw = world.raw()
        connection = world.connection(raw)
        requests, budget = connection._requests, world.budget
        released = asyncio.Event()

        async def handle(connection: Connection, message: Any) -> None:
            await released.wait()

        async def ask(count: int) -> None:
            request = Request("success", handle)
            for number in range(count):
                connection._request(request, pb.CommandSuccess(request_id=number), REQUESTS_BYTES // 16)

        world.run(ask(15))
        assert "requests" not in connection._pauses
        world.run(ask(1))
        assert "requests" in connection._pauses
        assert budget.of((connection, "requests")) == requests.bytes == REQUESTS_BYTES
        world.loop.call_soon_threadsafe(released.set)
        until(lambda: not len(requests))
        assert (requests.bytes, budget.held, connection._pauses) == (0, 0, set())
        world.loop.call_soon_threadsafe(released.clear)
        world.run(ask(10))
        raw.close()
        until(lambda: not requests.bytes and not budget.held)


def the_program_is_left_out_of_garbage_collections() -> None:
    """Existing objects are not scanned again; later ones are."""
    before = len(gc.get_objects())
    try:
        running.keep_for_good()
        assert gc.get_freeze_count() > before / 2
        assert len(gc.get_objects()) < before / 2
    finally:
        gc.unfreeze()


def the_broker_of_a_lost_member_is_collected() -> None:
    """A member that serves again frees the objects of its last broker."""

    class Broker:
        def __init__(self) -> None:
            self.itself = self

    try:
        last = Broker()
        seen = weakref.ref(last)
        running.keep_for_good()
        del last
        running.keep_for_good()
        assert seen() is None
    finally:
        gc.unfreeze()


def lookup_requests() -> list[Any]:
    from holdfast.server.pulsar.requests import REQUESTS

    return [*REQUESTS.values()]


def a_list_that_is_asked_for_again_costs_no_look_at_the_topics(mode: int = 0) -> None:
    """Its steps do not grow with the number of topics."""
    taken = []
    for topics in (20, 400):
        with CostWorld(topics=topics) as world:
            if mode:
                whole = "non-persistent://public/default/levels"
                world.run(world.broker.partitioned.create(whole, topics))
            connection = world.connection(world.raw())
            ask: dict[str, Any] = {"namespace": "public/default", "request_id": 1, "mode": mode}
            command = pb.CommandGetTopicsOfNamespace(**ask)

            async def again(connection: Connection = connection, command: Any = command) -> int:
                await lookup.topics(connection, command)
                with Steps().counting() as steps:
                    await lookup.topics(connection, command)
                return steps.count

            taken.append(world.run(again()))
    assert taken[1] < 1.2 * taken[0] < 1000


def a_list_follows_what_is_created_and_deleted(patterned: bool) -> None:
    more = {"topics_pattern": "public/default/.*"} if patterned else {}
    with CostWorld(topics=2) as world:
        raw = world.raw()

        def topics() -> list[str]:
            kind, answer = Type.GET_TOPICS_OF_NAMESPACE, Type.GET_TOPICS_OF_NAMESPACE_RESPONSE
            found = raw.ask(kind, answer, namespace="public/default", **more)
            again = raw.ask(kind, answer, namespace="public/default", topics_hash=found.topics_hash, **more)
            assert (found.changed, again.changed, list(again.topics)) == (True, False, [])
            assert found.filtered == patterned
            return list(found.topics)

        first = topics()
        world.run(world.create(["a", "z"]))
        assert topics() == sorted([full("a"), *first, full("z")])
        world.run(world.broker.admin.delete_topic("a"))
        world.run(world.broker.admin.delete_topic("z"))
        world.run(world.create(["z"]))
        assert topics() == [*first, full("z")]


def a_list_follows_non_persistent_topics() -> None:
    """The next answer has partitions that came, and topics while clients are attached."""
    with CostWorld(topics=1) as world:
        raw, partitioned = world.raw(), world.broker.partitioned

        def topics(mode: int) -> list[str]:
            kind, answer = Type.GET_TOPICS_OF_NAMESPACE, Type.GET_TOPICS_OF_NAMESPACE_RESPONSE
            return list(raw.ask(kind, answer, namespace="public/default", mode=mode).topics)

        there, whole = topics(0), "non-persistent://public/default/levels"
        assert (topics(1), topics(2)) == ([], there)
        for count in (1, 3):
            work = partitioned.grow(whole, count) if count > 1 else partitioned.create(whole, count)
            world.run(work)
            names = [f"{whole}-partition-{index}" for index in range(count)]
            assert (topics(1), topics(2)) == (names, [*names, *there])
        lone = whole.replace("levels", "a")
        raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=lone, producer_id=1)
        assert topics(1) == [lone, *names]
        world.run(partitioned.delete(whole))
        world.run(world.create(["b"]))
        assert topics(2) == [lone, full("b"), *there]


def the_stats_of_each_consumer_look_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONSUMER_STATS of all consumers of a subscription take as many looks as consumers."""
    looked = 0
    real = ConsumerStats

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal looked
        looked += 1
        return real(*arguments, **named)

    with CostWorld(topics=1) as world:
        raw = world.raw()
        for consumer in range(60):
            raw.subscribe("t", consumer, sub_type=1)
        monkeypatch.setattr(looking, "ConsumerStats", counted)
        for consumer in range(60):
            stats = raw.ask(Type.CONSUMER_STATS, Type.CONSUMER_STATS_RESPONSE, consumer_id=consumer)
            assert stats.type == "Shared"
        assert looked == 60


def consumers_that_leave_together_cost_each_the_same(durable: bool, sub_type: int = 1) -> None:
    """A lost connection with readers, or consumers of one subscription, costs linear time."""
    taken = []
    for consumers in (10, 80):
        with CostWorld(topics=1) as world:
            raw = world.raw()
            for number in range(consumers):
                name = "s" if durable else f"r{number}"
                raw.subscribe("t", number, sub_type=sub_type, subscription=name, durable=durable)
            connection = world.connection(raw)

            async def leave(connection: Connection = connection) -> int:
                with Steps().counting() as steps:
                    connection.consumers.gone()
                return steps.count

            taken.append(world.run(leave()) / consumers)
    assert taken[1] < 1.5 * taken[0]


def patterns_are_compiled_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern may take 30 ms, and a client may send a thousand."""
    threads, compile_ = list[str](), patterns._compiled

    def compiled(text: str) -> Any:
        threads.append(threading.current_thread().name)
        return compile_(text)

    monkeypatch.setattr(patterns, "_compiled", compiled)
    with CostWorld(topics=3) as world:
        raw = world.raw()
        assert len(raw.watch("public/default/.*").topic) == 3
        kind, answer = Type.GET_TOPICS_OF_NAMESPACE, Type.GET_TOPICS_OF_NAMESPACE_RESPONSE
        ask = {"namespace": "public/default", "topics_pattern": "public/default/.*"}
        assert len(raw.ask(kind, answer, **ask).topics) == 3
        assert "malformed" in raw.watch("(", 2, Type.ERROR).message
        assert not raw.ask(kind, answer, namespace="public/default", topics_pattern="(").filtered
    assert len(threads) == 6
    assert all(each.startswith("holdfast-patterns") for each in threads), threads


def one_client_is_closed_at_a_time_for_memory() -> None:
    """A client gives back its memory part by part, and room comes last."""
    budget, closed = Budget(90), list[int]()

    def close(number: int) -> None:
        closed.append(number)
        for part in ("consumer", "producer", "unsent"):
            budget.hold((number, part), 0)

    for number in range(4):
        for part, size in (("consumer", 2), ("producer", 2), ("unsent", 30)):
            budget.hold((number, part), size, partial(close, number) if part == "unsent" else None)
    assert (closed, budget.held) == ([0, 1], 68)


def watched_lists_count_for_what_is_held() -> None:
    """Each pattern counts once, however many watch it, and no more without a watch."""
    with CostWorld(topics=100, held_bytes=25_000) as world:
        raw, other = world.raw(), world.raw()

        def watch(on: Raw, number: int, pattern: str, answer: int = Type.WATCH_TOPIC_LIST_SUCCESS) -> Any:
            more = {"namespace": "public/default", "topics_pattern": f"public/default/{pattern}"}
            return on.ask(Type.WATCH_TOPIC_LIST, answer, watcher_id=number, **more)

        watch(raw, 1, "topic-.*")
        watch(other, 1, "topic-.*")
        assert world.budget.held == 4096 + 100 * 64
        watch(raw, 2, ".*")
        error = watch(raw, 3, ".*1", Type.ERROR)
        assert (error.error, "limits.held_bytes" in error.message) == (pb.TooManyRequests, True)
        world.run(world.create(["topic-new"]))
        assert raw.expect(Type.WATCH_TOPIC_UPDATE).new_topics == [full("topic-new")]
        until(lambda: world.budget.held == 2 * (4096 + 101 * 64))
        raw.close()
        other.close()
        until(lambda: world.budget.held == 0)


def a_pattern_is_small_or_refused() -> None:
    """Its program's size bounds memory and time per character; a large one counts as held."""
    with CostWorld(topics=1) as world:
        raw = world.raw()
        for number, (pattern, answer) in enumerate(
            [(".{0,900}", Type.ERROR), (".{0,150}", Type.WATCH_TOPIC_LIST_SUCCESS)]
        ):
            more = {"namespace": "public/default", "topics_pattern": pattern}
            raw.ask(Type.WATCH_TOPIC_LIST, answer, watcher_id=number, **more)
        assert 64 * 150 < world.budget.held < 1 << 18


def who_watches_the_same_is_told_the_same() -> None:
    """A change is computed once for all watches of a pattern."""
    with CostWorld(topics=3) as world:
        raw = world.raw()
        for number in range(10):
            more = {"namespace": "public/default", "topics_pattern": "public/default/.*"}
            raw.ask(Type.WATCH_TOPIC_LIST, Type.WATCH_TOPIC_LIST_SUCCESS, watcher_id=number, **more)
        subject = world.server.watching.subjects["public/default"]["public/default/.*"]
        before = [each.told or frozenset() for each in subject.watches]
        world.run(world.create(["new"]))
        for _ in range(10):
            assert raw.expect(Type.WATCH_TOPIC_UPDATE).new_topics == [full("new")]
        came = [subject.since(each)[0] for each in before]
        assert all(each is came[0] for each in came)


# -- frames --------------------------------------------------------------------------------------------


def half(raw: Raw, size: int, of: int = 5 * MIB) -> None:
    """Send the beginning of a frame."""
    raw.socket.sendall(of.to_bytes(4, "big") + bytes(size - 4))


def a_reader_that_is_refused_leaves_nothing() -> None:
    """There is no memory for it: its subscription, which is not durable, goes with it."""
    with CostWorld(topics=1, held_bytes=100) as world:
        raw, (topic,) = world.raw(), world.broker.topics.values()
        for number in range(3):
            fields = {"subscription": f"reader-{number}", "consumer_id": number, "durable": False}
            error = raw.ask(Type.SUBSCRIBE, Type.ERROR, topic=topic.name, subType=0, **fields)
            assert "limits.held_bytes" in error.message
        assert not topic.dispatchers
        assert not topic.volatile


def a_closed_connection_holds_no_half_frame() -> None:
    """The frame is freed at once, not by the garbage collector."""
    with CostWorld() as world:
        raw = world.raw()
        half(raw, 3 * MIB)
        connection = world.connection(raw)
        until(lambda: (connection.reader.pending, world.budget.held) == (3 * MIB, 3 * MIB))
        gc.disable()
        try:
            raw.close()
            until(lambda: connection.lost.done())
            assert (connection.reader.pending, world.budget.held) == (0, 0)
        finally:
            gc.enable()


def half_frames_have_a_limit_for_all_connections(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest half frames are closed; a client that sends a whole frame is served."""
    caplog.set_level("INFO", "holdfast.wire")
    with CostWorld(held_bytes=8 * MIB) as world:
        slow = [world.raw() for _ in range(4)]
        for number, raw in enumerate(slow):
            half(raw, 3 * MIB)
            until(lambda number=number: world.budget.held == min(number + 1, 2) * 3 * MIB)  # type: ignore[misc]
        until(lambda: len(world.server.connections) == 2)
        for raw in slow[:2]:
            assert not raw.closed()
        world.raw().ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=full("t"))
        assert world.budget.held == 6 * MIB
        assert world.budget.refused == 2
    assert "limits.held_bytes" in str([each.__dict__.get("fields") for each in caplog.records])


def a_client_that_keeps_pace_is_not_the_oldest() -> None:
    """Its half frame is a new one each time, so it is the youngest."""
    with CostWorld(held_bytes=8 * MIB) as world:
        steady, slow, last = world.raw(), world.raw(), world.raw()
        ping = frame_of(Type.PING)
        steady.socket.sendall(ping[:6])
        until(lambda: world.budget.held == 6)
        half(slow, 3 * MIB)
        until(lambda: world.budget.held == 3 * MIB + 6)
        steady.socket.sendall(ping[6:] + (5 * MIB).to_bytes(4, "big") + bytes(3 * MIB - 4))
        until(lambda: world.budget.held == 6 * MIB)
        steady.expect(Type.PONG)
        half(last, 3 * MIB)
        until(lambda: len(world.server.connections) == 2)
        assert not slow.closed()
        until(lambda: world.budget.held == 6 * MIB)


def a_byte_now_and_then_does_not_keep_a_frame_open() -> None:
    with CostWorld(frame_s=30.0) as world:
        raw = world.raw()
        half(raw, 10)
        connection = world.connection(raw)
        until(lambda: connection.reader.pending == 10)
        now = world.loop.time()

        def look(after_s: float) -> None:
            async def look() -> None:
                connection.look(now + after_s)

            world.run(look())

        look(29)
        raw.socket.sendall(b"\0")
        until(lambda: connection.reader.pending == 11)
        look(31)
        (kind, error), *more = raw.closed()
        assert (kind, more) == (Type.ERROR, [])
        assert "limits.frame_s" in error.message


def a_slow_client_that_keeps_pace_is_not_closed() -> None:
    """A megabyte in a minute is enough; time without reads does not count."""
    with CostWorld(frame_s=30.0) as world:
        raw, paused = world.raw(), world.raw()
        half(raw, MIB)
        half(paused, 10)
        first, second = world.connection(raw), world.connection(paused)
        until(lambda: (first.reader.pending, second.reader.pending) == (MIB, 10))

        async def look() -> None:
            now = first.loop.time()
            first.look(now + 60)
            second.pause("test")
            second._paused_at -= 100
            second._frame.rest(-100)  # as if it had started long ago
            second.go_on("test")
            second.look(now + 1)

        world.run(look())
        assert [first._closing, second._closing] == [False, False]


def a_reader_that_does_not_read_costs_its_buffer_and_one_read(durable: bool) -> None:
    """I84: its cost depends neither on the backlog nor on its permits."""
    with CostWorld() as world:

        async def fill() -> None:
            async with world.broker.producer("t") as producer:
                await producer.send_many([bytes(8 << 10)] * 1000)

        world.run(fill())
        raw = world.raw(receive_bytes=1 << 16)
        raw.subscribe("t", durable=durable)
        raw.flow(1_000_000)
        connection = world.connection(raw)
        until(lambda: connection.stalled)
        world.idle()
        assert 512 << 10 < held(connection) < 1100 << 10
        assert world.budget.held >= held(connection)
        raw.messages(1000)  # it gets all of them when it reads
        world.idle()
        assert world.budget.held < 10_000


def a_client_that_reads_a_byte_now_and_then_is_closed() -> None:
    with CostWorld(topics=1000, name_bytes=400, keepalive_s=30.0) as world:
        raw = world.raw(receive_bytes=1 << 16)
        raw.socket.sendall(lists(20))
        connection = world.connection(raw)
        until(lambda: connection.stalled)
        world.idle()

        async def look() -> None:
            now = connection.loop.time()
            connection.look(now + 59)
            assert connection._transport is not None
            connection._unsent += 1  # one byte was sent
            connection.look(now + 61)

        world.run(look())
        until(lambda: not world.server.connections)


# -- logs ----------------------------------------------------------------------------------------------


def refusals_are_logged_with_their_reason_and_throttled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "holdfast.wire")
    with CostWorld() as world:
        raw = world.raw()
        for number in range(Refusals.BURST + 30):
            raw.tell(Type.LOOKUP, topic="not/a/topic/name:/", request_id=number)
        for _ in range(Refusals.BURST + 30):
            raw.expect(Type.LOOKUP_RESPONSE)
        lines = [each.__dict__["fields"] for each in caplog.records if each.message == "request refused"]
        assert Refusals.BURST <= len(lines) <= Refusals.BURST + 5
        assert all(each["request"] == "lookupTopic" and each["why"] for each in lines)

        async def later() -> None:
            world.server.refusals._looked -= 10

        world.run(later())
        raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic="x" * 5000 + "/y")
        last = caplog.records[-1].__dict__["fields"]
        assert last["unsaid"] >= 25
        assert len(last["why"]) < 500


def a_client_cannot_have_the_memory_of_all_by_its_sessions() -> None:
    """Producers and consumers count, with their properties; closed ones do not."""
    with CostWorld(held_bytes=40_000) as world:
        raw = world.raw()
        metadata = [{"key": "k", "value": "v" * 8000}]
        raw.produce("t", 1, metadata=metadata)
        raw.subscribe("t", 1, sub_type=1, metadata=metadata)
        raw.subscribe("t", 2, sub_type=1, metadata=metadata)
        assert 36_000 < world.budget.held < 40_000
        for kind, more in ((Type.PRODUCER, {"producer_id": 9}), (Type.SUBSCRIBE, {"consumer_id": 9})):
            error = raw.ask(
                kind,
                Type.ERROR,
                topic=full("t"),
                metadata=metadata,
                **more,
                **({"subscription": "s", "subType": 1} if kind == Type.SUBSCRIBE else {}),
            )
            assert error.error == pb.TooManyRequests
            assert "limits.held_bytes" in error.message
        raw.ask(Type.CLOSE_CONSUMER, consumer_id=2)
        raw.ask(Type.CLOSE_PRODUCER, producer_id=1)
        raw.subscribe("t", 9, sub_type=1, metadata=metadata)
        with contextlib.suppress(OSError):
            raw.close()
        until(lambda: world.budget.held == 0)
