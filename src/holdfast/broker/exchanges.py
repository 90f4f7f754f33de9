"""Exchanges: producers publish to them, and bindings choose the topics.

An exchange is in the same namespace of names as the topics. It has a topic's identity (id, sessions, epoch,
sequences), and never an entry of its own. Its bindings decide where a message goes:

- `fanout`: to every bound topic.
- `direct`: to the topics whose binding's key equals the message's key.
- `topic`: to the topics whose binding's pattern matches the key. Both are words separated by dots; `*` stands
  for one word, `#` for any number of words. A message without a key has no words.

Invariants, asserted by `check()`:

- I240: an exchange has the id of a topic without entries and subscriptions. Bindings lead to topics that
  exist. Its counts account for every entry.
- I241: an alternate is an exchange that exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, get_args

import msgspec

from holdfast.broker.part import Part
from holdfast.errors import LimitReached, Misuse, NotFound, Unsupported

Kind = Literal["direct", "fanout", "topic"]

KINDS: tuple[Kind, ...] = get_args(Kind)
KEY_BYTES_MAX = 255
"""Bytes of a binding's key, as in AMQP."""
BINDINGS_MAX = 10_000
"""Bindings of one exchange."""


STEPS_MAX, STEPS_PER_BYTE = 20_000, 2
"""Steps through patterns for one entry, and more for each of its bytes.

Events are applied on the loop of the broker, of all members at once.
"""
COPIES_MAX, BYTES_PER_COPY = 1000, 10
"""Copies of one entry, and the bytes of it that allow one more: a batch has many messages."""
COPIED_BYTES_MAX = 128 << 20
"""Bytes of all copies of one entry."""


class Counts(msgspec.Struct, array_like=True):
    """The account of an exchange since it was created: `published` = `routed` + `alternate` + `dropped`."""

    published: int = 0
    """Entries that were published to it, or passed on to it."""
    routed: int = 0
    """Of these: entries that a binding matched."""
    alternate: int = 0
    """Of these: entries that went to the alternate exchange."""
    dropped: int = 0
    """Of these: entries that no binding matched, without an alternate that could take them."""
    appended: int = 0
    """Copies that were appended to topics by its own bindings."""


class _Node:
    """One word of the patterns of a `topic` exchange."""

    __slots__ = ("next", "repeats", "topics")

    def __init__(self, repeats: bool = False) -> None:
        self.next: dict[str, _Node] = {}
        self.topics: set[int] = set()
        self.repeats = repeats
        """It is a `#`: it takes any number of further words."""

    def reach(self, active: dict[_Node, None]) -> None:
        """Add this node, and the `#` behind it, which may stand for no word."""
        active[self] = None
        behind = self.next.get("#")
        if behind is not None and behind not in active:
            behind.reach(active)


class Patterns:
    """The patterns of a `topic` exchange, as a tree of words.

    Example:
        >>> patterns = Patterns([("stock.*.nyse", 1), ("stock.#", 2), ("#", 3)])
        >>> patterns.match("stock.ibm.nyse"), patterns.match("stock"), patterns.match("")
        ([1, 2, 3], [2, 3], [3])
    """

    def __init__(self, bindings: Iterable[tuple[str, int]] = ()) -> None:
        self.steps = 0
        """Steps of the last match."""
        self._root = _Node()
        for pattern, topic in bindings:
            node = self._root
            for word in words_of(pattern):
                if word not in node.next:
                    node.next[word] = _Node(repeats=word == "#")
                node = node.next[word]
            node.topics.add(topic)

    def match(self, key: str, most: int = STEPS_MAX) -> list[int]:
        """Return the topics of all patterns that match, sorted.

        Raises:
            Unsupported: it takes more than `most` steps.
        """
        active: dict[_Node, None] = {}
        self._root.reach(active)
        self.steps = 0
        for word in words_of(key):
            self.steps += len(active)
            if self.steps > most:
                raise Unsupported(
                    "the keys of an entry take too many steps through an exchange's patterns; "
                    "use shorter keys, or fewer patterns with # and *"
                )
            after: dict[_Node, None] = {}
            for node in active:
                if node.repeats:
                    node.reach(after)
                for name in (word, "*") if word not in ("*", "#") else ("*",):
                    found = node.next.get(name)
                    if found is not None:
                        found.reach(after)
            active = after
        return sorted(set().union(*(node.topics for node in active)))


def words_of(key: str) -> list[str]:
    """Return the words of a key; none for an empty one."""
    return key.split(".") if key else []


class ExchangeState(Part):
    """An exchange. Its id is that of its topic, which has its name."""

    def __init__(self, id: int, kind: Kind, unreplicated: bool = False) -> None:  # noqa: A002
        self.id = id
        self.kind: Kind = kind
        self.unreplicated = unreplicated
        """It is in the log of a member, not in that of a cluster."""
        self.alternate = 0
        """Id of the exchange that takes what no binding matches; 0: none."""
        self.bindings: dict[int, set[str]] = {}
        """Keys or patterns, by topic."""
        self.count = Counts()
        self._direct: dict[str, list[int]] | None = None
        self._patterns: Patterns | None = None

    def binding_pairs(self) -> list[tuple[int, str]]:
        """Return all bindings, sorted."""
        return [(topic, key) for topic, keys in sorted(self.bindings.items()) for key in sorted(keys)]

    def bind(self, topic: int, key: str) -> bool:
        """Add a binding. Returns False if it exists.

        Raises:
            LimitReached: the exchange has as many bindings as possible.
        """
        if key in self.bindings.get(topic, ()):
            return False
        if sum(map(len, self.bindings.values())) >= BINDINGS_MAX:
            raise LimitReached(
                f"an exchange has at most {BINDINGS_MAX} bindings; remove some, or bind to another exchange"
            )
        self.bindings.setdefault(topic, set()).add(key)
        self.forget_tables()
        return True

    def unbind(self, topic: int, key: str | None = None) -> bool:
        """Remove a binding; without a key all of a topic.

        Returns False if there was no such binding.
        """
        keys = self.bindings.get(topic, set())
        gone = set(keys) if key is None else keys & {key}
        if not gone:
            return False
        keys -= gone
        if not keys:
            del self.bindings[topic]
        self.forget_tables()
        return True

    def forget_tables(self) -> None:
        """Drop what is derived from the bindings."""
        self._direct = self._patterns = None

    @property
    def by_key(self) -> bool:
        """Whether the message's key decides."""
        return self.kind != "fanout"

    def match(self, key: str, most: int = STEPS_MAX) -> list[int]:
        """Return the topics of a message with this key: each once, sorted.

        Raises:
            Unsupported: it takes more than `most` steps.
        """
        if self.kind == "fanout":
            return sorted(self.bindings)
        if self.kind == "direct":
            if self._direct is None:
                self._direct = {}
                for topic, each in self.binding_pairs():
                    self._direct.setdefault(each, []).append(topic)
            return self._direct.get(key, [])
        if self._patterns is None:
            self._patterns = Patterns((each, topic) for topic, each in self.binding_pairs())
        return self._patterns.match(key, most)

    @property
    def steps(self) -> int:
        """Steps of the last match; 0 without patterns."""
        return 0 if self._patterns is None else self._patterns.steps


class Alternates(Part):
    """The alternate exchanges of topics and subscriptions: there go messages that consumers reject."""

    def __init__(self) -> None:
        self.topics: dict[int, int] = {}
        self.subscriptions: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.topics or self.subscriptions)

    def of(self, subscription: int, topic: int) -> int:
        """Return the alternate of a subscription, else of its topic; 0: none."""
        return self.subscriptions.get(subscription, 0) or self.topics.get(topic, 0)


class Exchanges:
    """All exchanges of a broker, by id, and the alternates."""

    def __init__(self) -> None:
        self.all: dict[int, ExchangeState] = {}
        self.alternates = Alternates()

    def __contains__(self, id: int) -> bool:  # noqa: A002
        return id in self.all

    def require(self, id: int) -> ExchangeState:  # noqa: A002
        """Return an exchange, or raise NotFound."""
        found = self.all.get(id)
        if found is None:
            raise NotFound(f"there is no exchange with id {id}; it may have been deleted")
        return found

    def bound_to(self, topic: int) -> Iterator[ExchangeState]:
        """Yield the exchanges that have a binding to a topic."""
        return (each for _, each in sorted(self.all.items()) if topic in each.bindings)

    def users_of(self, exchange: int) -> int:
        """Count exchanges, topics and subscriptions that have this one as alternate."""
        alternates = self.alternates
        uses = [each.alternate for each in self.all.values() if each.id != exchange]
        return [*uses, *alternates.topics.values(), *alternates.subscriptions.values()].count(exchange)

    def check(self, topics: Iterable[int], subscriptions: Iterable[int], empty: Iterable[int]) -> None:
        """Assert I240 and I241. `empty`: topics without entries and subscriptions."""
        topics, subscriptions, empty = set(topics), set(subscriptions), set(empty)
        for id, each in self.all.items():  # noqa: A001
            assert each.id == id, f"I240: exchange {each.id} is listed as {id}"
            assert id in empty, f"I240: exchange {id} has no topic, or one with entries or subscriptions"
            bound = set(each.bindings)
            assert bound <= topics - set(self.all), f"I240: exchange {id} is bound to what is no topic"
            assert all(each.bindings.values()), f"I240: exchange {id} has a topic without a binding"
            assert each.alternate in {0, *self.all} - {id}, f"I241: {each.alternate} is no other exchange"
            count = each.count
            total = count.routed + count.alternate + count.dropped
            assert count.published == total, f"I240: exchange {id} accounts for {total} of {count.published}"
        for owners, known in (
            (self.alternates.topics, topics),
            (self.alternates.subscriptions, subscriptions),
        ):
            assert set(owners) <= known, f"I241: alternates of what is gone: {set(owners) - known}"
            assert set(owners.values()) <= set(self.all), "I241: an alternate is no exchange"


def checked_kind(kind: str) -> Kind:
    """Return the kind of an exchange, or raise Misuse."""
    for known in KINDS:
        if kind == known:
            return known
    raise Misuse(f"there is no exchange of kind {kind!r}; use {', '.join(KINDS)}")


def checked_key(key: str) -> str:
    """Return the key of a binding, or raise Misuse."""
    if len(key.encode("utf-8", "surrogatepass")) > KEY_BYTES_MAX:
        raise Misuse(f"the key of a binding has more than {KEY_BYTES_MAX} bytes; use a shorter one")
    return key
