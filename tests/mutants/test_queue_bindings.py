"""A mutant of the bindings: the extension is linked anew with one source changed; a test must notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.bindings import core_with, pytest_with
from tests.kit.native import Mutant

TEST = "tests/process/queue/test_threads_buried.py"

SHARED = Mutant(
    "got-shared",
    "what a call gets goes through memory that all calls of the object share",
    "queue.cpp",
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


@pytest.mark.nightly  # compiles and links the extension anew
@pytest.mark.timeout(600)
def test_threads_see_memory_that_they_share(tmp_path: Path) -> None:
    done = pytest_with(core_with(SHARED, tmp_path), TEST)
    assert done.returncode == 1, f"it survived: {done.stdout}{done.stderr}"
    assert "test_each_message_once" in done.stdout
