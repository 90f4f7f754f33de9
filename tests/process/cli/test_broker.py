"""Run commands on a data directory: the session of the page, and two processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.cli.data import Cli
from tests.kit.cli.data import cli as cli
from tests.kit.cli.data import orders as orders
from tests.kit.command import COMMAND, complains, follow, sessions


def test_a_name_that_the_output_cannot_encode(tmp_path: Path) -> None:
    def said(*command: str) -> str:
        environment = os.environ | {"PYTHONIOENCODING": "ascii"}
        where = ("--data", str(tmp_path / "data"))
        done = subprocess.run(
            [COMMAND, *command, *where], capture_output=True, text=True, env=environment, check=True
        )
        assert done.stderr == ""
        return done.stdout

    assert said("topic", "create", "日本") == "\\u65e5\\u672c: created\n"
    assert "\\u65e5\\u672c  " in said("topic", "ls")


def test_what_could_not_be_written_is_not_acknowledged(orders: Cli) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [COMMAND, "topic", "consume", "orders", "--subscription", "billing"],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 1
    assert b"No space left" in done.stderr
    assert orders.answer("subscription", "stats", "orders", "billing")["backlog"] == 5


def test_a_directory_that_a_broker_holds(orders: Cli) -> None:
    program = (
        "import sys, holdfast\n"
        "with holdfast.Broker.open(sys.argv[1]):\n"
        "    print('open', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, str(orders.data)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder.stdin, holder.stdout:
        assert holder.stdout.readline() == b"open\n"
        mine = str(orders.data)
        for arguments in (
            ("topic", "ls"),
            ("topic", "produce", "orders", "x"),
            ("doctor", mine),
            ("backup", mine, f"{mine}-copy"),
        ):
            assert f"held by process {holder.pid}" in orders.complains(*arguments)
    assert holder.wait(timeout=30) == 0
    assert len(orders.answer("topic", "ls")) == 1


def test_the_session_on_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_DATA", "shop")  # each step has a shell of its own
    follow(sessions()[1])


def test_wrong_usage_is_status_2() -> None:
    for arguments in (
        ["topic"],
        ["subscription"],
        ["topic", "fly"],
        ["subscription", "reset", "t"],
    ):
        assert "usage:" in complains(*arguments, status=2)
