"""namespace.create: where topics share what they do not say themselves."""

from __future__ import annotations

from typing import ClassVar

from holdfast.broker.events.base import Context, Event, register
from holdfast.broker.events.namespace_update import set_policies
from holdfast.broker.events.outcomes import Done
from holdfast.broker.state import SILENT, BrokerState, Policies
from holdfast.errors import Exists, NotFound
from holdfast.names import namespace_name


@register
class NamespaceCreate(Event, frozen=True):
    """Make a namespace of a tenant. Topics of that name that are there already are in it from now on."""

    kind: ClassVar[int] = 73

    name: str
    """`tenant/namespace`."""
    policies: Policies = SILENT

    def apply(self, state: BrokerState, context: Context) -> Done:
        tenant = namespace_name(self.name).partition("/")[0]
        self.policies.require_sound()
        if tenant not in state.namespaces.tenants:
            raise NotFound(f"there is no tenant {tenant}; create it first")
        if self.name in state.namespaces.policies:
            raise Exists(f"the namespace {self.name} is there already")
        set_policies(state, self.name, self.policies)
        return Done()
