"""Load the server's certificate, and the authorities of clients' certificates."""

from __future__ import annotations

import ssl
from pathlib import Path

from holdfast.errors import BadConfiguration
from holdfast.server.config import Tls

_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def server_context(config: Tls) -> ssl.SSLContext:
    """Make the context of both TLS ports.

    Raises:
        BadConfiguration: a file cannot be read or is invalid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[config.version]
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    load(context, config)
    return context


def load(context: ssl.SSLContext, config: Tls) -> None:
    """Load certificates into a context, for new connections if it is in use.

    Raises:
        BadConfiguration: a file cannot be read or is invalid.
    """
    if config.certificate is None or config.key is None:  # removed from the reloaded settings
        raise BadConfiguration(
            "tls.certificate, tls.key: a TLS port is open, and needs both; set them, or restart"
        )
    _require("tls.certificate", config.certificate)
    _require("tls.key", config.key)
    try:
        context.load_cert_chain(config.certificate, config.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadConfiguration(
                f"tls.key: {config.key} is not the key of the certificate in {config.certificate}"
            ) from None
        raise BadConfiguration(
            f"tls.certificate, tls.key: {config.certificate} and {config.key} are not a certificate and its "
            f"key in PEM: {error.reason or error}"
        ) from None
    except _Encrypted:
        raise BadConfiguration(
            f"tls.key: {config.key} is encrypted, and the server has no password for it; store it "
            "unencrypted, readable for the server alone"
        ) from None
    if config.ca is None:
        return
    _require("tls.ca", config.ca)
    try:
        context.load_verify_locations(config.ca)
    except ssl.SSLError as error:
        words = f"tls.ca: {config.ca} has no certificates in PEM: {error.reason or error}"
        raise BadConfiguration(words) from None
    required = config.client_certificates == "required"
    context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL


class _Encrypted(Exception):
    pass


def _no_password() -> str:
    raise _Encrypted


def _require(key: str, path: Path) -> None:
    try:
        path.open("rb").close()
    except OSError as error:
        raise BadConfiguration(f"{key}: {path} cannot be read: {error.strerror}") from None
