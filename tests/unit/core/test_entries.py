"""Frames and entries of the core against a codec in Python and hostile bytes.

The codec is entry_bytes.py, written by hand.
"""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Corrupt, Full, Misuse, _core
from tests.kit.examples import examples
from tests.kit.ledger.entry_bytes import (
    METADATA,
    SINGLE,
    Fields,
    batch_payload,
    decode_entry,
    decode_frame,
    decode_publish,
    entry,
    pair,
)
from tests.kit.slices import seeds

NEEDED: Fields = [(1, b"producer"), (2, 7), (3, 1_700_000_000_123)]

texts = st.text(max_size=20)
properties_of_all_sizes = st.dictionaries(texts, texts, max_size=5)


def published(frame: bytes) -> Any:
    _, [(kind, version, body)] = decode_frame(frame)
    assert (kind, version) == (1, 1)
    return decode_publish(body)


# -- frames --------------------------------------------------------------------------------------------------


def test_a_frame_by_its_bytes() -> None:
    frame = _core.Frame()
    assert (frame.count, frame.size) == (0, 16)
    assert decode_frame(frame.take(3)) == (3, [])
    frame.event(9, 2, b"body")
    frame.event(255, 0, b"")
    frame.publish(1, 2, 3, "näme", [(5, 1, b"first"), (6, 10, b"")])
    assert frame.count == 3
    size = frame.size
    taken = frame.take((1 << 64) - 1)
    assert len(taken) == size
    time_ns, events = decode_frame(taken)
    assert time_ns == (1 << 64) - 1
    assert events[:2] == [(9, 2, b"body"), (255, 0, b"")]
    publish = decode_publish(events[2][2])
    assert (publish.topic, publish.session, publish.epoch, publish.producer) == (1, 2, 3, "näme")
    assert publish.entries == [(5, 1, b"first"), (6, 10, b"")]
    assert (frame.count, frame.size) == (0, 16)  # empty again


@pytest.mark.parametrize(
    ("add", "error"),
    [
        (lambda f: f.publish(1, 2, 3, "p", []), Misuse),
        (lambda f: f.publish(1, 2, 3, "p", [(-1, 1, b"")]), Misuse),
        (lambda f: f.publish(1, 2, 3, "p", [(1, 1, b"good"), (1, 0, b"")]), Misuse),
        (lambda f: f.publish(1, 2, 3, "p", [(1, 1, b"good"), (1, -1, b"")]), Misuse),
        (lambda f: f.publish(1, 2, 3, "p", [(1, 1 << 32, b"")]), Misuse),
        (lambda f: f.publish(1, 2, 3, "p", [((1 << 63) - 1, 2, b"")]), Misuse),
        (lambda f: f.publish(1, 2, 3, "p", [(1 << 63, 1, b"")]), OverflowError),
        (lambda f: f.publish(1, 2, 3, "p", [(1, 1, "text")]), TypeError),
        (lambda f: f.publish(1, 2, 3, "p", [(1, 1, b""), (1, 1)]), TypeError),
        (lambda f: f.publish(1, 2, 3, "p" * 65536, [(1, 1, b"")]), Misuse),
        (lambda f: f.event(1, 1, bytes(8 << 20)), Full),
        (lambda f: f.publish(1, 2, 3, "p", [(1, 1, bytes(8 << 20))]), Full),
        (lambda f: f.publish_messages(1, 2, 3, "p", 0, [bytes(4 << 20)] * 2, 1), Full),
        (lambda f: f.publish_messages(1, 2, 3, "p", 0, [b"good", "text"], 1), TypeError),
        (lambda f: f.publish_messages(1, 2, 3, "p", -1, [b""], 1), Misuse),
        (lambda f: f.publish_messages(1, 2, 3, "p", (1 << 63) - 1, [b""] * 2, 1), Misuse),
        (lambda f: f.publish_messages(1, 2, 3, "p", 0, [b""], 1, batch=0), Misuse),
        (lambda f: f.publish_messages(1, 2, 3, "p", 0, [], 1), Misuse),
        (lambda f: f.publish_messages(1, 2, 3, "p", 0, [b""], 1, key=5), TypeError),
        (lambda f: f.publish_messages(1, 2, 3, "p", 0, [b""], 1, ordering_key="text"), TypeError),
        (lambda f: f.publish_messages(1, 2, 3, "p", 0, [b""], 1, properties={"a": 1}), TypeError),
    ],
)
def test_what_is_refused_leaves_the_frame_as_it_was(add: Any, error: type[Exception]) -> None:
    frame = _core.Frame()
    frame.event(7, 1, b"before")
    size = frame.size
    with pytest.raises(error):
        add(frame)
    assert (frame.count, frame.size) == (1, size)
    frame.event(8, 1, b"after")
    assert decode_frame(frame.take(0))[1] == [(7, 1, b"before"), (8, 1, b"after")]


def test_one_event_may_be_larger_than_a_frame() -> None:
    frame = _core.Frame()
    frame.publish_messages(1, 2, 3, "p", 0, [bytes(4 << 20)] * 3, 1)
    with pytest.raises(Full, match=r"take\(\)"):
        frame.event(1, 1, b"")
    assert len(published(frame.take(0)).entries) == 3
    frame.event(1, 1, b"")  # there is room again


def test_memory_of_a_frame_is_reused_only_when_nobody_has_it() -> None:
    frame = _core.Frame()

    def build(seed: int) -> bytes:
        frame.publish_messages(1, 2, 3, "p", 0, [bytes([seed]) * 1024] * 100, 1)
        return frame.take(seed)

    held = [build(i) for i in range(12)]
    copies = [bytes(bytearray(each)) for each in held]
    hashes = [hash(each) for each in held]
    assert len({id(each) for each in held}) == 12
    assert [decode_frame(each)[0] for each in held] == list(range(12))
    places = set()
    for i in range(50):
        passing = build(i)
        assert hash(passing) == hash(bytes(bytearray(passing)))  # no hash of an earlier frame stays behind
        places.add(id(passing))
        del passing
    assert len(places) <= 9  # the memory of a few frames was enough
    assert held == copies
    assert [hash(each) for each in held] == hashes
    view = memoryview(build(200))
    kept = bytes(view)
    for i in range(20):
        build(i)
    assert view == kept  # a view holds the buffer, too


# -- entries that the core makes -----------------------------------------------------------------------------


@examples(test=50)
@given(
    producer=texts,
    sequence=st.integers(0, (1 << 63) - 20),
    payloads=st.lists(st.binary(max_size=300), min_size=1, max_size=9),
    publish_time=st.integers(0, (1 << 64) - 1),
    key=st.none() | texts | st.binary(max_size=20),
    ordering_key=st.none() | st.binary(max_size=20),
    properties=st.none() | properties_of_all_sizes,
    event_time=st.integers(0, (1 << 64) - 1),
    batch=st.integers(1, 10),
)
def test_what_is_made_is_read_by_hand(
    producer: str,
    sequence: int,
    payloads: list[bytes],
    publish_time: int,
    key: str | bytes | None,
    ordering_key: bytes | None,
    properties: dict[str, str] | None,
    event_time: int,
    batch: int,
) -> None:
    frame = _core.Frame()
    more: dict[str, Any] = {
        "key": key,
        "ordering_key": ordering_key,
        "properties": properties,
        "event_time_ms": event_time,
        "batch": batch,
    }
    count = frame.publish_messages(1, 2, 3, producer, sequence, payloads, publish_time, **more)
    publish = published(frame.take(0))
    entries = [data for _, _, data in publish.entries]
    assert entries == _core.encode_messages(payloads, producer, sequence, publish_time, **more)
    assert publish.producer == producer
    assert len(entries) == count == -(-len(payloads) // batch)

    own: dict[str, Any] = {}
    if key is not None:
        own["partition_key"] = key.encode() if isinstance(key, str) else base64.b64encode(key)
        if isinstance(key, bytes):
            own["partition_key_b64_encoded"] = 1
    if ordering_key is not None:
        own["ordering_key"] = ordering_key
    of_entry = {"producer_name": producer.encode(), "publish_time": publish_time}
    of_event = {"event_time": event_time} if event_time else {}
    expected = list((properties or {}).items())
    for i, (first, span, data) in enumerate(publish.entries):
        mine = payloads[i * batch : (i + 1) * batch]
        assert (first, span) == (sequence + i * batch, len(mine))
        decoded = decode_entry(data)
        if batch == 1:
            assert decoded.whole.payload == mine[0]
            assert not decoded.parts
            assert decoded.whole.fields == {**of_entry, "sequence_id": first, **own, **of_event}
            assert decoded.whole.properties == expected
            continue
        assert decoded.whole.fields == {
            **of_entry,
            "sequence_id": first,
            **own,
            "num_messages_in_batch": len(mine),
            "highest_sequence_id": first + len(mine) - 1,
        }
        assert [part.payload for part in decoded.parts] == mine
        for j, part in enumerate(decoded.parts):
            assert part.fields == {
                "payload_size": len(mine[j]),
                "sequence_id": first + j,
                **own,
                **of_event,
            }
            assert part.properties == expected


def test_payloads_may_be_any_buffers() -> None:
    made = _core.encode_messages((b"bytes", bytearray(b"array"), memoryview(b"a view")[2:]), "p", 0, 1)
    assert [decode_entry(each).whole.payload for each in made] == [b"bytes", b"array", b"view"]
    with pytest.raises(BufferError):
        _core.encode_messages([memoryview(b"every second")[::2]], "p", 0, 1)
    array = bytearray(b"x")
    with pytest.raises(TypeError):
        _core.encode_messages([array, 5], "p", 0, 1)  # type: ignore[list-item]
    array.append(0)  # it is not exported any more


# -- entries that the core reads -----------------------------------------------------------------------------


def test_every_field_is_read() -> None:
    fields: Fields = [
        (99, b"not known"),
        (1, b"producer"),
        (2, 0),
        (3, 5),
        (4, pair("a", "b")),
        (4, pair("ü", "")),
        (5, b"elsewhere"),
        (6, b"key"),
        (7, b"replicate"),
        (8, 3),
        (9, 1000),
        (11, 4),
        (12, 6),
        (13, b""),
        (16, b"\x01"),
        (18, b"\x00order"),
        (19, -5),
        (20, 8),
        (22, 1),
        (23, (1 << 64) - 1),
        (24, 10),
        (25, 1),
        (26, b"uuid"),
        (27, 3),
        (28, 900),
        (29, 2),
        (2, 7),
    ]
    assert set(METADATA.values()) - {number for number, _ in fields} == {14, 15, 17, 30}
    info = _core.parse_entry(entry(fields, b"payload"))
    seen = {name: getattr(info, name) for name in dir(info) if not name.startswith("_")}
    assert seen == {
        "producer": "producer",
        "sequence": 7,  # the last one
        "publish_time_ms": 5,
        "properties": {"a": "b", "ü": ""},
        "replicated_from": "elsewhere",
        "key": "key",
        "compression": 3,
        "uncompressed_size": 1000,
        "messages": 4,
        "batch": True,
        "event_time_ms": 6,
        "encrypted": True,
        "schema_version": b"\x01",
        "ordering_key": b"\x00order",
        "deliver_at_ms": -5,
        "marker": 8,
        "transaction": ((1 << 64) - 1, 1),
        "highest_sequence": 10,
        "null_value": True,
        "uuid": "uuid",
        "chunks": 3,
        "chunked_size": 900,
        "chunk": 2,
        "payload": b"payload",
    }


def test_what_is_not_said() -> None:
    info = _core.parse_entry(entry(NEEDED, b""))
    assert (info.key, info.ordering_key, info.transaction, info.chunk, info.batch) == (
        None,
        None,
        None,
        -1,
        False,
    )
    assert (info.messages, info.properties, info.payload) == (1, {}, b"")


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ([(6, b"text")], "text"),
        ([(6, b"")], ""),
        ([(6, base64.b64encode(b"\x00\xff")), (17, 1)], b"\x00\xff"),
        ([(6, b"no base64!"), (17, 1)], "no base64!"),
        ([(6, b"text"), (30, 1)], None),
        ([(6, b"\xff\xfe")], "\udcff\udcfe"),  # not UTF-8: no byte is lost, and nothing is raised
    ],
)
def test_keys(fields: Fields, key: str | bytes | None) -> None:
    assert _core.parse_entry(entry([*NEEDED, *fields], b"")).key == key


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "shorter"),
        (b"\x0e\x01" + bytes(7), "shorter"),
        (b"\x0e\x02" + bytes(20), "magic"),
        (entry([], b"x"), "lacks"),
        (entry(NEEDED[:2], b"x"), "lacks"),
        (entry([*NEEDED, (4, b"\x0a\x01k")], b""), "not a protocol buffer"),
        (entry([*NEEDED, (11, 0)], b""), "number of messages"),
        (entry([*NEEDED, (11, -1)], b"12345678"), "number of messages"),
        (entry([*NEEDED, (11, 1 << 20)], b"12345678"), "number of messages"),
        (entry([*NEEDED, (11, 2)], batch_payload([([], b"one")])), "number of messages|within a message"),
        (entry([*NEEDED, (11, 1)], batch_payload([([], b"one")])[:-1]), "within a message"),
        (entry(NEEDED, b"x")[:-1], "checksum"),
    ],
)
def test_what_is_not_sound_is_named(data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        _core.parse_entry(data)


def test_every_truncation_and_every_bit() -> None:
    whole = entry([*NEEDED, (11, 2)], batch_payload([([(SINGLE["sequence_id"], 1)], b"one"), ([], b"two")]))
    assert _core.parse_entry(whole).messages == 2
    for size in range(len(whole)):
        with pytest.raises(Corrupt):
            _core.parse_entry(whole[:size])
    for bit in range(len(whole) * 8):
        bad = bytearray(whole)
        bad[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            _core.parse_entry(bytes(bad))


@pytest.mark.parametrize("seed", seeds("metadata", test=1))
def test_metadata_of_random_bytes_under_a_right_sum(seed: int) -> None:
    """The sum shows that the bytes are unchanged, not that the sender is honest."""
    rng = random.Random(seed)
    whole = entry([*NEEDED, (4, pair("k", "v")), (11, 2)], batch_payload([([], b"one"), ([], b"two")]))
    sound = 0
    for _ in range(3000):
        bad = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(6, len(bad))] = rng.choice((0, 0xFF, rng.randrange(256)))
        if rng.randrange(4) == 0:
            del bad[rng.randrange(10, len(bad)) :]
        bad[2:6] = _core.crc32c(bytes(bad[6:])).to_bytes(4, "big")
        try:
            info = _core.parse_entry(bytes(bad))
        except Corrupt:
            continue
        sound += 1
        for name in dir(info):
            getattr(info, name)
    assert sound > 300
