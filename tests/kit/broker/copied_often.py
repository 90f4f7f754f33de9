"""Check that exchanges bound the copies of an entry (I247)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast._core import encode_messages
from holdfast.broker.events import Bind, ExchangeCreate
from holdfast.broker.events import exchanges as exchange_events
from holdfast.broker.events.moves import Move, Row
from holdfast.broker.exchanges import BYTES_PER_COPY
from holdfast.errors import Unsupported
from holdfast.names import topic_name
from tests.kit.broker.events import Publish, Rig
from tests.kit.broker.routing_model import batch_of

MOST = 10
"""Copies that are allowed in these checks, beside those for the size of an entry."""
MOST_BYTES = 1000


def copied_often(rig: Rig) -> None:
    """Check every bound, with low limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange_events, "COPIES_MAX", MOST)
        _to_many_topics(rig)
        _batch_to_many(rig)
        _move_to_many(rig)
        patch.setattr(exchange_events, "COPIED_BYTES_MAX", MOST_BYTES)
        _large_message(rig)
    assert rig.state.exchanges.all


def _exchange(rig: Rig, bound: int, kind: str = "fanout", alternate: int = 0) -> int:
    name = topic_name(f"x-{rig.state.next_topic}")
    made = int(rig.do(ExchangeCreate(name, bytes(16), kind, alternate)).topic)
    for number in range(bound):
        rig.do(Bind(made, rig.topic(f"of-{made}-{number}").id, "k"))
    return made


def _publish(rig: Rig, to: int, entry: bytes, sequence: int = 0) -> Any:
    topic = rig.state.topics[to]
    session = next(iter(topic.producers), 0) or rig.producer(topic, "p").session
    return rig.do(Publish(to, session, (entry,), topic.epoch, sequence=sequence))


def _refused(rig: Rig, to: int, entry: bytes, words: str) -> None:
    before = [topic.ledgers.end for topic in rig.state.topics.values()]
    with pytest.raises(Unsupported, match=words):
        _publish(rig, to, entry, sequence=1)
    assert [topic.ledgers.end for topic in rig.state.topics.values()] == before, "I247: a part is appended"


def _to_many_topics(rig: Rig) -> None:
    """One entry goes to so many topics, and to none if more are bound."""
    [entry] = encode_messages([b""], "p", 0, 0)
    allowed = MOST + len(entry) // BYTES_PER_COPY
    x = _exchange(rig, allowed)
    assert _publish(rig, x, entry).count == 1
    assert rig.state.exchanges.all[x].count.appended == allowed
    rig.do(Bind(x, rig.topic("one more").id))
    _refused(rig, x, entry, "copies of an entry")


def _batch_to_many(rig: Rig) -> None:
    """Messages of a batch count together; the alternate's topics count, too."""
    [one] = encode_messages([b"m"], "p", 0, 0, key="k")
    batch = batch_of([("k", b"m"), ("l", b"m")] * 100)
    bound = 2 + (MOST + len(batch) // BYTES_PER_COPY) // 100
    alternate = _exchange(rig, bound)
    for x in (_exchange(rig, bound, "direct"), _exchange(rig, 0, "direct", alternate)):
        assert _publish(rig, x, one).count == 1
        _refused(rig, x, batch, "copies of an entry")


def _move_to_many(rig: Rig) -> None:
    """A move that is refused acknowledges nothing."""
    source, x = rig.topic("source"), _exchange(rig, 10 * MOST)
    subscription = rig.subscription(source, "s")
    rig.filled(source, 1)
    [entry] = encode_messages([b""], "p", 0, 0)
    with pytest.raises(Unsupported, match="copies of an entry"):
        rig.do(Move([subscription.id], [0], x, [Row(0, entry)]))
    assert subscription.acks.count(1) == 1, "I247: a refused move has acknowledged"


def _large_message(rig: Rig) -> None:
    """The copies of one entry have so many bytes in all."""
    x = _exchange(rig, 2)
    [small] = encode_messages([bytes(MOST_BYTES // 4)], "p", 0, 0)
    assert _publish(rig, x, small).count == 1
    [large] = encode_messages([bytes(MOST_BYTES // 2 + 1)], "p", 1, 0)
    _refused(rig, x, large, "smaller messages, or bind fewer")
