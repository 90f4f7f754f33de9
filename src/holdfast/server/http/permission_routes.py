"""Administer permissions of roles, and the one cluster of a namespace.

As in Pulsar, the administrators of a tenant grant permissions; other roles cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from holdfast.broker import PermittedAction
from holdfast.errors import Misuse
from holdfast.server.http.answers import Roles
from holdfast.server.http.refusals import Refusal
from holdfast.server.http.routing import Call, Routes
from holdfast.server.http.topics import NAMESPACE

route = Routes("permissions", "/admin/v2/namespaces/{tenant}/{namespace}", "tenant")
of_topic = Routes("permissions", NAMESPACE + "/{topic}", "tenant", partitioned="whole")
clusters = Routes("clusters", "/admin/v2/namespaces/{tenant}/{namespace}", "namespace")
clusters_of_topic = Routes("clusters", NAMESPACE + "/{topic}", "topic", partitioned="first")

Permitted = dict[str, list[str]]
Actions = list[PermittedAction]
Mode = Literal["None", "Prefix"]


def require_authorization(call: Call) -> None:
    """Refuse a grant that would have no effect, as Pulsar does.

    Raises:
        Refusal: every client may do everything here.
    """
    if not call.server.options.authorizes:
        reason = "authorization is not enabled here, and a permission has no effect"
        raise Refusal(501, f"{reason}; set authorization.enabled, and restart the server")


# -- namespaces ----------------------------------------------------------------------------------------


@route("GET", "/permissions", answer=Permitted, refusals=(404,))
async def permissions(call: Call) -> Permitted:
    """Return the actions of each role in a namespace, without grants of the configuration."""
    return call.broker.admin.permissions(call.namespace)


@route("GET", "/permissions/subscription", answer=Permitted, refusals=(404,))
async def subscription_roles(call: Call) -> Permitted:
    """Return the roles that alone may consume from subscriptions, by subscription."""
    return call.broker.admin.subscription_roles(call.namespace)


@route("POST", "/permissions/subscription/{subscription}", body=Roles, refusals=(404, 501))
async def set_subscription_roles(call: Call) -> None:
    """Let only these roles consume from subscriptions of this name."""
    require_authorization(call)
    await call.broker.admin.set_subscription_roles(call.namespace, call["subscription"], call.body)


@route("POST", "/permissions/{role}", body=Actions, refusals=(404, 501))
async def permit(call: Call) -> None:
    """Replace the actions of a role in a namespace; close clients without the right."""
    require_authorization(call)
    await call.broker.admin.permit(call.namespace, call["role"], call.body)


@route("DELETE", "/permissions/{role}", refusals=(404,))
async def forbid(call: Call) -> None:
    """Revoke the permissions of a role in a namespace; close clients without the right."""
    await call.broker.admin.permit(call.namespace, call["role"], [])


@route("DELETE", "/permissions/{subscription}/{role}", refusals=(404,))
async def drop_subscription_role(call: Call) -> None:
    """Remove a role from those of a subscription; after the last, all may consume."""
    await call.broker.admin.drop_subscription_role(call.namespace, call["subscription"], call["role"])


@route("GET", "/subscriptionAuthMode", answer=Mode, refusals=(404,))
async def auth_mode(call: Call) -> Mode:
    """Return Prefix if subscriptions must begin with the role of their consumers, else None."""
    return "Prefix" if call.broker.admin.is_prefixed(call.namespace) else "None"


@route("POST", "/subscriptionAuthMode", body=Mode, refusals=(404, 501))
async def set_auth_mode(call: Call) -> None:
    """Set whether subscriptions must begin with the role of their consumers."""
    if call.body == "Prefix":
        require_authorization(call)
    await call.broker.admin.set_prefixed(call.namespace, call.body == "Prefix")


# -- topics --------------------------------------------------------------------------------------------


@of_topic("GET", "/permissions", answer=Permitted, refusals=(404,), anywhere=True)
async def topic_permissions(call: Call) -> Permitted:
    """Return the actions of each role on a topic, with those of its namespace."""
    return call.broker.admin.permissions(call.topic_name)


@of_topic("POST", "/permissions/{role}", body=Actions, refusals=(404, 501), anywhere=True)
async def permit_on_topic(call: Call) -> None:
    """Replace the actions of a role on a topic, which need not exist yet."""
    require_authorization(call)
    await call.broker.admin.permit(call.topic_name, call["role"], call.body)


@of_topic("DELETE", "/permissions/{role}", refusals=(404,), anywhere=True)
async def forbid_on_topic(call: Call) -> None:
    """Revoke the permissions of a role on a topic; those on its namespace stay."""
    await call.broker.admin.permit(call.topic_name, call["role"], [])


# -- the one cluster -----------------------------------------------------------------------------------


def require_here(call: Call, clusters: Sequence[str]) -> None:
    """Refuse other clusters than this.

    Raises:
        Misuse: the text names the cluster.
    """
    here = call.broker.options.cluster
    if others := sorted({*clusters} - {here}):
        raise Misuse(
            f"{', '.join(others)}: replication between clusters is not supported, and this server belongs to "
            f"the cluster {here}; name no other"
        )


def _here(call: Call) -> list[str]:
    return [call.broker.options.cluster]


@clusters("GET", "/replication", answer=list[str], refusals=(404,))
async def replication(call: Call) -> list[str]:
    """Return the clusters of a namespace: this one."""
    call.broker.admin.namespace_policies(call.namespace)
    return _here(call)


@clusters("POST", "/replication", body=Roles, refusals=(404,))
async def set_replication(call: Call) -> None:
    """Accept this cluster, and refuse others (412)."""
    call.broker.admin.namespace_policies(call.namespace)
    require_here(call, call.body)


@clusters("GET", "/allowedClusters", answer=list[str], refusals=(404,))
async def allowed_clusters(call: Call) -> list[str]:
    """Return the clusters to which a namespace may be replicated: this one."""
    return await replication(call)


@clusters("POST", "/allowedClusters", body=Roles, refusals=(404,))
async def set_allowed_clusters(call: Call) -> None:
    """Accept this cluster, and refuse others (412)."""
    await set_replication(call)


@clusters_of_topic("GET", "/replication", answer=list[str], refusals=(404,))
async def topic_replication(call: Call) -> list[str]:
    """Return the clusters of a topic: this one."""
    _ = call.topic
    return _here(call)


@clusters_of_topic("POST", "/replication", body=Roles, refusals=(404,))
async def set_topic_replication(call: Call) -> None:
    """Accept this cluster, and refuse others (412)."""
    _ = call.topic
    require_here(call, call.body)


@clusters_of_topic("DELETE", "/replication", refusals=(404,))
async def drop_topic_replication(call: Call) -> None:
    """Do nothing: a topic is in this cluster."""
    _ = call.topic
