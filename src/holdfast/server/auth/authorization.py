"""May they? Grants of the configuration: roles, a place, actions. What no grant names is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from holdfast.errors import HoldfastError
from holdfast.names import TopicName
from holdfast.server.config import Action, Authorization

_PARTITION = re.compile(r"(.+)-partition-\d+")


@dataclass(frozen=True)
class _Rule:
    roles: tuple[re.Pattern[str], ...]
    place: tuple[re.Pattern[str], ...]
    """Tenant, namespace, topic, as far as the grant says."""
    allow: frozenset[str]

    def is_for(self, role: str) -> bool:
        return any(each.fullmatch(role) for each in self.roles)

    def covers(self, place: tuple[str, ...]) -> bool:
        """What is granted on a tenant holds for all in it; on a topic, for nothing above it."""
        return len(self.place) <= len(place) and all(
            pattern.fullmatch(part) for pattern, part in zip(self.place, place, strict=False)
        )


class Authorizer:
    """Decides what a role may do.

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
        """Who may administer a tenant by its own word (`adminRoles`), beside the grants."""
        self.tenants: Callable[[], Collection[str]] = lambda: ()
        """Those that have such a word."""
        self.use(config)

    def use(self, config: Authorization) -> None:
        """Go by these grants from now on."""
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
        """May it do that with a topic, by its full name? A partition is as its topic."""
        return self._allows(role, {action}, _place(topic))

    def allows_any(self, role: str, topic: str) -> bool:
        """May it do anything with a topic? Who may not, is not told where it is."""
        return self._allows(role, {"produce", "consume", "admin"}, _place(topic))

    def allows_namespace(self, role: str, action: Action, tenant: str, namespace: str) -> bool:
        """May it do that with everything in a namespace, and with the namespace itself?"""
        return self._allows(role, {action}, (tenant, namespace))

    def allows_tenant(self, role: str, action: Action, tenant: str) -> bool:
        """The same for a tenant."""
        return self._allows(role, {action}, (tenant,))

    def allows_somewhere(self, role: str, action: Action) -> bool:
        """May it do that anywhere at all?"""
        return (
            self.allows_broker(role)
            or any(action in rule.allow and rule.is_for(role) for rule in self._rules)
            or (action == "admin" and any(role in self.admins(tenant) for tenant in self.tenants()))
        )

    def allows_broker(self, role: str) -> bool:
        """May it do what concerns the whole broker? Superusers may."""
        return not self._enabled or role in self._superusers

    def _allows(self, role: str, actions: set[str], place: tuple[str, ...] | None) -> bool:
        if not self._enabled or role in self._superusers:
            return True
        if place is None:
            return False
        if "admin" in actions and role in self.admins(place[0]):
            return True
        return any(actions & rule.allow and rule.covers(place) and rule.is_for(role) for rule in self._rules)


def _pattern(text: str) -> re.Pattern[str]:
    """`*` stands for anything, every other character for itself."""
    return re.compile(".*".join(map(re.escape, text.split("*"))), re.DOTALL)


def _place(topic: str) -> tuple[str, str, str] | None:
    try:
        tenant, namespace, name = TopicName.parse(topic)
    except HoldfastError:
        return None  # no name of a topic: nothing can have been granted on it
    partition = _PARTITION.fullmatch(name)
    return tenant, namespace, partition[1] if partition else name
