"""Return single messages: the payload in the body, everything else in headers."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote

from aiohttp import web

from holdfast._core import EntryInfo, TopicMessage, parse_entry
from holdfast.broker import Topic
from holdfast.errors import Corrupt, NotFound
from holdfast.formatting import plural
from holdfast.ids import MessageId
from holdfast.server.http.pulsar_stats import moment
from holdfast.server.http.refusals import Refusal
from holdfast.server.http.routing import BYTES, Call, Parameter, Routes
from holdfast.server.http.topics import NAMESPACE

route = Routes("messages", NAMESPACE + "/{topic}", "topic", action="consume")

_COMPRESSIONS = {0: "NONE", 1: "LZ4", 2: "ZLIB", 3: "ZSTD", 4: "SNAPPY"}
_HEADER_BYTES_MAX = 8000
"""The largest header: clients refuse larger ones, so longer properties are left out."""

_EXAMINE = (
    Parameter(
        "initialPosition",
        "string",
        "From which end to count.",
        default="latest",
        choices=("earliest", "latest"),
    ),
    Parameter("messagePosition", "integer", "The first is 1.", default=1, minimum=1),
)


@route("GET", "/examinemessage", query=_EXAMINE, answer=bytes, media=BYTES, refusals=(404,))
async def examine(call: Call) -> web.Response:
    """Return a message by its number from either end; 412 if the topic is empty.

    Acknowledgements have no influence."""
    topic, number = call.topic, call.query("messagePosition")
    if topic.visible == topic.first:
        raise Refusal(412, f"{topic.name} has no messages; publish one first")
    entries = topic.visible - topic.first
    if number > entries:
        raise NotFound(f"{topic.name} has {plural(entries, 'entry')}, so no message {number}")
    early = call.query("initialPosition") == "earliest"
    return await _message(topic, topic.first + number - 1 if early else topic.visible - number)


@route("GET", "/ledger/{ledger}/entry/{entry}", answer=bytes, media=BYTES, refusals=(404,))
async def get(call: Call) -> web.Response:
    """Return the message at a position."""
    topic, position = call.topic, MessageId(call["ledger"], call["entry"])
    info = topic.ledgers.find(position.ledger)
    if info is None or position.entry >= info.entries:
        raise NotFound(f"{topic.name} has no message {position}; internalStats shows its ledgers")
    return await _message(topic, info.first + position.entry)


@route(
    "GET",
    "/subscription/{subscription}/position/{position}",
    answer=bytes,
    media=BYTES,
    refusals=(404,),
)
async def peek(call: Call) -> web.Response:
    """Return a message by its number in a subscription's backlog; it stays there."""
    topic, acks, number = call.topic, call.subscription.acks, call["position"]
    if number > topic.backlog(call.subscription):
        left = plural(topic.backlog(call.subscription), "entry")
        raise NotFound(f"the backlog of {call['subscription']!r} has {left}, so no message {number}")
    ordinal = acks.next_unacked(acks.after_unacked(number - 1, topic.visible))
    return await _message(topic, max(ordinal, topic.first))


async def _message(topic: Topic, ordinal: int) -> web.Response:
    """Return an entry as it is stored: a batch as a whole, compressed data compressed."""
    entry = (await topic.read(ordinal, 1, 1)).entry(0)
    headers = {"X-Pulsar-Message-ID": str(topic.id_of(ordinal))}
    try:
        info = parse_entry(entry)
    except Corrupt:  # a client published bytes that are not a message: return them as they are
        return web.Response(body=entry, content_type=BYTES, headers=headers)
    return web.Response(body=info.payload, content_type=BYTES, headers=headers | _headers(info))


def headers_of(message: TopicMessage) -> dict[str, str]:
    """Return the headers of one message; its payload is the body."""
    return _named(_common(message))


def _common(info: EntryInfo | TopicMessage) -> dict[str, object]:
    found: dict[str, object] = {
        "publish-time": moment(info.publish_time_ms * 1_000_000),
        "producer-name": info.producer,
        "sequence-id": info.sequence,
        "compression": _COMPRESSIONS.get(info.compression, str(info.compression)),
    }
    if info.event_time_ms:
        found["event-time"] = moment(info.event_time_ms * 1_000_000)
    if isinstance(info.key, bytes):
        found["partition-key"] = base64.b64encode(info.key).decode()
        found["partition-key-b64-encoded"] = "true"
    elif info.key is not None:
        found["partition-key"] = info.key
    if info.ordering_key:
        found["ordering-key"] = base64.b64encode(info.ordering_key).decode()
    if info.null_value:
        found["null-value"] = "true"
    if info.properties:
        found["PROPERTY"] = json.dumps(info.properties)  # ASCII, for a header
    return found


def _headers(info: EntryInfo) -> dict[str, str]:
    found = _common(info)
    if info.deliver_at_ms > 0:
        found["deliver-at-time"] = moment(info.deliver_at_ms * 1_000_000)
    if info.batch:
        found["num-batch-message"] = info.messages
        found["batch-size"] = len(info.payload)
    if info.compression:
        found["uncompressed-size"] = info.uncompressed_size
    if info.chunks:
        found |= {"uuid": info.uuid, "chunk-id": info.chunk, "num-chunks-from-msg": info.chunks}
        found["total-chunk-msg-size"] = info.chunked_size
    return _named(found)


def _named(found: dict[str, object]) -> dict[str, str]:
    named = {f"X-Pulsar-{name}": _plain(value) for name, value in found.items()}
    return {name: text for name, text in named.items() if len(text) <= _HEADER_BYTES_MAX}


def _plain(value: object) -> str:
    """Percent-encode everything but printable ASCII, for a header."""
    text = str(value)
    return text if text.isascii() and text.isprintable() else quote(text, safe=" !\"#$&'()*+,/:;<=>?@[]{}|")
