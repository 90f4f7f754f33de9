"""Who somebody is, what they may do, and how many may come: each part by itself."""

from __future__ import annotations

import asyncio
import base64
import doctest
import hashlib
import hmac
import importlib
import io
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.cli import main
from holdfast.errors import AuthenticationFailed, BadConfiguration, Denied, Misuse, TooManyConnections
from holdfast.wire import tls
from holdfast.wire.access import Access
from holdfast.wire.auth import HASHES_WAITING_MAX, Authenticator, Peer, Principal
from holdfast.wire.authorization import Authorizer
from holdfast.wire.config import (
    Authentication,
    Authorization,
    Basic,
    Config,
    Grant,
    Limits,
    Secret,
    Tls,
    Tokens,
)
from holdfast.wire.limits import Admission
from holdfast.wire.passwords import Hash, read_users, write_users
from tests.kit.certificates import DAY, Authority, elliptic, write_key, write_public_key
from tests.kit.command import follow, sessions

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


# -- tokens -------------------------------------------------------------------------------------------


def test_token_names_the_role() -> None:
    assert shown(TOKENS, "token", token()) == Principal("billing", "token", None)
    end = int(time.time()) + 100
    assert shown(TOKENS, "token", token(exp=end)).expires_ns == end * 10**9
    other = Authentication(methods=("token",), token=Tokens(secret=Secret(SECRET), role_claim="who"))
    assert shown(other, "token", token(who="anna")).role == "anna"


def test_token_that_is_not_good() -> None:
    now = time.time()
    good = token()
    assert why(TOKENS, "token", token(exp=now - 1)) == "the token has expired"
    assert why(TOKENS, "token", token(nbf=now + 100)) == "the token is not valid yet"
    assert why(TOKENS, "token", token(key=SECRET[::-1])) == "the token was signed with another key"
    assert why(TOKENS, "token", "x" * 20_000) == "the token is too long"
    head, body, sign = good.split(".")
    forged = base64.urlsafe_b64encode(b'{"sub":"root"}').decode().rstrip("=")
    assert why(TOKENS, "token", f"{head}.{forged}.{sign}") == "the token was signed with another key"
    for bad in ("", "x", "..", f"{head}.{body}", f"{head}.{body}.", b"\xff\xfe", good[:-1] + "!"):
        assert "the token" in why(TOKENS, "token", bad), bad


def test_role_that_a_token_must_name() -> None:
    for role in ("", 7, None, ["root"], "a\nb", "x" * 300):
        assert "role" in why(
            TOKENS, "token", jwt.encode({"sub": role}, SECRET) if role != 7 else raw({"sub": 7})
        )
    assert "names no role in 'sub'" in why(TOKENS, "token", raw({}))


def raw(claims: dict[str, Any], **header: Any) -> str:
    """Signed, and with claims that a library would not write."""
    return jwt.api_jws.encode(json.dumps(claims).encode(), SECRET, algorithm="HS256", headers=header)


def test_token_may_not_choose_its_algorithm(tmp_path: Path) -> None:
    """I110: neither none, nor the public key taken for a secret."""
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


def test_token_of_an_elliptic_key(tmp_path: Path) -> None:
    key = elliptic()
    config = Tokens(public_key_file=write_public_key(tmp_path / "ec.pub", key))
    es256 = Authentication(methods=("token",), token=config)
    assert shown(es256, "token", token(key, "ES256")).role == "billing"
    assert why(es256, "token", token(elliptic(), "ES256")) == "the token was signed with another key"


def test_audience_and_clocks() -> None:
    config = Tokens(secret=Secret(SECRET), audience="holdfast", leeway_s=60)
    strict = Authentication(methods=("token",), token=config)
    assert shown(strict, "token", token(aud="holdfast")).role == "billing"
    assert shown(strict, "token", token(aud=["x", "holdfast"], exp=time.time() - 30)).role == "billing"
    for audience in ({}, {"aud": "other"}):
        assert why(strict, "token", token(**audience)) == "the token is meant for somebody else"
    assert shown(TOKENS, "token", token(aud="whoever")).role == "billing"  # nobody asked for one


def test_keys_that_cannot_be(tmp_path: Path) -> None:
    def refuses(**config: Any) -> str:
        with pytest.raises(BadConfiguration) as caught:
            Authenticator(Authentication(methods=("token",), token=Tokens(**config)))
        return str(caught.value)

    assert "can be guessed" in refuses(secret=Secret("short"))
    assert "cannot be read" in refuses(secret_file=tmp_path / "nowhere")
    (tmp_path / "b64").write_text("base64:***")
    assert "is not base64" in refuses(secret_file=tmp_path / "b64")
    (tmp_path / "x").write_text("x")
    assert "is not a public key" in refuses(public_key_file=tmp_path / "x")
    private = write_key(tmp_path / "private", elliptic())
    assert "this is a private key" in refuses(public_key_file=private)
    weak = write_public_key(tmp_path / "weak", rsa.generate_private_key(65537, 1024))
    assert "1024 bits" in refuses(public_key_file=weak)
    curve = write_public_key(tmp_path / "curve", ec.generate_private_key(ec.SECP384R1()))
    assert "P-256" in refuses(public_key_file=curve)


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
def test_nothing_that_is_shown_does_worse_than_to_be_refused(data: bytes) -> None:
    authenticator = Authenticator(TOKENS)
    for method in ("token", "basic", "", "nonsense"):
        with pytest.raises(AuthenticationFailed):
            asyncio.run(authenticator.begin(method, data, HERE))


@settings(max_examples=200, deadline=None)
@given(
    claims=st.dictionaries(
        st.sampled_from(["sub", "exp", "nbf", "iat", "aud", "iss", "jti"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.integers(), max_size=2),
    ),
    header=st.dictionaries(
        st.sampled_from(["crit", "kid", "b64", "typ", "x5u"]), st.none() | st.booleans() | st.text(max_size=5)
    ),
)
def test_no_claims_do_worse_than_to_be_refused(claims: dict[str, Any], header: dict[str, Any]) -> None:
    try:
        made = raw(claims, **header)
    except Exception:  # not even a library that makes tokens takes it
        return
    try:
        found = shown(TOKENS, "token", made)
    except AuthenticationFailed:
        return
    assert found.role == claims["sub"]


# -- passwords ----------------------------------------------------------------------------------------


def users(path: Path, **passwords: str) -> Authentication:
    write_users(path, {name: Hash.of(password, log_n=4) for name, password in passwords.items()})
    return Authentication(methods=("basic",), basic=Basic(users_file=path))


def test_passwords(tmp_path: Path) -> None:
    config = users(tmp_path / "users", anna="sesame", bob="a:b")
    assert shown(config, "basic", "anna:sesame") == Principal("anna", "basic", None)
    assert shown(config, "basic", "bob:a:b").role == "bob"
    wrong = "there is no such user, or the password is another"
    for data in ("anna:Sesame", "anna:", "nobody:sesame", ":", "anna:sesame ", "anna:" + "x" * 5000):
        assert why(config, "basic", data) == wrong, data
    assert why(config, "basic", "anna") == "what is shown is not name:password"
    assert why(config, "basic", b"\xff:x") == "name and password are not UTF-8"


def test_a_file_of_users_is_for_its_owner_alone(tmp_path: Path) -> None:
    users(tmp_path / "users", anna="sesame")
    assert (tmp_path / "users").stat().st_mode & 0o777 == 0o600
    assert "sesame" not in (tmp_path / "users").read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["users"]


def test_lines_that_cannot_be(tmp_path: Path) -> None:
    good = Hash.of("x", log_n=4)
    lines = {
        "anna": "a line is name:hash",
        "anna:secret": "not a hash that is known here",
        "anna:$apr1$x$y": "not a hash that is known here",
        f"anna:{good}\nanna:{good}": "users:2: anna is there twice",
        f" #:{good}": "cannot name a user",
        "anna:$scrypt$ln=40,r=8,p=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdA": "scrypt that takes more than",
        "anna:$scrypt$r=8,ln=4,p=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdA": "in this order",
        "anna:$pbkdf2-sha256$i=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdA": "1,000 to",
        "anna:$scrypt$ln=4,r=8,p=1$!!!$c2FsdHNhbHRzYWx0c2FsdA": "base64",
        "anna:$scrypt$ln=4,r=8,p=1$c2Fs$c2FsdHNhbHRzYWx0c2FsdA": "at least 8 bytes",
    }
    for text, words in lines.items():
        (tmp_path / "users").write_text(text)
        with pytest.raises(BadConfiguration) as caught:
            read_users(tmp_path / "users")
        assert words in str(caught.value)
        assert f"{tmp_path}/users:" in str(caught.value)
    with pytest.raises(BadConfiguration, match="cannot be read"):
        read_users(tmp_path / "nowhere")


def test_both_kinds_of_hash() -> None:
    salt = b"0123456789abcdef"
    digest = hashlib.pbkdf2_hmac("sha256", b"password", salt, 1000)
    text = f"$pbkdf2-sha256$i=1000${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
    assert Hash.parse(text).fits("password")
    assert not Hash.parse(text).fits("Password")
    assert Hash.parse(str(Hash.parse(text))) == Hash.parse(text)
    assert Hash.of("x", log_n=4).salt != Hash.of("x", log_n=4).salt
    with pytest.raises(Misuse):
        Hash.parse("$md5$x=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdA")


def test_a_password_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand connections or requests of one user cost one hash; another password costs its own."""
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


def test_a_flood_of_passwords_is_refused(tmp_path: Path) -> None:
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


# -- certificates, nobody, HTTP -----------------------------------------------------------------------


def certificate(*names: str, end: str = "Jan  1 00:00:00 2100 GMT") -> Peer:
    return Peer("127.0.0.1", {"subject": tuple((("commonName", name),) for name in names), "notAfter": end})


def test_certificates() -> None:
    config = Authentication(methods=("tls",))
    found = shown(config, "tls", "", certificate("billing"))
    assert (found.role, found.method) == ("billing", "tls")
    assert found.expires_ns == 4102444800 * 10**9
    assert "none was shown" in why(config, "tls", "")
    assert "0 common names" in why(config, "tls", "", certificate())
    assert "2 common names" in why(config, "tls", "", certificate("a", "b"))
    assert "expired" in why(config, "tls", "", certificate("a", end="Jan  1 00:00:00 2000 GMT"))


def test_nobody() -> None:
    """A method that is not open is as none: anonymous, where somebody may be that."""
    assert shown(Authentication(), "", b"").role == "anonymous"
    assert shown(Authentication(), "token", b"whatever").role == "anonymous"
    guests = Authentication(methods=("token",), anonymous_role="guest", token=Tokens(secret=Secret(SECRET)))
    for method in ("", "none", "basic", "athenz"):
        assert shown(guests, method, b"") == Principal("guest", "none", None)
    assert why(guests, "token", b"bad") == "the token is not sound"  # who shows something must be right
    assert why(TOKENS, "", b"") == "credentials are needed here: token"
    assert "'athenz' is no way" in why(TOKENS, "athenz", b"")


def test_http(tmp_path: Path) -> None:
    config = Authentication(
        methods=("token", "basic", "tls"),
        token=Tokens(secret=Secret(SECRET)),
        basic=users(tmp_path / "users", anna="sesame").basic,
    )
    authenticator = Authenticator(config)

    def role(header: str | None, peer: Peer = HERE) -> str:
        try:
            return asyncio.run(authenticator.http(header, peer)).role
        except AuthenticationFailed as error:
            return f"refused: {error}"

    assert role(f"Bearer {token()}") == "billing"
    assert role(f"bearer   {token()} ") == "billing"
    assert role("Basic " + base64.b64encode(b"anna:sesame").decode()) == "anna"
    assert role(None, certificate("carla")) == "carla"
    assert role(None) == "refused: credentials are needed here: token, basic, tls"
    assert "refused" in role("Basic !!!")
    assert "neither Bearer nor Basic" in role("Digest x")
    assert "refused" in role("")
    # What is shown counts, not what else might have done.
    assert "refused" in role("Bearer x", certificate("carla"))
    assert authenticator.http_challenge == 'Bearer, Basic realm="holdfast", charset="UTF-8"'
    authenticator.close()


# -- what they may do ---------------------------------------------------------------------------------

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


@pytest.mark.parametrize(
    ("role", "action", "topic", "allowed"),
    [
        ("billing", "consume", "shop/eu/orders", True),
        ("billing", "consume", "shop/us/orders", False),
        ("billing", "produce", "shop/eu/orders", True),
        ("billing", "produce", "shop/eu/orders-partition-7", True),
        ("billing", "produce", "shop/eu/orders-2", False),
        ("billing", "admin", "shop/eu/orders", False),
        ("stock-7", "produce", "shop/eu/orders", True),
        ("stock-7", "consume", "shop/eu/orders", False),
        ("stock", "produce", "shop/eu/orders", False),
        ("owner", "admin", "shop/us/anything", True),
        ("owner", "consume", "shop/us/anything", False),
        ("anybody", "consume", "public/default/news.today", True),
        ("anybody", "consume", "public/default/newsXtoday", False),
        ("anybody", "produce", "public/default/news.today", False),
        ("root", "produce", "what/ever/it", True),
        ("", "consume", "shop/eu/orders", False),
    ],
)
def test_grants(role: str, action: Any, topic: str, allowed: bool) -> None:
    assert RULES.allows(role, action, f"persistent://{topic}") is allowed


def test_places_above_a_topic() -> None:
    assert RULES.allows_namespace("billing", "consume", "shop", "eu")
    assert not RULES.allows_namespace("billing", "produce", "shop", "eu")  # granted on one of its topics
    assert RULES.allows_tenant("owner", "admin", "shop")
    assert not RULES.allows_tenant("billing", "consume", "shop")
    assert RULES.allows_broker("root")
    assert not RULES.allows_broker("owner")
    assert RULES.allows_any("stock-7", "persistent://shop/eu/orders")
    assert not RULES.allows_any("stock-7", "persistent://shop/eu/other")
    assert not RULES.allows("billing", "consume", "non-persistent://shop/eu/orders")


def test_without_rules_everybody_may_do_everything() -> None:
    may = Authorizer(Authorization())
    assert may.allows("x", "produce", "persistent://a/b/c")
    assert may.allows_broker("x")


@settings(max_examples=300, deadline=None)
@given(role=st.text(max_size=8), topic=st.text(max_size=40))
def test_what_no_grant_names_is_refused(role: str, topic: str) -> None:
    """I111: by default, and whatever the names look like."""
    may = Authorizer(Authorization(enabled=True, grants=(Grant(("a+b",), "t.x/n[0]", ("admin",)),)))
    for action in ("produce", "consume", "admin"):
        assert not may.allows(role, action, topic)
    assert not may.allows("aab", "admin", "persistent://t.x/n0/c")


def test_what_the_protocol_asks() -> None:
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
    with pytest.raises(Denied, match="'billing' may not produce to any topic, and so has nothing to stage"):
        access.authorize("billing", "stage", "", "")
    grants = (Grant(("billing",), "shop/eu/orders", ("produce",)),)
    Access(Config(authorization=Authorization(enabled=True, grants=grants))).authorize(
        "billing", "stage", "", ""
    )
    Access(Config()).authorize("billing", "stage", "", "")


def test_a_tenants_own_admins() -> None:
    may = Authorizer(Authorization(enabled=True))
    may.admins = lambda tenant: ["keeper"] if tenant == "shop" else []
    assert may.allows("keeper", "admin", "persistent://shop/eu/orders")
    assert may.allows_any("keeper", "persistent://shop/eu/orders")
    assert may.allows_tenant("keeper", "admin", "shop")
    assert not may.allows("keeper", "consume", "persistent://shop/eu/orders")
    assert not may.allows("other", "admin", "persistent://shop/eu/orders")
    assert not may.allows("keeper", "admin", "persistent://shops/eu/orders")
    assert not may.allows_broker("keeper")


# -- how many -----------------------------------------------------------------------------------------


def test_connections_in_all_and_from_one_address() -> None:
    door = Admission(Limits(connections=4, connections_per_address=2))
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
    assert not door._addresses  # nothing is kept of who has gone


# -- TLS ----------------------------------------------------------------------------------------------


def test_certificates_that_cannot_be(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.certify("server")
    other = authority.certify("other")[1]
    locked = write_key(tmp_path / "locked.key", elliptic(), b"password")
    (tmp_path / "empty").write_text("")

    def refuses(**config: Any) -> str:
        with pytest.raises(BadConfiguration) as caught:
            tls.server_context(Tls(**{"certificate": cert, "key": key} | config))
        return str(caught.value)

    assert "nowhere cannot be read: No such file" in refuses(certificate=tmp_path / "nowhere")
    assert "is not the key of the certificate" in refuses(key=other)
    assert "is encrypted" in refuses(key=locked)
    assert "are not a certificate and its key" in refuses(certificate=tmp_path / "empty")
    assert "holds no certificates" in refuses(ca=tmp_path / "empty")
    context = tls.server_context(Tls(certificate=cert, key=key, version="1.3"))
    assert (context.verify_mode, context.minimum_version) == (ssl.CERT_NONE, ssl.TLSVersion.TLSv1_3)
    context = tls.server_context(Tls(certificate=cert, key=key, ca=authority.ca))
    assert context.verify_mode is ssl.CERT_OPTIONAL
    context = tls.server_context(
        Tls(certificate=cert, key=key, ca=authority.ca, client_certificates="required")
    )
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert authority.certify("late", begin=-2 * DAY, end=-DAY)


# -- the commands -------------------------------------------------------------------------------------

Command = Callable[..., str]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """The command `holdfast`, in this process: what it says, on either stream."""

    def run(*arguments: object, data: str = "", status: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(data))
        assert main(list(map(str, arguments))) == status
        out, errors = capsys.readouterr()
        return out + errors

    return run


def test_users_of_a_file(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    cheap = Hash.of
    monkeypatch.setattr(Hash, "of", lambda password: cheap(password, log_n=4))
    file = tmp_path / "users"
    assert command("user", "set", file, "anna", data="sesame\n") == "anna: added\n"
    assert command("user", "set", file, "anna", data="other\n") == "anna: password changed\n"
    assert command("user", "ls", file) == "anna\n"
    assert json.loads(command("user", "ls", file, "--json")) == ["anna"]
    assert read_users(file)["anna"].fits("other")
    assert "no colon" in command("user", "set", file, "a:b", data="x\n", status=1)
    assert "1 to 1024 bytes" in command("user", "set", file, "bob", data="\n", status=1)
    assert "no user bob" in command("user", "rm", file, "bob", status=1)
    assert "0 users left" in command("user", "rm", file, "anna")
    assert "there is no file" in command("user", "ls", tmp_path / "nowhere", status=1)


def test_the_session_on_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [session] = [each for each in sessions() if "holdfast token" in each]
    follow(session)


@pytest.mark.parametrize(
    "name", ["access", "auth", "authorization", "config", "limits", "logs", "passwords", "settings", "tokens"]
)
def test_examples(name: str) -> None:
    assert not doctest.testmod(importlib.import_module(f"holdfast.wire.{name}")).failed


def test_tokens_of_the_command(tmp_path: Path, command: Command) -> None:
    secret, key = tmp_path / "secret", tmp_path / "key"
    command("token", "secret", secret)
    assert secret.stat().st_mode & 0o777 == 0o600
    assert "there already" in command("token", "secret", secret, status=1)
    made = command("token", "create", "billing", "--secret-file", secret, "--expires", "1h").strip()
    found = shown(Authentication(methods=("token",), token=Tokens(secret_file=secret)), "token", made)
    assert found.role == "billing"
    assert found.expires_ns is not None
    write_key(key, elliptic())
    assert command("token", "create", "x", "--private-key-file", key).count(".") == 2
    (tmp_path / "bad").write_text("x")
    for option in ("--private-key-file", "--secret-file"):
        assert "bad: " in command("token", "create", "x", option, tmp_path / "bad", status=1)
