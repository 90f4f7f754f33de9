"""Keys and hashes that are invalid, or that reveal too much."""

from __future__ import annotations

import asyncio
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from holdfast.errors import AuthenticationFailed
from holdfast.server.auth.access import Access
from holdfast.server.auth.authentication import Authenticator, Peer
from holdfast.server.auth.passwords import Hash, write_users
from holdfast.server.auth.tokens import FOREVER_S
from holdfast.server.config import Authentication, Basic, Config, Tokens
from holdfast.server.pulsar.setup import Credentials
from tests.kit.server import auth_keys_checks
from tests.kit.server.auth_checks import TOKENS, token

HERE = Peer("127.0.0.1")


@pytest.mark.parametrize("expires", [10**400, 1e308, 10**30])
def test_a_time_that_nobody_can_count_to(expires: float) -> None:
    """A valid token may expire at any number: far away, and without an error."""
    found = asyncio.run(Authenticator(TOKENS).begin("token", token(exp=expires).encode(), HERE))
    assert found.expires_ns == FOREVER_S * 10**9
    access = Access(Config(authentication=TOKENS))
    shown = Credentials("token", token(exp=expires).encode(), "127.0.0.1")
    left = asyncio.run(access.authenticate(shown)).expires_s
    assert left is not None
    assert 0 < left < FOREVER_S


@pytest.mark.parametrize("encoding", [Encoding.PEM, Encoding.DER], ids=["PEM", "DER"])
def test_a_public_key_is_no_secret(encoding: Encoding, tmp_path: Path) -> None:
    """Every client that has the public key could sign tokens of any role."""
    auth_keys_checks.a_public_key_is_no_secret(encoding, tmp_path)


def test_random_bytes_are_a_secret(tmp_path: Path) -> None:
    """Also those that begin as a key in DER would."""
    file = tmp_path / "key"
    for secret in (bytes(range(64)), b"\x30\x82\x01\x22" + bytes(range(60))):
        file.write_bytes(secret)
        config = Authentication(methods=("token",), token=Tokens(secret_file=file))
        shown = jwt.encode({"sub": "billing"}, secret, algorithm="HS256").encode()
        assert asyncio.run(Authenticator(config).begin("token", shown, HERE)).role == "billing"


def test_nobody_is_as_slow_as_somebody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name costs as much as some user's hash.

    The cost is the same each time, and not always that of the first user."""
    costs = {name: Hash.of("sesame", log_n=4 + number) for number, name in enumerate(("anna", "ben", "cleo"))}
    write_users(tmp_path / "users", costs)
    config = Authentication(methods=("basic",), basic=Basic(users_file=tmp_path / "users"))
    taken: dict[str, set[tuple[int, ...]]] = {}
    name = ""
    fits = Hash.fits

    def noted(self: Hash, password: str) -> bool:
        taken.setdefault(name, set()).add(self.cost)
        return fits(self, password)

    monkeypatch.setattr(Hash, "fits", noted)

    async def main() -> None:
        nonlocal name
        authenticator = Authenticator(config)
        for number in range(40):
            name = f"stranger-{number}"
            for guess in ("one", "two"):
                with pytest.raises(AuthenticationFailed):
                    await authenticator.begin("basic", f"{name}:{guess}".encode(), HERE)
        authenticator.close()

    asyncio.run(main())
    assert all(len(each) == 1 for each in taken.values())
    assert set.union(*taken.values()) == {each.cost for each in costs.values()}
