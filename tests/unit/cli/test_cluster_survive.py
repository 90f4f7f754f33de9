"""`holdfast cluster survive`: show, choose, withdraw and refuse."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.broker import Broker
from holdfast.ledger.copies import Install, is_survivor
from holdfast.system import SystemDisk
from tests.kit.cli.data import Cli
from tests.kit.cli.data import cli as cli


@pytest.fixture
def store(cli: Cli) -> Path:
    """A whole store with some events."""
    with Broker.open(cli.data, sync="os") as broker, broker.producer("orders") as producer:
        producer.send(b"confirmed")
    return cli.data


def survives(data: Path) -> bool:
    return asyncio.run(is_survivor(SystemDisk(data)))


def test_without_yes_it_only_shows(cli: Cli, store: Path) -> None:
    out, err = cli.run("cluster", "survive", "--data", str(store), status=1)
    assert err == ""
    assert out.decode().startswith(f"{store}: ")
    assert " events, the last at " in out.decode()
    assert "Nothing was changed. Events that only other nodes have would be lost" in out.decode()
    assert not survives(store)


def test_yes_chooses_it_and_withdraw_takes_it_back(cli: Cli, store: Path) -> None:
    told = cli.answer("cluster", "survive", "--data", str(store), "--yes")
    assert (told["survivor"], told["whole"]) == (True, True)
    assert told["events"] > 0
    assert survives(store)
    out, _ = cli.run("cluster", "survive", "--data", str(store), status=1)
    assert "It is chosen already" in out.decode()
    assert survives(store)
    assert cli.says("cluster", "survive", "--data", str(store), "--withdraw") == (
        f"{store}: not chosen any more\n"
    )
    assert not survives(store)


def test_an_incomplete_directory_is_refused(cli: Cli, store: Path) -> None:
    asyncio.run(Install(SystemDisk(store)).begin(b"\x90", bytes(16), ()))
    error = cli.complains("cluster", "survive", "--data", str(store), "--yes")
    assert f"{store} cannot survive: its copy of another node is incomplete; choose another node" in error
    assert not survives(store)


def test_an_empty_directory_is_refused(cli: Cli, tmp_path: Path) -> None:
    assert "there is no directory" in cli.complains("cluster", "survive", "--data", str(cli.data), "--yes")
    cli.data.mkdir()
    assert "cannot survive: it is empty" in cli.complains(
        "cluster", "survive", "--data", str(cli.data), "--yes"
    )
    assert list(cli.data.iterdir()) == [], "a directory that is none of a broker stays as it is"


def test_the_unreplicated_part_of_a_directory_is_refused(cli: Cli, store: Path) -> None:
    (store.parent / "life").touch()
    local = store.rename(store.parent / "local")
    error = cli.complains("cluster", "survive", "--data", str(local), "--yes")
    assert f"{local} has only the unreplicated topics of a node; name {store.parent} instead" in error
    assert not survives(local)


def test_yes_says_what_else_the_node_needs(cli: Cli, store: Path) -> None:
    told = cli.says("cluster", "survive", "--data", str(store), "--yes")
    assert "list only the remaining nodes first" in told


def test_a_broker_that_runs_is_refused(cli: Cli) -> None:
    with Broker.open(cli.data, sync="os"):
        cli.complains("cluster", "survive", "--data", str(cli.data), "--yes")
    assert not survives(cli.data)


def test_the_help_says_what_it_risks(cli: Cli) -> None:
    told = cli.says("cluster", "survive", "--help")
    assert "THE RISK: messages and acknowledgements that were confirmed by other nodes" in told
