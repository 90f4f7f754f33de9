"""Authenticate clients by tokens, passwords or certificates; the same for both protocols.

Promises upward: only a client with valid credentials gets a role. A refusal says why, without a secret in
it. A check costs the event loop microseconds: a thread hashes the passwords, one at a time. Needs from below:
TLS has verified a certificate before it is passed here.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from holdfast.errors import AuthenticationFailed
from holdfast.server.auth.passwords import Hash, read_users
from holdfast.server.auth.tokens import TokenCheck
from holdfast.server.config import Authentication
from holdfast.system import Clock, SystemClock

ANONYMOUS = "anonymous"
"""The role of all clients of a server without authentication methods."""

ROLE_LENGTH_MAX = 256
HASHES_WAITING_MAX = 100
"""Different passwords that may wait to be checked. More would wait for minutes, or are an attack."""


@dataclass(frozen=True)
class Peer:
    """The other end of a connection."""

    address: str
    certificate: Mapping[str, Any] | None = None
    """The verified certificate, as `ssl.SSLSocket.getpeercert` returns it; None: the client sent none."""


@dataclass(frozen=True)
class Principal:
    """An authenticated client."""

    role: str
    method: str
    """`token`, `basic`, `tls`; `none` for anonymous clients."""
    expires_ns: int | None = None
    """Since the epoch; then the client needs new credentials."""


class Authenticator:
    """Finds the role of a client from its credentials.

    Example:
        >>> import asyncio
        >>> without_methods = Authenticator(Authentication())
        >>> asyncio.run(without_methods.begin("", b"", Peer("127.0.0.1"))).role
        'anonymous'
    """

    def __init__(self, config: Authentication, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._threads: ThreadPoolExecutor | None = None
        self._hashing: dict[bytes, asyncio.Future[bool]] = {}
        self.use(config)

    def use(self, config: Authentication) -> None:
        """Read keys and users, and apply them from now on.

        Raises:
            BadConfiguration: a file cannot be read or is invalid; nothing changes.
        """
        tokens = TokenCheck(config.token) if "token" in config.methods else None
        users: dict[str, Hash] = {}
        if "basic" in config.methods:
            assert config.basic.users_file is not None
            users = read_users(config.basic.users_file)
        self._config, self._tokens, self._users = config, tokens, users
        self._strangers = _strangers(users)
        # Passwords that fit are remembered as sealed digests: each is hashed slowly only once.
        self._seal = secrets.token_bytes(32)
        self._recognised: dict[str, bytes] = {}

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # -- the two protocols -----------------------------------------------------------------------------

    async def begin(self, method: str, data: bytes, peer: Peer) -> Principal:
        """Authenticate a client by a method that it names: token, basic, tls, or any text.

        Raises:
            AuthenticationFailed: the credentials are invalid or missing.
        """
        if method not in self._config.methods:
            return self._anonymous(method)
        if method == "tls":
            return self._certified(peer)
        if method == "token":
            return self._token(data)
        return await self._password(data)

    async def http(self, header: str | None, peer: Peer) -> Principal:
        """Authenticate a request by its header `Authorization`, or else by its certificate.

        Raises:
            AuthenticationFailed: the credentials are invalid or missing.
        """
        if header is None:
            certified = "tls" in self._config.methods and peer.certificate is not None
            return self._certified(peer) if certified else self._anonymous("")
        scheme, _, value = header.strip().partition(" ")
        match scheme.lower():
            case "bearer":
                return await self.begin("token", value.strip().encode(errors="replace"), peer)
            case "basic":
                try:
                    data = base64.b64decode(value.strip(), validate=True)
                except (binascii.Error, ValueError):
                    raise AuthenticationFailed("the text after Basic is not base64") from None
                return await self.begin("basic", data, peer)
        raise AuthenticationFailed("the header Authorization begins with neither Bearer nor Basic")

    @property
    def http_challenge(self) -> str:
        """The header `WWW-Authenticate` of a refusal."""
        schemes = {"token": "Bearer", "basic": 'Basic realm="holdfast", charset="UTF-8"'}
        return ", ".join(schemes[each] for each in self._config.methods if each in schemes) or "Bearer"

    # -- the methods -----------------------------------------------------------------------------------

    def _anonymous(self, method: str) -> Principal:
        role = self._config.anonymous_role or ("" if self._config.methods else ANONYMOUS)
        if role:
            return Principal(role, "none")
        ways = ", ".join(self._config.methods)
        if method in ("", "none"):
            raise AuthenticationFailed(f"this server needs credentials: {ways}")
        raise AuthenticationFailed(f"{method[:32]!r} is not an authentication method here; use {ways}")

    def _certified(self, peer: Peer) -> Principal:
        if peer.certificate is None:
            raise AuthenticationFailed("the method tls needs a client certificate, and the client sent none")
        names = [
            value
            for names in peer.certificate.get("subject", ())
            for kind, value in names
            if kind == "commonName"
        ]
        if len(names) != 1:
            raise AuthenticationFailed(
                f"the certificate has {len(names)} common names; it needs one, which names the role"
            )
        expires = peer.certificate.get("notAfter")
        expires_ns = None if expires is None else ssl.cert_time_to_seconds(expires) * 10**9
        if expires_ns is not None and expires_ns <= self._clock.now_ns():
            raise AuthenticationFailed("the certificate has expired")
        return Principal(_role(names[0]), "tls", expires_ns)

    def _token(self, data: bytes) -> Principal:
        assert self._tokens is not None
        claims = self._tokens.check(data.decode(errors="replace"))
        expires_ns = None if claims.expires_s is None else int(claims.expires_s * 1e9)
        return Principal(_role(claims.role), "token", expires_ns)

    async def _password(self, data: bytes) -> Principal:
        try:
            name, colon, password = data.decode().partition(":")
        except UnicodeDecodeError:
            raise AuthenticationFailed("name and password are not UTF-8") from None
        if not colon:
            raise AuthenticationFailed("the credentials of the method basic are not name:password")
        if not await self._fits(name, password):
            raise AuthenticationFailed("unknown user, or wrong password")
        return Principal(_role(name), "basic")

    async def _fits(self, name: str, password: str) -> bool:
        sign = hmac.digest(self._seal, f"{name}:{password}".encode(errors="surrogatepass"), hashlib.sha256)
        known = self._recognised.get(name)
        if known is not None and hmac.compare_digest(known, sign):
            return True
        looking = self._hashing.get(sign)
        if looking is None:
            if len(self._hashing) >= HASHES_WAITING_MAX:
                raise AuthenticationFailed("too many passwords wait to be checked; try again")
            looking = self._look(name, password, sign)
        return await asyncio.shield(looking)

    def _look(self, name: str, password: str, sign: bytes) -> asyncio.Future[bool]:
        """Hash the password in a thread. An unknown name takes as long as a user."""
        loop = asyncio.get_running_loop()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        user, seal = self._users.get(name), self._seal
        # A name gets the same hash each time, or varying times would reveal that the user does not exist.
        chosen = int.from_bytes(hmac.digest(seal, name.encode(errors="surrogatepass"), hashlib.sha256), "big")
        stranger = self._strangers[chosen % len(self._strangers)]

        def look() -> bool:
            fits = (user or stranger).fits(password)
            return fits and user is not None

        looking = loop.run_in_executor(self._threads, look)
        self._hashing[sign] = looking

        def done(found: asyncio.Future[bool]) -> None:
            self._hashing.pop(sign, None)
            if not found.cancelled() and found.exception() is None and found.result() and seal is self._seal:
                self._recognised[name] = sign

        looking.add_done_callback(done)
        return looking


def _role(name: str) -> str:
    """Refuse a role that could imitate other text in logs and rules."""
    if not name or len(name) > ROLE_LENGTH_MAX or not name.isprintable():
        raise AuthenticationFailed(
            f"the role's name is empty, longer than {ROLE_LENGTH_MAX} characters, or not printable"
        )
    return name


def _strangers(users: Mapping[str, Hash]) -> list[Hash]:
    """Make hashes for unknown names: none fits, and each costs as much as a user's."""
    cheapest = Hash("scrypt", (1, 1, 1), bytes(16), bytes(32))
    return [
        Hash(each.kind, each.cost, secrets.token_bytes(16), secrets.token_bytes(len(each.digest)))
        for each in (users.values() or [cheapest])
    ]
