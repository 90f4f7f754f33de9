"""Mutants of the wire codec: each changes a copy of a header, and the native test must notice."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.mutants.test_core import Mutant, judge

PROGRAM = "test_wire"

MUTANTS = tuple(
    Mutant(name, file, old, new, PROGRAM)
    for name, file, old, new in (
        (
            "any-frame-size",
            "wire_reader.hpp",
            "if (total < 4 || total > frame_max_) {",
            "if (total < 4) {",
        ),
        ("any-command-size", "wire_reader.hpp", "if (size > frame.size() - 4)", "if (false)"),
        (
            "sum-not-checked",
            "wire_reader.hpp",
            "const EntryFault fault = check_entry(row.entry, entry);",
            "const EntryFault fault = read_entry(row.entry, entry);",
        ),
        (
            "any-sequence",
            "wire_reader.hpp",
            "if (row.sequence >= most || row.highest >= most) return false;",
            "",
        ),
        ("rest-forgotten", "wire_reader.hpp", "held_.append(rest.substr(taken));", ""),
        (
            "entries-moved",
            "wire_reader.hpp",
            "fence();  // entries point into both buffers until here\n        bare_.clear();\n"
            "        drop_front(before);",
            "bare_.clear();\n        drop_front(before);\n        fence();",
        ),
        ("acks-of-another", "wire_reader.hpp", "if (each.consumer == consumer) return", "return"),
        ("gap-joined", "wire_acks.hpp", "runs_.back().end == entry)", "runs_.back().end <= entry)"),
        ("minus-one", "wire_acks.hpp", "if (entry > kEntryIdMax) return true;", ""),
        ("beyond-ledger", "wire_acks.hpp", "std::min(each.end, place->entries));", "each.end);"),
        ("id-incomplete", "wire_acks.hpp", "if (in.bad() || required != 3) return false;", ""),
        ("duplicate-counted", "wire_writer.hpp", "stored ? entry++ : none", "entry++"),
        ("mask-not-measured", "wire_writer.hpp", "row.body += put_size(words_[row.words_at + i]);", ";"),
    )
)


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    with ThreadPoolExecutor(2) as pool:
        yield {mutant.name: pool.submit(judge, mutant) for mutant in MUTANTS}


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(
    mutant: Mutant, verdicts: dict[str, Future[subprocess.CompletedProcess[str]]]
) -> None:
    done = verdicts[mutant.name].result()
    assert done.returncode != 0, "it survived"
    print(done.stderr)
