"""Topics: which there are, what is in them, making and ending them."""

from __future__ import annotations

from holdfast.errors import Busy, NotFound
from holdfast.ids import MessageId
from holdfast.server.http.answers import (
    BacklogAnswer,
    InfoAnswer,
    InternalAnswer,
    Partitions,
    Position,
    TopicAnswer,
)
from holdfast.server.http.routing import Call, Parameter, Routes
from holdfast.server.http.stats import Looks

NAMESPACE = "/admin/v2/persistent/{tenant}/{namespace}"

of_namespace = Routes("topics", NAMESPACE, "namespace")
route = Routes("topics", NAMESPACE + "/{topic}", "topic")

FORCE = Parameter(
    "force", "boolean", "Even with messages, subscriptions and attached clients.", default=False
)


# -- which there are -----------------------------------------------------------------------------------


@of_namespace("GET", "", answer=list[str], refusals=(404,))
async def topics(call: Call) -> list[str]:
    """The topics of a namespace."""
    return topics_of(call)


@of_namespace("GET", "/partitioned", answer=list[str], refusals=(404,))
async def partitioned(call: Call) -> list[str]:
    """The partitioned topics of a namespace: there are none yet."""
    topics_of(call)
    return []


def topics_of(call: Call) -> list[str]:
    """Those of the namespace that the path names.

    Raises:
        NotFound: there is no such namespace, nor a topic in it.
    """
    found = list(call.server.listings.of(call.namespace).names)
    if not found and not call.broker.admin.has_namespace(call.namespace):
        raise NotFound(f"there is no namespace {call.namespace}; create it first")
    return found


# -- making and ending ---------------------------------------------------------------------------------


@route("PUT", "", body=dict[str, str], body_optional=True, refusals=(404, 409))
async def create(call: Call) -> None:
    """Make a topic. Properties are taken, and not kept."""
    await call.broker.admin.create_topic(call.topic_name)


@route("DELETE", "", query=(FORCE,), refusals=(404,), statuses={Busy: 412})
async def delete(call: Call) -> None:
    """Delete a topic. Without force only if it has no subscription and no producer (412)."""
    await call.broker.admin.delete_topic(call.topic_name, call.query("force"))


@route("POST", "/terminate", answer=Position, refusals=(404,))
async def terminate(call: Call) -> Position:
    """Nothing more can be published. Answers the last message's position."""
    return Position.of(await call.broker.admin.terminate(call.topic_name))


@route("DELETE", "/truncate", refusals=(404,))
async def truncate(call: Call) -> None:
    """Drop all messages; every subscription stands at the end."""
    await call.broker.admin.truncate(call.topic_name)


@route("POST", "/trim", refusals=(404,))
async def trim(call: Call) -> None:
    """Drop what nobody needs and retention does not keep."""
    await call.broker.admin.trim(call.topic_name)


@route("PUT", "/unload", refusals=(404,))
async def unload(call: Call) -> None:
    """Close the producers and consumers of a topic: their clients connect again."""
    topic = call.topic
    if call.server.wire is not None:
        call.server.wire.unload(topic)


# -- looking -------------------------------------------------------------------------------------------

_STATS = (
    Parameter("getPreciseBacklog", "boolean", "It is always precise.", default=False),
    Parameter("subscriptionBacklogSize", "boolean", "It is always told.", default=False),
    Parameter("getEarliestTimeInBacklog", "boolean", "Look up when it was published.", default=False),
)


@route("GET", "/stats", query=_STATS, answer=TopicAnswer, refusals=(404,))
async def stats(call: Call) -> TopicAnswer:
    """Rates, sizes, producers, subscriptions and their consumers."""
    return await Looks(call.server).topic(call.topic, call.query("getEarliestTimeInBacklog"))


@route("GET", "/internalStats", answer=InternalAnswer, refusals=(404,))
async def internal_stats(call: Call) -> InternalAnswer:
    """Ledgers, and each cursor: its positions, what is acknowledged apart, whether a reset is under way."""
    return await Looks(call.server).internal(call.topic)


@route("GET", "/internal-info", answer=InfoAnswer, refusals=(404,))
async def internal_info(call: Call) -> InfoAnswer:
    """What is kept: ledgers, and of each cursor what is acknowledged."""
    return await Looks(call.server).info(call.topic)


@route("GET", "/backlog", answer=BacklogAnswer, refusals=(404,))
async def backlog(call: Call) -> BacklogAnswer:
    """What is stored, and how much each subscription has yet to acknowledge."""
    return await Looks(call.server).backlog(call.topic)


@route("GET", "/subscriptions", answer=list[str], refusals=(404,), action="consume")
async def subscriptions(call: Call) -> list[str]:
    """The durable subscriptions of a topic."""
    return call.broker.admin.subscriptions(call.topic_name)


@route("GET", "/lastMessageId", answer=Position, refusals=(404,), action="consume")
async def last_message_id(call: Call) -> Position:
    """The position of the last message; −1:−1 where there is none."""
    return Position.of(call.topic.last_id())


@route("GET", "/messageid/{timestamp}", answer=Position, refusals=(404,), action="consume")
async def message_id_by_time(call: Call) -> Position:
    """The position of the first message from that time on; of the last one, if there is none."""
    found = await call.broker.admin.time_of(call.topic_name, call["timestamp"] * 1_000_000)
    return Position.of(MessageId(found.ledger, found.entry))


_PARTITIONS = (
    Parameter("checkAllowAutoCreation", "boolean", "As a client that would make the topic.", default=False),
)


@route("GET", "/partitions", query=_PARTITIONS, answer=Partitions, refusals=(404,), action="lookup")
async def partitions(call: Call) -> Partitions:
    """How many partitions a topic has: none. Of a topic that could be made that is known, too."""
    known = call.broker.has_topic(call.topic_name)
    if not known:
        call.broker.require_namespace(call.topic_name)
        if call.query("checkAllowAutoCreation") and not call.broker.options.create_topics:
            raise NotFound(f"there is no topic {call.topic_name}; create it first")
    return Partitions()
