"""Sizes and ages as the commands print them."""

from __future__ import annotations

import argparse

import pytest

from holdfast.cli import output, parsing
from tests.kit.cli.queues import directory as directory


def test_sizes_and_ages() -> None:
    assert [parsing.size(text) for text in ("1", "64k", "64K", "2MiB", "1G")] == [
        1,
        65536,
        65536,
        2 << 20,
        1 << 30,
    ]
    with pytest.raises(argparse.ArgumentTypeError):
        parsing.size("k")
    assert [output.size_words(size) for size in (0, 1000, 1536, 3 << 30)] == [
        "0 B",
        "1000 B",
        "1.5 KiB",
        "3 GiB",
    ]
    assert [output.age_words(age) for age in (0.25, 90, 7200)] == ["250 ms", "1.5 min", "2.0 h"]
