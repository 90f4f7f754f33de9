"""Define notices: changes for dispatchers, sessions and front ends that submitted no event.

A notice carries the object that it is about, also when that object is deleted. Notices are in the order of
the changes, the same on every member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from holdfast.broker.state import Consumer, Producer, SubscriptionState, TopicState


class TopicAdded(msgspec.Struct, frozen=True):
    topic: TopicState


class TopicClosed(msgspec.Struct, frozen=True):
    """A topic was terminated: publishes are refused."""

    topic: TopicState


class TopicGone(msgspec.Struct, frozen=True):
    topic: TopicState


class LedgersGone(msgspec.Struct, frozen=True):
    topic: TopicState
    ledgers: list[int]
    """Their ids."""


class SubscriptionGone(msgspec.Struct, frozen=True):
    subscription: SubscriptionState


class SubscriptionMoved(msgspec.Struct, frozen=True):
    """A reset or an advance moved a cursor: earlier reads are void."""

    subscription: SubscriptionState
    reset_number: int
    acked_to: int


class ProducerReady(msgspec.Struct, frozen=True):
    """A producer that waited for exclusive access may publish now."""

    topic: TopicState
    producer: Producer
    last_sequence: int

    @property
    def session(self) -> int:
        return self.producer.session

    @property
    def epoch(self) -> int:
        return self.producer.epoch


class ProducerGone(msgspec.Struct, frozen=True):
    topic: TopicState
    producer: Producer
    reason: str


class ConsumerGone(msgspec.Struct, frozen=True):
    subscription: SubscriptionState
    consumer: Consumer
    reason: str


Notice: TypeAlias = (
    TopicAdded
    | TopicClosed
    | TopicGone
    | LedgersGone
    | SubscriptionGone
    | SubscriptionMoved
    | ProducerReady
    | ProducerGone
    | ConsumerGone
)
