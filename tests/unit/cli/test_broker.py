"""Run commands on a data directory in this process; check output and status."""

from __future__ import annotations

import argparse
import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.cli import positions
from holdfast.ids import MessageId
from tests.kit.cli.data import Cli, backlog
from tests.kit.cli.data import cli as cli
from tests.kit.cli.data import orders as orders
from tests.kit.command import made
from tests.kit.waiting import next_millisecond

# -- topics -------------------------------------------------------------------------------------------


def test_topics_are_made_listed_and_removed(cli: Cli) -> None:
    assert (
        cli.says("topic", "create", "orders", "eu/shop/bills") == "orders: created\neu/shop/bills: created\n"
    )
    found = cli.answer("topic", "ls")
    assert [each["name"] for each in found] == [
        "persistent://eu/shop/bills",
        "persistent://public/default/orders",
    ]
    assert cli.says("topic", "ls").splitlines()[2].split() == ["orders", "0", "0", "B", "0", "0", "open"]
    assert "orders exists already" in cli.complains("topic", "create", "orders")
    assert cli.says("topic", "create", "orders", "--exist-ok") == "orders: was there\n"
    assert (
        cli.says("topic", "rm", "orders", "eu/shop/bills")
        == "removed orders\nremoved persistent://eu/shop/bills\n"
    )
    assert cli.says("topic", "ls") == "no topics\n"


def test_topics_created_before_a_refusal_are_told(cli: Cli) -> None:
    out, errors = cli.run("topic", "create", "a", "b", "a", status=1)
    assert out == b"a: created\nb: created\n"
    assert "a exists already" in errors


def test_errors_of_the_system_name_the_file(orders: Cli, tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    told = orders.complains("topic", "produce", "orders", "--file", str(missing))
    assert told == f"holdfast: {missing}: No such file or directory\n"
    missing.write_text("no directory")
    told = orders.complains("topic", "create", "x", "--data", str(missing))
    assert told == f"holdfast: {missing} is not a directory; use a new directory\n"
    told = orders.complains("topic", "create", "x", "--data", str(tmp_path))
    assert told.startswith(f"holdfast: {tmp_path}: this directory holds other files (data, missing)")
    told = orders.complains("backup", str(orders.data), str(missing))
    assert told == f"holdfast: {missing} is not a directory; use a new directory\n"


def test_unknown_arguments_show_the_usage_of_their_command(cli: Cli) -> None:
    told = cli.complains("topic", "consume", "orders", "--cuont=3", status=2)
    assert told.startswith("usage: holdfast topic consume ")
    assert told.endswith("unrecognized arguments: --cuont=3; did you mean --count?\n")
    told = cli.complains("--json", "topic", "ls", status=2)
    assert told.endswith("unrecognized arguments: --json; write --json behind the command\n")
    told = cli.complains("serve", "extra", status=2)
    assert told.endswith("holdfast serve: error: unrecognized arguments: extra\n")


def test_rm_refuses_while_something_waits(orders: Cli) -> None:
    orders.says("subscription", "create", "orders", "billing", "--start", "earliest")
    assert "billing (5 messages)" in orders.complains("topic", "rm", "orders")
    orders.says("topic", "rm", "orders", "--force")
    assert orders.answer("topic", "ls") == []


def columns(table: str) -> dict[str, list[str]]:
    """Return the rows of a table behind its title, by the first column."""
    rows = [re.split(r"\s{2,}", row.strip()) for row in table.splitlines()[1:]]
    return {first: others for first, *others in rows}


def test_settings_are_made_changed_and_shown(cli: Cli) -> None:
    cli.says("topic", "create", "orders", "--retention-time", "7d", "--ttl", "1h", "--deduplication", "yes")
    found = cli.answer("topic", "set", "orders")
    assert (found["retention_s"], found["ttl_s"], found["deduplication"]) == (7 * 86400, 3600, True)
    assert found["roll_bytes"] is None
    found = cli.answer(
        "topic", "set", "orders", "--ttl", "default", "--roll-size", "1M", "--deduplication", "no"
    )
    assert (found["ttl_s"], found["roll_bytes"], found["deduplication"]) == (None, 1 << 20, False)
    assert (found["applied"]["roll_bytes"], found["from"]["roll_bytes"]) == (1 << 20, "topic")
    assert (found["applied"]["ttl_s"], found["from"]["ttl_s"]) == (None, "broker")
    assert (found["applied"]["ring_bytes"], found["from"]["ring_bytes"]) == (None, None)
    found = cli.answer("namespace", "set", "public/default", "--ttl", "2h")
    assert (found["ttl_s"], found["applied"]["ttl_s"], found["from"]["ttl_s"]) == (7200, 7200, "namespace")
    rows = columns(cli.says("topic", "set", "orders"))
    assert rows["SETTING"] == ["SET HERE", "APPLIES", "FROM"]
    assert rows["ttl_s"] == ["-", "7200", "namespace"]
    assert rows["roll_bytes"] == ["1048576", "1048576", "topic"]
    assert rows["deduplication"] == ["no", "no", "topic"]
    assert rows["roll_age_s"] == ["-", "as the server has it", "broker"]
    assert rows["ring_bytes"] == ["-", "-", "-"]
    for value, shown in (("yes", True), ("no", False), ("default", None)):
        found = cli.answer("topic", "set", "orders", "--retention-both", value)
        assert found["retention_both"] is shown


def test_stats_tell_what_a_topic_holds(orders: Cli) -> None:
    orders.says("subscription", "create", "orders", "billing", "--start", "1:3")
    found = orders.answer("topic", "stats", "orders")
    assert (found["entries"], found["first"], found["last"]) == (5, "1:0", "1:4")
    assert found["subscriptions"]["billing"]["backlog"] == 2
    text = orders.says("topic", "stats", "orders")
    assert "5 entries" in text
    assert "billing" in text


def test_a_topic_is_terminated_and_truncated(orders: Cli) -> None:
    assert orders.says("topic", "terminate", "orders") == "terminated; 5 entries can still be read\n"
    assert "terminated" in orders.complains("topic", "produce", "orders", "more")
    assert orders.answer("topic", "ls")[0]["terminated"]
    assert orders.says("topic", "truncate", "orders") == "deleted 5 entries\n"
    assert orders.answer("topic", "stats", "orders")["entries"] == 0


# -- produce and consume ------------------------------------------------------------------------------


def test_produce_takes_an_argument_a_file_stdin_and_lines(cli: Cli, tmp_path: Path) -> None:
    noise = os.urandom(2000)
    (tmp_path / "noise").write_bytes(noise)
    cli.says("topic", "create", "t")
    assert cli.says("topic", "produce", "t", "one") == "published 1 message, the last is 1:0\n"
    cli.says("topic", "produce", "t", "--file", str(tmp_path / "noise"))
    cli.says("topic", "produce", "t", data=b"all\nof it\n")
    assert cli.answer("topic", "produce", "t", "--lines", data=b"a\n\nb")["published"] == 3
    assert cli.answer("topic", "produce", "t", "x", "--count", "2500")["published"] == 2500
    found = [bytes.fromhex(each["hex"]) for each in cli.answers("topic", "consume", "t")]
    assert found == [b"one", noise, b"all\nof it\n", b"a", b"", b"b", *[b"x"] * 2500]
    out, _ = cli.run("topic", "consume", "t", "--count", "2")
    assert out == b"one" + noise
    assert cli.says("topic", "consume", "t", "--hex", "--count", "1") == "6f6e65\n"


def test_keys_properties_and_times_travel_along(cli: Cli) -> None:
    cli.says("topic", "create", "t")
    properties = ("--property", "a=1", "--property", "b=x=y")
    when = ("--event-time", "2026-11-15T08:30:00Z")
    cli.says("topic", "produce", "t", "--key", "smith", *properties, *when, "--producer", "desk", "nails")
    cli.says(
        "topic", "produce", "t", "--lines", "--separator", ": ", data=b"smith: rope\ntar\nmiller: a: b\n"
    )
    first, *others = cli.answers("topic", "consume", "t")
    assert (first["id"], first["key"], first["properties"]) == ("1:0", "smith", {"a": "1", "b": "x=y"})
    assert (first["event_time"], first["producer"]) == ("2026-11-15T08:30:00+00:00", "desk")
    assert abs(datetime.now(UTC) - datetime.fromisoformat(first["time"])) < timedelta(minutes=1)
    assert (first["size"], first["text"], first["redelivered"]) == (5, "nails", 0)
    assert [(each["key"], each["text"]) for each in others] == [
        ("smith", "rope"),
        (None, "tar"),
        ("miller", "a: b"),
    ]


def test_a_subscription_goes_on_where_it_was_and_a_reader_leaves_no_trace(orders: Cli) -> None:
    take = ("topic", "consume", "orders", "--subscription", "billing", "--lines")
    assert orders.says("topic", "consume", "orders", "--lines") == "0\n1\n2\n3\n4\n"
    assert orders.says("topic", "consume", "orders", "--lines", "--start", "1:3") == "3\n4\n"
    assert orders.says("subscription", "ls", "orders") == "no subscriptions\n"
    assert orders.says(*take, "--count", "2") == "0\n1\n"
    assert orders.answer("subscription", "stats", "orders", "billing")["backlog"] == 3
    assert orders.says(*take) == "2\n3\n4\n"
    assert orders.says(*take) == ""
    assert orders.says(*take, "--timeout", "0.05") == ""
    assert orders.says("topic", "consume", "orders", "--start", "latest", "--timeout", "0") == ""


def test_a_start_that_an_existing_subscription_does_not_take_is_told(orders: Cli) -> None:
    """It was ignored without a word: the messages looked like those of the position."""
    take = ("topic", "consume", "orders", "--subscription", "billing", "--lines")
    assert orders.says(*take, "--start", "1:1", "--count", "1") == "1\n"
    for start in ("earliest", "1:0", "-1h"):
        out, err = orders.run(*take, "--start", start, "--count", "1")
        assert err == (
            "holdfast: --start has no effect: the subscription billing exists and continues at its cursor; "
            "to move it, use `holdfast subscription reset`\n"
        )
    assert out == b"4\n"
    assert orders.says(*take) == ""


def test_an_unknown_topic_is_not_made_by_accident(orders: Cli) -> None:
    words = orders.complains("topic", "produce", "order", "x")
    assert "no topic order; did you mean orders?" in words
    assert "did you mean orders?" in orders.complains("topic", "consume", "ordres")
    assert "existing topics: orders" in orders.complains("topic", "peek", "quite-another")
    assert orders.says("topic", "produce", "order", "x", "--create").startswith("published 1 message")
    assert len(orders.answer("topic", "ls")) == 2


def test_arguments_that_do_not_fit_together(orders: Cli) -> None:
    for wrong in (
        ("x", "--lines"),
        ("x", "--file", "y"),
        ("x", "--separator", ":"),
        ("--lines", "--separator", ":", "--key", "k"),
        ("x", "--property", "novalue"),
        ("x", "--event-time", "tomorrow"),
    ):
        orders.complains("topic", "produce", "orders", *wrong, status=2)
    assert orders.answer("topic", "stats", "orders")["entries"] == 5


# -- peek ---------------------------------------------------------------------------------------------


def test_peek_changes_nothing(orders: Cli) -> None:
    orders.says("topic", "produce", "orders", "x" * 100, "--key", "smith", "--property", "a=1")
    orders.says("subscription", "create", "orders", "billing", "--start", "1:4")
    assert [each["text"] for each in orders.answers("topic", "peek", "orders", "--count", "2")] == ["0", "1"]
    text = orders.says("topic", "peek", "orders", "--start", "1:5")
    assert re.match(r"1:5  100 bytes  published \S+ m?s ago  key smith  a=1\n  78 78", text)
    assert "… 36 more bytes" in text
    peek = ("subscription", "peek", "orders", "billing")
    assert [each["id"] for each in orders.answers(*peek)] == ["1:4", "1:5"]
    assert [each["id"] for each in orders.answers(*peek)] == ["1:4", "1:5"]
    orders.says("subscription", "clear", "orders", "billing")
    assert orders.says(*peek) == "billing has acknowledged everything\n"
    assert orders.says("topic", "peek", "orders", "--start", "latest") == "no message there\n"


def test_a_subscription_is_moved(orders: Cli) -> None:
    orders.says("subscription", "create", "orders", "billing")
    assert backlog(orders) == []
    reset = ("subscription", "reset", "orders", "billing")
    said = orders.says(*reset, "--earliest")
    assert said == "reset: billing has a backlog of 5 messages, next is 1:0\n"
    assert backlog(orders) == ["0", "1", "2", "3", "4"]
    orders.says("subscription", "skip", "orders", "billing", "2")
    assert backlog(orders) == ["2", "3", "4"]
    assert orders.answer(*reset, "--to-message", "1:1")["backlog"] == 4
    orders.says("subscription", "clear", "orders", "billing")
    assert backlog(orders) == []
    assert orders.answer(*reset, "--to-time", "-2h")["backlog"] == 5
    assert orders.answer(*reset, "--latest")["reset_number"] == 4
    assert backlog(orders) == []


def test_a_reset_to_a_time_lands_between_the_messages(orders: Cli) -> None:
    orders.says("subscription", "create", "orders", "billing")
    next_millisecond()
    between = datetime.now(UTC).isoformat()
    next_millisecond()
    orders.says("topic", "produce", "orders", "late")
    orders.says("subscription", "reset", "orders", "billing", "--to-time", between)
    assert backlog(orders) == ["late"]
    orders.says("subscription", "reset", "orders", "billing", "--earliest")
    orders.says("subscription", "expire", "orders", "billing", "--older-than", "1h")
    assert len(backlog(orders)) == 6
    orders.says("subscription", "expire", "orders", "billing", "--older-than", "0.001s")
    assert backlog(orders) == []


def test_subscriptions_are_made_listed_and_removed(orders: Cli) -> None:
    said = orders.says("subscription", "create", "orders", "billing", "--start", "earliest")
    assert said == "created: billing has a backlog of 5 messages, next is 1:0\n"
    orders.says("topic", "create", "bills")
    orders.says("subscription", "create", "bills", "audit")
    assert "'billing' already" in orders.complains("subscription", "create", "orders", "billing")
    rows = orders.says("subscription", "ls").splitlines()
    assert rows[0].split() == ["TOPIC", "SUBSCRIPTION", "BACKLOG", "ACKED", "TO", "NEXT", "HOLES", "RESETS"]
    assert [row.split()[:3] for row in rows[1:]] == [["bills", "audit", "0"], ["orders", "billing", "5"]]
    assert [each["name"] for each in orders.answer("subscription", "ls", "orders")] == ["billing"]
    assert "backlog       5 messages" in orders.says("subscription", "stats", "orders", "billing")
    words = orders.complains("subscription", "rm", "orders", "biling")
    assert "orders has no subscription 'biling'; did you mean billing?" in words
    assert orders.says("subscription", "rm", "orders", "billing") == "removed billing of orders\n"
    assert "there is no subscription at all" in orders.complains("subscription", "stats", "orders", "billing")
    assert "no topic nothing" in orders.complains("subscription", "create", "nothing", "billing")


def test_ids_and_times_that_are_none(orders: Cli) -> None:
    orders.says("subscription", "create", "orders", "billing")
    reset = ("subscription", "reset", "orders", "billing")
    for wrong in ("7", "7:", "a:b", "-1:2", "1:2:3:4"):
        assert "is not a message id such as 7:42" in orders.complains(
            *reset, f"--to-message={wrong}", status=2
        )
    for wrong in ("yesterday", "2h", "-2y", "2026-13-01"):
        assert "is not a time such as 2026" in orders.complains(*reset, f"--to-time={wrong}", status=2)
    assert "is neither earliest" in orders.complains(
        "topic", "consume", "orders", "--start", "soon", status=2
    )
    told = orders.complains("topic", "consume", "orders", "--start", "-3x", status=2)
    assert "'-3x' is neither earliest nor latest, nor a message id" in told
    assert "one of the arguments" in orders.complains(*reset, status=2)
    assert "not allowed with" in orders.complains(*reset, "--earliest", "--latest", status=2)
    assert "above 0" in orders.complains("subscription", "skip", "orders", "billing", "0", status=2)
    assert orders.answer("subscription", "stats", "orders", "billing")["reset_number"] == 0


def test_places_are_read() -> None:
    assert positions.place("earliest") == "earliest"
    assert positions.place("7:42") == MessageId(7, 42)
    assert positions.place("7:42:3") == MessageId(7, 42, 3)
    assert positions.moment("2026-11-15") == datetime(2026, 11, 15, tzinfo=UTC)
    assert positions.moment("2026-11-15T08:30+02:00") == datetime(2026, 11, 15, 6, 30, tzinfo=UTC)
    ago = datetime.now(UTC) - positions.moment("-1.5h")
    assert timedelta(minutes=89) < ago < timedelta(minutes=91)
    assert [positions.span(text) for text in ("30", "30s", "2m", "1w")] == [30, 30, 120, 604800]
    assert positions.joined(["reset", "--to-time", "-2h", "-2h"]) == ["reset", "--to-time=-2h", "-2h"]
    for wrong in ("-999999999w", "2"):
        with pytest.raises(argparse.ArgumentTypeError):
            positions.moment(wrong)
    with pytest.raises(argparse.ArgumentTypeError):
        positions.span("999999999999w")


# -- the directory ------------------------------------------------------------------------------------


def test_which_directory(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"there is no directory {cli.data}" in cli.complains("topic", "ls")
    assert f"there is no directory {cli.data}" in cli.complains("topic", "produce", "orders", "x")
    assert not cli.data.exists()
    cli.data.mkdir()
    assert "is not a data directory" in cli.complains("subscription", "ls")
    assert list(cli.data.iterdir()) == []
    other = str(tmp_path / "other")
    cli.says("topic", "create", "orders", "--data", other)
    assert len(cli.answer("topic", "ls", "--data", other)) == 1
    monkeypatch.delenv("HOLDFAST_DATA")
    assert "no data directory given; use --data DIR" in cli.complains("topic", "ls", status=2)


def test_doctor_looks_at_a_directory(orders: Cli) -> None:
    found = orders.answer("doctor", str(orders.data))
    assert (found["sound"], found["clean"], found["entries"], found["findings"]) == (True, True, 5, [])
    text = orders.says("doctor", f"{orders.data}/")
    assert "stopped        cleanly" in text
    assert text.endswith("verdict        sound\n")
    assert "--recover is for queues" in orders.complains("doctor", str(orders.data), "--recover", status=2)
    assert "is not a data directory" in orders.complains("doctor", str(orders.data.parent))


def test_doctor_finds_damage_and_says_where(orders: Cli) -> None:
    (ledger,) = (orders.data / "ledgers").glob("*.data")
    with ledger.open("r+b") as file:
        file.seek(64 + 40)
        file.write(b"\xff\xff")
    out, err = orders.run("doctor", str(orders.data), status=1)
    assert err == ""
    assert f"fault          ledgers/{ledger.name} at offset 64: entry 0 is damaged" in out.decode()
    assert out.endswith(b"verdict        damaged: 1 fault\n")
    out, _ = orders.run("doctor", str(orders.data), "--json", status=1)
    assert json.loads(out)["findings"][0]["offset"] == 64


def test_a_name_may_be_a_queue_or_a_directory(orders: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(orders.data.parent)
    assert "ledgers        1" in orders.says("doctor", "data")
    made("data")
    assert orders.says("doctor", "data").startswith("queue data\n")
    assert "ledgers        1" in orders.says("doctor", "./data")


def test_a_backup_says_what_is_not_in_it(orders: Cli, tmp_path: Path) -> None:
    """The unreplicated topics of a member are a data directory of their own."""
    assert "not in it" not in orders.says("backup", str(orders.data), str(tmp_path / "whole"))
    local = orders.data / "local"
    orders.says("topic", "create", "only", "--data", str(local))
    said = orders.says("backup", str(orders.data), str(tmp_path / "part"))
    assert f"not in it: the unreplicated topics of this node; back up {local} apart" in said
    assert "not in it" not in orders.says("backup", str(local), str(tmp_path / "rest"))


def test_backup_and_restore(orders: Cli, tmp_path: Path) -> None:
    copy, again = str(tmp_path / "copy"), str(tmp_path / "again")
    orders.says("subscription", "create", "orders", "billing", "--start", "1:3")
    said = orders.says("backup", str(orders.data), copy)
    assert re.match(rf"backed up in {re.escape(copy)}: 1 ledger, \d+ files, .* up to event \d+\n", said)
    assert "not empty" in orders.complains("backup", str(orders.data), copy)
    assert orders.answer("restore", copy, again)["ledgers"] == 1
    assert orders.says("topic", "consume", "orders", "--lines", "--data", again) == "0\n1\n2\n3\n4\n"
    assert orders.answer("subscription", "stats", "orders", "billing", "--data", again)["backlog"] == 2
    assert "not empty" in orders.complains("restore", copy, again)
    assert "is not a backup" in orders.complains("restore", str(orders.data), str(tmp_path / "third"))
    assert "is not a data directory" in orders.complains("backup", str(tmp_path), str(tmp_path / "fourth"))
    (data,) = Path(copy, "ledgers").glob("*.data")
    data.write_bytes(data.read_bytes()[:-1] + b"\xff")
    assert "do not match the checksum" in orders.complains("restore", copy, str(tmp_path / "fifth"))


def test_limits(orders: Cli) -> None:
    """Without options it shows them; `default` and 0 differ."""
    shown = orders.answer("topic", "limits", "orders", "--subscribe-rate", "5", "--backlog-age", "7d")
    assert (shown["limits"]["subscribe_rate"], shown["limits"]["backlog_age_s"]) == (5, 604_800)
    assert orders.answer("topic", "limits", "orders") == shown
    orders.says("namespace", "limits", "public/default", "--consumers-max", "4")
    assert orders.answer("topic", "limits", "orders")["applied"]["consumers_max"] == 4
    shown = orders.answer("topic", "limits", "orders", "--consumers-max", "0", "--backlog-age", "default")
    assert (shown["applied"]["consumers_max"], shown["limits"]["backlog_age_s"]) == (0, None)
    assert "no limit" in orders.says("topic", "limits", "orders")
    assert shown["from"]["consumers_max"] == "topic"
    rows = columns(orders.says("namespace", "limits", "public/default"))
    assert rows["consumers_max"] == ["4", "4", "namespace"]
    assert rows["producers_max"] == ["-", "as the server has it", "broker"]
    for wrong in (
        ("--backlog-age-action", "drop"),
        ("--producers-max", "-1"),
        ("--subscribe-rate-period", "0"),
    ):
        assert "is not" in orders.complains("topic", "limits", "orders", *wrong, status=2)
