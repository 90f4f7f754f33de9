"""Random events of exchanges, moves, rings and last-value topics, for the storm."""

from __future__ import annotations

import random
from typing import Any

from holdfast._core import encode_messages
from holdfast.broker.events import (
    ALTERNATE,
    NOWHERE,
    AlternateSet,
    Bind,
    Event,
    ExchangeCreate,
    ExchangeDelete,
    Move,
    PolicySet,
    RingTrim,
    Row,
    Supersede,
    Unbind,
)
from holdfast.broker.exchanges import KINDS
from holdfast.broker.state import BrokerState, Policies
from holdfast.ledger import pack_bits
from holdfast.names import topic_name

KEYS = ("", "a", "a.b", "b", "b.a")
PATTERNS = (*KEYS, "#", "*", "a.*", "#.a", "*.#")


def entry(rng: random.Random) -> bytes:
    """Return one entry as a client makes it: a message or a batch."""
    count = rng.choice([1, 1, 3])
    [made] = encode_messages([b"x"] * count, "p", 0, 0, key=rng.choice(KEYS) or None, batch=count)
    return made


def entries(rng: random.Random, count: int) -> list[bytes]:
    """Return entries that an exchange can route; rarely one that it cannot."""
    return [rng.randbytes(9) if rng.random() < 0.02 else entry(rng) for _ in range(count)]


def event(rng: random.Random, state: BrokerState) -> Event:
    """Return an event that mostly fits the state."""

    def pick(values: Any, otherwise: Any = 99) -> Any:
        values = list(values)
        return rng.choice(values) if values and rng.random() < 0.95 else otherwise

    exchange = pick(state.exchanges.all)
    topic = pick(each for each in state.topics if each not in state.exchanges or rng.random() < 0.1)
    subscription = pick(state.subscriptions)
    if not state.exchanges.all or rng.random() < 0.1:
        name = topic_name(rng.choice(["x1", "x2", "x3", "w"]))
        alternate = rng.choice([0, exchange])
        return ExchangeCreate(
            name, rng.randbytes(16), rng.choice(KINDS), alternate, False, rng.choice([None, True])
        )
    if rng.random() < 0.03:
        return ExchangeDelete(exchange, rng.random() < 0.5)
    if rng.random() < 0.3:
        return move(rng, state, subscription, rng.choice([topic, exchange, NOWHERE, ALTERNATE]))
    ranges = sorted((at, at + rng.randrange(1, 3)) for at in {rng.randrange(0, 60, 3) for _ in range(3)})
    bound = state.exchanges.all[exchange].bindings if exchange in state.exchanges else {}
    thin = [each.id for each in state.topics.values() if state.effective(each).last_value]
    rings = [each.id for each in state.topics.values() if state.effective(each).ring_entries]
    ring = Policies(ring_entries=rng.choice([None, 5]), last_value=rng.choice([None, True]))
    return rng.choice(
        [
            Bind(exchange, topic, rng.choice(PATTERNS)),
            Bind(exchange, topic, rng.choice(PATTERNS)),
            Unbind(exchange, pick(bound), rng.choice([None, *PATTERNS])),
            Unbind(exchange, pick(bound)),
            AlternateSet(rng.choice([0, exchange]), topic=topic),
            AlternateSet(rng.choice([0, exchange, exchange]), subscription=subscription),
            PolicySet(topic, ring, ["ring_entries", "last_value"]),
            *[RingTrim(pick(rings)) for _ in range(8)],
            *[Supersede(each, ranges) for each in (pick(thin), pick(thin), pick(thin), topic)],
        ]
    )


def move(rng: random.Random, state: BrokerState, subscription: int, to: int) -> Move:
    """Return a move of some open entries, and of some that are not."""
    found = state.subscriptions.get(subscription)
    if found is None:
        return Move([subscription], [0], to, [])
    low, rows = found.acks.acked_to, list[Row]()
    for at in {low + rng.randrange(8) for _ in range(3)}:
        if rng.random() < 0.3:
            rows.append(Row(at, entry(rng), 3, pack_bits(rng.randrange(1, 8))))
        else:
            rows.append(Row(at, entry(rng)))
    others = [each for each in state.topics[found.topic].subscriptions.values() if rng.random() < 0.3]
    sources = list({each.id: each for each in [found, *others]}.values())
    return Move([each.id for each in sources], [each.reset_number for each in sources], to, rows)
