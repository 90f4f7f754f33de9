"""Decide what roles may do, by the grants of the configuration.

A grant names roles, a resource and actions. An action without a grant is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from holdfast.errors import HoldfastError
from holdfast.names import TopicName, is_persistent, partition_of
from holdfast.server.config import Action, Authorization


@dataclass(frozen=True)
class _Rule:
    roles: tuple[re.Pattern[str], ...]
    place: tuple[re.Pattern[str], ...]
    """Tenant, namespace, topic: as many as the grant names."""
    allow: frozenset[str]

    def is_for(self, role: str) -> bool:
        return any(each.fullmatch(role) for each in self.roles)

    def covers(self, place: tuple[str, ...]) -> bool:
        """Return whether the grant is on this resource, or on one that contains it."""
        return len(self.place) <= len(place) and all(
            pattern.fullmatch(part) for pattern, part in zip(self.place, place, strict=False)
        )


class Granted(Protocol):
    """Permissions that were granted at run time."""

    def allow(self, role: str, actions: set[str], place: tuple[str, ...]) -> bool:
        """Return whether a role has one of these actions on a namespace or a topic."""

    def allow_somewhere(self, role: str, action: str) -> bool:
        """Return whether a role has an action on some namespace or topic."""

    def why_not(self, role: str, namespace: str, subscription: str) -> str:
        """Return why a role may not use a subscription of a namespace; empty: it may."""


class Authorizer:
    """Decides what a role may do. A grant is for persistent and other topics alike.

    Example:
        >>> from holdfast.server.config import Grant
        >>> grants = (Grant(roles=("billing",), on="shop/eu", allow=("consume",)),)
        >>> may = Authorizer(Authorization(enabled=True, superusers=("root",), grants=grants))
        >>> may.allows("billing", "consume", "persistent://shop/eu/orders")
        True
        >>> may.allows("billing", "produce", "persistent://shop/eu/orders")
        False
        >>> may.allows("root", "produce", "persistent://shop/eu/orders")
        True
    """

    def __init__(self, config: Authorization) -> None:
        self.admins: Callable[[str], Collection[str]] = lambda tenant: ()
        """The roles in a tenant's own `adminRoles`, which may administer it without a grant."""
        self.tenants: Callable[[], Collection[str]] = lambda: ()
        """The tenants that have `adminRoles`."""
        self.granted: Callable[[], Granted] | None = None
        """The permissions beside the grants, as they are now; None: there are none."""
        self.use(config)

    def use(self, config: Authorization) -> None:
        """Apply these grants from now on."""
        self._enabled = config.enabled
        self._superusers = frozenset(config.superusers)
        self._rules = [
            _Rule(
                tuple(map(_pattern, grant.roles)),
                tuple(map(_pattern, grant.on.split("/", 2))),
                frozenset(grant.allow),
            )
            for grant in config.grants
        ]

    def allows(self, role: str, action: Action, topic: str) -> bool:
        """Return whether a role may do an action on a topic, or on its partition."""
        return self._allows(role, {action}, _place(topic))

    def allows_any(self, role: str, topic: str) -> bool:
        """Return whether a role has any grant on a topic: it may look it up."""
        return self._allows(role, {"produce", "consume", "admin"}, _place(topic))

    def allows_namespace(self, role: str, action: Action, tenant: str, namespace: str) -> bool:
        """Return whether a role may do an action on a namespace and everything in it."""
        return self._allows(role, {action}, (tenant, namespace))

    def allows_tenant(self, role: str, action: Action, tenant: str) -> bool:
        """Return whether a role may do an action on a tenant and everything in it."""
        return self._allows(role, {action}, (tenant,))

    def allows_somewhere(self, role: str, action: Action) -> bool:
        """Return whether a role may do an action on at least one resource."""
        return (
            self.allows_broker(role)
            or any(action in rule.allow and rule.is_for(role) for rule in self._rules)
            or (self.granted is not None and self.granted().allow_somewhere(role, action))
            or (action == "admin" and any(role in self.admins(tenant) for tenant in self.tenants()))
        )

    def why_not(self, role: str, topic: str, subscription: str) -> str:
        """Return why a consumer of a topic may not use a subscription; empty: it may.

        Administrators of the topic may use all.
        """
        place = _place(topic)
        if place is None or self.granted is None or self.allows(role, "admin", topic):
            return ""
        return self.granted().why_not(role, f"{place[0]}/{place[1]}", subscription)

    def allows_broker(self, role: str) -> bool:
        """Return whether a role is a superuser, which may do what concerns the whole broker."""
        return not self._enabled or role in self._superusers

    def _allows(self, role: str, actions: set[str], place: tuple[str, ...] | None) -> bool:
        if not self._enabled or role in self._superusers:
            return True
        if place is None:
            return False
        if "admin" in actions and role in self.admins(place[0]):
            return True
        if any(actions & rule.allow and rule.covers(place) and rule.is_for(role) for rule in self._rules):
            return True
        return self.granted is not None and self.granted().allow(role, actions, place)


def _pattern(text: str) -> re.Pattern[str]:
    """Compile a pattern in which only `*` is special: it matches any text."""
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def _place(topic: str) -> tuple[str, str, str] | None:
    try:
        full = topic if is_persistent(topic) else topic.removeprefix("non-")
        tenant, namespace, name = TopicName.parse(full)
    except HoldfastError:
        return None  # not a topic name, so without grants
    partition = partition_of(name)
    return tenant, namespace, partition[0] if partition else name
