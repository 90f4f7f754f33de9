"""Requests to a server's HTTP interface, and the messages in its answers."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from typing import Any

from holdfast import errors
from holdfast._core import TopicMessage
from holdfast.cli.parsing import Usage
from holdfast.client import entry_of, messages_of
from holdfast.ids import MessageId
from holdfast.names import topic_name
from holdfast.protocol import pulsar_pb2 as pb

TOKEN_VARIABLE = "HOLDFAST_TOKEN"
TIMEOUT_S = 60.0
REFERRED = 307
"""The status with which a member refers to the only one that has a topic."""
_ERRORS: dict[int, type[errors.HoldfastError]] = {
    401: errors.AuthenticationFailed,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Exists,
    405: errors.Misuse,
    412: errors.Misuse,
    422: errors.Misuse,
    501: errors.Unsupported,
    503: errors.NoQuorum,
    504: errors.Timeout,
}


class Http:
    """Requests to one server.

    Example:
        >>> Http("http://127.0.0.1:8080/").url
        'http://127.0.0.1:8080'
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        if not _is_address(url):
            raise Usage(f"{url!r} is not a server's address; use http://host:port, its HTTP port")
        self.url = url.rstrip("/")
        self.token = token if token is not None else os.environ.get(TOKEN_VARIABLE)
        self._was_referred = False

    def get(self, path: str, **query: Any) -> Any:
        return self._parsed(self.raw("GET", path, None, query)[0] or b"null")

    def send(self, method: str, path: str, body: object = None, **query: Any) -> Any:
        data = self.raw(method, path, body, query)[0]
        return self._parsed(data) if data else None

    def _parsed(self, data: bytes) -> Any:
        try:
            return json.loads(data)
        except ValueError:
            raise errors.Misuse(
                f"{self.url} is not a holdfast server, or not its HTTP port: it answers {data[:60]!r}"
            ) from None

    def raw(
        self, method: str, path: str, body: object, query: dict[str, Any]
    ) -> tuple[bytes, dict[str, str]]:
        """Return the body of the answer, and its headers.

        Raises:
            HoldfastError: the refusal of the server, as the kind that a broker raises.
        """
        url = self.url + path
        if query:
            url += "?" + urllib.parse.urlencode(query)
        request = urllib.request.Request(url, method=method)  # http or https, see above
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                return answer.read(), {name.lower(): value for name, value in answer.headers.items()}
        except urllib.error.HTTPError as error:
            there = self._referred(error, path)
            if there is not None:
                return there.raw(method, path, body, query)
            with error:
                reason = _reason(error)
            raise _ERRORS.get(error.code, errors.HoldfastError)(reason) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError) and error.reason.reason == "WRONG_VERSION_NUMBER":
                raise errors.Misuse(
                    f"{self.url} does not speak TLS; use http: for this port, or its HTTPS port"
                ) from None
            raise errors.Closed(f"no server answers at {self.url}: {error.reason}") from None
        except TimeoutError:
            raise errors.Timeout(
                f"{self.url} did not answer within {TIMEOUT_S:.0f} s; the request may have taken effect"
            ) from None
        except OSError as error:  # while the answer was awaited or read
            raise errors.Closed(
                f"{self.url} closed the connection: {error}; the request may have taken effect"
            ) from None
        except http.client.HTTPException as error:
            raise errors.Misuse(
                f"{self.url} does not speak HTTP, or closed the connection ({type(error).__name__}); use its "
                "HTTP port"
            ) from None

    def _referred(self, error: urllib.error.HTTPError, path: str) -> Http | None:
        """Return the member of the cluster to which a server refers; None: it refuses.

        `urllib` follows references only for GET. A server without TLS is never followed to from one with it.
        """
        there, _, _ = error.headers.get("Location", "").partition(path)
        if error.code != REFERRED or not _is_address(there) or self._was_referred:
            return None
        if self.url.startswith("https:") and not there.startswith("https:"):
            return None
        found = Http(there, self.token)
        found._was_referred = True  # once: members that disagree could refer for ever
        return found


def _is_address(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and url.isprintable() and not parts.netloc.count(" ")


def _reason(error: urllib.error.HTTPError) -> str:
    said = error.read()
    try:
        return str(json.loads(said)["reason"])
    except (ValueError, KeyError, TypeError):
        return f"the server answers {error.code}: {said[:1000].decode(errors='replace').strip()}"


def quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def path_of(topic: str) -> str:
    """Of a topic's full name."""
    tenant, namespace, name = topic_name(topic).removeprefix("persistent://").split("/", 2)
    return f"/admin/v2/persistent/{quoted(tenant)}/{quoted(namespace)}/{quoted(name)}"


def milliseconds(time: datetime) -> int:
    return max(0, int(time.timestamp() * 1000))


def restored(data: bytes, headers: dict[str, str]) -> list[TopicMessage]:
    """Return the messages of an entry that came by HTTP."""
    numbers = [int(each) for each in headers["x-pulsar-message-id"].split(":")]
    told = {
        name.removeprefix("x-pulsar-"): urllib.parse.unquote(value)
        for name, value in headers.items()
        if name.startswith("x-pulsar-")
    }
    at = MessageId(numbers[0], numbers[1])
    return messages_of(at, entry_of(_metadata(told), data, told.get("compression", "NONE")))


def due_of(headers: dict[str, str]) -> datetime | None:
    """Return the delivery time of an entry that came by HTTP."""
    time = headers.get("x-pulsar-deliver-at-time")
    return None if time is None or time.isdecimal() else datetime.fromisoformat(time).astimezone(UTC)


def _metadata(told: dict[str, str]) -> pb.MessageMetadata:
    """Restore the metadata of an entry that came by HTTP."""
    properties = json.loads(told.get("property", "{}")).items()
    found = pb.MessageMetadata(
        producer_name=told.get("producer-name", ""),
        sequence_id=int(told.get("sequence-id", "0")),
        publish_time=_ms(told.get("publish-time")),
        event_time=_ms(told.get("event-time")),
        properties=[pb.KeyValue(key=key, value=text) for key, text in properties],
    )
    if "deliver-at-time" in told:
        found.deliver_at_time = _ms(told["deliver-at-time"])
    if "partition-key" in told:
        found.partition_key = told["partition-key"]
        found.partition_key_b64_encoded = told.get("partition-key-b64-encoded") == "true"
    if "num-batch-message" in told:
        found.num_messages_in_batch = int(told["num-batch-message"])
    return found


def _ms(time: str | None) -> int:
    if not time or time.isdecimal():  # beyond the year 9999
        return int(time or 0)
    return milliseconds(datetime.fromisoformat(time))
