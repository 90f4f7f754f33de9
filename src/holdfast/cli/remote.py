"""Run the commands against a server instead of a data directory, through its HTTP interface.

`RemoteBroker` has the part of a `Broker` that the commands use. Messages go through `holdfast.client`. Calls
block: a command does one thing at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from holdfast import errors
from holdfast._core import TopicMessage
from holdfast.broker import (
    AutoCreation,
    CompactionStats,
    DrainingHash,
    LedgerStats,
    SubscriptionStats,
    TopicStats,
)
from holdfast.cli.positions import Place
from holdfast.cli.remote_exchanges import RemoteExchanges
from holdfast.cli.remote_http import Http, due_of, milliseconds, path_of, quoted, restored
from holdfast.cli.remote_rights import RemoteRights
from holdfast.client import LATEST, Client, Consumer, Producer, Reader
from holdfast.ids import MessageId
from holdfast.names import no_subscription, topic_name

_STATES: dict[str, Literal["never", "running", "done", "failed"]] = {
    "NOT_RUN": "never",
    "RUNNING": "running",
    "SUCCESS": "done",
    "ERROR": "failed",
}
_QUOTAS = {"destination_storage": "size", "message_age": "age"}
"""Backlog quotas by Pulsar's names."""
_SAME = ("entries", "size", "threshold", "succeeded", "failed", "removed")
"""Figures of a compaction that HTTP names as the broker does."""
READ_MAX = 1000
"""Messages that the server may send before they are read."""


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


class RemoteAdmin(RemoteExchanges, RemoteRights):
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

    async def clear_namespace(self, name: str, subscription: str | None = None) -> None:
        of = "" if subscription is None else f"/{quoted(subscription)}"
        self._http.send("POST", f"/admin/v2/namespaces/{name}/clearBacklog{of}")

    async def unsubscribe_namespace(self, name: str, subscription: str) -> None:
        self._http.send("POST", f"/admin/v2/namespaces/{name}/unsubscribe/{quoted(subscription)}")

    def auto_creation(self, name: str) -> AutoCreation | None:
        found = self._http.get(f"/admin/v2/namespaces/{name}/autoTopicCreation")
        if found is None:
            return None
        return AutoCreation(found["allowAutoTopicCreation"], found.get("defaultNumPartitions") or 0)

    async def set_auto_creation(self, name: str, policy: AutoCreation | None) -> None:
        at = f"/admin/v2/namespaces/{name}/autoTopicCreation"
        if policy is None:
            self._http.send("DELETE", at)
            return
        body: dict[str, object] = {"allowAutoTopicCreation": policy.allow, "topicType": "non-partitioned"}
        if policy.is_partitioned:
            body |= {"topicType": "partitioned", "defaultNumPartitions": policy.partitions}
        self._http.send("POST", at, body)

    async def expire_all(self, topic: str, older_than_s: float) -> None:
        at = f"{path_of(topic)}/all_subscription/expireMessages"
        self._http.send("POST", f"{at}/{math.ceil(older_than_s)}")

    # -- topics ----------------------------------------------------------------------------------------

    def non_persistent_topics(self) -> list[str]:
        return sorted(
            topic
            for tenant in self._http.get("/admin/v2/tenants")
            for namespace in self._http.get(f"/admin/v2/namespaces/{quoted(tenant)}")
            for topic in self._http.get(f"/admin/v2/non-persistent/{namespace}")
        )

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
            unreplicated=stats.get("unreplicated", False),
            dropped=stats.get("droppedEntries", 0),
            alternate=stats.get("alternate"),
            exceeded={_QUOTAS[name]: action for name, action in stats.get("backlogExceededBy", {}).items()},
            producers=[each["producerName"] for each in stats["publishers"]],
            ledgers=ledgers,
            subscriptions={
                each: _subscription(each, found, inside["cursors"][each], inside["lastConfirmedEntry"])
                for each, found in stats["subscriptions"].items()
                if found["durable"] and each in inside["cursors"]
            },
        )

    async def create_topic(self, name: str, *, unreplicated: bool = False, **policies: Any) -> None:
        self._http.send("PUT", path_of(name), **({"unreplicated": "true"} if unreplicated else {}))
        if policies:
            await self.set_policies(name, **policies)

    async def create_partitioned_topic(self, name: str, partitions: int, **policies: Any) -> None:
        self._http.send("PUT", path_of(name) + "/partitions", partitions)
        if policies:
            await self.set_policies(name, **policies)

    async def grow_partitions(self, name: str, partitions: int) -> None:
        self._http.send("POST", path_of(name) + "/partitions", partitions)

    async def delete_partitioned_topic(self, name: str, force: bool = False) -> None:
        self._http.send("DELETE", path_of(name) + "/partitions", force=str(force).lower())

    def partitions(self, name: str) -> int:
        found = self._http.get(path_of(name) + "/partitions", existing="false")
        return int(found["partitions"])

    def partitioned_topics(self) -> dict[str, int]:
        names = sorted(
            topic
            for tenant in self._http.get("/admin/v2/tenants")
            for namespace in self._http.get(f"/admin/v2/namespaces/{quoted(tenant)}")
            for topic in self._http.get(f"/admin/v2/persistent/{namespace}/partitioned")
        )
        return {name: self.partitions(name) for name in names}

    async def delete_topic(self, name: str, force: bool = False) -> None:
        self._http.send("DELETE", path_of(name), force=str(force).lower())

    async def terminate(self, name: str) -> MessageId:
        at = self._http.send("POST", path_of(name) + "/terminate")
        return MessageId(at["ledgerId"], at["entryId"])

    async def trim(self, name: str) -> None:
        self._http.send("POST", path_of(name) + "/trim")

    async def truncate(self, name: str) -> None:
        self._http.send("DELETE", path_of(name) + "/truncate")

    async def compact(self, name: str) -> None:
        try:
            self._http.send("PUT", path_of(name) + "/compaction")
        except errors.Exists as error:  # its status is that of every conflict
            raise errors.Busy(str(error)) from None

    async def forget_compaction(self, name: str) -> None:
        self._http.send("DELETE", path_of(name) + "/compaction")

    def compaction(self, name: str) -> CompactionStats:
        found = self._http.get(path_of(name) + "/compaction")
        return CompactionStats(
            state=_STATES[found["status"]],
            error=found["lastError"],
            error_time=found["errorTimestamp"] * 1_000_000,
            requested=found["requestedTimestamp"] * 1_000_000,
            view=found["view"],
            time=found["viewTimestamp"] * 1_000_000,
            read=found["messagesRead"],
            kept=found["messagesKept"],
            duration_ms=found["durationInMillis"],
            ledger=found["viewLedger"],
            horizon=found["horizon"],
            size_behind=found["sizeBehind"],
            **{each: found[each] for each in _SAME},
        )

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

    async def get(self, topic: str, id: MessageId) -> TopicMessage:  # noqa: A002  # as in the broker
        found = self._message(f"{path_of(topic)}/ledger/{id.ledger}/entry/{id.entry}")
        if id.batch >= len(found):
            raise errors.NotFound(f"{topic_name(topic)} has no message {id}; see `topic peek`")
        return found[max(id.batch, 0)]

    async def delivery_time(self, topic: str, id: MessageId) -> datetime | None:  # noqa: A002
        at = f"{path_of(topic)}/ledger/{id.ledger}/entry/{id.entry}"
        return due_of(self._http.raw("GET", at, None, {})[1])

    async def time_of(self, topic: str, time: datetime) -> MessageId:
        found = self._http.get(f"{path_of(topic)}/messageid/{milliseconds(time)}")
        return MessageId(found["ledgerId"], found["entryId"])

    def last_id(self, topic: str) -> MessageId:
        found = self._http.get(f"{path_of(topic)}/lastMessageId")
        return MessageId(found["ledgerId"], found["entryId"])

    def _message(self, path: str) -> list[TopicMessage]:
        return restored(*self._http.raw("GET", path, None, {}))


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
        owner=cursor.get("owner", ""),
        owner_epoch=cursor.get("ownerEpoch", 0),
        type=found.get("type", ""),
        consumers=tuple(each["consumerName"] for each in found.get("consumers", ())),
        diagnosis=found.get("diagnosis", ""),
        scheduled=found.get("msgDelayed", 0),
        draining=tuple(_draining(found)),
    )


def _draining(found: dict[str, Any]) -> Iterator[DrainingHash]:
    """Yield the hashes that drain at the consumers of a subscription, or at other members."""
    at = [(each.get("drainingHashes", ()), each["consumerName"]) for each in found.get("consumers", ())]
    for hashes, name in (*at, (found.get("drainingElsewhere", ()), "")):
        for each in hashes:
            counts = each["hash"], each["unackMsgs"], each["blockedAttempts"]
            yield DrainingHash(*counts, each["waitingConsumer"], name or each["heldAt"])
