"""How much of something a run tries, and from which seed: a slice in `make test`, more in `make nightly`.

In `make check` and `make test` the seeds are the same in every run. In `make nightly` they move on: the day
chooses them, so that every night tries others. What failed is kept (`tests/kit/kept.json`) and replayed by
every run from then on, until somebody takes it out. An entry is a seed, or a seed and a length, where
`tests/kit/nightly.py` knows how to make the storm shorter. Failing examples of models are kept as Hypothesis
has reduced them (`tests/kit/kept_examples`).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase, ReadOnlyDatabase

NIGHTLY = os.environ.get("HOLDFAST_NIGHTLY", "") == "1"

T = TypeVar("T")
Reduced = tuple[int, int]
"""A seed, and the length of the storm that is enough for it."""


def kept_file() -> Path:
    """Return the file of what has failed; $HOLDFAST_KEPT names another."""
    return Path(os.environ.get("HOLDFAST_KEPT") or Path(__file__).with_name("kept.json"))


def pick(test: T, nightly: T) -> T:
    """Return the size of a slice in this run."""
    return nightly if NIGHTLY else test


def base() -> int:
    """Return the first seed of this night: it differs from day to day, or is $HOLDFAST_NIGHT's."""
    chosen = os.environ.get("HOLDFAST_NIGHT")
    return 1_000_000 * (int(chosen) if chosen else int(time.time() // 86_400))


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
            yield seed


tried: list[Seed] = []
"""The seed that a loop over `seeds()` has come to."""


def all_kept() -> dict[str, list[int | list[int]]]:
    known: dict[str, list[int | list[int]]] = json.loads(kept_file().read_text())
    return known


def kept(name: str) -> list[int]:
    """Return the seeds that have once failed in the storm of this name."""
    return [entry for entry in all_kept().get(name, []) if isinstance(entry, int)]


def reduced(name: str) -> list[Reduced]:
    """Return what has failed in the storm of this name and could be made shorter."""
    return [(entry[0], entry[1]) for entry in all_kept().get(name, []) if not isinstance(entry, int)]


def seeds(name: str, test: int, nightly: int | None = None) -> Seeds:
    """Return the seeds of a storm: kept ones first; $HOLDFAST_SEED chooses a single one."""
    chosen = os.environ.get("HOLDFAST_SEED")
    if chosen:
        return Seeds([Seed.of(name, int(chosen))])
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
