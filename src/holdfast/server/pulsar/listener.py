"""Serve a broker on the network by Pulsar's binary protocol, with and without TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from holdfast.broker import (
    Broker,
    Dispatcher,
    Notice,
    PartitionsChanged,
    PermissionsChanged,
    PoliciesChanged,
    ProducerGone,
    Topic,
    TopicClosed,
    Unloaded,
)
from holdfast.errors import HoldfastError
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.budget import Budget
from holdfast.server.listening import Listening
from holdfast.server.logs import Log, Refusals
from holdfast.server.pulsar.commands import Refused
from holdfast.server.pulsar.connection import Connection
from holdfast.server.pulsar.delivery import WireConsumer
from holdfast.server.pulsar.extensions import HANDLERS
from holdfast.server.pulsar.listing import Listings
from holdfast.server.pulsar.non_persistent import NonPersistentTopics
from holdfast.server.pulsar.producers import WireProducer
from holdfast.server.pulsar.rechecking import recheck
from holdfast.server.pulsar.requests import Request
from holdfast.server.pulsar.setup import ServerOptions
from holdfast.server.pulsar.turns import Turns
from holdfast.server.pulsar.watching import Watching

LOG = Log("holdfast.wire")

READ_BYTES = 256 << 10
"""The most bytes read from a connection at once."""

UNROUTABLE_MAX = 1000
"""Producers that are remembered because their messages are refused."""

LOOK_S = 1.0
"""Interval of the checks for silent connections, and for those without CONNECT."""


class Server(Listening):
    """Serves a broker. Stop the server, then close the broker.

    `handlers` serve further commands, by their type.

    Example:
        >>> import asyncio, holdfast, tempfile
        >>> async def main(path: str) -> None:
        ...     async with holdfast.Broker.open(path) as broker:
        ...         async with Server(broker, ServerOptions(port=0)) as server:
        ...             print(server.url.rpartition(":")[0])
        >>> with tempfile.TemporaryDirectory() as path:
        ...     asyncio.run(main(path))
        pulsar://127.0.0.1
    """

    SCHEMES = ("pulsar", "pulsar+ssl")

    def __init__(
        self,
        broker: Broker,
        options: ServerOptions | None = None,
        handlers: Mapping[int, Request] | None = None,
    ) -> None:
        super().__init__()
        self.broker = broker
        self.options = options or ServerOptions()
        self.handlers = {**HANDLERS, **(handlers or {})}
        self.connections: set[Connection] = set()
        self.producers: dict[int, WireProducer] = {}
        """By session."""
        self.unroutable: dict[tuple[int | str, str], str] = {}
        """Why messages of a producer are refused, by topic (of a non-persistent one its name) and producer.

        Clients send refused messages again without end. Such a producer is fenced when it returns."""
        self.attached: dict[Dispatcher, dict[WireConsumer, None]] = {}
        """The consumers of each subscription, in the order of their joining."""
        self.listings = Listings(broker)
        """The topics of each namespace."""
        self.turns = Turns()
        """The order in which requests begin."""
        self.budget = self.options.budget or Budget()
        """The memory held for clients."""
        self.last_indexes: WeakKeyDictionary[Topic, tuple[int, int]] = WeakKeyDictionary()
        """The last entry of a topic that was asked for, and the index of its last message, or −1."""
        self.watching = Watching(self.budget, self.listings)
        """The topic lists that clients watch."""
        self.non_persistent = NonPersistentTopics(self)
        """The topics that keep no message."""
        self.refusals = Refusals(LOG)
        """Refusals, for the log."""
        self.refused_messages = Refusals(LOG)
        """Those of messages and acknowledgements."""
        self.buffer = memoryview(bytearray(READ_BYTES))
        """The bytes read last, of any connection."""
        self.port: int | None = None
        self.tls_port: int | None = None
        self.http_ports: tuple[int, int] | None = (0, 0)
        """Ports of HTTP and HTTPS for the same broker; 0: not open; None: not known yet."""
        self.unreplicated: Server | None = None
        """Of a member of a cluster: the server of its unreplicated topics."""
        self._room: asyncio.Task[None] | None = None

    # -- its life --------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the ports.

        Raises:
            OSError: an address or a port cannot be opened.
        """
        options = self.options
        ports = (options.port, options.tls_port)
        try:
            self.port, self.tls_port = await self._listen(lambda: Connection(self), options, ports)
        except BaseException:
            self._unlisten()
            raise
        self.listings.start()
        self.broker.watch(self._settled)
        self.broker.add_meter(self.non_persistent.samples)
        self._looking = asyncio.get_running_loop().create_task(self._look(), name="keep-alive")

    async def stop(self, grace_s: float = 10.0) -> None:
        """Stop reading, confirm accepted messages, notify the clients, and close the connections."""
        if self._looking is None:
            return
        self._unlisten()
        self._looking.cancel()
        self._looking = None
        deadline = asyncio.get_running_loop().time() + grace_s
        for connection in self.connections:
            connection.pause("stopping")
        with contextlib.suppress(TimeoutError, HoldfastError):
            async with asyncio.timeout_at(deadline):
                await self.broker.settle()
                while any(connection.producers.under_way for connection in self.connections):
                    await asyncio.sleep(0.001)
        reason = Refused(pb.ServiceNotReady, "the server is stopping; reconnect later")
        leaving = list(self.connections)
        if leaving:  # not gather, which waits for tasks that ignore their cancellation
            loop = asyncio.get_running_loop()
            shutting = [loop.create_task(connection.shut(reason)) for connection in leaving]
            await asyncio.wait(shutting, timeout=max(0.0, deadline - loop.time()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await asyncio.gather(*(connection.lost for connection in leaving))
        for connection in list(self.connections):
            connection.abort()
        if self._room is not None:
            self._room.cancel()
        self.watching.stop()
        self.broker.remove_meter(self.non_persistent.samples)
        self.broker.unwatch(self._settled)
        self.listings.stop()

    @property
    def url(self) -> str:
        """The address for clients on this machine."""
        return self._address(self.options.host, self.port, self.tls_port)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(LOOK_S, self.options.keepalive_s / 4))
            now = loop.time()
            for connection in list(self.connections):
                connection.look(now)
            self.non_persistent.tick(now)

    # -- for connections -------------------------------------------------------------------------------

    def give_up(self, topic: int | str, producer: str, reason: str) -> None:
        """Fence a producer when it returns: its client would repeat a refused message."""
        if len(self.unroutable) < UNROUTABLE_MAX:
            self.unroutable[topic, producer] = reason

    def wait_for_room(self) -> None:
        """Stop reading from producers until the disk has caught up."""
        for connection in self.connections:
            if len(connection.producers):
                connection.pause("disk")
        if self._room is None:
            self._room = asyncio.get_running_loop().create_task(self._wait_for_room(), name="room")

    async def _wait_for_room(self) -> None:
        with contextlib.suppress(HoldfastError):  # a broker that has failed refuses the next publish
            await self.broker.room()
        self._room = None
        for connection in list(self.connections):
            connection.go_on("disk")

    async def all_live(self, connections: Iterable[Connection]) -> bool:
        """Ping clients, and close those without an answer; return whether all answered."""
        return all(await asyncio.gather(*(connection.lives() for connection in connections)))

    def unload(self, topic: Topic) -> int:
        """Close all producers and consumers of a topic; returns their number."""
        sessions = self.producers
        producers = [sessions[session] for session in topic.producers if session in sessions]
        consumers = [each for dispatcher in topic.served for each in self.attached.get(dispatcher, ())]
        for producer in producers:
            producer.connection.producers.expel(producer, ended=False)
        for consumer in consumers:
            consumer.expel(keep=True)
        return len(producers) + len(consumers)

    # -- what the broker tells -------------------------------------------------------------------------

    def _settled(self, notices: Sequence[Notice]) -> None:
        self.watching.settled(notices)
        for notice in notices:
            if isinstance(notice, ProducerGone):
                producer = self.producers.get(notice.producer.session)
                if producer is not None:
                    producer.connection.producers.expel(producer)
            elif isinstance(notice, PartitionsChanged):
                self.non_persistent.partitions_changed(notice)
            elif isinstance(notice, PoliciesChanged):
                for topic in self.broker.limiting.topics_of(notice):
                    for session in topic.producers:
                        if (producer := self.producers.get(session)) is not None:
                            producer.connection.producers.limited(producer)
            elif isinstance(notice, PermissionsChanged):
                recheck(self, notice.namespace)
            elif isinstance(notice, Unloaded) and notice.topic.id in self.broker.topics:
                self.unload(self.broker.topics[notice.topic.id])
            elif isinstance(notice, TopicClosed) and notice.topic.id in self.broker.topics:
                for dispatcher in self.broker.topics[notice.topic.id].served:
                    for consumer in [*self.attached.get(dispatcher, ())]:
                        consumer.look_for_end()
