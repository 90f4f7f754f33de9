"""The live view of the demo of a cluster: picture, line and account."""

from __future__ import annotations

import io
from dataclasses import fields, replace
from pathlib import Path

from holdfast.demo.cluster.balance import Account
from holdfast.demo.cluster.breaking import MemberLook, Outcome, Scene, Settings, _owner, _state
from holdfast.demo.cluster.picture import account_lines, line, lines, picture
from holdfast.demo.processes import Part

SOUND = Account(
    confirmed=12_000,
    stored=12_001,
    received=12_001,
    again=36,
    lost=0,
    duplicated=0,
    out_of_order=0,
    unreceived=0,
    unknown=0,
    different=0,
)


def part(kind: str, number: int, **more: float) -> Part:
    return Part(kind, f"{kind}-{number}", lambda _: [], Path("/nowhere"), {}, **more)  # type: ignore[arg-type]


def scene() -> Scene:
    """Node 2 was killed, and one receiver waits for its next life."""
    parts = [part("broker", 1), part("broker", 2), part("sender", 1), part("receiver", 1, restart_at=1.0)]
    found = Scene(Settings(), parts, phase="running")
    found.members = [MemberLook(1, "serves", 7, 2), MemberLook(2, "away"), MemberLook(3, "serves", 7, 1)]
    found.owner, found.backlog, found.confirmed, found.received = "3.5", 1_234, 56_789, 55_555
    found.tell("node 2: kill -9 of a broker")
    return found


def test_a_picture_has_members_owner_backlog_and_events() -> None:
    shown = picture(scene())
    text = "\n".join(shown)
    assert shown[0].startswith("holdfast cluster demo: ")
    assert shown[1].startswith("running, ")
    assert [row.split() for row in shown if row.startswith("  node ")] == [
        ["node", "1", "serves", "view", "7,", "owns", "2", "subscriptions"],
        ["node", "2", "away"],
        ["node", "3", "serves", "view", "7,", "owns", "1", "subscription"],
    ]
    for name, count in (("confirmed", "56,789"), ("received", "55,555"), ("backlog", "1,234")):
        assert [row.split()[1] for row in shown if row.startswith(f"  {name} ")] == [count]
    assert "its owner is 3.5" in text
    assert "receiver-1 killed" in text
    assert "sender-1" in text
    assert shown[-1].endswith("node 2: kill -9 of a broker")


def test_a_member_that_does_not_serve_has_a_short_state_and_no_share() -> None:
    assert _state("this node is not serving: waiting-for-quorum; waits for node 2") == "waiting-for-quorum"
    assert _state("away") == "away"
    found = scene()
    found.members = [MemberLook(1, "waiting-for-quorum", 7, 2)]
    assert "  node 1   waiting-for-quorum" in picture(found)


def test_the_owner_is_within_80_columns() -> None:
    found = scene()
    found.owner = "node 3"
    assert all(len(row) < 80 for row in picture(found) if "owner" in row)


def test_an_owner_is_shown_by_its_node() -> None:
    assert [_owner(each) for each in ("3.7352809659031396", None)] == ["node 3", "–"]


def test_a_line_has_all_of_it_for_a_pipe() -> None:
    words = line(scene())
    for each in ("running", "confirmed 56,789", "received 55,555", "backlog 1,234", "owner 3.5"):
        assert each in words
    assert words.endswith("[1: serves  2: away  3: serves]")


def test_lines_tell_each_event_once() -> None:
    out, found = io.StringIO(), scene()
    show = lines(out)
    show(found)
    show(found)
    found.tell("node 2: mended")
    found.phase = "over"
    show(found)
    told = out.getvalue()
    assert told.count("kill -9 of a broker") == told.count("mended") == 1
    assert told.count("confirmed 56,789") == 2, "at the beginning, and when it is over"


def test_the_account_of_a_sound_cluster() -> None:
    told = account_lines(Outcome(SOUND, scene(), [], Path("/kept")))
    rows = {row[2:22].strip(): row[22:36].strip() for row in told if row.startswith("  ")}
    assert rows == {
        "confirmed": "12,000",
        "stored": "12,001",
        "received": "12,001",
        "received again": "36",
        "lost": "0",
        "duplicated": "0",
        "out of order": "0",
        "not received": "0",
        "unknown": "0",
        "members that differ": "0",
    }
    assert len(rows) == len(fields(Account)), "a count is not shown"
    assert told[-1].startswith("every message is accounted for: ")


def test_the_account_says_what_is_wrong() -> None:
    for name in ("lost", "duplicated", "out_of_order", "unreceived", "unknown", "different"):
        told = account_lines(Outcome(replace(SOUND, **{name: 3}), scene(), [], Path("/kept")))
        assert told[-1] == "SOMETHING IS WRONG: see above; everything is kept in /kept"
        assert sum(row[22:36].strip() == "3" for row in told if row.startswith("  ")) == 1, name
    told = account_lines(Outcome(SOUND, scene(), ["broker-1 ended with status 1"], Path("/kept")))
    assert "  fault: broker-1 ended with status 1" in told
    assert told[-1].startswith("SOMETHING IS WRONG")
    told = account_lines(Outcome(None, scene(), ["the cluster did not form"], Path("/kept")))
    assert told[2:] == ["  fault: the cluster did not form", "", told[-1]]
    assert told[-1].startswith("SOMETHING IS WRONG")
