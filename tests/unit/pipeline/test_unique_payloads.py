"""Test the payloads of `bench pipeline`: no two are equal."""

from __future__ import annotations

import pytest

from tests.kit.spark.ways import check_payloads


@pytest.mark.parametrize("size", [100, 101, 256])
def test_no_two_payloads_are_alike(size: int) -> None:
    """Parquet's dictionary made 6 MB of 250 where 1,000 payloads repeated."""
    check_payloads(size)
