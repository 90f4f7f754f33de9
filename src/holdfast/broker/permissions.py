"""Permissions: what roles may do in namespaces and with topics, granted at run time.

They stand beside the grants of a server's configuration, and are part of the state. So all members know them,
and a restart keeps them. A server asks here (`holdfast.server.auth`); an embedded broker does not ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from holdfast.broker.part import Part
from holdfast.errors import Misuse
from holdfast.names import TopicName, checked_name, namespace_name, partition_of

PermittedAction = Literal["produce", "consume", "functions", "sources", "sinks", "packages"]
"""Actions of Pulsar. Here `produce` and `consume` have an effect; the others are kept and returned."""
ACTIONS: tuple[PermittedAction, ...] = get_args(PermittedAction)
Roles = dict[str, tuple[str, ...]]


class Permissions(Part):
    """All permissions of a broker.

    Example:
        >>> permissions = Permissions()
        >>> permissions.namespaces["shop/eu"] = {"billing": ("consume",)}
        >>> permissions.allow("billing", {"consume"}, ("shop", "eu", "orders"))
        True
        >>> permissions.allow("billing", {"consume"}, ("shop", "us", "orders"))
        False
    """

    def __init__(self) -> None:
        self.namespaces: dict[str, Roles] = {}
        """By namespace and role: actions in the whole namespace."""
        self.topics: dict[str, Roles] = {}
        """By `tenant/namespace/topic` and role, for persistent and other topics of this name alike."""
        self.subscriptions: dict[str, Roles] = {}
        """By namespace and subscription: the only roles that may consume from it."""
        self.prefixed: set[str] = set()
        """Namespaces in which a subscription begins with the role of its consumers."""

    def __bool__(self) -> bool:
        return bool(self.namespaces or self.topics or self.subscriptions or self.prefixed)

    def allow(self, role: str, actions: set[str], place: tuple[str, ...]) -> bool:
        """Return whether a role has one of these actions on a namespace or a topic."""
        if len(place) < 2:
            return False
        found = {*self.namespaces.get("/".join(place[:2]), {}).get(role, ())}
        if len(place) > 2:
            found |= {*self.topics.get("/".join(place), {}).get(role, ())}
        return not actions.isdisjoint(found)

    def allow_somewhere(self, role: str, action: str) -> bool:
        """Return whether a role has an action on some namespace or topic."""
        return any(
            action in roles.get(role, ()) for roles in (*self.namespaces.values(), *self.topics.values())
        )

    def why_not(self, role: str, namespace: str, subscription: str) -> str:
        """Return why a role may not use a subscription of a namespace; empty: it may."""
        roles = self.subscriptions.get(namespace, {}).get(subscription, ())
        if roles and role not in roles:
            return f"the subscription {subscription!r} of {namespace} is for other roles"
        if namespace in self.prefixed and not subscription.startswith(role):
            return f"subscriptions of {namespace} must begin with the role of their consumers"
        return ""

    def of_namespaces(self) -> set[str]:
        """Return the namespaces with permissions, also of single topics."""
        topics = {"/".join(each.split("/", 2)[:2]) for each in self.topics}
        return {*self.namespaces, *self.subscriptions, *self.prefixed, *topics}

    def drop_namespace(self, name: str) -> bool:
        """Remove everything about a namespace; return whether there was anything."""
        inside = [each for each in self.topics if each.startswith(f"{name}/")]
        gone = [self.topics.pop(each) for each in inside]
        gone += [each.pop(name) for each in (self.namespaces, self.subscriptions) if name in each]
        known = name in self.prefixed
        self.prefixed.discard(name)
        return bool(gone) or known

    def sizes(self) -> Iterator[int]:
        """Yield the bytes of names, for limits."""
        for of in (self.namespaces, self.topics, self.subscriptions):
            for name, entries in of.items():
                yield len(name.encode())
                yield from (len(key.encode()) + sum(map(len, values)) for key, values in entries.items())


def place_of(full: str) -> str:
    """Return the key of a topic's permissions; a partition has those of its topic.

    Example:
        >>> place_of("non-persistent://shop/eu/orders-partition-3")
        'shop/eu/orders'
    """
    found = partition_of(full)
    whole = full if found is None else found[0]
    name = TopicName.parse(whole.removeprefix("non-"))
    return f"{name.tenant}/{name.namespace}/{name.topic}"


def checked_place(place: str) -> str:
    """Return the namespace of a place, a namespace or a topic.

    Raises:
        Misuse: it is neither.
    """
    tenant, _, rest = place.partition("/")
    namespace, slash, topic = rest.partition("/")
    if slash and place_of(f"persistent://{tenant}/{namespace}/{topic}") != place:
        raise Misuse(f"{place!r} is a partition; permissions are of the whole topic")
    return namespace_name(f"{tenant}/{namespace}")


def checked_actions(actions: list[str]) -> tuple[str, ...]:
    """Return actions, each once, in their order.

    Raises:
        Misuse: one of them is none.
    """
    for each in actions:
        if each not in ACTIONS:
            raise Misuse(f"a permission cannot be {each!r}; use {', '.join(ACTIONS)}")
    return tuple(each for each in ACTIONS if each in actions)


def checked_roles(roles: list[str]) -> tuple[str, ...]:
    """Return roles, each once, sorted.

    Raises:
        Misuse: one of them is not a name.
    """
    return tuple(sorted({checked_name(each, "a role") for each in roles}))
