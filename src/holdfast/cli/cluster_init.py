"""`holdfast cluster init`: write the files of a new cluster, and tell what to run."""

from __future__ import annotations

import argparse
import os
import secrets
from pathlib import Path

from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, Usage, bare_command, count, declare
from holdfast.cluster.corosync import AUTHKEY_BYTES, TOKEN_MS, Node, corosync_conf
from holdfast.errors import Exists, HoldfastError, Misuse

TRANSFER_PORT = 6660
CLIENT_PORTS = (6650, 8080)
PORT_MAX = 65_535
SECRET_BYTES = 64

DESCRIPTION = """\
Writes the files of a new cluster into a directory: corosync.conf and its authkey
for Corosync, which orders the events of the cluster, and holdfast.toml and its
secret for the brokers. Copy the directory to every node; it is the same on all.

Each node has one vote. A cluster of three goes on without one node, a cluster of
five without two. Two nodes survive no failure: if one is lost, the other stops.

Example:

  holdfast cluster init --to cluster/ 1=10.0.0.1 2=10.0.0.2 3=10.0.0.3"""


def add(verbs: Subparsers) -> None:
    parser, _ = bare_command(verbs, "init", "write the files of a new cluster", DESCRIPTION, init)
    declare(
        parser, types={"to": Path, "nodes": node, "token": count}, name="holdfast", port=TRANSFER_PORT
    )("""
        nodes ID=ADDRESS...: each node's id and address
        --to! DIR: directory of the files; created if missing
        --name NAME: name of the cluster (default holdfast)
        --port N: port for the transfer of state (default 6660)
        --user UID: the user that runs the broker, if it is not root
        --token MS: time without a sign of life until Corosync suspects a node (default 1000)
        --plain: do not encrypt the traffic of Corosync
        """)


def node(text: str) -> Node:
    """A node, as ID=ADDRESS."""
    try:
        return Node.from_text(text)
    except HoldfastError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def init(options: argparse.Namespace) -> int:
    nodes, to = options.nodes, options.to
    if not 1 <= options.port <= PORT_MAX:
        raise Usage(f"--port {options.port} is not a port; use 1 to {PORT_MAX}")
    if options.port in CLIENT_PORTS:  # the brokers listen there on all addresses
        raise Usage(
            f"--port {options.port} is the port for clients; use another one, such as {TRANSFER_PORT}"
        )
    try:
        token_ms = options.token or TOKEN_MS
        conf = corosync_conf(options.name, nodes, encrypted=not options.plain, token_ms=token_ms)
    except Misuse as error:
        raise Usage(str(error)) from None
    files: dict[str, bytes] = {"corosync.conf": conf.encode()}
    if not options.plain:
        files["authkey"] = secrets.token_bytes(AUTHKEY_BYTES)
    files["holdfast.toml"] = settings_text(options.name, nodes, options.port).encode()
    files["secret"] = secrets.token_hex(SECRET_BYTES).encode() + b"\n"
    if options.user is not None:
        files["uidgid"] = f"uidgid {{\n    uid: {options.user}\n}}\n".encode()
    to.mkdir(parents=True, exist_ok=True)
    there = [name for name in files if (to / name).exists()]
    if there:
        raise Exists(f"{to} has {', '.join(there)} already: a cluster may use them; choose another directory")
    for name, content in files.items():
        with os.fdopen(os.open(to / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(content)
    return tell(options, {"directory": str(to), "files": sorted(files)}, instructions(to, nodes, files))


def settings_text(name: str, nodes: list[Node], port: int) -> str:
    """Return the settings of the brokers, without the node's own id."""
    listed = "\n".join(
        f'[[cluster.nodes]]\nnode = {each.id}\ntransfer = "{bracketed(each.address)}:{port}"\n'
        for each in nodes
    )
    return f"""\
# Settings of all brokers of the cluster {name}. The node's own id is set where it starts:
# holdfast serve --config holdfast.toml --data DIR --set cluster.node=1

[listen]
host = "{"::" if is_ipv6(nodes) else "0.0.0.0"}"

[cluster]
name = "{name}"
secret_file = "secret"

{listed}"""


def is_ipv6(nodes: list[Node]) -> bool:
    """Return whether the nodes have IPv6 addresses."""
    return any(":" in each.address for each in nodes)


def bracketed(address: str) -> str:
    """Return an address as it stands before a port: IPv6 in brackets."""
    return f"[{address}]" if ":" in address else address


def instructions(to: Path, nodes: list[Node], files: dict[str, bytes]) -> str:
    """Say what to run on each node."""
    copied = " ".join(name for name in ("corosync.conf", "authkey") if name in files)
    lines = [
        f"{to}: {', '.join(sorted(files))}",
        "",
        f"Copy {to} to every node; it is the same on all. Only root, and the broker's user, may read it.",
        "On each node, once, as root:",
        "",
        "  apt-get install --no-install-recommends corosync libcpg4",
        f"  cp {copied} /etc/corosync/",
    ]
    if "uidgid" in files:
        lines.append("  cp uidgid /etc/corosync/uidgid.d/holdfast")
    lines += ["  systemctl restart corosync", "", "Then start its broker, with the node's own id:", ""]
    lines += [
        f"  holdfast serve --config holdfast.toml --data DIR --set cluster.node={each.id:<4} # {each.address}"
        for each in nodes
    ]
    asked = " --server http://[::1]:8080" if is_ipv6(nodes) else ""
    if len(nodes) < 3:
        lines += ["", f"NOTE: a cluster of {len(nodes)} survives the loss of no node; use three or more."]
    lines += [
        "",
        "NOTE: the brokers listen on all addresses, and clients need no authentication. Use a private",
        "network, or set authentication.* in holdfast.toml before the first start.",
    ]
    lines += [
        "",
        f"A new cluster begins when all of its nodes are there. `holdfast cluster status{asked}` tells.",
        f"Clients name all nodes: pulsar://{','.join(f'{bracketed(each.address)}:6650' for each in nodes)}",
    ]
    return "\n".join(lines)
