"""List, create, inspect and delete topics."""

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
from holdfast.server.http.pulsar_stats import Looks
from holdfast.server.http.routing import Call, Parameter, Routes

NAMESPACE = "/admin/v2/persistent/{tenant}/{namespace}"

of_namespace = Routes("topics", NAMESPACE, "namespace")
route = Routes("topics", NAMESPACE + "/{topic}", "topic")

FORCE = Parameter(
    "force", "boolean", "Even with messages, subscriptions and attached clients.", default=False
)


# -- which there are -----------------------------------------------------------------------------------


@of_namespace("GET", "", answer=list[str], refusals=(404,))
async def topics(call: Call) -> list[str]:
    """List the topics of a namespace."""
    return topics_of(call)


@of_namespace("GET", "/partitioned", answer=list[str], refusals=(404,))
async def partitioned(call: Call) -> list[str]:
    """List the partitioned topics of a namespace: none are supported yet."""
    topics_of(call)
    return []


def topics_of(call: Call) -> list[str]:
    """Return the topics of the path's namespace.

    Raises:
        NotFound: the namespace does not exist and has no topic.
    """
    found = list(call.server.listings.of(call.namespace).names)
    if not found and not call.broker.admin.has_namespace(call.namespace):
        raise NotFound(f"there is no namespace {call.namespace}; create it first")
    return found


# -- making and ending ---------------------------------------------------------------------------------


@route("PUT", "", body=dict[str, str], body_optional=True, refusals=(404, 409))
async def create(call: Call) -> None:
    """Create a topic. Properties are accepted, and not stored."""
    await call.broker.admin.create_topic(call.topic_name)


@route("DELETE", "", query=(FORCE,), refusals=(404,), statuses={Busy: 412})
async def delete(call: Call) -> None:
    """Delete a topic; without force only if it has no subscription, producer and reader (412)."""
    await call.broker.admin.delete_topic(call.topic_name, call.query("force"))


@route("POST", "/terminate", answer=Position, refusals=(404,))
async def terminate(call: Call) -> Position:
    """Refuse further messages of a topic; return the last message's position."""
    return Position.of(await call.broker.admin.terminate(call.topic_name))


@route("DELETE", "/truncate", refusals=(404,))
async def truncate(call: Call) -> None:
    """Delete all messages; every subscription is then at the end."""
    await call.broker.admin.truncate(call.topic_name)


@route("POST", "/trim", refusals=(404,))
async def trim(call: Call) -> None:
    """Delete messages that no subscription needs and retention does not keep."""
    await call.broker.admin.trim(call.topic_name)


@route("PUT", "/unload", refusals=(404,))
async def unload(call: Call) -> None:
    """Close the producers and consumers of a topic; their clients reconnect."""
    topic = call.topic
    if call.server.wire is not None:
        call.server.wire.unload(topic)


# -- looking -------------------------------------------------------------------------------------------

_STATS = (
    Parameter("getPreciseBacklog", "boolean", "Ignored: the backlog is always precise.", default=False),
    Parameter("subscriptionBacklogSize", "boolean", "Ignored: the size is always returned.", default=False),
    Parameter("getEarliestTimeInBacklog", "boolean", "Add the time of the oldest message.", default=False),
)


@route("GET", "/stats", query=_STATS, answer=TopicAnswer, refusals=(404,))
async def stats(call: Call) -> TopicAnswer:
    """Return rates, sizes, producers, subscriptions and their consumers."""
    return await Looks(call.server).topic(call.topic, call.query("getEarliestTimeInBacklog"))


@route("GET", "/internalStats", answer=InternalAnswer, refusals=(404,))
async def internal_stats(call: Call) -> InternalAnswer:
    """Return ledgers and cursors: positions, acknowledged ranges, resets in progress."""
    return await Looks(call.server).internal(call.topic)


@route("GET", "/internal-info", answer=InfoAnswer, refusals=(404,))
async def internal_info(call: Call) -> InfoAnswer:
    """Return the stored metadata: ledgers, and the acknowledged ranges of each cursor."""
    return await Looks(call.server).info(call.topic)


@route("GET", "/backlog", answer=BacklogAnswer, refusals=(404,))
async def backlog(call: Call) -> BacklogAnswer:
    """Return the stored entries, and the backlog of each subscription."""
    return await Looks(call.server).backlog(call.topic)


@route("GET", "/subscriptions", answer=list[str], refusals=(404,), action="consume")
async def subscriptions(call: Call) -> list[str]:
    """List the durable subscriptions of a topic."""
    return call.broker.admin.subscriptions(call.topic_name)


@route("GET", "/lastMessageId", answer=Position, refusals=(404,), action="consume")
async def last_message_id(call: Call) -> Position:
    """Return the position of the last message; −1:−1 for an empty topic."""
    return Position.of(call.topic.last_id())


@route("GET", "/messageid/{timestamp}", answer=Position, refusals=(404,), action="consume")
async def message_id_by_time(call: Call) -> Position:
    """Return the position of the first message at or after a time, or the last."""
    found = await call.broker.admin.time_of(call.topic_name, call["timestamp"] * 1_000_000)
    return Position.of(MessageId(found.ledger, found.entry))


_PARTITIONS = (
    Parameter("checkAllowAutoCreation", "boolean", "Check that the topic may be created.", default=False),
    Parameter("existing", "boolean", "404 unless the topic exists. (Ours.)", default=False),
)


@route("GET", "/partitions", query=_PARTITIONS, answer=Partitions, refusals=(404,), action="lookup")
async def partitions(call: Call) -> Partitions:
    """Return the number of partitions: 0, also of a topic that could be created."""
    known = call.broker.has_topic(call.topic_name)
    if not known:
        call.broker.require_namespace(call.topic_name)
        wanted = call.query("checkAllowAutoCreation") and not call.broker.options.create_topics
        if wanted or call.query("existing"):
            raise NotFound(f"there is no topic {call.topic_name}; create it first")
    return Partitions()
