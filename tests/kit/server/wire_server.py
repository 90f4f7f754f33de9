"""A server in its own process, with a door for tests to its broker.

A request through the door is one line of JSON, `[name, arguments, keywords]`: a method of the broker's
administration, or one of `Door`'s own. The answer is one line, `[result, error]`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast import MessageId, NoSpace
from holdfast.broker import Broker, ConsumerStats, Notice, TopicGone
from holdfast.broker.dispatch.reset import Resetting
from holdfast.broker.dispatch.volatile import VolatileSubscriptions
from holdfast.broker.events import CompactionSettle
from holdfast.broker.topic import Topic
from holdfast.names import topic_name
from holdfast.server import Server, ServerOptions
from holdfast.server.pulsar import delivery as sink
from holdfast.server.pulsar.connection import Connection
from holdfast.server.pulsar.consumers import Consumers
from holdfast.server.pulsar.delivery import WireConsumer
from holdfast.server.pulsar.patterns import Shown, TopicPattern
from holdfast.server.pulsar.watching import Watches, Watching

_CARRY_OUT = Resetting._carry_out
_SETTLED = Watching.settled
_RELEASE = VolatileSubscriptions.release


def _keys(consumer: ConsumerStats) -> dict[str, Any]:
    return {} if consumer.keys is None else asdict(consumer.keys)


class Door:
    """Actions of a test on the server that no client can do."""

    def __init__(self, broker: Broker, server: Server) -> None:
        self._broker = broker
        self._server = server
        self._gate: asyncio.Event | None = None
        self._held = 0

    async def pid(self) -> int:
        return os.getpid()

    async def connections(self) -> int:
        return len(self._server.connections)

    async def requests(self) -> int:
        """Return the requests of the connection that has most of them under way."""
        return max(len(each._requests) for each in self._server.connections)

    async def stats(self, topic: str, subscription: str) -> dict[str, Any]:
        stats = self._broker.admin.subscription_stats(topic, subscription)
        dispatch = stats.dispatch
        return {
            "backlog": stats.backlog,
            "reset_number": stats.reset_number,
            "holes": stats.individually_acknowledged,
            "partly": stats.partly_acknowledged,
            "consumers": [] if dispatch is None else [each.name for each in dispatch.consumers],
            "keys": {} if dispatch is None else {each.name: _keys(each) for each in dispatch.consumers},
            "diagnosis": "" if dispatch is None else dispatch.diagnosis.reason,
            "pending": 0 if dispatch is None else dispatch.pending_entries,
            "dropped": 0 if dispatch is None else dispatch.reads_dropped,
            "permits": 0 if dispatch is None else sum(each.permits for each in dispatch.consumers),
            "scheduled": 0 if dispatch is None else dispatch.scheduled_entries,
            "reason": "" if dispatch is None else dispatch.diagnosis.reason,
        }

    async def counted(self, topic: str, subscription: str) -> int:
        """Return the largest count of redeliveries that a kill does not forget."""
        state = self._broker.topic(topic_name(topic)).state.subscriptions.get(subscription)
        most = 0 if state is None else max(state.counts.values(), default=0)
        await self._broker.settle()  # a note is in the state before it is durable
        return most

    async def compact(self, topic: str) -> None:
        """Compact a topic, and wait for the end."""
        await self._broker.admin.compact(topic, wait=True)

    async def begin_compaction(self, topic: str) -> None:
        await self._broker.admin.compact(topic)

    async def compaction_state(self, topic: str) -> str:
        return self._broker.admin.compaction(topic).state

    async def settle_compaction(self, topic: str) -> None:
        """Forget the view before the last one, as housekeeping does after a time."""
        found, view = self._broker.topic(topic_name(topic)), self._broker.admin.compaction(topic).view
        await self._broker.engine.submit(CompactionSettle(found.id, view))

    async def first_kept(self, topic: str) -> int:
        """Return the first ordinal that was not trimmed."""
        return self._broker.topic(topic_name(topic)).first

    async def held(self, topic: str) -> list[str]:
        """Return the actions of quotas that stop the producers of a topic."""
        return [each for each in self._broker.topic(topic_name(topic)).state.over if each]

    async def check_quotas(self) -> bool:
        """Compare all backlogs with their quotas now, as `backlog-quota-check` does."""
        await self._broker.limiting.check_all()
        return True

    async def limit_delays(self, topic: str, most_s: float) -> None:
        """Refuse messages with a longer delay from now on."""
        await self._broker.admin.set_policies(topic_name(topic), delayed_most_s=most_s)

    async def reset_to(self, topic: str, subscription: str, ledger: int, entry: int) -> None:
        """Reset to a position, as `resetcursor` does."""
        await self._broker.admin.reset(topic, subscription, MessageId(ledger, entry))

    async def exchange(self, name: str) -> dict[str, Any]:
        """Return stats of an exchange."""
        return asdict(self._broker.admin.exchange_stats(name))

    async def reject_at(
        self, topic: str, subscription: str, ledger: int, entry: int, batch: int = -1
    ) -> bool:
        """Reject a message, as a client does over HTTP."""
        return await self._broker.admin.reject(topic, subscription, MessageId(ledger, entry, batch))

    async def passing(self, name: str) -> dict[str, Any]:
        """Return counts of a non-persistent topic; nothing if it does not exist."""
        topic = self._server.non_persistent.topics.get(name)
        if topic is None:
            return {}
        subscriptions = topic.subscriptions.items()
        return {
            "in": topic.meter.messages,
            "dropped": topic.meter.dropped,
            "permits": {key: sum(one.permits for one in each.consumers) for key, each in subscriptions},
            "dropped_of": {key: each.meter.dropped for key, each in subscriptions},
        }

    async def expel_passing(self, name: str) -> int:
        """Close the clients of a non-persistent topic."""
        return self._server.non_persistent.expel(self._server.non_persistent.topics[name])

    async def unload(self, topic: str) -> int:
        return self._server.unload(self._broker.topic(topic_name(topic)))

    async def break_it(self, mutant: str) -> None:
        """Put a mutant into the server: its tests must notice."""
        MUTANTS[mutant]()

    async def stalled(self) -> int:
        """Count connections whose client does not read."""
        return sum(each.stalled for each in self._server.connections)

    async def unread(self) -> int:
        """Count connections that the server does not read from now."""
        return sum(
            each._transport is not None and not each._transport.is_reading()
            for each in self._server.connections
        )

    async def untold(self) -> int:
        """Count watches whose client does not know all topics yet."""
        subjects = [each for every in self._server.watching.subjects.values() for each in every.values()]
        behind = [each for each in subjects for watch in each.watches if watch.told != each.topics]
        return len(behind)

    async def watched(self) -> int:
        """Count patterns that some client watches."""
        return sum(map(len, self._server.watching.subjects.values()))

    async def count(self, what: str) -> int:
        """Count the entries of one of the server's registers: none may stay behind."""
        return self._broker.volatile.kept if what == "kept" else len(getattr(self._server, what))

    async def close_reads(self, topic: str) -> None:
        """Keep reads of this topic in flight until `open_reads`."""
        found = self._broker.topic(topic_name(topic))
        self._gate = asyncio.Event()
        gate = self._gate
        real = Topic.read

        async def held(ordinal: int, count_max: int, size_max: int) -> Any:
            entries = await real(found, ordinal, count_max, size_max)
            self._held += 1
            await gate.wait()
            self._held -= 1
            return entries

        found.read = held  # type: ignore[method-assign]

    async def held_reads(self) -> int:
        return self._held

    async def open_reads(self) -> None:
        assert self._gate is not None
        self._gate.set()

    async def fill_disk(self) -> None:
        """Leave room for nothing but acknowledgements."""

        def admit(size: int) -> None:
            raise NoSpace("the disk is full")

        self._broker.store.admit = admit  # type: ignore[method-assign]

    async def empty_disk(self) -> None:
        del self._broker.store.admit

    async def hold_disk(self) -> None:
        """Confirm nothing any more, as if the disk stood still."""
        self._broker.engine._settle = lambda: None  # type: ignore[method-assign]

    async def release_disk(self) -> None:
        del self._broker.engine._settle
        self._broker.engine._settle()

    async def under_way(self) -> int:
        """Return the bytes that were received and not confirmed."""
        return self._broker.engine._under_way

    async def slow_resets(self, seconds: float) -> None:
        """Make a reset take `seconds` longer, from its start to its event."""
        real, self._slowed = _CARRY_OUT, 0

        async def slow(resetting: Resetting, *arguments: Any) -> Any:
            await asyncio.sleep(seconds)
            self._slowed += 1
            return await real(resetting, *arguments)

        Resetting._carry_out = slow  # type: ignore[method-assign, assignment]

    async def slowed(self) -> int:
        """Return how many resets took longer since `slow_resets`."""
        return self._slowed

    async def wait_for_acks(self, seconds: float) -> None:
        """At damaged entries, close consumers that hold messages after this time."""
        sink.DAMAGE_S = seconds

    async def call(self, name: str, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        own = getattr(self, name, None)
        method = own or getattr(self._broker.admin, name)
        done = method(*arguments, **keywords)
        return await done if asyncio.iscoroutine(done) else done


def _nothing(*_: Any, **__: Any) -> None:
    pass


async def _yes(*_: Any) -> bool:
    return True


def _without_order(self: Consumers, id: int, answer: bytes) -> None:  # noqa: A002
    self._on.send(answer)


def _rewound_without_permits(self: WireConsumer, reset_number: int) -> None:
    if reset_number != self.reset_number:
        self.expel()
    else:
        self.dispatcher.grant(self.ticket, 0)


def _forgets_place(
    self: VolatileSubscriptions, topic: Topic, dispatcher: Any, keep_s: float | None = None
) -> None:
    _RELEASE(self, topic, dispatcher)


def _keeps_reading(self: Connection, why: str) -> None:
    self._pauses.add(why)


def _only_what_comes(self: Watching, notices: Sequence[Notice]) -> None:
    _SETTLED(self, [each for each in notices if not isinstance(each, TopicGone)])


def _one_of_each(self: TopicPattern, shown: Shown) -> list[str]:
    return [shown.topics[name][0] for name in self._pattern.select(shown.names)]


MUTANTS: dict[str, Callable[[], None]] = {
    "seek leaves the consumers": lambda: setattr(WireConsumer, "expel", _nothing),
    "answers overtake": lambda: setattr(Consumers, "answer", _without_order),
    "a rewind takes the permits": lambda: setattr(WireConsumer, "cleared", _rewound_without_permits),
    "a reset leaves the client's queue": lambda: setattr(WireConsumer, "cleared", _nothing),
    "a slow client is sent more": lambda: setattr(Consumers, "hold", _nothing),
    "a slow client is read": lambda: setattr(Connection, "pause", _keeps_reading),
    "a slow disk is given more": lambda: setattr(Server, "wait_for_room", _nothing),
    "everybody lives": lambda: setattr(Server, "all_live", _yes),
    "a reader's place is forgotten": lambda: setattr(VolatileSubscriptions, "release", _forgets_place),
    "the end is not told": lambda: setattr(WireConsumer, "look_for_end", _nothing),
    "nobody is pinged": lambda: setattr(Connection, "look", _nothing),
    "damage is only logged": lambda: setattr(WireConsumer, "failed", _nothing),
    "a watch hears only of what comes": lambda: setattr(Watching, "settled", _only_what_comes),
    "a watch is told nothing more": lambda: setattr(Watching, "_note", _nothing),
    "a partition is left out of a pattern": lambda: setattr(TopicPattern, "select_shown", _one_of_each),
    "all that is watched stays": lambda: setattr(Watches, "gone", _nothing),
}
"""Mutants by their effect."""


async def serve(directory: Path, broker_options: dict[str, Any], server_options: dict[str, Any]) -> None:
    parent = os.getppid()
    options = ServerOptions(**{"port": 0, **server_options})
    given = {"require_namespaces": True, **broker_options}
    async with Broker.open(directory / "data", **given) as broker, Server(broker, options) as server:
        door = Door(broker, server)

        async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            name, arguments, keywords = json.loads(await reader.readline())
            try:
                answer = [await door.call(name, arguments, keywords), None]
            except Exception as error:
                answer = [None, f"{type(error).__name__}: {error}"]
            writer.write(json.dumps(answer, default=_plain).encode() + b"\n")
            writer.close()

        (directory / "door").unlink(missing_ok=True)
        await asyncio.start_unix_server(visit, directory / "door")
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        print(server.url, flush=True)
        while not ended.is_set() and os.getppid() == parent:  # a test process that is killed runs no atexit
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), 1)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, MessageId) else str(value)


class Admin:
    """The door as tests use it: `admin.terminate(topic)`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **keywords: Any) -> Any:
            with socket.socket(socket.AF_UNIX) as door:
                door.settimeout(20)
                door.connect(self._path)
                door.sendall(json.dumps([name, arguments, keywords]).encode() + b"\n")
                with door.makefile() as answers:
                    result, error = json.loads(answers.readline())
            if error is not None:
                raise RuntimeError(error)
            return result

        return call


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])))
