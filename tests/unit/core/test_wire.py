"""The wire codec of the core: input is split, output is what generated code reads."""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Misuse, _core
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.examples import examples
from tests.kit.ledger.entry_bytes import Publish, block, decode_frame, decode_publish
from tests.kit.server.pulsar_recorder import frame_of

Type = pb.BaseCommand
IDS_MAX = (1 << 64) - 1


# -- making input -------------------------------------------------------------------------------------


def entry(payload: bytes = b"payload", sequence: int = 0, **more: Any) -> bytes:
    return _core.encode_messages([payload], "somebody", sequence, 1_700_000_000_000, **more)[0]


def described(payload: bytes, **fields: Any) -> bytes:
    """Return an entry with these fields in its metadata."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)
    return summed(metadata.SerializeToString(), payload)


def summed(metadata: bytes, payload: bytes) -> bytes:
    rest = struct.pack(">I", len(metadata)) + metadata + payload
    return struct.pack(">HI", 0x0E01, _core.crc32c(rest)) + rest


def send(producer: int, sequence: int, data: bytes, **more: Any) -> bytes:
    body = pb.CommandSend(producer_id=producer, sequence_id=sequence, **more)
    return frame_of(Type(type=Type.SEND, send=body), data)


def ack(consumer: int, ids: list[Any], kind: int = 0, **more: Any) -> bytes:
    made = [each if isinstance(each, pb.MessageIdData) else message_id(*each) for each in ids]
    body = pb.CommandAck(
        consumer_id=consumer, ack_type=pb.CommandAck.AckType.Name(kind), message_id=made, **more
    )
    return frame_of(Type(type=Type.ACK, ack=body))


def message_id(ledger: int, number: int, **more: Any) -> pb.MessageIdData:
    return pb.MessageIdData(ledgerId=ledger, entryId=number, **more)


def flow(consumer: int, permits: int) -> bytes:
    return frame_of(Type(type=Type.FLOW, flow=pb.CommandFlow(consumer_id=consumer, messagePermits=permits)))


PING = Type(type=Type.PING, ping=pb.CommandPing())


def sequences(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack("<QQ", *pair) for pair in pairs)


class Connection:
    """Return a frame and a reader with producers 1–3 of topics 11–13."""

    def __init__(self, frame_max: int = 5_308_416) -> None:
        self.reader = _core.WireReader(frame_max)
        self.frame = _core.Frame()
        for number in (1, 2, 3):
            self.reader.set_producer(number, number + 10, number + 20, number + 30, f"p{number}")

    def feed(self, data: bytes) -> list[Any]:
        return list(self.reader.feed(data, self.frame))

    def published(self) -> list[Publish]:
        return [decode_publish(body) for _, _, body in decode_frame(self.frame.take(0))[1]]


# -- SEND ---------------------------------------------------------------------------------------------


def test_sends_of_a_producer_are_one_event() -> None:
    connection = Connection()
    data = [entry(b"%d" % i, i) for i in range(3)]
    assert connection.feed(b"".join(send(1, i, each) for i, each in enumerate(data))) == [
        (1, 1, 3, 3, sum(map(len, data)), sequences((0, 0), (1, 0), (2, 0)))
    ]
    (publish,) = connection.published()
    assert (publish.topic, publish.session, publish.epoch, publish.producer) == (11, 21, 31, "p1")
    assert publish.entries == [(i, 1, each) for i, each in enumerate(data)]


def test_runs_stand_in_the_order_of_their_events() -> None:
    connection = Connection()
    data = entry()
    stream = [send(2, 0, data), send(1, 0, data), send(2, 1, data), flow(9, 1), send(1, 1, data)]
    items = connection.feed(b"".join(stream))
    assert [item[:3] for item in items] == [(1, 2, 2), (1, 1, 2), (4, 9, 1)]
    assert [(each.topic, len(each.entries)) for each in connection.published()] == [(12, 2), (11, 2)]


def test_a_command_is_a_fence() -> None:
    connection = Connection()
    data = entry()
    stream = [send(1, 0, data), flow(9, 1), frame_of(PING), send(1, 1, data), flow(9, 2)]
    items = connection.feed(b"".join(stream))
    assert [item[:3] for item in items] == [
        (1, 1, 1),
        (4, 9, 1),
        (0, Type.PING, PING.SerializeToString()),
        (1, 1, 1),
        (4, 9, 2),
    ]
    assert len(connection.published()) == 2


def test_entries_of_a_passing_producer_are_handed_over() -> None:
    """They are in no event; runs of others keep their events, in order."""
    connection = Connection()
    connection.reader.set_passing_producer(7)
    data = [entry(b"a" * 10, 0), entry(b"b", 1)]
    bad = bytearray(entry())
    bad[-1] ^= 1
    stream = [send(7, 0, data[0]), send(1, 5, data[0]), send(7, 1, data[1]), send(7, 2, bytes(bad))]
    passed, kept, refused = connection.feed(b"".join(stream))
    size = sum(map(len, data))
    assert passed == (6, 7, 2, size, sequences((0, 0), (1, 0)), [(1, each) for each in data])
    assert (kept[:3], refused) == ((1, 1, 1), (2, 7, 2, 1))
    connection.reader.set_producer(7, 17, 27, 37, "p7")
    assert connection.feed(send(7, 3, data[0]))[0][:3] == (1, 7, 1)
    assert [each.topic for each in connection.published()] == [11, 17]
    connection.reader.drop_producer(7)
    assert connection.feed(send(7, 4, data[0])) == [(2, 7, 4, 2)]


def test_a_refused_send_keeps_its_place() -> None:
    connection = Connection()
    good, bad = entry(), bytearray(entry())
    bad[-1] ^= 1
    stream = [send(2, 7, good), send(1, 0, good), send(1, 1, bytes(bad)), send(1, 2, good), send(2, 8, good)]
    items = connection.feed(b"".join(stream))
    assert [item[:3] for item in items] == [(1, 2, 1), (1, 1, 1), (2, 1, 1), (1, 1, 1), (1, 2, 1)]
    assert items[2] == (2, 1, 1, 1)
    assert [each.entries[0][0] for each in connection.published()] == [7, 0, 2, 8]


def test_producers_come_and_go() -> None:
    connection = Connection()
    assert connection.feed(send(4, 3, entry())) == [(2, 4, 3, 2)]
    connection.reader.set_producer(4, 1, 1, 1, "four")
    assert connection.feed(send(4, 3, entry()))[0][:2] == (1, 4)
    connection.reader.drop_producer(4)
    connection.reader.drop_producer(4)
    assert connection.feed(send(4, 4, entry())) == [(2, 4, 4, 2)]
    connection.reader.set_producer(1, 99, 1, 1, "again")
    connection.feed(send(1, 1, entry()))
    assert [each.topic for each in connection.published()] == [1, 99]


@pytest.mark.parametrize(
    ("data", "more", "code"),
    [
        (b"", {}, 3),
        (b"\x0e", {}, 3),
        (b"\x0e\x01\0\0\0\0", {}, 3),
        (entry()[:-1], {}, 1),
        (summed(b"", b"x"), {}, 3),
        (summed(b"\xff", b"x"), {}, 3),
        (summed(b"\x0a\x7fshort", b"x"), {}, 3),
        (described(b"", num_messages_in_batch=2), {}, 3),
        (described(b"", num_messages_in_batch=-1), {}, 3),
        (struct.pack(">I", 1 << 31) + b"metadata without a sum", {}, 3),
        (entry(), {"txnid_least_bits": 0}, 4),
        (entry(), {"txnid_most_bits": 1}, 4),
        (entry(), {"txnid_least_bits": IDS_MAX, "txnid_most_bits": IDS_MAX}, 4),
        (described(b"", txnid_least_bits=1, txnid_most_bits=0), {}, 4),
        (entry(), {"highest_sequence_id": 1 << 33}, 3),
        (entry(), {"highest_sequence_id": IDS_MAX}, 3),
    ],
)
def test_what_cannot_be_stored_is_refused(data: bytes, more: dict[str, int], code: int) -> None:
    connection = Connection()
    assert connection.feed(send(1, 5, data, **more)) == [(2, 1, 5, code)]
    # A wrong checksum concerns one message; after any other fault the order would be lost.
    after = (1, 1, 1) if code == 1 else (2, 1, 6)
    assert connection.feed(send(1, 6, entry()))[0][:3] == after
    assert connection.feed(send(2, 6, entry()))[0][:3] == (1, 2, 1)  # the connection goes on


def test_sequences_beyond_those_of_the_log_are_refused() -> None:
    last = (1 << 63) - 2
    for sequence in (last + 1, last + 2, IDS_MAX):
        connection = Connection()
        assert connection.feed(send(1, last, entry())) == [(1, 1, 1, 1, len(entry()), sequences((last, 0)))]
        assert connection.feed(send(1, sequence, entry())) == [(2, 1, sequence, 3)]
        assert connection.published()[0].entries[0][:2] == (last, 1)


def test_spans_are_told_by_the_highest_sequence_and_by_chunks() -> None:
    connection = Connection()
    batch = _core.encode_messages([b"a", b"b", b"c"], "p", 10, 1, batch=3)[0]
    chunks = [
        described(b"c", uuid="u", chunk_id=i, num_chunks_from_msg=3, total_chunk_msg_size=3) for i in range(3)
    ]
    stream = [send(1, 10, batch, num_messages=3, highest_sequence_id=12), send(1, 13, batch, num_messages=3)]
    stream += [send(1, 20, each, is_chunk=True) for each in chunks]
    (item,) = connection.feed(b"".join(stream))
    assert item[2:4] == (5, 3 + 3 + 1 + 1 + 1)
    assert item[5] == sequences((10, 12), (13, 0), (20, 0), (20, 0), (20, 0))
    spans = [(sequence, span) for sequence, span, _ in connection.published()[0].entries]
    assert spans == [(10, 3), (13, 3), (20, 0), (20, 0), (20, 1)]


def test_an_entry_without_a_checksum_is_given_one() -> None:
    connection = Connection()
    whole = entry(b"of old")
    assert connection.feed(send(1, 0, whole[6:]) + send(1, 1, whole))[0][:5] == (1, 1, 2, 2, 2 * len(whole))
    assert [each for _, _, each in connection.published()[0].entries] == [whole, whole]


def test_a_frame_without_room_stalls_the_reader() -> None:
    connection = Connection(frame_max=9 << 20)
    large, small = entry(bytes(5 << 20)), entry(bytes(2 << 20))
    stream = [send(1, i, each) for i, each in enumerate([large, small, small, large, large])]
    taken = []
    pending = b"".join(stream) + flow(9, 1)
    for _ in range(4):
        items = connection.feed(pending)
        pending = b""
        taken += [item[2] for item in items if item[0] == 1]
        if not connection.reader.stalled:
            break
        assert connection.reader.pending > 0
        assert connection.feed(b"") == []  # not before there is room
        assert connection.reader.stalled
        assert sum(len(each.entries) for each in connection.published()) == taken[-1]
    assert taken == [2, 2, 1]
    assert items[-1] == (4, 9, 1)
    assert connection.reader.pending == 0


def test_a_stalled_reader_takes_what_comes_after() -> None:
    connection = Connection(frame_max=9 << 20)
    large = entry(bytes(5 << 20))
    first, second = send(1, 0, large), send(1, 1, large)
    assert connection.feed(first + second + frame_of(PING)[:5])[0][2] == 1
    connection.published()
    items = connection.feed(frame_of(PING)[5:] + send(2, 7, entry()))
    assert [item[:2] for item in items] == [(1, 1), (0, Type.PING), (1, 2)]


def test_one_message_may_be_larger_than_a_frame() -> None:
    connection = Connection(frame_max=20 << 20)
    large = entry(bytes(10 << 20))
    assert connection.feed(send(1, 0, large) + send(1, 1, entry()))[0][2] == 1
    assert connection.reader.stalled
    assert connection.published()[0].entries == [(0, 1, large)]
    assert connection.feed(b"")[0][2] == 1


# -- ACK and FLOW -------------------------------------------------------------------------------------


def test_plain_acks_of_a_consumer_are_joined() -> None:
    connection = Connection()
    stream = [
        ack(5, [(3, 0), (3, 1)]),
        ack(6, [(3, 8)]),
        flow(5, 3),
        ack(5, [(3, 2), (3, 4), (4, 5)]),
        flow(5, 4),
    ]
    items = connection.feed(b"".join(stream))
    assert [item[:3] for item in items] == [(3, 5, 0), (3, 6, 0), (4, 5, 7)]
    ids = items[0][3]
    assert (len(ids), ids.ranges, ids.parts) == (5, [(3, 0, 3), (3, 4, 5), (4, 5, 6)], [])
    assert items[0][4:] == (-1, False)
    assert ids.ledgers == [3, 4]
    assert ids.ordinals({3: (100, 9), 4: (109, 5)}) == [(100, 103), (104, 105)]  # 4:5 is beyond its ledger
    assert ids.ordinals({4: (109, 6)}) == [(114, 115)]
    assert ids.ordinals({}) == []


def test_acks_that_want_an_answer_stand_alone() -> None:
    connection = Connection()
    stream = [
        ack(5, [(3, 0)], request_id=0),
        ack(5, [(3, 1)]),
        ack(5, [(3, 2)], request_id=8),
        ack(5, [(3, 3)]),
    ]
    items = connection.feed(b"".join(stream))
    assert [(item[4], item[3].ranges) for item in items] == [
        (0, [(3, 0, 1)]),
        (-1, [(3, 1, 2), (3, 3, 4)]),
        (8, [(3, 2, 3)]),
    ]


def test_cumulative_acks_and_those_of_transactions_stand_alone() -> None:
    connection = Connection()
    stream = [
        ack(5, [(3, 0)], kind=1),
        ack(5, [(3, 1)], kind=1),
        ack(5, [(3, 2)], txnid_most_bits=0),
        ack(5, [(3, 3)]),
    ]
    items = connection.feed(b"".join(stream))
    assert [(item[2], item[5]) for item in items] == [(1, False), (1, False), (0, True), (0, False)]


def test_batches_acknowledged_in_part() -> None:
    connection = Connection()
    minus_one = message_id(3, 2, ack_set=[-1, 5], batch_size=70)
    stream = ack(
        5, [minus_one, message_id(3, 3, ack_set=[0, 0], batch_size=70), message_id(3, 4, ack_set=[6, 0])]
    )
    ids = connection.feed(stream)[0][3]
    assert ids.parts == [(3, 2, 70, (5 << 64) | ((1 << 64) - 1)), (3, 4, 0, 6)]
    assert ids.ranges == [(3, 3, 4)]  # nothing of it is open
    assert len(ids) == 3
    assert ids.ledgers == [3]


def test_an_ack_set_may_be_packed() -> None:
    body = b"\x08\x03\x10\x07" + b"\x2a\x03\x06\x80\x01"  # ledger 3, entry 7, words 6 and 128
    command = b"\x08\x0a\x52" + bytes([len(body) + 6]) + b"\x08\x05\x10\x00\x1a" + bytes([len(body)]) + body
    connection = Connection()
    assert connection.feed(_core.frame_command(command))[0][3].parts == [(3, 7, 0, 128 << 64 | 6)]


def test_an_id_of_nothing_acknowledges_nothing() -> None:
    connection = Connection()
    assert connection.feed(ack(5, [(IDS_MAX, IDS_MAX)])) == []
    assert connection.feed(ack(5, [])) == []
    (item,) = connection.feed(ack(5, [(IDS_MAX, IDS_MAX)], request_id=3))
    assert (len(item[3]), item[4]) == (0, 3)


def test_many_consumers_on_one_connection() -> None:
    connection = Connection()
    items = connection.feed(b"".join(ack(i, [(1, i)]) + flow(i, 1) for i in list(range(100)) * 2))
    acked = [(item[1], item[3].ranges) for item in items if item[0] == 3]
    assert acked == [(i, [(1, i, i + 1)]) for i in list(range(100)) * 2]
    assert sum(item[2] for item in items if item[0] == 4) == 200


@examples(test=80)
@given(
    ids=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 30)), max_size=60),
    places=st.dictionaries(st.integers(1, 4), st.tuples(st.integers(0, 200), st.integers(0, 25)), max_size=4),
)
def test_ordinals_are_those_of_the_ids(
    ids: list[tuple[int, int]], places: dict[int, tuple[int, int]]
) -> None:
    items = Connection().feed(ack(1, ids, request_id=1))
    expected = sorted(
        {places[ledger][0] + e for ledger, e in ids if ledger in places and e < places[ledger][1]}
    )
    ranges = items[0][3].ordinals(places)
    assert [ordinal for first, end in ranges for ordinal in range(first, end)] == expected
    assert all(a[1] < b[0] for a, b in pairwise(ranges))


# -- frames -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">I", 3), "4 to 5308416"),
        (struct.pack(">I", 5_308_417), "a frame of 5308417 bytes"),
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1195725856 bytes"),
        (struct.pack(">II", 4, 1), "a command of 1 bytes in a frame of 4"),
        (struct.pack(">II", 4, 0), "no type"),
        (struct.pack(">II", 5, 1) + b"\xff", "not a protocol buffer"),
        (struct.pack(">II", 6, 2) + b"\x08\x06", "a SEND without"),
        (struct.pack(">II", 6, 2) + b"\x08\x0a", "an ACK that is not valid"),
        (struct.pack(">II", 6, 2) + b"\x08\x0b", "a FLOW without"),
        (frame_of(PING, b"more"), "with 4 bytes behind it"),
        (ack(1, [message_id(1, 1, ack_set=[1], batch_size=-1)]), "an ACK that is not valid"),
        (ack(1, [(1, i % 9) for i in range(200_000)]), "it can have 1048576"),
    ],
)
def test_a_broken_stream_ends_with_a_reason(data: bytes, reason: str) -> None:
    connection = Connection()
    items = connection.feed(send(1, 0, entry()) + data + send(1, 1, entry()))
    assert [item[0] for item in items] == [1, 5]  # earlier good frames were taken
    assert reason in items[1][1]
    assert connection.reader.broken
    assert connection.reader.pending == 0
    assert connection.feed(frame_of(PING)) == []
    assert len(connection.published()) == 1


def test_unknown_commands_are_handed_on() -> None:
    command = b"\x08\xff\xff\xff\xff\x0f"
    assert Connection().feed(_core.frame_command(command)) == [(0, 0xFFFFFFFF, command)]


def test_own_commands_may_be_large() -> None:
    staged = pb.CommandStageAppend(request_id=1, stage=bytes(16), topic="t", at=0, entries=[bytes(2 << 20)])
    command = Type(type=Type.STAGE_APPEND, stage_append=staged).SerializeToString()
    assert Connection().feed(_core.frame_command(command)) == [(0, Type.STAGE_APPEND, command)]


def test_the_limit_of_frames_can_change() -> None:
    connection = Connection(frame_max=64)
    assert connection.feed(frame_of(PING)) == [(0, Type.PING, PING.SerializeToString())]
    connection.reader.frame_max = 1 << 20
    assert connection.feed(send(1, 0, entry(bytes(1000))))[0][0] == 1
    connection.reader.frame_max = 64
    assert connection.feed(send(1, 0, entry(bytes(1000))))[0][0] == 5
    for size in (7, (1 << 30) + 1):
        with pytest.raises(Misuse):
            connection.reader.frame_max = size
        with pytest.raises(Misuse):
            _core.WireReader(size)


def test_what_waits_is_no_more_than_a_frame() -> None:
    connection = Connection()
    large = send(1, 0, entry(bytes(4 << 20)))
    for at in range(0, len(large), 65536):
        items = connection.feed(large[at : at + 65536])
        assert connection.reader.pending <= len(large)
    assert items[0][:3] == (1, 1, 1)
    assert connection.reader.pending == 0


commands = st.one_of(
    st.builds(
        lambda p, s, n: send(p, s, entry(bytes(n), s)),
        st.integers(1, 4),
        st.integers(0, 99),
        st.integers(0, 40),
    ),
    st.builds(lambda c, e: ack(c, [(1, e)]), st.integers(1, 3), st.integers(0, 20)),
    st.builds(flow, st.integers(1, 3), st.integers(0, 1000)),
    st.just(frame_of(PING)),
)


@examples(test=80)
@given(stream=st.lists(commands, max_size=20), cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_it_does_not_matter_how_the_bytes_arrive(stream: list[bytes], cuts: list[int]) -> None:
    data = b"".join(stream)
    whole, pieces = Connection(), Connection()
    at_once = whole.feed(data)
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    in_pieces = [item for a, b in pairwise(edges) for item in pieces.feed(data[a:b])]

    def told(items: list[Any]) -> dict[Any, Any]:
        out: dict[Any, Any] = {}
        for item in items:
            if item[0] == 1:
                out[1, item[1]] = out.get((1, item[1]), b"") + item[5]
            elif item[0] == 3:
                mine = out.setdefault((3, item[1]), [])
                mine += [(ledger, e) for ledger, first, end in item[3].ranges for e in range(first, end)]
            elif item[0] == 4:
                out[4, item[1]] = out.get((4, item[1]), 0) + item[2]
            else:
                out.setdefault(item[0], []).append(item)
        return out

    assert told(at_once) == told(in_pieces)
    assert whole.reader.pending == pieces.reader.pending == 0

    def entries(publishes: list[Publish]) -> dict[int, list[Any]]:
        out: dict[int, list[Any]] = {}
        for each in publishes:
            out.setdefault(each.topic, []).extend(each.entries)
        return out

    assert entries(whole.published()) == entries(pieces.published())


# -- what is sent -------------------------------------------------------------------------------------


def commands_of(data: bytes) -> list[tuple[pb.BaseCommand, bytes]]:
    out = []
    while data:
        total, size = struct.unpack_from(">II", data)
        out.append((Type.FromString(data[8 : 8 + size]), data[8 + size : 4 + total]))
        assert out[-1][0].SerializeToString() == data[8 : 8 + size]
        data = data[4 + total :]
    return out


numbers = st.one_of(st.integers(0, 300), st.integers(0, IDS_MAX))


@examples(test=80)
@given(
    producer=numbers,
    sent=st.lists(st.tuples(numbers, numbers), max_size=10),
    ledger=numbers,
    first=st.integers(0, 1 << 63),
    which=st.sets(st.integers(0, 9)),
)
def test_receipts(
    producer: int, sent: list[tuple[int, int]], ledger: int, first: int, which: set[int]
) -> None:
    duplicates = sorted(i for i in which if i < len(sent))
    data = _core.encode_receipts(producer, sequences(*sent), ledger, first, duplicates)
    entry_id = first
    made = commands_of(data)
    assert len(made) == len(sent)
    for i, ((command, rest), (sequence, highest)) in enumerate(zip(made, sent, strict=True)):
        assert command.type == Type.SEND_RECEIPT
        assert rest == b""
        receipt = command.send_receipt
        assert (receipt.producer_id, receipt.sequence_id, receipt.highest_sequence_id) == (
            producer,
            sequence,
            highest,
        )
        got = (receipt.message_id.ledgerId, receipt.message_id.entryId)
        assert got == ((IDS_MAX, IDS_MAX) if i in which else (ledger, entry_id))
        entry_id += i not in which


@pytest.mark.parametrize("duplicates", [[2], [1, 0], [0, 0], [-1], ["a"]])
def test_duplicates_that_cannot_be(duplicates: list[Any]) -> None:
    with pytest.raises((Misuse, RuntimeError, TypeError)):
        _core.encode_receipts(1, sequences((1, 0), (2, 0)), 1, 1, duplicates)


def test_sequences_that_are_none() -> None:
    with pytest.raises(Misuse):
        _core.encode_receipts(1, b"12345", 1, 1)


def run_of(*data: bytes) -> _core.Entries:
    """Build a run as if read from ledger 7, entry 40 and on."""
    blocks = b"".join(padded_block(40 + i, each) for i, each in enumerate(data))
    return _core.parse_run(7, 1000, 40, b"", blocks)


def padded_block(number: int, data: bytes) -> bytes:
    made = block(2, number, data, 1_700_000_000_000_000_000)
    return made + bytes(-len(made) % 8)


def test_deliveries() -> None:
    data = [entry(b"%d" % i, i) for i in range(4)]
    batch = _core.Batch(run_of(*data), [0, 2, 3], [0, 1, 300])
    made = commands_of(_core.encode_deliveries(9, batch))
    assert [rest for _, rest in made] == [data[0], data[2], data[3]]
    for (command, _), number, count in zip(made, (40, 42, 43), (0, 1, 300), strict=True):
        assert command.type == Type.MESSAGE
        message = command.message
        assert (message.consumer_id, message.redelivery_count) == (9, count)
        assert message.message_id == message_id(7, number)
        assert not message.ack_set
        assert not message.HasField("consumer_epoch")
    for command, _ in commands_of(_core.encode_deliveries(IDS_MAX, batch, 0)):
        assert command.message.consumer_id == IDS_MAX
        assert command.message.HasField("consumer_epoch")
    assert commands_of(_core.encode_deliveries(9, batch, 1 << 40))[0][0].message.consumer_epoch == 1 << 40
    assert commands_of(_core.encode_deliveries(9, batch, 0, 9999))[2][0].message.message_id.partition == 9999


def test_deliveries_of_batches_tell_what_is_open() -> None:
    payloads = [b"%d" % i for i in range(130)]
    plain = _core.encode_messages(payloads, "p", 0, 1, batch=130)[0]
    packed = described(b"sealed", num_messages_in_batch=70, compression=pb.ZSTD, uncompressed_size=9)
    masks = [1 | 1 << 64 | 1 << 129, 3 << 63, (1 << 64) - 2]
    batch = _core.Batch(run_of(plain, packed, plain), open=masks)
    made = [list(command.message.ack_set) for command, _ in commands_of(_core.encode_deliveries(1, batch))]
    words = [[word & IDS_MAX for word in each] for each in made]
    assert words == [[1, 1, 2], [1 << 63, 1], [IDS_MAX - 1]]


def test_an_entry_that_is_not_sound_is_wrapped() -> None:
    batch = _core.Batch(run_of(b"these bytes are no entry", entry(b"good")))
    made = commands_of(_core.encode_deliveries(1, batch))
    info = _core.parse_entry(made[0][1])
    assert info.payload == b"these bytes are no entry"
    assert info.publish_time_ms == 1_700_000_000_000
    assert made[1][1] == entry(b"good")


def test_only_batches_are_delivered() -> None:
    with pytest.raises(TypeError):
        _core.encode_deliveries(1, [entry()])  # type: ignore[arg-type]


@given(st.binary(max_size=100))
def test_a_command_in_its_frame(command: bytes) -> None:
    assert _core.frame_command(command) == struct.pack(">II", 4 + len(command), len(command)) + command
    assert _core.frame_command(memoryview(command)) == _core.frame_command(command)
