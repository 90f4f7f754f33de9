"""Define notices: changes for dispatchers, sessions and front ends that submitted no event.

A notice carries the object that it is about, also when that object is deleted. Notices are in the order of
the changes, the same on every member.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from holdfast.broker.events.asks import AckOffer, Answer, MoveAsk
    from holdfast.broker.state import Consumer, Producer, SubscriptionState, TopicState
    from holdfast.group import Member


class TopicAdded(msgspec.Struct, frozen=True):
    topic: TopicState


class TopicClosed(msgspec.Struct, frozen=True):
    """A topic was terminated: publishes are refused."""

    topic: TopicState


class TopicGone(msgspec.Struct, frozen=True):
    topic: TopicState


class Unloaded(msgspec.Struct, frozen=True):
    """The clients of a topic have to reconnect."""

    topic: TopicState


class PoliciesChanged(msgspec.Struct, frozen=True):
    """Policies were set, or the options that stand in for them."""

    namespace: str | None = None
    """None: options, which all topics inherit."""
    topic: TopicState | None = None
    """None: those of the namespace, which its topics inherit."""


class CompactionChanged(msgspec.Struct, frozen=True):
    """A compaction was requested, has ended, or its view has changed."""

    topic: TopicState


class PermissionsChanged(msgspec.Struct, frozen=True):
    """Roles may do other things in a namespace."""

    namespace: str


class NameChanged(msgspec.Struct, frozen=True):
    """The name of an unreplicated topic was given to a node, or is free."""

    name: str
    given: bool


class PartitionsChanged(msgspec.Struct, frozen=True):
    """A topic got partitions, or was deleted with all of them."""

    name: str
    """In full."""
    count: int
    """0: it was deleted."""


class ExchangeAdded(msgspec.Struct, frozen=True):
    topic: TopicState
    """The identity of the exchange."""


class ExchangeGone(msgspec.Struct, frozen=True):
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


class EntriesTaken(msgspec.Struct, frozen=True):
    """Entries were acknowledged by another event than an acknowledgement: consumers do not get them."""

    subscription: SubscriptionState
    ranges: list[tuple[int, int]]
    """Whole entries by ordinals, half-open, sorted and disjoint."""
    parts: list[tuple[int, int]]
    """Of batches, by ordinal: the mask of messages that stay open."""


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


class OwnerChanged(msgspec.Struct, frozen=True):
    """A subscription has an owner under a new number: another member, or the same again."""

    subscription: SubscriptionState
    owner: Member | None
    """None: no consumer is attached."""
    epoch: int
    reset_number: int
    elsewhere: list[tuple[int, int]]
    """Entries that consumers of other members than the owner hold."""
    counts: list[tuple[int, int]]
    """Deliveries so far of some entries, as the last owner counted them."""
    undelivered: list[tuple[int, int]] | None
    """Entries that the last owner has not delivered since the last reset; None: not known."""
    hashes: bytes = b""
    """Key_Shared: of each entry in `elsewhere`, in order, two bytes: the hash of its key."""


class ConsumersChanged(msgspec.Struct, frozen=True):
    """A consumer of a Key_Shared subscription has joined or left: keys belong to others now."""

    subscription: SubscriptionState


class OwnershipWanted(msgspec.Struct, frozen=True):
    """Another member than the owner may be due."""

    subscription: SubscriptionState


class HeldReturned(msgspec.Struct, frozen=True):
    """Consumers of another member than the owner gave entries back."""

    subscription: SubscriptionState
    reset_number: int
    ranges: list[tuple[int, int]]
    counts: list[tuple[int, int]]


class AckOffered(msgspec.Struct, frozen=True):
    """A member offers acknowledgements to the owner."""

    subscription: SubscriptionState
    offer: AckOffer
    answerer: Member


class MoveAsked(msgspec.Struct, frozen=True):
    """A member asks the owner to take messages out of a backlog."""

    subscription: SubscriptionState
    asked: MoveAsk
    answerer: Member


class OwnerAnswered(msgspec.Struct, frozen=True):
    """An owner has answered a request."""

    member: Member
    """The member that asked."""
    ask: int
    answer: Answer


Notice: TypeAlias = (
    TopicAdded
    | TopicClosed
    | TopicGone
    | Unloaded
    | PoliciesChanged
    | PermissionsChanged
    | CompactionChanged
    | NameChanged
    | PartitionsChanged
    | ExchangeAdded
    | ExchangeGone
    | EntriesTaken
    | LedgersGone
    | SubscriptionGone
    | SubscriptionMoved
    | ProducerReady
    | ProducerGone
    | ConsumerGone
    | OwnerChanged
    | ConsumersChanged
    | OwnershipWanted
    | HeldReturned
    | AckOffered
    | MoveAsked
    | OwnerAnswered
)
