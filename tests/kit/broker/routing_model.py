"""A random world of exchanges, beside a plain model of its topics.

The model knows nothing of events, entries or ledgers. It is a dictionary of lists, and a matcher that tries
everything.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from typing import Any, cast

from holdfast._core import Log, encode_messages, parse_entry
from holdfast.broker.batches import size_of, split
from holdfast.broker.events import (
    ALTERNATE,
    AlternateSet,
    Bind,
    ExchangeCreate,
    ExchangeDelete,
    Move,
    Row,
    SubscriptionCreate,
    TopicCreate,
    TopicDelete,
    Unbind,
)
from holdfast.broker.exchanges import KINDS
from holdfast.broker.machine import Machine
from holdfast.broker.state import Policies
from holdfast.names import topic_name
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.broker.events import Publish, Rig

KEYS = ("", "a", "b", "a.b", "b.a", "a.b.c")
PATTERNS = (*KEYS[1:], "#", "*", "a.*", "*.b", "#.c", "a.#.c", "*.*.#")
TOPICS = ("red", "green", "blue")
EXCHANGES = ("one", "two", "three")


def matches(pattern: list[str], words: list[str]) -> bool:
    """Compare a pattern with words by brute force."""
    if not pattern:
        return not words
    first, rest = pattern[0], pattern[1:]
    if first == "#":
        return any(matches(rest, words[skipped:]) for skipped in range(len(words) + 1))
    return bool(words) and first in ("*", words[0]) and matches(rest, words[1:])


def words(key: str) -> list[str]:
    return key.split(".") if key else []


@dataclass
class Exchange:
    """An exchange of the model."""

    kind: str
    alternate: str | None
    bindings: list[tuple[str, str]] = field(default_factory=list)
    dropped: float = 0

    def targets(self, key: str) -> set[str]:
        if self.kind == "fanout":
            return {topic for topic, _ in self.bindings}
        if self.kind == "direct":
            return {topic for topic, bound in self.bindings if bound == key}
        return {topic for topic, pattern in self.bindings if matches(words(pattern), words(key))}


def batch_of(messages: list[tuple[str, bytes]]) -> bytes:
    """Return a batch as clients make it, whose messages have keys of their own."""
    payload = b""
    for key, data in messages:
        own = pb.SingleMessageMetadata(payload_size=len(data), partition_key=key or None)
        head = own.SerializeToString()
        payload += struct.pack(">I", len(head)) + head + data
    whole = pb.MessageMetadata(
        producer_name="p", sequence_id=0, publish_time=0, num_messages_in_batch=len(messages)
    )
    head = whole.SerializeToString()
    return struct.pack(">I", len(head)) + head + payload


class Recorder:
    """A log that remembers the entries that events appended to each topic."""

    def __init__(self) -> None:
        self._log = Log()
        self.written: dict[int, list[bytes]] = {}

    def append(self, topic: int, entries: list[bytes]) -> Any:
        self.written.setdefault(topic, []).extend(entries)
        return self._log.append(topic, entries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class World:
    """A machine and its model, given the same random requests."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = Recorder()
        self.rig = Rig(Machine(cast(Log, self.log)))
        self.topics: dict[str, list[bytes]] = {}
        self.exchanges: dict[str, Exchange] = {}
        self.open: dict[str, set[int]] = {}
        """By topic: positions that its subscription has not acknowledged."""
        self.alternates: dict[str, str] = {}
        self.sent: dict[str, int] = {}
        self.snapshots: list[tuple[list[bytes], int]] = []
        self.number = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            if self.rng.random() < 0.05:
                self.snapshots.append((self.rig.machine.capture().parts, len(self.rig.journal)))

    # -- the machine -----------------------------------------------------------------------------------

    def id(self, name: str) -> int:
        return self.rig.machine.state.names.get(topic_name(name), 99)

    def subscription(self, name: str) -> int:
        return self.rig.machine.state.topics[self.id(name)].subscriptions["s"].id

    # -- steps -----------------------------------------------------------------------------------------

    def step(self) -> None:
        for name in TOPICS:
            if name not in self.topics:
                self._create_topic(name)
        rng = self.rng
        steps = [self.publish] * 5 + [self.bind] * 3
        steps += [self.exchange, self.unbind, self.alternate, self.reject, self.retry]
        if rng.random() < 0.02:
            steps = [self.delete_topic, self.delete_exchange]
        rng.choice(steps)()

    def _create_topic(self, name: str) -> None:
        made = self.rig.do(TopicCreate(topic_name(name), bytes(16), Policies()))
        self.rig.do(SubscriptionCreate(made.topic, "s", 0))
        self.topics[name], self.open[name] = [], set()

    def exchange(self) -> None:
        name, alternate = self.rng.choice(EXCHANGES), self.rng.choice([None, *self.exchanges])
        if name in self.exchanges:
            return
        kind = self.rng.choice(KINDS)
        other = 0 if alternate is None else self.id(alternate)
        self.rig.do(ExchangeCreate(topic_name(name), bytes(16), kind, other, False, True))
        self.rig.producer(self.rig.machine.state.topics[self.id(name)], "p")
        self.exchanges[name] = Exchange(kind, alternate)
        self.sent[name] = 0

    def picked(self) -> str | None:
        return self.rng.choice([*self.exchanges]) if self.exchanges else None

    def bind(self) -> None:
        name, topic, key = self.picked(), self.rng.choice(TOPICS), self.rng.choice(PATTERNS)
        if name is None:
            return
        self.rig.do(Bind(self.id(name), self.id(topic), key))
        if (topic, key) not in self.exchanges[name].bindings:
            self.exchanges[name].bindings.append((topic, key))

    def unbind(self) -> None:
        name = self.picked()
        if name is None or not self.exchanges[name].bindings:
            return
        topic, key = self.rng.choice(self.exchanges[name].bindings)
        self.rig.do(Unbind(self.id(name), self.id(topic), key))
        self.exchanges[name].bindings.remove((topic, key))

    def alternate(self) -> None:
        name, other = self.picked(), self.picked()
        if name is None or other is None:
            return
        if self.rng.random() < 0.5:
            topic = self.rng.choice(TOPICS)
            self.rig.do(AlternateSet(self.id(other), topic=self.id(topic)))
            self.alternates[topic] = other
        elif name != other:
            self.rig.do(AlternateSet(self.id(other), topic=self.id(name)))
            self.exchanges[name].alternate = other

    def delete_topic(self) -> None:
        name = self.rng.choice(TOPICS)
        self.rig.do(TopicDelete(self.id(name), force=True))
        del self.topics[name], self.open[name]
        self.alternates.pop(name, None)
        for exchange in self.exchanges.values():
            exchange.bindings = [each for each in exchange.bindings if each[0] != name]

    def delete_exchange(self) -> None:
        name = self.picked()
        if name is None:
            return
        self.rig.do(ExchangeDelete(self.id(name), force=True))
        del self.exchanges[name]
        self.alternates = {topic: other for topic, other in self.alternates.items() if other != name}
        for exchange in self.exchanges.values():
            if exchange.alternate == name:
                exchange.alternate = None

    # -- messages --------------------------------------------------------------------------------------

    def publish(self) -> None:
        name = self.picked()
        if name is None:
            return
        messages = [(self.rng.choice(KEYS), self._payload()) for _ in range(self.rng.choice([1, 1, 3]))]
        batched = self.rng.random() < 0.5
        if batched:
            entries = [batch_of(messages)]
        else:
            entries = [self._encoded(key, [data], 1)[0] for key, data in messages]
        self._send(name, entries, self.sent[name])
        self.sent[name] += len(entries)
        whole = batched and not self._splits(name, {key for key, _ in messages})
        for key, data in messages:
            self._route(name, key, data, 1 / len(messages) if whole else 1)

    def _splits(self, name: str, keys: set[str]) -> bool:
        """Return whether an exchange splits a batch with these keys."""
        exchange = self.exchanges[name]
        if exchange.kind == "fanout" and not exchange.bindings and exchange.alternate is not None:
            exchange = self.exchanges[exchange.alternate]
        return len(keys) > 1 and exchange.kind != "fanout"

    def retry(self) -> None:
        """Send again what was sent before: nothing may be routed twice."""
        name = self.picked()
        if name is not None and self.sent[name]:
            sequence = self.rng.randrange(self.sent[name])
            published = self._send(name, self._encoded("a", [b"again"], 1), sequence)
            assert published == (0, 1), "a duplicate was published"

    def _payload(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    def _encoded(self, key: str, payloads: list[bytes], batch: int) -> list[bytes]:
        return encode_messages(payloads, "p", 0, 0, key=key or None, batch=batch)

    def _send(self, name: str, entries: list[bytes], sequence: int) -> tuple[int, int]:
        topic = self.rig.machine.state.topics[self.id(name)]
        [session] = topic.producers
        outcome = self.rig.do(Publish(topic.id, session, entries, sequence=sequence))
        return outcome.count, len(outcome.duplicates)

    def _route(self, name: str, key: str, data: bytes, part: float = 1) -> None:
        """Do in the model what the exchange must do.

        `part`: the part of an entry, for its counts.
        """
        exchange = self.exchanges[name]
        targets = exchange.targets(key)
        if not targets and exchange.alternate is not None:
            exchange = self.exchanges[exchange.alternate]
            targets = exchange.targets(key)
        if not targets:
            exchange.dropped += part
        for topic in targets:
            self.open[topic].add(len(self.topics[topic]))
            self.topics[topic].append(data)

    def reject(self) -> None:
        """Reject a message, and once more: it goes to the alternate once."""
        choices = [topic for topic in self.alternates if self.open[topic]]
        if not choices:
            return
        topic = self.rng.choice(choices)
        at = self.rng.choice(sorted(self.open[topic]))
        key, data = self.rng.choice(KEYS), self.topics[topic][at]
        ordinal, size, index = self.places(topic)[at]
        [entry] = self._encoded(key, [data], 1)
        row = Row(ordinal, entry) if size < 2 else Row(ordinal, entry, size, bytes([1 << index]))
        event = Move([self.subscription(topic)], [0], ALTERNATE, [row])
        assert self.rig.do(event).rows == (0,)
        assert self.rig.do(event).rows == ()
        self.open[topic].remove(at)
        self._route(self.alternates[topic], key, data)

    def places(self, topic: str) -> list[tuple[int, int, int]]:
        """Return ordinal, batch size and batch index of each message of a topic."""
        return [
            (ordinal, size, index)
            for ordinal, entry in enumerate(self.entries(self.log)[topic])
            for size in [max(1, size_of(entry))]
            for index in range(size)
        ]

    # -- comparison ------------------------------------------------------------------------------------

    def entries(self, log: Recorder) -> dict[str, list[bytes]]:
        """Return the entries of each topic, as events appended them."""
        return {name: log.written.get(self.id(name), []) for name in self.topics}

    def check(self) -> None:
        """Compare topics, backlogs, bindings and counts with the model; also after restarts."""
        self._check_entries(self.log)
        places = {name: self.places(name) for name in self.topics}
        self._check_state(self.rig.machine, places)
        again = Recorder()
        machine = Machine(cast(Log, again))
        for view, index, frame in self.rig.journal:
            machine.redo(view, index, frame)
        self._check_entries(again)
        self._check_state(machine, places)
        for snapshot, journal in self.snapshots[:: max(1, len(self.snapshots) // 3)]:
            self._check_state(self.rig.restarted(snapshot, journal), places)

    def _check_entries(self, log: Recorder) -> None:
        found = {
            name: [parse_entry(each).payload for entry in entries for _, each in split(entry)]
            for name, entries in self.entries(log).items()
        }
        assert found == self.topics, "a topic has other messages than the model"

    def _check_state(self, machine: Machine, places: dict[str, list[tuple[int, int, int]]]) -> None:
        state = machine.state
        machine.check()
        for name, exchange in self.exchanges.items():
            known = state.exchanges.all[state.names[topic_name(name)]]
            pairs = [(state.topics[topic].name, key) for topic, key in known.binding_pairs()]
            assert sorted(pairs) == sorted((topic_name(topic), key) for topic, key in exchange.bindings)
            assert known.count.dropped == round(exchange.dropped, 6), "the count of dropped messages is wrong"
        for name in self.topics:
            topic = state.topics[state.names[topic_name(name)]]
            acks = topic.subscriptions["s"].acks
            found = {
                number
                for number, (ordinal, _, index) in enumerate(places[name])
                if not acks.is_acked(ordinal) and (acks.bits_of(ordinal) or -1) >> index & 1
            }
            assert found == self.open[name], f"the backlog of {name} is wrong"
