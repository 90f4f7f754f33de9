"""tenant.delete: a tenant goes."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.namespace_delete import remove_namespace
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import BrokerState
from holdfast.errors import Busy, NotFound


@register
class TenantDelete(Event, frozen=True):
    """Delete a tenant. Without `force` only if it has no namespace; with it, all that is in them goes."""

    kind: ClassVar[int] = 72

    name: str
    force: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        namespaces = state.namespaces
        if self.name not in namespaces.tenants:
            raise NotFound(f"there is no tenant {self.name}")
        held = namespaces.of(self.name)
        if held and not self.force:
            raise Busy(f"the tenant {self.name} has {len(held)} namespaces; delete them first, or force")
        for name in held:
            remove_namespace(state, context, name)
        del namespaces.tenants[self.name]
        state.touch(namespaces)
        return Done()
