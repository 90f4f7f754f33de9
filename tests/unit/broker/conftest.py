"""Fixtures of the events' tests."""

from __future__ import annotations

import pytest

from holdfast.broker.state import SubscriptionState, TopicState
from tests.kit.broker.events import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.fixture
def topic(rig: Rig) -> TopicState:
    topic = rig.topic()
    rig.filled(topic, 20, ledgers=2)
    return topic


@pytest.fixture
def subscription(rig: Rig, topic: TopicState) -> SubscriptionState:
    return rig.subscription(topic)
