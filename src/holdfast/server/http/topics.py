"""List, create, inspect and delete topics."""

from __future__ import annotations

from holdfast.broker import Topic
from holdfast.errors import Busy, NotFound
from holdfast.ids import MessageId
from holdfast.names import is_persistent, namespace_of
from holdfast.server.http.answers import (
    BacklogAnswer,
    CursorPosition,
    InfoAnswer,
    InternalAnswer,
    OffloadAnswer,
    Partitions,
    Position,
    TopicAnswer,
)
from holdfast.server.http.positions import place_of
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
    """List the partitioned topics of a namespace."""
    topics_of(call)
    known = call.broker.partitioned.counts()
    return [each for each in known if is_persistent(each) and namespace_of(each) == call.namespace]


def topics_of(call: Call) -> list[str]:
    """Return the topics of the path's namespace, without unreplicated ones of absent nodes.

    Raises:
        NotFound: the namespace does not exist and has no topic.
    """
    unreplicated = call.broker.unreplicated
    absent = unreplicated.places().keys() - unreplicated.served(call.namespace)
    found = [name for name in call.server.listings.of(call.namespace).names if name not in absent]
    return known_there(call, found)


def known_there(call: Call, found: list[str]) -> list[str]:
    """Return the topics that were found in the path's namespace.

    Raises:
        NotFound: there are none, and the namespace does not exist.
    """
    if not found and not call.broker.admin.has_namespace(call.namespace):
        raise NotFound(f"there is no namespace {call.namespace}; create it first")
    return found


# -- making and ending ---------------------------------------------------------------------------------


UNREPLICATED = Parameter(
    "unreplicated", "boolean", "This member of a cluster alone has it. (Ours.)", default=False
)


@route(
    "PUT",
    "",
    query=(UNREPLICATED,),
    body=dict[str, str],
    body_optional=True,
    refusals=(404, 409),
    anywhere=True,
    partitioned="whole",
)
async def create(call: Call) -> None:
    """Create a topic, with properties."""
    await call.broker.admin.create_topic(
        call.topic_name, unreplicated=call.query("unreplicated"), properties=call.body
    )


@route("DELETE", "", query=(FORCE,), refusals=(404,), statuses={Busy: 412})
async def delete(call: Call) -> None:
    """Delete a topic; without force only if it has no subscription, producer and reader (412)."""
    await call.broker.admin.delete_topic(call.topic_name, call.query("force"))


@route("POST", "/terminate", answer=Position, refusals=(404,))
async def terminate(call: Call) -> Position:
    """Refuse further messages of a topic; return the last message's position."""
    return Position.of(await call.broker.admin.terminate(call.topic_name))


@route("DELETE", "/truncate", refusals=(404,), partitioned="each")
async def truncate(call: Call) -> None:
    """Delete all messages; every subscription is then at the end."""
    await call.broker.admin.truncate(call.topic_name)


@route("POST", "/trim", refusals=(404,), partitioned="each")
async def trim(call: Call) -> None:
    """Delete messages that no subscription needs and retention does not keep."""
    await call.broker.admin.trim(call.topic_name)


@route("GET", "/offload", answer=OffloadAnswer, refusals=(404,))
async def offload(call: Call) -> OffloadAnswer:
    """Return that no offload has run: messages stay here."""
    _ = call.topic
    return OffloadAnswer()


@route("PUT", "/unload", refusals=(404,), partitioned="each")
async def unload(call: Call) -> None:
    """Close the producers and consumers of a topic; their clients reconnect."""
    await call.broker.admin.unload(call.topic_name)


@route("PUT", "/backlogSize", body=CursorPosition, answer=int, refusals=(404,), action="consume")
async def backlog_size(call: Call) -> int:
    """Return the bytes behind a position, estimated within its ledger.

    412 if the topic has no such position."""
    topic = call.topic
    place, _ = place_of(call.body)
    return topic.size_behind(await topic.place(place, exact=True, after=isinstance(place, MessageId)))


@route(
    "POST",
    "/all_subscription/expireMessages/{seconds}",
    refusals=(404, 409),
    action="consume",
    partitioned="each",
)
async def expire_all(call: Call) -> None:
    """Acknowledge messages that are older than an age, for all subscriptions of a topic."""
    await call.broker.admin.expire_all(call.topic_name, call["seconds"])


# -- looking -------------------------------------------------------------------------------------------

STATS = (
    Parameter("getPreciseBacklog", "boolean", "Ignored: the backlog is always precise.", default=False),
    Parameter("subscriptionBacklogSize", "boolean", "Ignored: the size is always returned.", default=False),
    Parameter("getEarliestTimeInBacklog", "boolean", "Add the time of the oldest message.", default=False),
    Parameter("excludePublishers", "boolean", "Without the list of producers.", default=False),
    Parameter("excludeConsumers", "boolean", "Without the lists of consumers.", default=False),
)


async def stats_of(call: Call, topic: Topic) -> TopicAnswer:
    """Return the stats of a topic as the query wants them."""
    found = await Looks(call.server).topic(topic, call.query("getEarliestTimeInBacklog"))
    if call.query("excludePublishers"):
        found.publishers = []
    if call.query("excludeConsumers"):
        for each in found.subscriptions.values():
            each.consumers = []
    return found


@route("GET", "/stats", query=STATS, answer=TopicAnswer, refusals=(404,))
async def stats(call: Call) -> TopicAnswer:
    """Return rates, sizes, producers, subscriptions and their consumers."""
    return await stats_of(call, call.topic)


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


@route("GET", "/subscriptions", answer=list[str], refusals=(404,), action="consume", partitioned="whole")
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
    Parameter("existing", "boolean", "404 if it is missing; by default not checkAllowAutoCreation. (Ours.)"),
)


@route(
    "GET",
    "/partitions",
    query=_PARTITIONS,
    answer=Partitions,
    refusals=(404,),
    action="lookup",
    anywhere=True,
    partitioned="whole",
)
async def partitions(call: Call) -> Partitions:
    """Return the number of partitions; 0: none. A missing topic: 404, as in Pulsar.

    With `checkAllowAutoCreation` 0, or the topic is created if it gets partitions."""
    full, own = call.topic_name, call.broker.partitioned
    if call.broker.has_topic(full) or own.count(full):
        return Partitions(partitions=own.count(full))
    call.broker.require_namespace(full)
    create, existing = call.query("checkAllowAutoCreation"), call.query("existing")
    if existing or (existing is None and not create):
        raise NotFound(f"there is no topic {full}; create it first")
    if create:
        return Partitions(partitions=await own.metadata(full, create=True))
    return Partitions()
