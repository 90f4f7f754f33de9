"""Close clients that may not go on after their permissions have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError
from holdfast.names import namespace_of

if TYPE_CHECKING:
    from holdfast.server.pulsar.connection import Connection
    from holdfast.server.pulsar.listener import Server
    from holdfast.server.pulsar.setup import PulsarAction


def recheck(server: Server, namespace: str) -> int:
    """Close producers and consumers of a namespace whose roles lack a grant; return their number.

    Their clients open them again, and are refused with the reason. Others notice nothing.
    """
    closed = 0
    for producer in list(server.producers.values()):
        if _is_refused(producer.connection, namespace, "produce", producer.topic.name):
            producer.connection.producers.expel(producer, ended=False)
            closed += 1
    for consumer in [each for attached in server.attached.values() for each in attached]:
        name = consumer.subscription
        if _is_refused(consumer.connection, namespace, "consume", consumer.topic.name, name):
            consumer.expel()
            closed += 1
    for connection in list(server.connections):
        passing = connection.passing
        for each in list(passing.producers.values()):
            if _is_refused(connection, namespace, "produce", each.topic.name):
                passing.expel_producer(each)
                closed += 1
        for one in list(passing.consumers.values()):
            if _is_refused(connection, namespace, "consume", one.topic.name, one.subscription):
                passing.expel_consumer(one)
                closed += 1
    if server.unreplicated is not None:
        closed += recheck(server.unreplicated, namespace)
    return closed


def _is_refused(
    connection: Connection, namespace: str, action: PulsarAction, topic: str, subscription: str = ""
) -> bool:
    if namespace_of(topic) != namespace:
        return False
    try:
        connection.authorize(action, topic, subscription)
    except HoldfastError:
        return True
    return False
