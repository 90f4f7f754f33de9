"""Administer non-persistent topics: list, create, partition, inspect, unload and delete.

In a cluster the owner of a topic alone serves it: another member refers to it.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import Busy, Exists, Misuse, NotFound
from holdfast.formatting import plural
from holdfast.names import is_persistent, namespace_of
from holdfast.server.http.answers import (
    ConsumerAnswer,
    Partitions,
    PartitionsBody,
    PassingPartitionsAnswer,
    PassingPublisherAnswer,
    PassingSubscriptionAnswer,
    PassingTopicAnswer,
)
from holdfast.server.http.partition_routes import partitions_of
from holdfast.server.http.partition_stats import summed_into
from holdfast.server.http.pulsar_stats import moment
from holdfast.server.http.refusals import Refusal
from holdfast.server.http.routing import Call, Parameter, Routes
from holdfast.server.http.topics import FORCE, known_there
from holdfast.server.pulsar.non_persistent import Meter, NonPersistentTopic, NonPersistentTopics

NAMESPACE = "/admin/v2/non-persistent/{tenant}/{namespace}"

of_namespace = Routes("non-persistent topics", NAMESPACE, "namespace", partitioned="whole")
route = Routes("non-persistent topics", NAMESPACE + "/{topic}", "topic", partitioned="whole")


def served(call: Call) -> NonPersistentTopics:
    """Return the non-persistent topics of this server.

    Raises:
        NotFound: the server has no binary port.
        Refusal: another member owns the topic.
    """
    wire = call.server.wire
    if wire is None:
        raise NotFound("the server has no binary port, so it has no non-persistent topics; set listen.port")
    membership = call.broker.membership
    if call.topic_name and not membership.serves(call.topic_name):
        owner = membership.elsewhere(call.topic_name)
        there = "" if owner is None else owner.https_url if call.request.secure else owner.http_url
        reason = f"{membership.owner_words(call.topic_name)} alone serves {call.topic_name}"
        if not there:
            raise Refusal(503, f"{reason}; its address is not known; ask that node", {"Retry-After": "1"})
        location = there + call.request.raw_path
        raise Refusal(307, f"{reason}; ask {there}", {"Location": location})
    return wire.non_persistent


# -- lists ---------------------------------------------------------------------------------------------


@of_namespace("GET", "", answer=list[str], refusals=(404,))
async def topics(call: Call) -> list[str]:
    """List the non-persistent topics of a namespace that have clients here, and all partitions."""
    return known_there(call, [*served(call).listing(call.namespace).names])


@of_namespace("GET", "/partitioned", answer=list[str], refusals=(404,))
async def partitioned(call: Call) -> list[str]:
    """List the partitioned non-persistent topics of a namespace."""
    known = call.broker.partitioned.counts()
    found = [each for each in known if not is_persistent(each) and namespace_of(each) == call.namespace]
    return known_there(call, found)


# -- one topic -----------------------------------------------------------------------------------------


@route("PUT", "", body=dict[str, str], body_optional=True, refusals=(404, 409))
async def create(call: Call) -> None:
    """Create a topic, which stays until it is deleted or the server restarts."""
    _require_no_properties(call.body)
    own, full = served(call), call.topic_name
    call.broker.require_namespace(full)
    if full in own.topics or call.broker.partitioned.count(full):
        raise Exists(f"the topic {full} exists already")
    own.ensure(full, call.server.now()).created_by_admin = True


def _require_no_properties(properties: dict[str, str] | None) -> None:
    if properties:
        raise Misuse("a non-persistent topic keeps no properties; leave them out")


@route("DELETE", "", query=(FORCE,), refusals=(404,), statuses={Busy: 412})
async def delete(call: Call) -> None:
    """Delete a topic; without force only if it has no client (412)."""
    own = served(call)
    topic = own.require(call.topic_name)
    if not topic.unused and not call.query("force"):
        clients = len(topic.producers) + sum(len(each.consumers) for each in topic.subscriptions.values())
        raise Busy(f"{topic.name} has {plural(clients, 'client')}; close all of them first, or force")
    own.expel(topic)
    own.drop(topic)


@route("PUT", "/unload", refusals=(404,))
async def unload(call: Call) -> None:
    """Close the clients of a topic; they reconnect."""
    own = served(call)
    own.expel(own.require(call.topic_name))


@route("GET", "/subscriptions", answer=list[str], refusals=(404,), action="consume")
async def subscriptions(call: Call) -> list[str]:
    """List the subscriptions that have consumers."""
    return sorted(served(call).require(call.topic_name).subscriptions)


@route("GET", "/stats", answer=PassingTopicAnswer, refusals=(404,))
async def stats(call: Call) -> PassingTopicAnswer:
    """Return rates, and how many messages were dropped, by client and subscription."""
    return stats_of(served(call).require(call.topic_name), call.server.now())


# -- partitions ----------------------------------------------------------------------------------------


@route("GET", "/partitions", answer=Partitions, refusals=(404,), action="lookup", anywhere=True)
async def partitions(call: Call) -> Partitions:
    """Return the number of partitions; 0: none, also of a topic that could be created."""
    call.broker.require_namespace(call.topic_name)
    return Partitions(partitions=call.broker.partitioned.count(call.topic_name))


@route("PUT", "/partitions", body=int | PartitionsBody, refusals=(404, 409))
async def create_partitions(call: Call) -> None:
    """Create a partitioned topic; properties are refused."""
    if isinstance(call.body, PartitionsBody):
        _require_no_properties(call.body.properties)
    if call.server.wire is not None and call.topic_name in served(call).topics:
        raise Exists(f"the topic without partitions {call.topic_name} exists already; use another name")
    count = call.body if isinstance(call.body, int) else call.body.partitions
    await call.broker.partitioned.create(call.topic_name, count)


@route("POST", "/partitions", body=int, refusals=(404, 422), statuses={Misuse: 422})
async def grow(call: Call) -> None:
    """Add partitions, so that the topic has this number; fewer are refused (422)."""
    await call.broker.partitioned.grow(call.topic_name, call.body)


@route("DELETE", "/partitions", query=(FORCE,), refusals=(404,), statuses={Busy: 412})
async def delete_partitions(call: Call) -> None:
    """Delete a topic with all partitions; without force only if no client is here (412)."""
    names, wire = call.broker.partitioned.names(call.topic_name), call.server.wire
    here = {} if wire is None else wire.non_persistent.topics
    used = [each for each in names if each in here and not here[each].unused]
    if used and not call.query("force"):
        raise Busy(f"{used[0]} has clients; close all of them first, or force")
    await call.broker.partitioned.delete(call.topic_name, call.query("force"))


_PER = Parameter("perPartition", "boolean", "With the stats of each partition.", default=True)


@route("GET", "/partitioned-stats", query=(_PER,), answer=PassingPartitionsAnswer, refusals=(404,))
async def partitioned_stats(call: Call) -> PassingPartitionsAnswer:
    """Return the stats of the partitions that this server serves, and their sums."""
    names, wire = partitions_of(call), call.server.wire
    here = {} if wire is None else wire.non_persistent.topics
    found = {each: stats_of(here[each], call.server.now()) for each in names if each in here}
    answer = summed_into(PassingPartitionsAnswer(), found.values())
    answer.metadata = Partitions(partitions=len(names))
    answer.partitions = found if call.query("perPartition") else {}
    return answer


# -- stats ---------------------------------------------------------------------------------------------


def stats_of(topic: NonPersistentTopic, now: float) -> PassingTopicAnswer:
    """Return the stats of a topic."""
    rates, counted = topic.meter.rates(now), topic.meter
    answer = PassingTopicAnswer(
        msg_rate_in=rates[0],
        msg_throughput_in=rates[1],
        msg_in_counter=counted.messages,
        bytes_in_counter=counted.bytes,
        average_msg_size=counted.bytes / counted.messages if counted.messages else 0.0,
        msg_drop_rate=rates[2],
        msg_drop_counter=counted.dropped,
    )
    for producer in topic.producers:
        rates = producer.meter.rates(now)
        answer.publishers.append(
            PassingPublisherAnswer(
                access_mode="Exclusive" if producer.exclusive else "Shared",
                msg_rate_in=rates[0],
                msg_throughput_in=rates[1],
                average_msg_size=producer.meter.bytes / max(1, producer.meter.messages),
                msg_drop_rate=rates[2],
                producer_id=producer.id,
                producer_name=producer.name,
                address=producer.connection.address,
                client_version=producer.connection.client_version,
                connected_since=moment(producer.opened_ns),
                metadata=producer.metadata,
            )
        )
    for name, subscription in sorted(topic.subscriptions.items()):
        active = subscription.active
        found = answer.subscriptions[name] = PassingSubscriptionAnswer(
            **_out(subscription.meter, now),
            type=subscription.type.capitalize(),
            is_durable=False,
            durable=False,
            active_consumer_name=None if active is None else active.name,
            msg_drop_rate=subscription.meter.rates(now)[2],
            msg_drop_counter=subscription.meter.dropped,
        )
        for each in subscription.consumers:
            found.consumers.append(
                ConsumerAnswer(
                    **_out(each.meter, now),
                    consumer_name=each.name,
                    available_permits=each.permits,
                    priority_level=each.priority,
                    address=each.connection.address,
                    client_version=each.connection.client_version,
                    connected_since=moment(each.opened_ns),
                    metadata=each.metadata,
                )
            )
        answer.msg_out_counter += found.msg_out_counter
        answer.bytes_out_counter += found.bytes_out_counter
        answer.msg_rate_out += found.msg_rate_out
        answer.msg_throughput_out += found.msg_throughput_out
    return answer


def _out(meter: Meter, now: float) -> dict[str, Any]:
    rates = meter.rates(now)
    return {
        "msg_rate_out": rates[0],
        "msg_throughput_out": rates[1],
        "msg_out_counter": meter.messages,
        "bytes_out_counter": meter.bytes,
    }
