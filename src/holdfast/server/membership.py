"""Make a served broker a member of its cluster, by the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.broker import Broker
from holdfast.cluster import ClusterMember, TcpLink
from holdfast.cluster.corosync import split_address
from holdfast.errors import BadConfiguration, Misuse
from holdfast.group import Group
from holdfast.server.auth.tokens import read_secret
from holdfast.server.config import Config, ServedBroker
from holdfast.server.listening import bracketed

SECRET_BYTES_MIN = 32


def secret_of(config: Config) -> bytes:
    """Read the secret that the nodes of a cluster share.

    Raises:
        BadConfiguration: the file cannot be read, or the secret is too short.
    """
    path = config.cluster.secret_file
    assert path is not None
    try:
        secret = read_secret(path).strip()
    except BadConfiguration:
        raise BadConfiguration(
            f"{path}: the secret of the cluster cannot be read; copy it from another node"
        ) from None
    if len(secret) < SECRET_BYTES_MIN:
        raise BadConfiguration(
            f"{path}: the secret of a cluster has {len(secret)} bytes; use at least {SECRET_BYTES_MIN}"
        )
    return secret


def cluster_member(config: Config) -> ClusterMember:
    """Return the member of this node, which has not joined yet.

    Raises:
        BadConfiguration: the secret cannot be used.
        NotFound: the library of Corosync is not installed.
        Misuse: the data directory is a file, or has other files.
    """
    if config.data is not None:
        Broker.require_directory(config.data)  # else the member would try again for ever
    from holdfast.group.cpg import CpgGroup, load_library  # a broker alone does not need Corosync

    load_library()
    cluster = config.cluster
    nodes = [each.node for each in cluster.nodes]
    link = TcpLink(cluster.node, {each.node: each.transfer for each in cluster.nodes}, secret_of(config))

    def make_group(incarnation: int, view_floor: int) -> Group:
        return CpgGroup(
            name=cluster.name,
            node=cluster.node,
            nodes=nodes,
            incarnation=incarnation,
            view_floor=view_floor,
            evict_s=cluster.evict_s,
        )

    options = config.broker
    if options.cluster == ServedBroker().cluster:  # the name in metrics, and in names of producers
        options = replace(options, cluster=cluster.name)
    return ClusterMember(
        options, config.data, node=cluster.node, nodes=nodes, make_group=make_group, link=link
    )


def facts_of(config: Config, ports: dict[str, int], unreplicated: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    """Return the addresses that this member announces to the others, and so to clients.

    `ports` are the open ones by their names in `listen`, and `unreplicated` those for the unreplicated
    topics. Without an advertised address, the host is that of
    the node's address for transfers: the other nodes reach it there.
    """
    own = next(each for each in config.cluster.nodes if each.node == config.cluster.node)
    host = bracketed(split_address(own.transfer)[0])

    def url(scheme: str, name: str) -> str:
        return f"{scheme}://{host}:{ports[name]}" if name in ports else ""

    first = config.advertised[0] if config.advertised else None
    return {
        "url": first.url if first is not None else url("pulsar", "port"),
        "tls_url": first.tls_url if first is not None else url("pulsar+ssl", "tls_port"),
        "http_url": url("http", "http_port"),
        "https_url": url("https", "https_port"),
        "transfer": own.transfer,
        "listeners": {each.name: (each.url, each.tls_url) for each in config.advertised},
        "unreplicated_ports": unreplicated,
    }


def evict(broker: Broker, node: int) -> None:
    """Continue without a node that is in the view.

    Raises:
        NotFound: no such node is in the view.
        Misuse: it is this node, or the rest would be no majority.
    """
    if node == broker.membership.node:
        raise Misuse(f"node {node} cannot evict itself; use `holdfast cluster leave` there")
    broker.membership.evict(node)


def waiting_words(member: ClusterMember, progress: bool = True) -> str:
    """Say why a member does not serve yet, and what it waits for.

    With `progress`, also how far its copy is.
    """
    status = member.status()
    words = [f"this node is not serving: {status.state}"]
    if status.state == "transferring":
        done = f"{status.received + status.kept:,} of {status.total:,} bytes" if progress else "its state"
        words.append(f"{done} from node {status.donor}")
    if status.waits_for:
        nodes = "node" if len(status.waits_for) == 1 else "nodes"
        words.append(f"waits for {nodes} {', '.join(map(str, status.waits_for))}")
    if status.reason:
        words.append(status.reason)
    return "; ".join(words)


def fetching_words(member: ClusterMember) -> str:
    """Say why a member that serves cannot fetch a ledger; empty: it can."""
    why = member.status().update
    return f"the last ledger could not be fetched: {why}" if why else ""
