"""Compare the audit with a plain count of the same messages, and test its page."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import holdfast
from holdfast.errors import Corrupt, Misuse, NotFound
from holdfast.names import topic_name
from holdfast.pipeline import audit as library
from holdfast.pipeline.archive import archive, read_archive
from holdfast.pipeline.audit import AuditReport, audit
from holdfast.pipeline.compact import compact
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Run
from holdfast.pipeline.jobs.audit_page import page, write_report
from holdfast.pipeline.jobs.inputs import Extent, Origin
from holdfast.pipeline.numbered import decoded, encode, encode_json
from tests.kit.slices import pick, seeds
from tests.kit.spark.audit_world import Case, case
from tests.kit.spark.pipeline_world import Fed, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FULL = "persistent://public/default/"
SENT_NS = 1_794_700_000_000_000_000


def message(producer: str, number: int, keys: int = 3) -> bytes:
    make = encode if number % 2 else encode_json
    return make(producer, number, f"k{number % keys}", sent_ns=SENT_NS + number * 1_000_000)


def numbered(*numbers: int, producer: str = "a") -> list[dict[str, object]]:
    return [{"value": message(producer, number)} for number in numbers]


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("seed", seeds("audit", test=1, nightly=2))
def test_as_a_plain_count_has_it(spark: SparkSession, tmp_path: Path, said: bool, seed: int) -> None:
    """Many topics with faults, partly archived by two runs and partly live."""
    chance = random.Random(2 * seed + said)
    cases = [case(f"{FULL}t{number:02}", chance) for number in range(pick(test=12, nightly=40))]
    for share in (0.3, 0.6):
        part = {each.topic: each.rows()[: int(share * len(each.sent))] for each in cases}
        archive(spark, topics=list(part), to=tmp_path, source=Fed(part))
    found = audit(
        spark,
        topics=[each.topic for each in cases],
        archive=tmp_path,
        source=Fed({each.topic: each.rows() for each in cases}),
        expected={each.topic: each.expected for each in cases} if said else None,
    )
    agree(found, cases, said)
    assert found.archived == sum(int(0.6 * len(each.sent)) for each in cases)
    assert found.messages == found.archived + found.live == sum(len(each.sent) for each in cases)
    assert not found.sound
    # All kinds of faults are in it, and topics without any.
    assert all((found.lost, found.duplicated, found.out_of_order, found.damaged, found.foreign))
    assert said == (found.unexpected > 0) == any(each.unconfirmed for each in found.producers)


def agree(found: AuditReport, cases: list[Case], said: bool) -> None:
    """Everything that the audit tells, against the plain count."""
    assert found.producers == [each for topic in cases for each in topic.producers(said)]
    assert found.gaps == [gap for topic in cases for gap in topic.gaps(said)]
    told = [(each.topic, each.producer, each.number, each.position) for each in found.repeated]
    assert told == [(topic.topic, *each) for topic in cases for each in topic.again()]
    late = {(each.topic, each.producer, each.number, each.position) for each in found.overtaken}
    assert late == {(topic.topic, *each) for topic in cases for each in topic.late()}
    odd = [(topic.topic, *each) for topic in cases for each in topic.odd()]
    assert [(each.topic, each.position, each.what) for each in found.strange] == odd
    whats = [what for _, _, what in odd]
    assert (found.foreign, found.damaged) == (whats.count("not numbered"), whats.count("damaged"))
    times = {each.topic: (each.min, *each.shares, each.max) for each in found.latency}
    assert times == {topic.topic: topic.shares() for topic in cases if topic.producers(False)}
    good = found.messages - found.foreign - found.damaged
    assert sum(each.count for each in found.series) == sum(each.count for each in found.histogram) == good


def test_what_is_sound_is_called_so(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    publish(data, "t", [message("a", number) for number in range(50)], batch=7)
    publish(data, "u", [message("a", number) for number in range(50)])  # another topic, the same numbers
    found = audit(spark, topics=["t", "u"], path=str(data))
    assert found.sound
    assert (found.messages, found.live, found.foreign) == (100, 100, 0)
    assert [each.messages for each in found.producers] == [50, 50]
    assert "sound: 100 messages" in found.table()
    # Archived, and looked at together with what is live: each position counts once.
    archive(spark, topics=["t"], to=tmp_path / "a", path=str(data))
    publish(data, "t", [message("a", number) for number in (50, 51)])
    both = audit(spark, path=str(data), archive=tmp_path / "a", expected={"a": 52})
    assert (both.sound, both.archived, both.live) == (True, 50, 2)
    assert library.look(spark, [], None, tmp_path / "a").rows.count() == 50


def test_a_topic_that_was_made_anew_is_another_one(spark: SparkSession, tmp_path: Path) -> None:
    """Its producers count from 0 again, and what is expected is said of the newest."""
    first, second = Fed({"t": numbered(0, 1, 3)}, "aa" * 16), Fed({"t": numbered(0, 1)}, "bb" * 16)
    archive(spark, topics=["t"], to=tmp_path, source=first)
    archive(spark, topics=["t"], to=tmp_path, source=second)
    third = Fed({"t": numbered(0, 1, 2)}, "cc" * 16)
    found = audit(spark, archive=tmp_path, source=third, expected={"a": 3})
    assert [(each.topic.removeprefix(FULL), each.messages, each.lost) for each in found.producers] == [
        ("t", 3, 0),
        ("t (incarnation aaaaaaaa)", 3, 1),
        ("t (incarnation bbbbbbbb)", 2, 0),
    ]
    assert (found.duplicated, found.out_of_order, found.unexpected) == (0, 0, 0)
    alone = library.look(spark, [], None, tmp_path).rows.groupBy("topic").count().collect()
    assert {(row[0].removeprefix(FULL), row[1]) for row in alone} == {
        ("t", 2),
        ("t (incarnation aaaaaaaa)", 3),
    }


def test_a_run_that_is_archived_meanwhile_counts_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I186: another process archives between two looks at the archive: that is not there twice."""
    rows = numbered(*range(12))
    archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows[:2]}))
    known = ArchiveDirectory.runs

    def positions(behind: int) -> list[int]:
        """Return the audited rows, while two more runs are archived after the runs were listed."""
        looks = 0

        def runs(self: ArchiveDirectory, any_kind: bool = False) -> list[Run]:
            nonlocal looks
            looks, before = looks + 1, known(self, any_kind)
            if looks == behind:
                there = sum(run.rows for run in before)
                archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows[: there + 2]}))
            return before

        with monkeypatch.context() as patch:
            patch.setattr(ArchiveDirectory, "runs", runs)
            looked = library.look(spark, ["t"], Fed({"t": rows}), tmp_path)
        return sorted(row["position"] for row in looked.rows.select("position").collect())

    for behind in pick(test=(2,), nightly=(1, 2, 3)):
        assert positions(behind) == list(range(12)), behind
    monkeypatch.setattr(library, "read_archive", lambda spark, path, runs: read_archive(spark, path))
    assert positions(2) != list(range(12)), "a broken one, which lists the runs again, is noticed"


def test_a_producer_of_whom_nothing_is_there(spark: SparkSession) -> None:
    found = audit(spark, topics=["t"], source=Fed({"t": []}), expected={"ghost": 3})
    assert (found.lost, found.messages, found.latency) == (3, 0, [])
    assert [(gap.first, gap.last) for gap in found.gaps] == [(0, 2)]
    assert "Not sound" in page(found)
    # Nothing was expected, and nothing is there; without being told so, nothing was shown either.
    assert audit(spark, topics=["t"], source=Fed({"t": []}), expected={"ghost": 0}).sound


def test_nothing_to_look_at(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match="say which"):
        audit(spark)
    with pytest.raises(Misuse, match="name the topics"):
        audit(spark, source=Fed({}))
    with pytest.raises(NotFound, match="not an archive"):
        audit(spark, archive=tmp_path)
    for wrong in ({"mode": "permissive"}, {"keys": '["a"]'}, {"publishedFrom": "0"}):
        with pytest.raises(
            Misuse, match=r"reads all messages: option (mode|keys|publishedFrom) is not allowed"
        ):
            audit(spark, topics=["t"], path=str(tmp_path), options=wrong)


def test_what_the_archive_does_not_hold(spark: SparkSession, tmp_path: Path) -> None:
    rows = numbered(0, 1, 2)
    archive(spark, topics=["t"], to=tmp_path / "a", source=Fed({"t": rows}))
    with pytest.raises(NotFound, match=f"no topic {FULL}tt; it has {FULL}t"):
        audit(spark, archive=tmp_path / "a", topics=["t", "tt"])
    with pytest.raises(Corrupt, match="ends at position 2, and 3 are archived"):
        audit(spark, archive=tmp_path / "a", source=Fed({"t": rows[:2]}))
    compact(spark, topics=["t"], to=tmp_path / "c", source=Fed({"t": [{**rows[0], "key": b"k"}]}))
    with pytest.raises(Misuse, match="is compacted"):
        audit(spark, archive=tmp_path / "c")


class Deleting(Fed):
    """A broker in which topics can be missing."""

    def extents(self, topics: Sequence[str]) -> dict[str, Extent]:
        for name in map(topic_name, topics):
            if name not in self.rows:
                raise NotFound(f"shows no topic {name}")
        return super().extents(topics)


def test_what_is_archived_may_be_deleted(spark: SparkSession, tmp_path: Path) -> None:
    """It is audited together with live topics; a missing directory does not count as deletion."""
    kept = {"t": numbered(0, 1), "u": numbered(0, 1, 2)}
    archive(spark, topics=["t", "u"], to=tmp_path, source=Fed(kept))
    live = Deleting({"t": numbered(0, 1, 2)})
    for topics in ([], ["t", "u"]):
        found = audit(spark, topics=topics, archive=tmp_path, source=live)
        assert (found.sound, found.archived, found.live) == (True, 5, 1)
        assert found.notes == [f"{FULL}u is archived, and the broker no longer has it"]
    with pytest.raises(NotFound, match=f"shows no topic {FULL}v"):
        audit(spark, topics=["t", "v"], archive=tmp_path, source=live)
    with pytest.raises(NotFound, match="nowhere"):
        audit(spark, archive=tmp_path, path=str(tmp_path / "nowhere"))


def test_what_was_trimmed_is_said(spark: SparkSession, tmp_path: Path) -> None:
    rows = numbered(0, 1, 2, 3, 4, 5)
    archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows[:2]}))
    found = audit(spark, archive=tmp_path, source=Fed({"t": rows}, first=4))
    assert (found.lost, found.archived, found.live) == (2, 2, 2)
    assert found.notes == [f"{FULL}t: 2 positions after the archive were trimmed and not archived"]
    assert f"note: {found.notes[0]}" in found.table()
    assert found.notes[0] in page(found)
    looked = library.look(spark, ["t"], Fed({"t": rows}, first=4), None)
    assert looked.notes == [f"{FULL}t: the first 4 positions were trimmed and not archived"]


def test_what_an_archive_has_left_out_is_said(spark: SparkSession, tmp_path: Path) -> None:
    """Its runs list the loss: without the broker, and for a producer without other messages."""
    rows = [*numbered(0, 1), *numbered(0, 1, 2, producer="gone"), *numbered(2, 3)]
    archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows[:2]}))
    archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows}, first=5), accept_loss=True)
    archive(spark, topics=["u"], to=tmp_path, source=Fed({"u": rows[:3]}, first=2))
    found = audit(spark, archive=tmp_path, topics=["t"])
    assert (found.lost, found.unseen, found.faults()) == (0, 3, ["3 positions trimmed unseen"])
    assert found.notes == [f"{FULL}t: 3 positions between two runs were trimmed and not archived"]
    assert audit(spark, archive=tmp_path, topics=["t"], expected={"a": 4}).sound
    looked = library.look(spark, [], None, tmp_path)
    assert looked.unseen == 5
    assert looked.notes[1] == f"{FULL}u: the first 2 positions were trimmed and not archived"


def test_each_topic_has_something_to_account_for(spark: SparkSession) -> None:
    """One that is empty, or has other messages only, is not covered by the others."""
    source = Fed({"t": numbered(0, 1), "u": [], "v": [{"value": b"other"}]})
    found = audit(spark, topics=["t", "u", "v"], source=source, foreign_allowed=True)
    assert found.faults() == ["there is no numbered message in u, v"]
    expected: dict[str, dict[str, int | None]] = {"t": {"a": 2}, "u": {}, "v": {"b": None}}
    found = audit(spark, topics=["t", "u", "v"], source=source, foreign_allowed=True, expected=expected)
    assert found.faults() == ["there is no numbered message in v"]


def test_an_archive_with_other_rows_than_its_runs_say(spark: SparkSession, tmp_path: Path) -> None:
    """The end of a topic is missing, which no number tells."""
    archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": numbered(*range(9))}))
    file = max(tmp_path.glob("topic=*/date=*/*.parquet"))
    rows = pq.read_table(file, partitioning=None)
    pq.write_table(rows.slice(0, len(rows) - 2), file)
    file.with_name(f".{file.name}.crc").unlink()
    with pytest.raises(Corrupt, match="has 7 rows of these topics, and its runs have written 9"):
        audit(spark, archive=tmp_path)


def test_a_topic_that_is_made_anew_meanwhile_is_refused(spark: SparkSession) -> None:
    """The rows may be of either topic."""
    source = Fed({"t": numbered(0, 1)})

    def told(step: str, words: str = "") -> None:
        if step == "details":
            source.incarnation = "bb"

    with pytest.raises(Corrupt, match=f"{FULL}t was deleted while it was read"):
        audit(spark, topics=["t"], source=source, told=told)


def test_partitions_of_an_archive(spark: SparkSession, tmp_path: Path) -> None:
    """A named partition is audited alone; a topic with all partitions, also later ones."""
    data, to = tmp_path / "data", tmp_path / "a"
    for partition, numbers in enumerate(((0, 2), (1, 3))):
        publish(data, f"t-partition-{partition}", [message("a", number) for number in numbers])
    archive(spark, topics=["t"], to=to, path=str(data))
    publish(data, "t-partition-2", [message("a", 4)])
    found = audit(spark, archive=to, path=str(data), expected={"a": 5})
    assert (found.sound, found.archived, found.live) == (True, 4, 1)
    with pytest.raises(Misuse, match="a producer counts over all partitions"):
        audit(spark, archive=to, expected={"t-partition-1": {"a": 5}})
    one = library.look(spark, ["t-partition-1"], None, to)
    assert one.parts == [f"{FULL}t-partition-1"]
    assert [row["partition"] for row in one.rows.select("partition").collect()] == [1, 1]
    with holdfast.Broker.open(data) as broker:
        broker.admin.delete_topic("t-partition-1")
    looked = library.look(spark, ["t"], Origin(str(data)), to)
    assert looked.notes == [f"{FULL}t-partition-1 is archived, and the broker no longer has it"]


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


def test_the_page_is_one_file_and_says_what_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"value": message("<b>rig</b>", n)} for n in (0, 1, 2, 5, 5, 8, 2 + 3 * 40, 2 + 3 * 20)]
    found = audit(spark, topics=["t"], source=Fed({"t": rows}))
    path = write_report(found, tmp_path / "deep/report.html")
    text = path.read_text(encoding="utf-8")
    assert "Not sound" in text
    assert text.count("<svg") == 4
    assert "&lt;b&gt;rig" in text
    assert "<b>rig" not in text
    # Nothing is loaded: names of the SVG format are not addresses that a browser follows.
    for address in re.findall(r"(?:src|href)\s*=\s*[\"']([^\"']+)", text):
        assert address.startswith("#"), address
    assert "<script" not in text
    assert not list(tmp_path.glob("deep/.*"))
