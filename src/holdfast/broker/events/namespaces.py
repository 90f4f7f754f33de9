"""Events of tenants and namespaces."""

from __future__ import annotations

import msgspec

from holdfast.broker.events.base import Context, Event, event
from holdfast.broker.events.notices import PartitionsChanged, PoliciesChanged
from holdfast.broker.events.outcomes import Done
from holdfast.broker.events.topics import changed, delete_topic
from holdfast.broker.state import SILENT, BrokerState, Policies, Tenant
from holdfast.errors import Busy, Exists
from holdfast.formatting import plural
from holdfast.names import is_persistent, namespace_name, namespace_of, tenant_name


@event(70)
class TenantCreate(Event, frozen=True):
    """Create a tenant."""

    name: str
    admin_roles: list[str] = msgspec.field(default_factory=list)
    allowed_clusters: list[str] = msgspec.field(default_factory=list)

    def apply(self, state: BrokerState, context: Context) -> Done:
        tenant_name(self.name)
        namespaces = state.namespaces
        if self.name in namespaces.tenants:
            raise Exists(f"the tenant {self.name} exists already")
        namespaces.tenants[self.name] = tenant(self.admin_roles, self.allowed_clusters)
        state.touch(namespaces)
        return Done()


def tenant(admin_roles: list[str], allowed_clusters: list[str]) -> Tenant:
    """Return a tenant with each name once, sorted."""
    return Tenant(sorted(set(admin_roles)), sorted(set(allowed_clusters)))


@event(71)
class TenantUpdate(Event, frozen=True):
    """Replace the roles and clusters of a tenant."""

    name: str
    admin_roles: list[str] = msgspec.field(default_factory=list)
    allowed_clusters: list[str] = msgspec.field(default_factory=list)

    def apply(self, state: BrokerState, context: Context) -> Done:
        namespaces, wanted = state.namespaces, tenant(self.admin_roles, self.allowed_clusters)
        if namespaces.require_tenant(self.name) == wanted:
            return Done(changed=False)
        namespaces.tenants[self.name] = wanted
        state.touch(namespaces)
        return Done()


@event(72)
class TenantDelete(Event, frozen=True):
    """Delete a tenant. Without `force` only if it has no namespace; else with their topics."""

    name: str
    force: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        namespaces = state.namespaces
        namespaces.require_tenant(self.name)
        held = namespaces.of(self.name)
        if held and not self.force:
            count = plural(len(held), "namespace")
            raise Busy(f"the tenant {self.name} has {count}; delete all of them first, or force")
        for name in held:
            require_no_unreplicated(state, name)
        for name in held:
            remove_namespace(state, context, name)
        del namespaces.tenants[self.name]
        state.touch(namespaces)
        return Done()


@event(73, version=6, base=6)
class NamespaceCreate(Event, frozen=True):
    """Create a namespace of a tenant. It includes existing topics with its name."""

    name: str
    """`tenant/namespace`."""
    policies: Policies = SILENT

    def apply(self, state: BrokerState, context: Context) -> Done:
        tenant = namespace_name(self.name).partition("/")[0]
        self.policies.require_sound()
        state.namespaces.require_tenant(tenant)
        if self.name in state.namespaces.policies:
            raise Exists(f"the namespace {self.name} exists already")
        set_policies(state, self.name, self.policies)
        context.notices.append(PoliciesChanged(self.name))
        return Done()


@event(74, version=6, base=6)
class NamespaceUpdate(Event, frozen=True):
    """Change the named policies of a namespace."""

    name: str
    policies: Policies
    fields: list[str] | None = None
    """Names of the policies that change; None: all."""

    def apply(self, state: BrokerState, context: Context) -> Done:
        self.policies.require_sound()
        before = state.namespaces.require(self.name)
        policies = changed(before, self.policies, self.fields)
        if policies == before:
            return Done(changed=False)
        set_policies(state, self.name, policies)
        context.notices.append(PoliciesChanged(self.name))
        return Done()


def set_policies(state: BrokerState, name: str, policies: Policies | None) -> None:
    """Set a namespace's policies, or delete it (None). The log learns which topics deduplicate."""
    namespaces = state.namespaces
    before = namespaces.policies.get(name, SILENT)
    if policies is None:
        del namespaces.policies[name]
    else:
        namespaces.policies[name] = SILENT if policies == SILENT else policies
    if before.deduplication != (policies or SILENT).deduplication:
        for _, topic in sorted(state.topics.items()):
            if topic.namespace == name:
                state.log.set_topic(topic.id, deduplicate=state.deduplicates(topic))
                state.touch(topic)  # its sequences may be forgotten
    state.touch(namespaces)


@event(75)
class NamespaceDelete(Event, frozen=True):
    """Delete a namespace. Without `force` only if no topic is in it."""

    name: str
    force: bool = False

    def apply(self, state: BrokerState, context: Context) -> Done:
        state.namespaces.require(self.name)
        topics = sum(topic.namespace == self.name for topic in state.topics.values())
        topics += sum(
            not is_persistent(each) and namespace_of(each) == self.name for each in state.partitioned.topics
        )
        if topics and not self.force:
            count = plural(topics, "topic")
            raise Busy(f"the namespace {self.name} has {count}; delete all of them first, or force")
        require_no_unreplicated(state, self.name)
        remove_namespace(state, context, self.name)
        return Done()


def require_no_unreplicated(state: BrokerState, name: str) -> None:
    """Raise Busy for a namespace with unreplicated topics, which only their nodes can delete."""
    count = sum(namespace_of(each) == name for each in state.unreplicated.places)
    if count:
        raise Busy(
            f"the namespace {name} has {plural(count, 'unreplicated topic or exchange')}; delete them first"
        )


def remove_namespace(state: BrokerState, context: Context, name: str) -> None:
    """Delete a namespace and its topics."""
    for full in sorted(state.partitioned.topics):
        if namespace_of(full) == name:
            state.partitioned.remove(full)
            state.touch(state.partitioned)
            context.notices.append(PartitionsChanged(full, 0))
    if state.partitioned.auto_creation.pop(name, None) is not None:
        state.touch(state.partitioned)
    for _, topic in sorted(state.topics.items()):
        if topic.namespace == name:
            delete_topic(state, context, topic)
    set_policies(state, name, None)
    state.namespaces.properties.pop(name, None)
    if state.permissions.drop_namespace(name):
        state.touch(state.permissions)
