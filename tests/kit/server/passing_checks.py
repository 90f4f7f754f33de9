"""Checks of non-persistent topics, which broken ones must fail."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from holdfast.server.pulsar.non_persistent import NonPersistentTopic, PassingConsumer


class Attached(PassingConsumer):
    """A consumer without a connection."""

    def __init__(
        self, topic: NonPersistentTopic, subscription: str, type_: Any = "shared", priority: int = 0
    ) -> None:
        self.connection: Any = SimpleNamespace(stalled=False)
        self.subscription, self.type, self.priority = subscription, type_, priority
        self.permits = 0
        self.got: list[bytes] = []
        topic.join(self, 0.0)

    def deliver(self, number: int, messages: int, entry: bytes) -> None:
        self.permits -= messages
        self.got.append(entry)


def topic() -> NonPersistentTopic:
    return NonPersistentTopic("non-persistent://public/default/x", 0.0)


def at_most_one_consumer_within_permits() -> None:
    """I285, over random consumers and permits; all that is not delivered is counted."""
    for seed in range(20):
        rng = random.Random(seed)
        found = topic()
        consumers = [Attached(found, rng.choice("ab")) for _ in range(rng.randrange(1, 6))]
        given = dict.fromkeys(range(len(consumers)), 0)
        sent = 0
        for _ in range(60):
            if rng.random() < 0.5:
                chosen = rng.randrange(len(consumers))
                more = rng.randrange(4)
                consumers[chosen].permits += more
                given[chosen] += more
            else:
                found.publish([(1, b"%d" % sent)], 1, 1)
                sent += 1
        for at, consumer in enumerate(consumers):
            assert len(consumer.got) == given[at] - consumer.permits <= given[at]
        for name, subscription in found.subscriptions.items():
            got = [data for each in subscription.consumers for data in each.got]  # type: ignore[attr-defined]
            assert len(got) == len(set(got)), "one message at two consumers"
            assert len(got) + subscription.meter.dropped == sent, f"{name}: a message was not counted"
