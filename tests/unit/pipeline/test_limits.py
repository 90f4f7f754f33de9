"""Numbers of the pipeline just before their end: docs/reference/limits.md names them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from holdfast import Corrupt, Misuse
from holdfast._core import Columns, encode_messages, parse_run
from holdfast.ids import NUMBER_MAX
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Kind, Range, Run
from holdfast.pipeline.numbered import TEXT_MAX, encode
from tests.kit.ledger.entry_bytes import ledger

WORD = (1 << 64) - 1
YEAR_10000_MS = 253_402_300_800_000


@pytest.mark.parametrize("kind", ["archive", "compacted"])
def test_a_digit_is_added_to_the_number_of_a_run(tmp_path: Path, kind: Kind) -> None:
    """By name 100000000 stands before 99999999: the directory was damaged for good."""
    directory = ArchiveDirectory(tmp_path, kind)
    with directory.changing():
        for number in range(99_999_998, 100_000_002):
            reach = Range("aa", number, number + 1)
            directory.commit(Run(2, kind, number, f"run-{number}", "now", {"t": reach}, []))
        if kind == "archive":  # it says which are missing, and not that they are in disorder
            with pytest.raises(Corrupt, match="begins with run 99999998: earlier runs are missing"):
                directory.runs()
            return
        assert [run.number for run in directory.runs()] == list(range(99_999_998, 100_000_002))
        directory.superseded()
        assert [run.number for run in directory.runs()] == [100_000_001]


def test_the_last_positions_as_columns() -> None:
    """Of 64 bits with a sign: what a broker can have fits."""
    data, _ = ledger(encode_messages([b"x"] * 2, "p", NUMBER_MAX - 2, 1))
    decoder = Columns(["position", "messageId", "sequenceId"], "t", (1 << 31) - 1)
    decoder.take(parse_run(NUMBER_MAX, NUMBER_MAX - 2, 0, b"", data), 0)
    rows = pa.record_batch(decoder.finish()).to_pylist()
    assert [row["position"] for row in rows] == [NUMBER_MAX - 2, NUMBER_MAX - 1]
    assert [row["sequenceId"] for row in rows] == [NUMBER_MAX - 2, NUMBER_MAX - 1]
    assert rows[1]["messageId"] | {"partition": 0} == {
        "ledger": NUMBER_MAX, "entry": 1, "batchIndex": -1, "partition": 0
    }  # fmt: skip


@pytest.mark.parametrize(
    ("time_ms", "there"), [(YEAR_10000_MS - 1, True), (YEAR_10000_MS, False), (WORD, False)]
)
def test_times_of_messages_end_with_the_year_9999(time_ms: int, there: bool) -> None:
    data, _ = ledger(encode_messages([b"x"], "p", 0, time_ms, event_time_ms=time_ms))
    decoder = Columns(["publishTime", "eventTime"], "t", 0)
    decoder.take(parse_run(1, 0, 0, b"", data), 0)
    columns = pa.record_batch(decoder.finish()).columns
    assert [column.null_count == 0 for column in columns] == [there, there]


def test_the_last_numbers_of_a_numbered_message() -> None:
    assert len(encode("p" * TEXT_MAX, NUMBER_MAX, "k" * TEXT_MAX, sent_ns=NUMBER_MAX)) == 26 + 2 * TEXT_MAX
    for number, sent_ns in ((NUMBER_MAX + 1, 0), (0, NUMBER_MAX + 1), (-1, 0), (0, -1)):
        with pytest.raises(Misuse, match="less than 2"):
            encode("p", number, "k", sent_ns=sent_ns)
    with pytest.raises(Misuse, match="255 are possible"):
        encode("p" * (TEXT_MAX + 1), 0, "k", sent_ns=0)
