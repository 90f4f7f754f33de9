"""Encode the state for snapshots, and compute the digest that members compare.

A snapshot has one part per object, in msgpack. A part is a tagged struct. A field is added at its end, with a
default, so that older snapshots load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar

import msgspec

from holdfast import _core
from holdfast.broker.state import (
    BrokerState,
    Consumer,
    Namespaces,
    Part,
    Policies,
    Producer,
    Sink,
    Sinks,
    StageState,
    StageTopic,
    SubscriptionState,
    Tenant,
    TopicState,
)
from holdfast.errors import Corrupt, HoldfastError
from holdfast.group import Member, Position
from holdfast.ledger import AckState, LedgerInfo, LedgerTable


class _Struct(msgspec.Struct, array_like=True, frozen=True):
    pass


class BrokerPart(_Struct, frozen=True, tag="broker"):
    """The counters. This part is the first."""

    d: int
    view: int
    index: int
    time: int
    next_ledger: int
    next_topic: int
    next_subscription: int
    next_session: int
    members: list[Member]
    views: int


class TopicPart(_Struct, frozen=True, tag="topic"):
    id: int
    name: str
    incarnation: bytes
    created: int
    policies: Policies
    terminated: bool
    epoch: int
    end: int
    ledgers: list[LedgerInfo]
    sequences: list[tuple[str, int]]
    producers: list[Producer]
    waiting: list[Producer]
    schemas: list[bytes] = msgspec.field(default_factory=list)
    sequence_times: list[int] | None = None
    """When each of `sequences` was last used; None: not known, the time of the snapshot counts."""


class SubscriptionPart(_Struct, frozen=True, tag="subscription"):
    id: int
    topic: int
    name: str
    properties: dict[str, str]
    reset_number: int
    owner_epoch: int
    token: bytes
    answer: tuple[int, int]
    fenced: bytes
    consumers: list[Consumer]
    acks: tuple[int, bytes, list[tuple[int, bytes]]]
    target: int = 0
    reach: int = 0


class StagePart(_Struct, frozen=True, tag="stage"):
    id: bytes
    time: int
    topics: list[StageTopic]


class SinksPart(_Struct, frozen=True, tag="sinks"):
    last: dict[str, Sink]


class NamespacesPart(_Struct, frozen=True, tag="namespaces"):
    """Stands before the topics, which inherit from it. Without this part, the defaults apply."""

    tenants: dict[str, Tenant]
    policies: dict[str, Policies]


AnyPart: TypeAlias = BrokerPart | TopicPart | SubscriptionPart | StagePart | SinksPart | NamespacesPart
Kept = TypeVar("Kept", bound=Part)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyPart)


# -- writing -------------------------------------------------------------------------------------------


def broker_part(state: BrokerState) -> BrokerPart:
    log = state.log
    return BrokerPart(
        log.next_d - 1,
        state.position.view,
        state.position.index,
        log.time,
        log.next_ledger,
        state.next_topic,
        state.next_subscription,
        state.next_session,
        list(state.members),
        state.views,
    )


def topic_part(state: BrokerState, topic: TopicState) -> TopicPart:
    known = state.log.sequence_times(topic.id)
    return TopicPart(
        topic.id,
        topic.name,
        topic.incarnation,
        topic.created,
        topic.policies,
        topic.terminated,
        topic.epoch,
        topic.ledgers.end,
        list(topic.ledgers),
        [(name, sequence) for name, sequence, _ in known],
        [producer for _, producer in sorted(topic.producers.items())],
        topic.waiting,
        topic.schemas,
        [time for _, _, time in known],
    )


def subscription_part(subscription: SubscriptionState) -> SubscriptionPart:
    return SubscriptionPart(
        subscription.id,
        subscription.topic,
        subscription.name,
        subscription.properties,
        subscription.reset_number,
        subscription.owner_epoch,
        subscription.token,
        subscription.answer,
        subscription.fenced,
        list(subscription.consumers.values()),
        subscription.acks.pack(),
        subscription.target,
        subscription.reach,
    )


def stage_part(stage: StageState) -> StagePart:
    return StagePart(stage.id, stage.time, [part for _, part in sorted(stage.topics.items())])


def sinks_part(sinks: Sinks) -> SinksPart:
    return SinksPart(dict(sorted(sinks.last.items())))


def namespaces_part(namespaces: Namespaces) -> NamespacesPart:
    return NamespacesPart(dict(sorted(namespaces.tenants.items())), dict(sorted(namespaces.policies.items())))


def pack(state: BrokerState) -> list[bytes]:
    """Return every part. Only parts that have changed since the last call are encoded."""
    for topic in state.topics.values():
        state.refresh(topic)

    def packed(part: Kept, make: Callable[[Kept], AnyPart]) -> bytes:
        if part.packed is None:
            part.packed = _encoder.encode(make(part))
        return part.packed

    return [
        _encoder.encode(broker_part(state)),
        packed(state.namespaces, namespaces_part),
        *(packed(each, lambda topic: topic_part(state, topic)) for _, each in sorted(state.topics.items())),
        *(packed(each, subscription_part) for _, each in sorted(state.subscriptions.items())),
        *(packed(each, stage_part) for _, each in sorted(state.stages.items())),
        packed(state.sinks, sinks_part),
    ]


def digest(state: BrokerState) -> bytes:
    """Return 16 bytes that are equal for equal states.

    Equal sets can have different bytes in Roaring's format, so acknowledged entries count as ranges.
    """
    hasher = blake2b(digest_size=16)

    def add(part: Any) -> None:
        hasher.update(_encoder.encode(part))

    add(broker_part(state))
    add(namespaces_part(state.namespaces))
    for _, topic in sorted(state.topics.items()):
        state.refresh(topic)
        add(topic_part(state, topic))
    for _, subscription in sorted(state.subscriptions.items()):
        part = subscription_part(subscription)
        add(msgspec.structs.replace(part, acks=(part.acks[0], b"", part.acks[2])))
        add(list(subscription.acks.ranges()))
    for _, stage in sorted(state.stages.items()):
        add(stage_part(stage))
    add(sinks_part(state.sinks))
    return hasher.digest()


# -- reading -------------------------------------------------------------------------------------------


def unpack(parts: Iterable[bytes]) -> BrokerState:
    """Return the state that `pack` has packed, with a log that continues from there.

    Raises:
        Corrupt: the parts do not decode, or do not fit together.
    """
    decoded = [_decode(number, part) for number, part in enumerate(parts)]
    if not decoded or not isinstance(decoded[0], BrokerPart):
        raise Corrupt("the snapshot does not begin with the broker's counters; run holdfast doctor")
    try:
        state = _load_broker(decoded[0])
        for part in decoded[1:]:
            _load(state, part)
        state.check()
    except (AssertionError, KeyError, TypeError, ValueError, HoldfastError) as error:
        raise Corrupt(f"the snapshot's parts do not fit together: {error!r}; run holdfast doctor") from error
    return state


def _decode(number: int, part: bytes) -> AnyPart:
    try:
        decoded: AnyPart = _decoder.decode(part)
        return decoded
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise Corrupt(
            f"part {number} of the snapshot does not decode: {error}; it is damaged, or from a newer program"
        ) from error


def _load(state: BrokerState, part: AnyPart) -> None:
    if isinstance(part, TopicPart):
        _load_topic(state, part)
    elif isinstance(part, SubscriptionPart):
        _load_subscription(state, part)
    elif isinstance(part, StagePart):
        _load_stage(state, part)
    elif isinstance(part, SinksPart):
        state.sinks.last = part.last
    elif isinstance(part, NamespacesPart):
        if state.topics:
            raise Corrupt("the namespaces stand after the topics that inherit from them")
        state.namespaces.tenants, state.namespaces.policies = part.tenants, part.policies
    else:
        raise Corrupt("the broker's counters stand in it twice")


def _load_broker(part: BrokerPart) -> BrokerState:
    if min(each for each in msgspec.structs.astuple(part) if isinstance(each, int)) < 0:
        raise Corrupt("a counter of the broker is below 0")
    state = BrokerState(_core.Log(part.d + 1, part.next_ledger, part.time))
    state.position = Position(part.view, part.index)
    state.members = tuple(part.members)
    state.views = part.views
    state.next_topic = part.next_topic
    state.next_subscription = part.next_subscription
    state.next_session = part.next_session
    return state


def _load_topic(state: BrokerState, part: TopicPart) -> None:
    topic = TopicState(part.id, part.name, part.incarnation, part.created)
    topic.policies = part.policies
    topic.terminated = part.terminated
    topic.epoch = part.epoch
    topic.ledgers = LedgerTable(part.ledgers, part.end)
    topic.waiting = part.waiting
    topic.named = {each.name: each for each in (*part.producers, *part.waiting)}
    topic.schemas = part.schemas
    state.topics[topic.id] = topic
    state.names[topic.name] = topic.id
    state.log.add_topic(topic.id, part.end, state.deduplicates(topic))
    last = topic.ledgers.last
    if last is not None and not last.sealed:
        state.log.open_ledger(topic.id, last.id, last.first, last.entries, last.size)
    if topic.terminated:
        state.log.set_topic(topic.id, closed=True)
    times = part.sequence_times or [state.log.time] * len(part.sequences)
    for (name, sequence), time in zip(part.sequences, times, strict=True):
        state.log.set_sequence(topic.id, name, sequence, time)
    for producer in part.producers:
        topic.producers[producer.session] = producer
        state.log.open_session(producer.session, topic.id, producer.name, producer.epoch)
    state.sessions.update(dict.fromkeys(topic.producers, topic))
    state.sessions.update(dict.fromkeys((each.session for each in topic.waiting), topic))


def _load_subscription(state: BrokerState, part: SubscriptionPart) -> None:
    acks = AckState.unpack(*part.acks)
    subscription = SubscriptionState(part.id, part.topic, part.name, acks, part.owner_epoch)
    subscription.properties = part.properties
    subscription.reset_number = part.reset_number
    subscription.token = part.token
    subscription.answer = part.answer
    subscription.fenced = part.fenced
    subscription.target, subscription.reach = part.target, part.reach
    subscription.consumers = {each.session: each for each in part.consumers}
    state.subscriptions[subscription.id] = subscription
    state.topics[subscription.topic].subscriptions[subscription.name] = subscription
    state.sessions.update(dict.fromkeys(subscription.consumers, subscription))


def _load_stage(state: BrokerState, part: StagePart) -> None:
    stage = StageState(part.id, part.time)
    stage.topics = {each.topic: each for each in part.topics}
    state.stages[stage.id] = stage
    for each in part.topics:
        if each.hidden:
            state.log.add_topic(each.hidden, each.count)
            state.log.open_ledger(each.hidden, each.file, 0, each.count, each.file_size)
