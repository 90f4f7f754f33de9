"""Mutants of the bindings: the extension is linked anew with one source changed; a test must notice.

For `make nightly`, because of the compiler. The tests that they name run in `make check` and `make test`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.bindings import core_with, pytest_with
from tests.kit.native import Mutant

TEST = "tests/process/queue/test_threads_buried.py"
POINTS = "tests/unit/queue/test_points_threads.py"
"""Threads that stand at each named point of an object, while others use it."""

SHARED = Mutant(
    "got-shared",
    "what a call gets goes through memory that all calls of the object share",
    "queue/queue.cpp",
    """    explicit Got(QueueObject* queue) : queue_(queue) { messages_.swap(queue->spare); }
    Got(const Got&) = delete;
    ~Got() {
        messages_.clear();
        if (messages_.capacity() > queue_->spare.capacity()) messages_.swap(queue_->spare);
    }
    std::vector<Delivered>& all() { return messages_; }
    const Delivered& first() const { return messages_.front(); }

 private:
    QueueObject* queue_;
    std::vector<Delivered> messages_;""",
    """    explicit Got(QueueObject* queue) : messages_(queue->spare) { messages_.clear(); }
    Got(const Got&) = delete;
    std::vector<Delivered>& all() { return messages_; }
    const Delivered& first() const { return messages_.front(); }

 private:
    std::vector<Delivered>& messages_;""",
    TEST,
)


HALF_A_PAIR = Mutant(
    "half-a-pair-as-python-says",
    "text that cannot be written is Python's UnicodeEncodeError, from wherever it is noticed",
    "log/frame.cpp",
    """PyErr_Clear();
        throw Error(Code::misuse, std::string(what) +
                                      " has half of a surrogate pair in it, which is not text; "
                                      "leave it out, or give a key as bytes");""",
    "static_cast<void>(what); throw nb::python_error();",
    "tests/unit/broker/test_clear_errors.py",
)


# Compiles and links the extension anew. In `make test` the test that it is about runs; that it can fail for
# other errors is shown there by tests/mutants/test_core.py.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_half_of_a_pair_is_a_clear_error(tmp_path: Path) -> None:
    done = pytest_with(core_with(HALF_A_PAIR, tmp_path), HALF_A_PAIR.program)
    assert done.returncode == 1, f"it survived: {done.stdout}{done.stderr}"
    assert "test_text_that_is_none" in done.stdout


# Compiles and links the extension anew. In `make test` the test that it is about runs; that tests of threads
# can fail is shown there by tests/mutants/test_core.py and tests/process/core/test_thread_sanitizer.py.
@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_threads_see_memory_that_they_share(tmp_path: Path) -> None:
    done = pytest_with(core_with(SHARED, tmp_path), TEST, POINTS)
    assert done.returncode == 1, f"it survived: {done.stdout}{done.stderr}"
    assert f"FAILED {TEST}::test_each_message_once" in done.stdout
    assert f"FAILED {POINTS}::test_the_same_object[get-take_claimed]" in done.stdout
    assert f"FAILED {POINTS}::test_another_object" not in done.stdout
