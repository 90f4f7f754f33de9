"""Checks of clients' numbers at their end, for tests and for mutants."""

from __future__ import annotations

import http.client
import itertools
import json
import struct
from typing import Any

from holdfast import _core
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.cost_world import CostWorld
from tests.kit.server.wire_raw import Raw, Type

NUMBER_MAX = (1 << 63) - 1
SEQUENCE_MAX = NUMBER_MAX - 1
WORD = (1 << 64) - 1

topics = (f"topic-{number}" for number in itertools.count())


def entry(count: int = 0, **fields: Any) -> bytes:
    """Return one message, or a batch of `count`, with these fields in its metadata."""
    one = pb.SingleMessageMetadata(payload_size=1).SerializeToString()
    payload = (struct.pack(">I", len(one)) + one + b"x") * count or b"x"
    known: dict[str, Any] = {"producer_name": "p", "sequence_id": 1, "publish_time": 1}
    if count:
        known["num_messages_in_batch"] = count
    metadata = pb.MessageMetadata(**{**known, **fields}).SerializeToString()
    rest = struct.pack(">I", len(metadata)) + metadata + payload
    return struct.pack(">HI", 0x0E01, _core.crc32c(rest)) + rest


def asked(world: CostWorld, method: str, path: str, body: Any = None) -> tuple[int, Any, bytes]:
    """Send a request to the administration; return (status, headers, body)."""
    channel = http.client.HTTPConnection("127.0.0.1", world.http.port or 0, timeout=10)
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        channel.request(method, f"/admin/v2{path}", data, {"Content-Type": "application/json"})
        answer = channel.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        channel.close()


def a_number_of_a_message_is_delivered_and_shown(
    world: CostWorld, raw: Raw, topic: str, field: str, value: int
) -> None:
    """Consumers and administrators get it; a time beyond the year 9999 has no date."""
    raw.produce(topic)
    raw.tell(Type.SEND, entry(**{field: value}), producer_id=1, sequence_id=1)
    raw.expect(Type.SEND_RECEIPT)
    raw.subscribe(topic)
    raw.flow(1)
    raw.messages(1)
    for path in (f"{topic}/subscription/s/position/1", f"{topic}/examinemessage?messagePosition=1"):
        status, headers, _ = asked(world, "GET", f"/persistent/public/default/{path}")
        assert status == 200, path
        if field in ("publish_time", "event_time"):
            assert headers[f"X-Pulsar-{field.replace('_', '-')}"] == str(WORD)


def an_epoch_of_a_consumer_comes_back(raw: Raw, topic: str, epoch: int, patience_s: float = 10.0) -> None:
    """A consumer with an epoch of over 63 bits once got neither messages nor error."""
    raw.publish(topic, 1)
    raw.subscribe(topic, consumer_epoch=epoch)
    raw.flow(1)
    assert raw.expect(Type.MESSAGE, patience_s).consumer_epoch == epoch
    raw.tell(Type.REDELIVER_UNACKNOWLEDGED_MESSAGES, consumer_id=1, consumer_epoch=WORD)
    raw.flow(1)
    assert raw.expect(Type.MESSAGE, patience_s).consumer_epoch == WORD
