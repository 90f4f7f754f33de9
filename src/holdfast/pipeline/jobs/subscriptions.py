"""Create and advance subscriptions for a job, through a server or in the data directory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, Protocol

from holdfast.client import Progress
from holdfast.columns import Address
from holdfast.errors import Locked, Misuse, NotFound
from holdfast.names import topic_name

if TYPE_CHECKING:
    from holdfast.broker import Broker, SubscriptionState, Topic


TIMEOUT_S = 60.0
"""How long an unreachable broker is retried."""


class Subscriptions(Protocol):
    """The methods of `holdfast.client.Client` that a job needs."""

    def progress(
        self,
        topic: str,
        subscription: str,
        *,
        create: bool = False,
        start: Literal["earliest", "latest"] = "latest",
        incarnation: bytes = b"",
    ) -> Progress: ...

    def advance(
        self, topic: str, subscription: str, to: int, reset_number: int, incarnation: bytes = b""
    ) -> Progress: ...


def subscriptions(
    path: str | None, broker: str | None, options: Mapping[str, Any] | None = None
) -> Subscriptions:
    """Return the subscriptions of the server at `broker`, or those of the data directory.

    `broker` is a binary or an HTTP address; `options` has the token and the certificates. Without `broker`,
    no server may have the directory open.
    """
    if broker is not None:
        told = {**(options or {}), "service.url": broker}
        return Address.beside(told, "a subscription").client(TIMEOUT_S)
    if path is None:
        raise Misuse("a subscription needs a broker; give broker, such as holdfast://localhost:6650")
    return DirectorySubscriptions(path)


class DirectorySubscriptions:
    """The subscriptions of a data directory, whose broker is opened for each call."""

    def __init__(self, path: str) -> None:
        self._path = path

    def progress(
        self,
        topic: str,
        subscription: str,
        *,
        create: bool = False,
        start: Literal["earliest", "latest"] = "latest",
        incarnation: bytes = b"",
    ) -> Progress:
        async def ask(broker: Broker) -> None:
            if create and subscription not in broker.admin.subscriptions(topic):
                await broker.admin.create_subscription(topic, subscription, start)

        return self._with_broker(topic, subscription, incarnation, ask)

    def advance(
        self, topic: str, subscription: str, to: int, reset_number: int, incarnation: bytes = b""
    ) -> Progress:
        async def move(broker: Broker) -> None:
            await broker.advance(_found(broker, topic, subscription)[1], reset_number, to)

        return self._with_broker(topic, subscription, incarnation, move)

    def _with_broker(
        self, topic: str, subscription: str, incarnation: bytes, work: Callable[[Broker], Awaitable[None]]
    ) -> Progress:
        """Open the broker, do the work, and return the progress of the subscription."""

        async def opened() -> Progress:
            from holdfast.broker import VISITING, Broker

            try:
                # Trimming is left to the server that will open it.
                async with Broker.open(self._path, **VISITING) as broker:
                    if incarnation and broker.topic(topic_name(topic)).incarnation != incarnation:
                        raise NotFound(f"{topic} was deleted and created again; read its progress again")
                    await work(broker)
                    return _progress(broker, topic, subscription)
            except Locked as error:
                raise Locked(
                    f"{error}; a server has {self._path} open: give broker, its address, such as "
                    "holdfast://localhost:6650 (--broker on the command line)"
                ) from None

        with ThreadPoolExecutor(1) as thread:  # the caller, such as a notebook, may have an event loop
            return thread.submit(asyncio.run, opened()).result()


def _progress(broker: Broker, topic: str, subscription: str) -> Progress:
    where, found = _found(broker, topic, subscription)
    return Progress(
        where.incarnation,
        found.reset_number,
        found.acks.acked_to,
        where.first,
        where.visible,
        broker.log_time_now(),
    )


def _found(broker: Broker, topic: str, name: str) -> tuple[Topic, SubscriptionState]:
    where = broker.topic(topic_name(topic))
    return where, where.subscription(name)
