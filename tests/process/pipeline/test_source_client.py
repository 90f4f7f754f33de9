"""The source sees, row by row, what the official client reads; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.slices import Seed, pick, seeds
from tests.kit.spark import source_storm
from tests.kit.spark.source_storm import ALWAYS, HAPPENS, Plain


@pytest.mark.parametrize("by", ["path", "url"])
@pytest.mark.parametrize("seed", seeds("source rows", test=1, nightly=5))
def test_the_same_rows_as_the_client(
    tmp_path: Path, seed: Seed, by: str, counts: Callable[[str], None]
) -> None:
    """I150, I153, I155, I156: random ranges and streams, by path and by URL."""
    account = source_storm.run(tmp_path, seed, by, Plain(), rounds=5, messages=50)
    counts(account.words())
    account.require_sound(pick(test=HAPPENS, nightly=ALWAYS))
