"""`holdfast cluster`, against a served member and against a broker alone."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli.cluster import assignment, status_lines
from holdfast.cli.entry import run
from holdfast.server.config import Listen
from holdfast.server.settings import leaves
from tests.kit.server.cluster_checks import Member, member
from tests.kit.server.http_world import HttpWorld


@pytest.fixture(scope="module")
def served() -> Iterator[Member]:
    with member() as found:
        yield found


def call(served: Member | HttpWorld, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    world = served.world if isinstance(served, Member) else served
    status = run(["cluster", *words, "--server", world.server.url])
    told = capsys.readouterr()
    return status, told.out, told.err


def told(served: Member, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, Any]:
    """Return the answer in words, and as JSON."""
    status, text, _ = call(served, capsys, *words)
    assert status == 0
    status, data, _ = call(served, capsys, *words, "--json")
    assert (status, data.count("\n")) == (0, 1)
    return text, json.loads(data)


def test_status(served: Member, capsys: pytest.CaptureFixture[str]) -> None:
    text, data = told(served, capsys, "status")
    assert text.splitlines()[0] == "cluster standalone: view 1, has a majority"
    assert "member 1.1, owns 0 subscriptions" in text
    assert "3, the leader is node 1" in text
    assert (data["node"], data["quorate"]) == (1, True)


def test_a_minority_says_so() -> None:
    found = {
        "cluster": "c",
        "view": 3,
        "quorate": False,
        "member": "1.1",
        "ownedSubscriptions": 1,
        "members": 1,
        "leader": 0,
        "stable": "3:1",
        "delivered": "3:2",
        "held": "3:1",
        "note": "waits for a majority",
        "differing": {"roll_entries": {"cluster": 5, "here": 7}},
    }
    assert status_lines(found) == [
        "cluster c: view 3, NO MAJORITY: nothing is confirmed",
        "  here     member 1.1, owns 1 subscription",
        "  members  1, no leader yet",
        "  stable   3:1, delivered 3:2, held here 3:1",
        "  note     waits for a majority",
        "  differs  roll_entries: the cluster has 5, the configuration here 7",
        "           the cluster's value applies; write it into the configuration, or set it back with "
        "`holdfast cluster options NAME=VALUE`",
    ]


def test_an_option_alone_is_asked_for() -> None:
    assert assignment("roll_entries") == ("roll_entries", None)
    with pytest.raises(argparse.ArgumentTypeError, match="is not NAME=VALUE"):
        assignment("roll_entries=")


def test_members(served: Member, capsys: pytest.CaptureFixture[str]) -> None:
    text, data = told(served, capsys, "members")
    head, *rows = text.splitlines()
    assert head.split() == ["NODE", "MEMBER", "NAME", "STATE", "VERSION", "PULSAR", "HTTP"]
    assert "serving, leader, here" in rows[0]
    assert "http://node2:8080" in rows[1]
    assert [each["node"] for each in data] == [1, 2, 3]


def test_queues(served: Member, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(served, capsys, "queues")[1] == "no topics\n"
    served.world.topic(messages=2, subscription="s")
    text, data = told(served, capsys, "queues")
    assert text.splitlines()[1].startswith("topic-1")
    assert text.splitlines()[2].split()[0] == "s"
    assert data[0]["subscriptions"][0]["backlog"] == 2


REFUSED_OPTIONS = {
    "deduplication=5": "deduplication cannot be '5': use true or false",
    "roll_entries=many": "roll_entries cannot be 'many': use a whole number",
    "roll_entries=[1]": "roll_entries cannot be '[1]': use a whole number",
    "backlog_action=else": "use 'producer_request_hold', 'producer_exception'",
}


def test_options(served: Member, capsys: pytest.CaptureFixture[str]) -> None:
    text, data = told(served, capsys, "options", "roll_entries=77", "deduplication=true")
    assert ("deduplication", "true") in [tuple(line.split()) for line in text.splitlines()]
    assert data["roll_entries"] == 77
    assert call(served, capsys, "options", "roll_entries")[1].split() == ["roll_entries", "77"]
    assert sorted(data) == ["deduplication", "roll_entries"], "those that were named"
    assert "did you mean roll_entries?" in call(served, capsys, "options", "broker.roll_entries=5")[2]
    assert call(served, capsys, "options", "rolls")[2].startswith("holdfast: 'rolls' is not an option")
    assert call(served, capsys, "options", "sync=always")[2].startswith("holdfast: 'sync' is not an option")
    status, _, error = call(served, capsys, "options", "roll_entries=78", "rolls=1")
    assert (status, "did you mean roll_age_s?" in error or "did you mean roll" in error) == (2, True)
    assert call(served, capsys, "options", "roll_entries")[1].split() == ["roll_entries", "77"]
    for given, words in REFUSED_OPTIONS.items():
        with pytest.raises(SystemExit, match="2"):
            call(served, capsys, "options", given)
        assert words in capsys.readouterr().err, given
    _, data = told(served, capsys, "options", "backlog_action=producer_exception")
    assert data["backlog_action"] == "producer_exception"


def test_leaving(served: Member, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(served, capsys, "leave")[1] == "member 1.1 leaves the cluster, and its server stops\n"
    assert call(served, capsys, "evict", "2", "--json")[1] == '{"evicted": 2}\n'
    assert served.left == ["here", "node 2"]
    status, _, error = call(served, capsys, "evict", "1")
    assert (status, "use `holdfast cluster leave`" in error) == (1, True)
    status, _, error = call(served, capsys, "evict", "9")
    assert (status, "no node 9 is present" in error) == (1, True)


def test_a_broker_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with HttpWorld() as world:
        for words in (
            ["status"],
            ["members"],
            ["queues"],
            ["options"],
            ["leave"],
            ["evict", "2"],
            ["free", "x"],
        ):
            status, out, error = call(world, capsys, *words)
            assert (status, out) == (1, "")
            assert "this broker is not a member of a cluster; set cluster.node" in error


def test_init_refuses_a_port_and_warns_of_open_doors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [f"{number}=10.0.0.{number}" for number in (1, 2, 3)]
    assert run(["cluster", "init", "--to", str(tmp_path / "a"), "--port", "99999", *nodes]) == 2
    assert "--port 99999 is not a port" in capsys.readouterr().err
    for port in (Listen().port, Listen().http_port):
        assert run(["cluster", "init", "--to", str(tmp_path / "a"), "--port", str(port), *nodes]) == 2
        assert f"--port {port} is the port for clients" in capsys.readouterr().err
    assert not (tmp_path / "a").exists()
    assert run(["cluster", "init", "--to", str(tmp_path / "b"), *nodes]) == 0
    said = capsys.readouterr().out
    assert "clients need no authentication" in said
    (named,) = re.findall(r"set (\w+)\.\* in holdfast.toml", said)
    assert any(key.startswith(f"{named}.") for key in leaves()), "no such section"
