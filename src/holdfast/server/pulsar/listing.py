"""The topics of each namespace: sorted, hashed and encoded once for all requests.

A repeated request costs the copying of the answer, not another look at every name.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.broker import NameChanged, Notice, TopicAdded, TopicGone
from holdfast.names import namespace_of
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar.patterns import Shown, hash_of, shown_of

if TYPE_CHECKING:
    from holdfast.broker import Broker

UNREPLICATED = -1
"""Stands for the id of an unreplicated topic: only its member knows it."""


class Listing:
    """The topics of a namespace at one moment."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        """Sorted."""

    @functools.cached_property
    def hash(self) -> str:
        return hash_of(self.names)

    @functools.cached_property
    def encoded(self) -> bytes:
        """The body of GET_TOPICS_OF_NAMESPACE_RESPONSE without the number of the request."""
        answer = pb.CommandGetTopicsOfNamespaceResponse(
            topics=self.names, topics_hash=self.hash, changed=True, filtered=False
        )
        return answer.SerializePartialToString()

    @functools.cached_property
    def whole(self) -> Shown:
        """As patterns with `://` see the names."""
        return shown_of(self.names, whole=True)

    @functools.cached_property
    def short(self) -> Shown:
        """As other patterns see the names."""
        return shown_of(self.names, whole=False)


EMPTY = Listing(())


class Listings:
    """The listings of all namespaces, updated when topics are created or deleted."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.there: dict[str, int] = {}
        """Ids of the existing topics, by their names."""
        self._sorted: dict[str, list[str]] = {}
        self._made: dict[str, Listing] = {}

    def start(self) -> None:
        """List all topics, and watch for later ones."""
        for topic in self._broker.topics.values():
            self.there[topic.name] = topic.id
        for name, place in self._broker.unreplicated.places().items():
            if not place.exchange:
                self.there.setdefault(name, UNREPLICATED)
        for name in self.there:
            self._sorted.setdefault(namespace_of(name), []).append(name)
        for names in self._sorted.values():
            names.sort()
        self._broker.watch(self._settled)

    def stop(self) -> None:
        self._broker.unwatch(self._settled)

    def of(self, namespace: str) -> Listing:
        """Return the topics of a namespace; of an unknown one, no topics."""
        found = self._made.get(namespace)
        if found is None and namespace in self._sorted:
            found = self._made[namespace] = Listing(self._sorted[namespace])
        return found or EMPTY

    def _settled(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, TopicAdded):
                self._add(notice.topic.name, notice.topic.id)
            elif isinstance(notice, TopicGone):
                self._remove(notice.topic.name, notice.topic.id)
            elif isinstance(notice, NameChanged):
                (self._add if notice.given else self._remove)(notice.name, UNREPLICATED)

    def _add(self, name: str, id: int) -> None:  # noqa: A002
        known = name in self.there
        self.there[name] = id
        if not known:
            namespace = namespace_of(name)
            insort(self._sorted.setdefault(namespace, []), name)
            self._made.pop(namespace, None)

    def _remove(self, name: str, id: int) -> None:  # noqa: A002
        if self.there.get(name) != id:
            return
        del self.there[name]
        namespace = namespace_of(name)
        names = self._sorted[namespace]
        del names[bisect_left(names, name)]
        if not names:
            del self._sorted[namespace]
        self._made.pop(namespace, None)
