"""Sizes and ages as the commands print them."""

from __future__ import annotations

import argparse
import re

import pytest

from holdfast.cli import main, parsing
from holdfast.formatting import age_words, plural, size_words, text_table
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
    assert [size_words(size) for size in (0, 1000, 1536, 3 << 30)] == [
        "0 B",
        "1000 B",
        "1.5 KiB",
        "3 GiB",
    ]
    assert [age_words(age) for age in (0.25, 90, 7200)] == ["250 ms", "1.5 min", "2.0 h"]


def test_counts_and_tables() -> None:
    assert [plural(n, "message") for n in (0, 1, 2000)] == ["0 messages", "1 message", "2,000 messages"]
    nouns = ("process", "entry", "batch", "key", "byte")
    assert [plural(2, noun) for noun in nouns] == [
        "2 processes",
        "2 entries",
        "2 batches",
        "2 keys",
        "2 bytes",
    ]
    rows = [("orders", 12345), ("tar", 7)]
    assert text_table(("TOPIC", "ROWS"), rows) == ["TOPIC    ROWS", "orders  12345", "tar         7"]
    assert text_table(("TOPIC", "ROWS"), rows, grouped=True)[1] == "orders  12,345"


@pytest.mark.parametrize(
    "words",
    [
        *(f"queue {verb} a/b" for verb in ("create", "stat", "peek", "put", "get", "recover", "rm")),
        *(f"topic {verb} a/b" for verb in ("create", "stats", "set", "produce", "consume", "peek", "rm")),
        "topic consume t --subscription \t",
        "topic produce t x --producer \t",
        *(f"subscription {verb} a/b s" for verb in ("create", "stats", "peek", "clear", "rm")),
        "subscription create t \t",
    ],
)
def test_an_invalid_name_is_wrong_usage(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words.split(" "))
    assert ended.value.code == 2
    assert re.search("not a valid name|not the name of a topic|cannot name a", capsys.readouterr().err)
