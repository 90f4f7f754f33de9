"""Find settings of a server that are invalid, or contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields

from holdfast.broker import COUNT_MOST, SECONDS_MOST, BrokerOptions
from holdfast.cluster.corosync import Node, require_name, require_nodes, split_address
from holdfast.errors import HoldfastError
from holdfast.names import topic_name
from holdfast.server.config import (
    TAP_SAMPLES_MAX,
    Authentication,
    Authorization,
    Cluster,
    Config,
    Limits,
    Tap,
)

_SERVICE = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9._-]+")


def conflicts(config: Config) -> list[tuple[str, str]]:
    """List invalid values, and values that contradict each other: (key, why)."""
    return [
        *_listen_conflicts(config),
        *_tls_conflicts(config),
        *_authentication_conflicts(config.authentication),
        *_authorization_conflicts(config.authorization),
        *_limit_conflicts(config.limits),
        *_tap_conflicts(config.taps),
        *_flight_conflicts(config),
        *_cluster_conflicts(config.cluster),
        *_unreplicated_conflicts(config),
        *_broker_conflicts(config.broker),
        *_out_of_bounds(config),
    ]


def _out_of_bounds(config: Config) -> Iterator[tuple[str, str]]:
    """Yield numbers below their declared minimum, or above the maximum of all counters."""
    for section in ("listen", "limits", "ingest", "flight", "cluster"):
        part = getattr(config, section)
        for each in fields(part):
            key, value = f"{section}.{each.name}", getattr(part, each.name)
            if "least" in each.metadata and value < each.metadata["least"]:
                yield key, f"{value} is too small; use {each.metadata['words']}"
            elif isinstance(value, int) and value > COUNT_MOST:
                yield key, f"{value} is too large; use at most {COUNT_MOST}"
            elif isinstance(value, float) and value > SECONDS_MOST:
                yield key, f"{value:g} is too long; use at most {SECONDS_MOST:.0f} seconds"


def _listen_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    listen = config.listen
    if not listen.host:  # the system would listen on every network
        yield "listen.host", "is empty; use 127.0.0.1 for this machine alone, 0.0.0.0 for all networks"
    taken: dict[int, str] = {}
    for name in ("port", "tls_port", "http_port", "https_port"):
        port = getattr(listen, name)
        if port is None or port == 0:
            continue
        if not 0 < port < 65536:
            yield f"listen.{name}", f"{port} is not a port; use 1 to 65535, 0 for any, or off"
        elif port in taken:
            yield f"listen.{name}", f"port {port} is taken by listen.{taken[port]}"
        taken.setdefault(port, name)
    seen: set[str] = set()
    for number, each in enumerate(config.advertised):
        if not each.name or each.name in seen:
            yield (
                f"advertised[{number}].name",
                f"{each.name!r} is empty or used twice; give each its own name",
            )
        seen.add(each.name)
        if not each.url and not each.tls_url:
            yield f"advertised[{number}].name", f"{each.name!r} has neither url nor tls_url"
        for key, url, scheme in (("url", each.url, "pulsar"), ("tls_url", each.tls_url, "pulsar+ssl")):
            if url and not url.startswith(f"{scheme}://"):
                yield f"advertised[{number}].{key}", f"{url!r} does not begin with {scheme}://"


def _tls_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    tls = config.tls
    for name in ("tls_port", "https_port"):
        for key in ("certificate", "key"):
            if getattr(config.listen, name) is not None and getattr(tls, key) is None:
                yield f"listen.{name}", f"needs tls.{key}"
    encrypted = config.listen.tls_port is not None or config.listen.https_port is not None
    if "tls" in config.authentication.methods:
        if tls.ca is None:
            yield (
                "authentication.methods",
                "tls needs tls.ca, the authorities that sign clients' certificates",
            )
        if not encrypted:
            yield "authentication.methods", "tls needs listen.tls_port or listen.https_port"
    if tls.client_certificates == "required" and tls.ca is None:
        yield "tls.client_certificates", "required needs tls.ca, the authorities that sign them"


def _authentication_conflicts(authentication: Authentication) -> Iterator[tuple[str, str]]:
    token = authentication.token
    keys = [key for key in ("secret", "secret_file", "public_key_file") if getattr(token, key) is not None]
    if "token" in authentication.methods and not keys:
        yield (
            "authentication.methods",
            "token needs a key: authentication.token.secret_file or authentication.token.public_key_file",
        )
    if len(keys) > 1:
        yield (
            f"authentication.token.{keys[1]}",
            f"authentication.token.{keys[0]} is set, too; keep one of them",
        )
    if "basic" in authentication.methods and authentication.basic.users_file is None:
        yield "authentication.methods", "basic needs authentication.basic.users_file"
    given = {"token": keys, "basic": ["users_file"] if authentication.basic.users_file else []}
    for method, named in given.items():
        if named and method not in authentication.methods:
            # The setting looks like protection, and would let all clients in.
            words = f"it has no effect: authentication.methods does not name {method}"
            yield f"authentication.{method}.{named[0]}", words
    if len(set(authentication.methods)) < len(authentication.methods):
        yield "authentication.methods", "a method is listed twice; list each once"
    if not 0 <= token.leeway_s <= 3600:
        yield "authentication.token.leeway_s", f"{token.leeway_s} is out of bounds; use 0 to 3600 seconds"
    if not token.role_claim:
        yield "authentication.token.role_claim", "is empty; name a claim of the tokens, such as sub"


def _authorization_conflicts(authorization: Authorization) -> Iterator[tuple[str, str]]:
    for role in authorization.superusers:
        if not role or "*" in role:
            yield "authorization.superusers", f"{role!r} is not the name of one role"
    for number, grant in enumerate(authorization.grants):
        key = f"authorization.grants[{number}]"
        parts = grant.on.split("/", 2)
        if "://" in grant.on or not all(parts):
            words = "write tenant, tenant/namespace or tenant/namespace/topic"
            yield f"{key}.on", f"{grant.on!r} is not a resource; {words}"
        if not grant.roles or not all(grant.roles):
            yield f"{key}.roles", "at least one role, each with a name"
        if not grant.allow:
            yield f"{key}.allow", "is empty; name at least one of produce, consume, admin"


def _limit_conflicts(limits: Limits) -> Iterator[tuple[str, str]]:
    if not 1024 <= limits.message_bytes <= 1 << 30:
        yield "limits.message_bytes", f"{limits.message_bytes} is out of bounds; use 1 KiB to 1 GiB"
    if limits.held_bytes < 4 * limits.frame_bytes:
        words = f"{limits.held_bytes} is too small; use at least four frames of limits.message_bytes"
        yield "limits.held_bytes", words


def _tap_conflicts(taps: tuple[Tap, ...]) -> Iterator[tuple[str, str]]:
    known: set[tuple[str, str]] = set()
    for number, tap in enumerate(taps):
        key = f"taps[{number}]"
        if not _SERVICE.fullmatch(tap.service):
            words = "write service and instance, such as Camera.left"
            yield f"{key}.service", f"{tap.service!r} is not the name of an instance; {words}"
        if not tap.event.isidentifier():
            words = "write its name, such as frame"
            yield f"{key}.event", f"{tap.event!r} is not the name of an event or a field; {words}"
        if not 1 <= tap.max_samples <= TAP_SAMPLES_MAX:
            words = f"use 1 to {TAP_SAMPLES_MAX}"
            yield f"{key}.max_samples", f"{tap.max_samples} is out of bounds; {words}"
        try:
            full = topic_name(tap.topic)
        except HoldfastError as error:
            yield f"{key}.topic", str(error)
            continue
        if (tap.source, full) in known:
            yield f"{key}.topic", f"another tap stores {tap.source} in {full}; keep one of them"
        known.add((tap.source, full))


def _flight_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    flight, listen = config.flight, config.listen
    names = ("port", "tls_port", "http_port", "https_port")
    taken = {getattr(listen, name): f"listen.{name}" for name in names}
    for name in ("port", "tls_port"):
        port = getattr(flight, name)
        if not 0 <= port < 65536:
            yield f"flight.{name}", f"{port} is not a port; use 1 to 65535, or 0 for any"
        elif port and port in taken:
            yield f"flight.{name}", f"port {port} is taken by {taken[port]}"
        taken[port] = f"flight.{name}"
    if "/" in flight.host or "://" in flight.host:
        yield "flight.host", f"{flight.host!r} is not a name or an address alone"


def _cluster_conflicts(cluster: Cluster) -> Iterator[tuple[str, str]]:
    if not cluster.is_member:
        if cluster.nodes:
            yield "cluster.nodes", "has no effect without the id of this node; add --set cluster.node=ID"
        return
    if cluster.node not in [each.node for each in cluster.nodes]:
        yield "cluster.node", f"{cluster.node} is not in cluster.nodes; list every node, this one included"
    try:
        addresses = [split_address(each.transfer) for each in cluster.nodes]
        named = zip(cluster.nodes, addresses, strict=True)
        require_nodes([Node(each.node, host) for each, (host, _) in named], apart=False)
        if len(set(addresses)) < len(addresses):
            yield "cluster.nodes", "two nodes have the same address for transfers; give each its own"
    except HoldfastError as error:
        yield "cluster.nodes", str(error)
    try:
        require_name(cluster.name)
    except HoldfastError as error:
        yield "cluster.name", str(error)
    if cluster.secret_file is None:
        yield "cluster.secret_file", "is missing; holdfast cluster init creates it, the same for all nodes"


def _unreplicated_conflicts(config: Config) -> Iterator[tuple[str, str]]:
    """Yield ports for unreplicated topics that are none, or that this configuration uses otherwise."""
    taken = {
        getattr(part, name): f"{section}.{name}"
        for section, part in (("flight", config.flight), ("listen", config.listen))
        for name in ("port", "tls_port", "http_port", "https_port")
        if hasattr(part, name)
    }
    for name in ("unreplicated_port", "unreplicated_tls_port"):
        port = getattr(config.cluster, name)
        if not 0 <= port < 65536:
            yield f"cluster.{name}", f"{port} is not a port; use 1 to 65535, or 0 for any"
        elif port and port in taken:
            yield f"cluster.{name}", f"port {port} is taken by {taken[port]}"
        taken[port] = f"cluster.{name}"


_POSITIVE = (
    *("roll_bytes", "roll_entries", "roll_age_s", "snapshot_bytes", "snapshot_s"),
    *("housekeeping_s", "reset_timeout_s", "nack_first_s", "nack_most_s", "stage_age_s", "sink_age_s"),
)
"""Options that a server needs above 0. An embedded broker accepts 0, mostly for tests."""


def _broker_conflicts(broker: BrokerOptions) -> list[tuple[str, str]]:
    found = [
        (f"broker.{key}", f"{value} is too small; use more than 0")
        for key in _POSITIVE
        if (value := getattr(broker, key)) <= 0
    ]
    known = {key for key, _ in found}
    beyond = (
        (f"broker.{name}", f"{getattr(broker, name)!r} is out of range; use {possible}")
        for name, possible in broker.conflicts()
    )
    return [*found, *(each for each in beyond if each[0] not in known)]
