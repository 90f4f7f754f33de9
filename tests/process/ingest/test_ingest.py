"""Test local ingest as a program uses it, with and without obstacles."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast import (
    Closed,
    Corrupt,
    Full,
    Locked,
    Misuse,
    NoSpace,
    NotFound,
    Queue,
    Terminated,
    Timeout,
    Unsupported,
)
from holdfast.broker import Broker, BrokerOptions
from holdfast.broker.api.blocking import Runner
from holdfast.local import drain, place
from holdfast.local.account import Account
from holdfast.local.intake import Ingest
from tests.kit.processes import until
from tests.kit.server.ingest_world import World, serving


def test_what_is_flushed_is_stored(world: World) -> None:
    with holdfast.Producer("orders") as p:
        first = p.put(b"nails", key="smith", properties={"a": "b"}, event_time_ms=7)
        last = p.put_many([b"rope", b"tar"])
        assert first < last
        p.flush(timeout=5.0)
        assert p.confirmed >= last
        assert not p.pending
        assert p.topic == "persistent://public/default/orders"
        name = p.name
    one, two, three = world.messages()
    assert (one.data, one.key, dict(one.properties)) == (b"nails", "smith", {"a": "b"})
    assert [bytes(each.data) for each in (two, three)] == [b"rope", b"tar"]
    assert (one.producer, one.sequence, three.sequence) == (name, 0, 2)


def test_producers_share_a_queue_and_threads_a_producer(world: World) -> None:
    producers = [holdfast.Producer("orders") for _ in range(3)]
    assert world.ingest.topics == ["persistent://public/default/orders"]
    threads = [
        threading.Thread(target=lambda p=p, i=i: [p.put(b"%d:%d" % (i, n)) for n in range(50)])
        for i, p in enumerate(producers * 2)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20.0)
    for p in producers:
        p.close()
    assert sorted(world.stored()) == sorted(b"%d:%d" % (i, n) for i in range(6) for n in range(50))


def test_batches(world: World) -> None:
    with holdfast.Producer("orders") as p:
        p.put_many([b"%d" % i for i in range(10)], batch=4)
    assert [each.id.batch for each in world.messages()][:4] == [0, 1, 2, 3]


def test_the_broker_comes_back_and_finds_what_was_put(data: Path) -> None:
    with serving(data):
        p = holdfast.Producer("orders")
        p.put(b"1")
        p.flush(5.0)
    before = p.confirmed
    last = p.put(b"2")
    with pytest.raises(Timeout, match="has died: start it again"):
        p.flush(0.1)
    assert p.confirmed == before < last
    with pytest.raises(NotFound, match="no broker serves"):
        holdfast.Producer("orders", timeout=0.05)
    with serving(data) as again:
        p.flush(5.0)
        p.put(b"3")
        p.close()
        assert again.stored() == [b"1", b"2", b"3"]


def test_what_nobody_uses_goes_with_the_broker(data: Path, runtime_directory: Path) -> None:
    with serving(data) as world:
        with holdfast.Producer("orders") as p:
            p.put(b"1")
        assert len(list(runtime_directory.iterdir())) == 4
        assert world.stored() == [b"1"]
    assert list(runtime_directory.iterdir()) == []
    with serving(data) as world:
        topic = world.broker.topic("persistent://public/default/orders").state.id
        assert world.broker.machine.log.sequences(topic) == []


def test_a_queue_that_was_closed_is_drained_to_its_end(data: Path, runtime_directory: Path) -> None:
    """A producer comes in while the broker stops: what it has put is stored."""
    with serving(data):
        p = holdfast.Producer("orders")
    places = [p.put(b"%d" % i) for i in range(3)]
    with Queue.open(p._queue.name) as taking:
        taking.close()
        held = taking.get_many(1, 0)
        with pytest.raises(Closed):
            p.put(b"too late")
        with serving(data) as world:
            held.give_back()
            p.wait(places[-1], timeout=5.0)
            assert world.stored() == [b"0", b"1", b"2"]
            until(lambda: p._account.error is not None)
            assert world.ingest.topics == []
    p._leave()


def test_ingest_stops_and_starts_while_the_broker_goes_on(world: World, data: Path) -> None:
    p = holdfast.Producer("orders")
    p.put(b"1")
    p.flush(5.0)
    world.runner(world.ingest.stop())
    p.put(b"2")
    world.ingest = world.runner(world._start(data))
    p.close()
    assert world.stored() == [b"1", b"2"]


def test_a_topic_without_deduplication_is_deduplicated_here(data: Path) -> None:
    """The broker dies between durable and settled (I121): it fails when it wants to confirm."""
    with serving(data) as world, pytest.MonkeyPatch.context() as patch:
        world.runner(world.broker.admin.create_topic("orders", deduplication=False))
        p = holdfast.Producer("orders")
        p.put(b"1")
        p.flush(5.0)
        patch.setattr(Account, "confirm", _raise)
        p.put(b"2")
        until(lambda: world.stored() == [b"1", b"2"])
        until(lambda: "killed here" in p._account.trouble)
        world.runner(world.broker.admin.set_policies("orders", deduplication=False))
    assert p.pending
    with serving(data) as again:
        p.put(b"3")
        p.close()
        assert again.stored() == [b"1", b"2", b"3"]


def _raise(*_: object) -> None:
    raise RuntimeError("killed here")


def test_what_another_reader_held_is_waited_for(data: Path) -> None:
    """Deduplication goes by positions: no message is stored before an earlier missing one (I120)."""
    with serving(data):
        p = holdfast.Producer("orders")
    (name,) = (each for each in Queue.list() if not each.endswith(".door"))
    for i in range(5):
        last = p.put(b"%d" % i)
    reader = Queue.open(name)  # as a broker that dies slowly
    held = reader.get_many(2, 0)
    with serving(data) as world:
        with pytest.raises(Timeout, match="another process still holds"):
            p.flush(0.2)
        assert world.stored() == []
        held.give_back()
        p.flush(5.0)
        assert world.stored() == [b"%d" % i for i in range(5)]
        assert p.confirmed >= last
    reader.detach()
    p._leave()


def test_without_that_wait_a_message_would_be_lost(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with a broker that does not wait: it notices, and does not confirm."""
    monkeypatch.setattr(drain.Segment, "_returning", lambda self: False)
    with serving(data):
        p = holdfast.Producer("orders")
    (name,) = (each for each in Queue.list() if not each.endswith(".door"))
    for i in range(5):
        p.put(b"%d" % i)
    reader = Queue.open(name)
    held = reader.get_many(2, 0)
    with serving(data) as world:
        until(lambda: len(world.stored()) == 3)
        held.give_back()
        until(lambda: p._account.error is not None)
        with pytest.raises(Corrupt, match="another process reads the queue"):
            p.put(b"5")
    reader.detach()
    p._leave()


def test_a_full_disk_fills_the_queue(world: World) -> None:
    p = holdfast.Producer("orders")
    p.put(b"before")
    p.flush(5.0)
    full = True
    admit = world.broker.store.admit

    def refuse(size: int) -> None:
        if full:
            raise NoSpace("the disk is full; free some of it")
        admit(size)

    world.broker.store.admit = refuse  # type: ignore[method-assign]
    put = 0
    with contextlib.suppress(Full):
        while put < 1000:
            p.put(b"x" * 1000, timeout=0)
            put += 1
    until(lambda: p._account.trouble)
    with pytest.raises(Full, match="the disk is full"):
        p.put(b"x" * 1000, timeout=0)
    with pytest.raises(Timeout, match="the disk is full"):
        p.put(b"x" * 1000, timeout=0.1)
    with pytest.raises(Timeout, match="the disk is full"):
        p.flush(0.1)
    with pytest.raises(NoSpace):
        holdfast.Producer("others")
    full = False
    p.close()
    assert len(world.stored()) == put + 1


def test_a_topic_that_is_deleted_takes_its_queue_along(world: World, runtime_directory: Path) -> None:
    """Confirmations of the next queue mean nothing to producers of the first (I123)."""
    p = holdfast.Producer("orders")
    p.put(b"1")
    p.flush(5.0)
    world.runner(world.broker.admin.delete_topic("orders", force=True))
    until(lambda: p._account.error is not None)
    with pytest.raises(NotFound, match="was deleted"):
        p.put(b"2")
    with pytest.raises(NotFound, match="was deleted"):
        p.wait(1 << 40, timeout=1.0)
    until(lambda: not list(runtime_directory.glob("*.account")))
    assert [each for each in Queue.list() if not each.endswith(".door")] == []
    with holdfast.Producer("orders") as again:
        again.put(b"3")
    assert world.stored() == [b"3"]
    with pytest.raises(NotFound):
        p.wait(p._queue._put_end + 1, timeout=1.0)
    p._leave()


def test_a_topic_that_was_deleted_while_nobody_drained(data: Path) -> None:
    with serving(data):
        p = holdfast.Producer("orders")
    p.put(b"lost, and never confirmed")
    runner = Runner()
    broker = runner(Broker.start(data, BrokerOptions()))
    runner(broker.admin.delete_topic("orders", force=True))
    runner(broker.admin.create_topic("orders"))
    runner(broker.close())
    runner.stop()
    with serving(data) as world:
        with pytest.raises(NotFound, match="was deleted"):
            p.flush(5.0)
        assert world.stored() == []
    p._leave()


def test_a_terminated_topic(world: World) -> None:
    p = holdfast.Producer("orders")
    p.put(b"1")
    p.flush(5.0)
    world.runner(world.broker.admin.terminate("orders"))
    p.put(b"2")
    with pytest.raises(Terminated):
        p.flush(5.0)
    with pytest.raises(Terminated):
        holdfast.Producer("orders")
    assert world.stored() == [b"1"]
    p._leave()


def test_topics_that_are_not_made(data: Path) -> None:
    with serving(data, create_topics=False):
        with pytest.raises(NotFound, match="there is no topic"):
            holdfast.Producer("orders")
        with pytest.raises(Unsupported):
            holdfast.Producer("http://orders")


def test_too_many_topics(world: World) -> None:
    kept = [holdfast.Producer(f"t{i}") for i in range(3)]
    with pytest.raises(Misuse, match="3 topics have"):
        holdfast.Producer("one-more")
    for each in kept:
        each.close()


def test_a_message_that_is_too_large(world: World) -> None:
    with holdfast.Producer("orders") as p:
        with pytest.raises(Misuse, match="the largest is"):
            p.put(b"x" * (1 << 16))
        p.put(b"fits")
    assert world.stored() == [b"fits"]


def test_damage_is_not_confirmed(world: World) -> None:
    p = holdfast.Producer("orders")
    p.put(b"good")
    p.flush(5.0)
    p._queue.put_many([b"no entry at all", b"behind it"])
    with pytest.raises(Corrupt, match="position"):
        p.flush(5.0)
    assert world.stored()[0] == b"good"
    with holdfast.Producer("orders") as again:  # with a new queue
        again.put(b"more")
    assert world.stored()[-1] == b"more"
    p._leave()


def test_an_exclusive_producer_keeps_it_out(world: World) -> None:
    p = holdfast.Producer("orders")
    other = world.broker.producer("orders", access="exclusive-with-fencing")
    world.runner(other.open())
    p.put(b"later")
    with pytest.raises(Timeout, match="exclusive producer"):
        p.flush(0.5)
    world.runner(other.close())
    p.close()
    assert world.stored() == [b"later"]


def test_positions_are_forgotten_with_their_segment(world: World) -> None:
    p = holdfast.Producer("orders")
    p.put(b"1")
    p.close()
    topic = world.broker.topic(p.topic).state.id
    ((name, _),) = world.broker.machine.log.sequences(topic)
    assert name.startswith(f"holdfast.ingest.{place.boot()}.")
    segment = world.ingest._segments[topic]
    world.runner(world.ingest.ended(segment, Closed("for this test")))
    assert world.broker.machine.log.sequences(topic) == []


# -- finding ------------------------------------------------------------------------------------------


def test_a_descriptor_that_nobody_holds_is_stale(runtime_directory: Path) -> None:
    (runtime_directory / "holdfast.broker.00").write_text('{"pid": 1, "incarnation": "00", "data": "x"}')
    with pytest.raises(NotFound, match=r"holdfast\.broker\.00 was left by one that has died"):
        holdfast.Producer("orders", timeout=0.05)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files for others")
def test_files_of_others_are_not_believed(world: World, runtime_directory: Path) -> None:
    (descriptor,) = runtime_directory.glob("holdfast.broker.*")
    os.chown(descriptor, 12345, 12345)
    with pytest.raises(NotFound):
        holdfast.Producer("orders", timeout=0.05)


def test_files_are_for_this_user_alone(world: World, runtime_directory: Path) -> None:
    with holdfast.Producer("orders"):
        files = [each for each in runtime_directory.iterdir() if each.is_file()]
        assert len(files) >= 4
        assert {each.stat().st_mode & 0o777 for each in files} == {0o600}


def test_several_brokers(world: World, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with serving(other) as second:
        with pytest.raises(Misuse, match="choose one"):
            holdfast.Producer("orders")
        with holdfast.Producer("orders", data=other) as p:
            p.put(b"x")
        assert second.stored() == [b"x"]
    with holdfast.Producer("orders") as p:
        p.put(b"y")
    assert world.stored() == [b"y"]


def test_one_incarnation_is_served_once(world: World) -> None:
    async def another() -> None:
        await Ingest(world.broker, "elsewhere").start()

    with pytest.raises(Locked, match="a copy of this data directory"):
        world.runner(another())


def test_a_word_that_was_half_written_is_not_believed(tmp_path: Path) -> None:
    """I122."""
    kept = Account.create(
        tmp_path / "page", {"topic": "t", "incarnation": "", "identity": "1", "message_bytes_max": 9}
    )
    seen = Account.open(kept.path)
    kept.confirm(100)
    assert seen.confirmed == 100
    kept._words[1] = 200  # killed before the second word
    assert seen.confirmed == 100
    fresh = Account.open(kept.path)
    assert fresh.confirmed == 0
    kept.mend()
    assert fresh.confirmed == seen.confirmed == 100
    for each in (kept, seen, fresh):
        each.close()
