"""Administer properties: texts that programs keep with namespaces, topics and subscriptions."""

from __future__ import annotations

from aiohttp import web

from holdfast.errors import Misuse, NotFound
from holdfast.server.http.routing import TEXT, Call, Parameter, Routes
from holdfast.server.http.topics import NAMESPACE

of_namespace = Routes("properties", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")
of_topic = Routes("properties", NAMESPACE + "/{topic}", "topic", partitioned="whole")
of_subscription = Routes(
    "properties",
    NAMESPACE + "/{topic}/subscription/{subscription}/properties",
    "topic",
    action="consume",
    partitioned="whole",
)

Properties = dict[str, str]
_KEY = Parameter("key", "string", "The name of the property.", default="")


def _key(call: Call, known: Properties) -> str:
    """Return the property that the query names.

    Raises:
        Misuse: it names none.
        NotFound: there is no such property.
    """
    key = str(call.query("key"))
    if not key:
        raise Misuse("name the property to remove: ?key=NAME")
    if key not in known:
        raise _absent(key)
    return key


def _absent(key: str) -> NotFound:
    return NotFound(f"there is no property {key!r}; GET properties lists them")


# -- namespaces ----------------------------------------------------------------------------------------


@of_namespace("GET", "/properties", answer=Properties, refusals=(404,))
async def namespace_properties(call: Call) -> Properties:
    """Return the properties of a namespace."""
    return call.broker.admin.namespace_properties(call.namespace)


@of_namespace("PUT", "/properties", body=Properties, refusals=(404,))
async def set_namespace_properties(call: Call) -> None:
    """Set properties of a namespace; others stay."""
    await call.broker.admin.set_namespace_properties(call.namespace, call.body)


@of_namespace("DELETE", "/properties", refusals=(404,))
async def drop_namespace_properties(call: Call) -> None:
    """Remove all properties of a namespace."""
    await call.broker.admin.set_namespace_properties(call.namespace, {}, replace=True)


@of_namespace("PUT", "/property/{key}/{value}", refusals=(404,))
async def set_namespace_property(call: Call) -> None:
    """Set a property of a namespace."""
    await call.broker.admin.set_namespace_properties(call.namespace, {call["key"]: call["value"]})


@of_namespace("GET", "/property/{key}", answer=str, media=TEXT, refusals=(404,))
async def namespace_property(call: Call) -> web.Response:
    """Return a property of a namespace."""
    return web.Response(text=_property(call))


@of_namespace("DELETE", "/property/{key}", answer=str, media=TEXT, refusals=(404,))
async def drop_namespace_property(call: Call) -> web.Response:
    """Remove a property of a namespace, and return it."""
    found = _property(call)
    await call.broker.admin.set_namespace_properties(call.namespace, {}, [call["key"]])
    return web.Response(text=found)


def _property(call: Call) -> str:
    found = call.broker.admin.namespace_properties(call.namespace)
    if call["key"] not in found:
        raise _absent(call["key"])
    return found[call["key"]]


# -- topics --------------------------------------------------------------------------------------------


@of_topic("GET", "/properties", answer=Properties, refusals=(404,))
async def topic_properties(call: Call) -> Properties:
    """Return the properties of a topic."""
    return call.broker.admin.topic_properties(call.topic_name)


@of_topic("PUT", "/properties", body=Properties, refusals=(404,))
async def set_topic_properties(call: Call) -> None:
    """Set properties of a topic; others stay."""
    await call.broker.admin.set_topic_properties(call.topic_name, call.body)


@of_topic("DELETE", "/properties", query=(_KEY,), refusals=(404,))
async def drop_topic_property(call: Call) -> None:
    """Remove a property of a topic."""
    key = _key(call, call.broker.admin.topic_properties(call.topic_name))
    await call.broker.admin.set_topic_properties(call.topic_name, {}, [key])


# -- subscriptions -------------------------------------------------------------------------------------


@of_subscription("GET", "", answer=Properties, refusals=(404,))
async def subscription_properties(call: Call) -> Properties:
    """Return the properties of a subscription."""
    return call.broker.admin.subscription_properties(call.topic_name, call["subscription"])


@of_subscription("PUT", "", body=Properties, refusals=(404,))
async def set_subscription_properties(call: Call) -> None:
    """Replace the properties of a subscription."""
    name = call["subscription"]
    await call.broker.admin.set_subscription_properties(call.topic_name, name, call.body, replace=True)


@of_subscription("DELETE", "", query=(_KEY,), refusals=(404,))
async def drop_subscription_property(call: Call) -> None:
    """Remove a property of a subscription; of holdfast alone."""
    name = call["subscription"]
    key = _key(call, call.broker.admin.subscription_properties(call.topic_name, name))
    await call.broker.admin.set_subscription_properties(call.topic_name, name, {}, [key])
