"""Entries of a compacted file at their places in the topic, dispatched and sent."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Misuse, _core
from holdfast.ids import MessageId
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.ledger.entry_bytes import METADATA, SINGLE, Fields, batch_payload, entry, ledger


def thinned(*payloads: bytes | None) -> bytes:
    """Encode a batch, of which messages without a payload are compacted out."""
    out: Fields = [(SINGLE["compacted_out"], 1)]
    parts: list[tuple[Fields, bytes]] = [([], each) if each is not None else (out, b"") for each in payloads]
    fields: Fields = [(1, b"p"), (2, 7), (3, 1), (METADATA["num_messages_in_batch"], len(payloads))]
    return entry(fields, batch_payload(parts))


def compacted() -> _core.Entries:
    """Return four entries, neighbours in their file."""
    first, second = _core.encode_messages([b"first", b"second"], "p", 0, 1)
    batch = _core.encode_messages([b"a", b"b", b"c"], "p", 2, 1, batch=3)[0]
    data, _ = ledger([first, batch, thinned(b"d", None, b"f"), second])
    return _core.parse_run(3, 0, 0, b"", data)


@pytest.mark.parametrize(
    "ordinals",
    [[100, 102, 103, 107], (100, 102, 103, 107), array("Q", [100, 102, 103, 107]),
     struct.pack("<4Q", 100, 102, 103, 107)],
)  # fmt: skip
def test_each_entry_is_at_its_ordinal(ordinals: Sequence[int] | bytes) -> None:
    run = compacted()
    spread = run.spread(ordinals, 9, 40, 100, 8)
    assert (len(spread), spread.ledger, spread.first_entry) == (8, 9, 40)
    assert (spread.first_ordinal, spread.end_ordinal) == (100, 108)
    places = {0: 0, 2: 1, 3: 2, 7: 3}
    for i in range(8):
        assert spread.entry(i) == (run.entry(places[i]) if i in places else b"")
        assert spread.messages(i) == ([1, 3, 3, 1][places[i]] if i in places else 0)
    assert (spread.size, spread.space) == (run.size, run.space)
    assert spread.open_masks() == [(3, 0b101)]
    assert run.open_masks() == [(2, 0b101)]
    assert spread.slice(3).open_masks() == [(0, 0b101)]
    assert run.slice(0, 2).spread(range(5, 7), 9, 0, 5, 2).open_masks() == []


def test_consumers_get_no_gaps_and_nothing_that_is_compacted_out() -> None:
    spread = compacted().spread([100, 102, 103, 107], 9, 40, 100, 8)
    open_masks = {spread.first_ordinal + i: mask for i, mask in spread.open_masks()}
    table = _core.Dispatch()
    table.flow(table.add(0), 100)
    gaps = [(101, 102), (104, 107)]
    ((_, batch),) = table.hand(spread, gaps, open_masks, None, 1, 0, "topic")
    assert [(each.id, each.data) for each in batch] == [
        (MessageId(9, 40, -1), b"first"),
        *((MessageId(9, 42, i), payload) for i, payload in enumerate([b"a", b"b", b"c"])),
        *((MessageId(9, 43, i), payload) for i, payload in [(0, b"d"), (2, b"f")]),
        (MessageId(9, 47, -1), b"second"),
    ]
    assert (len(batch), batch.permits, batch[5].data) == (7, 7, b"f")
    assert batch.ranges() == table.held() == [(100, 101), (102, 104), (107, 108)]
    table.check()

    frames = _core.encode_deliveries(1, batch)
    sent = []
    while frames:
        total, size = struct.unpack_from(">II", frames)
        message = pb.BaseCommand.FromString(frames[8 : 8 + size]).message
        sent.append((message.message_id.entryId, list(message.ack_set)))
        frames = frames[4 + total :]
    assert sent == [(40, []), (42, []), (43, [0b101]), (47, [])]


def test_gaps_are_skipped_though_no_caller_names_them() -> None:
    spread = compacted().spread([100, 102, 103, 107], 9, 40, 100, 8)
    table = _core.Dispatch()
    table.flow(table.add(0), 100)
    ((_, batch),) = table.hand(spread, [], {}, None, 1, 0, None)
    assert batch.ranges() == [(100, 101), (102, 104), (107, 108)]
    everything = _core.Batch(spread)
    assert [each.ordinal for each in everything] == [100, 102, 102, 102, 103, 103, 103, 107]
    assert len(everything) == 8
    assert everything.ranges() == batch.ranges()
    assert len(_core.encode_deliveries(1, everything)) > 0
    only_gaps = _core.Batch(spread, [1, 4, 5])
    assert (list(only_gaps), len(only_gaps), _core.encode_deliveries(1, only_gaps)) == ([], 0, b"")


@pytest.mark.parametrize(
    ("ordinals", "error"),
    [
        ([100, 102, 103], Misuse),
        ([100, 102, 103, 108], Misuse),
        ([99, 102, 103, 107], Misuse),
        ([100, 103, 102, 107], Misuse),
        ([100, 100, 102, 107], Misuse),
        (b"1234567", Misuse),
        ([-1, 102, 103, 107], TypeError),
        ([1 << 64, 102, 103, 107], TypeError),
        (["a", 102, 103, 107], TypeError),
        (None, TypeError),
        (7, TypeError),
    ],
)
def test_ordinals_that_cannot_be(ordinals: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        compacted().spread(ordinals, 9, 40, 100, 8)


def test_a_run_with_gaps_has_a_limit() -> None:
    with pytest.raises(Misuse, match="at most 65536"):
        compacted().spread([1, 2, 3, 4], 9, 0, 0, 65537)
