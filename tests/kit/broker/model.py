"""A simple model of a broker: lists of entries, and sets of acknowledged messages.

The model judges more than it predicts. The broker chooses which consumer of a shared subscription gets a
message. Each delivery must be one that the model allows, and each message that is due must be delivered.
Numbers are ordinals: the position of an entry in its topic. `harness.py` tells the model its requests to the
broker, and the deliveries to every consumer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from holdfast._core import key_hash
from holdfast.broker.key_shared import KeyShared, split

Type = Literal["exclusive", "failover", "shared", "key_shared"]
AUTO_SPLIT = KeyShared()
Seats = list[tuple[int, int, str]]
"""Ranges of hashes, both ends included, each with the name of its consumer."""


class Wrong(AssertionError):
    """The broker did something that the model rules out."""


class Key(NamedTuple):
    """A message: its entry, and its index in the batch."""

    ordinal: int
    place: int


class Shown(NamedTuple):
    """A message as a consumer received it."""

    key: Key
    id: tuple[int, int]
    data: bytes
    name: str | bytes | None
    """The message's key."""
    producer: str
    sequence: int
    redeliveries: int
    reset_number: int


@dataclass
class Stored:
    """An entry: one message, or a batch of them."""

    messages: tuple[bytes, ...]
    name: str | None
    producer: str
    sequence: int
    since_ns: int
    """It was published at or after this time, and before that of the next entry."""
    id: tuple[int, int] | None = None
    """The id that a client was told; from then on it does not change."""
    due_ns: int = 0
    """Its delivery time, or a little before; 0: none."""
    ordering: str | None = None
    """Its ordering key, which comes before the key."""
    sure: bool = False
    """It was confirmed, or shown: a crash cannot lose it."""

    @property
    def shares_by(self) -> str | None:
        """The key by which a key_shared subscription chooses a consumer; None: it has none."""
        return self.name if self.ordering is None else self.ordering

    def keys(self, ordinal: int) -> set[Key]:
        return {Key(ordinal, place) for place in range(len(self.messages))}


@dataclass
class Topic:
    """Entries in the order of submission, and the last sequence number of each producer."""

    deduplicate: bool = False
    entries: list[Stored] = field(default_factory=list)
    first: int = 0
    """Entries below this are trimmed."""
    first_sure: int = 0
    """Entries below this are trimmed durably; a crash may undo a trim that is not yet durable."""
    sealed: set[int] = field(default_factory=set)
    """Ends of sealed ledgers: the ordinal after the last entry of each."""
    last: dict[str, int] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return len(self.entries)

    def publish(self, entry: Stored) -> int | None:
        """Store an entry; return its ordinal, or None if the sequence number is known."""
        highest = entry.sequence + len(entry.messages) - 1
        if self.deduplicate and entry.sequence <= self.last.get(entry.producer, -1):
            return None
        self.last[entry.producer] = max(self.last.get(entry.producer, -1), highest)
        self.entries.append(entry)
        return self.end - 1

    def confirm(self, ordinal: int, id: tuple[int, int]) -> None:  # noqa: A002  # as everywhere
        """Note that the producer, or a consumer, was told the id."""
        entry = self.entries[ordinal]
        entry.sure = True
        if entry.id is None:
            self._check_new(ordinal, id)
            entry.id = id
        if entry.id != id:
            raise Wrong(f"entry {ordinal} had the id {entry.id}, and now has {id}")

    def _check_new(self, ordinal: int, id: tuple[int, int]) -> None:  # noqa: A002
        """Check that ids rise, are dense within a ledger, and avoid sealed ledgers."""
        told = [each.id for each in self.entries[:ordinal] if each.id is not None]
        if told and id <= max(told):
            raise Wrong(f"entry {ordinal} has the id {id}, at or below {max(told)} of an earlier one")
        before = self.entries[ordinal - 1].id if ordinal else None
        if before is not None and id not in ((before[0], before[1] + 1), (id[0], 0)):
            raise Wrong(f"entry {ordinal} has the id {id} after {before}")
        if before is not None and ordinal in self.sealed and id[0] == before[0]:
            raise Wrong(f"entry {ordinal} has the id {id} in a ledger that was sealed before")

    def ledgers(self) -> list[int]:
        """Return the ends of ledgers that take no more entries."""
        told = [entry.id[0] if entry.id is not None else 0 for entry in self.entries]
        ends = {at for at in range(1, self.end) if 0 != told[at - 1] != told[at] != 0}
        return sorted(ends | self.sealed)

    def recount(self) -> None:
        """Compute the last sequence numbers from the entries."""
        self.last.clear()
        for entry in self.entries:
            highest = entry.sequence + len(entry.messages) - 1
            self.last[entry.producer] = max(self.last.get(entry.producer, -1), highest)

    def at_time(self, time_ns: int) -> int:
        """Return the first entry published at or after a time."""
        times = ((at, self.entries[at].since_ns) for at in range(self.first, self.end))
        return next((at for at, since_ns in times if since_ns >= time_ns), self.end)


@dataclass
class Client:
    """A consumer, and the messages delivered to it that it has not received yet."""

    name: str
    queue: int
    ack_timeout_ns: int = 0
    """0: it may hold a message without limit."""
    sharing: KeyShared = AUTO_SPLIT
    """Of a key_shared subscription: its hashes, if they are sticky."""
    active: bool = True
    inbox: deque[Key] = field(default_factory=deque)


@dataclass
class Subscription:
    """A cursor, and the consumers that it serves."""

    topic: Topic
    type: Type
    acked: set[Key] = field(default_factory=set)
    doubtful: set[Key] = field(default_factory=set)
    """Acknowledged without a receipt: a crash may undo it."""
    reset_number: int = 0
    reach: int = 0
    """The end of the topic at the last reset: entries below it may have been received before the reset."""
    resetting: int | None = None
    """The target of a reset that was requested and not reported."""
    clients: dict[str, Client] = field(default_factory=dict)
    pending: dict[int, str] = field(default_factory=dict)
    """The consumer that holds each entry."""
    given: dict[int, int] = field(default_factory=dict)
    """When each entry was delivered."""
    counts: dict[int, int] = field(default_factory=dict)
    """How often each entry was delivered and returned."""
    counts_most: dict[int, int] = field(default_factory=dict)
    """Counts before a restart: the broker remembers them, except perhaps the last redeliveries."""
    late: dict[int, int] = field(default_factory=dict)
    """Entries to be redelivered, and the time before which they must not be."""
    excused: bool = False
    """A reason exists to start again at the first unacknowledged entry."""
    clearing: set[str] = field(default_factory=set)
    """Consumers that have not been told of the last reset yet."""
    seen: set[int] = field(default_factory=set)
    """Entries delivered since the last reset; redelivered only if a consumer returned them."""
    read: int = 0
    """With one active consumer: entries below this were delivered since the last reset or rewind."""

    @property
    def is_ordered(self) -> bool:
        """Whether one consumer is active, and gets the entries in order."""
        return self.type in ("exclusive", "failover")

    # -- what is acknowledged --------------------------------------------------------------------------

    def unacked(self, ordinal: int) -> list[Key]:
        return sorted(self.topic.entries[ordinal].keys(ordinal) - self.acked)

    def backlog(self) -> list[int]:
        return [at for at in range(self.topic.first, self.topic.end) if self.unacked(at)]

    def mark(self) -> int:
        """Return the ordinal below which everything is acknowledged."""
        return next(iter(self.backlog()), self.topic.end)

    def figures(self) -> tuple[int, int, int]:
        """Count entries unacknowledged; acknowledged above the first of these; acknowledged in part."""
        behind = self.backlog()
        partly = [at for at in behind if self.topic.entries[at].keys(at) & self.acked]
        return len(behind), self.topic.end - self.mark() - len(behind), len(partly)

    def ack(self, keys: set[Key], reset_number: int, receipt: bool) -> None:
        """Acknowledge messages; without a receipt they are in doubt until something later is confirmed."""
        if reset_number != self.reset_number:
            return  # from before a reset
        if receipt:
            self.doubtful -= keys
        else:
            self.doubtful |= keys - self.acked
        self.acked |= keys
        for ordinal in {key.ordinal for key in keys}:
            if not self.unacked(ordinal):
                self.pending.pop(ordinal, None)
                if receipt:
                    self.late.pop(ordinal, None)

    def takes_word_of_a_session(self, ordinal: int) -> bool:
        """Return whether an acknowledgement with the session's reset number counts for an entry.

        A session knows the number of the last reset, not whether it received an entry before or after it.
        """
        return self.reset_number == 0 or ordinal >= self.reach or ordinal in self.seen

    def keys_to(self, key: Key) -> set[Key]:
        """Return the keys of the message and all before it."""
        return {each for each in self.keys_below(key.ordinal + 1) if each <= key}

    def keys_below(self, ordinal: int) -> set[Key]:
        """Return the keys of all messages of the entries before this one."""
        return {key for at in range(self.topic.first, ordinal) for key in self.topic.entries[at].keys(at)}

    def skipped(self, count: int) -> set[Key]:
        """Return the keys that a skip of `count` entries acknowledges."""
        behind = self.backlog()[:count]
        return self.keys_below(behind[-1] + 1) if behind else set()

    # -- going elsewhere -------------------------------------------------------------------------------

    def reset(self, target: int) -> None:
        self.reset_number += 1
        self.reach = self.topic.end
        self.resetting = None
        self.acked = {key for at in range(target) for key in self.topic.entries[at].keys(at)}
        self.doubtful.clear()
        self.forget_deliveries()
        self.counts_most.clear()
        self.clearing = set(self.clients)

    def forget_deliveries(self) -> None:
        """Start again as if nothing had been delivered."""
        self.pending.clear()
        self.rewind()
        self.counts.clear()
        self.seen.clear()

    def rewind(self) -> None:
        """Let everything that is not acknowledged be redelivered, in order."""
        for ordinal in [*self.pending]:
            self.comes_back(ordinal, 0)
        self.late.clear()
        self.excused = False
        self.read = 0
        for client in self.clients.values():
            client.inbox.clear()

    def cleared(self, client: Client, reset_number: int, now_ns: int) -> None:
        """Note that a consumer was told to drop the messages that it has not received.

        The reason is a reset, a rewind, or that it returned everything.
        """
        if self.resetting is not None and reset_number == self.reset_number + 1:
            self.reset(self.resetting)
        if reset_number != self.reset_number:
            raise Wrong(f"{client.name} is told of reset {reset_number}; there were {self.reset_number}")
        self.expire(now_ns)
        if client.name in self.clearing:
            self.clearing.remove(client.name)
        elif self.is_ordered:
            if not self.excused and not any(at_ns <= now_ns for at_ns in self.late.values()):
                raise Wrong(f"{client.name} is told to start again without a reason")
            self.rewind()
        client.inbox.clear()

    # -- dispatch --------------------------------------------------------------------------------------

    def joined(self, client: Client) -> None:
        self.clients[client.name] = client

    def left(self, name: str) -> None:
        """Remove a consumer; with one active consumer, or none left, everything starts again."""
        gone = self.clients.pop(name)
        self.gives_back(name)
        if not self.clients or (self.is_ordered and gone.active):
            self.rewind()

    def nacked(self, ordinal: int, name: str, not_before_ns: int, now_ns: int) -> None:
        if self.pending.get(ordinal) == name:
            self.comes_back(ordinal, not_before_ns)
            self.excused |= not_before_ns <= now_ns

    def redelivers(self, client: Client) -> None:
        if not self.is_ordered:
            self.gives_back(client.name)
        elif client.active:
            self.excused = True

    def gives_back(self, name: str) -> None:
        """Let everything that a consumer holds be redelivered."""
        for ordinal in [each for each, holder in self.pending.items() if holder == name]:
            self.comes_back(ordinal, 0)

    def comes_back(self, ordinal: int, not_before_ns: int) -> None:
        del self.pending[ordinal]
        self.counts[ordinal] = self.counts.get(ordinal, 0) + 1
        self.late[ordinal] = not_before_ns

    def expire(self, now_ns: int) -> None:
        """Let entries be redelivered that a consumer has held longer than its ack timeout."""
        for ordinal, name in [*self.pending.items()]:
            limit_ns = self.clients[name].ack_timeout_ns
            if limit_ns and self.given[ordinal] + limit_ns <= now_ns:
                self.comes_back(ordinal, 0)
                self.excused = True

    def due(self, now_ns: int | None = None) -> list[int]:
        """Return the entries to deliver: not acknowledged, and held by no consumer.

        With a time, those whose delivery time has not come are left out, where order does not forbid it.
        """
        found = [at for at in self.backlog() if at not in self.pending]
        if now_ns is None or self.is_ordered:
            return found
        return [at for at in found if self.topic.entries[at].due_ns <= now_ns]

    def stuck(self, wall_ns: int, now_ns: int) -> list[int]:
        """Return the entries that are due, and for which a consumer has room."""
        due, ready = self.due(wall_ns), [client.name for client in self.ready()]
        if self.type != "key_shared":
            return due if ready else []
        seats = self.seats()
        return [at for at in due if self._may_go(at, now_ns, seats, ready)]

    def seats(self) -> Seats:
        """Return ranges of hashes, each with the name of its consumer."""
        clients = [*self.clients.values()]
        found = split([(each.name, each.sharing) for each in clients]) if clients else []
        return [(first, last, clients[at].name) for first, last, at in found]

    def _may_go(self, ordinal: int, now_ns: int, seats: Seats, ready: list[str]) -> bool:
        """Return whether the consumer of an entry's key has room and may take it."""
        of_key = self.hash_of(ordinal)
        to = next((name for first, last, name in seats if first <= of_key <= last), None)
        same = [at for at in self.backlog() if self.hash_of(at) == of_key]
        drains = any(self.pending.get(at, to) != to for at in same)
        delayed = any(at < ordinal and self.late.get(at, 0) > now_ns for at in same)
        return to in ready and not drains and not delayed

    def hash_of(self, ordinal: int) -> int:
        """Return the hash by which a key_shared subscription chooses a consumer."""
        entry = self.topic.entries[ordinal]
        key = f"{entry.producer}-{entry.sequence}" if entry.shares_by is None else entry.shares_by
        return key_hash(key.encode())

    def require_due(self, name: str, messages: list[Shown], wall_ns: int) -> None:
        """Require that the delivery time of all these entries has come, by the wall clock."""
        for ordinal in sorted({message.key.ordinal for message in messages}):
            early_ns = self.topic.entries[ordinal].due_ns - wall_ns if ordinal < self.topic.end else 0
            if not self.is_ordered and early_ns > 0:
                raise Wrong(f"{name} is handed entry {ordinal} {early_ns} ns before its delivery time")

    def ready(self) -> list[Client]:
        """Return the consumers that surely have permits.

        A consumer gives permits back with every half of its queue that was received.
        """
        able = [each for each in self.clients.values() if each.active or not self.is_ordered]
        return [each for each in able if not each.inbox]

    def handed(self, name: str, messages: list[Shown], now_ns: int) -> None:
        """Note that a consumer was given these messages, of whole entries."""
        client = self.clients.get(name)
        if client is None:
            raise Wrong(f"{name} is handed {messages[0].key} and is not attached")
        if self.resetting is not None and messages[0].reset_number == self.reset_number + 1:
            self.reset(self.resetting)
        self.expire(now_ns)
        entries: dict[int, list[Shown]] = {}
        for message in messages:
            entries.setdefault(message.key.ordinal, []).append(message)
        for ordinal, shown in entries.items():
            self._judge(client, ordinal, shown, now_ns)
            self.pending[ordinal] = name
            self.given[ordinal] = now_ns
            self.late.pop(ordinal, None)
            client.inbox.extend(message.key for message in shown)

    def _judge(self, client: Client, ordinal: int, shown: list[Shown], now_ns: int) -> None:
        what = f"{client.name} is handed entry {ordinal}"
        if not self.topic.first <= ordinal < self.topic.end:
            raise Wrong(f"{what}: there are [{self.topic.first}, {self.topic.end})")
        entry = self.topic.entries[ordinal]
        self.topic.confirm(ordinal, shown[0].id)
        if any(each.reset_number != self.reset_number for each in shown):
            raise Wrong(f"{what} of reset {shown[0].reset_number}; the cursor is at {self.reset_number}")
        if len(client.inbox) >= client.queue:
            raise Wrong(f"{what}: permits: {len(client.inbox)} of {client.queue} wait there already")
        if not client.active and self.is_ordered:
            raise Wrong(f"{what}: it is not the active one")
        if ordinal in self.pending:
            raise Wrong(f"{what}, which {self.pending[ordinal]} has")
        if ordinal in self.counts_most:
            count, most = shown[0].redeliveries, self.counts_most.pop(ordinal)
            if not self.counts.get(ordinal, 0) <= count <= most + self.counts.get(ordinal, 0):
                raise Wrong(f"{what}: redelivery count {count} after a restart; it was {most} before")
            self.counts[ordinal] = count
        self._judge_messages(what, entry, ordinal, shown)
        if ordinal in self.seen and ordinal not in self.counts:
            raise Wrong(f"{what}, which was delivered before, and not returned")
        if self.late.get(ordinal, 0) > now_ns:
            raise Wrong(f"{what} {self.late[ordinal] - now_ns} ns too early")
        missed = [at for at in self.due() if self.read <= at < ordinal and at not in self.late]
        if self.is_ordered and missed:
            raise Wrong(f"{what}: order: {missed} were passed over")
        if self.type == "key_shared":
            self._judge_key(client, what, ordinal)
        self.seen.add(ordinal)
        self.read = max(self.read, ordinal + 1)

    def _judge_key(self, client: Client, what: str, ordinal: int) -> None:
        """I260, I261: the open entries of a key are with the consumer of its hash."""
        of_key = self.hash_of(ordinal)
        ranges = client.sharing.ranges
        if ranges and not any(first <= of_key <= last for first, last in ranges):
            raise Wrong(f"{what}: key: its hash {of_key} is not in {ranges}")
        key = self.topic.entries[ordinal].shares_by
        if key is None:
            return
        same = [at for at in self.backlog() if self.topic.entries[at].shares_by == key]
        elsewhere = [at for at in same if self.pending.get(at, client.name) != client.name]
        if elsewhere:
            raise Wrong(f"{what}: key: {self.pending[elsewhere[0]]} has {elsewhere} of the same key")
        passed = [at for at in same if at < ordinal and at not in self.pending]
        if passed and not any(self.topic.entries[at].keys(at) & self.doubtful for at in passed):
            raise Wrong(f"{what}: key: {passed} of the same key were passed over")

    def _judge_messages(self, what: str, entry: Stored, ordinal: int, shown: list[Shown]) -> None:
        """Require the unacknowledged messages; one acknowledged without a receipt may be missing."""
        keys = [message.key for message in shown]
        may, must = entry.keys(ordinal) - (self.acked - self.doubtful), set(self.unacked(ordinal))
        if not must <= set(keys) <= may or keys != sorted(set(keys)):
            raise Wrong(f"{what}: with {keys}; not acknowledged are {sorted(must)}")
        for message in shown:
            content = (message.data, message.name, message.producer)
            if content != (entry.messages[message.key.place], entry.name, entry.producer):
                raise Wrong(f"{what}: {message}; it is {entry}")
            if message.sequence != entry.sequence + (message.key.place if len(entry.messages) > 1 else 0):
                raise Wrong(f"{what}: with sequence {message.sequence}; it has {entry.sequence}")
            if message.redeliveries != self.counts.get(ordinal, 0):
                raise Wrong(
                    f"{what}: redelivery count {message.redeliveries}; it is {self.counts.get(ordinal, 0)}"
                )

    def took(self, name: str, keys: list[Key]) -> None:
        inbox = self.clients[name].inbox
        expected = [inbox.popleft() for _ in range(min(len(inbox), len(keys)))]
        if keys != expected:
            raise Wrong(f"{name} takes {keys}; handed were {expected}")

    # -- crashes ---------------------------------------------------------------------------------------

    def restarted(self) -> None:
        self.clients.clear()
        for ordinal in self.pending:
            self.counts[ordinal] = self.counts.get(ordinal, 0) + 1
        most = {at: self.counts.get(at, 0) + self.counts_most.get(at, 0) for at in range(self.topic.end)}
        self.forget_deliveries()
        self.counts_most = most

    def recovered(self, reset_number: int, left: set[Key]) -> None:
        """After a crash, take over the broker's cursor, and require that it is possible."""
        self.restarted()
        if self.resetting is not None and reset_number == self.reset_number + 1:
            self.reset(self.resetting)
        self.resetting = None
        if reset_number != self.reset_number:
            raise Wrong(f"the reset number is {reset_number}; {self.reset_number} was reported")
        end = range(self.topic.first, self.topic.end)
        every = set[Key]().union(*(self.topic.entries[at].keys(at) for at in end))
        back = left & (self.acked - self.doubtful)
        if back:
            raise Wrong(f"{sorted(back)} were acknowledged with a receipt, and are back")
        gone = every - self.acked - left
        if gone:
            raise Wrong(f"{sorted(gone)} were never acknowledged, and are gone")
        self.acked = every - left
        self.doubtful.clear()
