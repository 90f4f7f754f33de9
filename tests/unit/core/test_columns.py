"""Entries as Arrow columns: the rows that clients would read, for all entries and cuts."""

from __future__ import annotations

import gc
import importlib
import random
import time
from itertools import combinations, pairwise
from typing import Any

import pyarrow as pa
import pytest

from holdfast import Corrupt, DataLoss, Misuse, NotFound, packing
from holdfast._core import Columns, lz4_size, packed_entry, parse_run
from holdfast.columns import decoding as decodings
from holdfast.columns.decoding import Decoding, Wish
from holdfast.columns.schema import COLUMNS, EXTRA
from holdfast.packing import Unpackable, unpack, zstd_size
from tests.kit.ledger.entry_bytes import METADATA, SINGLE, Fields, batch_payload, crc32c, encode, entry, pair
from tests.kit.ledger.topic_bytes import FIRST, Maker, MemoryTopic, compress
from tests.kit.slices import seeds

EVERY = [*COLUMNS, "encryption"]

importlib.import_module("pandas")  # else the first test that needs it is slow


def rows_of(topic: MemoryTopic, start: int, stop: int, wish: Wish | None = None) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for batch in Decoding(topic, start, stop, wish or Wish(EVERY)).batches():  # type: ignore[arg-type]
        batch.validate(full=True)
        out += batch.to_pylist()
    return out


@pytest.mark.parametrize("seed", seeds("columns", test=20))
def test_random_entries_are_the_rows_that_were_sent(seed: int) -> None:
    made = Maker(seed)
    made.any(150)
    topic = MemoryTopic(made.entries, made.random.choice([1, 7, 1 << 20]))
    assert rows_of(topic, *topic.plan()) == made.rows


@pytest.mark.parametrize("seed", seeds("column ranges", test=10))
def test_ranges_cut_anywhere_are_the_same_rows(seed: int) -> None:
    """I150: a message belongs to one range, even if its parts are in several."""
    made = Maker(100 + seed)
    made.any(80)
    topic = MemoryTopic(made.entries)
    first, stop = topic.plan()
    edges = sorted({first, stop, *(made.random.randrange(first, stop) for _ in range(6))})
    found = [row for low, high in pairwise(edges) for row in rows_of(topic, low, high)]
    assert found == made.rows


@pytest.mark.parametrize("seed", seeds("column names", test=5))
def test_columns_by_name_in_any_order(seed: int) -> None:
    made = Maker(200 + seed)
    made.any(60)
    topic = MemoryTopic(made.entries)
    names = made.random.sample(EVERY, made.random.randrange(1, len(EVERY)))
    expected = [{name: row[name] for name in names} for row in made.rows]
    assert rows_of(topic, *topic.plan(), Wish(names)) == expected


def test_filters_are_exact() -> None:
    made = Maker(300)
    made.any(200)
    topic = MemoryTopic(made.entries)
    times = sorted(row["publishTime"] for row in made.rows)
    low, high = times[len(times) // 4], times[len(times) // 2]
    micros = [round((each - times[0].replace(year=1970, month=1, day=1, hour=0, minute=0, second=0,
              microsecond=0)).total_seconds() * 1e6) for each in (low, high)]  # fmt: skip
    found = rows_of(topic, *topic.plan(), Wish(EVERY, False, micros[0], micros[1]))
    assert found == [row for row in made.rows if low <= row["publishTime"] <= high]
    keys = tuple({row["key"] for row in made.rows if row["key"]})[:3]
    found = rows_of(topic, *topic.plan(), Wish(EVERY, keys=keys))
    assert found == [row for row in made.rows if row["key"] in keys]
    assert found
    assert rows_of(topic, *topic.plan(), Wish(["value"], keys=())) == []


def test_how_a_key_travels_and_the_key_of_order() -> None:
    """A replay needs these columns to write a message as it was."""
    must: Fields = [(METADATA["producer_name"], b"p"), (METADATA["sequence_id"], 1)]
    must.append((METADATA["publish_time"], 1))

    def keyed(numbers: dict[str, int]) -> list[Fields]:
        key, flag, order = (
            numbers[name] for name in ("partition_key", "partition_key_b64_encoded", "ordering_key")
        )
        return [
            [(key, b"YWI="), (flag, 1), (order, b"\xff")],
            [(key, b"YWI=")],
            [(key, b"?"), (flag, 1)],  # says that it is base64, and is not
            [(order, b"")],
            [],
        ]

    alone = [entry([*must, *each], b"v") for each in keyed(METADATA)]
    payload = batch_payload([(each, b"v") for each in keyed(SINGLE)])
    batch = entry([*must, (METADATA["num_messages_in_batch"], 5)], payload)
    topic = MemoryTopic([*alone, batch])
    rows = rows_of(topic, *topic.plan(), Wish(["orderingKey", "key", "keyEncoding"]))
    expected = [
        (b"ab", "base64", b"\xff"),
        (b"YWI=", None, None),
        (b"?", None, None),
        (None, None, b""),
        (None, None, None),
    ]
    assert [(row["key"], row["keyEncoding"], row["orderingKey"]) for row in rows] == expected * 2


def test_batches_end_within_a_clients_batch() -> None:
    parts: list[Any] = [([], b"%d" % i) for i in range(1000)]
    fields: Fields = [(1, b"p"), (2, 0), (3, 1), (METADATA["num_messages_in_batch"], 1000)]
    packed = batch_payload(parts)
    squeezed: Fields = [*fields, (METADATA["compression"], 3), (METADATA["uncompressed_size"], len(packed))]
    for each in (entry(fields, packed), entry(squeezed, compress(3, packed))):
        run = MemoryTopic([each]).run(FIRST, FIRST + 1)
        decoder = Columns(["value"], "t", 0, rows_max=7)
        found, sizes, at, why = [], [], 0, ""
        while why != "end":
            at, why = decoder.take(run, at)
            if why == "compressed":
                decoder.expand(FIRST, packed)
                continue
            batch = pa.record_batch(decoder.finish())
            sizes.append(batch.num_rows)
            found += batch.column("value").to_pylist()
        assert found == [b"%d" % i for i in range(1000)]
        assert max(sizes) == 7


def test_arrays_outlive_their_decoder_and_can_be_imported_twice() -> None:
    run = MemoryTopic([entry([(1, b"p"), (2, 0), (3, 1)], b"x" * 100_000)]).run(FIRST, FIRST + 1)
    decoder = Columns(list(COLUMNS), "t", 0)
    decoder.take(run, 0)
    made = decoder.finish()
    one, two = pa.record_batch(made), pa.record_batch(made)
    del decoder, made, run
    gc.collect()
    value = one.column("value")
    del one
    assert value[0].as_py() == b"x" * 100_000
    assert two.column("value").buffers()[2].address == value.buffers()[2].address


def test_capsules_that_nobody_imports_are_given_back() -> None:
    run = MemoryTopic([entry([(1, b"p"), (2, 0), (3, 1)], b"x")]).run(FIRST, FIRST + 1)
    decoder = Columns(list(COLUMNS), "t", 0)
    decoder.take(run, 0)
    made = decoder.finish()
    for _ in range(100):
        made.__arrow_c_array__()
        made.__arrow_c_schema__()


def test_text_that_is_none_and_properties_that_come_twice() -> None:
    fields: Fields = [(1, b"p\xff\xe2\x82"), (2, 0), (3, 1), (4, pair("a", "1")), (4, pair("b", "2"))]
    fields += [(4, pair("a", "3")), (4, encode([(1, b"\xff"), (2, b"ok\xed\xa0\x80")]))]
    row = rows_of(MemoryTopic([entry(fields, b"")]), FIRST, FIRST + 1)[0]
    assert row["producer"] == "p\ufffd\ufffd\ufffd"
    assert row["properties"] == [("b", "2"), ("a", "3"), ("\ufffd", "ok\ufffd\ufffd\ufffd")]
    same: Fields = [
        (4, encode([(1, key), (2, b"%d" % at)])) for at, key in enumerate([b"\xff", b"\xfe", b"x"])
    ]
    row = rows_of(MemoryTopic([entry([*fields[:3], *same], b"")]), FIRST, FIRST + 1)[0]
    assert row["properties"] == [("\ufffd", "1"), ("x", "2")], "a map has each key once"


def test_times_that_nobody_means_are_null() -> None:
    entries = [entry([(1, b"p"), (2, 0), (3, ms), (METADATA["event_time"], ms)], b"") for ms in
               (1 << 63, (1 << 64) - 1, 253_402_300_800_000)]  # fmt: skip
    for row in rows_of(MemoryTopic(entries), FIRST, FIRST + 3):
        assert row["publishTime"] is None
        assert row["eventTime"] is None


def reseal(data: bytes) -> bytes:
    """Return an entry with the right sum, so that only its content is wrong."""
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:] if len(data) > 6 else data


@pytest.mark.parametrize("seed", seeds("hostile entries", test=6))
def test_hostile_entries_hold_up_nothing(seed: int) -> None:
    """I151: an entry is rows, or is refused by its position; later entries are right."""
    made = Maker(400 + seed)
    made.any(12)
    good = entry([(1, b"p"), (2, 5), (3, 1)], b"good")
    choose = random.Random(seed)
    for _ in range(150):
        bad = bytearray(choose.choice(made.entries))
        for _ in range(choose.randrange(1, 4)):
            match choose.randrange(3):
                case 0:
                    bad[choose.randrange(len(bad))] ^= 1 << choose.randrange(8)
                case 1:
                    del bad[choose.randrange(len(bad)) :]
                case 2:
                    at = choose.randrange(len(bad) + 1)
                    bad[at:at] = choose.randbytes(choose.randrange(1, 12))
            bad = bad or bytearray(b"?")
        sent = reseal(bytes(bad)) if choose.random() < 0.8 else bytes(bad)
        topic = MemoryTopic([sent, good])
        wish = Wish([*EVERY, "corrupt"], permissive=True)
        rows = rows_of(topic, *topic.plan(), wish)
        assert (rows[-1]["value"], rows[-1]["position"]) == (b"good", FIRST + 1)
        assert all(row["position"] == FIRST for row in rows[:-1])
        if any(row["corrupt"] for row in rows):
            assert len(rows) == 2
            with pytest.raises(Corrupt, match=f"position {FIRST}"):
                rows_of(topic, *topic.plan())


def test_an_entry_with_a_wrong_sum_is_named() -> None:
    bad = bytearray(entry([(1, b"p"), (2, 0), (3, 1)], b"payload"))
    bad[-1] ^= 1
    topic = MemoryTopic([bytes(bad)])
    with pytest.raises(Corrupt, match=r"orders-partition-3, position 1000: entry 7:0 .*checksum"):
        rows_of(topic, *topic.plan())


def test_damaged_blocks_are_named_or_left_out_and_counted() -> None:
    """I152."""
    entries = [entry([(1, b"p"), (2, i), (3, 1)], b"%d" % i) for i in range(10)]
    topic = MemoryTopic(entries)
    topic.damaged = {FIRST + 3, FIRST + 9}
    with pytest.raises(Corrupt, match="position 1003"):
        rows_of(topic, *topic.plan())
    decoding = Decoding(topic, *topic.plan(), Wish(["value"], permissive=True))  # type: ignore[arg-type]
    values = [value for batch in decoding.batches() for value in batch.column("value").to_pylist()]
    assert values == [b"%d" % i for i in range(10) if i not in (3, 9)]
    assert decoding.damaged == 2
    rows = rows_of(topic, *topic.plan(), Wish(["value", "corrupt", "position"], permissive=True))
    assert [row["position"] for row in rows if row["corrupt"]] == [FIRST + 3, FIRST + 9]


def test_a_beginning_that_is_trimmed_meanwhile_takes_nothing_along() -> None:
    """A part was seen before the range and is gone when the message is joined.

    Only that message is lost.
    """
    fields: Fields = [(1, b"p"), (2, 0), (3, 1)]
    chunked = [*fields, (METADATA["uuid"], b"u"), (METADATA["num_chunks_from_msg"], 2)]
    parts = [entry([*chunked, (METADATA["chunk_id"], i)], b"part") for i in range(2)]
    plain = [entry(fields, b"%d" % i) for i in range(5)]

    class Trimmed(MemoryTopic):
        runs = 0

        def run(self, start: int, stop: int) -> Any:
            if start == FIRST:
                self.runs += 1
                if self.runs > 1:
                    raise NotFound("it was trimmed")
            return super().run(start, stop)

    topic = Trimmed([parts[0], *plain, parts[1], entry(fields, b"end")], run_entries=3)
    rows = rows_of(topic, FIRST + 1, FIRST + 8)
    assert topic.runs > 1
    assert [row["value"] for row in rows] == [b"0", b"1", b"2", b"3", b"4", b"end"]


def test_a_beginning_that_was_trimmed_is_a_loss_to_whoever_had_a_right_to_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reader that starts at `whole` misses only what was trimmed behind it."""
    fields: Fields = [(1, b"p"), (2, 0), (3, 1)]
    chunked = [*fields, (METADATA["uuid"], b"u"), (METADATA["num_chunks_from_msg"], 3)]
    parts = [entry([*chunked, (METADATA["chunk_id"], i)], b"part") for i in range(3)]
    end = entry(fields, b"end")
    cut = MemoryTopic([parts[1], parts[2], end])
    with pytest.raises(DataLoss, match=f"position {FIRST + 1}: .* below {FIRST} were trimmed"):
        rows_of(cut, *cut.plan(), Wish(["value"], whole=FIRST - 1))
    for whole in (None, FIRST, FIRST + 5):
        assert [row["value"] for row in rows_of(cut, *cut.plan(), Wish(["value"], whole=whole))] == [b"end"]
    # its producer never sent it whole, so nothing was lost here
    torn = MemoryTopic([parts[0], parts[2], end])
    assert [row["value"] for row in rows_of(torn, *torn.plan(), Wish(["value"], whole=0))] == [b"end"]
    assert [row["value"] for row in rows_of(torn, FIRST + 1, FIRST + 3, Wish(["value"], whole=0))] == [b"end"]
    assert caplog.text.count("and it is left out") == 5


def test_a_chunked_message_without_its_beginning_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    fields: Fields = [
        (1, b"p"),
        (2, 0),
        (3, 1),
        (METADATA["uuid"], b"u"),
        (METADATA["num_chunks_from_msg"], 3),
    ]
    parts = [entry([*fields, (METADATA["chunk_id"], i)], b"part") for i in range(3)]
    assert rows_of(MemoryTopic(parts[1:]), FIRST, FIRST + 2) == []
    assert "beginning of this chunked message is missing" in caplog.text
    assert rows_of(MemoryTopic([parts[0], parts[2]]), FIRST, FIRST + 2) == []
    # sent again after a broken connection
    again = MemoryTopic([parts[0], parts[0], parts[1], parts[1], parts[2]])
    assert [row["value"] for row in rows_of(again, FIRST, FIRST + 5)] == [b"partpartpart"]


def chunked(uuid: bytes, count: int, payload: bytes = b"part") -> list[bytes]:
    fields: Fields = [(1, b"p"), (2, 0), (3, 1), (METADATA["uuid"], uuid)]
    fields.append((METADATA["num_chunks_from_msg"], count))
    return [entry([*fields, (METADATA["chunk_id"], i)], payload + b"%d" % i) for i in range(count)]


def test_a_last_part_that_was_sent_again_is_no_second_row(caplog: pytest.LogCaptureFixture) -> None:
    """I150: an incomplete message is dropped for every cut, as clients do; nothing is lost."""
    first, last = chunked(b"u", 2)
    plain = entry([(1, b"p"), (2, 0), (3, 1)], b"plain")
    topic = MemoryTopic([plain, first, plain, last, plain, last, last])
    start, stop = topic.plan()
    for edges in combinations(range(start + 1, stop), 2):
        found = [row for low, high in pairwise([start, *edges, stop])
                 for row in rows_of(topic, low, high, Wish(EVERY, whole=0))]  # fmt: skip
        assert [row["value"] for row in found] == [b"plain", b"plain", b"part0part1", b"plain"], edges
    assert caplog.text == ""
    # Its first part is trimmed by now: a reader that read the last part before has had it.
    gone = MemoryTopic([last, plain, last])
    rows = rows_of(gone, FIRST + 1, FIRST + 3, Wish(EVERY, whole=0))
    assert [row["value"] for row in rows] == [b"plain"]


def test_parts_that_say_they_are_batches_are_parts() -> None:
    """Parts of a chunked message are never split alone, in or before the range."""
    fields: Fields = [
        (1, b"p"),
        (2, 0),
        (3, 1),
        (METADATA["uuid"], b"u"),
        (METADATA["num_chunks_from_msg"], 2),
    ]
    fields.append((METADATA["num_messages_in_batch"], 1))
    parts = [entry([*fields, (METADATA["chunk_id"], i)], b"part%d" % i) for i in range(2)]
    good = entry([(1, b"p"), (2, 0), (3, 1)], b"good")
    topic = MemoryTopic([*parts, good])
    for low in (FIRST, FIRST + 1):
        assert [row["value"] for row in rows_of(topic, low, FIRST + 3)] == [b"part0part1", b"good"]


def test_parts_before_the_range_are_checked_as_those_in_it() -> None:
    """Entries have sums of their own: nothing is taken from an entry before its check."""
    first, last = chunked(b"u", 2)
    bad = bytearray(first)
    bad[-1] ^= 1
    topic = MemoryTopic([bytes(bad), last])
    wish = Wish(EVERY, permissive=True)
    assert rows_of(topic, FIRST, FIRST + 2, wish) == []
    assert rows_of(topic, FIRST + 1, FIRST + 2, wish) == []
    with pytest.raises(Corrupt, match="checksum"):
        packed_entry(topic.run(FIRST, FIRST + 1), 0)


def test_a_part_that_is_damaged_when_it_is_joined_is_named() -> None:
    class Worse(MemoryTopic):
        runs = 0

        def run(self, start: int, stop: int) -> Any:
            if start == FIRST:
                self.runs += 1
                if self.runs > 1:
                    raise Corrupt("its block is damaged")
            return super().run(start, stop)

    plain = entry([(1, b"p"), (2, 0), (3, 1)], b"plain")
    entries = [*chunked(b"u", 2), plain]
    with pytest.raises(Corrupt, match=r"position 1001: .*part at position 1000 is damaged: its block"):
        rows_of(Worse(entries), FIRST, FIRST + 3)
    rows = rows_of(Worse(entries), FIRST, FIRST + 3, Wish(EVERY, permissive=True))
    assert [row["value"] for row in rows] == [b"plain"]


def test_beginnings_are_looked_for_only_where_they_are_needed() -> None:
    """Read before the range only for a last part in it, up to its start."""
    plain = entry([(1, b"p"), (2, 0), (3, 1)], b"x" * 100)
    parts = chunked(b"u", 3)
    lowest = 1 << 62

    class Watched(MemoryTopic):
        def run(self, start: int, stop: int) -> Any:
            nonlocal lowest
            lowest = min(lowest, start)
            return super().run(start, stop)

    topic = Watched([plain] * 5000 + parts[:1] + [plain] * 40 + parts[1:2] + [plain] * 40 + parts[2:])
    first, stop = topic.plan()
    middle = first + 5041
    assert len(rows_of(topic, middle, stop - 1)) == 40
    assert lowest == middle, "its last part is another task's"
    assert rows_of(topic, stop - 1, stop)[0]["value"] == b"part0part1part2"
    assert first + 4900 < lowest <= first + 5000
    lowest = 1 << 62
    assert len(rows_of(topic, first + 100, stop)) == 4981
    assert lowest == first + 100


def test_rows_of_damage_end_a_batch_as_others_do() -> None:
    """I151: for any number of damaged entries, and any text about them."""

    class Damaged(MemoryTopic):
        def run(self, start: int, stop: int) -> Any:
            if start < FIRST + 2000:
                raise Corrupt("x" * 10_000)
            return super().run(start, stop)

    topic: Any = Damaged([b"none"] * 3000)
    sizes = []
    for batch in Decoding(
        topic, FIRST, FIRST + 3000, Wish(["corrupt", "position"], permissive=True)
    ).batches():
        batch.validate(full=True)
        sizes.append((batch.num_rows, batch.nbytes))
    assert sum(rows for rows, _ in sizes) == 3000
    assert max(size for _, size in sizes) < 5 << 20


@pytest.mark.parametrize("compression", [1, 2, 3, 4])
def test_compressed_bytes_are_held_to_their_size(compression: int) -> None:
    """A codec that fills less than the declared size exposes no memory of this process."""
    for data in (b"", b"a", b"abc" * 1000, random.Random(1).randbytes(5000)):
        packed = compress(compression, data)
        assert bytes(unpack(compression, len(data), packed)) == data
        for wrong in (len(data) + 1, len(data) - 1, 1 << 40):
            if wrong >= 0:
                with pytest.raises(Unpackable):
                    unpack(compression, wrong, packed)
        for cut in range(len(packed)):
            try:
                assert len(unpack(compression, len(data), packed[:cut])) == len(data)
            except Unpackable:
                continue
    with pytest.raises(Unpackable, match="is unknown"):
        unpack(9, 1, b"x")


def test_sizes_that_are_not_true_take_no_memory() -> None:
    """A few bytes that declare a gigabyte."""
    told = (1 << 30) - 1
    header = bytes([0x80 | told >> 7 * i & 0x7F for i in range(4)]) + bytes([told >> 28])
    endless = zstd_without_size(b"x" * 1000)
    before = pa.total_allocated_bytes()
    for compression, payload in ((4, header + b"\0x"), (3, endless), (2, compress(2, b"x" * 1000))):
        with pytest.raises(Unpackable):
            unpack(compression, told, payload)
    assert zstd_size(endless) is None
    assert bytes(unpack(3, 1000, endless)) == b"x" * 1000
    assert bytes(unpack(4, 100_000, compress(4, bytes(100_000)))) == bytes(100_000)
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert pa.default_memory_pool().max_memory() < 1 << 30


def test_what_opens_to_too_much_is_refused_by_its_position() -> None:
    """I151: a few KiB that expand beyond the memory, with sizes as their producer declares."""
    fields: Fields = [(METADATA["producer_name"], b"p"), (METADATA["sequence_id"], 1)]
    fields.append((METADATA["publish_time"], 1))
    size = (256 << 20) + 1  # as docs/guide/source.md says
    packed = compress(3, bytes(size))
    assert len(packed) < 1 << 20
    large: Fields = [*fields, (METADATA["compression"], 3), (METADATA["uncompressed_size"], size)]
    parts: Fields = [*large, (METADATA["uuid"], b"u"), (METADATA["num_chunks_from_msg"], 2)]
    entries = [entry(fields, b"a"), entry(large, packed), entry(fields, b"b")]
    halves = (packed[:1000], packed[1000:])
    entries += [entry([*parts, (METADATA["chunk_id"], i)], each) for i, each in enumerate(halves)]
    topic = MemoryTopic([*entries, entry(fields, b"c")])
    with pytest.raises(Corrupt, match=rf"position {FIRST + 1}: .* would have {size} bytes.*permissive"):
        rows_of(topic, *topic.plan())
    before = pa.total_allocated_bytes()
    found = rows_of(topic, *topic.plan(), Wish(["value"], permissive=True))
    assert [row["value"] for row in found] == [b"a", b"b", b"c"]
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize("permissive", [False, True])
def test_no_room_is_no_damage(monkeypatch: pytest.MonkeyPatch, permissive: bool) -> None:
    """A sound payload is not left out because this process lacks memory for a moment."""

    class Full:
        def decompress(self, *_: Any) -> bytes:
            raise pa.lib.ArrowMemoryError("malloc of size 1000 failed")

    fields: Fields = [(METADATA["producer_name"], b"p"), (METADATA["sequence_id"], 1)]
    fields += [(METADATA["publish_time"], 1), (METADATA["compression"], 3)]
    fields.append((METADATA["uncompressed_size"], 1000))
    topic = MemoryTopic([entry(fields, compress(3, bytes(1000)))])
    monkeypatch.setattr(packing, "_codec", lambda _: Full())
    with pytest.raises(MemoryError):
        rows_of(topic, *topic.plan(), Wish(["value"], permissive=permissive))


def test_parts_that_never_end_take_little() -> None:
    """I151: repeated damage costs neither time nor memory."""
    topic: Any = MemoryTopic([])

    def took(parts: int) -> float:
        began = time.process_time()
        made = Decoding(topic, FIRST, FIRST, Wish(["value"]))
        for number in range(1, parts):
            assert made._join(b"u", number, 1 << 30, FIRST + number, b"") is None
        return time.process_time() - began

    took(1000)
    assert took(40_000) < 10 * took(10_000), "not the square, as if each part copied all before it"
    again = Decoding(topic, FIRST, FIRST, Wish(["value"]))
    for number in range(1000):
        again._join(b"u", 1 + number % 3, 9, FIRST + number, b"")
    assert again._seen.count == 3


def test_the_oldest_of_too_many_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decodings, "PARTS_MAX", 50)
    base: Fields = [(METADATA["producer_name"], b"p"), (METADATA["sequence_id"], 1)]
    base += [(METADATA["publish_time"], 1), (METADATA["num_chunks_from_msg"], 3)]

    def part(uuid: int, chunk: int) -> bytes:
        name = b"%d" % uuid * (100_000 if uuid == 199 else 1)
        return entry([*base, (METADATA["uuid"], name), (METADATA["chunk_id"], chunk)], b"%d" % chunk)

    begun = [part(uuid, 0) for uuid in range(200)]
    entries = [*begun, *(part(uuid, chunk) for uuid in (0, 199) for chunk in (1, 2))]
    topic = MemoryTopic(entries)
    made = Decoding(topic, *topic.plan(), Wish(["value"], whole=0))  # type: ignore[arg-type]
    rows = [row["value"] for batch in made.batches() for row in batch.to_pylist()]
    assert rows == [b"012"], "the newest is whole; the oldest is left out, and is not taken for trimmed"
    assert made._seen.count <= 50
    assert max(len(each) for each in made._seen) == 16
    for last, expected in ((FIRST + 203, [b"012"]), (FIRST + 201, [])):  # the same before the range
        made = Decoding(topic, last, last + 1, Wish(["value"]))  # type: ignore[arg-type]
        assert [row["value"] for batch in made.batches() for row in batch.to_pylist()] == expected
        assert made._back_to > FIRST, "it has not looked at all of it"


def zstd_without_size(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("seed", seeds("lz4", test=1))
def test_lz4_size_of_any_bytes(seed: int) -> None:
    choose = random.Random(seed)
    for _ in range(2000):
        data = choose.randbytes(choose.randrange(40))
        size = lz4_size(data)
        assert size >= -1
    assert lz4_size(b"") == -1


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (None, None),
        (b"", None),
        (b"1234567", None),
        (b"\0" * 8, 0),
        ((1 << 62).to_bytes(8, "big"), 1 << 62),
        (b"\xff" * 8, None),
        (b"\0" * 9, None),
    ],
)
def test_the_version_of_a_schema(version: bytes | None, expected: int | None) -> None:
    base: Fields = [(METADATA["producer_name"], b"p"), (METADATA["sequence_id"], 1)]
    base += [
        (METADATA["publish_time"], 1),
        *([(METADATA["schema_version"], version)] if version is not None else []),
    ]
    batch = [*base, (METADATA["num_messages_in_batch"], 2)]
    topic = MemoryTopic([entry(base, b"x"), entry(batch, batch_payload([([], b"a"), ([], b"b")]))])
    made = Decoding(topic, *topic.plan(), Wish(["schemaVersion", "deliverAt"]))  # type: ignore[arg-type]
    rows = [row for rows in made.batches() for row in rows.to_pylist()]
    assert rows == [{"schemaVersion": expected, "deliverAt": None}] * 3


def test_misuse() -> None:
    with pytest.raises(Misuse, match="no column colour"):
        Columns(["colour"], "t", 0)
    with pytest.raises(Misuse, match="rows"):
        Columns(["key"], "t", 0, rows_max=0)
    run = parse_run(1, 0, 0, b"", MemoryTopic([b"no entry"]).data)
    assert Columns(["key"], "t", 0).take(run, 0) == (0, "unsound")
    assert Columns(["key"], "t", 0).take(run, 5) == (5, "end")
    asked = {"encryption", "corrupt", "keyEncoding", "orderingKey", "uniqueId", "deliverAt", "schemaVersion"}
    assert set(EXTRA) == asked
    assert SINGLE["payload_size"] == 3
