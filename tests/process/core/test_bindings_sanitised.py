"""Core and bindings under the thread sanitizer, and under those for addresses and undefined behaviour.

Each sanitizer compiles the extension again (a minute each), so all of it is for `make nightly`. In `make
test` the core alone is under the same sanitizers (test_thread_sanitizer.py, test_native.py). There,
tests/unit/queue/test_threads.py and test_points_threads.py find faults of the bindings by the results of
threads.

Nothing is suppressed: CPython's own locks, with the GIL, are those of the C library, which the sanitizer
sees. One build has mutants in it, chosen at run time, to show that the sanitizer reports them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit import sanitised
from tests.kit.native import CHOICE, Mutant

# In `make test`: tests/process/core/test_thread_sanitizer.py, tests/unit/queue/test_threads.py; see above.
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

RACES = (
    Mutant(
        "spin-plain",
        "a thread that spins without the GIL reads a shared word that is not atomic",
        "holdfast/queue/attachment.hpp",
        "u64 read = unsealed(memory_.load(queue_.words.read, std::memory_order_relaxed));",
        "u64 read = unsealed(MUTANT ? *static_cast<volatile u64*>(queue_.words.read)"
        " : memory_.load(queue_.words.read, std::memory_order_relaxed));",
        "queues",
    ),
    Mutant(
        "put-without-gil",
        "a put of several small messages runs without the GIL, on the state of an object that threads share",
        "bindings/queue/queue.cpp",
        "return attempt(false) == Verdict::ok || wait_for(self, call, timeout, true, attempt);",
        """if (MUTANT && payloads.size() > 1 && payloads[0].size + payloads[1].size < 2000) {
            GilRelease release;
            if (self->attachment->put(payloads.first(2), false) == Verdict::full) relax();
        }
        return attempt(false) == Verdict::ok || wait_for(self, call, timeout, true, attempt);""",
        "queues",
    ),
    Mutant(
        "push-unlocked",
        "rounds are handed to the writer's thread without the lock",
        "holdfast/log/round_queue.hpp",
        """const std::lock_guard lock(mutex_);
            if (waiting_.empty()) since_ = Clock::now();""",
        """std::unique_lock lock(mutex_, std::defer_lock);
            if (!MUTANT) lock.lock();
            if (waiting_.empty()) since_ = Clock::now();""",
        "writer",
    ),
    Mutant(
        "poll-unlocked",
        "the writer's report is read while its thread may write it",
        "holdfast/log/writer.hpp",
        """const std::lock_guard lock(queue_->mutex());
        return report_;""",
        """std::unique_lock lock(queue_->mutex(), std::defer_lock);
        if (!MUTANT) lock.lock();
        return report_;""",
        "writer",
    ),
)
TAKEN_SHARED = Mutant(
    "taken-shared",
    "what a call has taken stands in memory that all calls of the object share",
    "holdfast/queue/attachment.hpp",
    """std::vector<Taken> taken;
        taken.swap(scratch_);""",
    """std::vector<Taken> own;
        if (!(MUTANT)) own.swap(scratch_);
        std::vector<Taken>& taken = MUTANT ? scratch_ : own;""",
    "points",
)

PYTEST = (
    "import sys, pytest\n"
    "from tests.kit import tiers\n"
    "tiers.LIMIT_S.clear()\n"  # a sanitizer takes ten times as long
    "sys.exit(pytest.main(sys.argv[1:]))\n"
)
OPTIONS = ("-q", "-n0", "-p", "no:cacheprovider")
BUSY = "tests/unit/core/test_writer.py::test_stop_lets_other_threads_run"
"""It counts the steps of Python beside the writer, which are fewer under a sanitizer."""
PROGRAMS: dict[str, tuple[str, ...]] = {
    "queues": ("from tests.kit.queue import threads\nthreads.main(4)\n",),
    "channels": ("from tests.kit.channel import threads\nthreads.main(4)\n",),
    "channel": (PYTEST, *OPTIONS, "tests/unit/channel"),
    "service": (PYTEST, *OPTIONS, "tests/unit/service"),
    "threads": (PYTEST, *OPTIONS, "tests/unit/queue", "tests/process/queue/test_threads_buried.py"),
    "points": (PYTEST, *OPTIONS, "tests/unit/queue/test_points_threads.py"),
    "writer": (PYTEST, *OPTIONS, "tests/unit/core/test_writer.py", "--deselect", BUSY),
    "broker": (PYTEST, *OPTIONS, "tests/unit/core/test_log.py", "tests/unit/broker/test_api.py"),
}
WHOLE = ("queues", "channels", "channel", "service", "threads", "writer", "broker")
NUMBERS = {mutant.name: str(number) for number, mutant in enumerate((*RACES, TAKEN_SHARED), 1)}


@pytest.fixture(scope="module")
def threads() -> Path:
    return sanitised.package("thread", ("-O1", "-g", "-fsanitize=thread"), (*RACES, TAKEN_SHARED))


@pytest.fixture(scope="module")
def addresses() -> Path:
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")
    return sanitised.package("address", flags)


class Sanitised:
    """Run a test and return the sanitizer's reports, from files.

    A test runner captures the terminal.
    """

    def __init__(self, package: Path, library: str, program: str, scratch: Path, mutant: str = "") -> None:
        words, log = PROGRAMS[program], scratch / "report"
        options = {
            "HOLDFAST_NIGHTLY": "",  # a slice: each takes ten times as long
            "ASAN_OPTIONS": f"log_path={log}:detect_leaks=0",  # CPython frees much only at its end
            "UBSAN_OPTIONS": f"log_path={log}",
            "TSAN_OPTIONS": f"log_path={log}:exitcode=66:halt_on_error={1 if mutant else 0}",
            CHOICE: mutant,
        }
        found = sanitised.runtime(library)
        self.done = sanitised.python(package, found, words[0], *words[1:], **options)
        self.report = "".join(each.read_text() for each in sorted(scratch.glob("report*")))

    def require_clean(self) -> None:
        assert self.report == ""
        assert self.done.returncode == 0, self.done.stdout + self.done.stderr


@pytest.mark.parametrize("program", WHOLE)
def test_no_race(threads: Path, tmp_path: Path, program: str) -> None:
    Sanitised(threads, "tsan", program, tmp_path).require_clean()


@pytest.mark.parametrize("mutant", RACES, ids=lambda mutant: mutant.name)
def test_a_race_is_seen(threads: Path, tmp_path: Path, mutant: Mutant) -> None:
    run = Sanitised(threads, "tsan", mutant.program, tmp_path, NUMBERS[mutant.name])
    assert "WARNING: ThreadSanitizer: data race" in run.report


def test_memory_that_calls_share_is_seen(threads: Path, tmp_path: Path) -> None:
    """Under the GIL no access is a race: threads at named points show the fault."""
    run = Sanitised(threads, "tsan", "points", tmp_path, NUMBERS["taken-shared"])
    assert "heap-use-after-free" in run.report


@pytest.mark.parametrize("program", WHOLE)
def test_no_stray_access(addresses: Path, tmp_path: Path, program: str) -> None:
    Sanitised(addresses, "asan", program, tmp_path).require_clean()
