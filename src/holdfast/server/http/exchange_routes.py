"""Administer exchanges, bindings and alternates; purge, move, take and reject messages.

These paths are ours: Pulsar has no exchanges.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from aiohttp import web

from holdfast._core import TopicMessage
from holdfast.broker import ExchangeStats
from holdfast.errors import Busy, NotFound
from holdfast.ids import MessageId
from holdfast.names import topic_name
from holdfast.server.http.messages import headers_of
from holdfast.server.http.routing import BYTES, Call, Parameter, Routes
from holdfast.server.http.topics import FORCE, NAMESPACE

of_namespace = Routes("exchanges", "/admin/v2/exchanges/{tenant}/{namespace}", "namespace")
route = Routes("exchanges", "/admin/v2/exchanges/{tenant}/{namespace}/{exchange}", "topic")
of_topic = Routes("exchanges", NAMESPACE + "/{topic}", "topic")
of_subscription = Routes(
    "exchanges", NAMESPACE + "/{topic}/subscription/{subscription}", "topic", action="consume"
)


class ExchangeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A new exchange."""

    kind: Literal["direct", "fanout", "topic"] = "direct"
    alternate: str | None = None
    """The exchange that takes what no binding matches."""
    unreplicated: bool = False
    """The member of a cluster that is asked alone has it."""
    deduplication: bool | None = None


class Binding(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A topic, and the key or pattern of its messages."""

    topic: str
    key: str = ""


class ExchangeAnswer(msgspec.Struct, kw_only=True):
    """An exchange, with its counts since its creation."""

    name: str
    kind: str
    alternate: str | None
    unreplicated: bool
    producers: list[str]
    bindings: list[Binding]
    published: int
    routed: int
    to_alternate: int
    dropped: int
    appended: int

    @classmethod
    def of(cls, found: ExchangeStats) -> ExchangeAnswer:
        bindings = [Binding(topic=topic, key=key) for topic, key in found.bindings]
        return cls(**{**vars(found), "bindings": bindings})


async def also(call: Call, name: str) -> str:
    """Return the full name of a request's second object.

    The role needs a grant on it, too.
    """
    full = topic_name(name)
    await call.server.options.authorize(call.request, "admin", full)
    return full


# -- exchanges -----------------------------------------------------------------------------------------


@of_namespace("GET", "", answer=list[str])
async def exchanges(call: Call) -> list[str]:
    """List the exchanges of a namespace."""
    prefix = f"persistent://{call.namespace}/"
    found = [name for name in call.broker.admin.exchanges() if name.startswith(prefix)]
    return sorted([*found, *call.broker.unreplicated.served(call.namespace, exchanges=True)])


@route("PUT", "", body=ExchangeBody, body_optional=True, refusals=(404, 409), anywhere=True)
async def create(call: Call) -> None:
    """Create an exchange: direct, fanout or topic. The alternate must exist."""
    body: ExchangeBody = call.body or ExchangeBody()
    alternate = None if body.alternate is None else await also(call, body.alternate)
    await call.broker.admin.create_exchange(
        call.topic_name,
        body.kind,
        alternate=alternate,
        unreplicated=body.unreplicated,
        deduplication=body.deduplication,
    )


@route("GET", "", answer=ExchangeAnswer, refusals=(404,))
async def info(call: Call) -> ExchangeAnswer:
    """Return kind, bindings and counts of an exchange."""
    return ExchangeAnswer.of(call.broker.admin.exchange_stats(call.topic_name))


@route("DELETE", "", query=(FORCE,), refusals=(404,), statuses={Busy: 412})
async def delete(call: Call) -> None:
    """Delete an exchange with its bindings; without force only if nothing uses it (412)."""
    await call.broker.admin.delete_exchange(call.topic_name, call.query("force"))


@route("POST", "/bindings", body=Binding, refusals=(404,))
async def bind(call: Call) -> None:
    """Bind a topic to an exchange. The role needs a grant on both."""
    topic = await also(call, call.body.topic)
    await call.broker.admin.bind(call.topic_name, topic, call.body.key)


_BOUND = (
    Parameter("topic", "string", "The topic, in full or short."),
    Parameter("key", "string", "Key or pattern; without it all bindings of the topic."),
)


@route("DELETE", "/bindings", query=_BOUND, refusals=(404,))
async def unbind(call: Call) -> None:
    """Remove a binding, or all bindings of a topic."""
    if call.query("topic") is None:
        raise NotFound("the request names no topic; add ?topic=NAME")
    await call.broker.admin.unbind(call.topic_name, call.query("topic"), call.query("key"))


# -- alternates ----------------------------------------------------------------------------------------


@route("POST", "/alternate", body=str, refusals=(404,))
async def set_exchange_alternate(call: Call) -> None:
    """Set the alternate of an exchange. The role needs a grant on both."""
    await call.broker.admin.set_alternate(call.topic_name, await also(call, call.body))


@route("DELETE", "/alternate", refusals=(404,))
async def drop_exchange_alternate(call: Call) -> None:
    """Remove the alternate of an exchange."""
    await call.broker.admin.set_alternate(call.topic_name, None)


@of_topic("POST", "/alternate", body=str, refusals=(404,), partitioned="each")
async def set_alternate(call: Call) -> None:
    """Set the alternate exchange of a topic. The role needs a grant on both."""
    await call.broker.admin.set_alternate(call.topic_name, await also(call, call.body))


@of_topic("DELETE", "/alternate", refusals=(404,), partitioned="each")
async def drop_alternate(call: Call) -> None:
    """Remove the alternate exchange of a topic."""
    await call.broker.admin.set_alternate(call.topic_name, None)


@of_topic("GET", "/alternate", answer=str | None, refusals=(404,), partitioned="each")
async def alternate(call: Call) -> str | None:
    """Return the alternate exchange of a topic; null: none."""
    return call.broker.admin.alternate(call.topic_name)


@of_subscription("GET", "/alternate", answer=str | None, refusals=(404,), partitioned="each")
async def subscription_alternate(call: Call) -> str | None:
    """Return the alternate exchange of a subscription; null: that of its topic applies."""
    return call.broker.admin.alternate(call.topic_name, call["subscription"])


@of_subscription("POST", "/alternate", body=str, refusals=(404,), partitioned="each")
async def set_subscription_alternate(call: Call) -> None:
    """Set the alternate exchange of a subscription; a grant on both is needed."""
    to = await also(call, call.body)
    await call.broker.admin.set_alternate(call.topic_name, to, call["subscription"])


@of_subscription("DELETE", "/alternate", refusals=(404,), partitioned="each")
async def drop_subscription_alternate(call: Call) -> None:
    """Remove the alternate exchange of a subscription: that of its topic applies."""
    await call.broker.admin.set_alternate(call.topic_name, None, call["subscription"])


# -- messages ------------------------------------------------------------------------------------------


@of_topic("POST", "/purge", answer=int, refusals=(404,))
async def purge(call: Call) -> int:
    """Drop all messages of a topic for all subscriptions; return the number of entries."""
    return await call.broker.admin.purge(call.topic_name)


@of_topic("POST", "/drain", answer=int, refusals=(404,), statuses={Busy: 412})
async def drain(call: Call) -> int:
    """Move the backlog of a topic to its alternate exchange, and delete the topic.

    Returns the number of entries that were moved."""
    return await call.broker.admin.drain_topic(call.topic_name)


_MOVE = (
    Parameter("to", "string", "A topic or an exchange."),
    Parameter("count", "integer", "Entries at most; without it all.", minimum=1),
)


@of_subscription("POST", "/move", query=_MOVE, answer=int, refusals=(404,))
async def move(call: Call) -> int:
    """Move entries of a backlog to a topic or an exchange; return how many.

    The role needs a grant on the destination, too. Entries that consumers hold stay."""
    if call.query("to") is None:
        raise NotFound("the request names no destination; add ?to=NAME")
    to = await also(call, call.query("to"))
    return await call.broker.admin.move(call.topic_name, call["subscription"], to, call.query("count"))


@of_subscription("POST", "/take", answer=bytes, media=BYTES, refusals=(404,))
async def take(call: Call) -> web.Response:
    """Acknowledge and return the next message that no consumer holds; else 404."""
    found = await call.broker.admin.take(call.topic_name, call["subscription"])
    if found is None:
        raise NotFound(f"{call.topic_name} has no message for {call['subscription']!r} that can be taken")
    return web.Response(body=found.data, content_type=BYTES, headers=_headers(found))


_BATCH = (Parameter("batch", "integer", "Index in its batch; −1: the entry.", default=-1, minimum=-1),)


@of_subscription("POST", "/reject/{ledger}/{entry}", query=_BATCH, answer=bool, refusals=(404,))
async def reject(call: Call) -> bool:
    """Move a message to the alternate exchange, exactly once; false if it was acknowledged."""
    at = MessageId(call["ledger"], call["entry"], call.query("batch"))
    return await call.broker.admin.reject(call.topic_name, call["subscription"], at)


@of_subscription("POST", "/drain", answer=int, refusals=(404,), statuses={Busy: 412})
async def drain_subscription(call: Call) -> int:
    """Move a backlog to the alternate exchange, and delete the subscription.

    Returns the number of entries that were moved."""
    return await call.broker.admin.drain_subscription(call.topic_name, call["subscription"])


def _headers(message: TopicMessage) -> dict[str, str]:
    return {"X-Pulsar-Message-ID": str(message.id)} | headers_of(message)
