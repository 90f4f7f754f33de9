"""Clients send anything in any order and leave at any moment: nothing stays behind."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from typing import Any

import pytest

from holdfast._core import encode_messages
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.wire_programs import until
from tests.kit.server.wire_raw import Raw, Type, frame_of, full
from tests.kit.server.wire_world import ServerProcess
from tests.kit.slices import Seed, pick_for, seeds

TOPICS = [full(f"t{n}") for n in range(3)]
SUBSCRIPTIONS = ["s0", "s1"]
USERS = 4
LEFT = ("connections", "producers", "attached", "kept")
"""Of the server's registers: what must be empty when all have gone."""
LIVES, LIVES_OF_A_NIGHT = 12, 60
"""Of each user: connections, one after another."""


class User:
    """Says what comes to its mind. Few ids, so that they meet."""

    def __init__(self, url: str, seed: int, lives: int) -> None:
        self._url, self._lives = url, lives
        self._random = random.Random(seed)
        self._number = 0

    def live(self) -> None:
        rnd = self._random
        for _ in range(self._lives):
            with contextlib.suppress(OSError, EOFError), Raw(self._url) as raw:
                for _ in range(rnd.randrange(1, 50)):
                    raw.socket.sendall(self._anything())
                    if rnd.random() < 0.3:
                        raw.socket.settimeout(0.02)
                        with contextlib.suppress(TimeoutError):
                            raw.socket.recv(1 << 16)
                        raw.socket.settimeout(5.0)
                if rnd.random() < 0.3:  # without a word
                    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")

    def _anything(self) -> bytes:
        rnd = self._random
        self._number += 1
        say = rnd.choice([self._produce, self._send, self._send, self._subscribe, self._subscribe, self._act])
        return say(self._number, rnd.randrange(4))

    def _produce(self, number: int, producer: int) -> bytes:
        rnd = self._random
        fields: dict[str, Any] = {"topic": rnd.choice(TOPICS), "producer_id": producer, "request_id": number}
        if rnd.random() < 0.5:
            named = {"producer_name": rnd.choice("ab"), "user_provided_producer_name": rnd.random() < 0.5}
            fields |= {**named, "epoch": rnd.randrange(3)}
        return frame_of(Type.PRODUCER, producer_access_mode=rnd.choice([0, 0, 0, 1, 2, 3]), **fields)

    def _send(self, number: int, producer: int) -> bytes:
        frames = []
        for sequence in range(number, number + self._random.randrange(1, 6)):
            entry = encode_messages([bytes(self._random.randrange(2000))], "raw", sequence, 1)[0]
            frames.append(frame_of(Type.SEND, entry, producer_id=producer, sequence_id=sequence))
        return b"".join(frames)

    def _subscribe(self, number: int, consumer: int) -> bytes:
        rnd = self._random
        durable = rnd.random() < 0.7
        return frame_of(
            Type.SUBSCRIBE,
            topic=rnd.choice(TOPICS),
            subscription=rnd.choice(SUBSCRIPTIONS) if durable else "volatile",
            durable=durable,
            consumer_id=consumer,
            subType=rnd.choice([0, 1, 1, 2]),
            priority_level=rnd.randrange(3),
            initialPosition=rnd.randrange(2),
            request_id=number,
        ) + frame_of(Type.FLOW, consumer_id=consumer, messagePermits=rnd.choice([1, 10, 1000]))

    def _act(self, number: int, one: int) -> bytes:
        rnd = self._random
        request: dict[str, Any] = {"request_id": number}
        place = pb.MessageIdData(ledgerId=rnd.choice([1, 2, 3, 9, (1 << 64) - 1]), entryId=rnd.randrange(9))
        watch: dict[str, Any] = {
            "namespace": "public/default",
            "topics_pattern": rnd.choice([".*", "public/default/t[01]"]),
        }
        return rnd.choice(
            [
                frame_of(Type.CLOSE_PRODUCER, producer_id=one, **request),
                frame_of(Type.CLOSE_CONSUMER, consumer_id=one, **request),
                frame_of(Type.FLOW, consumer_id=one, messagePermits=100),
                frame_of(Type.ACK, consumer_id=one, ack_type=one % 2, message_id=[place], **request),
                frame_of(Type.SEEK, consumer_id=one, message_id=place, **request),
                frame_of(
                    Type.SEEK, consumer_id=one, message_publish_time=rnd.choice([0, 1 << 50]), **request
                ),
                frame_of(Type.UNSUBSCRIBE, consumer_id=one, force=rnd.random() < 0.3, **request),
                frame_of(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=one, message_ids=[place]),
                frame_of(Type.GET_LAST_MESSAGE_ID, consumer_id=one, **request),
                frame_of(Type.CONSUMER_STATS, consumer_id=one, **request),
                frame_of(Type.WATCH_TOPIC_LIST, watcher_id=one, **watch, **request),
                frame_of(Type.WATCH_TOPIC_LIST_CLOSE, watcher_id=one, **request),
                frame_of(Type.GET_TOPICS_OF_NAMESPACE, **watch, **request),
            ]
        )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", seeds("wire", test=2, nightly=20))
def test_a_storm_leaves_nothing_behind(seed: Seed) -> None:
    """I86: no producer, consumer, watch or volatile subscription stays; new clients are served."""
    limits = {
        "requests_in_flight": 8,
        "producers_per_connection": 3,
        "consumers_per_connection": 3,
        "watchers_per_connection": 2,
    }
    process = ServerProcess(
        broker={"deduplication": seed % 2 == 1},
        server={"keepalive_s": 2.0, "liveness_s": 0.2, "volatile_s": 0.3, **limits},
    )
    try:
        lives = pick_for(seed, test=LIVES, nightly=LIVES_OF_A_NIGHT)
        users = [threading.Thread(target=User(process.url, 100 * seed + n, lives).live) for n in range(USERS)]
        for user in users:
            user.start()
        rnd = random.Random(seed)
        while any(user.is_alive() for user in users):
            with contextlib.suppress(RuntimeError):  # it is not there
                process.admin.unload(rnd.choice(TOPICS))
            with contextlib.suppress(RuntimeError):
                process.admin.delete_topic(rnd.choice(TOPICS), force=True)
            users[0].join(0.1)
        until(lambda: not any(map(process.admin.count, LEFT)), 20.0)
        until(lambda: process.admin.watched() == 0)
        with Raw(process.url) as raw:
            raw.produce("fresh", producer_access_mode=pb.Exclusive)
            raw.subscribe("fresh")
            raw.flow(1)
            raw.send(0, b"x")
            raw.expect(Type.SEND_RECEIPT)
            raw.messages(1)
            for topic in TOPICS:
                name = topic.rpartition("/")[2]
                raw.produce(name, 2, producer_access_mode=pb.Exclusive)  # no client has it or waits for it
                raw.ask(Type.CLOSE_PRODUCER, producer_id=2)
                for subscription in SUBSCRIPTIONS:
                    raw.subscribe(name, 2, subscription=subscription)
                    raw.ask(Type.CLOSE_CONSUMER, consumer_id=2)
        assert process.stop() == 0
        assert "failed" not in process.errors()
        assert "Traceback" not in process.errors()
    finally:
        process.end()
