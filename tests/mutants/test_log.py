"""Broken logs and writers that the native tests must notice: the proof that they can fail.

Each mutant is a copy of native/ with one change. A native test is compiled against it, and must fail.
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
    breaks: str  # what is dropped, reordered or weakened
    file: str
    old: str
    new: str
    program: str  # that notices


MUTANTS = (
    Mutant(
        "durable-before-sync",
        "a round is reported durable when it is written, whatever its sync says",
        "writer.hpp",
        "if (failure) return;\n        at(Point::round_done);",
        "if (failure && failure.op != IoOp::journal_sync) return;\n        at(Point::round_done);",
        "writer",
    ),
    Mutant(
        "no-sync",
        "the journal is not synced",
        "writer.hpp",
        "const int error = sync_data(journal_.get(), IoOp::journal_sync)) {",
        "const int error = 0) {",
        "writer",
    ),
    Mutant(
        "durable-before-ledgers",
        "a round is durable although a ledger was not written",
        "writer.hpp",
        "return ledger_failure;",
        "return {};",
        "writer",
    ),
    Mutant(
        "sync-again",
        "after a failed sync the same file is taken once more",
        "writer.hpp",
        "report_.failure.op == IoOp::journal_sync && next_journal_.get() < 0",
        "false",
        "writer",
    ),
    Mutant(
        "not-moved",
        "after a failed sync the round is not written into the next journal",
        "writer.hpp",
        "journal_written_ = false;  // all of it goes to the next journal",
        "",
        "writer",
    ),
    Mutant(
        "ledger-skipped",
        "a ledger that failed is left out when the round goes on",
        "writer.hpp",
        "next_write_ += !failure",
        "++next_write_",
        "writer",
    ),
    Mutant(
        "impatient",
        "what is not urgent is written at once",
        "writer.hpp",
        "if (queue_->waits() && now >= queue_->due()) return true;",
        "if (queue_->waits()) return true;",
        "writer",
    ),
    Mutant(
        "all-synced",
        "in the mode os a round says that all before it was synced",
        "writer.hpp",
        "mode_ == SyncMode::os ? synced_d_ : round_.first_d() - 1",
        "round_.first_d() - 1",
        "writer",
    ),
    Mutant(
        "pending-too-long",
        "a round counts as pending when it is reported",
        "writer.hpp",
        "queue_->discount(round_); report_.durable_d = round_.settled_d(); ++report_.rounds;",
        "report_.durable_d = round_.settled_d(); ++report_.rounds; tell();"
        " queue_->mutex().unlock(); usleep(1000); queue_->mutex().lock(); queue_->discount(round_);",
        "writer",
    ),
    Mutant(
        "short-is-whole",
        "a short write counts as a whole one",
        "io.hpp",
        "offset += static_cast<u64>(written);",
        "return 0;",
        "writer",
    ),
    Mutant(
        "left-over",
        "what a crash left of a ledger stays in it",
        "writer_ledgers.hpp",
        "const int error = truncate_file(out.get(), 0)",
        "const int error = 0",
        "writer",
    ),
    Mutant(
        "sync-forgotten",
        "a ledger whose sync failed is synced again, as if that meant something",
        "writer_ledgers.hpp",
        "int& error = file->sync_error;",
        "int error = 0;",
        "writer_ledgers",
    ),
    Mutant(
        "thread-in-child",
        "a child of fork() uses the log of its parent's writer",
        "writer.hpp",
        "queue_->leave_to_parent();",
        "",
        "writer_ledgers",
    ),
    Mutant(
        "last-is-new",
        "the last sequence once more is no duplicate",
        "log.hpp",
        "row.sequence <= producer.last",
        "row.sequence < producer.last",
        "log",
    ),
    Mutant(
        "span-of-one",
        "an entry covers its first sequence alone",
        "log.hpp",
        "producer.last = row.sequence + (row.span - 1);",
        "producer.last = row.sequence;",
        "log",
    ),
    Mutant(
        "fence-open",
        "an older epoch may go on beside a newer one",
        "log_topics.hpp",
        "return epoch >= topic.producers.find(name)->second.epoch;",
        "return true;",
        "log",
    ),
    Mutant(
        "refused-is-journaled",
        "a refused publish takes a D",
        "log.hpp",
        "if (out.count > 0) accept(event.whole);",
        "accept(event.whole);",
        "log",
    ),
    Mutant(
        "frame-time",
        "the journal keeps the frame's own time, not the log time",
        "log.hpp",
        "{kFrameMagic, kFrameVersion, 0, accepted_count_, frame_time_}",
        "{kFrameMagic, kFrameVersion, 0, accepted_count_, reader_.time()}",
        "log",
    ),
    Mutant(
        "old-padding",
        "the padding of an entry holds what the memory held before",
        "round.hpp",
        "std::memset(place + space - kBlockPadding, 0, kBlockPadding);",
        "",
        "log",
    ),
    Mutant(
        "count-believed",
        "a publish may count more entries than it has room for",
        "frame.hpp",
        'if (left / sizeof(PublishRow) < header.count) fail(at + 24, "counts more entries than fit");',
        "",
        "frame",
    ),
    Mutant(
        "time-of-every-frame",
        "log time moves with frames that the journal does not keep",
        "log.hpp",
        "time_ = time_before_;  // the journal",
        ";",
        "log",
    ),
    Mutant(
        "forgets-the-attached",
        "a producer is forgotten by age although its session is open",
        "log_topics.hpp",
        "return each.second.sessions == 0 && each.second.time < time",
        "return each.second.time < time",
        "log",
    ),
)


def plain(text: str) -> str:
    """With single blanks, so that the formatter may break lines as it likes."""
    return " ".join(text.split())


def mutate(folder: Path, mutant: Mutant) -> None:
    for part in ("holdfast", "tests"):
        shutil.copytree(ROOT / "native" / part, folder / part)
    path = folder / "holdfast" / mutant.file
    lines = [line for line in path.read_text().splitlines() if not line.lstrip().startswith(("#", "//"))]
    head = [line for line in path.read_text().splitlines() if line.startswith("#")]
    code = plain("\n".join(line.partition("  // ")[0] for line in lines))
    old = plain(mutant.old.partition("  // ")[0])
    assert code.count(old) == 1, f"{mutant.name}: {code.count(old)} times in {mutant.file}"
    path.write_text("\n".join(head) + "\n" + code.replace(old, plain(mutant.new)) + "\n")


def verdict(mutant: Mutant) -> str:
    """What the test said of it; empty: it noticed nothing."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-mutant.") as name:
        folder = Path(name)
        mutate(folder, mutant)
        program = folder / "program"
        source = folder / "tests" / f"test_{mutant.program}.cpp"
        compiler = os.environ.get("CXX", "g++")
        done = subprocess.run(
            [compiler, *FLAGS, f"-I{folder}", str(source), "-o", str(program)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        (folder / "run").mkdir()
        environment = {
            **os.environ,
            "HOLDFAST_RUNTIME_DIR": str(folder / "run"),
            "HOLDFAST_TEST_PATIENCE_MS": "3000",
        }
        try:
            run = subprocess.run(
                [program], env=environment, capture_output=True, text=True, timeout=60, errors="replace"
            )
        except subprocess.TimeoutExpired:
            return "it never ended"
        return run.stderr or f"status {run.returncode}" if run.returncode else ""


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, Future[str]]]:
    """Of all mutants, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        yield {mutant.name: pool.submit(verdict, mutant) for mutant in MUTANTS}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_log_is_noticed(mutant: Mutant, verdicts: dict[str, Future[str]]) -> None:
    assert verdicts[mutant.name].result(), f"nothing noticed that {mutant.breaks}"


def test_the_sound_log_passes() -> None:
    """A mutant that changes nothing is not noticed: what is noticed above is the change."""
    assert (
        verdict(Mutant("none", "nothing", "frame.hpp", "class FrameReader {", "class FrameReader {", "log"))
        == ""
    )
