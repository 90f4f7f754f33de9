"""Test a subscription that a job advances without a server: retention is respected."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import main
from holdfast.columns.files import FilePlace
from holdfast.pipeline.jobs.subscriptions import DirectorySubscriptions

ORDERS = "persistent://public/default/orders"


def filled(data: Path, policies: dict[str, Any], **options: Any) -> int:
    """Write a hundred messages, and return the start of the ledger that holds number 95.

    A ledger has ten messages, or more: a send that comes before its seal goes into it.
    """
    with holdfast.Broker.open(data, roll_entries=10, **options) as broker:
        broker.admin.create_topic("orders", **policies)
        broker.admin.create_subscription("orders", "archive", "earliest")
        with broker.producer("orders") as producer:
            for at in range(0, 100, 10):
                producer.send_many([b"%d" % number for number in range(at, at + 10)])
        ends: Iterator[int] = accumulate(each.entries for each in broker.admin.topic_stats("orders").ledgers)
        return max(end for end in ends if end <= 95)


def kept(data: Path) -> tuple[int, int]:
    return FilePlace(str(data)).open(ORDERS).plan()


@pytest.mark.parametrize("retention", [{"retention_bytes": -1}, {"retention_s": 7 * 86400.0}])
def test_what_the_servers_retention_keeps_is_kept(tmp_path: Path, retention: dict[str, Any]) -> None:
    start = filled(tmp_path, {}, **retention)
    held = DirectorySubscriptions(str(tmp_path))
    at = held.progress("orders", "archive")
    assert held.advance("orders", "archive", 95, at.reset_number, at.incarnation).acked_to == 95
    assert kept(tmp_path) == (0, 100)
    with holdfast.Broker.open(tmp_path, **retention):
        pass
    assert kept(tmp_path) == (0, 100)
    with holdfast.Broker.open(tmp_path) as broker:  # and one that keeps nothing trims when it is back
        broker.admin.trim("orders")
    assert kept(tmp_path)[0] == start


def test_what_a_topic_says_of_its_retention_holds_without_its_server(tmp_path: Path) -> None:
    """Its rule is in the directory, and every broker that opens it follows it."""
    for name, policies in (
        ("all", {"retention_bytes": -1}),
        ("none", {"retention_bytes": 0, "retention_s": 0.0}),
    ):
        start = filled(tmp_path / name, policies)
        held = DirectorySubscriptions(str(tmp_path / name))
        at = held.progress("orders", "archive")
        held.advance("orders", "archive", 95, at.reset_number, at.incarnation)
        assert kept(tmp_path / name)[0] == (0 if name == "all" else start), name


def test_a_command_on_the_directory_trims_nothing_that_the_server_keeps(tmp_path: Path) -> None:
    filled(tmp_path, {}, retention_bytes=-1)
    assert main(["subscription", "clear", "orders", "archive", "--data", str(tmp_path)]) == 0
    assert DirectorySubscriptions(str(tmp_path)).progress("orders", "archive").acked_to == 100
    assert kept(tmp_path) == (0, 100)
