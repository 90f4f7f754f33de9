"""What those who serve a topic or a session at a member must learn of an event that was not theirs.

They are in the order in which it happened, the same on every member.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class TopicGone(msgspec.Struct, frozen=True):
    topic: int


class LedgersGone(msgspec.Struct, frozen=True):
    topic: int
    ledgers: list[int]
    """Their ids."""


class SubscriptionGone(msgspec.Struct, frozen=True):
    topic: int
    subscription: int


class SubscriptionMoved(msgspec.Struct, frozen=True):
    """Not by acknowledgements: reads of before are void."""

    topic: int
    subscription: int
    reset_number: int
    acked_to: int


class ProducerReady(msgspec.Struct, frozen=True):
    """It has waited, and may publish now."""

    topic: int
    session: int
    epoch: int
    last_sequence: int


class ProducerGone(msgspec.Struct, frozen=True):
    topic: int
    session: int
    reason: str


class ConsumerGone(msgspec.Struct, frozen=True):
    subscription: int
    session: int
    reason: str


Notice: TypeAlias = (
    TopicGone
    | LedgersGone
    | SubscriptionGone
    | SubscriptionMoved
    | ProducerReady
    | ProducerGone
    | ConsumerGone
)
