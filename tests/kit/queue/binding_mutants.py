"""Mutants of the bindings, and the tests that must notice them."""

from __future__ import annotations

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

MUTANTS = (SHARED, HALF_A_PAIR)
