"""Where the broker is, as options say it: what travels to tasks, and makes a client there."""

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
"""The options that say who this is, and who is believed: whoever reaches a broker hands over all of them."""


def tls_context(trust: str | None, certificate: str | None = None, key: str | None = None) -> ssl.SSLContext:
    """Whom to believe and what to show.

    Raises:
        BadConfiguration: a file is not there, or is none.
    """
    if key is not None and certificate is None:
        raise BadConfiguration("tlsKeyFilePath is the key of a certificate; give tlsCertificateFilePath, too")
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
    raise ValueError("the key has a password; give one without")


@dataclass(frozen=True)
class Address:
    """A broker that serves."""

    url: str
    token: str | None = field(default=None, repr=False)
    trust: str | None = None
    """A file with the certificates to trust, instead of the system's."""
    certificate: str | None = None
    """A file with the certificate to show, for brokers that ask for one ..."""
    key: str | None = field(default=None, repr=False)
    """... and one with its key, if it is not in the same."""

    @classmethod
    def of(cls, options: Mapping[str, Any], why: str) -> Address:
        """From parsed options.

        Args:
            options: of the source or the sink.
            why: who needs it, for the error.

        Raises:
            BadConfiguration: there is no `service.url`, or it is no broker's.
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
        """The same. Raises BadConfiguration: it is no broker's binary address."""
        try:
            self.client(1.0).close()
        except (Misuse, OSError) as error:
            raise BadConfiguration(str(error)) from None
        return self

    @classmethod
    def beside(cls, options: Mapping[str, Any], why: str, topic: str | None = None) -> Address:
        """The same where `service.url` may also be the HTTP address that a source reads from: the broker is
        asked there for its binary one.

        Args:
            options: of the source or the sink.
            why: who needs it, for the error.
            topic: where it is to be written, if that is known: whoever may produce there is told. Otherwise
                whoever may consume from something is.

        Raises:
            BadConfiguration: there is no `service.url`, or it is no broker's.
            Timeout: nobody answers there.
        """
        if (options.get("service.url") or "").partition("://")[0] not in ("http", "https"):
            return cls.of(options, why)
        from holdfast.columns.remote import RemotePlace

        url = RemotePlace.of(options).binary_url(topic)
        return cls.of({**options, "service.url": url}, why)

    def client(self, timeout_s: float) -> Client:
        """Connects with its first request; a request is repeated for so long."""
        from holdfast.client import Client  # brings the wire, which readers of files do not need

        secure = self.url.partition("://")[0].endswith("+ssl")
        tls = tls_context(self.trust, self.certificate, self.key) if secure else None
        return Client(self.url, token=self.token, timeout=timeout_s, tls=tls)


__all__ = ["CREDENTIALS", "Address", "tls_context"]
