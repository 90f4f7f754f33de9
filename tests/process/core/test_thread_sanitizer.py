"""The queue under the thread sanitizer: declared orders cover all plain accesses of threads.

One build has the weakened orders in it, chosen at run time (kit/native.py), so that only the change is seen.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.kit import native
from tests.kit.native import CHOICE, Mutant

PROGRAM = "test_queue_threads"
FLAGS = ("-O1", "-g", "-fsanitize=thread", "-w", "-include", "holdfast/mutant_switch.hpp")

pytestmark = pytest.mark.timeout(400)

WEAKENED = (
    Mutant(
        "commit-relaxed",
        "commit publishes the payload without release",
        "queue/queue.hpp",
        """memory.cas(descriptor(claim.position), expected,
                       geometry.word(claim.position, first_length, State::ready, me),
                       std::memory_order_release)""",
        """memory.cas(descriptor(claim.position), expected,
                       geometry.word(claim.position, first_length, State::ready, me),
                       std::memory_order_relaxed)""",
        PROGRAM,
    ),
    Mutant(
        "settle-relaxed",
        "settle gives the space up without release",
        "queue/queue.hpp",
        """memory.cas(descriptor(taken.position), expected, Geometry::with(taken.word, State::done, me),
            std::memory_order_release)""",
        """memory.cas(descriptor(taken.position), expected, Geometry::with(taken.word, State::done, me),
            std::memory_order_relaxed)""",
        PROGRAM,
    ),
)
NUMBERS = {mutant.name: number for number, mutant in enumerate(WEAKENED, 1)}


@pytest.fixture(scope="module")
def binary() -> Path:
    with tempfile.TemporaryDirectory(prefix="holdfast-threads.") as scratch:
        folder = Path(scratch)
        assert native.with_all(WEAKENED, folder) == NUMBERS
        return native.built("threads", native.unit_source(folder, [PROGRAM]), folder, FLAGS)


def test_no_race(binary: Path) -> None:
    done = native.execute(binary, PROGRAM)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("mutant", WEAKENED, ids=lambda mutant: mutant.name)
def test_a_weakened_order_is_seen(mutant: Mutant, binary: Path) -> None:
    done = native.execute(binary, PROGRAM, **{CHOICE: str(NUMBERS[mutant.name])})
    assert done.returncode != 0
    assert "data race" in done.stderr
