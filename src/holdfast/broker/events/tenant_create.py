"""tenant.create: somebody who may have namespaces."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState, Tenant
from holdfast.errors import Exists
from holdfast.names import tenant_name


@register
class TenantCreate(Event, frozen=True):
    """Make a tenant."""

    kind: ClassVar[int] = 70

    name: str
    admin_roles: list[str] = msgspec.field(default_factory=list)
    allowed_clusters: list[str] = msgspec.field(default_factory=list)

    def apply(self, state: BrokerState, context: Context) -> Done:
        tenant_name(self.name)
        namespaces = state.namespaces
        if self.name in namespaces.tenants:
            raise Exists(f"the tenant {self.name} is there already")
        namespaces.tenants[self.name] = tenant(self.admin_roles, self.allowed_clusters)
        state.touch(namespaces)
        return Done()


def tenant(admin_roles: list[str], allowed_clusters: list[str]) -> Tenant:
    """Each name once, in order."""
    return Tenant(sorted(set(admin_roles)), sorted(set(allowed_clusters)))
