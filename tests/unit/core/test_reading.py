"""Runs of entries read from files and bytes, and the messages of their deliveries."""

from __future__ import annotations

import gc
import os
import struct
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import Corrupt, Misuse, NotFound, _core
from holdfast.ids import MessageId
from tests.kit.ledger.entry_bytes import SINGLE, Fields, batch_payload, entry, file_header, ledger, pair

INCARNATION = bytes(range(16))
NEEDED: Fields = [(1, b"producer"), (2, 7), (3, 1_700_000_000_123)]


def index_of(offsets: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(offsets)}Q", *offsets)


def run_of(entries: Sequence[bytes], first: int = 0) -> _core.Entries:
    data, offsets = ledger(entries)
    return _core.parse_run(7, 1000, first, index_of(offsets[first:]), data[offsets[first] - 64 :])


def write_ledger(directory: Path, number: int, entries: Sequence[bytes], generation: int = 0) -> list[int]:
    data, offsets = ledger(entries)
    (directory / "ledgers").mkdir(exist_ok=True)
    name = f"{number:016x}" if generation == 0 else f"{number:016x}.{generation}"
    (directory / f"ledgers/{name}.data").write_bytes(file_header(2, number, INCARNATION) + data)
    (directory / f"ledgers/{name}.index").write_bytes(file_header(3, number, INCARNATION) + index_of(offsets))
    return offsets


def simple(count: int, size: int = 100) -> list[bytes]:
    return _core.encode_messages([bytes([i % 256]) * size for i in range(count)], "p", 0, 1)


# -- runs --------------------------------------------------------------------------------------------------


def test_a_run_of_bytes() -> None:
    entries = simple(5)
    run = run_of(entries, first=1)
    assert (len(run), run.ledger, run.first_entry, run.first_ordinal) == (4, 7, 1, 1001)
    assert run.end_ordinal == 1005
    assert [run.entry(i) for i in range(4)] == entries[1:]
    assert [run.time(i) for i in range(4)] == [1001, 1002, 1003, 1004]
    assert run.entry(-1) == entries[4]
    assert run.size == sum(map(len, entries[1:]))
    part = run.slice(1, 3)
    assert (len(part), part.first_entry, part.first_ordinal) == (2, 2, 1002)
    assert part.entry(0) == entries[2]
    assert len(run.slice(2)) == 2
    for wrong in (4, -5):
        with pytest.raises(IndexError):
            run.entry(wrong)


def test_a_run_ends_before_what_is_damaged() -> None:
    data, offsets = ledger(simple(3))
    bad = bytearray(data)
    bad[offsets[1] - 64 + 40] ^= 1
    assert len(_core.parse_run(7, 0, 0, index_of(offsets), bytes(bad))) == 1
    with pytest.raises(Corrupt, match=f"ledger 7: entry 1, at offset {offsets[1]}"):
        _core.parse_run(7, 0, 1, index_of(offsets[1:]), bytes(bad)[offsets[1] - 64 :])
    with pytest.raises(Corrupt, match="another offset"):
        _core.parse_run(7, 0, 0, index_of([64, 72]), data)


# -- files -------------------------------------------------------------------------------------------------


def test_ledger_files(tmp_path: Path) -> None:
    entries = simple(300, 1000)
    write_ledger(tmp_path, 5, entries)
    files = _core.LedgerFiles(str(tmp_path), INCARNATION)
    assert files.read(5, 0, 0, 10, 1 << 20, wait=False) is None  # not open: that could take time
    run = files.read(5, 2000, 0, 10, 1 << 20, wait=True)
    assert run is not None
    assert [run.entry(i) for i in range(len(run))] == entries[:10]
    assert (run.ledger, run.first_ordinal) == (5, 2000)
    seen: list[bytes] = []
    while len(seen) < 300:
        run = files.read(5, 2000, len(seen), 1000, 50_000, wait=False, label=9)
        assert run is not None  # just written: it is in the page cache
        assert run.ledger == 9
        assert run.first_ordinal == 2000 + len(seen)
        assert run.space <= 50_000
        seen += [run.entry(i) for i in range(len(run))]
    assert seen == entries
    assert files.time(5, 299) == 1299
    assert files.take_notes() == []
    assert files.open_files == 1
    files.forget(5)
    assert files.open_files == 0
    with pytest.raises(NotFound, match=r"0006\.data"):
        files.read(6, 0, 0, 1, 1, wait=True)


def test_a_generation_is_another_file(tmp_path: Path) -> None:
    old, new = simple(2), simple(4)
    write_ledger(tmp_path, 5, old)
    write_ledger(tmp_path, 5, new, generation=2)
    files = _core.LedgerFiles(str(tmp_path), INCARNATION)
    first = files.read(5, 0, 0, 9, 1 << 20, wait=True)
    second = files.read(5, 0, 0, 9, 1 << 20, wait=True, generation=2)
    assert first is not None
    assert second is not None
    assert (len(first), len(second)) == (2, 4)
    assert files.time(5, 3, generation=2) == 1003


def test_a_wrong_index_costs_only_time(tmp_path: Path) -> None:
    entries = simple(20)
    offsets = write_ledger(tmp_path, 5, entries)
    index = tmp_path / "ledgers/0000000000000005.index"
    offsets[7] += 8
    index.write_bytes(file_header(3, 5, INCARNATION) + index_of(offsets))
    files = _core.LedgerFiles(str(tmp_path), INCARNATION)
    run = files.read(5, 0, 7, 3, 1 << 20, wait=True)
    assert run is not None
    assert [run.entry(i) for i in range(3)] == entries[7:10]
    [note] = files.take_notes()
    assert "entry 7" in note
    assert "does not lead" in note
    assert files.read(5, 0, 7, 3, 1 << 20, wait=False) is None  # following the chain is for a thread
    index.unlink()
    files.forget(5)
    run = files.read(5, 0, 19, 3, 1 << 20, wait=True)
    assert run is not None
    assert run.entry(0) == entries[19]
    assert any("index" in note for note in files.take_notes())


def reads_so_far() -> int:
    """Count reads of files by this process: the cost of following a chain."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["syscr"])


@pytest.mark.parametrize("index", ["missing", "damaged"])
def test_without_an_index_each_block_is_looked_at_once(tmp_path: Path, index: str) -> None:
    """I71, I72: also behind damage, where every entry is refused by itself."""
    count, broken = 6000, 3000
    entries = simple(count, 50)
    offsets = write_ledger(tmp_path, 5, entries)
    data = tmp_path / "ledgers/0000000000000005.data"
    bad = bytearray(data.read_bytes())
    bad[offsets[broken] : offsets[broken + count // 8]] = bytes(
        offsets[broken + count // 8] - offsets[broken]
    )
    data.write_bytes(bad)
    file = tmp_path / "ledgers/0000000000000005.index"
    if index == "missing":
        file.unlink()
    else:
        file.write_bytes(file_header(3, 5, INCARNATION) + index_of([offset + 8 for offset in offsets]))
    files = _core.LedgerFiles(str(tmp_path), INCARNATION)
    before = reads_so_far()
    for at in range(broken):
        run = files.read(5, 0, at, 1, 1000, wait=True)
        assert run is not None
        assert run.entry(0) == entries[at]
    for at in range(broken + 1, count):
        with pytest.raises(
            Corrupt, match=rf"{data}: entry {broken} .* offset {offsets[broken]}: .*entry {at} "
        ):
            files.read(5, 0, at, 1, 1000, wait=True)
    assert reads_so_far() - before < 32 * count, "far from the half of all that each would walk over"


def test_a_ledger_without_an_index_grows(tmp_path: Path) -> None:
    """A block that was incomplete at the last read is not damaged forever."""
    entries = simple(3)
    offsets = write_ledger(tmp_path, 5, entries)
    (tmp_path / "ledgers/0000000000000005.index").unlink()
    data = tmp_path / "ledgers/0000000000000005.data"
    whole = data.read_bytes()
    files = _core.LedgerFiles(str(tmp_path), INCARNATION)
    for size in (offsets[1], offsets[1] + 10, offsets[1] + 40, offsets[2], offsets[2] + 31):
        data.write_bytes(whole[:size])
        with pytest.raises(Corrupt, match=f"{data}: entry .* at offset"):
            files.read(5, 0, 2, 1, 1000, wait=True)
    data.write_bytes(whole)
    run = files.read(5, 0, 2, 1, 1000, wait=True)
    assert run is not None
    assert run.entry(0) == entries[2]


def test_damage_names_file_and_offset(tmp_path: Path) -> None:
    offsets = write_ledger(tmp_path, 5, simple(5))
    data = tmp_path / "ledgers/0000000000000005.data"
    bad = bytearray(data.read_bytes())
    bad[offsets[3] + 50] ^= 4
    data.write_bytes(bad)
    files = _core.LedgerFiles(str(tmp_path), INCARNATION)
    run = files.read(5, 0, 0, 9, 1 << 20, wait=True)
    assert run is not None
    assert len(run) == 3
    with pytest.raises(Corrupt, match=rf"{data}: entry 3 cannot be read at offset {offsets[3]}: its crc"):
        files.read(5, 0, 3, 9, 1 << 20, wait=True)
    after = files.read(5, 0, 4, 9, 1 << 20, wait=True)
    assert after is not None
    assert len(after) == 1
    with pytest.raises(Corrupt, match="another directory"):
        _core.LedgerFiles(str(tmp_path), bytes(16)).read(5, 0, 0, 9, 1 << 20, wait=True)
    with pytest.raises(Misuse, match="16 bytes"):
        _core.LedgerFiles(str(tmp_path), b"short")


def test_threads_read_while_others_run(tmp_path: Path) -> None:
    entries = simple(500, 500)
    write_ledger(tmp_path, 5, entries)
    files = _core.LedgerFiles(str(tmp_path), INCARNATION)
    failures: list[object] = []

    def work(seed: int) -> None:
        try:
            for i in range(60):
                at = (seed * 131 + i * 37) % 500
                run = files.read(5, 0, at, 50, 1 << 20, wait=True)
                assert run is not None
                assert run.entry(0) == entries[at]
                if i % 20 == seed:
                    files.forget(5)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# -- messages ----------------------------------------------------------------------------------------------


def test_a_message_alone() -> None:
    fields: Fields = [*NEEDED, (4, pair("a", "b")), (6, b"key"), (12, 1_600_000_000_000), (18, b"order")]
    batch = _core.Batch(run_of([entry(fields, b"payload")]), redeliveries=[3], reset_number=4, topic="t")
    assert (len(batch), batch.permits, batch.reset_number, batch.topic) == (1, 1, 4, "t")
    [message] = batch
    assert message.data == b"payload"
    assert message.data is message.data  # made once
    assert (message.size, len(message)) == (7, 7)
    assert message.id == MessageId(7, 0)
    assert str(message.id) == "7:0"
    assert type(message.id) is MessageId
    assert (message.ledger, message.entry, message.batch_index, message.batch_size) == (7, 0, -1, 1)
    assert (message.ordinal, message.log_time, message.redelivery_count) == (1000, 1000, 3)
    assert (message.key, message.ordering_key, message.properties) == ("key", b"order", {"a": "b"})
    assert (message.producer, message.sequence, message.topic) == ("producer", 7, "t")
    assert message.reset_number == 4
    assert message.publish_time == datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert message.publish_time_ms == 1_700_000_000_123
    assert message.event_time == datetime(2020, 9, 13, 12, 26, 40, tzinfo=UTC)
    assert (message.compression, message.encrypted, message.sound, message.null_value) == (
        0,
        False,
        True,
        False,
    )
    assert repr(message) == "<holdfast.TopicMessage 7:0 of 7 bytes>"
    with memoryview(message) as view:
        assert bytes(view) == b"payload"
        assert view.readonly


def test_messages_of_a_batch() -> None:
    parts: list[tuple[Fields, bytes]] = [
        ([(SINGLE["partition_key"], b"k0"), (SINGLE["sequence_id"], 70)], b"zero"),
        ([(SINGLE["properties"], pair("x", "y")), (SINGLE["event_time"], 5), (SINGLE["null_value"], 1)], b""),
        ([], b"two"),
    ]
    whole = entry([*NEEDED, (6, b"of the batch"), (12, 9), (11, 3)], batch_payload(parts))
    batch = _core.Batch(run_of([whole]))
    messages = list(batch)
    assert [message.data for message in messages] == [b"zero", b"", b"two"]
    assert [str(message.id) for message in messages] == ["7:0:0", "7:0:1", "7:0:2"]
    assert [message.key for message in messages] == ["k0", None, None]
    assert [message.sequence for message in messages] == [70, 8, 9]
    assert [message.event_time_ms for message in messages] == [0, 5, 0]
    assert [message.properties for message in messages] == [{}, {"x": "y"}, {}]
    assert [message.null_value for message in messages] == [False, True, False]
    assert {message.batch_size for message in messages} == {3}
    assert {message.producer for message in messages} == {"producer"}
    assert [batch[i].data for i in range(3)] == [b"zero", b"", b"two"]
    assert repr(messages[2]) == "<holdfast.TopicMessage 7:0:2 of 3 bytes>"


def test_what_is_acknowledged_is_left_out() -> None:
    entries = [
        *_core.encode_messages([b"a"], "p", 0, 1),
        *_core.encode_messages([bytes([i]) for i in range(70)], "p", 1, 1, batch=70),
        *_core.encode_messages([b"z"], "p", 71, 1),
    ]
    run = run_of(entries)
    batch = _core.Batch(run, [0, 1, 2], open=[None, 1 << 69 | 1 << 3 | 1 << 99, None])
    assert [message.data for message in batch] == [b"a", b"\x03", b"\x45", b"z"]
    assert (len(batch), batch.permits) == (4, 4)
    assert [message.batch_index for message in batch] == [-1, 3, 69, -1]
    assert batch[2].data == b"\x45"
    assert batch.ranges() == [(1000, 1003)]
    assert batch.size == sum(map(len, entries))
    assert _core.Batch(run, [2, 0]).ranges() == [(1002, 1003), (1000, 1001)]
    assert _core.Batch(run, [2, 0]).size == len(entries[0]) + len(entries[2])
    nothing = _core.Batch(run, [1], open=[0])
    assert (len(nothing), nothing.permits, list(nothing)) == (0, 0, [])
    for index in (4, -5):
        with pytest.raises(IndexError):
            batch[index]
    assert batch[-1].data == b"z"


def test_what_cannot_be_taken_apart_is_one_message() -> None:
    squeezed = entry([*NEEDED, (8, 2), (11, 5)], b"squeezed")
    locked = entry([*NEEDED, (13, b""), (11, 4)], b"locked")
    torn = entry([*NEEDED, (11, 2)], batch_payload([([], b"one"), ([], b"two")])[:-1])
    batch = _core.Batch(run_of([squeezed, locked, torn, b"no entry", b""]))
    assert (len(batch), batch.permits) == (5, 5 + 4 + 1 + 1 + 1)
    messages = list(batch)
    assert [message.data for message in messages] == [b"squeezed", b"locked", torn, b"no entry", b""]
    assert [message.sound for message in messages] == [True, True, False, False, False]
    assert [message.batch_index for message in messages] == [-1] * 5
    assert [message.compression for message in messages] == [2, 0, 0, 0, 0]
    assert [message.encrypted for message in messages] == [False, True, False, False, False]
    poor = messages[3]  # nothing is known of it, and nothing raises
    assert (poor.key, poor.properties, poor.producer, poor.sequence, poor.event_time) == (
        None,
        {},
        "",
        0,
        None,
    )


def test_times_beyond_what_python_knows() -> None:
    def of(publish: int, event: int) -> _core.TopicMessage:
        return _core.Batch(run_of([entry([(1, b"p"), (2, 0), (3, publish), (12, event)], b"")]))[0]

    assert of((1 << 64) - 1, (1 << 64) - 1).publish_time is None
    assert of(0, (1 << 64) - 1).event_time is None
    assert of(0, 0).publish_time == datetime(1970, 1, 1, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)
    assert of(253_402_300_799_999, 253_402_300_800_000).publish_time == last
    assert of(0, 253_402_300_800_000).event_time is None
    for day in range(0, 2_932_896, 733):  # any day, against Python's own calendar
        ms = day * 86_400_000 + 12_345_678
        known = datetime.fromordinal(719_163 + day).replace(tzinfo=UTC)
        seen = of(ms, 0).publish_time
        assert seen is not None
        assert (seen.year, seen.month, seen.day) == (known.year, known.month, known.day)
        assert (seen.hour, seen.minute, seen.second, seen.microsecond) == (3, 25, 45, 678_000)


def test_what_a_batch_refuses() -> None:
    run = run_of(simple(3))
    with pytest.raises(Misuse, match="no entry 3"):
        _core.Batch(run, [3])
    with pytest.raises(Misuse, match="as long as the indices"):
        _core.Batch(run, [1, 2], redeliveries=[1])
    with pytest.raises(TypeError):
        _core.Batch("entries")  # type: ignore[arg-type]
    with pytest.raises((TypeError, OverflowError)):
        _core.Batch(run, [-1])
    with pytest.raises(TypeError):
        _core.Batch(run, open=["x", None, None])  # type: ignore[list-item]
    with pytest.raises(OverflowError):
        _core.Batch(run, open=[-1, None, None])
    with pytest.raises(TypeError):
        _core.TopicMessage()


def test_a_message_keeps_what_it_needs_and_nothing_longer(tmp_path: Path) -> None:
    entries = simple(200, 1000)
    write_ledger(tmp_path, 5, entries)

    def one() -> _core.TopicMessage:
        files = _core.LedgerFiles(str(tmp_path), INCARNATION)
        run = files.read(5, 0, 0, 200, 1 << 20, wait=True)
        assert run is not None
        return _core.Batch(run, topic="t")[150]

    message = one()
    view = memoryview(one())
    gc.collect()
    assert message.data == bytes([150]) * 1000
    assert bytes(view) == bytes([150]) * 1000
    assert message.topic == "t"
    topic = "a topic of its own"
    before = sys.getrefcount(topic)
    batch = _core.Batch(run_of(entries), topic=topic)
    held = list(batch)
    walk = iter(batch)
    next(walk)
    assert sys.getrefcount(topic) == before + 1
    del batch, held, walk
    assert sys.getrefcount(topic) == before


def test_memory_is_given_back(tmp_path: Path) -> None:
    write_ledger(tmp_path, 5, simple(1000, 1000))
    files = _core.LedgerFiles(str(tmp_path), INCARNATION)

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def turn() -> None:
        for _ in range(30):
            run = files.read(5, 0, 0, 1000, 2 << 20, wait=True)
            assert run is not None
            assert sum(len(message.data) for message in _core.Batch(run)) == 1_000_000

    turn()
    before = resident()
    for _ in range(10):
        turn()
    assert resident() - before < 20 << 20
