"""Checks of keys, for tests and for their mutants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from holdfast.errors import BadConfiguration
from holdfast.server.auth.authentication import Authenticator
from holdfast.server.config import Authentication, Tokens
from tests.kit.certificates import elliptic


def private_keys() -> dict[str, Any]:
    return {"RSA": rsa.generate_private_key(65537, 2048), "P-256": elliptic()}


def a_public_key_is_no_secret(encoding: Encoding, tmp_path: Path) -> None:
    """Refuse a public key as a secret: every client could sign any token."""
    file = tmp_path / "key"
    for key in private_keys().values():
        for data in (
            key.public_key().public_bytes(encoding, PublicFormat.SubjectPublicKeyInfo),
            key.private_bytes(encoding, PrivateFormat.PKCS8, NoEncryption()),
        ):
            file.write_bytes(data)
            words = "is a public or private key, not a secret; use public_key_file"
            with pytest.raises(BadConfiguration, match=words):
                Authenticator(Authentication(methods=("token",), token=Tokens(secret_file=file)))
