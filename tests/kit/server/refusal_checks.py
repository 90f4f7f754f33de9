"""Refusals of the wire, each with its words, for tests and mutants."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from holdfast._core import crc32c, encode_messages
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.server.wire_programs import until
from tests.kit.server.wire_raw import Raw, Type, full


def line(record: logging.LogRecord) -> str:
    """Return a line of the log with its fields."""
    return " ".join([record.getMessage(), *map(str, getattr(record, "fields", {}).values())])


def has_words_and_a_line(
    raw: Raw, caplog: pytest.LogCaptureFixture, case: Callable[[Raw], str], patience_s: float = 10.0
) -> None:
    caplog.set_level(logging.INFO, "holdfast.wire")
    caplog.clear()
    words = case(raw)
    assert len(words) > 20, "a reason says what happened, and what to do"
    until(lambda: any(words[:200] in line(record) for record in caplog.records), patience_s)


def _refused(raw: Raw, kind: int, answer: int = Type.ERROR, **more: Any) -> str:
    return str(raw.ask(kind, answer, **more).message)


def _subscribe(raw: Raw, **more: Any) -> str:
    given = {"topic": full("refusals"), "subscription": "s", "consumer_id": 9, "subType": 1, **more}
    return _refused(raw, Type.SUBSCRIBE, **given)


def compacted_reads(raw: Raw) -> str:
    return _subscribe(raw, read_compacted=True, subType=1)


def replicated_subscriptions(raw: Raw) -> str:
    return _subscribe(raw, replicate_subscription_state=True)


def a_bad_name_of_a_subscription(raw: Raw) -> str:
    return _subscribe(raw, subscription="a\nb")


def a_second_exclusive_consumer(raw: Raw) -> str:
    raw.subscribe("refusals-exclusive", 7)
    words = _subscribe(raw, topic=full("refusals-exclusive"), subType=0)
    raw.ask(Type.CLOSE_CONSUMER, consumer_id=7)
    return words


def a_missing_namespace(raw: Raw) -> str:
    return _refused(raw, Type.PRODUCER, topic="persistent://public/absent/x", producer_id=3)


def an_invalid_topic(raw: Raw) -> str:
    return _refused(raw, Type.LOOKUP, Type.LOOKUP_RESPONSE, topic="persistent://x")


def transactions_of_a_client(raw: Raw) -> str:
    topic = "persistent://pulsar/system/transaction_coordinator_assign"
    return _refused(raw, Type.PARTITIONED_METADATA, Type.PARTITIONED_METADATA_RESPONSE, topic=topic)


def an_unknown_consumer(raw: Raw) -> str:
    return _refused(raw, Type.UNSUBSCRIBE, consumer_id=99)


def a_seek_without_target(raw: Raw) -> str:
    raw.subscribe("refusals-seek", 5)
    return _refused(raw, Type.SEEK, consumer_id=5)


def an_unknown_schema(raw: Raw) -> str:
    raw.produce("refusals-schema", 4)
    answer = raw.ask(Type.GET_SCHEMA, Type.GET_SCHEMA_RESPONSE, topic=full("refusals-schema"))
    return str(answer.error_message)


def a_reserved_name_of_a_producer(raw: Raw) -> str:
    return _refused(raw, Type.PRODUCER, topic=full("x"), producer_id=3, producer_name="holdfast.ingest.1")


def a_message_in_a_transaction(raw: Raw) -> str:
    raw.produce("refusals-sends", 2)
    entry = encode_messages([b"x"], "raw", 0, 1)[0]
    raw.tell(Type.SEND, entry, producer_id=2, sequence_id=0, txnid_least_bits=1, txnid_most_bits=1)
    return str(raw.expect(Type.SEND_ERROR).message)


def a_wrong_checksum(raw: Raw) -> str:
    raw.produce("refusals-sums", 2)
    entry = bytearray(encode_messages([b"x"], "raw", 0, 1)[0])
    entry[-1] ^= 1
    raw.tell(Type.SEND, bytes(entry), producer_id=2, sequence_id=0)
    return str(raw.expect(Type.SEND_ERROR).message)


def a_wrong_checksum_of_a_topic_that_is_not_persistent(raw: Raw) -> str:
    topic = "non-persistent://public/default/refusals"
    raw.ask(Type.PRODUCER, Type.PRODUCER_SUCCESS, topic=topic, producer_id=2)
    entry = bytearray(encode_messages([b"x"], "raw", 0, 1)[0])
    entry[-1] ^= 1
    raw.tell(Type.SEND, bytes(entry), producer_id=2, sequence_id=0)
    return str(raw.expect(Type.SEND_ERROR).message)


def key_shared_of_a_topic_that_is_not_persistent(raw: Raw) -> str:
    return _subscribe(raw, topic="non-persistent://public/default/refusals", subType=3)


def access_modes_of_a_topic_that_is_not_persistent(raw: Raw) -> str:
    """Those that wait for exclusive access, or fence others."""
    topic = "non-persistent://public/default/refusals"
    waits, fences = (
        _refused(raw, Type.PRODUCER, topic=topic, producer_id=3, producer_access_mode=mode)
        for mode in (pb.WaitForExclusive, pb.ExclusiveWithFencing)
    )
    assert waits == fences
    return waits


def metadata_that_cannot_be_parsed(raw: Raw) -> str:
    raw.produce("refusals-metadata", 2)
    rest = (3).to_bytes(4, "big") + b"\xff\xff\xff" + b"payload"
    raw.tell(Type.SEND, b"\x0e\x01" + crc32c(rest).to_bytes(4, "big") + rest, producer_id=2, sequence_id=0)
    return str(raw.expect(Type.SEND_ERROR).message)


def an_acknowledgement_in_a_transaction(raw: Raw) -> str:
    return _ack(raw, txnid_least_bits=1, txnid_most_bits=1)


def an_acknowledgement_of_a_closed_consumer(raw: Raw) -> str:
    return _ack(raw)


def _ack(raw: Raw, **more: Any) -> str:
    ids = [{"ledgerId": 1, "entryId": 1}]
    answer = raw.ask(Type.ACK, Type.ACK_RESPONSE, consumer_id=98, ack_type=0, message_id=ids, **more)
    return str(answer.message)


def a_cumulative_acknowledgement_of_a_shared_subscription(raw: Raw) -> str:
    raw.subscribe("refusals-order", 6, sub_type=1)
    ids = [{"ledgerId": 1, "entryId": 1}]
    answer = raw.ask(Type.ACK, Type.ACK_RESPONSE, consumer_id=6, ack_type=1, message_id=ids)
    return str(answer.message)


def an_acknowledgement_without_an_answer(raw: Raw) -> str:
    """A client that requests no receipt is not told; the log is."""
    ids = [{"ledgerId": 1, "entryId": 1}]
    raw.tell(Type.ACK, consumer_id=98, ack_type=0, message_id=ids, txnid_least_bits=1)
    return "transactions are not supported; nothing was acknowledged"


def a_command_that_clients_do_not_send(raw: Raw) -> str:
    raw.tell(Type.CONNECTED, server_version="x")
    return str(raw.expect(Type.ERROR).message)


REFUSALS: list[Callable[[Raw], str]] = [
    *(compacted_reads, replicated_subscriptions, a_bad_name_of_a_subscription, a_second_exclusive_consumer),
    *(a_missing_namespace, an_invalid_topic, transactions_of_a_client, an_unknown_consumer),
    *(a_seek_without_target, an_unknown_schema, a_reserved_name_of_a_producer),
    *(a_message_in_a_transaction, a_wrong_checksum, metadata_that_cannot_be_parsed),
    a_wrong_checksum_of_a_topic_that_is_not_persistent,
    *(key_shared_of_a_topic_that_is_not_persistent, access_modes_of_a_topic_that_is_not_persistent),
    *(an_acknowledgement_in_a_transaction, an_acknowledgement_of_a_closed_consumer),
    *(a_cumulative_acknowledgement_of_a_shared_subscription, an_acknowledgement_without_an_answer),
    a_command_that_clients_do_not_send,
]
