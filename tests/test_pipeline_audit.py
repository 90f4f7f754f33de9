"""The audit against a plain count of the same messages, and the page that is made of it."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.errors import Misuse, NotFound
from holdfast.pipeline.archive import archive
from holdfast.pipeline.audit import GROUP_BITS, SHOWN, AuditReport, audit
from holdfast.pipeline.numbered import decoded, encode, encode_json
from holdfast.pipeline.report import page, write_report
from pipeline_world import Fed, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FULL = "persistent://public/default/"
SENT_NS = 1_794_700_000_000_000_000


def message(producer: str, number: int, keys: int = 3) -> bytes:
    make = encode if number % 2 else encode_json
    return make(producer, number, f"k{number % keys}", sent_ns=SENT_NS + number * 1_000_000)


def plain(
    messages: list[tuple[str, int]], confirmed: dict[str, int], keys: int = 3
) -> dict[str, tuple[int, ...]]:
    """Lost, duplicated and out of order by producer, counted the simple way."""
    times = Counter(messages)
    highest: dict[tuple[str, int], int] = defaultdict(lambda: -1)
    late: Counter[str] = Counter()
    seen: set[tuple[str, int]] = set()
    for producer, number in messages:
        if (producer, number) in seen:
            continue
        seen.add((producer, number))
        late[producer] += number < highest[producer, number % keys]
        highest[producer, number % keys] = max(highest[producer, number % keys], number)
    return {
        producer: (
            sum((producer, number) not in times for number in range(confirmed[producer])),
            sum(count - 1 for (name, _), count in times.items() if name == producer),
            late[producer],
        )
        for producer in confirmed
    }


def test_as_a_plain_count_has_it(spark: SparkSession, tmp_path: Path) -> None:
    """Random losses, repetitions and swaps over three producers; a part of it archived, a part of it live."""
    chance = random.Random(1)
    messages: list[tuple[str, int]] = []
    confirmed = {"many": (2 << GROUP_BITS) + 7, "few": 300, "one group": (1 << GROUP_BITS) - 1}
    for producer, count in confirmed.items():
        numbers = [number for number in range(count + chance.randrange(5)) if chance.random() > 40 / count]
        for number in chance.sample(numbers, 5):
            numbers.insert(chance.randrange(numbers.index(number) + 1, len(numbers) + 1), number)
        for at in (chance.randrange(len(numbers) - 4) for _ in range(5)):
            numbers[at], numbers[at + 3] = numbers[at + 3], numbers[at]
        messages += [(producer, number) for number in numbers]
    values: list[dict[str, Any]] = [{"value": message(*each)} for each in messages]
    values += [{"value": b"other"}, {"value": None}]
    half = len(values) // 3
    archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": values[:half]}))
    found = audit(spark, topics=["t"], archive=tmp_path, source=Fed({"t": values}), expected=confirmed)
    assert (found.archived, found.live, found.foreign) == (half, len(values) - half, 2)
    wanted = plain(messages, confirmed)
    assert {
        each.producer: (each.lost, each.duplicated, each.out_of_order) for each in found.producers
    } == wanted
    missing = {(gap.producer, number) for gap in found.gaps for number in range(gap.first, gap.last + 1)}
    there = set(messages)
    assert missing == {
        (name, number)
        for name, count in confirmed.items()
        for number in range(count)
        if (name, number) not in there
    }
    twice = {each for each, count in Counter(messages).items() if count > 1}
    assert {(each.producer, each.number) for each in found.repeated} == twice
    assert len(found.overtaken) == min(SHOWN, found.out_of_order)
    assert not found.sound


def test_what_is_sound_is_called_so(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    publish(data, "t", [message("a", number) for number in range(50)], batch=7)
    publish(data, "u", [message("a", number) for number in range(50)])  # another topic, the same numbers
    found = audit(spark, topics=["t", "u"], path=str(data))
    assert found.sound
    assert (found.messages, found.live, found.foreign) == (100, 100, 0)
    assert [each.messages for each in found.producers] == [50, 50]
    assert found.latency[0].count == 50
    assert sum(each.count for each in found.series) == sum(count for _, _, count in found.histogram) == 100
    assert "sound: 100 messages" in found.table()
    # Archived, and looked at together with what is live: each position counts once.
    archive(spark, topics=["t"], to=tmp_path / "a", path=str(data))
    publish(data, "t", [message("a", number) for number in (50, 51)])
    both = audit(spark, topics=["t"], path=str(data), archive=tmp_path / "a")
    assert (both.sound, both.archived, both.live) == (True, 50, 2)
    alone = audit(spark, archive=tmp_path / "a", expected={"a": 52})
    assert (alone.lost, alone.archived, alone.live) == (2, 50, 0)


def test_a_producer_of_whom_nothing_is_there(spark: SparkSession) -> None:
    found = audit(spark, topics=["t"], source=Fed({"t": []}), expected={"ghost": 3})
    assert (found.lost, found.messages, found.latency) == (3, 0, [])
    assert [(gap.first, gap.last) for gap in found.gaps] == [(0, 2)]
    assert "Not sound" in page(found)


def test_latency_in_micros(spark: SparkSession) -> None:
    from datetime import UTC, datetime, timedelta

    began = datetime(2026, 11, 15, tzinfo=UTC)
    ns = int(began.timestamp()) * 10**9
    rows = [
        {"value": encode("a", n, "k", sent_ns=ns), "publishTime": began + timedelta(milliseconds=n)}
        for n in range(1, 101)
    ]
    found = audit(spark, topics=["t"], source=Fed({"t": rows}))
    (times,) = found.latency
    assert (times.min, times.p50, times.p90, times.p99, times.max) == (1000, 50_000, 90_000, 99_000, 100_000)


def test_what_is_no_numbered_message(spark: SparkSession) -> None:
    good = encode("rig", 7, "k", sent_ns=5, body=b"x" * 9)
    cases: list[tuple[bytes | None, tuple[object, ...] | None]] = [
        (good, ("rig", 7, 5, "k")),
        (encode("rüg", 2**63 - 1, "", sent_ns=2**62), ("rüg", 2**63 - 1, 2**62, "")),
        (encode_json("j", 3, "k", sent_ns=5, value=1.5), ("j", 3, 5, "k")),
        *((good[:end], None) for end in (0, 1, 4, 8, 20, len(good) - 1)),
        (good[:-1] + b"y", None),
        (b"HFN1" + b"\xff" * 40, None),
        (None, None),
        (b"{", None),
        (b'{"producer": 1}', None),
        (b'{"producer": "x", "number": "many", "sent_ns": 1}', None),
        (b"[1]", None),
        (b"\xff\xfe{}", None),
    ]
    rows = spark.createDataFrame([(value,) for value, _ in cases], "value binary")
    found = [row["d"] for row in rows.select(decoded("value").alias("d")).collect()]
    got = [None if row is None or row["number"] is None else tuple(row) for row in found]
    assert got == [wanted for _, wanted in cases]
    for wrong in ({"producer": "x" * 256, "number": 1}, {"producer": "x", "number": -1}):
        with pytest.raises(Misuse):
            encode(**wrong, key="k")  # type: ignore[arg-type]


def test_nothing_to_look_at(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="say which"):
        audit(spark)
    with pytest.raises(NotFound, match="no archive"):
        audit(spark, archive=tmp_path)


def test_the_page_is_one_file_and_says_what_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"value": message("<b>rig</b>", n)} for n in (0, 1, 2, 5, 5, 8, 2 + 3 * 40, 2 + 3 * 20)]
    found = audit(spark, topics=["t"], source=Fed({"t": rows}))
    path = write_report(found, tmp_path / "deep/report.html")
    text = path.read_text(encoding="utf-8")
    assert "Not sound" in text
    assert text.count("<svg") == 4
    assert "&lt;b&gt;rig" in text
    assert "<b>rig" not in text
    # Nothing is loaded: names of the SVG format are no addresses that a browser follows.
    for address in re.findall(r"(?:src|href)\s*=\s*[\"']([^\"']+)", text):
        assert address.startswith("#"), address
    assert "<script" not in text
    assert not list(tmp_path.glob("deep/.*"))
    assert isinstance(found, AuditReport)
