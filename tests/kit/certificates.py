"""Certificates and keys for tests: an authority, certificates of server and clients, token keys."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

DAY = datetime.timedelta(days=1)
Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def write_key(path: Path, key: Key, password: bytes | None = None) -> Path:
    """Write the private key as PEM."""
    lock: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
    path.chmod(0o600)
    return path


def write_public_key(path: Path, key: Key) -> Path:
    """Write the public key as PEM."""
    path.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


def elliptic() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


class Authority:
    """An authority that signs certificates; its own is `ca.pem` in its directory."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = elliptic()
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._serial = 1
        self.ca = directory / "ca.pem"
        made = self._build(self._name, self._key, -DAY, DAY, authority=True)
        self.ca.write_bytes(made.public_bytes(Encoding.PEM))

    def certify(
        self,
        name: str | None,
        *,
        begin: datetime.timedelta = -DAY,
        end: datetime.timedelta = DAY,
        file: str | None = None,
    ) -> tuple[Path, Path]:
        """Sign a certificate for this common name and this machine; return it and its key."""
        key = elliptic()
        names = [] if name is None else [x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]
        made = self._build(x509.Name(names), key, begin, end, authority=False)
        stem = self.directory / (file or name or "nameless")
        certificate = stem.with_suffix(".pem")
        certificate.write_bytes(made.public_bytes(Encoding.PEM))
        return certificate, write_key(stem.with_suffix(".key"), key)

    def _build(
        self,
        name: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        begin: datetime.timedelta,
        end: datetime.timedelta,
        *,
        authority: bool,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        self._serial += 1
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(self._serial)
            .not_valid_before(now + begin)
            .not_valid_after(now + end)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        )
        if not authority:
            own = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            builder = builder.add_extension(x509.SubjectAlternativeName(own), critical=False)
        return builder.sign(self._key, hashes.SHA256())
