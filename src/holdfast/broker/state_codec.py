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
from holdfast.broker.exchanges import Alternates, Counts, ExchangeState, Kind
from holdfast.broker.member_state import Announced, Decided, MemberInfo, Place, Setting, Unreplicated
from holdfast.broker.part import Part
from holdfast.broker.partitions import (
    AutoCreation,
    Partitioned,
    PartitionedTopic,
    partitions_of,
    schema_holder,
)
from holdfast.broker.state import (
    BrokerState,
    Consumer,
    Namespaces,
    Policies,
    Producer,
    Sink,
    Sinks,
    StageState,
    StageTopic,
    SubscriptionState,
    Tenant,
    TopicState,
    ViewMark,
)
from holdfast.broker.state_extras import ExtraPart, extra_part, extras, load_extra
from holdfast.broker.topic_kinds import Thinned
from holdfast.broker.uptime import Quiet
from holdfast.errors import Corrupt, HoldfastError
from holdfast.group import Member, Position
from holdfast.ledger import AckState, LedgerInfo, LedgerTable
from holdfast.names import is_persistent


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
    history: list[ViewMark] = msgspec.field(default_factory=list)


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
    unready: list[Member] = msgspec.field(default_factory=list)
    over: tuple[str, str] = ("", "")
    quiet: Quiet | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)


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
    owner: Member | None = None
    taken: int = 0
    idle: list[Member] = msgspec.field(default_factory=list)
    held: list[tuple[Member, list[tuple[int, int]]]] = msgspec.field(default_factory=list)
    delivered: list[tuple[int, int]] = msgspec.field(default_factory=list)
    hashes: list[tuple[Member, bytes]] = msgspec.field(default_factory=list)
    full: list[int] = msgspec.field(default_factory=list)
    counts: list[tuple[int, int]] = msgspec.field(default_factory=list)
    used: int = 0


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
    properties: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class AnnouncedPart(_Struct, frozen=True, tag="members"):
    """Facts about members. A broker alone has no such part."""

    info: list[MemberInfo]


class DecidedPart(_Struct, frozen=True, tag="options"):
    """Options that all members share, and those changed by a broker alone."""

    values: dict[str, Setting]
    changed: dict[str, Setting] = {}


class UnreplicatedPart(_Struct, frozen=True, tag="unreplicated"):
    """Names that one node alone has. A broker alone has no such part."""

    places: dict[str, Place]


class ExchangePart(_Struct, frozen=True, tag="exchange"):
    """Stands after the topics: its own identity, and those bound to it."""

    id: int
    kind: Kind
    unreplicated: bool
    alternate: int
    bindings: list[tuple[int, str]]
    count: Counts


class AlternatesPart(_Struct, frozen=True, tag="alternates"):
    topics: list[tuple[int, int]]
    subscriptions: list[tuple[int, int]]


class PartitionedPart(_Struct, frozen=True, tag="partitioned"):
    """Stands after the topics: their partitions share the schemas of the first."""

    topics: dict[str, PartitionedTopic]
    auto_creation: dict[str, AutoCreation] = msgspec.field(default_factory=dict)


class ThinnedPart(_Struct, frozen=True, tag="thinned"):
    topic: int
    dropped: int
    superseded: tuple[int, bytes, list[tuple[int, bytes]]]


AnyPart: TypeAlias = (
    BrokerPart
    | TopicPart
    | SubscriptionPart
    | StagePart
    | SinksPart
    | NamespacesPart
    | AnnouncedPart
    | DecidedPart
    | UnreplicatedPart
    | ExchangePart
    | AlternatesPart
    | ThinnedPart
    | PartitionedPart
    | ExtraPart
)
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
        state.history,
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
        list(topic.waiting.values()),
        topic.schemas if schema_holder(state, topic) is topic else [],
        [time for _, _, time in known],
        sorted(topic.unready),
        topic.over,
        topic.quiet,
        topic.properties,
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
        subscription.owner,
        subscription.taken,
        sorted(subscription.idle),
        sorted(subscription.held.items()),
        subscription.delivered,
        sorted(subscription.hashes.items()),
        sorted(subscription.full),
        sorted(subscription.counts.items()),
        subscription.used,
    )


def stage_part(stage: StageState) -> StagePart:
    return StagePart(stage.id, stage.time, [part for _, part in sorted(stage.topics.items())])


def sinks_part(sinks: Sinks) -> SinksPart:
    return SinksPart(dict(sorted(sinks.last.items())))


def namespaces_part(namespaces: Namespaces) -> NamespacesPart:
    return NamespacesPart(
        dict(sorted(namespaces.tenants.items())),
        dict(sorted(namespaces.policies.items())),
        dict(sorted(namespaces.properties.items())),
    )


def announced_part(announced: Announced) -> AnnouncedPart:
    ordered = (info for _, info in sorted(announced.info.items()))
    return AnnouncedPart(
        [
            msgspec.structs.replace(
                info,
                versions=dict(sorted(info.versions.items())),
                listeners=dict(sorted(info.listeners.items())),
            )
            for info in ordered
        ]
    )


def decided_part(decided: Decided) -> DecidedPart:
    return DecidedPart(dict(sorted(decided.values.items())), dict(sorted(decided.changed.items())))


def unreplicated_part(unreplicated: Unreplicated) -> UnreplicatedPart:
    return UnreplicatedPart(dict(sorted(unreplicated.places.items())))


def exchange_part(exchange: ExchangeState) -> ExchangePart:
    return ExchangePart(
        exchange.id,
        exchange.kind,
        exchange.unreplicated,
        exchange.alternate,
        exchange.binding_pairs(),
        exchange.count,
    )


def alternates_part(alternates: Alternates) -> AlternatesPart:
    return AlternatesPart(sorted(alternates.topics.items()), sorted(alternates.subscriptions.items()))


def thinned_part(thinned: Thinned) -> ThinnedPart:
    return ThinnedPart(thinned.topic, thinned.dropped, thinned.superseded.pack())


def partitioned_part(partitioned: Partitioned) -> PartitionedPart:
    return PartitionedPart(
        dict(sorted(partitioned.topics.items())), dict(sorted(partitioned.auto_creation.items()))
    )


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
        *([packed(state.announced, announced_part)] if state.announced.info else ()),
        *([packed(state.decided, decided_part)] if state.decided.values or state.decided.changed else ()),
        *([packed(state.unreplicated, unreplicated_part)] if state.unreplicated.places else ()),
        *(packed(each, exchange_part) for _, each in sorted(state.exchanges.all.items())),
        *(packed(each, alternates_part) for each in (state.exchanges.alternates,) if each),
        *(packed(each, thinned_part) for _, each in sorted(state.thinned.items())),
        *([packed(state.partitioned, partitioned_part)] if state.partitioned else ()),
        *(packed(part, extra_part) for part in extras(state)),
    ]


def sealed_ledgers(parts: Iterable[bytes]) -> set[int]:
    """Return the numbers of all sealed ledgers of topics in a snapshot.

    No later event writes to them.

    Raises:
        Corrupt: a part does not decode.
    """
    found: set[int] = set()
    for number, data in enumerate(parts):
        part = _decode(number, data)
        if isinstance(part, TopicPart):
            found.update(info.file for info in part.ledgers if info.sealed)
    return found


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
    if state.announced.info:
        add(announced_part(state.announced))
    if state.decided.values or state.decided.changed:
        add(decided_part(state.decided))
    if state.unreplicated.places:
        add(unreplicated_part(state.unreplicated))
    for _, exchange in sorted(state.exchanges.all.items()):
        add(exchange_part(exchange))
    add(alternates_part(state.exchanges.alternates))
    for _, thinned in sorted(state.thinned.items()):
        add((thinned.topic, thinned.dropped, thinned.superseded_ranges()))
    if state.partitioned:
        add(partitioned_part(state.partitioned))
    for extra in extras(state):
        add(extra_part(extra))
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


def history_of(part: bytes) -> list[ViewMark]:
    """Return the views of the past from the first part of a snapshot.

    Raises:
        Corrupt: the part does not decode.
    """
    decoded = _decode(0, part)
    if not isinstance(decoded, BrokerPart):
        raise Corrupt("the snapshot does not begin with the broker's counters; run holdfast doctor")
    return decoded.history


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
    elif isinstance(part, AnnouncedPart):
        state.announced.info = {info.node: info for info in part.info}
    elif isinstance(part, DecidedPart):
        state.decided.values, state.decided.changed = part.values, part.changed
    elif isinstance(part, UnreplicatedPart):
        state.unreplicated.places = part.places
    elif isinstance(part, ExchangePart):
        _load_exchange(state, part)
    elif isinstance(part, AlternatesPart):
        alternates = state.exchanges.alternates
        alternates.topics, alternates.subscriptions = dict(part.topics), dict(part.subscriptions)
    elif isinstance(part, ThinnedPart):
        thinned = Thinned(part.topic)
        thinned.dropped, thinned.superseded = part.dropped, AckState.unpack(*part.superseded)
        state.thinned[part.topic] = thinned
    elif isinstance(part, NamespacesPart):
        if state.topics:
            raise Corrupt("the namespaces stand after the topics that inherit from them")
        state.namespaces.tenants, state.namespaces.policies = part.tenants, part.policies
        state.namespaces.properties = part.properties
    elif isinstance(part, PartitionedPart):
        _load_partitioned(state, part)
    elif isinstance(part, ExtraPart):
        load_extra(state, part)
    else:
        raise Corrupt("the broker's counters stand in it twice")


def _load_broker(part: BrokerPart) -> BrokerState:
    if min(each for each in msgspec.structs.astuple(part) if isinstance(each, int)) < 0:
        raise Corrupt("a counter of the broker is below 0")
    state = BrokerState(_core.Log(part.d + 1, part.next_ledger, part.time))
    state.position = Position(part.view, part.index)
    state.members = tuple(part.members)
    state.views = part.views
    state.history = part.history
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
    topic.waiting = {each.session: each for each in part.waiting}
    topic.named = {each.name: each for each in (*part.producers, *part.waiting)}
    topic.schemas = part.schemas
    topic.unready = set(part.unready)
    topic.over = part.over
    topic.quiet, topic.properties = part.quiet, part.properties
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
    state.sessions.update(dict.fromkeys(topic.waiting, topic))


def _load_subscription(state: BrokerState, part: SubscriptionPart) -> None:
    acks = AckState.unpack(*part.acks)
    subscription = SubscriptionState(part.id, part.topic, part.name, acks, part.owner_epoch)
    subscription.unready = state.topics[part.topic].unready
    subscription.properties = part.properties
    subscription.reset_number = part.reset_number
    subscription.token = part.token
    subscription.answer = part.answer
    subscription.fenced = part.fenced
    subscription.target, subscription.reach = part.target, part.reach
    for consumer in part.consumers:
        subscription.attach(consumer)
    # A snapshot of an earlier version has no owners; the next view decides anew.
    subscription.owner = part.owner or min(subscription.attached.keys() - subscription.unready, default=None)
    subscription.taken = part.taken
    subscription.idle, subscription.held = set(part.idle), dict(part.held)
    subscription.delivered = part.delivered
    subscription.hashes, subscription.full = dict(part.hashes), set(part.full)
    subscription.counts, subscription.used = dict(part.counts), part.used
    state.subscriptions[subscription.id] = subscription
    state.topics[subscription.topic].subscriptions[subscription.name] = subscription
    state.sessions.update(dict.fromkeys(subscription.consumers, subscription))


def _load_exchange(state: BrokerState, part: ExchangePart) -> None:
    exchange = ExchangeState(part.id, part.kind, part.unreplicated)
    exchange.alternate, exchange.count = part.alternate, part.count
    for topic, key in part.bindings:
        exchange.bindings.setdefault(topic, set()).add(key)
    state.exchanges.all[part.id] = exchange
    state.log.set_topic(part.id, routed=True)


def _load_partitioned(state: BrokerState, part: PartitionedPart) -> None:
    state.partitioned.auto_creation = part.auto_creation
    for full, topic in part.topics.items():
        state.partitioned.put(full, topic)
        if is_persistent(full):
            first, *others = partitions_of(state, full)
            for each in others:
                each.schemas = first.schemas


def _load_stage(state: BrokerState, part: StagePart) -> None:
    stage = StageState(part.id, part.time)
    stage.topics = {each.topic: each for each in part.topics}
    state.stages[stage.id] = stage
    for each in part.topics:
        if each.hidden:
            state.log.add_topic(each.hidden, each.count)
            state.log.open_ledger(each.hidden, each.file, 0, each.count, each.file_size)
