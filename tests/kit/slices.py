"""How much of something a run tries, and from which seed: a slice in `make test`, more in `make nightly`.

In `make check` and `make test` the seeds are the same in every run. In `make nightly` they move on: the day
chooses them, so that every night tries others. What failed is kept (`tests/kit/kept.json`) and replayed by
every run from then on, until the entry is taken out (`tests/kit/kept.py`). Failing examples of models are
kept as Hypothesis has reduced them (`tests/kit/kept_examples`).
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
"""A seed, and the length of the storm that is enough for it."""


def pick(test: T, nightly: T) -> T:
    """Return the size of a slice in this run."""
    return nightly if NIGHTLY else test


def base() -> int:
    """Return the first seed of this night: it differs from day to day, or is $HOLDFAST_NIGHT's."""
    return SEEDS_OF_A_NIGHT * number_in("HOLDFAST_NIGHT", NIGHTS_MAX, int(time.time() // 86_400))


def number_in(variable: str, most: int, otherwise: int) -> int:
    """Return the number that a variable of the environment holds; refuse everything else."""
    given = os.environ.get(variable, "")
    if not given:
        return otherwise
    if not (given.isascii() and given.isdecimal() and int(given) <= most):
        raise ValueError(f"{variable}={given!r}: give a whole number from 0 to {most}, or unset it")
    return int(given)


# -- seeds --------------------------------------------------------------------------------------------


class Seed(int):
    """A seed that knows the storm it was chosen for, so that a night knows what to keep."""

    storm: str

    @classmethod
    def of(cls, storm: str, number: int) -> Seed:
        made = cls(number)
        made.storm = storm
        return made


class Seeds(list[Seed]):
    """The seeds of a storm. Going through them notes the one that is being tried."""

    def __iter__(self) -> Iterator[Seed]:
        for seed in super().__iter__():
            tried[:] = [seed]
            for listener in listeners:
                listener(seed)
            yield seed


tried: list[Seed] = []
"""The seed that a loop over `seeds()` has come to."""
listeners: list[Callable[[Seed], None]] = []
"""Called with each seed that a loop over `seeds()` comes to (`tests/kit/keeping.py`)."""


def kept(name: str) -> list[int]:
    """Return the seeds that have once failed in the storm of this name."""
    return [entry for entry in load().get(name, []) if isinstance(entry, int)]


def reduced(name: str) -> list[Reduced]:
    """Return what has failed in the storm of this name and could be made shorter."""
    return [(entry[0], entry[1]) for entry in load().get(name, []) if isinstance(entry, list)]


def cases(name: str) -> list[dict[str, Any]]:
    """Return the cases that have once failed in the storm of this name."""
    return [entry for entry in load().get(name, []) if isinstance(entry, dict)]


def pick_for(seed: Seed, test: T, nightly: T) -> T:
    """Return the size of a storm: a kept seed has failed in the night's size, and keeps it."""
    return nightly if NIGHTLY or int(seed) in kept(seed.storm) else test


def seeds(name: str, test: int, nightly: int | None = None, single: bool = True) -> Seeds:
    """Return the seeds of a storm: kept ones first; $HOLDFAST_SEED chooses a single one.

    Without `single` it does not: the test is about what all of them meet together.
    """
    if single and os.environ.get("HOLDFAST_SEED"):
        return Seeds([Seed.of(name, number_in("HOLDFAST_SEED", SEED_MAX, 0))])
    first, count = (base(), nightly or 10 * test) if NIGHTLY else (1, test)
    numbers = dict.fromkeys([*kept(name), *range(first, first + count)])
    return Seeds([Seed.of(name, number) for number in numbers])


# -- examples of models -------------------------------------------------------------------------------


def kept_examples() -> ExampleDatabase:
    """Return the reduced examples that have failed: `make nightly` adds to them, all runs replay them."""
    kept_there = DirectoryBasedExampleDatabase(examples_folder())
    return kept_there if NIGHTLY else ReadOnlyDatabase(kept_there)


def examples_folder() -> Path:
    """Return where reduced examples are kept; $HOLDFAST_EXAMPLES names another folder."""
    return Path(os.environ.get("HOLDFAST_EXAMPLES") or Path(__file__).with_name("kept_examples"))
