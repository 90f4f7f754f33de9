"""Check JSON Web Tokens with PyJWT: signature, times, audience and role."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.errors import AuthenticationFailed, BadConfiguration
from holdfast.server.config import Tokens

TOKEN_BYTES_MAX = 16 << 10
SECRET_BYTES_MIN = 32
FOREVER_S = 10**11
"""Since the epoch. A later expiry counts as this one: tokens may have numbers of any size."""
_HASHES = {"HS256": SECRET_BYTES_MIN, "HS384": 48, "HS512": 64}
"""Bytes of a secret that each algorithm needs."""


@dataclass(frozen=True)
class Claims:
    """Claims of a valid token."""

    role: str
    expires_s: float | None
    """Since the epoch."""


class TokenCheck:
    """Checks tokens with one key, which decides the algorithms: a token cannot choose."""

    def __init__(self, config: Tokens) -> None:
        self._config = config
        self._key, self._algorithms = _read_key(config)

    def check(self, token: str) -> Claims:
        """Return the claims of a token.

        Raises:
            AuthenticationFailed: the token is malformed, signed with another key, expired, not valid yet, or
                for another audience.
        """
        import jwt

        if len(token) > TOKEN_BYTES_MAX:
            raise AuthenticationFailed(
                f"the token has {len(token)} characters; at most {TOKEN_BYTES_MAX} are allowed"
            )
        config = self._config
        try:
            claims = jwt.decode(
                token,
                self._key,
                algorithms=list(self._algorithms),
                audience=config.audience or None,
                leeway=config.leeway_s,
                options={"verify_aud": bool(config.audience), "verify_sub": False, "verify_iat": False},
            )
        except jwt.ExpiredSignatureError:
            raise AuthenticationFailed("the token has expired") from None
        except jwt.ImmatureSignatureError:
            raise AuthenticationFailed("the token is not valid yet") from None
        except (jwt.InvalidAudienceError, jwt.MissingRequiredClaimError):
            raise AuthenticationFailed("the token has another audience") from None
        except jwt.InvalidSignatureError:
            raise AuthenticationFailed("the token was signed with another key") from None
        except jwt.InvalidAlgorithmError:
            raise AuthenticationFailed(f"the token is not signed with {_words(self._algorithms)}") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise AuthenticationFailed("the token is malformed") from None
        return self._claims(claims)

    def _claims(self, claims: dict[str, Any]) -> Claims:
        role = claims.get(self._config.role_claim)
        if not isinstance(role, str) or not role:
            raise AuthenticationFailed(f"the token names no role in {self._config.role_claim!r}")
        expires = claims.get("exp")
        if expires is None:
            return Claims(role, None)
        return Claims(role, min(int(expires), FOREVER_S) + self._config.leeway_s)


def _words(algorithms: Sequence[str]) -> str:
    return " or ".join(algorithms)


def _read_key(config: Tokens) -> tuple[Any, tuple[str, ...]]:
    if config.public_key_file is not None:
        return _read_public_key(config.public_key_file)
    if config.secret_file is not None:
        secret, where = read_secret(config.secret_file), str(config.secret_file)
    else:
        assert config.secret is not None
        secret, where = config.secret.reveal().encode(), "authentication.token.secret"
    if _is_asymmetric(secret):
        # A public key is not a secret: every client that has it could sign tokens.
        raise BadConfiguration(f"{where}: is a public or private key, not a secret; use public_key_file")
    if len(secret) < SECRET_BYTES_MIN:
        raise BadConfiguration(
            f"{where}: a secret of {len(secret)} bytes can be guessed; use at least {SECRET_BYTES_MIN}, as "
            "`holdfast token secret FILE` creates"
        )
    return secret, tuple(name for name, size in _HASHES.items() if len(secret) >= size)


def _is_asymmetric(data: bytes) -> bool:
    """Return whether the data is a certificate or an asymmetric key, in PEM or DER."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_der_public_key

    if b"-----BEGIN" in data:
        return True
    for load in (load_der_public_key, lambda each: load_der_private_key(each, None)):
        try:
            load(data)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            continue
        return True
    return False


def read_secret(path: Path) -> bytes:
    """Read a secret; after `base64:`, as Pulsar's tools write it, decode it.

    Raises:
        BadConfiguration: the file cannot be read, or is not base64.
    """
    data = _read(path)
    if not data.startswith(b"base64:"):
        return data
    try:
        return base64.b64decode(data.removeprefix(b"base64:").strip(), validate=True)
    except binascii.Error:
        raise BadConfiguration(f"{path}: the text after base64: is not base64") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadConfiguration(f"{path}: the token's key cannot be read: {error.strerror}") from None


def _read_public_key(path: Path) -> tuple[Any, tuple[str, ...]]:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key, load_pem_public_key

    data = _read(path)
    try:
        pem = b"-----BEGIN" in data
        key = load_pem_public_key(data) if pem else load_der_public_key(data)
    except ValueError:
        hint = "; this is a private key" if b"PRIVATE KEY" in data else ""
        raise BadConfiguration(f"{path}: is not a public key in PEM or DER{hint}") from None
    if isinstance(key, RSAPublicKey):
        if key.key_size < 2048:
            raise BadConfiguration(f"{path}: an RSA key of {key.key_size} bits; use 2048 or more")
        return key, ("RS256", "RS384", "RS512")
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return key, ("ES256",)
    raise BadConfiguration(f"{path}: is neither an RSA key nor a P-256 key")
