"""The address of a broker with its credentials, from options; sent to tasks."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.errors import BadConfiguration, Misuse

if TYPE_CHECKING:
    from holdfast.client import Client

SCHEMES = ("holdfast", "pulsar", "holdfast+ssl", "pulsar+ssl")
CREDENTIALS = ("token", "tlsTrustCertsFilePath", "tlsCertificateFilePath", "tlsKeyFilePath")
"""The options for authentication and TLS. Every connection to a broker uses all of them."""


def tls_context(trust: str | None, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Return a TLS context with the certificates to trust and to show.

    Raises:
        BadConfiguration: a file is missing, or does not have them.
    """
    if key is not None and certificate is None:
        raise BadConfiguration("tlsKeyFilePath is given without tlsCertificateFilePath; give both")
    try:
        made = ssl.create_default_context(cafile=trust)
    except OSError as error:
        raise BadConfiguration(f"tlsTrustCertsFilePath: {trust}: {error}") from None
    if certificate is not None:
        try:
            made.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            raise BadConfiguration(
                f"tlsCertificateFilePath {certificate} with key {key or 'in the same file'}: {error}"
            ) from None
    return made


def _no_password() -> str:
    raise ValueError("the key has a password; give a key without a password")


@dataclass(frozen=True)
class Address:
    """Address and credentials of a serving broker."""

    url: str
    token: str | None = field(default=None, repr=False)
    trust: str | None = None
    """A file with the certificates to trust, instead of the system's."""
    certificate: str | None = None
    """A file with the client's certificate, for brokers that ask for one ..."""
    key: str | None = field(default=None, repr=False)
    """... and a file with its key, if it is not in the same file."""

    @classmethod
    def of(cls, options: Mapping[str, Any], why: str) -> Address:
        """Return the address in parsed options.

        Args:
            options: of the source or the sink.
            why: the component that needs it, for the error.

        Raises:
            BadConfiguration: `service.url` is missing, or is not a broker's binary address.
        """
        url = options.get("service.url")
        if not url:
            raise BadConfiguration(
                f"{why} needs option service.url, such as holdfast://127.0.0.1:6650; "
                "`holdfast serve --data DIR` starts a broker there"
            )
        if url.partition("://")[0] not in SCHEMES:
            raise BadConfiguration(
                f"option service.url is {url!r}; {why} needs the broker's binary address, such as "
                "holdfast://127.0.0.1:6650, or holdfast+ssl://host:6651"
            )
        return cls(url, *(options.get(each) for each in CREDENTIALS)).checked()

    def checked(self) -> Address:
        """Return this address. Raises BadConfiguration: it is not a broker's binary address."""
        try:
            self.client(1.0).close()
        except (Misuse, OSError) as error:
            raise BadConfiguration(str(error)) from None
        return self

    @classmethod
    def beside(cls, options: Mapping[str, Any], why: str, topic: str | None = None) -> Address:
        """Like `of`, but `service.url` may be the HTTP address that a source reads from.

        The broker is asked there for its binary address.

        Args:
            options: of the source or the sink.
            why: the component that needs it, for the error.
            topic: the topic to write to, if it is known; the token needs the right to produce to it. Without
                it, the token needs the right to consume from some topic.

        Raises:
            BadConfiguration: `service.url` is missing, or is not a broker's address.
            Timeout: the broker does not answer.
        """
        if (options.get("service.url") or "").partition("://")[0] not in ("http", "https"):
            return cls.of(options, why)
        from holdfast.columns.remote import RemotePlace

        url = RemotePlace.of(options).binary_url(topic)
        return cls.of({**options, "service.url": url}, why)

    def client(self, timeout_s: float) -> Client:
        """Return a client, which connects with its first request; requests are repeated for `timeout_s`."""
        from holdfast.client import Client  # loads the protocol, which readers of files do not need

        secure = self.url.partition("://")[0].endswith("+ssl")
        tls = tls_context(self.trust, self.certificate, self.key) if secure else None
        return Client(self.url, token=self.token, timeout=timeout_s, tls=tls)


__all__ = ["CREDENTIALS", "Address", "tls_context"]
