"""Watch topic lists with raw clients; the official one for Python polls."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.wire_programs import nothing_comes, until
from tests.kit.server.wire_raw import Raw, Type, full
from tests.kit.server.wire_world import ServerProcess, program, pulsar, server


def test_who_knows_them_is_not_told_them(raw: Raw, topic: str) -> None:
    raw.produce(topic)
    pattern = f"persistent://public/default/{topic}"
    first = raw.watch(pattern)
    assert list(first.topic) == [full(topic)]
    raw.unwatch()
    again = raw.watch(pattern, topics_hash=first.topics_hash)
    assert (again.topics_hash, list(again.topic)) == (first.topics_hash, [])
    for more, changed in (({"topics_hash": first.topics_hash}, False), ({}, True)):
        asked = raw.ask(
            Type.GET_TOPICS_OF_NAMESPACE,
            Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
            namespace="public/default",
            topics_pattern=pattern,
            **more,
        )
        assert asked.filtered
        assert asked.topics_hash == first.topics_hash
        assert (asked.changed, list(asked.topics)) == (changed, [full(topic)] if changed else [])


def test_a_pattern_that_is_the_clients_to_match(raw: Raw, topic: str) -> None:
    """A list is answered whole; it is not watched."""
    raw.produce(topic)
    asked = raw.ask(
        Type.GET_TOPICS_OF_NAMESPACE,
        Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        namespace="public/default",
        topics_pattern="public/default/(?=x)",
    )
    assert not asked.filtered
    assert full(topic) in asked.topics


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topics_pattern": "("}, pb.NotAllowedError),
        ({"topics_pattern": "x" * 2000}, pb.NotAllowedError),
        ({"topics_pattern": "(a)\\1"}, pb.NotAllowedError),
        ({"topics_pattern": "((a{1,50}){1,50}){1,50}"}, pb.NotAllowedError),
        ({"namespace": "public"}, pb.InvalidTopicName),
        ({"namespace": ""}, pb.InvalidTopicName),
    ],
)
def test_what_cannot_be_watched(raw: Raw, fields: dict[str, Any], code: int) -> None:
    fields = {"namespace": "public/default", "topics_pattern": ".*", **fields}
    error = raw.ask(Type.WATCH_TOPIC_LIST, Type.ERROR, watcher_id=1, **fields)
    assert error.error == code
    assert error.message
    assert server().admin.watched() == 0


def test_a_costly_pattern_holds_nobody_up(raw: Raw, topic: str) -> None:
    """A pattern that takes backtracking engines years is answered; a large one is refused."""
    name = "a" * 200
    raw.produce(f"{topic}-{name}")
    assert not raw.watch(f"public/default/{topic}-(a+)+b", 1).topic
    assert raw.watch(f"public/default/{topic}-((a*)*)*", 2).topic
    ways = "(a|a|a|a|a|a|a|a)*" * 25
    assert not raw.watch(f"public/default/{topic}-{ways}b", 3).topic
    assert "too large" in raw.watch(".{0,900}", 4, Type.ERROR).message
    for watcher in (1, 2, 3):
        raw.unwatch(watcher)


def test_a_client_that_goes_while_it_is_answered(topic: str) -> None:
    """I86"""
    for _ in range(20):
        with Raw(server().url) as raw:
            for watcher in range(20):
                fields: dict[str, Any] = {"namespace": "public/default", "topics_pattern": f"x{watcher}.*"}
                raw.tell(Type.WATCH_TOPIC_LIST, watcher_id=watcher, request_id=watcher, **fields)
    until(lambda: server().admin.watched() == 0)


def test_who_does_not_read_is_told_later(topic: str) -> None:
    """I84, I88: nothing collects for it; later it learns each missed change once."""
    process = ServerProcess(server={"write_bytes": 4096})
    try:
        with Raw(process.url) as slow:
            data = slow.schema("large", 60_000) * 400
            known = set(slow.watch("public/default/t.*").topic)
            sending = threading.Thread(target=slow.socket.sendall, args=(data,))
            sending.start()
            until(lambda: process.admin.stalled() == 1)
            names = {full(f"t{n}") for n in range(50)}
            for name in sorted(names):
                process.admin.create_topic(name)
            process.admin.delete_topic(full("t7"))
            names.discard(full("t7"))
            until(lambda: process.admin.untold() == 1)
            answers = updates = 0
            while answers < 400 or known != names:
                kind, message = slow.hear()
                if kind == Type.WATCH_TOPIC_UPDATE:
                    updates += 1
                    assert not known & set(message.new_topics)
                    known |= set(message.new_topics)
                    known -= set(message.deleted_topics)
                else:
                    assert kind == Type.GET_SCHEMA_RESPONSE
                    answers += 1
            assert updates < 10
            sending.join()
    finally:
        process.end()


@program
def test_a_consumer_of_a_pattern(client: Any, topic: str) -> None:
    """The official client gets the existing topics. It polls for others once a minute."""
    import re

    producers = [client.create_producer(f"{topic}-{n}") for n in range(3)]
    client.create_producer(f"other-{topic}").send(b"other")
    for n, producer in enumerate(producers):
        producer.send(b"%d" % n)
    consumer = client.subscribe(
        re.compile(f"persistent://public/default/{topic}-[0-9]"),
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
    )
    assert {consumer.receive(20_000).data() for _ in range(3)} == {b"0", b"1", b"2"}
    nothing_comes(consumer)
