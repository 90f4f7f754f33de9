"""Administer all policies of a namespace or a topic at once.

These paths are ours, with the names of `holdfast.broker.Policies`. Pulsar has one path for each policy: see
the neighbouring modules.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from holdfast.broker import Policies
from holdfast.errors import Misuse
from holdfast.server.http.routing import Call, Routes
from holdfast.server.http.topics import NAMESPACE

of_namespace = Routes("policies", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")
of_topic = Routes("policies", NAMESPACE + "/{topic}", "topic", partitioned="each")

Given = dict[str, Any]
_TYPES = {each.name: each.type for each in msgspec.structs.fields(Policies)}


class PolicyAnswer(msgspec.Struct, kw_only=True):
    """A policy of a topic or a namespace."""

    own: bool | int | float | str | list[str] | None
    """The value that is set there; null: none is."""
    applied: bool | int | float | str | list[str] | None
    """The value that applies; null: none does."""
    level: str | None
    """The place of the value that applies: topic, namespace or broker."""


def given(body: Given, known: Collection[str], what: str) -> dict[str, Any]:
    """Return policies by name, with their types; null removes one.

    Raises:
        Misuse: a name is unknown, or a value has another type.
    """
    for name in body:
        if name not in known:
            raise Misuse(f"there is no {what} {name!r}; there are: {', '.join(known)}")
    return {name: _value(what, name, value) for name, value in body.items()}


def _value(what: str, name: str, value: Any) -> Any:
    try:
        return msgspec.convert(value, _TYPES[name])
    except msgspec.ValidationError as error:
        raise Misuse(f"the {what} {name} cannot be {value!r}: {error}") from None


def _shown(call: Call, of: str) -> dict[str, PolicyAnswer]:
    found = call.broker.admin.policy_values(of)
    return {name: PolicyAnswer(**each._asdict()) for name, each in found.items()}


@of_namespace("GET", "/policies", answer=dict[str, PolicyAnswer], refusals=(404,))
async def namespace_policies(call: Call) -> dict[str, PolicyAnswer]:
    """Return all policies of a namespace, and where the values that apply come from."""
    return _shown(call, call.namespace)


@of_namespace("POST", "/policies", body=Given, refusals=(404,))
async def set_namespace_policies(call: Call) -> None:
    """Set the given policies of a namespace; null removes one."""
    await call.broker.admin.set_namespace_policies(call.namespace, **given(call.body, _TYPES, "policy"))


@of_topic("GET", "/policies", answer=dict[str, PolicyAnswer], refusals=(404,))
async def topic_policies(call: Call) -> dict[str, PolicyAnswer]:
    """Return all policies of a topic, and where the values that apply come from."""
    return _shown(call, call.topic_name)


@of_topic("POST", "/policies", body=Given, refusals=(404,))
async def set_topic_policies(call: Call) -> None:
    """Set the given policies of a topic; null removes one."""
    await call.broker.admin.set_policies(call.topic_name, **given(call.body, _TYPES, "policy"))
