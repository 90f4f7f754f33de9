"""How much of something a run tries, and from which seed: a slice in `make test`, more in `make nightly`.

In `make check` and `make test` the seeds are the same in every run. In `make nightly` they move on: the day
chooses them, so that every night tries others. A failing one is kept (`tests/kit/kept.json`) and replayed by
every run from then on, until the test is changed to no longer need it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TypeVar

NIGHTLY = os.environ.get("HOLDFAST_NIGHTLY", "") == "1"
KEPT = Path(__file__).with_name("kept.json")

T = TypeVar("T")


def pick(test: T, nightly: T) -> T:
    """Return the size of a slice in this run."""
    return nightly if NIGHTLY else test


def base() -> int:
    """Return the first seed of this night: it differs from day to day, or is $HOLDFAST_NIGHT's."""
    chosen = os.environ.get("HOLDFAST_NIGHT")
    return 1_000_000 * (int(chosen) if chosen else int(time.time() // 86_400))


def kept(name: str) -> list[int]:
    """Return the seeds that have once failed in the storm of this name."""
    known: dict[str, list[int]] = json.loads(KEPT.read_text())
    return known.get(name, [])


def seeds(name: str, test: int, nightly: int | None = None) -> list[int]:
    """Return the seeds of a storm: kept ones first; $HOLDFAST_SEED chooses a single one."""
    chosen = os.environ.get("HOLDFAST_SEED")
    if chosen:
        return [int(chosen)]
    first, count = (base(), nightly or 10 * test) if NIGHTLY else (1, test)
    return list(dict.fromkeys([*kept(name), *range(first, first + count)]))
