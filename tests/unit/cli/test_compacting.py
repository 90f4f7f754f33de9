"""Commands of compaction, in a directory and against a server."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from tests.kit.cli.data import Cli as OnData
from tests.kit.cli.data import cli as cli
from tests.kit.cli.servers import Cli as OnServer
from tests.kit.server.compaction_checks import ended, failing, fill, keyed, waiting
from tests.kit.server.http_world import HttpWorld, T, http

__all__ = ["cli", "http"]


@pytest.fixture
def server(
    http: HttpWorld, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> OnServer:
    return OnServer(capfdbinary, monkeypatch, http.server.url)


def signs(text: str) -> list[str]:
    """Return the lines of stats that tell of compaction."""
    lines = [line.split() for line in text.splitlines()]
    return [" ".join(words) for words in lines if words[:1] in (["compacted"], ["compaction"])]


# -- a directory ---------------------------------------------------------------------------------------


def produce(cli: OnData, *pairs: str) -> None:
    for pair in pairs:
        key, _, value = pair.partition("=")
        cli.says("topic", "produce", "prices", value, "--key", key)


def test_a_directory_is_compacted_at_once(cli: OnData) -> None:
    cli.says("topic", "create", "prices")
    assert signs(cli.says("topic", "stats", "prices")) == []
    assert cli.answer("topic", "stats", "prices")["compaction"]["state"] == "never"
    produce(cli, "rope=3", "tar=7", "rope=4")
    told = cli.says("topic", "compact", "prices")
    assert told.startswith("prices: 2 of 3 messages stay, in 2 entries of ")
    produce(cli, "rope=5")
    (line,) = signs(cli.says("topic", "stats", "prices"))
    assert line.startswith("compacted 2 of 3 messages stay")
    assert line.endswith(" behind")
    found = cli.answer("topic", "compact", "prices", "--wait")["persistent://public/default/prices"]
    assert (found["state"], found["view"], found["read"], found["kept"]) == ("done", 2, 3, 2)
    assert cli.answer("topic", "stats", "prices")["compaction"]["horizon"] == "end"
    assert cli.answer("topic", "stats", "prices")["entries"] == 4, "the topic keeps its messages"


def test_a_directory_finishes_an_open_request(cli: OnData) -> None:
    """The process that asked has died. The command carries that out, and then its own."""
    cli.says("topic", "create", "prices")
    produce(cli, "rope=3", "rope=4")

    async def ask() -> None:
        async with holdfast.Broker.open(cli.data, housekeeping_s=3600.0) as broker:
            broker.compactions._stopped = True
            await broker.admin.compact("prices")

    asyncio.run(ask())
    assert signs(cli.says("topic", "stats", "prices")) == ["compaction requested or under way"]
    told = cli.says("topic", "compact", "prices")
    assert told.startswith("prices: 1 of 1 message stay")


def test_a_directory_forgets_a_view(cli: OnData) -> None:
    cli.says("topic", "create", "prices")
    produce(cli, "rope=3")
    cli.says("topic", "compact", "prices")
    assert cli.says("topic", "compact", "prices", "--forget") == "prices: removed the compacted view\n"
    assert signs(cli.says("topic", "stats", "prices")) == []
    told = cli.complains("topic", "compact", "prices", "--forget", "--wait", status=2)
    assert "not allowed with argument" in told
    assert "did you mean prices?" in cli.complains("topic", "compact", "price")


def test_a_failure_in_a_directory(cli: OnData) -> None:
    cli.says("topic", "create", "prices")
    produce(cli, "rope=3")
    with failing("the disk is torn"):
        told = cli.complains("topic", "compact", "prices")
    words = "failed: the disk is torn; it has no view yet; mend the cause, then compact again"
    assert told == f"holdfast: the compaction of prices {words}\n"
    assert signs(cli.says("topic", "stats", "prices")) == [
        "compaction failed the last time: the disk is torn"
    ]


def test_a_threshold_in_a_directory(cli: OnData) -> None:
    cli.says("topic", "create", "prices", "--compaction-threshold", "64M")
    assert cli.answer("topic", "set", "prices")["compaction_threshold"] == 64 << 20
    cli.says("topic", "set", "prices", "--compaction-threshold", "0")
    assert cli.answer("topic", "set", "prices")["compaction_threshold"] == 0
    cli.says("namespace", "set", "public/default", "--compaction-threshold", "1G")
    cli.says("topic", "set", "prices", "--compaction-threshold", "default")
    found = cli.answer("topic", "set", "prices")
    name = "compaction_threshold"
    assert (found[name], found["applied"][name], found["from"][name]) == (None, 1 << 30, "namespace")
    assert "is not a size" in cli.complains(
        "topic", "set", "prices", "--compaction-threshold", "-1", status=2
    )


# -- a server ------------------------------------------------------------------------------------------


def test_a_server_is_asked_and_waited_for(http: HttpWorld, server: OnServer) -> None:
    topic = keyed(http, messages=10)
    name = topic.rpartition("/")[2]
    assert server.says("topic", "compact", name) == f"{name}: the compaction is requested\n"
    ended(http, topic)
    http.run(fill(http, topic, 5))
    told = server.says("topic", "compact", name, "--wait")
    assert told.startswith(f"{name}: 3 of 8 messages stay, in 3 entries of ")
    found = server.answer("topic", "stats", name)["compaction"]
    state = http.broker.admin.compaction(name)
    assert (found["state"], found["view"], found["removed"], found["size"]) == ("done", 2, 12, state.size)
    assert found["time"] == state.time // 1_000_000 * 1_000_000
    assert found.keys() == vars(state).keys()
    assert len(signs(server.says("topic", "stats", name))) == 1
    assert server.says("topic", "compact", name, "--forget") == f"{name}: removed the compacted view\n"
    assert http.broker.admin.compaction(name).view == 0


def test_a_server_tells_why_it_failed(http: HttpWorld, server: OnServer) -> None:
    topic = keyed(http)
    name = topic.rpartition("/")[2]
    server.says("topic", "compact", name, "--wait")
    with failing("the disk is torn"):
        told = server.complains("topic", "compact", name, "--wait")
    words = "failed: the disk is torn; its former view stays"
    assert told.startswith(f"holdfast: the compaction of {name} {words}")
    line = signs(server.says("topic", "stats", name))[1]
    assert line == "compaction failed the last time: the disk is torn"


def test_partitions_are_compacted(http: HttpWorld, server: OnServer) -> None:
    server.says("topic", "create", "wide", "--partitions", "2", "--compaction-threshold", "1G")
    assert http.get(f"{T}/wide/compactionThreshold") == 1 << 30
    http.run(fill(http, f"{T}/wide-partition-1", 10))
    told = server.says("topic", "compact", "wide", "--wait").splitlines()
    assert told[0] == "wide-partition-0: 0 of 0 messages stay, in 0 entries of 0 B"
    assert told[1].startswith("wide-partition-1: 3 of 10 messages stay")
    rows = [
        line.split() for line in server.says("topic", "stats", "wide").splitlines() if "partition-" in line
    ]
    assert [row[-2:] for row in rows] == [["done", "open"]] * 2
    found = server.answer("topic", "stats", "wide")["partitions"]
    assert [each["compaction"]["read"] for each in found] == [0, 10]
    server.says("topic", "compact", "wide", "--forget")
    assert http.get(f"{T}/wide/compaction")["status"] == "NOT_RUN"


def test_a_second_request_is_refused(http: HttpWorld, server: OnServer) -> None:
    """The other partitions are requested all the same."""
    http.done("PUT", f"{T}/twice/partitions", json=2)
    with waiting(http):
        http.done("PUT", f"{T}/twice-partition-0/compaction")
        told = server.complains("topic", "compact", "twice")
        assert "twice-partition-0 is being compacted already" in told
        assert http.get(f"{T}/twice-partition-1/compaction")["status"] == "RUNNING"
        words = "  compaction    requested or under way\n"
        assert words in server.says("topic", "stats", "twice-partition-1")
    ended(http, f"{T}/twice")
