"""Checks of authentication and authorization, for tests and for their mutants."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from holdfast.errors import AuthenticationFailed, Denied, TooManyConnections
from holdfast.server.auth.access import Access
from holdfast.server.auth.authentication import HASHES_WAITING_MAX, Authenticator, Peer, Principal
from holdfast.server.auth.authorization import Authorizer
from holdfast.server.auth.passwords import Hash, write_users
from holdfast.server.config import (
    Authentication,
    Authorization,
    Basic,
    Config,
    Grant,
    Limits,
    Secret,
    Tokens,
)
from holdfast.server.limits import ConnectionCount
from tests.kit.certificates import write_public_key

SECRET = "0123456789abcdef0123456789abcdef"


HERE = Peer("127.0.0.1")


TOKENS = Authentication(methods=("token",), token=Tokens(secret=Secret(SECRET)))


def shown(authentication: Authentication, method: str, data: str | bytes, peer: Peer = HERE) -> Principal:
    data = data.encode() if isinstance(data, str) else data
    return asyncio.run(Authenticator(authentication).begin(method, data, peer))


def why(authentication: Authentication, method: str, data: str | bytes, peer: Peer = HERE) -> str:
    with pytest.raises(AuthenticationFailed) as caught:
        shown(authentication, method, data, peer)
    return str(caught.value)


def token(key: Any = SECRET, algorithm: str = "HS256", **claims: Any) -> str:
    return jwt.encode({"sub": "billing"} | claims, key, algorithm=algorithm)


def token_that_is_not_good() -> None:
    now = time.time()
    good = token()
    assert why(TOKENS, "token", token(exp=now - 1)) == "the token has expired"
    assert why(TOKENS, "token", token(nbf=now + 100)) == "the token is not valid yet"
    assert why(TOKENS, "token", token(key=SECRET[::-1])) == "the token was signed with another key"
    assert why(TOKENS, "token", "x" * 20_000) == "the token has 20000 characters; at most 16384 are allowed"
    head, body, sign = good.split(".")
    forged = base64.urlsafe_b64encode(b'{"sub":"root"}').decode().rstrip("=")
    assert why(TOKENS, "token", f"{head}.{forged}.{sign}") == "the token was signed with another key"
    for bad in ("", "x", "..", f"{head}.{body}", f"{head}.{body}.", b"\xff\xfe", good[:-1] + "!"):
        assert "the token" in why(TOKENS, "token", bad), bad


def role_that_a_token_must_name() -> None:
    for role in ("", 7, None, ["root"], "a\nb", "x" * 300):
        assert "role" in why(
            TOKENS, "token", jwt.encode({"sub": role}, SECRET) if role != 7 else raw({"sub": 7})
        )
    assert "names no role in 'sub'" in why(TOKENS, "token", raw({}))


def raw(claims: dict[str, Any], **header: Any) -> str:
    """Return a signed token with claims that a library would refuse to write."""
    return jwt.api_jws.encode(json.dumps(claims).encode(), SECRET, algorithm="HS256", headers=header)


def token_may_not_choose_its_algorithm(tmp_path: Path) -> None:
    """I110: refuse `none`, and a public key used as a secret."""
    assert "signed with" in why(TOKENS, "token", jwt.encode({"sub": "root"}, "", algorithm="none"))
    key = rsa.generate_private_key(65537, 2048)
    public = write_public_key(tmp_path / "rsa.pub", key)
    rs256 = Authentication(methods=("token",), token=Tokens(public_key_file=public))
    header = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(b'{"sub":"root"}').decode().rstrip("=")
    sign = hmac.digest(public.read_bytes(), f"{header}.{body}".encode(), hashlib.sha256)
    confused = f"{header}.{body}.{base64.urlsafe_b64encode(sign).decode().rstrip('=')}"
    assert "not signed with RS256" in why(rs256, "token", confused)
    assert shown(rs256, "token", token(key, "RS256")).role == "billing"


def audience_and_clocks() -> None:
    config = Tokens(secret=Secret(SECRET), audience="holdfast", leeway_s=60)
    strict = Authentication(methods=("token",), token=config)
    assert shown(strict, "token", token(aud="holdfast")).role == "billing"
    assert shown(strict, "token", token(aud=["x", "holdfast"], exp=time.time() - 30)).role == "billing"
    for audience in ({}, {"aud": "other"}):
        assert why(strict, "token", token(**audience)) == "the token has another audience"
    assert shown(TOKENS, "token", token(aud="whoever")).role == "billing"  # no audience is configured


def users(path: Path, **passwords: str) -> Authentication:
    write_users(path, {name: Hash.of(password, log_n=4) for name, password in passwords.items()})
    return Authentication(methods=("basic",), basic=Basic(users_file=path))


def passwords(tmp_path: Path) -> None:
    config = users(tmp_path / "users", anna="sesame", bob="a:b")
    assert shown(config, "basic", "anna:sesame") == Principal("anna", "basic", None)
    assert shown(config, "basic", "bob:a:b").role == "bob"
    wrong = "unknown user, or wrong password"
    for data in ("anna:Sesame", "anna:", "nobody:sesame", ":", "anna:sesame ", "anna:" + "x" * 5000):
        assert why(config, "basic", data) == wrong, data
    assert why(config, "basic", "anna") == "the credentials of the method basic are not name:password"
    assert why(config, "basic", b"\xff:x") == "name and password are not UTF-8"


def a_password_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand connections of one user cost one hash; another password costs its own."""
    config = users(tmp_path / "users", anna="sesame")
    hashed: list[str] = []
    fits = Hash.fits

    def counted(self: Hash, password: str) -> bool:
        hashed.append(password)
        return fits(self, password)

    monkeypatch.setattr(Hash, "fits", counted)

    async def main() -> None:
        authenticator = Authenticator(config)
        peers = [authenticator.begin("basic", b"anna:sesame", HERE) for _ in range(100)]
        assert {each.role for each in await asyncio.gather(*peers)} == {"anna"}
        assert hashed == ["sesame"]
        await authenticator.begin("basic", b"anna:sesame", HERE)
        assert hashed == ["sesame"]
        with pytest.raises(AuthenticationFailed):
            await authenticator.begin("basic", b"anna:other", HERE)
        write_users(tmp_path / "users", {"anna": Hash.of("changed", log_n=4)})
        authenticator.use(config)
        with pytest.raises(AuthenticationFailed):
            await authenticator.begin("basic", b"anna:sesame", HERE)
        assert (await authenticator.begin("basic", b"anna:changed", HERE)).role == "anna"
        authenticator.close()

    asyncio.run(main())


def a_flood_of_passwords_is_refused(tmp_path: Path) -> None:
    config = users(tmp_path / "users", anna="sesame")

    async def main() -> None:
        authenticator = Authenticator(config)
        flood = [
            authenticator.begin("basic", f"anna:{i}".encode(), HERE) for i in range(HASHES_WAITING_MAX + 50)
        ]
        told = [str(each) for each in await asyncio.gather(*flood, return_exceptions=True)]
        assert sum("try again" in each for each in told) == 50
        assert (await authenticator.begin("basic", b"anna:sesame", HERE)).role == "anna"
        authenticator.close()

    asyncio.run(main())


def certificate(*names: str, end: str = "Jan  1 00:00:00 2100 GMT") -> Peer:
    return Peer("127.0.0.1", {"subject": tuple((("commonName", name),) for name in names), "notAfter": end})


def certificates() -> None:
    config = Authentication(methods=("tls",))
    found = shown(config, "tls", "", certificate("billing"))
    assert (found.role, found.method) == ("billing", "tls")
    assert found.expires_ns == 4102444800 * 10**9
    assert "the client sent none" in why(config, "tls", "")
    assert "0 common names" in why(config, "tls", "", certificate())
    assert "2 common names" in why(config, "tls", "", certificate("a", "b"))
    assert "expired" in why(config, "tls", "", certificate("a", end="Jan  1 00:00:00 2000 GMT"))


def nobody() -> None:
    """A method that is not enabled counts as none: anonymous, where that is allowed."""
    assert shown(Authentication(), "", b"").role == "anonymous"
    assert shown(Authentication(), "token", b"whatever").role == "anonymous"
    guests = Authentication(methods=("token",), anonymous_role="guest", token=Tokens(secret=Secret(SECRET)))
    for method in ("", "none", "basic", "athenz"):
        assert shown(guests, method, b"") == Principal("guest", "none", None)
    assert why(guests, "token", b"bad") == "the token is malformed"  # wrong credentials are not anonymous
    assert why(TOKENS, "", b"") == "this server needs credentials: token"
    assert "'athenz' is not an authentication method" in why(TOKENS, "athenz", b"")


GRANTS = Authorization(
    enabled=True,
    superusers=("root",),
    grants=(
        Grant(("billing",), "shop/eu", ("consume",)),
        Grant(("billing", "stock-*"), "shop/eu/orders", ("produce",)),
        Grant(("owner",), "shop", ("admin",)),
        Grant(("*",), "public/*/news.*", ("consume",)),
    ),
)


RULES = Authorizer(GRANTS)


def grants(role: str, action: Any, topic: str, allowed: bool) -> None:
    assert RULES.allows(role, action, f"persistent://{topic}") is allowed


def places_above_a_topic() -> None:
    assert RULES.allows_namespace("billing", "consume", "shop", "eu")
    assert not RULES.allows_namespace("billing", "produce", "shop", "eu")  # granted on one of its topics
    assert RULES.allows_tenant("owner", "admin", "shop")
    assert not RULES.allows_tenant("billing", "consume", "shop")
    assert RULES.allows_broker("root")
    assert not RULES.allows_broker("owner")
    assert RULES.allows_any("stock-7", "persistent://shop/eu/orders")
    assert not RULES.allows_any("stock-7", "persistent://shop/eu/other")
    assert RULES.allows("billing", "consume", "non-persistent://shop/eu/orders")
    assert not RULES.allows("billing", "consume", "non-persistent://other/eu/orders")
    assert not RULES.allows("billing", "consume", "odd://shop/eu/orders")
    assert not RULES.allows("billing", "consume", "non-shop/eu/orders")


def what_the_protocol_asks() -> None:
    access = Access(
        Config(
            authorization=Authorization(enabled=True, grants=(Grant(("billing",), "shop/eu", ("consume",)),))
        )
    )
    access.authorize("billing", "consume", "persistent://shop/eu/orders", "s")
    access.authorize("billing", "lookup", "persistent://shop/eu/orders", "")
    access.authorize("billing", "lookup", "shop/eu", "")
    with pytest.raises(Denied, match="'billing' may not produce to persistent://shop/eu/orders"):
        access.authorize("billing", "produce", "persistent://shop/eu/orders", "")
    for name in ("persistent://shop/us/orders", "shop/us", "shop", ""):
        with pytest.raises(Denied, match=f"'billing' may not look up {name}"):
            access.authorize("billing", "lookup", name, "")
    with pytest.raises(Denied, match="'billing' may not stage entries: it needs a grant of produce"):
        access.authorize("billing", "stage", "", "")
    grants = (Grant(("billing",), "shop/eu/orders", ("produce",)),)
    Access(Config(authorization=Authorization(enabled=True, grants=grants))).authorize(
        "billing", "stage", "", ""
    )
    Access(Config()).authorize("billing", "stage", "", "")


def a_tenants_own_admins() -> None:
    may = Authorizer(Authorization(enabled=True))
    may.admins = lambda tenant: ["keeper"] if tenant == "shop" else []
    assert may.allows("keeper", "admin", "persistent://shop/eu/orders")
    assert may.allows_any("keeper", "persistent://shop/eu/orders")
    assert may.allows_tenant("keeper", "admin", "shop")
    assert not may.allows("keeper", "consume", "persistent://shop/eu/orders")
    assert not may.allows("other", "admin", "persistent://shop/eu/orders")
    assert not may.allows("keeper", "admin", "persistent://shops/eu/orders")
    assert not may.allows_broker("keeper")


def connections_in_all_and_from_one_address() -> None:
    door = ConnectionCount(Limits(connections=4, connections_per_address=2))
    door.enter("a")
    door.enter("a")
    with pytest.raises(TooManyConnections, match="2 connections from a"):
        door.enter("a")
    door.enter("b")
    door.enter("c")
    with pytest.raises(TooManyConnections, match="4 connections"):
        door.enter("d")
    door.leave("a")
    door.enter("d")
    assert (door.count, door.refused) == (4, 2)
    for address in ("a", "b", "c", "d"):
        door.leave(address)
    assert door.count == 0
    assert not door._addresses  # nothing is kept of closed connections
