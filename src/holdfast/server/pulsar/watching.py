"""WATCH_TOPIC_LIST: tell clients the topics that match a pattern, and every change.

Promises upward (I88): a watcher knows the topics of one moment, then every change in its order, each once. A
slow reader is told of all missed changes at once when it reads again, so that nothing collects for it. Needs
from below: patterns in time linear in the names (`patterns`). One thread of the server matches them, not the
loop.

Watches of the same pattern share the known names: each has a reference to the names that its client knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from holdfast.broker import NameChanged, Notice, TopicAdded, TopicGone
from holdfast.names import namespace_of
from holdfast.protocol import framed
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.pulsar import commands, lookup
from holdfast.server.pulsar.commands import Refused
from holdfast.server.pulsar.patterns import Shown, TopicPattern, hash_of

if TYPE_CHECKING:
    from holdfast.server.budget import Budget
    from holdfast.server.pulsar.connection import Connection
    from holdfast.server.pulsar.listing import Listings

_NONE: frozenset[str] = frozenset()

NAME_BYTES = 64
"""Approximate size of a name in a watched list: the text itself is the broker's."""
SUBJECT_BYTES = 4096
"""Approximate size of a watched list without its names; a large pattern counts for more."""


class Subject:
    """The topics of a namespace that match a pattern, for all its watches."""

    def __init__(self, namespace: str, pattern: TopicPattern) -> None:
        self.namespace = namespace
        self.pattern = pattern
        self.topics = _NONE
        self.hash = ""
        self.watches: set[Watch] = set()
        self._sorted: tuple[frozenset[str], list[str]] = (_NONE, [])
        self._since: tuple[frozenset[str], frozenset[str], list[str], list[str]] = (_NONE, _NONE, [], [])

    def names(self) -> list[str]:
        """Return the topics, sorted once for all watches."""
        if self._sorted[0] is not self.topics:
            self._sorted = (self.topics, sorted(self.topics))
        return self._sorted[1]

    def since(self, before: frozenset[str]) -> tuple[list[str], list[str]]:
        """Return the topics that came and went since: mostly the same for all clients."""
        now = self.topics
        if self._since[0] is not before or self._since[1] is not now:
            self._since = (before, now, sorted(now - before), sorted(before - now))
        return self._since[2], self._since[3]

    def begin(self, shown: Shown) -> tuple[frozenset[str], str]:
        """Return the first topics and their hash, from all names: in a thread."""
        topics = frozenset(self.pattern.select_shown(shown))
        return topics, hash_of(topics)

    def become(self, changed: frozenset[str], present: list[str]) -> tuple[frozenset[str], str]:
        """Return topics and hash after changes; `present` still exist: in a thread."""
        topics = (self.topics - changed) | frozenset(self.pattern.select(present))
        return topics, self.hash if topics == self.topics and self.hash else hash_of(topics)


class Watch:
    """One client that watches."""

    def __init__(self, connection: Connection, id: int, namespace: str, pattern: str) -> None:  # noqa: A002
        self.connection = connection
        self.id = id
        self.namespace = namespace
        self.pattern = pattern
        self.told: frozenset[str] | None = None
        """The topics that its client knows; None: it was not answered yet."""

    def tell(self, subject: Subject) -> None:
        """Send the changes to the client, unless it is slow to read: then later."""
        before, now = self.told, subject.topics
        if before is None or before is now or self.connection.stalled:
            return
        self.told = now
        came, went = subject.since(before)
        update = pb.CommandWatchTopicUpdate(
            watcher_id=self.id, new_topics=came, deleted_topics=went, topics_hash=subject.hash
        )
        if update.new_topics or update.deleted_topics:
            self.connection.send(framed(update))


class Watching:
    """All watches of a server."""

    def __init__(self, budget: Budget, listings: Listings) -> None:
        self._budget = budget
        self._listings = listings
        self.subjects: dict[str, dict[str, Subject]] = {}
        """By namespace and pattern."""
        self._changed: dict[str, set[str]] = {}
        """By namespace, names of topics that came or went since the last update."""
        self._telling: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._thread: ThreadPoolExecutor | None = None

    async def apart(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run work in the thread for patterns, one after another, beside the loop."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "holdfast-patterns")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)

    def subject(self, watch: Watch) -> Subject | None:
        return self.subjects.get(watch.namespace, {}).get(watch.pattern)

    # -- coming and going ------------------------------------------------------------------------------

    async def join(self, watch: Watch) -> Subject:
        """Start a watch; return its subject.

        Raises:
            Misuse: the pattern is malformed.
            Unsupported: the server cannot match the pattern.
        """
        pattern = await self.apart(TopicPattern, watch.pattern)  # a KiB of classes takes 30 ms
        async with self._turn:
            try:
                subject = self.subject(watch) or await self._begin(watch, pattern)
                subject.watches.add(watch)
            finally:
                self._sweep()
        return subject

    async def _begin(self, watch: Watch, pattern: TopicPattern) -> Subject:
        subject = Subject(watch.namespace, pattern)
        self.subjects.setdefault(watch.namespace, {})[watch.pattern] = subject  # what changes now is noted
        listing = self._listings.of(watch.namespace)
        self._budget.require(NAME_BYTES * len(listing.names), "a watched topic list")
        shown = listing.whole if pattern.whole else listing.short  # prepared once for all patterns
        subject.topics, subject.hash = await self.apart(subject.begin, shown)
        self._hold(subject)
        return subject

    def _hold(self, subject: Subject) -> None:
        """Count the names that a pattern matches in the budget."""
        fixed = max(SUBJECT_BYTES, subject.pattern.size_bytes)
        self._budget.hold(subject, fixed + NAME_BYTES * len(subject.topics))

    def leave(self, watch: Watch) -> None:
        """End a watch."""
        subject = self.subject(watch)
        if subject is not None:
            subject.watches.discard(watch)
            if not self._turn.locked():  # else the holder of the turn does it
                self._sweep()

    def _sweep(self) -> None:
        """Drop lists without watches."""
        for namespace, patterns in list(self.subjects.items()):
            for pattern in [pattern for pattern, subject in patterns.items() if not subject.watches]:
                self._budget.hold(patterns.pop(pattern), 0)
            if not patterns:
                del self.subjects[namespace]
                self._changed.pop(namespace, None)

    def stop(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    # -- what happens ----------------------------------------------------------------------------------

    def settled(self, notices: Sequence[Notice]) -> None:
        """Note topics that came or went; costs nothing without watches."""
        if not self.subjects:
            return
        for notice in notices:
            if isinstance(notice, TopicAdded | TopicGone):
                self._note(notice.topic.name)
            elif isinstance(notice, NameChanged):
                self._note(notice.name)

    def _note(self, name: str) -> None:
        namespace = namespace_of(name)
        if namespace in self.subjects:
            self._changed.setdefault(namespace, set()).add(name)
            if self._telling is None:
                self._telling = asyncio.get_running_loop().create_task(self._tell(), name="topic watches")

    async def _tell(self) -> None:
        """Send updates until nothing more has changed."""
        try:
            while self._changed:
                async with self._turn:
                    changed, self._changed = self._changed, {}
                    try:
                        await self._tell_of(changed)
                    finally:
                        self._sweep()
        finally:
            self._telling = None

    async def _tell_of(self, changed: dict[str, set[str]]) -> None:
        work = [
            (subject, frozenset(names), sorted(name for name in names if name in self._listings.there))
            for namespace, names in changed.items()
            for subject in self.subjects.get(namespace, {}).values()
        ]
        for subject, outcome in await self.apart(_become, work):
            if outcome[0] != subject.topics:
                subject.topics, subject.hash = outcome
                self._hold(subject)
                for watch in subject.watches:
                    watch.tell(subject)


_Work = list[tuple[Subject, frozenset[str], list[str]]]


def _become(work: _Work) -> list[tuple[Subject, tuple[frozenset[str], str]]]:
    """Work out, in a thread, the topics and the hash of each subject after changes."""
    return [(subject, subject.become(changed, present)) for subject, changed, present in work]


class Watches:
    """The watches of one connection, by the ids of its client."""

    def __init__(self, connection: Connection) -> None:
        self._on = connection
        self._watches: dict[int, Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    async def open(self, command: pb.CommandWatchTopicList) -> bytes:
        """WATCH_TOPIC_LIST: answer with the topics, or their hash alone if it is known."""
        on, id = self._on, command.watcher_id  # noqa: A001
        known = self._watches.get(id)
        if known is not None:
            return self._answer(command, self._answered_before(command, known))
        if len(self._watches) >= on.options.watchers_per_connection:
            raise Refused(
                pb.NotAllowedError,
                f"this connection watches {len(self._watches)} topic lists, the most that "
                "limits.watchers_per_connection allows; close some, poll, or raise the limit",
            )
        lookup.require_namespace_name(command.namespace)
        on.authorize("lookup", command.namespace)
        watch = self._watches[id] = Watch(on, id, command.namespace, command.topics_pattern)
        try:
            subject = await on.server.watching.join(watch)
        except BaseException:
            self._drop(watch)
            raise
        if self._watches.get(id) is not watch:  # it was closed meanwhile
            on.server.watching.leave(watch)
            raise Refused(pb.NotAllowedError, f"watcher {id} was closed before it was answered")
        watch.told = subject.topics
        return self._answer(command, subject)

    def _answered_before(self, command: pb.CommandWatchTopicList, known: Watch) -> Subject:
        """Return the subject of a watch that a client repeats after a lost answer."""
        if (known.namespace, known.pattern) != (command.namespace, command.topics_pattern):
            raise Refused(
                pb.NotAllowedError,
                f"watcher {known.id} of this connection has {known.pattern!r}; close it first",
            )
        subject = self._on.server.watching.subject(known)
        if known.told is None or subject is None:
            raise Refused(
                pb.ServiceNotReady, f"watcher {known.id} is already being opened; wait for the answer"
            )
        known.told = subject.topics
        return subject

    @staticmethod
    def _answer(command: pb.CommandWatchTopicList, subject: Subject) -> bytes:
        answer = pb.CommandWatchTopicListSuccess(
            request_id=command.request_id, watcher_id=command.watcher_id, topics_hash=subject.hash
        )
        if command.topics_hash != subject.hash:
            answer.topic.extend(subject.names())
        return framed(answer)

    async def close(self, command: pb.CommandWatchTopicListClose) -> bytes:
        """WATCH_TOPIC_LIST_CLOSE."""
        watch = self._watches.get(command.watcher_id)
        if watch is not None:
            self._drop(watch)
        return commands.success(command.request_id)

    def _drop(self, watch: Watch) -> None:
        if self._watches.get(watch.id) is watch:
            del self._watches[watch.id]
        self._on.server.watching.leave(watch)

    def release(self) -> None:
        """Send missed changes to a client that has caught up."""
        for watch in list(self._watches.values()):
            subject = self._on.server.watching.subject(watch)
            if subject is not None:
                watch.tell(subject)

    def gone(self) -> None:
        """End all watches at the end of the connection."""
        for watch in list(self._watches.values()):
            self._drop(watch)
