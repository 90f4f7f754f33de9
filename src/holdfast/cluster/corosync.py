"""Write the configuration of Corosync for a cluster: nodes, quorum, encryption.

Corosync orders the events of a cluster. Each node runs a daemon, and its broker talks to the daemon of the
same machine. The files are the same on every node.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors import Misuse

NODES_MAX = 31
"""Nodes of a cluster: Corosync is slow above this number, and every node holds every topic."""

TOKEN_MS = 1000
"""Time without a sign of life after which Corosync suspects a node. Below 500, busy machines split."""

TOKEN_ROUNDS = 2
"""Rounds of the token without a message after which it rests until the next one. Corosync's 30 cost a third
of its processor time under load, and brokers that share its cores wait for them."""

AUTHKEY_BYTES = 256

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,126}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Node:
    """A node of a cluster: its id, and its address for the other nodes."""

    id: int
    address: str

    @classmethod
    def from_text(cls, text: str) -> Node:
        """Read `ID=ADDRESS`.

        Raises:
            Misuse: the text is not of this form.

        Example:
            >>> Node.from_text("2=10.0.0.2")
            Node(id=2, address='10.0.0.2')
        """
        number, equals, address = text.partition("=")
        if not equals or not number.strip().isdecimal():
            raise Misuse(f"{text!r} is not a node; write ID=ADDRESS, such as 1=10.0.0.1")
        return cls(int(number), address.strip())


def require_name(name: str) -> None:
    """Raise Misuse if the name is not that of a cluster."""
    if not _NAME.fullmatch(name):
        raise Misuse(f"{name!r} is not the name of a cluster; use letters, digits, '-', '_' and '.'")


def split_address(text: str) -> tuple[str, int]:
    """Split `host:port`; an IPv6 address is in brackets.

    Raises:
        Misuse: the text is not of this form.

    Example:
        >>> split_address("10.0.0.2:6660"), split_address("[fd00::2]:6660")
        (('10.0.0.2', 6660), ('fd00::2', 6660))
    """
    host, colon, port = text.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Misuse(f"{text!r} is not an address with a port; write HOST:PORT, such as 10.0.0.1:6660")
    return host, int(port)


def require_nodes(nodes: Sequence[Node], apart: bool = True) -> None:
    """Refuse nodes that cannot form a cluster. `apart`: each has its own address.

    Raises:
        Misuse: too few or too many nodes, or an id or address that is invalid or used twice.
    """
    if not 1 <= len(nodes) <= NODES_MAX:
        raise Misuse(f"{len(nodes)} nodes; a cluster has 1 to {NODES_MAX}")
    for node in nodes:
        if not 1 <= node.id < 1 << 31:
            raise Misuse(f"{node.id} is not the id of a node; use 1 to {(1 << 31) - 1}")
        if not _is_address(node.address):
            raise Misuse(f"{node.address!r} is not the address of node {node.id}; use an address or a name")
        if len(nodes) > 1 and apart and _is_local(node.address):
            raise Misuse(
                f"{node.address!r} is not an address of node {node.id} for the other nodes; "
                "use that of its network"
            )
    if apart and len({":" in node.address for node in nodes if _is_ip(node.address)}) > 1:
        raise Misuse("some nodes have an IPv4 and some an IPv6 address; use one kind for all, or names")
    ids, addresses = [str(node.id) for node in nodes], [node.address for node in nodes]
    for what, values in (("id", ids), ("address", addresses if apart else [])):
        twice = sorted({each for each in values if values.count(each) > 1})
        if twice:
            raise Misuse(f"two nodes have the {what} {twice[0]}; give each its own")


def corosync_conf(
    name: str, nodes: Sequence[Node], *, encrypted: bool = True, token_ms: int = TOKEN_MS, log: str = ""
) -> str:
    """Return the text of `corosync.conf` for a cluster.

    Encrypted traffic needs the same `authkey` beside it on every node. `log` is the path of a log file.
    Without it, Corosync writes to the system's log.

    Raises:
        Misuse: the name or a node is invalid.

    Example:
        >>> text = corosync_conf("rig", [Node(1, "10.0.0.1"), Node(2, "10.0.0.2"), Node(3, "10.0.0.3")])
        >>> "expected_votes: 3" in text, "crypto_cipher: aes256" in text
        (True, True)
    """
    require_name(name)
    require_nodes(nodes)
    cipher, digest = ("aes256", "sha256") if encrypted else ("none", "none")
    logging = f"to_logfile: yes\n    logfile: {log}\n    to_syslog: no" if log else "to_syslog: yes"
    listed = "\n".join(
        f"    node {{\n        name: node{node.id}\n        nodeid: {node.id}\n"
        f"        ring0_addr: {node.address}\n    }}"
        for node in nodes
    )
    return f"""\
# Written by holdfast cluster init. The same file is on every node.
totem {{
    version: 2
    cluster_name: {name}
    transport: knet
    crypto_cipher: {cipher}
    crypto_hash: {digest}
    token: {token_ms}
    seqno_unchanged_const: {TOKEN_ROUNDS}
}}
nodelist {{
{listed}
}}
quorum {{
    provider: corosync_votequorum
    expected_votes: {len(nodes)}
}}
system {{
    sched_rr: no
    move_to_root_cgroup: no
    allow_knet_handle_fallback: yes
}}
logging {{
    to_stderr: no
    {logging}
    timestamp: on
}}
"""


def _is_address(text: str) -> bool:
    return _is_ip(text) or (bool(_HOST.fullmatch(text)) and not text.replace(".", "").isdecimal())


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_local(text: str) -> bool:
    """Return whether an address is of no use for other machines."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return text == "localhost"
    return address.is_loopback or address.is_unspecified or address.is_multicast
