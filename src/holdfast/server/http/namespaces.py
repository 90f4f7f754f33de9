"""Administer tenants and namespaces."""

from __future__ import annotations

from typing import Any

from holdfast.errors import NotFound
from holdfast.server.http.answers import NamespaceAnswer, NamespaceBody, TenantBody
from holdfast.server.http.policies import retention_of, retention_policies, ttl_of, ttl_policies
from holdfast.server.http.routing import Call, Parameter, Routes
from holdfast.server.http.topics import FORCE, topics_of

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
    await call.broker.admin.create_tenant(call.tenant, body.admin_roles, body.allowed_clusters)


@of_tenant("POST", "", body=TenantBody, refusals=(404,))
async def update_tenant(call: Call) -> None:
    """Replace the admin roles and clusters of a tenant."""
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


@route("GET", "", answer=NamespaceAnswer, of="namespace", refusals=(404,))
async def namespace(call: Call) -> NamespaceAnswer:
    """Return the policies of a namespace."""
    policies = call.broker.admin.namespace_policies(call.namespace)
    return NamespaceAnswer(
        replication_clusters=[call.broker.options.cluster],
        retention_policies=retention_of(policies),
        message_ttl_in_seconds=ttl_of(policies),
        deduplicationEnabled=policies.deduplication,
    )


@route("PUT", "", body=NamespaceBody, body_optional=True, refusals=(404, 409))
async def create(call: Call) -> None:
    """Create a namespace. Existing topics with its name belong to it from now on."""
    body: NamespaceBody = call.body or NamespaceBody()
    policies: dict[str, Any] = {
        **retention_policies(body.retention_policies),
        **ttl_policies(body.message_ttl_in_seconds),
        "deduplication": body.deduplicationEnabled,
    }
    await call.broker.admin.create_namespace(call.namespace, **policies)


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
    passing = [] if wire is None or mode == "PERSISTENT" else wire.non_persistent.names(call.namespace)
    return passing if mode == "NON_PERSISTENT" else [*found, *passing]
