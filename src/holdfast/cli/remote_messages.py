"""Messages that came from a server: entries taken apart."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from urllib.parse import unquote

from holdfast._core import EntryInfo
from holdfast.errors import Unsupported
from holdfast.ids import MessageId

NAMES = {0: "NONE", 1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}


@dataclass(frozen=True)
class RemoteMessage:
    """Has of a `TopicMessage` what the commands show."""

    id: MessageId
    data: bytes
    key: str | bytes | None = None
    properties: Mapping[str, str] | None = None
    publish_time: datetime | None = None
    event_time: datetime | None = None
    producer: str = ""
    sequence: int = 0
    redelivery_count: int = 0
    batch_size: int = 0


def plain(payload: bytes, compression: str) -> bytes:
    """The payload as it was before its producer compressed it.

    Raises:
        Unsupported: this program cannot do that.
    """
    if compression == "NONE":
        return payload
    if compression == "ZLIB":
        return zlib.decompress(payload)
    raise Unsupported(f"the message is compressed with {compression}; read it with a Pulsar client")


def of_entry(at: MessageId, info: EntryInfo, redelivered: int) -> list[RemoteMessage]:
    """All messages of an entry."""
    one = RemoteMessage(
        at,
        plain(bytes(info.payload), NAMES.get(info.compression, str(info.compression))),
        info.key,
        info.properties,
        utc(info.publish_time_ms),
        utc(info.event_time_ms),
        info.producer,
        info.sequence,
        redelivered,
    )
    return list(_apart(one, info.messages)) if info.batch else [one]


def messages_of(at: MessageId, payload: bytes, headers: Mapping[str, str]) -> list[RemoteMessage]:
    """All messages of an entry that came by HTTP."""
    named = {
        name.removeprefix("x-pulsar-"): unquote(value)
        for name, value in headers.items()
        if name.startswith("x-pulsar-")
    }
    key: str | bytes | None = named.get("partition-key")
    if key is not None and named.get("partition-key-b64-encoded") == "true":
        key = base64.b64decode(key)
    one = RemoteMessage(
        at,
        plain(payload, named.get("compression", "NONE")),
        key,
        json.loads(named["property"]) if "property" in named else None,
        datetime.fromisoformat(named["publish-time"]) if "publish-time" in named else None,
        datetime.fromisoformat(named["event-time"]) if "event-time" in named else None,
        named.get("producer-name", ""),
        int(named.get("sequence-id", "0")),
    )
    count = named.get("num-batch-message")
    return [one] if count is None else list(_apart(one, int(count)))


def _apart(batch: RemoteMessage, count: int) -> Iterator[RemoteMessage]:
    from holdfast.protocol import pulsar_pb2 as pb

    at, data = 0, batch.data
    for index in range(count):
        size = int.from_bytes(data[at : at + 4], "big")
        single = pb.SingleMessageMetadata.FromString(data[at + 4 : at + 4 + size])
        at += 4 + size
        key: str | bytes | None = single.partition_key if single.HasField("partition_key") else None
        if key is not None and single.partition_key_b64_encoded:
            key = base64.b64decode(key)
        yield replace(
            batch,
            id=MessageId(batch.id.ledger, batch.id.entry, index),
            data=data[at : at + single.payload_size],
            key=key,
            properties={each.key: each.value for each in single.properties},
            event_time=utc(single.event_time),
            sequence=single.sequence_id if single.HasField("sequence_id") else batch.sequence + index,
            batch_size=count,
        )
        at += single.payload_size


YEAR_10000_MS = 253_402_300_800_000


def utc(time_ms: int) -> datetime | None:
    """Convert a time from outside; None: there is none, or it is beyond the last year that Python knows.

    Example:
        >>> utc(0), utc((1 << 64) - 1)
        (None, None)
    """
    return datetime.fromtimestamp(time_ms / 1000, UTC) if 0 < time_ms < YEAR_10000_MS else None
