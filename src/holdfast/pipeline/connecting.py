"""Where the broker is, as options say it: what travels to tasks, and makes a client there."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.client import Client
from holdfast.errors import BadConfiguration, Misuse

SCHEMES = ("holdfast", "pulsar", "holdfast+ssl", "pulsar+ssl")


@dataclass(frozen=True)
class Address:
    """A broker that serves."""

    url: str
    token: str | None = field(default=None, repr=False)
    trust: str | None = None
    """A file with the certificates to trust, instead of the system's."""

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
        made = cls(url, options.get("token"), options.get("tlsTrustCertsFilePath"))
        try:
            made.client(1.0).close()
        except (Misuse, OSError) as error:
            raise BadConfiguration(str(error)) from None
        return made

    @classmethod
    def beside(cls, options: Mapping[str, Any], why: str) -> Address:
        """The same where `service.url` may also be the HTTP address that a source reads from: the broker is
        asked there for its binary one.

        Raises:
            BadConfiguration: there is no `service.url`, or it is no broker's.
            Timeout: nobody answers there.
        """
        if (options.get("service.url") or "").partition("://")[0] not in ("http", "https"):
            return cls.of(options, why)
        from holdfast.pipeline.remote import RemotePlace

        return cls.of({**options, "service.url": RemotePlace.of(options).binary_url()}, why)

    def client(self, timeout_s: float) -> Client:
        """Connects with its first request; a request is repeated for so long."""
        secure = self.url.partition("://")[0].endswith("+ssl")
        tls = ssl.create_default_context(cafile=self.trust) if secure and self.trust else None
        return Client(self.url, token=self.token, timeout=timeout_s, tls=tls)


__all__ = ["Address"]
