"""Who is it? Tokens, names with passwords, certificates; the same for both protocols.

Promises upward: a role is given only to who proved it; what is refused says why, without a secret in it; a
check costs the event loop microseconds, since passwords are hashed in a thread of their own, one at a time.
Needs from below: that TLS has verified a certificate before it is shown here.
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
"""The role of everybody where no method is open."""

ROLE_LENGTH_MAX = 256
HASHES_WAITING_MAX = 100
"""Different passwords that may wait to be looked at. More would wait for minutes, or are an attack."""


@dataclass(frozen=True)
class Peer:
    """The other end of a connection."""

    address: str
    certificate: Mapping[str, Any] | None = None
    """Verified, as `ssl.SSLSocket.getpeercert` tells it; None where none was shown."""


@dataclass(frozen=True)
class Principal:
    """Somebody who is known."""

    role: str
    method: str
    """`token`, `basic`, `tls`; `none` for who is anonymous."""
    expires_ns: int | None = None
    """Since the epoch; what is shown after that must be new."""


class Authenticator:
    """Decides who somebody is, from what they show.

    Example:
        >>> import asyncio
        >>> nobody_asks = Authenticator(Authentication())
        >>> asyncio.run(nobody_asks.begin("", b"", Peer("127.0.0.1"))).role
        'anonymous'
    """

    def __init__(self, config: Authentication, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._threads: ThreadPoolExecutor | None = None
        self._hashing: dict[bytes, asyncio.Future[bool]] = {}
        self.use(config)

    def use(self, config: Authentication) -> None:
        """Read keys and users, and go by them from now on.

        Raises:
            BadConfiguration: a file cannot be read or is wrong; what was in use stays.
        """
        tokens = TokenCheck(config.token) if "token" in config.methods else None
        users: dict[str, Hash] = {}
        if "basic" in config.methods:
            assert config.basic.users_file is not None
            users = read_users(config.basic.users_file)
        self._config, self._tokens, self._users = config, tokens, users
        self._strangers = _strangers(users)
        # What a password is recognised by when it comes again: hashing it once is slow enough.
        self._seal = secrets.token_bytes(32)
        self._recognised: dict[str, bytes] = {}

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    # -- the two protocols -----------------------------------------------------------------------------

    async def begin(self, method: str, data: bytes, peer: Peer) -> Principal:
        """Who is it that shows this? `method` is what the client calls it: token, basic, tls, or anything.

        Raises:
            AuthenticationFailed: what is shown proves nothing.
        """
        if method not in self._config.methods:
            return self._anonymous(method)
        if method == "tls":
            return self._certified(peer)
        if method == "token":
            return self._token(data)
        return await self._password(data)

    async def http(self, header: str | None, peer: Peer) -> Principal:
        """Who is it, by the header `Authorization` of a request? Without one, a certificate will do.

        Raises:
            AuthenticationFailed: what is shown proves nothing.
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
                    raise AuthenticationFailed("what follows Basic is not base64") from None
                return await self.begin("basic", data, peer)
        raise AuthenticationFailed("the header Authorization begins with neither Bearer nor Basic")

    @property
    def http_challenge(self) -> str:
        """What the header `WWW-Authenticate` of a refusal says."""
        schemes = {"token": "Bearer", "basic": 'Basic realm="holdfast", charset="UTF-8"'}
        return ", ".join(schemes[each] for each in self._config.methods if each in schemes) or "Bearer"

    # -- the methods -----------------------------------------------------------------------------------

    def _anonymous(self, method: str) -> Principal:
        role = self._config.anonymous_role or ("" if self._config.methods else ANONYMOUS)
        if role:
            return Principal(role, "none")
        ways = ", ".join(self._config.methods)
        if method in ("", "none"):
            raise AuthenticationFailed(f"credentials are needed here: {ways}")
        raise AuthenticationFailed(f"{method[:32]!r} is no way to prove who you are here; use {ways}")

    def _certified(self, peer: Peer) -> Principal:
        if peer.certificate is None:
            raise AuthenticationFailed("a certificate is needed, and none was shown")
        names = [
            value
            for names in peer.certificate.get("subject", ())
            for kind, value in names
            if kind == "commonName"
        ]
        if len(names) != 1:
            raise AuthenticationFailed(f"the certificate has {len(names)} common names; one names the role")
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
            raise AuthenticationFailed("what is shown is not name:password")
        if not await self._fits(name, password):
            raise AuthenticationFailed("there is no such user, or the password is another")
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
        """In a thread, which computes without the interpreter. A stranger takes as long as a user."""
        loop = asyncio.get_running_loop()
        if self._threads is None:
            self._threads = ThreadPoolExecutor(1, thread_name_prefix="passwords")
        user, seal = self._users.get(name), self._seal
        # The same for a name each time, or its times would tell that nobody has it.
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
    """Roles stand in logs and rules: one that looks like something else is refused."""
    if not name or len(name) > ROLE_LENGTH_MAX or not name.isprintable():
        raise AuthenticationFailed("the role's name is empty, too long, or cannot be printed")
    return name


def _strangers(users: Mapping[str, Hash]) -> list[Hash]:
    """What the passwords of unknown names are compared with: in vain, and as slowly as some user's."""
    nobody = Hash("scrypt", (1, 1, 1), bytes(16), bytes(32))
    return [
        Hash(each.kind, each.cost, secrets.token_bytes(16), secrets.token_bytes(len(each.digest)))
        for each in (users.values() or [nobody])
    ]
