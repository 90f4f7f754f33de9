"""A server with every method of authentication: files, tokens, and requests as some role."""

from __future__ import annotations

import base64
import http.client
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt

from holdfast._core import frame_command
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.server.auth.passwords import Hash, write_users
from tests.kit.certificates import Authority
from tests.kit.served import Served

SECRET = "the secret of these tests, which no other test uses"
PASSWORD = "sesame, open for these tests"

CONFIG = """
[tls]
certificate = "{pki}/server.pem"
key = "{pki}/server.key"
ca = "{pki}/ca.pem"

[authentication]
methods = ["token", "basic", "tls"]
{anonymous}

[authentication.token]
secret_file = "secret"

[authentication.basic]
users_file = "users"

[authorization]
enabled = true
superusers = ["root"]

[[authorization.grants]]
roles = ["billing", "anna", "carla"]
on = "public/default"
allow = ["produce", "consume"]

[[authorization.grants]]
roles = ["looker", "guest"]
on = "public/default/open-*"
allow = ["consume"]
"""


@dataclass
class World:
    """A directory with all files that a server with all methods needs."""

    directory: Path
    authority: Authority

    def configure(self, anonymous: str = "", extra: str = "") -> str:
        text = CONFIG.format(pki=self.authority.directory, anonymous=anonymous) + extra
        (self.directory / "holdfast.toml").write_text(text)
        return str(self.directory / "holdfast.toml")

    def users(self, **passwords: str) -> None:
        write_users(
            self.directory / "users", {name: Hash.of(each, log_n=4) for name, each in passwords.items()}
        )


def make_world(directory: Path) -> World:
    authority = Authority(directory / "pki")
    authority.certify("server")
    (directory / "secret").write_text(SECRET)
    (directory / "secret").chmod(0o600)
    world = World(directory, authority)
    world.users(anna=PASSWORD)
    return world


def token(role: str, secret: str = SECRET, **claims: Any) -> str:
    return jwt.encode({"sub": role} | claims, secret, algorithm="HS256")


# -- over the Pulsar protocol --------------------------------------------------------------------------


def connect(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.ready["port"]), timeout=10)


def frame(kind: int, **parts: Any) -> bytes:
    return bytes(frame_command(pb.BaseCommand(type=kind, **parts).SerializeToString()))  # type: ignore[arg-type]


def greeting(method: str = "", data: bytes = b"", **more: Any) -> bytes:
    hello = pb.CommandConnect(client_version="test", auth_method_name=method, auth_data=data, **more)
    return frame(pb.BaseCommand.CONNECT, connect=hello)


def told(channel: socket.socket) -> list[pb.BaseCommand]:
    """Return all commands until the server closes."""
    data = b""
    try:
        while part := channel.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    return commands(data)


def commands(data: bytes) -> list[pb.BaseCommand]:
    found = []
    while len(data) >= 8:
        size = int.from_bytes(data[4:8], "big")
        found.append(pb.BaseCommand.FromString(data[8 : 8 + size]))
        data = data[4 + int.from_bytes(data[:4], "big") :]
    return found


# -- over HTTP -----------------------------------------------------------------------------------------


def bearer(role: str, **claims: Any) -> str:
    return f"Bearer {token(role, **claims)}"


def basic(name: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def ask(
    server: Served, method: str, path: str, credentials: str | None = None, body: bytes | None = None
) -> tuple[int, str, http.client.HTTPMessage]:
    channel = http.client.HTTPConnection("127.0.0.1", server.ready["http_port"], timeout=10)
    try:
        channel.request(method, path, body, {} if credentials is None else {"Authorization": credentials})
        answer = channel.getresponse()
        return answer.status, answer.read().decode(), answer.headers
    finally:
        channel.close()


def status(server: Served, method: str, path: str, credentials: str | None = None) -> int:
    return ask(server, method, path, credentials)[0]
