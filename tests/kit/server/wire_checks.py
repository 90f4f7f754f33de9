"""Checks of the protocol, frame by frame; a mutant of the server fails each.

A good server passes all of them (`tests/pulsar/test_checks.py`). Each mutant of `wire_server.MUTANTS` fails
the check that `CHECKS` names beside it (`tests/mutants/test_wire.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar.patterns import hash_of
from tests.kit.processes import private_memory, until
from tests.kit.server import wire_raw
from tests.kit.server.wire_raw import Raw, Type, frame_of, full, id_of, sends
from tests.kit.server.wire_world import ServerProcess

MIB = 1 << 20


@dataclass(frozen=True)
class Wire:
    """A server, a connection to it, and a topic that no other test uses."""

    process: ServerProcess
    raw: Raw
    topic: str

    @property
    def url(self) -> str:
        return self.process.url

    @property
    def admin(self) -> Any:
        return self.process.admin


Check = Callable[[Wire], None]

# -- positions ----------------------------------------------------------------------------------------


def order_of_a_seek(at: Wire) -> None:
    """I81, I82: CLOSE_CONSUMER to all, the reset, SUCCESS to the requester; then no old message."""
    ids = at.raw.publish(at.topic, 10)
    at.raw.subscribe(at.topic, 1, sub_type=1)
    with Raw(at.url) as other:
        other.subscribe(at.topic, 2, sub_type=1)
        at.raw.flow(1000)
        at.raw.messages(10)
        at.raw.tell(Type.SEEK, consumer_id=1, request_id=50, message_id=ids[3])
        assert at.raw.expect(Type.CLOSE_CONSUMER).consumer_id == 1
        assert at.raw.expect(Type.SUCCESS).request_id == 50
        assert other.expect(Type.CLOSE_CONSUMER).consumer_id == 2
        assert at.admin.stats(at.topic, "s")["backlog"] == 7
        at.raw.flow(1000)
        at.raw.silent()  # there is no consumer to give permits to
        at.raw.subscribe(at.topic, 1, sub_type=1)
        at.raw.flow(1000)
        again = at.raw.messages(7)
        assert [each.message_id.entryId for each in again] == list(range(3, 10))
        assert all(each.redelivery_count == 0 for each in again)


def subscribe_during_a_seek_is_answered_first(at: Wire) -> None:
    """The client reconnects before its seek ends: SUBSCRIBE, then SEEK, then messages."""
    at.raw.publish(at.topic, 3)
    at.raw.subscribe(at.topic)
    at.admin.slow_resets(0.3)
    try:
        at.raw.tell(Type.SEEK, consumer_id=1, request_id=50, message_publish_time=0)
        at.raw.expect(Type.CLOSE_CONSUMER)
        at.raw.tell(
            Type.SUBSCRIBE, topic=full(at.topic), subscription="s", subType=0, consumer_id=1, request_id=51
        )
        at.raw.silent(0.1)
        assert at.raw.expect(Type.SUCCESS).request_id == 51
        assert at.raw.expect(Type.SUCCESS).request_id == 50
        at.raw.flow(10)
        at.raw.messages(3)
    finally:
        at.admin.slow_resets(0.0)


def consumer_with_permits_left_is_rewound(at: Wire) -> None:
    """Its permits stay as they were: it gives no new ones."""
    at.raw.publish(at.topic, 4)
    at.raw.subscribe(at.topic)
    at.raw.flow(10)
    at.raw.messages(4)
    at.raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
    assert [each.message_id.entryId for each in at.raw.messages(4)] == [0, 1, 2, 3]
    at.raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1)
    at.raw.messages(2)
    at.raw.silent()


def reset_closes_the_consumer(at: Wire) -> None:
    at.raw.publish(at.topic, 5)
    at.raw.subscribe(at.topic)
    at.raw.flow(1000)
    at.raw.messages(5)
    at.admin.reset(at.topic, "s", "earliest")
    assert at.raw.expect(Type.CLOSE_CONSUMER).consumer_id == 1
    at.raw.silent()


def reader_finds_its_place_after_a_seek(at: Wire) -> None:
    at.raw.publish(at.topic, 5)
    fields: dict[str, Any] = {"subscription": "r", "durable": False, "initialPosition": 0}
    most = pb.MessageIdData(ledgerId=(1 << 63) - 1, entryId=(1 << 63) - 1)
    at.raw.subscribe(at.topic, 1, start_message_id=most, **fields)
    at.raw.ask(Type.SEEK, consumer_id=1, message_publish_time=1)
    at.raw.subscribe(at.topic, 1, start_message_id=most, **fields)
    at.raw.flow(10)
    assert [each.message_id.entryId for each in at.raw.messages(5)] == [0, 1, 2, 3, 4]


def end_of_a_topic(at: Wire) -> None:
    at.raw.publish(at.topic, 2)
    at.raw.subscribe(at.topic)
    at.raw.flow(10)
    messages = at.raw.messages(2)
    at.admin.terminate(at.topic)
    at.raw.silent()
    at.raw.ack(id_of(messages[0]))
    at.raw.ack(id_of(messages[1]))
    assert at.raw.expect(Type.REACHED_END_OF_TOPIC).consumer_id == 1
    at.raw.subscribe(at.topic, 2, subscription="new", initialPosition=0)
    assert at.raw.expect(Type.REACHED_END_OF_TOPIC).consumer_id == 2


# -- slow clients ------------------------------------------------------------------------------------


def fill(at: Wire, count: int, size: int) -> None:
    """Publish `count` entries of `size` bytes."""
    with Raw(at.url) as raw:
        raw.produce(at.topic)
        sending = threading.Thread(target=raw.push, args=(sends(count, size),))
        sending.start()
        for n in range(count):
            assert raw.expect(Type.SEND_RECEIPT).sequence_id == n
        sending.join()


def large_entries_wait_for_their_reader(at: Wire) -> None:
    """I84: what waits for a client that does not read is limited; others are served."""
    unread_is_bounded(at, 64, MIB)


def small_entries_wait_for_their_reader(at: Wire) -> None:
    """I84, with small entries."""
    unread_is_bounded(at, 40_000, 1000)


def unread_is_bounded(at: Wire, count: int, size: int) -> None:
    fill(at, count, size)
    before = private_memory(at.process.pid)
    with Raw(at.url) as slow, Raw(at.url) as quick:
        slow.subscribe(at.topic)
        slow.flow(1_000_000)
        quick.subscribe(at.topic, subscription="quick")
        quick.flow(1_000_000)
        quick.messages(count)  # others are served
        assert private_memory(at.process.pid) - before < 24 * MIB
        assert at.admin.stats(at.topic, "s")["pending"] < count
        assert [each.message_id.entryId for each in slow.messages(count)] == list(range(count))


def client_that_does_not_read_its_answers(at: Wire) -> None:
    """Its requests are not read, either, so it cannot make the server collect answers."""
    before = private_memory(at.process.pid)
    with Raw(at.url) as slow:
        large = slow.schema(at.topic, 60_000)
        sending = threading.Thread(target=slow.push, args=(large * 1000,), daemon=True)
        sending.start()
        until(lambda: at.admin.unread() or not sending.is_alive())
        assert sending.is_alive(), "the server has read all of it"
        assert private_memory(at.process.pid) - before < 24 * MIB


def disk_that_stands_still(at: Wire) -> None:
    """I85: publishers are read up to a limit; when the disk continues, all is confirmed."""
    count = 160
    with Raw(at.url) as other:
        at.raw.produce(at.topic)
        other.subscribe("elsewhere")
        data = sends(count, MIB)
        before = private_memory(at.process.pid)
        at.admin.hold_disk()
        sending = threading.Thread(target=at.raw.push, args=(data,), daemon=True)
        sending.start()
        until(lambda: at.admin.unread() or not sending.is_alive())
        assert sending.is_alive(), "the server has read all of it"
        assert at.admin.under_way() < 24 * MIB
        # in frames, in the log's round, on their way to the disk
        assert private_memory(at.process.pid) - before < 96 * MIB
        other.tell(Type.PING)
        other.expect(Type.PONG)  # a client that does not publish is served
        at.admin.release_disk()
        for n in range(count):
            assert at.raw.expect(Type.SEND_RECEIPT).sequence_id == n
        sending.join()


# -- dead clients ------------------------------------------------------------------------------------


def keep_alive(at: Wire) -> None:
    with Raw(at.url) as silent, Raw(at.url) as lively:
        for _ in range(3):
            kind, _message = lively.hear()
            assert kind == Type.PING
            lively.tell(Type.PONG)
        assert {kind for kind, _ in silent.closed()} == {Type.PING}
        lively.tell(Type.PING)
        assert lively.hear()[0] in (Type.PONG, Type.PING)


def dead_holder_gives_way(at: Wire) -> None:
    """A vanished client holds neither a name nor an exclusive subscription for long."""
    with Raw(at.url) as dead, Raw(at.url) as raw:
        dead.produce("held", producer_name="till")
        dead.subscribe("held")
        assert raw.produce("held", producer_name="till").producer_name == "till"
        raw.subscribe("held")


# -- watches ------------------------------------------------------------------------------------------


def follow(raw: Raw, known: set[str], wanted: set[str]) -> int:
    """Receive updates until these topics are known; return their number.

    I88: each change is sent once.
    """
    count = 0
    while known != wanted:
        update = raw.expect(Type.WATCH_TOPIC_UPDATE)
        assert not known & set(update.new_topics)
        assert known >= set(update.deleted_topics)
        known |= set(update.new_topics)
        known -= set(update.deleted_topics)
        assert update.topics_hash == hash_of(known)
        count += 1
    return count


def topics_that_come_and_go(at: Wire) -> None:
    """I88: created and deleted topics are sent."""
    admin = at.admin
    admin.create_topic(full(f"{at.topic}-0"))
    answer = at.raw.watch(f"public/default/{at.topic}-.*", 7)
    assert (answer.watcher_id, list(answer.topic)) == (7, [full(f"{at.topic}-0")])
    assert answer.topics_hash == hash_of(answer.topic)
    admin.create_topic(full(f"{at.topic}-1"))
    admin.create_topic(full(f"other-{at.topic}-1"))
    update = at.raw.expect(Type.WATCH_TOPIC_UPDATE)
    assert (update.watcher_id, list(update.new_topics), list(update.deleted_topics)) == (
        7,
        [full(f"{at.topic}-1")],
        [],
    )
    admin.delete_topic(full(f"{at.topic}-0"))
    update = at.raw.expect(Type.WATCH_TOPIC_UPDATE)
    assert (list(update.new_topics), list(update.deleted_topics)) == ([], [full(f"{at.topic}-0")])
    assert update.topics_hash == hash_of([full(f"{at.topic}-1")])
    at.raw.unwatch(7)
    admin.create_topic(full(f"{at.topic}-2"))
    at.raw.silent()


def every_partition_is_watched(at: Wire) -> None:
    """I88: a pattern that matches a topic has all its partitions, and later ones."""
    admin, whole = at.admin, full(f"{at.topic}-whole")
    pattern = f"public/default/{at.topic}-w[a-z]*"
    admin.create_partitioned_topic(whole, 2)
    answer = at.raw.watch(pattern, 8)
    assert list(answer.topic) == [f"{whole}-partition-{n}" for n in range(2)]
    admin.grow_partitions(whole, 4)
    update = at.raw.expect(Type.WATCH_TOPIC_UPDATE)
    assert sorted(update.new_topics) == [f"{whole}-partition-{n}" for n in (2, 3)]
    names = [f"{whole}-partition-{n}" for n in range(4)]
    assert update.topics_hash == hash_of(names)
    asked = at.raw.ask(
        Type.GET_TOPICS_OF_NAMESPACE,
        Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        namespace="public/default",
        topics_pattern=pattern,
    )
    assert (sorted(asked.topics), asked.topics_hash) == (names, update.topics_hash)
    admin.delete_partitioned_topic(whole)
    gone = at.raw.expect(Type.WATCH_TOPIC_UPDATE)
    assert (sorted(gone.deleted_topics), gone.topics_hash) == (names, hash_of([]))
    at.raw.unwatch(8)


def many_topics_come_at_once(at: Wire) -> None:
    """I88: also while the watch opens, and from any creator."""
    count = 60
    names = {full(f"{at.topic}-{n}") for n in range(count)}
    with Raw(at.url) as maker:
        frames = [
            frame_of(Type.PRODUCER, topic=name, producer_id=n, request_id=n) for n, name in enumerate(names)
        ]
        maker.socket.sendall(b"".join(frames[: count // 2]))
        known = set(at.raw.watch(f"public/default/{at.topic}-\\d+").topic)
        maker.socket.sendall(b"".join(frames[count // 2 :]))
        follow(at.raw, known, names)
    for name in list(names)[:20]:
        at.admin.delete_topic(name, force=True)
        names.discard(name)
    follow(at.raw, known, names)
    at.raw.silent()


def watches_of_one_pattern_are_one(at: Wire) -> None:
    admin, pattern = at.admin, f"public/default/{at.topic}.*"
    with Raw(at.url) as other:
        at.raw.watch(pattern, 1)
        other.watch(pattern, 1)
        at.raw.watch(pattern, 2)
        assert admin.watched() == 1
        assert at.raw.watch(".*", 2, Type.ERROR).error == pb.NotAllowedError  # the id is in use
        assert not at.raw.watch(pattern, 2).topic  # the same again is answered again
        admin.create_topic(full(at.topic))
        assert {at.raw.expect(Type.WATCH_TOPIC_UPDATE).watcher_id for _ in range(2)} == {1, 2}
        other.expect(Type.WATCH_TOPIC_UPDATE)
        at.raw.unwatch(1)
        at.raw.unwatch(1)  # once more: it is closed
        at.raw.unwatch(2)
        assert admin.watched() == 1
    until(lambda: admin.watched() == 0, wire_raw.PATIENCE_S)  # I86: it ended with its client


# -- damage --------------------------------------------------------------------------------------------


def place_of(process: ServerProcess, payload: bytes) -> tuple[Path, int]:
    """Find the ledger's file with this payload, and its offset."""
    for file in (process.directory / "data" / "ledgers").glob("*.data"):
        at = file.read_bytes().find(payload)
        if at >= 0:
            return file, at
    raise AssertionError(f"{payload!r} is in no ledger")


def flip(file: Path, at: int) -> None:
    """Damage a byte of a file; a second call restores it."""
    with file.open("r+b") as data:
        data.seek(at)
        (byte,) = data.read(1)
        data.seek(at)
        data.write(bytes([byte ^ 0x40]))


def damage_is_told(at: Wire) -> None:
    """A consumer at a damaged entry is closed when it holds nothing, then refused."""
    file, place = damaged(at)
    at.raw.subscribe(at.topic)
    at.raw.flow(100)
    got = at.raw.messages(3)
    at.raw.silent(0.2)  # it holds three
    at.raw.ack(*[each.message_id for each in got])
    assert at.raw.expect(Type.CLOSE_CONSUMER).consumer_id == 1
    fields: dict[str, Any] = {"topic": full(at.topic), "subscription": "s", "subType": 0, "consumer_id": 1}
    reader = {**fields, "subscription": "r", "durable": False, "start_message_id": got[2].message_id}
    for each in (fields, reader):
        require_told(at, at.raw.ask(Type.SUBSCRIBE, Type.ERROR, **each), file)
    stats = at.admin.stats(at.topic, "s")
    assert (stats["backlog"], stats["reason"]) == (3, "read failed"), stats
    at.raw.ask(Type.SUBSCRIBE, **{**reader, "start_message_id": got[0].message_id})  # sound: served
    id_ = pb.MessageIdData(ledgerId=got[0].message_id.ledgerId, entryId=3)
    require_told(at, at.raw.ask(Type.SEEK, Type.ERROR, consumer_id=1, message_id=id_), file)
    flip(file, place)
    at.raw.subscribe(at.topic, 2)
    at.raw.flow(100, 2)
    assert [each.message_id.entryId for each in at.raw.messages(3)] == [3, 4, 5]


def damage_does_not_wait_for_acknowledgements(at: Wire) -> None:
    """A consumer that acknowledges nothing is closed after a time; its messages are redelivered."""
    damaged(at)
    at.admin.wait_for_acks(0.3)
    try:
        for _ in range(2):
            at.raw.subscribe(at.topic)
            at.raw.flow(100)
            assert [each.message_id.entryId for each in at.raw.messages(3)] == [0, 1, 2]
            assert at.raw.expect(Type.CLOSE_CONSUMER).consumer_id == 1
    finally:
        at.admin.wait_for_acks(60.0)


def damaged(at: Wire) -> tuple[Path, int]:
    """Publish six entries and damage the fourth; return its file and offset."""
    at.raw.produce(at.topic)
    for number in range(6):
        at.raw.send(number, f"<{at.topic} {number}>".encode())
        at.raw.expect(Type.SEND_RECEIPT)
    file, place = place_of(at.process, f"<{at.topic} 3>".encode())
    flip(file, place)
    return file, place


def require_told(at: Wire, error: Any, file: Path) -> None:
    assert error.error == pb.ChecksumError
    assert f"{full(at.topic)}, position 3: {file}: entry 3 cannot be read at offset" in error.message


CHECKS: dict[str, Check] = {
    "seek leaves the consumers": order_of_a_seek,
    "answers overtake": subscribe_during_a_seek_is_answered_first,
    "a rewind takes the permits": consumer_with_permits_left_is_rewound,
    "a reset leaves the client's queue": reset_closes_the_consumer,
    "a slow client is sent more": large_entries_wait_for_their_reader,
    "a slow client is read": client_that_does_not_read_its_answers,
    "a slow disk is given more": disk_that_stands_still,
    "everybody lives": dead_holder_gives_way,
    "a reader's place is forgotten": reader_finds_its_place_after_a_seek,
    "the end is not told": end_of_a_topic,
    "nobody is pinged": keep_alive,
    "damage is only logged": damage_is_told,
    "a watch hears only of what comes": topics_that_come_and_go,
    "a watch is told nothing more": many_topics_come_at_once,
    "all that is watched stays": watches_of_one_pattern_are_one,
    "a partition is left out of a pattern": every_partition_is_watched,
}
"""Checks by the mutant that must fail them."""
FURTHER: tuple[Check, ...] = (
    small_entries_wait_for_their_reader,
    damage_does_not_wait_for_acknowledgements,
)
HASTY = (dead_holder_gives_way, keep_alive)
"""Checks that need a server with short limits."""
