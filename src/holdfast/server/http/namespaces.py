"""Administer tenants and namespaces."""

from __future__ import annotations

import contextlib

from holdfast.broker import AutoCreation
from holdfast.errors import HoldfastError, Misuse, NotFound
from holdfast.names import any_topic_name, namespace_of
from holdfast.server.http import bundles
from holdfast.server.http.answers import TenantBody
from holdfast.server.http.namespace_body import (
    AuthPolicies,
    NamespaceBody,
    body_of,
    policies_of,
    require_possible,
)
from holdfast.server.http.permission_routes import require_authorization, require_here
from holdfast.server.http.routing import Call, Parameter, Routes
from holdfast.server.http.topics import FORCE, topics_of
from holdfast.server.pulsar.listing import EMPTY

of_broker = Routes("tenants", "/admin/v2/tenants", "broker")
of_tenant = Routes("tenants", "/admin/v2/tenants/{tenant}", "broker")
list_route = Routes("namespaces", "/admin/v2/namespaces/{tenant}", "tenant")
route = Routes("namespaces", "/admin/v2/namespaces/{tenant}/{namespace}", "tenant")


@of_broker("GET", "", answer=list[str])
async def tenants(call: Call) -> list[str]:
    """List the tenants."""
    return list(call.broker.admin.tenants())


@of_tenant("GET", "", answer=TenantBody, of="tenant", refusals=(404,))
async def tenant(call: Call) -> TenantBody:
    """Return the admin roles and clusters of a tenant."""
    found = call.broker.admin.tenants().get(call.tenant)
    if found is None:
        raise NotFound(f"there is no tenant {call.tenant}; create it first")
    clusters = found.allowed_clusters or [call.broker.options.cluster]
    return TenantBody(admin_roles=found.admin_roles, allowed_clusters=clusters)


@of_tenant("PUT", "", body=TenantBody, body_optional=True, refusals=(409,))
async def create_tenant(call: Call) -> None:
    """Create a tenant."""
    body = call.body or TenantBody()
    require_here(call, body.allowed_clusters)
    await call.broker.admin.create_tenant(call.tenant, body.admin_roles, body.allowed_clusters)


@of_tenant("POST", "", body=TenantBody, refusals=(404,))
async def update_tenant(call: Call) -> None:
    """Replace the admin roles and clusters of a tenant."""
    require_here(call, call.body.allowed_clusters)
    await call.broker.admin.update_tenant(call.tenant, call.body.admin_roles, call.body.allowed_clusters)


@of_tenant("DELETE", "", query=(FORCE,), refusals=(404, 409))
async def delete_tenant(call: Call) -> None:
    """Delete a tenant; without force only if it has no namespace (409)."""
    await call.broker.admin.delete_tenant(call.tenant, call.query("force"))


# -- namespaces ----------------------------------------------------------------------------------------


@list_route("GET", "", answer=list[str], refusals=(404,))
async def namespaces(call: Call) -> list[str]:
    """List the namespaces of a tenant, as tenant/namespace."""
    return call.broker.admin.namespaces(call.tenant)


@route("GET", "", answer=NamespaceBody, of="namespace", refusals=(404,))
async def namespace(call: Call) -> NamespaceBody:
    """Return the policies of a namespace, its permissions and properties."""
    admin, name = call.broker.admin, call.namespace
    own = {
        f"persistent://{topic}": {role: [*actions] for role, actions in roles.items()}
        for topic, roles in sorted(admin.granted.topics.items())
        if topic.startswith(f"{name}/")
    }
    rights = AuthPolicies(
        namespace_auth=admin.permissions(name),  # type: ignore[arg-type]
        destination_auth=own,  # type: ignore[arg-type]
        subscription_auth_roles=admin.subscription_roles(name),
    )
    return body_of(
        admin.namespace_policies(name),
        call.broker.options.cluster,
        auth_policies=rights,
        autoTopicCreationOverride=bundles.shown(admin.auto_creation(name)),
        subscription_auth_mode="Prefix" if admin.is_prefixed(name) else "None",
        properties=admin.namespace_properties(name),
    )


@route("PUT", "", body=NamespaceBody, body_optional=True, refusals=(404, 409, 501))
async def create(call: Call) -> None:
    """Create a namespace. Existing topics with its name belong to it from now on."""
    body: NamespaceBody = call.body or NamespaceBody()
    cluster, rights = call.broker.options.cluster, body.auth_policies
    require_possible(body, cluster)
    granted = rights.namespace_auth or rights.destination_auth or rights.subscription_auth_roles
    if granted or body.subscription_auth_mode == "Prefix":
        require_authorization(call)
    override = body.autoTopicCreationOverride
    creation = None if override is None else bundles.policy_of(override)
    await call.broker.admin.create_namespace(call.namespace, **policies_of(body, cluster))
    try:
        await _complete(call, body, creation)
    except HoldfastError:
        with contextlib.suppress(HoldfastError):  # with a topic in it, it stays as it is
            await call.broker.admin.delete_namespace(call.namespace)
        raise


async def _complete(call: Call, body: NamespaceBody, creation: AutoCreation | None) -> None:
    """Give a new namespace its permissions, its properties and the rule for missing topics."""
    admin, name, rights = call.broker.admin, call.namespace, body.auth_policies
    if creation is not None:
        await admin.set_auto_creation(name, creation)
    if body.properties:
        await admin.set_namespace_properties(name, body.properties)
    for role, actions in rights.namespace_auth.items():
        await admin.permit(name, role, actions)
    for topic, roles in rights.destination_auth.items():
        require_inside(topic, name)
        for role, actions in roles.items():
            await admin.permit(topic, role, actions)
    for subscription, named in rights.subscription_auth_roles.items():
        await admin.set_subscription_roles(name, subscription, named)
    if body.subscription_auth_mode == "Prefix":
        await admin.set_prefixed(name, prefixed=True)


def require_inside(topic: str, namespace: str) -> None:
    """Raise Misuse for a topic of another namespace."""
    if namespace_of(any_topic_name(topic)) != namespace:
        raise Misuse(f"the field destination_auth names {topic}, which is not in {namespace}; name its own")


@route("DELETE", "", query=(FORCE,), refusals=(404, 409))
async def delete(call: Call) -> None:
    """Delete a namespace; without force only if it has no topic (409)."""
    await call.broker.admin.delete_namespace(call.namespace, call.query("force"))


_MODE = Parameter(
    "mode",
    "string",
    "The kind of topics; non-persistent ones are those that this server serves, and all partitions.",
    default="PERSISTENT",
    choices=("PERSISTENT", "NON_PERSISTENT", "ALL"),
)


@route("GET", "/topics", query=(_MODE,), answer=list[str], of="namespace", action="lookup", refusals=(404,))
async def topics(call: Call) -> list[str]:
    """List the topics of a namespace."""
    found, mode = topics_of(call), call.query("mode")
    wire = call.server.wire
    listed = EMPTY if wire is None or mode == "PERSISTENT" else wire.non_persistent.listing(call.namespace)
    passing = listed.names
    return [*passing] if mode == "NON_PERSISTENT" else [*found, *passing]
