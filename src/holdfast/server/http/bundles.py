"""Unload namespaces and clear their backlogs.

Pulsar divides a namespace among brokers by bundles. Here every member serves every topic, and a topic has one
owner. So a namespace has one bundle, and its paths do what those of the namespace do.
"""

from __future__ import annotations

from holdfast.broker import AutoCreation
from holdfast.errors import Busy, Misuse
from holdfast.server.http.answers import AutoTopicCreation, Bundles
from holdfast.server.http.routing import Call, Routes

route = Routes("namespaces", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")


@route("GET", "/bundles", answer=Bundles, refusals=(404,))
async def bundles(call: Call) -> Bundles:
    """Return the bundles of a namespace: always one."""
    call.broker.admin.namespace_policies(call.namespace)
    return Bundles()


@route("PUT", "/unload", refusals=(404,))
async def unload(call: Call) -> None:
    """Close the producers and consumers of a namespace; their clients reconnect."""
    await call.broker.admin.unload_namespace(call.namespace)


@route("PUT", "/{bundle}/unload", refusals=(404,))
async def unload_bundle(call: Call) -> None:
    """Close the producers and consumers of a namespace, which has one bundle."""
    await call.broker.admin.unload_namespace(call.namespace)


@route("POST", "/clearBacklog", refusals=(404, 409))
async def clear(call: Call) -> None:
    """Acknowledge the backlogs of all subscriptions of a namespace, one after the other."""
    await call.broker.admin.clear_namespace(call.namespace)


@route("POST", "/clearBacklog/{subscription}", refusals=(404, 409))
async def clear_subscription(call: Call) -> None:
    """Acknowledge the backlog of a subscription in all topics of a namespace."""
    await call.broker.admin.clear_namespace(call.namespace, call["subscription"])


@route("POST", "/{bundle}/clearBacklog", refusals=(404, 409))
async def clear_bundle(call: Call) -> None:
    """Acknowledge the backlogs of a namespace, which has one bundle."""
    await call.broker.admin.clear_namespace(call.namespace)


@route("POST", "/{bundle}/clearBacklog/{subscription}", refusals=(404, 409))
async def clear_subscription_of_bundle(call: Call) -> None:
    """Acknowledge the backlog of a subscription in a namespace, which has one bundle."""
    await call.broker.admin.clear_namespace(call.namespace, call["subscription"])


@route("POST", "/unsubscribe/{subscription}", refusals=(404,), statuses={Busy: 412})
async def unsubscribe(call: Call) -> None:
    """Delete a subscription from all topics of a namespace; 412 where it has consumers."""
    await call.broker.admin.unsubscribe_namespace(call.namespace, call["subscription"])


@route("POST", "/{bundle}/unsubscribe/{subscription}", refusals=(404,), statuses={Busy: 412})
async def unsubscribe_bundle(call: Call) -> None:
    """Delete a subscription from all topics of a namespace, which has one bundle."""
    await call.broker.admin.unsubscribe_namespace(call.namespace, call["subscription"])


@route("GET", "/autoTopicCreation", answer=AutoTopicCreation | None, refusals=(404,))
async def auto_creation(call: Call) -> AutoTopicCreation | None:
    """Return how missing topics are created; null: the broker's options apply."""
    return shown(call.broker.admin.auto_creation(call.namespace))


def shown(policy: AutoCreation | None) -> AutoTopicCreation | None:
    """Convert to Pulsar's form; None: not set."""
    if policy is None:
        return None
    return AutoTopicCreation(
        allow_auto_topic_creation=policy.allow,
        topic_type="partitioned" if policy.is_partitioned else "non-partitioned",
        default_num_partitions=policy.partitions or None,
    )


def policy_of(body: AutoTopicCreation) -> AutoCreation:
    """Convert from Pulsar's form.

    Raises:
        Misuse: the type does not fit the number of partitions.
    """
    partitions = body.default_num_partitions or 0
    if (body.topic_type == "partitioned") != (partitions > 0):
        raise Misuse(
            f"missing topics cannot be {body.topic_type} with {partitions} partitions; a partitioned topic "
            "needs defaultNumPartitions, and others must not have it"
        )
    return AutoCreation(body.allow_auto_topic_creation, partitions)


@route("POST", "/autoTopicCreation", body=AutoTopicCreation, refusals=(404,))
async def set_auto_creation(call: Call) -> None:
    """Set whether missing topics of a namespace are created, and with how many partitions."""
    await call.broker.admin.set_auto_creation(call.namespace, policy_of(call.body))


@route("DELETE", "/autoTopicCreation", refusals=(404,))
async def drop_auto_creation(call: Call) -> None:
    """Let the broker's options decide how missing topics of a namespace are created."""
    await call.broker.admin.set_auto_creation(call.namespace, None)
