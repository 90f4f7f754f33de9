"""Administer partitioned topics; do requests for each partition."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from holdfast.errors import Busy, Misuse, NotFound
from holdfast.formatting import plural
from holdfast.ids import MessageId
from holdfast.names import partition_name
from holdfast.server.http.answers import (
    InternalAnswer,
    Partitions,
    PartitionsBody,
    PartitionsInternalAnswer,
    PartitionsStatsAnswer,
    Position,
    TopicAnswer,
)
from holdfast.server.http.partition_stats import summed
from holdfast.server.http.pulsar_stats import Looks
from holdfast.server.http.refusals import Refusal
from holdfast.server.http.routing import Call, Parameter, Route, Routes
from holdfast.server.http.topics import FORCE, NAMESPACE, STATS, stats_of

route = Routes("partitions", NAMESPACE + "/{topic}", "topic", partitioned="whole")

AT_ONCE = 64
"""Partitions that are changed at the same time."""

OF_THE_WHOLE = {
    ("DELETE", ""): "DELETE partitions",
    ("GET", "/stats"): "GET partitioned-stats",
    ("GET", "/internalStats"): "GET partitioned-internalStats",
    ("POST", "/terminate"): "POST terminate/partitions",
}
"""Requests for all partitions, by method and path below the topic of those for a single one."""


async def handled(of: Route, call: Call) -> Any:
    """Handle a request; of a partitioned topic, as its route says.

    Raises:
        Refusal: the request needs a single topic.
    """
    own, full = call.broker.partitioned, call.topic_name
    if of.partitioned == "whole" or not (count := own.count(full)):
        return await of.handle(call)
    if of.partitioned == "first":
        return await of.handle(call.of(partition_name(full, 0)))
    if of.partitioned == "refuse":
        words = f"{full} has {plural(count, 'partition')}, and this needs a single topic"
        one = f"name a partition, such as {partition_name(full, 0)}"
        whole = OF_THE_WHOLE.get((of.method, of.path.rpartition("{topic}")[2]), "")
        if of.method == "DELETE" and whole:  # a partition is not deleted alone
            raise Refusal(405, f"{words}; of all partitions: {whole}")
        raise Refusal(405, f"{words}; {one}" + (f"; of all partitions: {whole}" if whole else ""))
    done, missing = 0, list[NotFound]()
    while done < own.count(full):  # again if partitions were added meanwhile
        names = own.names(full)[done : done + AT_ONCE]
        for outcome in await asyncio.gather(
            *(of.handle(call.of(each)) for each in names), return_exceptions=True
        ):
            if isinstance(outcome, NotFound):
                missing.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        done += len(names)
    if missing and len(missing) == done:  # a subscription that one partition has is enough
        raise missing[0]
    return None


_LOCAL = Parameter("createLocalTopicOnly", "boolean", "Ignored: there is one cluster.", default=False)
_UPDATE = (
    Parameter("updateLocalTopicOnly", "boolean", "Ignored: there is one cluster.", default=False),
    Parameter("force", "boolean", "Ignored: nothing has to be forced.", default=False),
)


@route("PUT", "/partitions", query=(_LOCAL,), body=int | PartitionsBody, refusals=(404, 409))
async def create(call: Call) -> None:
    """Create a partitioned topic with all its partitions."""
    body = PartitionsBody(partitions=call.body) if isinstance(call.body, int) else call.body
    await call.broker.partitioned.create(call.topic_name, body.partitions, properties=body.properties)


@route("POST", "/partitions", query=_UPDATE, body=int, refusals=(404, 409, 422), statuses={Misuse: 422})
async def grow(call: Call) -> None:
    """Add partitions, so that the topic has this number; fewer are refused (422).

    New partitions have the subscriptions of partition 0, from their first message on."""
    await call.broker.partitioned.grow(call.topic_name, call.body)


@route("DELETE", "/partitions", query=(FORCE,), refusals=(404,), statuses={Busy: 412})
async def delete(call: Call) -> None:
    """Delete a topic with all partitions; without force only if nothing uses them (412)."""
    await call.broker.partitioned.delete(call.topic_name, call.query("force"))


@route("POST", "/createMissedPartitions", refusals=(404,))
async def create_missed(call: Call) -> None:
    """Do nothing: a partitioned topic has all its partitions."""
    partitions_of(call)


@route("POST", "/terminate/partitions", answer=dict[str, Position], refusals=(404,))
async def terminate(call: Call) -> dict[str, Position]:
    """Refuse further messages of all partitions; return the last position of each."""
    ends = list[MessageId]()
    while len(ends) < len(names := partitions_of(call)):  # none is added after the first one is terminated
        some = names[len(ends) : len(ends) + AT_ONCE] if ends else names[:1]
        ends += await asyncio.gather(*(call.broker.admin.terminate(each) for each in some))
    return {
        str(index): msgspec.structs.replace(Position.of(end), partition_index=index)
        for index, end in enumerate(ends)
    }


_PER = Parameter("perPartition", "boolean", "With the stats of each partition.", default=True)


@route("GET", "/partitioned-stats", query=(_PER, *STATS), answer=PartitionsStatsAnswer, refusals=(404,))
async def stats(call: Call) -> PartitionsStatsAnswer:
    """Return the stats of all partitions, and their sums."""
    names, found = partitions_of(call), dict[str, TopicAnswer]()
    for at, name in enumerate(names):
        if at % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)  # of 10,000 partitions the stats take most of a second
        found[name] = await stats_of(call, call.broker.topic(name))
    answer = summed(found.values())
    answer.metadata = Partitions(partitions=len(names))
    answer.partitions = found if call.query("perPartition") else {}
    return answer


@route("GET", "/partitioned-internalStats", answer=PartitionsInternalAnswer, refusals=(404,))
async def internal_stats(call: Call) -> PartitionsInternalAnswer:
    """Return the ledgers and cursors of all partitions."""
    names, found = partitions_of(call), dict[str, InternalAnswer]()
    for at, name in enumerate(names):
        if at % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)  # of 10,000 partitions the stats take most of a second
        found[name] = await Looks(call.server).internal(call.broker.topic(name))
    return PartitionsInternalAnswer(metadata=Partitions(partitions=len(names)), partitions=found)


def partitions_of(call: Call) -> list[str]:
    """Return the names of the partitions.

    Raises:
        NotFound: the topic is not partitioned.
    """
    names = call.broker.partitioned.names(call.topic_name)
    if not names:
        raise NotFound(f"there is no partitioned topic {call.topic_name}; check its name, or create it")
    return names
