"""Events of exchanges: create, delete, bind, unbind, alternates; and the publish to an exchange.

A publish to an exchange is the same event as to a topic. The log returns it to be routed here. Its entries
are appended to all topics of the matching bindings in one step, at most once per topic (**I242**).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.broker.batches import keys_of, split
from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.notices import ExchangeAdded
from holdfast.broker.events.outcomes import NO_ID, Done, Published, TopicCreated
from holdfast.broker.events.topics import delete_topic
from holdfast.broker.exchanges import (
    BYTES_PER_COPY,
    COPIED_BYTES_MAX,
    COPIES_MAX,
    STEPS_MAX,
    STEPS_PER_BYTE,
    ExchangeState,
    checked_key,
    checked_kind,
)
from holdfast.broker.state import BrokerState, TopicState
from holdfast.errors import Busy, Exists, Fenced, HoldfastError, Misuse, NotFound, Terminated, Unsupported
from holdfast.formatting import plural
from holdfast.ids import require_left
from holdfast.names import namespace_of, topic_name


@event(65)
class ExchangeCreate(Event, frozen=True):
    """Create an exchange. The incarnation is 16 random bytes from the sender."""

    name: str
    """In full."""
    incarnation: bytes
    exchange_kind: str
    alternate: int = 0
    """Id of the exchange that takes what no binding matches; 0: none."""
    unreplicated: bool = False
    deduplication: bool | None = None
    managed: bool = False
    """Only in a namespace that was created."""

    def apply(self, state: BrokerState, context: Context) -> TopicCreated:
        if topic_name(self.name) != self.name:
            raise Misuse(f"{self.name!r} is short for {topic_name(self.name)!r}; say it in full")
        if len(self.incarnation) != 16:
            raise Misuse(f"an incarnation of {len(self.incarnation)} bytes; it has 16")
        kind = checked_kind(self.exchange_kind)
        if self.name in state.names:
            what = "exchange" if state.names[self.name] in state.exchanges else "topic"
            raise Exists(f"the {what} {self.name} exists already; use another name")
        state.unreplicated.require_free(self.name)
        state.partitioned.require_free(self.name)
        if self.alternate:
            state.exchanges.require(self.alternate)
        if self.managed:
            state.namespaces.require(namespace_of(self.name))
        require_left(state.next_topic, "ids of topics")
        topic = TopicState(state.next_topic, self.name, self.incarnation, context.time)
        if self.deduplication is not None:
            topic.policies = type(topic.policies)(deduplication=self.deduplication)
        exchange = ExchangeState(topic.id, kind, self.unreplicated)
        exchange.alternate = self.alternate
        state.next_topic += 1
        state.topics[topic.id] = topic
        state.names[topic.name] = topic.id
        state.exchanges.all[topic.id] = exchange
        state.log.add_topic(topic.id, deduplicate=state.deduplicates(topic))
        state.log.set_topic(topic.id, routed=True)
        state.touch(topic)
        state.touch(exchange)
        context.notices.append(ExchangeAdded(topic))
        return TopicCreated(topic.id)


@event(66)
class ExchangeDelete(Event, frozen=True):
    """Delete an exchange with its bindings. Without `force` only if nothing uses it.

    Its producers are closed. With `force`, what had it as alternate has none afterwards.
    """

    exchange: int
    force: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        exchange = state.exchanges.require(self.exchange)
        topic = state.topics[exchange.id]
        producers = len(topic.producers) + len(topic.waiting)
        users = state.exchanges.users_of(exchange.id)
        if (producers or users) and not self.force:
            raise Busy(
                f"{topic.name} is in use: {plural(producers, 'producer')}, alternate of {users}; "
                "close and change all of them first, or force"
            )
        delete_topic(state, context, topic)
        return Done()


@event(67)
class Bind(Event, frozen=True):
    """Bind a topic to an exchange by a key or a pattern.

    A fanout exchange ignores the key.
    """

    exchange: int
    topic: int
    key: str = ""

    def apply(self, state: BrokerState, context: Context) -> Done:
        exchange = state.exchanges.require(self.exchange)
        state.require_plain(state.require_topic(self.topic), "cannot be bound to another")
        if not exchange.bind(self.topic, checked_key(self.key)):
            return Done(changed=False)
        state.touch(exchange)
        return Done()


@event(68)
class Unbind(Event, frozen=True):
    """Remove a binding."""

    exchange: int
    topic: int
    key: str | None = None
    """None: all bindings of the topic."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        exchange = state.exchanges.require(self.exchange)
        if not exchange.unbind(self.topic, self.key):
            name, topic = state.topics[exchange.id].name, state.topics.get(self.topic)
            key = "" if self.key is None else f" with the key {self.key!r}"
            to = f"topic {self.topic}" if topic is None else topic.name
            raise NotFound(f"{name} has no binding to {to}{key}; see `holdfast exchange info`")
        state.touch(exchange)
        return Done()


@event(76)
class AlternateSet(Event, frozen=True):
    """Set the alternate exchange of an exchange, a topic or a subscription."""

    exchange: int
    """0: none."""
    topic: int = 0
    """Of this topic, or exchange."""
    subscription: int = 0
    """Of this subscription."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        if self.exchange:
            state.exchanges.require(self.exchange)
        if bool(self.topic) == bool(self.subscription):
            raise Misuse("an alternate belongs to a topic or to a subscription; name one of them")
        if self.topic in state.exchanges:
            return self._of_exchange(state, state.exchanges.require(self.topic))
        alternates = state.exchanges.alternates
        if self.topic:
            owners, owner = alternates.topics, state.require_topic(self.topic).id
        else:
            owners, owner = alternates.subscriptions, state.require_subscription(self.subscription).id
        if owners.get(owner, 0) == self.exchange:
            return Done(changed=False)
        if self.exchange:
            owners[owner] = self.exchange
        else:
            del owners[owner]
        state.touch(alternates)
        return Done()

    def _of_exchange(self, state: BrokerState, exchange: ExchangeState) -> Done:
        if self.exchange == exchange.id:
            raise Misuse(
                f"{state.topics[exchange.id].name} cannot be its own alternate; name another exchange"
            )
        if exchange.alternate == self.exchange:
            return Done(changed=False)
        exchange.alternate = self.exchange
        state.touch(exchange)
        return Done()


# -- routing -------------------------------------------------------------------------------------------


class Routing:
    """Decides where entries go, then appends them. Deciding changes nothing."""

    def __init__(self, state: BrokerState) -> None:
        self._state = state
        self._appends: list[tuple[bytes, list[int]]] = []
        self._more = Counter[int]()
        self._counts: list[tuple[ExchangeState, str, int]] = []
        self._steps = 0
        """Steps through patterns that the keys of the current entry may still take."""
        self._copies = self._bytes = 0
        """Copies that may still be made of the current entry, and their bytes."""

    def to_topic(self, topic: int, entry: bytes) -> None:
        """Append an entry to one topic."""
        self._appends.append((entry, [topic]))
        self._more[topic] += 1

    def to_exchange(self, exchange: ExchangeState, entry: bytes) -> None:
        """Append an entry to the topics of an exchange, or of its alternate.

        A batch whose messages have different keys is split, if the key decides: each message goes its way.

        Raises:
            Misuse: the entry cannot be parsed.
            Unsupported: keys decide, and those of the batch cannot be read, or take too many steps. Or the
                bindings ask for too many copies (**I247**).
        """
        self._steps = STEPS_MAX + STEPS_PER_BYTE * len(entry)
        self._allow_copies(entry)
        alternate = self._state.exchanges.all.get(exchange.alternate)
        parts: Iterable[tuple[str, bytes]] = [("", entry)]
        if exchange.by_key or (alternate is not None and alternate.by_key and not self._open(exchange, "")):
            keys = keys_of(entry)
            parts = [(keys[0], entry)] if len(set(keys)) == 1 else split(entry)
            self._allow_copies(entry)  # the look for an open topic has counted
        for key, part in parts:
            self._pass_on(exchange, alternate, key, part)

    def _allow_copies(self, entry: bytes) -> None:
        self._copies, self._bytes = COPIES_MAX + len(entry) // BYTES_PER_COPY, COPIED_BYTES_MAX

    def _pass_on(
        self, exchange: ExchangeState, alternate: ExchangeState | None, key: str, entry: bytes
    ) -> None:
        """Route one entry with one key.

        The alternate is asked once; its own alternate is not asked.
        """
        topics = self._open(exchange, key)
        if topics:
            self._counts.append((exchange, "routed", len(topics)))
        elif alternate is None:
            self._counts.append((exchange, "dropped", 0))
        else:
            self._counts.append((exchange, "alternate", 0))
            topics = self._open(alternate, key)
            self._counts.append((alternate, "routed" if topics else "dropped", len(topics)))
        self._bytes -= len(topics) * len(entry)
        if self._bytes < 0:
            raise Unsupported(
                f"the copies of an entry for {plural(len(topics), 'topic')} have over {COPIED_BYTES_MAX} "
                f"bytes in all, and it has {len(entry)}; publish smaller messages, or bind fewer topics"
            )
        if topics:
            self._appends.append((entry, topics))
            self._more.update(topics)

    def _open(self, exchange: ExchangeState, key: str) -> list[int]:
        """Return the topics of a key that accept entries."""
        found = exchange.match(key, self._steps)
        self._steps -= exchange.steps
        self._copies -= len(found)  # also of terminated topics: each is looked at
        if self._copies < 0:
            raise Unsupported(
                f"the bindings of {self._state.topics[exchange.id].name} need over {COPIES_MAX} copies of an "
                f"entry, and one for each {BYTES_PER_COPY} bytes; bind fewer topics, or publish less at once"
            )
        return [each for each in found if not self._state.topics[each].terminated]

    def require_room(self) -> None:
        """Raise Exhausted if a topic has no positions left."""
        for topic, count in sorted(self._more.items()):
            where = self._state.require_topic(topic)
            require_left(where.ledgers.end + count, f"positions of {where.name}")

    def carry_out(self, context: Context) -> None:
        """Append all entries, and count. `require_room` was called before."""
        for entry, topics in self._appends:
            for topic in topics:
                self._state.log.append(topic, [entry])
        for exchange, field, copies in self._counts:
            count = exchange.count
            count.published += 1
            count.appended += copies
            setattr(count, field, getattr(count, field) + 1)
            self._state.touch(exchange)
        context.grown += sorted(self._more)


def route(state: BrokerState, context: Context) -> Published:
    """Apply the publish to an exchange that the log has returned.

    Raises:
        HoldfastError: it is refused, as a publish to a topic is. Nothing has changed.
    """
    id, code, fresh, duplicates = state.log.judge()  # noqa: A001
    if code:
        raise refused(code)
    exchange = state.exchanges.require(id)
    routing = Routing(state)
    for entry in fresh:
        routing.to_exchange(exchange, entry)
    routing.require_room()
    if fresh:
        state.log.take()
        routing.carry_out(context)
        state.touch(state.topics[id])  # its sequences
    return Published(NO_ID, 0, len(fresh), tuple(duplicates))


def refused(code: int) -> HoldfastError:
    """Return the refusal of a publish, by the log's code."""
    if code == 1:
        return NotFound("the topic is gone; nothing was published")
    if code == 2:
        return Terminated("the topic was terminated; nothing was published")
    if code == 4:
        return Terminated(
            "the topic has used up its 63 bits of positions; nothing was published. Publish to another topic"
        )
    return Fenced("the producer's session has ended, or another took its place; nothing was published")
