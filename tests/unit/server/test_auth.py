"""Test authentication, authorization and connection limits, each part alone."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli import main
from holdfast.errors import AuthenticationFailed, BadConfiguration, Misuse
from holdfast.server.auth import tls
from holdfast.server.auth.authentication import Authenticator, Peer, Principal
from holdfast.server.auth.authorization import Authorizer
from holdfast.server.auth.passwords import Hash, read_users
from holdfast.server.config import (
    Authentication,
    Authorization,
    Grant,
    Secret,
    Tls,
    Tokens,
)
from tests.kit.certificates import DAY, Authority, elliptic, write_key, write_public_key
from tests.kit.examples import examples
from tests.kit.server import auth_checks
from tests.kit.server.auth_checks import (
    HERE,
    SECRET,
    TOKENS,
    certificate,
    raw,
    shown,
    token,
    users,
    why,
)

# -- tokens -------------------------------------------------------------------------------------------


def test_token_names_the_role() -> None:
    assert shown(TOKENS, "token", token()) == Principal("billing", "token", None)
    end = int(time.time()) + 100
    assert shown(TOKENS, "token", token(exp=end)).expires_ns == end * 10**9
    other = Authentication(methods=("token",), token=Tokens(secret=Secret(SECRET), role_claim="who"))
    assert shown(other, "token", token(who="anna")).role == "anna"


def test_token_that_is_not_good() -> None:
    auth_checks.token_that_is_not_good()


def test_role_that_a_token_must_name() -> None:
    auth_checks.role_that_a_token_must_name()


def test_token_may_not_choose_its_algorithm(tmp_path: Path) -> None:
    """I110: neither none, nor the public key taken for a secret."""
    auth_checks.token_may_not_choose_its_algorithm(tmp_path)


def test_token_of_an_elliptic_key(tmp_path: Path) -> None:
    key = elliptic()
    config = Tokens(public_key_file=write_public_key(tmp_path / "ec.pub", key))
    es256 = Authentication(methods=("token",), token=config)
    assert shown(es256, "token", token(key, "ES256")).role == "billing"
    assert why(es256, "token", token(elliptic(), "ES256")) == "the token was signed with another key"


def test_audience_and_clocks() -> None:
    auth_checks.audience_and_clocks()


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


@examples(test=60)
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="replace")))
def test_nothing_that_is_shown_does_worse_than_to_be_refused(data: bytes) -> None:
    authenticator = Authenticator(TOKENS)
    for method in ("token", "basic", "", "nonsense"):
        with pytest.raises(AuthenticationFailed):
            asyncio.run(authenticator.begin(method, data, HERE))


@examples(test=60)
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


def test_passwords(tmp_path: Path) -> None:
    auth_checks.passwords(tmp_path)


def test_a_file_of_users_is_for_its_owner_alone(tmp_path: Path) -> None:
    users(tmp_path / "users", anna="sesame")
    assert (tmp_path / "users").stat().st_mode & 0o777 == 0o600
    assert "sesame" not in (tmp_path / "users").read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["users"]


def test_lines_that_cannot_be(tmp_path: Path) -> None:
    good = Hash.of("x", log_n=4)
    lines = {
        "anna": "the line is not name:hash",
        "anna:secret": "not a $scrypt$ or",
        "anna:$apr1$x$y": "not a $scrypt$ or",
        f"anna:{good}\nanna:{good}": "users:2: the user anna is listed twice",
        f" #:{good}": "cannot name a user",
        "anna:$scrypt$ln=40,r=8,p=1$c2FsdHNhbHQ$c2FsdHNhbHRzYWx0c2FsdA": "scrypt parameters need more than",
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
    """A thousand connections of one user cost one hash; another password costs another."""
    auth_checks.a_password_is_hashed_once(tmp_path, monkeypatch)


def test_a_flood_of_passwords_is_refused(tmp_path: Path) -> None:
    auth_checks.a_flood_of_passwords_is_refused(tmp_path)


# -- certificates, nobody, HTTP -----------------------------------------------------------------------


def test_certificates() -> None:
    auth_checks.certificates()


def test_nobody() -> None:
    """A method that is not accepted counts as no credentials: anonymous, if that is allowed."""
    auth_checks.nobody()


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
    assert role(None) == "refused: this server needs credentials: token, basic, tls"
    assert "refused" in role("Basic !!!")
    assert "neither Bearer nor Basic" in role("Digest x")
    assert "refused" in role("")
    # A wrong header is not replaced by a valid certificate.
    assert "refused" in role("Bearer x", certificate("carla"))
    assert authenticator.http_challenge == 'Bearer, Basic realm="holdfast", charset="UTF-8"'
    authenticator.close()


# -- what they may do ---------------------------------------------------------------------------------


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
    auth_checks.grants(role, action, topic, allowed)


def test_places_above_a_topic() -> None:
    auth_checks.places_above_a_topic()


def test_without_rules_everybody_may_do_everything() -> None:
    may = Authorizer(Authorization())
    assert may.allows("x", "produce", "persistent://a/b/c")
    assert may.allows_broker("x")


@examples(test=60)
@given(role=st.text(max_size=8), topic=st.text(max_size=40))
def test_what_no_grant_names_is_refused(role: str, topic: str) -> None:
    """I111: for any names."""
    may = Authorizer(Authorization(enabled=True, grants=(Grant(("a+b",), "t.x/n[0]", ("admin",)),)))
    for action in ("produce", "consume", "admin"):
        assert not may.allows(role, action, topic)
    assert not may.allows("aab", "admin", "persistent://t.x/n0/c")


def test_what_the_protocol_asks() -> None:
    auth_checks.what_the_protocol_asks()


def test_a_tenants_own_admins() -> None:
    auth_checks.a_tenants_own_admins()


# -- how many -----------------------------------------------------------------------------------------


def test_connections_in_all_and_from_one_address() -> None:
    auth_checks.connections_in_all_and_from_one_address()


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
    assert "has no certificates" in refuses(ca=tmp_path / "empty")
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
        try:
            ended = main(list(map(str, arguments)))
        except SystemExit as usage:
            ended = int(usage.code or 0)
        assert ended == status
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
    assert "without a colon" in command("user", "set", file, "a:b", data="x\n", status=2)
    assert "has 0 bytes; use 1 to 1024" in command("user", "set", file, "bob", data="\n", status=1)
    assert "no user bob" in command("user", "rm", file, "bob", status=1)
    assert "0 users left" in command("user", "rm", file, "anna")
    assert "there is no file" in command("user", "ls", tmp_path / "nowhere", status=1)


def test_tokens_of_the_command(tmp_path: Path, command: Command) -> None:
    secret, key = tmp_path / "secret", tmp_path / "key"
    command("token", "secret", secret)
    assert secret.stat().st_mode & 0o777 == 0o600
    assert "use another file" in command("token", "secret", secret, status=1)
    made = command("token", "create", "billing", "--secret-file", secret, "--expires", "1h").strip()
    found = shown(Authentication(methods=("token",), token=Tokens(secret_file=secret)), "token", made)
    assert found.role == "billing"
    assert found.expires_ns is not None
    write_key(key, elliptic())
    assert command("token", "create", "x", "--private-key-file", key).count(".") == 2
    (tmp_path / "bad").write_text("x")
    for option in ("--private-key-file", "--secret-file"):
        assert "/bad" in command("token", "create", "x", option, tmp_path / "bad", status=1)
