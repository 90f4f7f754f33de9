"""Non-persistent topics without a network: receivers of a message, and counts."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.broker.membership import owner_of_topic
from holdfast.errors import Busy, Fenced, Misuse, NotFound
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar import listener
from holdfast.server.pulsar.non_persistent import Meter, NonPersistentTopic, delivery
from tests.kit.broker.crowd import A, B, C
from tests.kit.server.cluster_checks import member
from tests.kit.server.cost_world import CostWorld
from tests.kit.server.http_world import HttpWorld, T
from tests.kit.server.passing_checks import Attached, at_most_one_consumer_within_permits, topic
from tests.kit.server.wire_raw import Raw, Type, full, id_of


def test_at_most_one_consumer_within_permits() -> None:
    at_most_one_consumer_within_permits()


def test_without_a_subscription_everything_is_dropped() -> None:
    found = topic()
    assert found.publish([(2, b"a"), (1, b"b")], 3, 2) == 0
    assert found.publish([(1, b"c")], 1, 1) == 2
    assert found.meter.counts() == (4, 3, 4)


def test_permits_count_messages_and_may_be_exceeded_by_a_batch() -> None:
    found = topic()
    only = Attached(found, "s")
    only.permits = 2
    found.publish([(1, b"a"), (5, b"batch"), (1, b"late")], 7, 10)
    assert only.got == [b"a", b"batch"]
    assert (only.permits, found.subscriptions["s"].meter.dropped, found.meter.dropped) == (-4, 1, 1)


def test_consumers_that_do_not_read_are_left_out() -> None:
    found = topic()
    one, two = Attached(found, "s"), Attached(found, "s")
    one.permits = two.permits = 10
    one.connection.stalled = True
    found.publish([(1, b"a"), (1, b"b")], 2, 2)
    assert (one.got, two.got) == ([], [b"a", b"b"])


@pytest.mark.parametrize("type_", ["shared", "failover"])
def test_a_delivery_may_close_other_clients(type_: Any) -> None:
    """Memory for clients has a limit: a send may close others."""

    class Crowding(Attached):
        def deliver(self, number: int, messages: int, entry: bytes) -> None:
            super().deliver(number, messages, entry)
            for each in [*gone]:
                gone.remove(each)
                found.leave(each)

    found, gone = topic(), list[Any]()
    first, second, third = (
        Crowding(found, "a", type_),
        Attached(found, "b", type_),
        Attached(found, "c", type_),
    )
    first.permits = second.permits = third.permits = 10
    gone += [first, second]
    found.publish([(1, b"x"), (2, b"y")], 3, 2)
    assert (first.got, second.got, third.got) == ([b"x"], [], [b"x", b"y"])
    assert (list(found.subscriptions), found.meter.dropped) == (["c"], 2 + 3)


def test_consumers_that_take_nothing_are_looked_at_once_for_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a client with 10,000 of them makes each message of others cost a ms."""
    found, looks = topic(), [0]

    def ready(self: Attached) -> bool:
        looks[0] += 1
        return False

    monkeypatch.setattr(Attached, "ready", property(ready))
    for _ in range(50):
        Attached(found, "s").permits = 1
    found.publish([(1, b"x")] * 100, 100, 100)
    assert (looks[0], found.meter.dropped) == (50, 100)


def test_one_of_many_consumers_takes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each message is looked up among all: 10,000 idle ones cost 3 ms."""
    found, looks = topic(), [0]
    real = Attached.ready.fget  # type: ignore[attr-defined]  # a property

    def ready(self: Attached) -> Any:
        looks[0] += 1
        return real(self)

    monkeypatch.setattr(Attached, "ready", property(ready))
    every = [Attached(found, "s") for _ in range(50)]
    every[7].permits = 1000
    for each in every[10:30]:
        each.permits, each.connection.stalled = 5, True
    found.publish([(1, b"x")] * 100, 100, 100)
    assert (len(every[7].got), found.meter.dropped) == (100, 0)
    assert looks[0] <= 150
    for each in every[10:30]:
        each.connection.stalled = False
        each.wait()
    found.publish([(1, b"y")] * 42, 42, 42)
    assert [len(each.got) for each in every[10:30]] == [2] * 20, "its client reads again"


def test_better_priorities_of_shared_consumers_come_first() -> None:
    """As in Pulsar, and as on persistent topics."""
    found = topic()
    late, best, other = (Attached(found, "s", priority=each) for each in (2, 0, 0))
    late.permits, best.permits, other.permits = 5, 2, 1
    found.publish([(1, b"%d" % each) for each in range(5)], 5, 5)
    assert (best.got, other.got, late.got) == ([b"0", b"2"], [b"1"], [b"3", b"4"])
    best.permits = 1
    found.publish([(1, b"5"), (1, b"6")], 2, 2)
    assert (best.got[-1], late.got[-1]) == (b"5", b"6")


def test_the_best_failover_consumer_is_served_alone() -> None:
    found = topic()
    late, best = Attached(found, "s", "failover", priority=1), Attached(found, "s", "failover", priority=0)
    late.permits = 9
    found.publish([(1, b"a")], 1, 1)
    assert (late.got, found.meter.dropped) == ([], 1), "the active consumer has no permits"
    best.permits = 9
    found.publish([(1, b"b")], 1, 1)
    found.leave(best)
    found.publish([(1, b"c")], 1, 1)
    assert (best.got, late.got) == ([b"b"], [b"c"])


def test_clients_that_exclude_each_other() -> None:
    found = topic()
    Attached(found, "s", "exclusive")
    with pytest.raises(Busy, match="is exclusive, and has a consumer"):
        Attached(found, "s", "exclusive")
    with pytest.raises(Misuse, match="has exclusive consumers; use that type"):
        Attached(found, "s", "shared")
    with pytest.raises(NotFound, match="it has: s"):
        found.subscription("t")

    def producer(name: str, exclusive: bool = False) -> Any:
        return SimpleNamespace(name=name, exclusive=exclusive)

    found.open(producer("p"))
    with pytest.raises(Busy, match="a producer 'p' already"):
        found.open(producer("p"))
    with pytest.raises(Fenced, match="has other producers; close them, or open this one as Shared"):
        found.open(producer("q", exclusive=True))
    alone = NonPersistentTopic("x", 0.0)
    alone.open(producer("p", exclusive=True))
    with pytest.raises(Busy, match="has the exclusive producer 'p'; close it first"):
        alone.open(producer("q"))
    with pytest.raises(Fenced, match="has other producers"):
        alone.open(producer("r", exclusive=True))


def test_only_the_owner_serves_a_topic() -> None:
    """I286: another member refers clients of both protocols to the owner; lookups name it."""
    with member() as served:
        world = served.world
        assert world.wire is not None
        state = world.broker.machine.state
        names = [f"non-persistent://public/default/silent-{at}" for at in range(30)]
        owners = {name: (owner_of_topic(state, name) or A).node for name in names}
        there = next(name for name, node in owners.items() if node == 2)
        here = next(name for name, node in owners.items() if node == 1)
        with Raw(f"pulsar://127.0.0.1:{world.wire.port}") as raw:
            found = raw.ask(Type.LOOKUP, Type.LOOKUP_RESPONSE, topic=there)
            assert found.brokerServiceUrl == "pulsar://node2:6650"
            for kind, more in (
                (Type.PRODUCER, {"producer_id": 1}),
                (
                    Type.SUBSCRIBE,
                    {"consumer_id": 1, "subscription": "s", "subType": pb.CommandSubscribe.Shared},
                ),
            ):
                refused = raw.ask(kind, Type.ERROR, topic=there, **more)
                assert refused.error == pb.ServiceNotReady
                assert "node 2 alone serves" in refused.message
            raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=here, producer_id=2)
        referred = world.ask(
            "GET",
            f"/admin/v2/non-persistent/public/default/{there.rpartition('/')[2]}/stats",
            allow_redirects=False,
        )
        assert referred.status == 307
        assert referred.headers["Location"].startswith("http://node2")


def test_clients_of_a_former_owner_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LOOK_S", 0.02)
    with member() as served:
        world = served.world
        assert world.wire is not None
        served.say("enter")
        names = [f"non-persistent://public/default/silent-{at}" for at in range(30)]
        with Raw(f"pulsar://127.0.0.1:{world.wire.port}") as raw:
            for number, name in enumerate(names):
                raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=name, producer_id=number)
            served.say("enter", B, C)
            served.say("announce", B, C)
            moved = {n for n, name in enumerate(names) if not world.broker.membership.serves(name)}
            assert 0 < len(moved) < 30
            assert {raw.expect(Type.CLOSE_PRODUCER).producer_id for _ in moved} == moved


def test_a_topic_with_clients_gets_no_partitions_from_another_member() -> None:
    """The owner knows whether it has clients: another member refers to it."""
    with member() as served:
        world = served.world
        state = world.broker.machine.state
        for at in range(30):
            name = f"non-persistent://public/default/silent-{at}"
            owner = owner_of_topic(state, name)
            path = f"/admin/v2/non-persistent/public/default/silent-{at}/partitions"
            answer = world.ask("PUT", path, json=2, allow_redirects=False)
            assert answer.status == (204 if owner == A else 307), owner
            assert world.broker.partitioned.count(name) == (2 if owner == A else 0)


def test_partitions_take_the_place_of_a_topic() -> None:
    """Another member decides about them: clients of the topic without partitions are closed, and told."""
    name = "non-persistent://public/default/silent"
    with HttpWorld(wire=True) as world:
        assert world.wire is not None
        with Raw(f"pulsar://127.0.0.1:{world.wire.port}") as raw:
            raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=name, producer_id=1)
            asked = {"topic": name, "subscription": "s", "subType": pb.CommandSubscribe.Shared}
            raw.ask(Type.SUBSCRIBE, Type.SUCCESS, consumer_id=1, **asked)
            world.run(world.broker.partitioned.create(name, 2))
            assert {raw.hear()[0] for _ in range(2)} == {Type.CLOSE_PRODUCER, Type.CLOSE_CONSUMER}
            refused = raw.ask(Type.PRODUCER, Type.ERROR, topic=name, producer_id=1)
            assert "has 2 partitions" in refused.message
            raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=f"{name}-partition-1", producer_id=1)


def test_rates_are_over_half_a_minute_or_more() -> None:
    meter = Meter(0.0)
    meter.messages, meter.dropped = 300, 30
    assert meter.rates(10.0) == (30.0, 0.0, 3.0)
    for now in (30.0, 45.0, 60.0):
        meter.tick(now)
    assert meter.rates(60.0) == (0.0, 0.0, 0.0)


def test_the_frame_of_a_message() -> None:
    frame = delivery(7, 300, b"entry")
    size = int.from_bytes(frame[4:8], "big")
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    message = pb.BaseCommand.FromString(frame[8 : 8 + size]).message
    assert (message.consumer_id, message.message_id.entryId, frame[8 + size :]) == (7, 300, b"entry")
    assert not message.message_id.HasField("partition")
    frame = delivery(7, 300, b"entry", 4)
    size = int.from_bytes(frame[4:8], "big")
    assert pb.BaseCommand.FromString(frame[8 : 8 + size]).message.message_id.partition == 4


def test_lists_of_a_namespace() -> None:
    with HttpWorld(wire=True) as world:
        base = "non-persistent://public/default/"
        world.done("PUT", "/admin/v2/non-persistent/public/default/alone")
        world.done("PUT", "/admin/v2/non-persistent/public/default/whole/partitions", json=2)
        world.done("PUT", f"{T}/kept")
        silent = [f"{base}alone", f"{base}whole-partition-0", f"{base}whole-partition-1"]
        kept = ["persistent://public/default/kept"]
        assert world.get("/admin/v2/non-persistent/public/default") == silent
        topics = "/admin/v2/namespaces/public/default/topics"
        assert world.get(topics) == world.get(f"{topics}?mode=PERSISTENT") == kept
        assert world.get(f"{topics}?mode=NON_PERSISTENT") == silent
        assert world.get(f"{topics}?mode=ALL") == [*kept, *silent]
        assert world.ask("PUT", "/admin/v2/non-persistent/public/default/whole").status == 409
        assert world.ask("GET", "/admin/v2/non-persistent/public/default/alone/retention").status == 501


PASSING = "non-persistent://public/default/"


def test_an_id_is_of_one_consumer() -> None:
    """Else an acknowledgement is confirmed, and the messages of the other consumer stay open."""
    with CostWorld(topics=1) as world:
        raw = world.raw()

        def join(topic: str, consumer: int, answer: int) -> str:
            more = {"subscription": "s", "subType": 1, "initialPosition": 1}
            told = raw.ask(Type.SUBSCRIBE, answer, topic=topic, consumer_id=consumer, **more)
            return str(getattr(told, "message", ""))

        raw.publish("t", 3)
        join(full("t"), 1, Type.SUCCESS)
        assert f"has 's' of {full('t')}" in join(PASSING + "a", 1, Type.ERROR)
        raw.flow(10)
        raw.ack(*(id_of(each) for each in raw.messages(3)), request=7)
        assert raw.expect(Type.ACK_RESPONSE).error == 0
        topic = world.broker.topic(full("t"))
        assert topic.backlog(topic.subscription("s")) == 0
        join(PASSING + "a", 2, Type.SUCCESS)
        join(PASSING + "a", 2, Type.SUCCESS)  # it did not get the first answer
        for other in (PASSING + "b", full("t")):
            assert f"has 's' of {PASSING}a" in join(other, 2, Type.ERROR)


def test_an_id_is_of_one_producer() -> None:
    """Else messages for a persistent topic are confirmed, and kept by none."""
    with CostWorld(topics=1) as world:
        raw = world.raw()

        def produce(topic: str, producer: int, answer: int) -> str:
            told = raw.ask(Type.PRODUCER, answer, topic=topic, producer_id=producer)
            return str(getattr(told, "message", ""))

        produce(full("t"), 1, Type.PRODUCER_SUCCESS)
        assert f"open for {full('t')}" in produce(PASSING + "a", 1, Type.ERROR)
        raw.send(0, b"x")
        raw.expect(Type.SEND_RECEIPT)
        assert world.broker.topic(full("t")).visible == 1
        produce(PASSING + "a", 2, Type.PRODUCER_SUCCESS)
        produce(PASSING + "a", 2, Type.PRODUCER_SUCCESS)
        for other in (PASSING + "b", full("t")):
            assert f"open for {PASSING}a" in produce(other, 2, Type.ERROR)


def opened(raw: Raw, answer: int, producer: int = 1, **more: Any) -> Any:
    return raw.ask(Type.PRODUCER, answer, topic=PASSING + "a", producer_id=producer, **more)


def joined(raw: Raw, answer: int, consumer: int = 1, **more: Any) -> Any:
    more = {"subscription": "s", "initialPosition": 1, "consumer_id": consumer, **more}
    return raw.ask(Type.SUBSCRIBE, answer, topic=PASSING + "a", **more)


def test_a_client_that_reconnects_takes_the_place_of_its_producer() -> None:
    """Else its messages wait until the server notices that the old connection is dead."""
    with CostWorld() as world, world.raw() as dead, world.raw() as raw:
        name = opened(dead, Type.PRODUCER_SUCCESS).producer_name
        more: dict[str, Any] = {"producer_name": name, "user_provided_producer_name": False}
        assert opened(raw, Type.PRODUCER_SUCCESS, epoch=1, **more).producer_name == name
        raw.send(0, b"x")
        raw.expect(Type.SEND_RECEIPT)
        chosen: dict[str, Any] = {"producer_name": "mine", "user_provided_producer_name": True}
        opened(dead, Type.PRODUCER_SUCCESS, producer=3, **chosen)
        answers = threading.Thread(target=answering, args=(dead,))
        answers.start()
        assert opened(raw, Type.ERROR, producer=2, epoch=9, **chosen).error == pb.ProducerBusy
        answers.join()


def answering(raw: Raw) -> None:
    """Answer the next ping of the server."""
    assert raw.hear()[0] == Type.PING
    raw.tell(Type.PONG)


@pytest.mark.parametrize("type_", [pb.CommandSubscribe.Exclusive, pb.CommandSubscribe.Shared])
def test_a_dead_client_does_not_keep_a_subscription_or_a_name(type_: int) -> None:
    with CostWorld(liveness_s=0.2) as world, world.raw() as dead, world.raw() as raw:
        joined(dead, Type.SUCCESS, subType=pb.CommandSubscribe.Exclusive)
        joined(raw, Type.SUCCESS, subType=type_)
    with CostWorld(liveness_s=0.2) as world, world.raw() as dead, world.raw() as raw:
        more: dict[str, Any] = {"producer_name": "mine", "user_provided_producer_name": True}
        opened(dead, Type.PRODUCER_SUCCESS, **more)
        opened(raw, Type.PRODUCER_SUCCESS, **more)


def test_failover_consumers_are_told_which_of_them_is_served() -> None:
    """As in Pulsar, whose clients tell their listeners."""
    with CostWorld() as world, world.raw() as one, world.raw() as two:
        failover = pb.CommandSubscribe.Failover
        joined(one, Type.SUCCESS, 1, subType=failover, priority_level=1)
        assert one.expect(Type.ACTIVE_CONSUMER_CHANGE).is_active
        joined(two, Type.SUCCESS, 2, subType=failover, priority_level=1)
        assert not two.expect(Type.ACTIVE_CONSUMER_CHANGE).is_active
        joined(two, Type.SUCCESS, 3, subType=failover)
        told = two.expect(Type.ACTIVE_CONSUMER_CHANGE)
        assert (told.consumer_id, told.is_active) == (3, True)
        assert not one.expect(Type.ACTIVE_CONSUMER_CHANGE).is_active
        two.ask(Type.CLOSE_CONSUMER, consumer_id=3)
        assert one.expect(Type.ACTIVE_CONSUMER_CHANGE).is_active
        one.close()
        told = two.expect(Type.ACTIVE_CONSUMER_CHANGE)
        assert (told.consumer_id, told.is_active) == (2, True)


def test_the_log_tells_that_schemas_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    """Contradicting schemas were accepted without a word."""
    given: dict[str, Any] = {"topic": "non-persistent://public/default/typed"}
    text, number = ({"name": "s", "type": each, "schema_data": b""} for each in (1, 8))
    with CostWorld() as world, world.raw() as raw:
        raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, producer_id=1, **given)
        assert "is not compared" not in caplog.text
        for at, schema in ((2, text), (3, number)):
            raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, producer_id=at, schema=schema, **given)
        raw.ask(
            Type.SUBSCRIBE, Type.SUCCESS, consumer_id=4, subscription="s", subType=1, schema=number, **given
        )
    assert caplog.text.count("a non-persistent topic has none: it is not compared") == 1
