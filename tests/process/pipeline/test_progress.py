"""A named subscription that a stream moves: behind what is done, never further, never back."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import BadConfiguration, NotFound, Timeout
from holdfast.client import Client
from holdfast.columns.address import Address
from holdfast.pipeline.source import subscription as progress
from holdfast.pipeline.source.subscription import Subscription
from tests.kit.spark.sink_kill import Broker

TOPIC = "persistent://public/default/orders"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path)
    with Client(made.url) as client:
        stage = client.stage()
        stage.append(TOPIC, [b"%d" % i for i in range(10)])
        client.sink_commit("test", 1, [stage.close()])
    yield made
    made.close()


def subscription(broker: Broker) -> Subscription:
    return Subscription(Address(broker.url), "s", "earliest")


def test_it_follows(broker: Broker) -> None:
    made = subscription(broker)
    at = made.at(TOPIC)
    assert (at.acked_to, at.visible) == (0, 10), "it was made, at the beginning"
    for position, wanted in ((4, 4), (2, 4), (10, 10)):
        made.finished(TOPIC, at, position)
        assert made.at(TOPIC, at.incarnation, create=False).acked_to == wanted, "never back"
    made.close()
    again = pickle.loads(pickle.dumps(made))
    again.finished(TOPIC, at, 10)
    assert again.at(TOPIC).acked_to == 10
    again.close()


def test_it_tells_the_brokers_time(broker: Broker) -> None:
    """Also while nothing is published: what is open is judged by it."""
    made = subscription(broker)
    first = made.at(TOPIC)
    assert abs(first.log_time - time.time_ns()) < 60 * 10**9, "the broker is on this machine"
    then = made.at(TOPIC, first.incarnation, create=False)
    assert then.log_time > first.log_time
    assert then.visible == first.visible
    made.close()


def test_who_resets_it_has_the_last_word(broker: Broker) -> None:
    made = subscription(broker)
    before = made.at(TOPIC)
    made.finished(TOPIC, before, 6)
    reset(broker, TOPIC)
    made.finished(TOPIC, before, 8)
    after = made.at(TOPIC)
    assert after.reset_number > before.reset_number
    assert after.acked_to == 0
    made.finished(TOPIC, after, 3)
    assert made.at(TOPIC).acked_to == 3
    made.close()


def reset(broker: Broker, topic: str) -> None:
    """By the official client, as an operator does."""
    import pulsar

    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe(topic, "s")
    consumer.seek(pulsar.MessageId.earliest)
    client.close()


def test_a_broker_that_is_away_is_told_later(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(progress, "PATIENCE_S", 2.0)
        made = subscription(broker)
        at = made.at(TOPIC)
        broker.close()
        with pytest.raises(Timeout):
            made.finished(TOPIC, at, 7)
        with pytest.raises(Timeout):
            made.at(TOPIC)
        made.close()
    back = Broker(broker.directory)
    again = Subscription(Address(back.url), "s")  # as when the stream starts again
    again.finished(TOPIC, at, 7)
    assert again.at(TOPIC).acked_to == 7
    again.close()
    back.close()


def test_a_subscription_or_a_topic_that_is_gone(broker: Broker) -> None:
    made = Subscription(Address(broker.url), "nobody")
    with pytest.raises(NotFound, match=r"has no subscription 'nobody'.*without predefinedSubscription"):
        made.at(TOPIC, create=False)
    at = made.at(TOPIC)
    other = replace(at, incarnation=bytes(16), acked_to=0)
    with pytest.raises(NotFound, match="deleted and created again"):
        made.finished(TOPIC, other, 5)
    with pytest.raises(NotFound, match="deleted and created again"):
        made.at(TOPIC, other.incarnation)
    with pytest.raises(NotFound):
        made.at(TOPIC + "-never", at.incarnation)
    with Client(broker.url) as client, pytest.raises(NotFound, match="no topic"):
        client.progress(TOPIC + "-never", "s")
    made.close()


def test_it_needs_a_broker() -> None:
    with pytest.raises(BadConfiguration, match=r"predefinedSubscription needs option service\.url"):
        Address.of({"service.url": None}, "predefinedSubscription")
