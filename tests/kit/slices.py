"""Choose sizes and seeds of a run: a slice in `make test`, more in `make nightly`.

In `make check` and `make test` the seeds are the same in every run. In `make nightly` the day chooses them,
so that every night tries others. A failed seed is kept (`tests/kit/kept.json`), and replayed by every run
until the entry is removed (`tests/kit/kept.py`). Failing examples of models are kept as Hypothesis has
reduced them (`tests/kit/kept_examples`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase, ReadOnlyDatabase

from tests.kit.kept import load

SEEDS_OF_A_NIGHT = 1_000_000
NIGHTS_MAX = 10**9
SEED_MAX = 2**63 - 1
"""Native programs read a seed as 64 bits."""
NIGHTLY = os.environ.get("HOLDFAST_NIGHTLY", "") == "1"

T = TypeVar("T")
Reduced = tuple[int, int]
"""A seed, and the length of the storm that still fails."""


def pick(test: T, nightly: T) -> T:
    """Return the size of a slice in this run."""
    return nightly if NIGHTLY else test


def base() -> int:
    """Return the first seed of this night, from the date or from $HOLDFAST_NIGHT."""
    return SEEDS_OF_A_NIGHT * number_in("HOLDFAST_NIGHT", NIGHTS_MAX, int(time.time() // 86_400))


def number_in(variable: str, most: int, otherwise: int) -> int:
    """Return the number in a variable of the environment; refuse everything else."""
    given = os.environ.get(variable, "")
    if not given:
        return otherwise
    if not (given.isascii() and given.isdecimal() and int(given) <= most):
        raise ValueError(f"{variable}={given!r}: give a whole number from 0 to {most}, or unset it")
    return int(given)


# -- seeds --------------------------------------------------------------------------------------------


class Seed(int):
    """A seed that knows its storm, so that a night knows what to keep."""

    storm: str

    @classmethod
    def of(cls, storm: str, number: int) -> Seed:
        made = cls(number)
        made.storm = storm
        return made


class Seeds(list[Seed]):
    """The seeds of a storm. Iteration notes the one that is being tried."""

    def __iter__(self) -> Iterator[Seed]:
        for seed in super().__iter__():
            tried[:] = [seed]
            for listener in listeners:
                listener(seed)
            yield seed


tried: list[Seed] = []
"""The seed that a loop over `seeds()` has reached."""
listeners: list[Callable[[Seed], None]] = []
"""Called with each seed that a loop over `seeds()` reaches (`tests/kit/keeping.py`)."""


def kept(name: str) -> list[int]:
    """Return the seeds that have failed in the storm of this name."""
    return [entry for entry in load().get(name, []) if isinstance(entry, int)]


def reduced(name: str) -> list[Reduced]:
    """Return the failures of this storm that could be made shorter."""
    return [(entry[0], entry[1]) for entry in load().get(name, []) if isinstance(entry, list)]


def cases(name: str) -> list[dict[str, Any]]:
    """Return the cases that have failed in the storm of this name."""
    return [entry for entry in load().get(name, []) if isinstance(entry, dict)]


def pick_for(seed: Seed, test: T, nightly: T) -> T:
    """Return the size of a storm: a kept seed has the night's size."""
    return nightly if NIGHTLY or int(seed) in kept(seed.storm) else test


def seeds(name: str, test: int, nightly: int | None = None, single: bool = True) -> Seeds:
    """Return the seeds of a storm, kept ones first; $HOLDFAST_SEED chooses a single one.

    Without `single` that variable has no effect: the test needs all seeds together.
    """
    if single and os.environ.get("HOLDFAST_SEED"):
        return Seeds([Seed.of(name, number_in("HOLDFAST_SEED", SEED_MAX, 0))])
    first, count = (base(), nightly or 10 * test) if NIGHTLY else (1, test)
    numbers = dict.fromkeys([*kept(name), *range(first, first + count)])
    return Seeds([Seed.of(name, number) for number in numbers])


# -- examples of models -------------------------------------------------------------------------------


def kept_examples() -> ExampleDatabase:
    """Return the reduced examples that failed: `make nightly` adds some, all runs replay them."""
    kept_there = DirectoryBasedExampleDatabase(examples_folder())
    return kept_there if NIGHTLY else ReadOnlyDatabase(kept_there)


def examples_folder() -> Path:
    """Return the folder of reduced examples; $HOLDFAST_EXAMPLES names another."""
    return Path(os.environ.get("HOLDFAST_EXAMPLES") or Path(__file__).with_name("kept_examples"))
