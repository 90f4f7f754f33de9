"""Mutants of the headers that read entries and ledgers: each changes a copy, and a native test must notice.

Each names a text that must occur exactly once in its file, so that a mutant cannot silently become none.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit import ROOT

FLAGS = ["-std=c++20", "-O0", "-pthread"]


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    old: str
    new: str
    program: str  # the native test that kills it


MUTANTS = (
    Mutant(
        "payload-not-summed",
        "entries.hpp",
        "if (verify_payload(header, bytes.data()) != BlockFault::none) return BlockFault::crc;",
        "",
        "test_entry_runs",
    ),
    Mutant(
        "block-of-any-kind",
        "entries.hpp",
        "if (header.kind != kEntryBlock) return BlockFault::kind;",
        "",
        "test_entry_runs",
    ),
    Mutant(
        "index-believed",
        "ledger_read.hpp",
        "return read_at(file, request, offsets[0], request.size_max, 1, fault) ? offsets[0] : 0;",
        "return offsets[0];",
        "test_ledger_read",
    ),
    Mutant(
        "no-chain",
        "ledger_read.hpp",
        "return read_by_chain(*file, request, count, fault);",
        "throw damaged(*file, request.entry, 0, fault.words);",
        "test_ledger_read",
    ),
    Mutant(
        "batch-cut-short",
        "entry.hpp",
        "if (part.fields.payload_size > rest_.size() - 4 - size) return false;",
        "if (part.fields.payload_size > rest_.size() - 4 - size) part.fields.payload_size = 0;",
        "test_entry",
    ),
    Mutant(
        "acknowledged-handed-over",
        "handover.hpp",
        "(masks_[item.mask_at + message / 64] >> (message % 64) & 1) != 0;",
        "true;",
        "test_entry_runs",
    ),
    Mutant(
        "half-an-event-stays",
        "frame_writer.hpp",
        "if (!kept_) frame_.buffer_.cut(start_);",
        "",
        "test_entry",
    ),
    Mutant(
        "one-copy-only",
        "publication.hpp",
        "next_ = 1 - next_;",
        "",
        "test_publication",
    ),
    Mutant(
        "mixture-read",
        "publication.hpp",
        "if (out[kViewBegin] != out[kViewEnd]) return std::nullopt;",
        "out[kViewBegin] = out[kViewEnd];",
        "test_publication",
    ),
    Mutant(
        "ingest-as-the-policy-says",
        "log.hpp",
        "topic->deduplicate || always_deduplicated(view.producer())",
        "topic->deduplicate",
        "test_log",
    ),
    Mutant(
        "ingest-forgotten-with-the-policy",
        "log_topics.hpp",
        "if (!always_deduplicated(name)) producer.last = -1;",
        "producer.last = -1;",
        "test_log",
    ),
    Mutant(
        "put-end-of-the-first",
        "queue.hpp",
        "std::max(put_end, claim.position + claim.length)",
        "std::max(put_end, claim.position + first)",
        "test_put_end",
    ),
    Mutant(
        "put-end-without-a-put",
        "queue.hpp",
        "if (verdict == Verdict::ok) put_end = std::max(put_end, claim.position + claim.length);",
        "",
        "test_put_end",
    ),
    Mutant(
        "pattern-without-an-end",
        "wire_pattern.hpp",
        "if (++steps_ > kPatternStepsMax)",
        "if (false)",
        "test_wire_pattern",
    ),
    Mutant(
        "sends-behind-a-refused-one",
        "wire_reader.hpp",
        "if (refused != SendFault::checksum) drop_producer(send.producer);",
        "",
        "test_wire",
    ),
    Mutant(
        "fold-too-far",
        "crc32c.hpp",
        "{make_fold(384), make_fold(256), make_fold(128), {0, 0}}",
        "{make_fold(384), make_fold(256), make_fold(256), {0, 0}}",
        "test_crc32c",
    ),
)


def processor() -> set[str]:
    """What it can do."""
    return set(Path("/proc/cpuinfo").read_text().split())


def judge(mutant: Mutant) -> subprocess.CompletedProcess[str]:
    """Runs the mutant's native test over the headers, changed as it says."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-test.") as directory:
        native = Path(directory) / "native"
        shutil.copytree(ROOT / "native/holdfast", native / "holdfast")
        header = native / "holdfast" / mutant.file
        text = header.read_text()
        assert text.count(mutant.old) == 1, f"{mutant.old!r} occurs {text.count(mutant.old)} times"
        header.write_text(text.replace(mutant.old, mutant.new))
        binary = Path(directory) / "program"
        source = ROOT / f"native/tests/{mutant.program}.cpp"
        compiler = os.environ.get("CXX", "g++")
        subprocess.run([compiler, *FLAGS, f"-I{native}", str(source), "-o", str(binary)], check=True)
        return subprocess.run(
            [str(binary)],
            env={**os.environ, "HOLDFAST_RUNTIME_DIR": directory},
            capture_output=True,
            text=True,
            timeout=100,
        )


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    with ThreadPoolExecutor(2) as pool:
        yield {mutant.name: pool.submit(judge, mutant) for mutant in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_is_caught(
    mutant: Mutant, verdicts: dict[str, Future[subprocess.CompletedProcess[str]]]
) -> None:
    if mutant.name == "fold-too-far" and not {"avx512f", "vpclmulqdq"} <= processor():
        pytest.skip("this processor does not fold")
    done = verdicts[mutant.name].result()
    assert done.returncode != 0, "it survived"
    print(done.stderr)
