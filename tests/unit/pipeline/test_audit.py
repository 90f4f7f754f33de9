"""Test, without Spark, which audits are sound, and the expected counts."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from holdfast.errors import Misuse
from holdfast.pipeline import audit as library
from holdfast.pipeline.audit import AuditReport, by_topic
from holdfast.pipeline.jobs.archive_directory import Range, Run
from holdfast.pipeline.jobs.audit_counts import ProducerAudit
from holdfast.pipeline.jobs.audit_page import page

FULL = "persistent://public/default/"


def test_partitions_of_one_life_are_one_topic() -> None:
    """Each has an incarnation of its own, and a producer counts over all of them."""
    one, two, other = f"{FULL}t-partition-9", f"{FULL}t-partition-10", f"{FULL}u"
    lives = [{one: "aa", two: "bb", other: "xx"}, {one: "cc"}, {two: "dd"}, {one: "ee", other: "xx"}]
    runs = [
        Run(1, "archive", number, "id", "now", {name: Range(each, 0, 1) for name, each in life.items()}, [])
        for number, life in enumerate(lives, 1)
    ]
    assert library.older_names(runs, {two: "ff", one: "ee", other: "xx"}) == {
        (one, "aa"): f"{FULL}t (incarnation aa)",
        (two, "bb"): f"{FULL}t (incarnation aa)",
        (one, "cc"): f"{FULL}t (incarnation cc)",
        (two, "dd"): f"{FULL}t (incarnation cc)",
    }
    assert library.older_names(runs, {other: "xx"}) == {}


def report(*producers: ProducerAudit, **more: object) -> AuditReport:
    total = sum(each.messages for each in producers)
    figures: dict[str, object] = {"archived": 0, "live": total, "messages": total, "foreign": 0, "damaged": 0}
    figures |= {"producers": list(producers), "latency": [], "step_s": 1, "series": [], "histogram": []}
    return AuditReport(**{**figures, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lost": 2}, "lost 2"),
        ({"duplicated": 1}, "duplicated 1"),
        ({"out_of_order": 1}, "out of order 1"),
        ({"unexpected": True}, "1 producer not expected"),
        ({"foreign": 3}, "not numbered 3"),
        ({"damaged": 1}, "damaged 1"),
        ({"damaged": 1, "foreign_allowed": True}, "damaged 1"),
        ({"messages": 0}, "there is no message to account for"),
        ({"messages": 0, "said": True}, "there is no message to account for"),  # all of it null
        ({"empty": [f"{FULL}u"]}, "there is no numbered message in u"),
        ({"unseen": 7}, "7 positions trimmed unseen"),
        ({"unseen": 7, "said": True}, "7 positions trimmed unseen"),  # not for every producer
    ],
)
def test_what_is_not_sound(change: dict[str, object], words: str) -> None:
    figures = {"lost": 0, "duplicated": 0, "out_of_order": 0, "unconfirmed": 0, "confirmed": None}
    fine = ProducerAudit(topic="t", producer="a", messages=5, distinct=5, last=4, **figures)  # type: ignore[arg-type]
    assert report(fine).sound
    assert report(fine, foreign=1, foreign_allowed=True).sound
    assert report(replace(fine, confirmed=5), unseen=7, said=True).sound
    assert report(foreign=1, messages=1, foreign_allowed=True).faults() == ["there is no numbered message"]
    of_producer = {
        name: value for name, value in change.items() if name in asdict(fine) and name != "messages"
    }
    rest = {name: value for name, value in change.items() if name not in of_producer}
    found = report(ProducerAudit(**{**asdict(fine), **of_producer}), **rest)
    assert found.faults() == [words]
    assert not found.sound
    assert f"NOT SOUND: {words}; of " in found.table()
    assert words in page(found)
    assert found.record()["sound"] is False


def test_what_is_expected_is_said_by_topic() -> None:
    one, two = f"{FULL}t", f"{FULL}u"
    assert by_topic({"a": 3, "b": None}, [one]) == {(one, "a"): 3, (one, "b"): None}
    assert by_topic({"t": {"a": 3}, two: {}}, [one, two]) == {(one, "a"): 3}
    assert by_topic({}, [one]) == {}
    for wrong, words in (
        ({"a": 3}, "2 topics are audited"),
        ({"t": {"a": 3}, "a": 3}, "mixes producers and topics"),
        ({"t": {"a": 3}, "v": {"a": 3}}, "names v, which is not audited"),
        ({"t": {"a": 3}}, "expected lacks persistent://public/default/u"),
        (
            {"t-partition-0": {"a": 5}, "t-partition-1": {"a": 7}, "u": {}},
            r"t-partition-0, one of the audited partitions",
        ),
        ({"t": {"a": 5}, "t-partition-1": {"a": 7}, "u": {}}, r"/t twice, as t and as t-partition-1"),
        ({"t": {"a": 5}, "public/default/t": {"b": 7}, "u": {}}, r"/t twice, as t and as public"),
        ({"t": {"a": 2**63}, "u": {}}, "9223372036854775808 for a; a number of messages is whole"),
        ({"t": {"a": -1}, "u": {}}, "has -1 for a"),
        ({"t": {"a": 1.5}, "u": {}}, r"has 1\.5 for a"),
        ({"t": {"a": True}, "u": {}}, "has True for a"),
        ({"t": {"a": {"b": 1}}, "u": {}}, "has {'b': 1} for a"),
        ({"t": {"\ud800": 1}, "u": {}}, "is not valid text"),
    ):
        with pytest.raises(Misuse, match=words):
            by_topic(wrong, [one, two], [f"{one}-partition-0", f"{one}-partition-1", two])  # type: ignore[arg-type]
    with pytest.raises(Misuse, match="0 topics are audited"):
        by_topic({"a": 3}, [])
    alone = f"{one}-partition-1"
    assert by_topic({"t-partition-1": {"a": 2**63 - 1}}, [one], [alone]) == {(one, "a"): 2**63 - 1}


def test_one_is_one() -> None:
    figures = {"lost": 0, "duplicated": 0, "out_of_order": 0, "unconfirmed": 0, "confirmed": None}
    one = ProducerAudit(topic="t", producer="a", messages=1, distinct=1, last=0, **figures)  # type: ignore[arg-type]
    assert "sound: 1 message (" in report(one).table()
