"""Create, reset and delete subscriptions."""

from __future__ import annotations

import asyncio

from holdfast.errors import Busy, HoldfastError, Misuse
from holdfast.server.http.answers import AnalysisAnswer, CursorPosition, Target
from holdfast.server.http.positions import place_of
from holdfast.server.http.routing import Call, Parameter, Routes
from holdfast.server.http.topics import FORCE, NAMESPACE

route = Routes("subscriptions", NAMESPACE + "/{topic}/subscription/{subscription}", "topic", action="consume")

ANALYSED_MAX = 10_000
"""Entries that an analysis reads at most."""
READ_BYTES = 4 << 20


@route(
    "PUT",
    "",
    query=(Parameter("replicated", "boolean", "Only false: replication is not supported.", default=False),),
    body=Target,
    body_optional=True,
    refusals=(404, 409),
    partitioned="whole",
)
async def create(call: Call) -> None:
    """Create a subscription at a position, or at the end.

    412 if the topic has no such position. The topic is created if that is allowed. Of a partitioned topic,
    it is created on all partitions: at their end or at their first message. If its properties are refused,
    it is deleted again."""
    if call.query("replicated"):
        raise Misuse("replicated subscriptions are not supported: a server belongs to one cluster")
    admin, of = call.broker.admin, (call.topic_name, call["subscription"])
    start, after = place_of(call.body)
    await admin.create_subscription(*of, start, after=after)
    properties = call.body.properties if isinstance(call.body, CursorPosition) else None
    try:
        if properties:
            await admin.set_subscription_properties(*of, properties)
    except HoldfastError:
        await admin.delete_subscription(*of, force=True)
        raise


@route("DELETE", "", query=(FORCE,), refusals=(404,), statuses={Busy: 412}, partitioned="whole")
async def delete(call: Call) -> None:
    """Delete a subscription; without force only if it has no consumer (412)."""
    await call.broker.admin.delete_subscription(call.topic_name, call["subscription"], call.query("force"))


@route("POST", "/resetcursor", body=CursorPosition, refusals=(404, 409))
async def reset_to_position(call: Call) -> None:
    """Reset a subscription to a position; 412 if the topic has no such position.

    When it is answered it is durable. Messages read before are not delivered any more, and acknowledgements
    from before have no effect. Consumers reconnect."""
    to, after = place_of(call.body)
    await call.broker.admin.reset(call.topic_name, call["subscription"], to, after=after)


@route("POST", "/resetcursor/{timestamp}", refusals=(404, 409), partitioned="each")
async def reset_to_time(call: Call) -> None:
    """Reset a subscription to the first message at or after a time, or the end."""
    to = call["timestamp"] * 1_000_000
    await call.broker.admin.reset(call.topic_name, call["subscription"], to)


@route("POST", "/skip/{count}", refusals=(404, 409))
async def skip(call: Call) -> None:
    """Acknowledge the next entries of the backlog."""
    await call.broker.admin.skip(call.topic_name, call["subscription"], call["count"])


@route("POST", "/skip_all", refusals=(404, 409), partitioned="each")
async def skip_all(call: Call) -> None:
    """Acknowledge the whole backlog."""
    await call.broker.admin.clear(call.topic_name, call["subscription"])


@route("POST", "/expireMessages/{seconds}", refusals=(404, 409), partitioned="each")
async def expire_by_age(call: Call) -> None:
    """Acknowledge messages that are older than an age."""
    await call.broker.admin.expire(call.topic_name, call["subscription"], call["seconds"])


@route("POST", "/expireMessages", body=CursorPosition, refusals=(404, 409))
async def expire_to_position(call: Call) -> None:
    """Acknowledge everything up to a position, and the position unless it is excluded.

    412 if the topic has no such position."""
    topic, subscription = call.topic, call.subscription
    place, excluded = place_of(call.body)
    to = await topic.place(place, exact=True, after=not excluded)
    if to > subscription.acks.acked_to:
        await call.broker.dispatcher(topic, subscription).advance(to=to)


@route("POST", "/analyzeBacklog", body=Target, body_optional=True, answer=AnalysisAnswer, refusals=(404,))
async def analyze_backlog(call: Call) -> AnalysisAnswer:
    """Count entries and messages of the backlog, from its start or a position.

    At most 10,000 entries are read."""
    topic, acks = call.topic, call.subscription.acks
    at = acks.acked_to
    if call.body is not None:
        start, after = place_of(call.body)
        at = await topic.place(start, exact=True, after=after)
    entries = messages = read = 0
    while (at := acks.next_unacked(max(at, topic.first))) < topic.visible and read < ANALYSED_MAX:
        run = await topic.read_on(at, min(1000, ANALYSED_MAX - read), READ_BYTES)
        if run is None:
            break
        at = run.first_ordinal
        open_ = [number for number in range(len(run)) if not acks.is_acked(at + number)]
        entries += len(open_)
        messages += sum(run.messages(number) for number in open_)
        read += len(run)
        at += len(run)
        await asyncio.sleep(0)
    return AnalysisAnswer(
        entries=entries,
        messages=messages,
        filter_accepted_entries=entries,
        filter_accepted_messages=messages,
        aborted=at < topic.visible,
    )
