"""Run the commands against a server instead of a data directory, through its HTTP interface.

`RemoteBroker` has the part of a `Broker` that the commands use. Messages go through `holdfast.client`. Calls
block: a command does one thing at a time.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from holdfast import errors
from holdfast._core import TopicMessage
from holdfast.broker import LedgerStats, SubscriptionStats, TopicStats
from holdfast.cli.parsing import Usage
from holdfast.cli.positions import Place
from holdfast.client import LATEST, Client, Consumer, Producer, Reader, entry_of, messages_of
from holdfast.ids import MessageId
from holdfast.names import no_subscription, topic_name
from holdfast.protocol import pulsar_pb2 as pb

TOKEN_VARIABLE = "HOLDFAST_TOKEN"
TIMEOUT_S = 60.0
MB = 1 << 20
READ_MAX = 1000
"""Messages that the server may send before they are read."""
_ERRORS: dict[int, type[errors.HoldfastError]] = {
    401: errors.AuthenticationFailed,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Exists,
    412: errors.Misuse,
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
            with error:
                reason = _reason(error)
            raise _ERRORS.get(error.code, errors.HoldfastError)(reason) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError) and error.reason.reason == "WRONG_VERSION_NUMBER":
                raise errors.Misuse(
                    f"{self.url} does not speak TLS; use http: for this port, or its HTTPS port"
                ) from None
            raise errors.Closed(f"no server answers at {self.url}: {error.reason}") from None
        except OSError as error:  # while the answer was awaited or read
            raise errors.Closed(
                f"{self.url} closed the connection: {error}; the request may have taken effect"
            ) from None
        except http.client.HTTPException as error:
            raise errors.Misuse(
                f"{self.url} does not speak HTTP, or closed the connection ({type(error).__name__}); use its "
                "HTTP port"
            ) from None


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
        return f"the server answers {error.code}: {said[:200].decode(errors='replace')}"


def quoted(text: str) -> str:
    return urllib.parse.quote(text, safe="")


def path_of(topic: str) -> str:
    """Of a topic's full name."""
    tenant, namespace, name = topic_name(topic).removeprefix("persistent://").split("/", 2)
    return f"/admin/v2/persistent/{quoted(tenant)}/{quoted(namespace)}/{quoted(name)}"


def milliseconds(time: datetime) -> int:
    return max(0, int(time.timestamp() * 1000))


class RemoteBroker:
    """A server, as the commands see it."""

    def __init__(self, url: str) -> None:
        self.http = Http(url)
        self.admin = RemoteAdmin(self.http)

    async def __aenter__(self) -> RemoteBroker:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def has_topic(self, full: str) -> bool:
        try:
            self.http.get(path_of(full) + "/partitions", existing="true")
        except errors.NotFound:
            return False
        return True

    def producer(self, topic: str, name: str | None = None) -> Producer:
        return Producer(client_of(self.http, topic), topic_name(topic), name)

    def consumer(
        self, topic: str, subscription: str, start: Place, receiver_queue: int, receipts: bool = True
    ) -> Consumer:
        client = client_of(self.http, topic)
        return Consumer(client, topic_name(topic), subscription, start == "earliest", receiver_queue)

    def reader(self, topic: str, start: Place, receiver_queue: int) -> Reader:
        return self.admin.reader(topic, start, receiver_queue)


def client_of(http: Http, topic: str) -> Client:
    """Find the broker of a topic; with TLS if the server's address is https."""
    found = http.get(path_of(topic).replace("/admin/v2/", "/lookup/v2/topic/", 1))
    secure = http.url.startswith("https:")
    if secure and http.token and not found["brokerUrlTls"]:
        raise errors.Misuse(
            f"{http.url} accepts messages only without TLS, which would reveal the token; use its http: "
            "address if that is intended"
        )
    url = (found["brokerUrlTls"] if secure else "") or found["brokerUrl"] or found["brokerUrlTls"]
    return Client(url, token=http.token)


class RemoteAdmin:
    """Of the broker's administration what the commands use."""

    def __init__(self, http: Http) -> None:
        self._http = http

    # -- tenants, namespaces ---------------------------------------------------------------------------

    def tenants(self) -> list[str]:
        return list(self._http.get("/admin/v2/tenants"))

    def tenant(self, name: str) -> object | None:
        try:
            found: object = self._http.get(f"/admin/v2/namespaces/{quoted(name)}")
        except errors.NotFound:
            return None
        return found

    async def create_tenant(self, name: str) -> None:
        self._http.send("PUT", f"/admin/v2/tenants/{quoted(name)}")

    def namespaces(self, tenant: str) -> list[str]:
        return list(self._http.get(f"/admin/v2/namespaces/{quoted(tenant)}"))

    async def create_namespace(self, name: str) -> None:
        self._http.send("PUT", f"/admin/v2/namespaces/{name}")

    # -- topics ----------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return sorted(
            topic
            for tenant in self._http.get("/admin/v2/tenants")
            for namespace in self._http.get(f"/admin/v2/namespaces/{quoted(tenant)}")
            for topic in self._http.get(f"/admin/v2/persistent/{namespace}")
        )

    def topic_stats(self, name: str) -> TopicStats:
        full = topic_name(name)
        stats = self._http.get(path_of(full) + "/stats")
        inside = self._http.get(path_of(full) + "/internalStats")
        ledgers = [
            LedgerStats(each["ledgerId"], each["entries"], each["size"], sealed=True)
            for each in inside["ledgers"]
        ]
        terminated = inside["state"] == "Terminated"
        if ledgers and not terminated:
            last = ledgers[-1]
            ledgers[-1] = LedgerStats(last.id, last.entries, last.size_bytes, sealed=False)
        return TopicStats(
            name=full,
            incarnation="",
            first=next((f"{each.id}:0" for each in ledgers if each.entries), "-"),
            last=inside["lastConfirmedEntry"] if inside["numberOfEntries"] else "-",
            entries=inside["numberOfEntries"],
            size_bytes=inside["totalSize"],
            terminated=terminated,
            producers=[each["producerName"] for each in stats["publishers"]],
            ledgers=ledgers,
            subscriptions={
                each: _subscription(each, found, inside["cursors"][each], inside["lastConfirmedEntry"])
                for each, found in stats["subscriptions"].items()
                if found["durable"] and each in inside["cursors"]
            },
        )

    async def create_topic(self, name: str, **policies: Any) -> None:
        require_remote(policies)
        self._http.send("PUT", path_of(name))
        if policies:
            await self.set_policies(name, **policies)

    async def delete_topic(self, name: str, force: bool = False) -> None:
        self._http.send("DELETE", path_of(name), force=str(force).lower())

    async def terminate(self, name: str) -> MessageId:
        at = self._http.send("POST", path_of(name) + "/terminate")
        return MessageId(at["ledgerId"], at["entryId"])

    async def truncate(self, name: str) -> None:
        self._http.send("DELETE", path_of(name) + "/truncate")

    def policies(self, name: str) -> SimpleNamespace:
        kept = self._http.get(path_of(name) + "/retention")
        minutes, size = (kept["retentionTimeInMinutes"], kept["retentionSizeInMB"]) if kept else (None, None)
        return SimpleNamespace(
            retention_s=minutes if minutes is None or minutes < 0 else minutes * 60.0,
            retention_bytes=size if size is None or size < 0 else size * MB,
            ttl_s=self._http.get(path_of(name) + "/messageTTL"),
            deduplication=self._http.get(path_of(name) + "/deduplicationEnabled"),
            **dict.fromkeys(NOT_REMOTE),
        )

    async def set_policies(self, name: str, **policies: Any) -> None:
        require_remote(policies)
        at = path_of(name)
        if {"retention_bytes", "retention_s"} & policies.keys():
            now = self.policies(name)
            seconds = policies.get("retention_s", now.retention_s)
            size = policies.get("retention_bytes", now.retention_bytes)
            if seconds is None and size is None:
                self._http.send("DELETE", at + "/retention")
            else:
                # One of them alone has no limit beside it: Pulsar keeps what is within both.
                body = {
                    "retentionTimeInMinutes": -1 if seconds is None else math.ceil(seconds / 60),
                    "retentionSizeInMB": -1 if size is None else math.ceil(size / MB),
                }
                self._http.send("POST", at + "/retention", body)
        if "ttl_s" in policies:
            seconds = policies["ttl_s"]
            if seconds is None:
                self._http.send("DELETE", at + "/messageTTL")
            else:
                self._http.send("POST", at + "/messageTTL", messageTTL=math.ceil(seconds))
        if "deduplication" in policies:
            on = policies["deduplication"]
            method, body_ = ("DELETE", None) if on is None else ("POST", on)
            self._http.send(method, at + "/deduplicationEnabled", body_)

    # -- subscriptions ---------------------------------------------------------------------------------

    def subscriptions(self, topic: str) -> list[str]:
        return list(self._http.get(path_of(topic) + "/subscriptions"))

    def subscription_stats(self, topic: str, name: str) -> SubscriptionStats:
        known = self.topic_stats(topic).subscriptions
        if name not in known:
            raise errors.NotFound(no_subscription(topic, name, known))
        return known[name]

    async def create_subscription(self, topic: str, name: str, start: Place = "latest") -> None:
        later = isinstance(start, datetime)
        self._http.send("PUT", self._at(topic, name), "latest" if later else _target(start))
        if later:
            self._reset(topic, name, start)

    async def delete_subscription(self, topic: str, name: str, force: bool = False) -> None:
        self._http.send("DELETE", self._at(topic, name), force=str(force).lower())

    async def reset(self, topic: str, name: str, to: Place) -> None:
        self._reset(topic, name, to)

    def _reset(self, topic: str, name: str, to: Place) -> None:
        at = self._at(topic, name) + "/resetcursor"
        if isinstance(to, datetime):
            self._http.send("POST", f"{at}/{milliseconds(to)}")
            return
        ends = {
            "earliest": {"ledgerId": -1, "entryId": -1},
            "latest": {"ledgerId": LATEST, "entryId": 0},
        }
        self._http.send("POST", at, ends[to] if isinstance(to, str) else _target(to))

    async def skip(self, topic: str, name: str, count: int) -> None:
        self._http.send("POST", f"{self._at(topic, name)}/skip/{count}")

    async def clear(self, topic: str, name: str) -> None:
        self._http.send("POST", f"{self._at(topic, name)}/skip_all")

    async def expire(self, topic: str, name: str, older_than_s: float) -> None:
        self._http.send("POST", f"{self._at(topic, name)}/expireMessages/{math.ceil(older_than_s)}")

    def _at(self, topic: str, subscription: str) -> str:
        return f"{path_of(topic)}/subscription/{quoted(subscription)}"

    # -- looking at messages ---------------------------------------------------------------------------

    async def peek(self, topic: str, name: str, count: int = 1) -> list[TopicMessage]:
        found: list[TopicMessage] = []
        for number in range(1, count + 1):
            try:
                found += self._message(f"{self._at(topic, name)}/position/{number}")
            except errors.NotFound:
                break
        return found[:count]

    async def examine(self, topic: str, start: Place = "earliest", count: int = 1) -> list[TopicMessage]:
        found: list[TopicMessage] = []
        async with self.reader(topic, start, min(count, READ_MAX)) as reader:
            while len(found) < count and await reader.has_more():
                found += await reader.receive_many(count - len(found))
        return found

    def reader(self, topic: str, start: Place, receiver_queue: int) -> Reader:
        """Open a reader at a place, or at the first message from a time on."""
        if isinstance(start, datetime):
            found = self._http.get(f"{path_of(topic)}/messageid/{milliseconds(start)}")
            start = MessageId(found["ledgerId"], found["entryId"])
        return Reader(client_of(self._http, topic), topic_name(topic), start, receiver_queue)

    def _message(self, path: str) -> list[TopicMessage]:
        data, headers = self._http.raw("GET", path, None, {})
        ledger, _, entry = headers["x-pulsar-message-id"].partition(":")
        at = MessageId(int(ledger), int(entry.partition(":")[0]))
        told = {
            name.removeprefix("x-pulsar-"): urllib.parse.unquote(value)
            for name, value in headers.items()
            if name.startswith("x-pulsar-")
        }
        return messages_of(at, entry_of(_metadata(told), data, told.get("compression", "NONE")))


NOT_REMOTE = {"roll_bytes": "--roll-size", "roll_entries": "--roll-entries", "roll_age_s": "--roll-age"}


def require_remote(policies: dict[str, Any]) -> None:
    """Refuse policies that have no path in Pulsar's interface."""
    if given := [option for name, option in NOT_REMOTE.items() if policies.get(name) is not None]:
        raise Usage(f"{', '.join(given)} cannot be set through a server; stop it, and use --data DIR")


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
    if "partition-key" in told:
        found.partition_key = told["partition-key"]
        found.partition_key_b64_encoded = told.get("partition-key-b64-encoded") == "true"
    if "num-batch-message" in told:
        found.num_messages_in_batch = int(told["num-batch-message"])
    return found


def _ms(time: str | None) -> int:
    return milliseconds(datetime.fromisoformat(time)) if time else 0


def _numbers(position: str) -> tuple[int, int]:
    """Return ledger and entry; either may be -1."""
    ledger, _, entry = position.partition(":")
    return int(ledger), int(entry)


def _target(place: Place) -> object:
    if isinstance(place, MessageId):
        return {"ledgerId": place.ledger, "entryId": place.entry}
    return place


def _subscription(name: str, found: dict[str, Any], cursor: dict[str, Any], last: str) -> SubscriptionStats:
    """Convert a cursor; `last` is the topic's last message, behind which the words are `end`."""
    mark, read = _numbers(cursor["markDeletePosition"]), _numbers(cursor["readPosition"])
    behind = int(cursor["numberOfEntriesSinceFirstNotAckedMessage"])
    return SubscriptionStats(
        name=name,
        durable=True,
        backlog=found["msgBacklog"],
        mark_delete="start" if mark[1] < 0 else cursor["markDeletePosition"],
        read_position="end" if read[1] < 0 or read > _numbers(last) else cursor["readPosition"],
        individually_acknowledged=max(0, behind - found["msgBacklog"]),
        partly_acknowledged=cursor.get("partlyAcknowledged", 0),
        reset_number=cursor["resetNumber"],
        under_revision=bool(cursor["isUnderRevision"]),
        dispatch=None,
    )
