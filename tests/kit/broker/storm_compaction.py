"""Random events of compactions, for the storm. Most follow one another as a broker's do."""

from __future__ import annotations

import random

from pyroaring import BitMap64

from holdfast.broker.compaction.state import Compaction
from holdfast.broker.events import (
    CompactionAppend,
    CompactionBegin,
    CompactionDone,
    CompactionDrop,
    CompactionForget,
    CompactionRequest,
    CompactionSettle,
    Event,
)
from holdfast.broker.state import BrokerState, TopicState


def event(rng: random.Random, state: BrokerState) -> Event:
    """Return the next event of a compaction, or one that does not fit."""
    known = [each for each in state.topics.values() if each.ledgers.end and each.id not in state.exchanges]
    if not known or rng.random() < 0.05:
        return rng.choice(
            [CompactionRequest(99), CompactionBegin(1, b"short", 0, 0), CompactionSettle(99, 1)]
        )
    topic = rng.choice([*known, *(each for each in known if each.compaction is not None)])
    compaction = topic.compaction
    if compaction is None or (not compaction.requested and rng.random() < 0.6):
        return CompactionRequest(topic.id, automatic=rng.random() < 0.3)
    if rng.random() < 0.06:
        return CompactionForget(topic.id)
    if compaction.run is None:
        view = compaction.view
        if not compaction.requested or rng.random() < 0.1:
            return CompactionSettle(topic.id, 0 if view is None else view.number - (rng.random() < 0.2))
        after = (0 if view is None else view.number) + (rng.random() < 0.1)
        return CompactionBegin(topic.id, rng.randbytes(16), topic.ledgers.end - rng.randrange(3), after)
    return _of_run(rng, topic, compaction)


def _of_run(rng: random.Random, topic: TopicState, compaction: Compaction) -> Event:
    run = compaction.run
    assert run is not None
    token = run.token if rng.random() < 0.9 else rng.randbytes(16)
    if rng.random() < 0.1:
        return CompactionDrop(topic.id, token, "no space")
    if rng.random() < 0.1:
        return CompactionBegin(topic.id, rng.randbytes(16), run.horizon, run.base)
    possible = range(run.start, run.horizon)
    if rng.random() < 0.5 and run.count < len(possible):
        count = rng.randrange(1, len(possible) - run.count + 1)
        entries = [rng.randbytes(rng.randrange(30)) for _ in range(count)]
        return CompactionAppend(topic.id, token, run.count - (rng.random() < 0.1), entries)
    survivors = BitMap64(sorted(rng.sample(possible, min(run.count, len(possible)))))
    if rng.random() < 0.1:
        survivors.add(run.horizon)
    digest = run.digest + (rng.random() < 0.1)
    return CompactionDone(topic.id, token, run.count, digest, survivors.serialize(), 9, run.count, 1)
