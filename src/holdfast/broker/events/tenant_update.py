"""tenant.update: who may administer a tenant, and where it may be."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.tenant_create import tenant
from holdfast.broker.state import BrokerState
from holdfast.errors import NotFound


@register
class TenantUpdate(Event, frozen=True):
    """Replace what a tenant says of itself."""

    kind: ClassVar[int] = 71

    name: str
    admin_roles: list[str] = msgspec.field(default_factory=list)
    allowed_clusters: list[str] = msgspec.field(default_factory=list)

    def apply(self, state: BrokerState, context: Context) -> Done:
        namespaces, wanted = state.namespaces, tenant(self.admin_roles, self.allowed_clusters)
        if self.name not in namespaces.tenants:
            raise NotFound(f"there is no tenant {self.name}; create it first")
        if namespaces.tenants[self.name] == wanted:
            return Done(changed=False)
        namespaces.tenants[self.name] = wanted
        state.touch(namespaces)
        return Done()
