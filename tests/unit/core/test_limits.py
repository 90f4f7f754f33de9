"""The core just before the end of each number: docs/reference/limits.md names the fields."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

import pytest

from holdfast import HoldfastError, Misuse, _core
from holdfast._core import Dispatch, Frame, Log, TopicView, TopicViewReader, WireReader, crc32c
from holdfast.broker import StageReceipt
from holdfast.client import Client
from holdfast.ids import NUMBER_MAX
from holdfast.local.account import Account
from holdfast.protocol import pulsar_pb2 as pb
from holdfast.protocol.sizes import COMMIT_PARTS_MAX
from holdfast.server.flight.link import FRAME_BYTES_MAX, HEAD, Ask, frame, frame_size
from tests.kit.ledger.entry_bytes import decode_frame, decode_publish, ledger
from tests.kit.server.pulsar_recorder import frame_of

LEFT = 1 << 32
"""The numbers of events and ledgers that are kept in reserve: a frame has fewer."""
WORD = (1 << 64) - 1
SEQUENCE_MAX = NUMBER_MAX - 1
FRAME_MAX = 5_308_416
COMMAND_MAX = 1 << 20


# -- sequences of producers ----------------------------------------------------------------------------


def log_with(**numbers: int) -> Log:
    log = Log(**numbers)
    log.add_topic(1, deduplicate=True)
    log.open_session(1, 1, "p", 0)
    return log


def applied(log: Log, frame: bytes, index: int = 1) -> Any:
    log.begin(frame, 1, index)
    while log.step() is not None:
        log.accept()
    return log.finish()


@pytest.mark.parametrize("span", [1, 2, 3, 1000, LEFT - 1])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_what_a_frame_takes_is_what_the_log_applies(span: int, before: int) -> None:
    """A frame that can be written and not applied would stop the broker."""
    frame = Frame()
    sequence = SEQUENCE_MAX + 1 - span + 1 - before
    if before == 0:
        with pytest.raises(Misuse, match=f"sequence {sequence} with a span of {span} is not possible"):
            frame.publish(1, 1, 0, "p", [(sequence, span, b"x")])
        assert frame.count == 0
        return
    frame.publish(1, 1, 0, "p", [(sequence, span, b"x")])
    log = log_with()
    assert applied(log, frame.take(1)).published[0][5] == 1
    assert log.sequences(1) == [("p", sequence + span - 1)]


@pytest.mark.parametrize("span", [0, LEFT])
def test_spans_have_32_bits(span: int) -> None:
    with pytest.raises(Misuse, match="a span is 1 to"):
        Frame().publish(1, 1, 0, "p", [(0, span, b"x")])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_batch_at_the_last_sequence(count: int) -> None:
    """A refused SEND is answered, and no byte of it is in the frame."""
    reader, frame = WireReader(), Frame()
    reader.set_producer(7, 1, 1, 0, "p")
    first = SEQUENCE_MAX + 1 - count
    for sequence in (first, first + 1):
        entry = _core.encode_messages([b"x"] * count, "p", 0, 1, batch=count)[0]
        command = pb.CommandSend(producer_id=7, sequence_id=sequence, num_messages=count)
        data = frame_of(pb.BaseCommand(type=pb.BaseCommand.SEND, send=command), entry)
        (item,) = reader.feed(data, frame)
        assert item[0] == (1 if sequence == first else 2)
    log = log_with()
    assert applied(log, frame.take(1)).last_d == 1
    assert log.sequences(1) == [("p", SEQUENCE_MAX)]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sequence", -1),
        ("sequence", NUMBER_MAX),
        ("sequence", WORD + 1),
        ("publish_time_ms", -1),
        ("publish_time_ms", WORD + 1),
        ("event_time_ms", -1),
        ("event_time_ms", WORD + 1),
        ("batch", 0),
        ("batch", (1 << 24) + 1),
        ("batch", 1 << 80),
    ],
)
def test_numbers_that_no_message_carries_are_named(field: str, value: int) -> None:
    fields: dict[str, Any] = {"sequence": 0, "publish_time_ms": 1, "event_time_ms": 0, "batch": 1} | {
        field: value
    }
    words = field.split("_")[0]
    with pytest.raises(Misuse, match=words):
        _core.encode_messages([b"x"], "p", **fields)
    frame = Frame()
    with pytest.raises(Misuse, match=words):
        frame.publish_messages(1, 1, 0, "p", payloads=[b"x"], **fields)
    assert frame.count == 0


def test_the_last_numbers_that_a_message_carries() -> None:
    (entry,) = _core.encode_messages([b"x"], "p", SEQUENCE_MAX, WORD, event_time_ms=WORD)
    info = _core.parse_entry(entry)
    assert (info.sequence, info.publish_time_ms, info.event_time_ms) == (SEQUENCE_MAX, WORD, WORD)
    (entry,) = _core.encode_messages([b"x", b"y"], "p", 0, 1, batch=1 << 24)
    assert _core.parse_entry(entry).messages == 2


def test_the_longest_names_and_spans_of_a_frame() -> None:
    """A producer's name has 16 bits for its length, a span 32."""
    frame, name = Frame(), "p" * 0xFFFF
    frame.publish(1, 1, 0, name, [(0, LEFT - 1, b"x")])
    (publish,) = [decode_publish(body) for _, _, body in decode_frame(frame.take(1))[1]]
    assert (publish.producer, publish.entries) == (name, [(0, LEFT - 1, b"x")])
    with pytest.raises(Misuse, match="name"):
        frame.publish(1, 1, 0, name + "p", [(0, 1, b"x")])


@pytest.mark.parametrize("size", [(1 << 30) + 1, LEFT - 1, LEFT])
def test_an_entry_of_32_bits_is_refused_before_it_is_copied(size: int) -> None:
    """The largest entry has 1 GiB: no event reaches the 4 GiB of its header."""
    frame = Frame()
    with mmap.mmap(-1, size) as memory, pytest.raises(Misuse, match="an entry has at most 1073741824 bytes"):
        frame.publish_messages(1, 1, 0, "p", 0, [memory], 1)
    assert (frame.count, frame.size) == (0, 16)


@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_frame_and_the_largest_command(more: int) -> None:
    """One byte more breaks the connection at once, before any of it is kept."""
    reader = WireReader()
    items = reader.feed(struct.pack(">I", FRAME_MAX + more), Frame())
    assert [item[0] for item in items] == [5] * more
    assert reader.broken == bool(more)
    ping = pb.BaseCommand(type=pb.BaseCommand.PING, ping=pb.CommandPing()).SerializeToString()
    rest = COMMAND_MAX + more - len(ping) - 5  # an unknown field: its tag, and 3 bytes of length
    filled = ping + b"\xfa\x7f" + bytes([rest & 127 | 128, rest >> 7 & 127 | 128, rest >> 14]) + bytes(rest)
    assert len(filled) == COMMAND_MAX + more
    (item,) = WireReader().feed(_core.frame_command(filled), Frame())
    assert (item[0] == 5) == bool(more), item


@pytest.mark.parametrize("more", [0, 1])
def test_the_largest_batch_that_is_acknowledged_in_part(more: int) -> None:
    """An acknowledgement has a bit for each of 2^24 messages; more are refused."""
    words = (1 << 24) // 64
    for size, count in (((1 << 24) + more, 3), (1 << 24, words + more)):
        id_ = pb.MessageIdData(ledgerId=3, entryId=4, ack_set=[1] * count, batch_size=size)
        command = pb.CommandAck(consumer_id=5, ack_type=pb.CommandAck.Individual, message_id=[id_])
        data = frame_of(pb.BaseCommand(type=pb.BaseCommand.ACK, ack=command))
        items: list[Any] = [*WireReader().feed(data, Frame())]
        if more:
            assert items == [(5, "an ACK that is not valid")]
        else:
            ((_, _, told, mask),) = items[0][3].parts
            assert (told, mask.bit_length(), mask.bit_count()) == (size, 64 * count - 63, count)


@pytest.mark.parametrize("first", [-(1 << 31), (1 << 31) - 2])
def test_the_first_and_the_last_priority(first: int) -> None:
    """The lower number is served first."""
    table = Dispatch()
    later, sooner = table.add(first + 1), table.add(first)
    for consumer in (later, sooner):
        table.flow(consumer, 10)
    assert [consumer for consumer, _ in table.hand(run_at(5), [], {}, None, 1, 0, None)] == [sooner]


# -- the log -------------------------------------------------------------------------------------------


def publish(topic: int = 1) -> bytes:
    frame = Frame()
    frame.publish(topic, 1, 0, "p", [(0, 1, b"x")])
    return frame.take(1)


@pytest.mark.parametrize("number", ["next_d", "next_ledger"])
def test_the_last_event_and_the_last_ledger(number: str) -> None:
    """The last frame is applied; the next one is not, and leaves the log unchanged."""
    log = log_with(**{number: NUMBER_MAX - LEFT})
    assert applied(log, publish()).last_d == log.next_d - 1
    words = {"next_d": "event numbers", "next_ledger": "ledger ids"}[number]
    before = (log.next_d, log.next_ledger, log.tail(1), log.time)
    for _ in range(2):
        with pytest.raises(HoldfastError, match=f"has used up its 63 bits of {words}; nothing of the frame"):
            log.begin(publish(), 1, 2)
    assert (log.next_d, log.next_ledger, log.tail(1), log.time) == before


def test_the_last_position_of_a_topic() -> None:
    """Other topics go on."""
    log = log_with()
    log.add_topic(2, next_ordinal=NUMBER_MAX - 1)
    log.open_session(2, 2, "p", 0)
    log.add_topic(3, next_ordinal=NUMBER_MAX)
    for index, code in enumerate((0, 4, 4)):
        frame = Frame()
        frame.publish(2, 2, 0, "p", [(0, 1, b"x")])
        frame.publish(1, 1, 0, "p", [(index, 1, b"y")])
        assert [each[1] for each in applied(log, frame.take(1), index).published] == [code, 0]
    assert log.tail(2)[0] == NUMBER_MAX
    frame = Frame()
    frame.event(20, 1, b"")
    log.begin(frame.take(1), 1, 9)
    log.step()
    with pytest.raises(HoldfastError, match="topic 3 has used up its 63 bits of positions"):
        log.append(3, [b"x"])
    log.finish()
    assert log.tail(3)[0] == NUMBER_MAX


def test_an_entry_is_never_larger_than_its_readers_take() -> None:
    log = log_with()
    frame = Frame()
    frame.event(20, 1, b"")
    log.begin(frame.take(1), 1, 9)
    log.step()
    with pytest.raises(HoldfastError, match="an entry of 1073741825 bytes is too large"):
        log.append(1, [bytes((1 << 30) + 1)])
    log.finish()


def test_a_block_has_32_bits_for_its_size() -> None:
    with mmap.mmap(-1, 1 << 32) as memory, pytest.raises(Misuse, match="cut it in pieces below 4 GiB"):
        _core.seal_block(6, 0, 0, memory)


def test_log_time_of_64_bits() -> None:
    """The last nanosecond is in 2554: its journal is read, and time stands still."""
    log = log_with(time=WORD - 1)
    frame = Frame()
    frame.publish(1, 1, 0, "p", [(0, 1, b"x")])
    applied(log, frame.take(WORD))
    applied(log, publish(), 2)
    assert log.time == WORD
    taken = log.take_round()
    assert taken is not None
    ((_, _, data, _, _),) = taken.writes
    assert struct.unpack_from("<Q", data, 16)[0] == WORD
    with pytest.raises(TypeError):
        Frame().take(WORD + 1)  # LogClock never returns it


# -- dispatch ------------------------------------------------------------------------------------------


def run_at(ordinal: int, count: int = 1) -> _core.Entries:
    data, _ = ledger(_core.encode_messages([b"x"] * count, "p", 0, 1))
    return _core.parse_run(1, ordinal, 0, b"", data)


def given(table: Dispatch, run: _core.Entries, asked: list[tuple[int, int]] | None = None) -> list[int]:
    """The number of deliveries before."""
    handed = table.hand(run, [], {}, asked, 1, 0, None)
    return [message.redelivery_count for _, batch in handed for message in batch]


@pytest.mark.parametrize("back", ["redeliver", "redeliver_all", "nack", "remove", "rewind", "expire"])
def test_redeliveries_are_counted_up_to_the_last_number(back: str) -> None:
    """A message returned at once, again and again, wraps 32 bits in days.

    It would count as new.
    """
    table = Dispatch()
    table.set_count(5, LEFT - 4)
    seen = []
    for _ in range(4):
        consumer = table.add(0)
        table.flow(consumer, 10)
        seen += given(table, run_at(5))
        if back == "redeliver":
            assert table.redeliver(consumer, [5]) == 1
        elif back == "redeliver_all":
            assert table.redeliver_all(consumer) == 1
        elif back == "nack":
            assert table.nack(consumer, [5], 0, 1.0, 0, 1) == 1
        elif back == "expire":
            assert table.expire(consumer, 10) == 1
        elif back == "rewind":
            table.rewind()
        table.remove(consumer)
        assert table.take_replay(10, 1) == ([] if back == "rewind" else [(5, 6)])
        table.check()
    assert seen == [LEFT - 4, LEFT - 3, LEFT - 2, LEFT - 2]
    assert table.count_of(5) == LEFT - 2


@pytest.mark.parametrize("count", [0, 63, 1023, 1024, 5000, LEFT - 2])
def test_a_back_off_from_nothing_stays_nothing(count: int) -> None:
    """0 times an infinite factor is not a number: it gave 292 years of delay."""
    table = Dispatch()
    consumer = table.add(0)
    table.flow(consumer, 10)
    table.set_count(5, count)
    given(table, run_at(5))
    assert table.nack(consumer, [5], 0, 2.0, 60 * 10**9, 1) == 1
    assert table.delayed_entries == 0
    assert table.take_replay(10, 1) == [(5, 6)]


@pytest.mark.parametrize("count", [0, 63, 1023, 1024, LEFT - 2])
def test_a_back_off_grows_up_to_its_limit(count: int) -> None:
    table = Dispatch()
    consumer = table.add(0)
    table.flow(consumer, 10)
    table.set_count(5, count)
    given(table, run_at(5))
    table.nack(consumer, [5], 10**9, 2.0, 60 * 10**9, 7)
    assert table.next_due == 7 + (10**9 if count == 0 else 60 * 10**9)


def test_a_delay_beyond_the_end_of_the_clock_is_not_a_short_one() -> None:
    table = Dispatch()
    consumer = table.add(0)
    table.flow(consumer, 10)
    given(table, run_at(5))
    table.nack(consumer, [5], WORD, 1.0, WORD, 10**9)
    assert table.next_due == WORD
    assert table.take_due(WORD - 1) == 0
    assert table.take_due(WORD) == 1


def test_permits_have_an_end_and_never_wrap() -> None:
    table = Dispatch()
    consumer = table.add(0)
    for _ in range(3):
        table.flow(consumer, WORD)
        assert table.wanted == (1 << 31) - 1


def test_the_last_ordinals_are_held_replayed_and_acknowledged() -> None:
    table = Dispatch()
    consumer = table.add(0)
    table.flow(consumer, 100)
    first = NUMBER_MAX - 4
    assert given(table, run_at(first, 4)) == [0] * 4
    assert table.pending_entries == 4
    table.redeliver(consumer, [first, NUMBER_MAX - 1])
    assert table.take_replay(10, 8) == [(first, first + 1), (NUMBER_MAX - 1, NUMBER_MAX)]
    assert table.release(0, NUMBER_MAX) == 2
    table.reset(first)
    assert table.undelivered(NUMBER_MAX - 1)
    table.check()


# -- what readers of the files are told ----------------------------------------------------------------


def test_the_number_of_a_topics_view_wraps(tmp_path: Path) -> None:
    """Two copies are filled in turn; the newer one counts, also after its number wrapped."""
    path, directory, topic = tmp_path / "view", bytes(16), 7
    view = TopicView(str(path), topic, directory)
    view.publish(bytes(16), 1, 1, 1)
    data = bytearray(path.read_bytes())
    for copy, number in ((128, WORD - 1), (256, WORD)):
        words = [
            number,
            0,
            0,
            number - WORD + 3,
            9,
            1,
            0,
            *struct.unpack_from("<2Q", data, 128 + 56),
            *[0] * 5,
        ]
        body = struct.pack("<14Q", *words)
        total = crc32c(body + struct.pack("<Q", topic))
        data[copy : copy + 128] = body + struct.pack("<QQ", total, number)
    path.write_bytes(data)
    del view
    view = TopicView(str(path), topic, directory)  # goes on where it ended
    reader = TopicViewReader(str(path), topic, directory)
    assert reader.read()[1] == 3
    for first in range(4, 9):
        view.publish(bytes(16), first, 9, 1)
        assert reader.read()[1] == first


# -- between processes of one machine ------------------------------------------------------------------


def test_the_account_of_the_last_positions(tmp_path: Path) -> None:
    """Positions of a queue have 52 bits, its counters 64; larger values are cut."""
    info = {"topic": "t", "incarnation": "", "identity": "1", "message_bytes_max": 9}
    kept = Account.create(tmp_path / "page", info)
    seen = Account.open(kept.path)
    for position in ((1 << 52) - 2, (1 << 52) - 1, WORD):
        kept.confirm(position)
        assert seen.confirmed == position
    kept.say("é" * 5000)
    assert seen.trouble == "é" * 220
    kept.say("")
    assert seen.trouble == ""
    with pytest.raises(Misuse, match="do not fit into the account"):
        Account.create(tmp_path / "other", info | {"topic": "t" * 4000})
    seen.close()
    kept.close()


def test_messages_between_the_server_and_flight_have_a_largest_size() -> None:
    assert frame_size(HEAD.pack(FRAME_BYTES_MAX)) == FRAME_BYTES_MAX
    for size in (FRAME_BYTES_MAX + 1, (1 << 32) - 1):
        with pytest.raises(Misuse, match=f"has {size} bytes"):
            frame_size(HEAD.pack(size))
    with pytest.raises(Misuse, match="server and its Flight process has"):
        frame(Ask(WORD, "x" * FRAME_BYTES_MAX, []))
    assert len(frame(Ask(WORD, None, []))) > HEAD.size


@pytest.mark.parametrize("number", [-1, WORD + 1])
def test_numbers_that_no_command_carries_are_named(number: int) -> None:
    with Client("holdfast://127.0.0.1:1") as client:
        with pytest.raises(Misuse, match=f"batch is {number}; a command carries 0 to"):
            client.sink_commit("k", number, [])
        with pytest.raises(Misuse, match=f"to is {number}"):
            client.advance("t", "s", number, 0)
        with pytest.raises(Misuse, match=f"reset_number is {number}"):
            client.advance("t", "s", 0, number)


def test_a_commit_of_too_many_parts_is_misuse() -> None:
    """A part is one topic of one stage. The client refuses before it connects."""
    receipt = StageReceipt(bytes(16), tuple((topic, 1, 1) for topic in range(COMMIT_PARTS_MAX + 1)))
    with Client("holdfast://127.0.0.1:1") as client, pytest.raises(Misuse, match="a commit of 20001 parts"):
        client.sink_commit("k", 1, [receipt])
