"""Commands on topics and subscriptions against a running server, `holdfast top`, and bars on terminals."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast._core import encode_messages
from tests.kit.cli.servers import Cli
from tests.kit.command import COMMAND
from tests.kit.served import Served, served
from tests.kit.server.wire_checks import flip
from tests.kit.server.wire_raw import Raw, Type


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    with served(folder / "data", "--set", "ingest.enabled=false", http=True) as one:
        yield one


@pytest.fixture
def cli(server: Served, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli(capfdbinary, monkeypatch, server.http_url)


def test_topics(cli: Cli) -> None:
    assert cli.says("topic", "create", "a", "b") == "a: created\nb: created\n"
    cli.complains("topic", "create", "a")
    assert cli.says("topic", "create", "a", "--exist-ok") == "a: was there\n"
    assert (
        cli.says("topic", "produce", "a", "--lines", data=b"0\n1\n2\n")
        == "published 3 messages, the last is 1:2\n"
    )
    rows = {each["name"]: each for each in cli.answer("topic", "ls")}
    assert rows["persistent://public/default/a"]["entries"] == 3
    stats = cli.says("topic", "stats", "a")
    assert "holds         3 entries" in stats
    assert "did you mean a" in cli.complains("topic", "stats", "aa")
    assert cli.says("topic", "truncate", "a") == "deleted 3 entries\n"
    assert cli.says("topic", "terminate", "b") == "terminated; 0 entries can still be read\n"
    assert "terminated" in cli.complains("topic", "produce", "b", "x")
    assert cli.says("topic", "rm", "a", "b") == "removed a\nremoved b\n"


def test_settings(cli: Cli) -> None:
    cli.says("topic", "create", "set", "--retention-size", "10M", "--deduplication", "yes")
    shown = cli.answer("topic", "set", "set", "--ttl", "1h")
    assert (shown["retention_bytes"], shown["ttl_s"], shown["deduplication"]) == (10 << 20, 3600, True)
    shown = cli.answer(
        "topic",
        "set",
        "set",
        "--ttl",
        "default",
        "--retention-size",
        "default",
        "--retention-time",
        "default",
        "--deduplication",
        "default",
    )
    assert (shown["retention_bytes"], shown["ttl_s"], shown["deduplication"]) == (None, None, None)
    assert (shown["applied"]["ttl_s"], shown["from"]["ttl_s"]) == (0, "broker")
    shown = cli.answer("topic", "set", "set", "--roll-size", "1M", "--subscription-types", "shared")
    assert (shown["roll_bytes"], shown["subscription_types"]) == (1 << 20, ["shared"])


def test_namespaces(cli: Cli) -> None:
    assert "there is no namespace shop/eu" in cli.complains("topic", "create", "shop/eu/orders")
    assert cli.says("namespace", "create", "shop/eu", "shop/us") == "shop/eu: created\nshop/us: created\n"
    assert cli.says("topic", "create", "shop/eu/orders").endswith("created\n")
    assert "exists already" in cli.complains("namespace", "create", "shop/eu")
    listed = cli.says("namespace", "ls").splitlines()
    assert {"public/default", "shop/eu", "shop/us"} <= set(listed)
    assert json.loads(cli.says("namespace", "ls", "--json")) == listed


def test_produce_and_consume(cli: Cli) -> None:
    cli.says("topic", "produce", "c", "one", "--key", "k", "--property", "p=q", "--create")
    cli.says("topic", "produce", "c", "--lines", data=b"two\nthree\n")
    assert cli.says("topic", "consume", "c", "--lines") == "one\ntwo\nthree\n"
    first = cli.answer("topic", "consume", "c", "--count", "1")
    assert (first["key"], first["properties"], first["text"]) == ("k", {"p": "q"}, "one")
    second = cli.answer("topic", "peek", "c", "--start", "-1h", "--count", "1")
    assert second["id"] == first["id"]
    ledger = first["id"].partition(":")[0]
    assert cli.says("topic", "consume", "c", "--lines", "--start", f"{ledger}:1", "--count", "1") == "two\n"
    assert cli.says("topic", "consume", "c", "--start", "latest") == ""
    assert cli.says("topic", "consume", "c", "--subscription", "s", "--lines", "--count", "2") == "one\ntwo\n"
    assert cli.says("topic", "consume", "c", "--subscription", "s", "--lines") == "three\n"
    assert cli.says("topic", "consume", "c", "--subscription", "s", "--timeout", "0.1") == ""
    assert "there is no topic nobody" in cli.complains("topic", "produce", "nobody", "x")


def test_batches(cli: Cli, server: Served) -> None:
    """A command that stops in the middle of a batch acknowledges its part."""
    with Raw(server.url) as raw:
        raw.produce("batched")
        entry = encode_messages([b"%d" % n for n in range(5)], "raw", 0, 1, batch=5)[0]
        raw.tell(Type.SEND, entry, producer_id=1, sequence_id=0, num_messages=5)
        raw.expect(Type.SEND_RECEIPT)
    assert cli.says("topic", "consume", "batched", "--lines") == "0\n1\n2\n3\n4\n"
    shown = cli.says("topic", "peek", "batched", "--count", "2")
    assert ":0:0  1 byte " in shown
    take = ("topic", "consume", "batched", "--subscription", "s", "--lines")
    assert cli.says(*take, "--count", "2") == "0\n1\n"
    assert cli.says(*take) == "2\n3\n4\n"


def test_subscriptions(cli: Cli) -> None:
    cli.says("topic", "create", "d")
    cli.says("topic", "produce", "d", "--lines", data=b"0\n1\n2\n3\n4\n")
    assert "backlog of 5 messages" in cli.says("subscription", "create", "d", "s", "--start", "earliest")
    assert "backlog of 4 messages" in cli.says("subscription", "skip", "d", "s", "1")
    assert "  31 " in cli.says("subscription", "peek", "d", "s", "--count", "1")
    assert "backlog of 5 messages" in cli.says("subscription", "reset", "d", "s", "--earliest")
    at = cli.answer("topic", "stats", "d")["first"].partition(":")[0]
    assert "backlog of 2 messages" in cli.says("subscription", "reset", "d", "s", "--to-message", f"{at}:3")
    assert "backlog of 5 messages" in cli.says("subscription", "reset", "d", "s", "--to-time", "-1h")
    assert "backlog of 0 messages" in cli.says("subscription", "reset", "d", "s", "--latest")
    assert "has no position" in cli.complains("subscription", "reset", "d", "s", "--to-message", "0:99")
    cli.says("subscription", "reset", "d", "s", "--earliest")
    assert "backlog of 5 messages" in cli.says("subscription", "expire", "d", "s", "--older-than", "1h")
    assert "backlog of 0 messages" in cli.says("subscription", "clear", "d", "s")
    found = cli.answer("subscription", "stats", "d", "s")
    assert (found["backlog"], found["individually_acknowledged"]) == (0, 0)
    assert found["reset_number"] >= 5
    assert cli.says("subscription", "rm", "d", "s") == "removed s of d\n"
    assert "has no subscription 's'" in cli.complains("subscription", "stats", "d", "s")


def test_positions_that_do_not_exist_are_refused_as_in_a_directory(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a directory, a reset beyond the end skipped the whole backlog."""
    data = tmp_path / "data"

    def refusals(cli: Cli) -> list[str]:
        subscription = ("subscription", "reset", "d", "s", "--to-message")
        new = ("topic", "consume", "d", "--subscription", "new", "--start")
        found = [cli.complains(*subscription, at) for at in ("99:0", "1:5", "0:0")]
        found.append(cli.complains("subscription", "create", "d", "new", "--start", "99:0"))
        found.append(cli.complains(*new, "99:0"))
        assert cli.answer("subscription", "stats", "d", "s")["backlog"] == 5
        return found

    with served(data, "--set", "ingest.enabled=false", http=True) as server:
        one = Cli(capfdbinary, monkeypatch, server.http_url)
        one.says("topic", "produce", "d", "--lines", "--create", data=b"0\n1\n2\n3\n4\n")
        one.says("subscription", "create", "d", "s", "--start", "earliest")
        by_server = refusals(one)
    monkeypatch.delenv("HOLDFAST_SERVER")
    monkeypatch.setenv("HOLDFAST_DATA", str(data))
    assert refusals(one) == by_server
    assert "d has no position 99:0; its messages are 1:0 to 1:4" in by_server[0]


def test_stats_are_the_same_from_a_server_and_from_its_directory(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next position was "end" in one, and an id in the other."""
    data = tmp_path / "data"

    def looks(running: bool) -> list[object]:
        other = {"incarnation": "", "ledgers": ""}  # HTTP has no incarnation; a restart seals a ledger
        found = [one.answer("topic", "stats", name) | other for name in "def"]
        named = [("d", each) for each in ("new", "some", "all")] + [("e", "s"), ("f", "s")]
        shown = [one.says("subscription", "stats", *each).partition("\n  state")[0].strip() for each in named]
        listed = one.answer("subscription", "ls")
        for each in (*listed, *(each for topic in found for each in topic["subscriptions"].values())):
            assert bool(each.pop("diagnosis")) == running  # only a server dispatches
        return [*found, *shown, listed, one.says("subscription", "ls")]

    with served(data, "--set", "ingest.enabled=false", http=True) as server:
        one = Cli(capfdbinary, monkeypatch, server.http_url)
        for name in "def":
            one.says("topic", "create", name)
        for name in "df":
            one.says("topic", "produce", name, "--lines", data=b"0\n1\n2\n3\n4\n")
        for each in ("new", "some", "all"):
            one.says("subscription", "create", "d", each, "--start", "earliest")
        one.says("subscription", "skip", "d", "some", "2")
        assert one.says("subscription", "clear", "d", "all").endswith("next is end\n")
        one.says("subscription", "create", "e", "s")
        one.says("subscription", "create", "f", "s")
        one.says("topic", "truncate", "f")
        by_server = looks(running=True)
    monkeypatch.delenv("HOLDFAST_SERVER")
    monkeypatch.setenv("HOLDFAST_DATA", str(data))
    assert looks(running=False) == by_server


def test_which_one(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert "exclude each other" in cli.complains(
        "topic", "ls", "--data", str(tmp_path), "--server", "http://127.0.0.1:1", status=2
    )
    assert "no server answers at http://127.0.0.1:1" in cli.complains(
        "topic", "ls", "--server", "http://127.0.0.1:1"
    )
    assert "use http://host:port" in cli.complains(
        "topic", "ls", "--server", "pulsar://127.0.0.1:6650", status=2
    )
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "none"))  # a directory goes before a server
    assert "there is no directory" in cli.complains("topic", "ls")


def test_a_server_that_wants_credentials(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    subprocess.run([COMMAND, "token", "secret", str(secret)], check=True, capture_output=True)
    made = subprocess.run(
        [COMMAND, "token", "create", "anna", "--secret-file", str(secret)], check=True, capture_output=True
    )
    with served(
        tmp_path / "data",
        *("--set", "authentication.methods=token", "--set", f"authentication.token.secret_file={secret}"),
        http=True,
    ) as server:
        cli = Cli(capfdbinary, monkeypatch, server.http_url)
        assert cli.complains("topic", "ls")
        monkeypatch.setenv("HOLDFAST_TOKEN", made.stdout.decode().strip())
        assert cli.says("topic", "ls") == "no topics\n"
        cli.says("topic", "produce", "t", "x", "--create")
        assert cli.says("topic", "consume", "t", "--lines") == "x\n"


# -- top -----------------------------------------------------------------------------------------------


def test_top(cli: Cli, server: Served) -> None:
    cli.says("topic", "create", "busy")
    cli.says("subscription", "create", "busy", "behind", "--start", "earliest")
    cli.says("topic", "produce", "busy", "x", "--count", "300")
    watching = subprocess.Popen(
        [COMMAND, "top", "--once", "--json", "--interval", "1.5", "--server", server.http_url],
        stdout=subprocess.PIPE,
    )
    while watching.poll() is None:  # it is busy whenever it is looked at
        cli.says("topic", "produce", "busy", "x", "--count", "100")
    out, _ = watching.communicate(timeout=30)
    found = json.loads(out)
    assert found["up"]
    assert found["resident_bytes"] > 10_000_000
    row = found["shown"][0]
    assert row["topic"] == "persistent://public/default/busy"
    assert row["backlog"] >= 300
    assert row["in_per_s"] > 0
    assert row["in_bytes_per_s"] >= row["in_per_s"]
    (subscription,) = row["subscriptions"]
    assert (subscription["name"], subscription["backlog"]) == ("behind", row["backlog"])
    assert subscription["next"].endswith(":0")
    text = cli.says("top", "--once", "--interval", "0.05", "--topics", "1")
    assert "BACKLOG" in text
    assert "more topics" in text
    assert cli.complains("top", "--once", "--interval", "0", status=2)


def test_top_on_a_terminal(server: Served) -> None:
    said = on_a_terminal([COMMAND, "top", "--interval", "0.1", "--server", server.http_url], "BACKLOG")
    assert "\033[?25l" in said
    assert "\033[H" in said


def on_a_terminal(command: list[str], until: str) -> str:
    """Return the output up to the interrupt."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    said = ""
    limit = time.monotonic() + 20
    try:
        while until not in said and time.monotonic() < limit:
            if select.select([ours], [], [], 0.5)[0]:
                try:
                    said += os.read(ours, 1 << 16).decode(errors="replace")
                except OSError:  # it has ended
                    break
    finally:
        process.terminate()
        process.wait(20)
        os.close(ours)
    assert until in said, said
    return said


# -- damage ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subscription", [("--subscription", "s"), ()], ids=["consumer", "reader"])
def test_damage_is_told_with_file_and_position(folder: Path, cli: Cli, subscription: tuple[str, ...]) -> None:
    """Earlier messages are shown. The error once was `the server has closed the consumer`."""
    topic = f"damaged-{len(subscription)}"
    cli.says("topic", "create", topic)
    lines = "".join(f"<{topic} {number}>\n" for number in range(5))
    cli.says("topic", "produce", topic, "--lines", data=lines.encode())
    payload = f"<{topic} 2>".encode()
    ledgers = folder / "data" / "ledgers"
    [file] = [each for each in ledgers.glob("*.data") if payload in each.read_bytes()]
    flip(file, file.read_bytes().index(payload))
    place = ("--start", "earliest", "--timeout", "20")
    out, err = cli.run("topic", "consume", topic, *subscription, *place, "--lines", status=1)
    assert out.splitlines() == [f"<{topic} 0>", f"<{topic} 1>"]
    assert f"{file.name}: entry 2 cannot be read at offset" in err
    assert "Traceback" not in err


# -- bars ----------------------------------------------------------------------------------------------


def test_a_bar_on_a_terminal_only(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from holdfast.cli.progress import progress\n"
        "with progress('reading', sys.argv[1]):\n"
        "    for _ in range(10):\n"
        "        open(sys.argv[1] + '/file', 'rb').read(100_000)\n"
        "        time.sleep(0.1)\n"  # a slow program: the test waits for its bar
    )
    (tmp_path / "file").write_bytes(bytes(1_000_000))
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert "of 976.6 KiB" in on_a_terminal(command, "left")
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""


def test_administration(cli: Cli, server: Served) -> None:
    """A whole namespace, figures, and settings that change while the server runs."""
    cli.says("namespace", "create", "adm/one")
    for name in ("adm/one/a", "adm/one/b"):
        cli.says("topic", "create", name)
        cli.says("subscription", "create", name, "s")
        cli.says("topic", "produce", name, "--lines", data=b"0\n1\n")
    assert cli.says("subscription", "analyze", "adm/one/a", "s") == "2 entries with 2 messages\n"
    assert "no topic of adm/one has a subscription 'x'" in cli.complains(
        "namespace", "clear", "adm/one", "--subscription", "x"
    )
    assert cli.says("namespace", "clear", "adm/one") == "adm/one: acknowledged all backlogs\n"
    assert cli.answer("subscription", "stats", "adm/one/b", "s")["backlog"] == 0
    assert "all clients reconnect" in cli.says("namespace", "unload", "adm/one")
    assert "all clients reconnect" in cli.says("topic", "unload", "adm/one/a")
    assert "no namespace" in cli.complains("namespace", "unload", "adm/none")
    assert "acknowledged older" in cli.says("topic", "expire", "adm/one/a", "--older-than", "1h")
    cli.says("namespace", "unsubscribe", "adm/one", "s")
    assert cli.answer("subscription", "ls", "adm/one/a") == []
    assert cli.says("namespace", "missing", "adm/one") == "as the server has it\n"
    found = cli.answer("namespace", "missing", "adm/one", "--create", "yes", "--partitions", "3")
    assert (found["create"], found["partitions"]) == (True, 3)
    assert "not created" in cli.says("namespace", "missing", "adm/one", "--create", "no")
    assert "needs --create yes" in cli.complains(
        "namespace", "missing", "adm/one", "--partitions", "3", status=2
    )
    assert cli.says("namespace", "missing", "adm/one", "--create", "default") == "as the server has it\n"

    shown = cli.says("broker", "stats")
    assert "adm/one" in shown
    assert cli.answer("broker", "stats")["load"]["numTopics"] >= 2
    assert "limits.topics                      77  (not as configured)" in cli.says(
        "broker", "options", "limits.topics=77"
    )
    assert cli.answer("broker", "options", "--restore", "limits.topics")["changed"] == []
    told = cli.complains("broker", "options", "limits.topics=78", "listen.port=1", status=2)
    assert "read only at the start" in told
    told = cli.complains("broker", "options", "limits.topics=78", "limits.topic=1", status=2)
    assert "did you mean limits.topics?" in told
    assert "limits.topics" not in cli.answer("broker", "options")["changed"], "nothing was changed"


def test_limits(cli: Cli) -> None:
    """Of a topic and of its namespace, with the values that apply."""
    cli.says("topic", "create", "bounded")
    cli.says("topic", "create", "split", "--partitions", "2")
    shown = cli.answer("namespace", "limits", "public/default", "--publish-rate-bytes", "1M")
    assert shown["limits"]["publish_rate_bytes"] == 1 << 20
    given = ("--producers-max", "3", "--backlog-bytes", "1G", "--backlog-bytes-action", "evict")
    shown = cli.answer("topic", "limits", "bounded", *given)
    own, applied = shown["limits"], shown["applied"]
    assert (own["producers_max"], own["publish_rate_bytes"]) == (3, None)
    assert (applied["producers_max"], applied["publish_rate_bytes"]) == (3, 1 << 20)
    assert applied["backlog_bytes_action"] == "consumer_backlog_eviction"
    assert cli.answer("topic", "limits", "split", "--unacked-max", "7")["applied"]["unacked_max"] == 7
    assert cli.answer("topic", "limits", "split-partition-1")["limits"]["unacked_max"] == 7
    cli.says("namespace", "limits", "public/default", "--publish-rate-bytes", "default")
    words = cli.says("topic", "limits", "bounded", "--producers-max", "default", "--backlog-bytes", "0")
    rows = {row.split()[0]: row.split()[1:] for row in words.splitlines()}
    assert rows["producers_max"] == ["-", "no", "limit", "broker"]
    assert rows["backlog_bytes"] == ["no", "limit", "no", "limit", "topic"]
    assert "there is no topic nothing" in cli.complains("topic", "limits", "nothing")
    assert "no/where" in cli.complains("namespace", "limits", "no/where", "--producers-max", "1")
