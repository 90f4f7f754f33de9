"""Serve the cluster: its status, members, queues and options; leave it, or evict a member."""

from __future__ import annotations

from holdfast.broker import Setting
from holdfast.names import topic_name
from holdfast.server.cluster_view import ClusterStatus, ClusterView, MemberStatus, Queue, queues
from holdfast.server.http.refusals import Refusal
from holdfast.server.http.routing import Call, Routes

route = Routes("cluster", "/admin/v2/cluster", "broker")

ALONE = "this broker is not a member of a cluster; set cluster.node in its configuration, and restart it"


@route("GET", "/status", answer=ClusterStatus, refusals=(409,))
async def status(call: Call) -> ClusterStatus:
    """Return the cluster as this member sees it. A broker alone answers 409."""
    return _cluster(call).status()


@route("GET", "/members", answer=list[MemberStatus], refusals=(409,))
async def members(call: Call) -> list[MemberStatus]:
    """List the nodes of the cluster, present or not."""
    return _cluster(call).members()


@route("GET", "/queues", answer=list[Queue], refusals=(409,))
async def owners(call: Call) -> list[Queue]:
    """List all topics with the owners of their subscriptions."""
    _cluster(call)
    return await queues(call.broker)


@route("POST", "/options", body=dict[str, Setting], refusals=(409,))
async def set_options(call: Call) -> None:
    """Change options that all members share: names and values."""
    _cluster(call)
    await call.broker.membership.set_options(call.body)


@route("POST", "/leave", refusals=(409,))
async def leave(call: Call) -> None:
    """Let this member leave the cluster in order. Its server stops."""
    await _cluster(call).leave()


@route("POST", "/evict/{node}", refusals=(404, 409))
async def evict(call: Call) -> None:
    """Let the cluster continue without a node. The node may join again."""
    await _cluster(call).evict(call["node"])


@route("POST", "/free", body=str, refusals=(404, 409))
async def free(call: Call) -> None:
    """Free the name of an unreplicated topic or exchange whose node is absent."""
    _cluster(call)
    await call.broker.unreplicated.free(topic_name(call.body))


def _cluster(call: Call) -> ClusterView:
    found = call.server.options.cluster
    if found is None:
        raise Refusal(409, ALONE)
    return found
