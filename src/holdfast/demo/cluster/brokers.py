"""A broker on each node: its settings, its process, and what it answers over HTTP."""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from holdfast.demo.cluster.nodes import Nodes
from holdfast.demo.processes import Part

PULSAR_PORT, HTTP_PORT, TRANSFER_PORT = 6650, 8080, 6660
ASK_S = 1.0
"""How long a broker may take to answer."""


class Brokers:
    """Brokers of one cluster, one per node, with their files below a directory.

    `settings` is the configuration of all of them; without it one is written.
    """

    def __init__(self, nodes: Nodes, root: Path, *options: str, settings: Path | None = None) -> None:
        self.nodes, self.root = nodes, root
        (root / "logs").mkdir(parents=True, exist_ok=True)
        self._settings = settings or self._write_settings()
        self.parts = {node: self._part(node, options) for node in nodes.numbers}

    def _write_settings(self) -> Path:
        secret = self.root / "secret"
        secret.touch(mode=0o600)
        secret.write_bytes(os.urandom(32).hex().encode())
        listed = "".join(
            f'[[cluster.nodes]]\nnode = {node}\ntransfer = "{self.nodes.address(node)}:{TRANSFER_PORT}"\n'
            for node in self.nodes.numbers
        )
        text = f'[cluster]\nname = "demo"\nsecret_file = "secret"\n{listed}'
        path = self.root / "holdfast.toml"
        path.write_text(text)
        return path

    def _part(self, node: int, options: tuple[str, ...]) -> Part:
        serve = [sys.executable, "-m", "holdfast.cli", "serve", "--config", str(self._settings)]
        own = ["--data", str(self.data(node)), "--set", f"cluster.node={node}", "--host", "0.0.0.0"]
        ports = ["--port", str(PULSAR_PORT), "--http-port", str(HTTP_PORT)]
        command = self.nodes.command(node, [*serve, *own, *ports, *options])
        return Part("broker", f"broker-{node}", lambda _: command, self.root / "logs" / f"broker-{node}", {})

    def data(self, node: int) -> Path:
        """Return the data directory of a node."""
        return self.root / f"data-{node}"

    def url(self, *first: int) -> str:
        """Return the address of the cluster for clients: all members, these first."""
        order = [*first, *(node for node in self.nodes.numbers if node not in first)]
        return "pulsar://" + ",".join(f"{self.nodes.address(node)}:{PULSAR_PORT}" for node in order)

    def ask(self, node: int, path: str, method: str = "GET", body: Any = None) -> Any:
        """Ask a broker over HTTP, inside a node; a text says why it failed."""
        address = f"http://{self.nodes.address(node)}:{HTTP_PORT}/admin/v2/{path}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(address, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ASK_S) as answer:
                content = answer.read()
                return json.loads(content) if content else {}
        except urllib.error.HTTPError as error:
            return error.read().decode(errors="replace").strip()
        except (OSError, ValueError):
            return "away"

    def serving(self) -> list[int]:
        """Return the nodes whose brokers serve; call it inside a node."""
        return [node for node in self.nodes.numbers if isinstance(self.ask(node, "cluster/status"), dict)]
