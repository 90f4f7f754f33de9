"""The queue under the thread sanitizer: each plain access of real threads is ordered by a declared order."""

from __future__ import annotations

import pytest

from tests.kit import ROOT
from tests.kit.native_mutants import THREAD_SANITIZER, NativeMutant, run_over

PROGRAM = ROOT / "native/tests/test_queue_threads.cpp"

pytestmark = pytest.mark.timeout(400)

WEAKENED = (
    NativeMutant(
        "commit-relaxed",
        "commit publishes the payload without release",
        "queue.hpp",
        """geometry.word(claim.position, first_length, State::ready, me),
                       std::memory_order_release)""",
        """geometry.word(claim.position, first_length, State::ready, me),
                       std::memory_order_relaxed)""",
    ),
    NativeMutant(
        "settle-relaxed",
        "settle gives the space up without release",
        "queue.hpp",
        "Geometry::with(taken.word, State::done, me), std::memory_order_release)",
        "Geometry::with(taken.word, State::done, me), std::memory_order_relaxed)",
    ),
)


def test_no_race() -> None:
    done = run_over(None, PROGRAM, THREAD_SANITIZER)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("mutant", WEAKENED, ids=lambda mutant: mutant.name)
def test_a_weakened_order_is_seen(mutant: NativeMutant) -> None:
    done = run_over(mutant, PROGRAM, THREAD_SANITIZER)
    assert done.returncode != 0
    assert "data race" in done.stderr
