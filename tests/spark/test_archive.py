"""Test archiving with Spark: new entries, all or nothing, read back, killed at every step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast._core import encode_messages
from holdfast.client import Progress
from holdfast.errors import Corrupt, CursorModifying, Locked, NoSpace
from holdfast.pipeline.archive import archive, read_archive, require_same, verify_archive
from holdfast.pipeline.compact import compact
from holdfast.pipeline.jobs.archive_digest import Digest, aggregates
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Range, Run
from holdfast.pipeline.jobs.archive_schemas import read_schema
from holdfast.pipeline.jobs.subscriptions import DirectorySubscriptions
from holdfast.pipeline.measure import FIGURES_SCHEMA, report
from holdfast.pipeline.sink.rows import _entry, parts
from holdfast.protocol import pulsar_pb2 as pb
from tests.kit.pipeline.typed_world import TypedTopics, avro, definition, schema
from tests.kit.slices import pick
from tests.kit.spark import archive_kill
from tests.kit.spark.archive_kill import DISTINCT_STEPS, STEPS, SUBSCRIPTION, TOPICS, Drivers
from tests.kit.spark.pipeline_world import Fed, append_entries, publish, topic_rows, trim

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)  # for Spark on a busy machine

FULL = "persistent://public/default/"


def test_archived_rows_are_the_topics_rows(spark: SparkSession, tmp_path: Path) -> None:
    data, to = tmp_path / "data", tmp_path / "archive"
    publish(data, "orders", [b"%d" % n for n in range(100)], key="smith", properties={"b": "2", "a": "1"})
    publish(data, "orders", [b"%d" % n for n in range(60)], batch=25)
    publish(data, "tar", [b"\x00\xff" * 400, b""])
    done = archive(spark, topics=["orders", "tar"], to=to, path=str(data))
    assert (done.run, done.rows, done.partitions) == (1, 162, 2)
    rows, wanted = read_archive(spark, to), topic_rows(spark, data, "orders", "tar")
    plain = [name for name in wanted.columns if name != "properties"]
    assert rows.select(plain).exceptAll(wanted.select(plain)).count() == 0
    assert rows.count() == wanted.count() == 162
    assert rows.where("properties['a'] = '1'").count() == 100
    # A plain reader of Parquet sees the same.
    assert spark.read.parquet(str(to)).count() == 162
    # Only the new entries; without new ones, no run.
    publish(data, "orders", [b"more"])
    again = archive(spark, topics=["orders", "tar"], to=to, path=str(data))
    assert [(each.start, each.rows) for each in again.topics] == [(103, 1), (2, 0)]
    last = archive(spark, topics=["orders", "tar"], to=to, path=str(data))
    assert (last.run, last.rows) == (None, 0)
    assert "no new entries" in last.table()
    assert verify_archive(spark, to) == 163


def test_schemas_are_kept_beside_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Two versions in two runs; then the topic is created again, with another version 0."""
    data, to = tmp_path / "data", tmp_path / "archive"
    first = definition(("name", "string"), ("count", "int"))
    second = definition(("name", "string"), ("count", "int"), ("colour", ["null", "string"]))
    other = definition(("price", "double"))

    def fill(tree: dict[str, Any], number: int, **value: Any) -> None:
        world, messages = TypedTopics(data), [(avro(tree, value), number), (avro(tree, value), None)]
        asyncio.run(world.fill("orders", [schema("Avro", tree)], messages))

    def archived() -> Run:
        archive(spark, topics=["orders"], to=to, path=str(data))
        return ArchiveDirectory(to).runs()[-1]

    def definitions(run: Run) -> list[Any]:
        return [
            json.loads(pb.Schema.FromString(read_schema(ArchiveDirectory(to), run, file)).schema_data)
            for _, file in sorted(run.schemas[FULL + "orders"].items())
        ]

    fill(first, 0, name="nails", count=7)
    assert definitions(archived()) == [first]
    fill(second, 1, name="rope", count=1, colour="grey")
    assert definitions(archived()) == [first, second]
    with holdfast.Broker.open(data) as broker:
        broker.admin.delete_topic("orders", force=True)
    fill(other, 0, price=2.5)
    assert definitions(archived()) == [other]
    rows = read_archive(spark, to).orderBy("messageId")
    assert [row["schemaVersion"] for row in rows.collect()] == [0, None, 1, None, 0, None]
    assert len(list(to.glob("_schemas/*/*.json"))) == 3
    assert spark.read.parquet(str(to)).count() == 6, "plain readers of Parquet do not see them"
    assert verify_archive(spark, to) == 6
    # A compacted topic has them, too.
    compact(spark, topics=["orders"], to=tmp_path / "compacted", path=str(data), keep_keyless=True)
    assert [row["schemaVersion"] for row in read_archive(spark, tmp_path / "compacted").collect()] == [
        0,
        None,
    ]
    assert len(list((tmp_path / "compacted").glob("_schemas/*/*.json"))) == 1
    file = next(to.glob("_schemas/*/1-*.json"))
    file.write_bytes(b"{}")
    with pytest.raises(Corrupt, match=r"1-\w+\.json does not have its digest"):
        verify_archive(spark, to)


def test_a_day_is_a_day_in_utc(spark: SparkSession, tmp_path: Path) -> None:
    times = [datetime(2026, 11, 15, 23, 59, 59, 999999, UTC), datetime(2026, 11, 16, 0, 0, tzinfo=UTC)]
    source = Fed({"t": [{"publishTime": each, "eventTime": each} for each in times]})
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        archive(spark, topics=["t"], to=tmp_path, source=source)
        rows = (
            read_archive(spark, tmp_path)
            .orderBy("position")
            .selectExpr("string(date)", "unix_micros(eventTime)")
        )
        found = [tuple(row) for row in rows.collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert found == [
        ("2026-11-15", int(times[0].timestamp()) * 1_000_000 + 999_999),
        ("2026-11-16", int(times[1].timestamp()) * 1_000_000),
    ]


def test_what_reads_back_wrong_is_not_added(spark: SparkSession, tmp_path: Path) -> None:
    """The subscription does not advance: a file has fewer rows, other rows, or is missing."""
    from pyspark.sql import functions as F  # noqa: N812

    data, to = tmp_path / "data", tmp_path / "archive"
    publish(data, "t", [b"%d" % n for n in range(10)])

    def damage(kind: str) -> None:
        (file,) = (to / "_holdfast/staging").rglob("*.parquet")
        file.with_name(f".{file.name}.crc").unlink()
        if kind == "gone":
            file.unlink()
            return
        rows = spark.read.parquet(str(file))
        other = rows.where("position < 9") if kind == "shorter" else rows.withColumn("sequenceId", F.lit(1))
        other.coalesce(1).write.parquet(str(tmp_path / kind))
        next((tmp_path / kind).glob("*.parquet")).replace(file)

    asked: dict[str, Any] = {"topics": ["t"], "to": to, "path": str(data), "subscription": "s"}
    for kind in ("shorter", "other", "gone"):

        def told(step: str, words: str = "", kind: str = kind) -> None:
            if step == "verify":
                damage(kind)

        with pytest.raises(Corrupt, match="nothing was added"):
            archive(spark, **asked, told=told)
        assert ArchiveDirectory(to).runs() == [], kind
        assert not list((to / "_holdfast/staging").iterdir())  # a full disk is not made fuller
        assert DirectorySubscriptions(str(data)).progress("t", "s").acked_to == 0, kind
    done = archive(spark, **asked)
    assert (done.rows, done.recovered.removed, done.topics[0].acked_to) == (10, 0, 10)


def test_a_full_disk_is_told_and_left_no_fuller(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(spark: Any, rows: Any, place: Path) -> None:
        place.mkdir()
        (place / "half").write_bytes(b"x")
        raise RuntimeError("Task failed while writing rows\nCaused by: IOException: No space left on device")

    monkeypatch.setattr("holdfast.pipeline.archive.write", full)
    with pytest.raises(NoSpace, match="has no room for these rows; nothing was added"):
        archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": [{}]}))
    assert not list((tmp_path / "_holdfast/staging").iterdir())


def test_damage_that_comes_later_is_found(spark: SparkSession, tmp_path: Path) -> None:
    archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": [{"value": b"a"}, {"value": b"b"}]}))
    file = next(tmp_path.glob("topic=*/date=*/*.parquet"))
    rows = spark.read.parquet(str(file))
    rows.limit(0).coalesce(1).write.parquet(str(tmp_path / "_other"))
    next((tmp_path / "_other").glob("*.parquet")).replace(file)
    file.with_name(f".{file.name}.crc").unlink()
    with pytest.raises(Corrupt, match="restore topic="):
        verify_archive(spark, tmp_path)


def test_what_the_source_does_not_hand_over_in_range(spark: SparkSession, tmp_path: Path) -> None:
    source = Fed({"t": [{"position": 7}]})
    with pytest.raises(Corrupt, match="positions 7 to 7; 0 to 0 were asked for"):
        archive(spark, topics=["t"], to=tmp_path, source=source)


class Leaving(Fed):
    """A source that returns only some of its rows, and some of them twice."""

    def __init__(self, count: int, condition: str, twice: str = "false") -> None:
        super().__init__({"t": [{}] * count})
        self.condition, self.twice = condition, twice

    def messages(self, *args: Any, **more: Any) -> DataFrame:
        rows = super().messages(*args, **more).where(self.condition)
        return rows.unionByName(rows.where(self.twice))


@pytest.mark.parametrize(
    ("condition", "twice", "missing"),
    [
        ("position <> 4", "false", 4),
        ("position < 9", "false", 9),
        ("false", "false", 0),
        ("position <> 4", "position = 5", 4),  # as many as there should be
    ],
)
def test_a_position_that_is_not_handed_over(
    spark: SparkSession, tmp_path: Path, condition: str, twice: str, missing: int
) -> None:
    """I187: Spark did not get all rows: nothing is added, and nothing released."""
    holder, source = Holder(), Leaving(10, condition, twice)
    asked: dict[str, Any] = {"topics": ["t"], "to": tmp_path, "subscription": "s", "holder": holder}
    with pytest.raises(Corrupt, match=f"position {missing}: the topic has a message there"):
        archive(spark, source=source, **asked)
    assert (ArchiveDirectory(tmp_path).runs(), holder.advanced) == ([], [])


def test_a_mutant_that_believes_its_source(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would notice."""
    monkeypatch.setattr("holdfast.pipeline.archive.require_all", lambda *_: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_position_that_is_not_handed_over(spark, tmp_path, "position <> 4", "false", 4)


def test_a_batch_of_which_nothing_is_left_has_no_row(spark: SparkSession, tmp_path: Path) -> None:
    """Nor is anything missed where the first of a batch is gone."""
    data, plain = tmp_path / "data", encode_messages([b"a", b"b"], "p", 0, 1_700_000_000_000)
    append_entries(data, "t", [plain[0], batch(True, True), batch(True, False), plain[1]])
    done = archive(spark, topics=["t"], to=tmp_path / "to", path=str(data), subscription="s")
    assert [(each.rows, each.acked_to) for each in done.topics] == [(3, 4)]


def batch(*compacted: bool) -> bytes:
    """An entry with messages that another broker has compacted away, or not."""
    metadata = pb.MessageMetadata(producer_name="p", sequence_id=1, publish_time=1_700_000_000_000)
    metadata.num_messages_in_batch = len(compacted)
    payload = b""
    for each in compacted:
        single = pb.SingleMessageMetadata(payload_size=1, compacted_out=each).SerializeToString()
        payload += len(single).to_bytes(4, "big") + single + b"x"
    return _entry(metadata, payload)


def test_a_topic_that_lost_its_end_meanwhile() -> None:
    reach = {f"{FULL}t": Range("aa", 2, 5)}
    require_same(Fed({"t": [{}] * 5}), reach)
    with pytest.raises(Corrupt, match="cut at position 4 while it was read"):
        require_same(Fed({"t": [{}] * 4}), reach)


class Holder:
    """The subscription is reset, or its topic created again, while the archive is written."""

    def __init__(self, incarnation: bytes = b"\xaa") -> None:
        self.advanced: list[int] = []
        self.incarnation = incarnation

    def progress(self, topic: str, subscription: str, **_: Any) -> Progress:
        return Progress(self.incarnation, 3, 0, 0, 1)

    def advance(
        self, topic: str, subscription: str, to: int, reset_number: int, incarnation: bytes = b""
    ) -> Progress:
        assert reset_number == 3
        self.advanced.append(to)
        raise CursorModifying("reset")


def test_a_reset_meanwhile_stays(spark: SparkSession, tmp_path: Path) -> None:
    holder = Holder()
    done = archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": [{}]}), subscription="s", holder=holder)
    assert holder.advanced == [1]
    assert "reset meanwhile; not advanced" in done.table()
    assert done.topics[0].acked_to == 0
    other = Holder(b"\xbb")
    done = archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": [{}]}), subscription="s", holder=other)
    assert other.advanced == []
    assert "created again meanwhile" in done.table()


def test_a_topic_that_was_trimmed_or_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    rows = [{"value": b"%d" % n} for n in range(6)]
    archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows[:2]}))
    with pytest.raises(Corrupt, match="2 were trimmed"):
        archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows}, first=4))
    done = archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows}, first=4), accept_loss=True)
    assert [(each.start, each.stop, each.lost) for each in done.topics] == [(4, 6, 2)]
    assert "2 positions lost" in done.table()
    renewed = archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": rows[:1]}, incarnation="bb"))
    assert renewed.rows == 1
    assert read_archive(spark, tmp_path).count() == 5


def test_nothing_is_let_go_of_whose_file_is_gone(spark: SparkSession, tmp_path: Path) -> None:
    """A run was killed before it advanced, and a file of it was deleted since."""
    holder = Holder()
    asked: dict[str, Any] = {"topics": ["t"], "to": tmp_path, "subscription": "s", "holder": holder}

    def killed(step: str, words: str = "") -> None:
        if step == "advance":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive(spark, source=Fed({"t": [{}]}), told=killed, **asked)
    file = next(tmp_path.glob("topic=*/date=*/*.parquet"))
    whole = file.read_bytes()
    for left in (None, whole[:-1]):
        file.unlink() if left is None else file.write_bytes(left)
        with pytest.raises(Corrupt, match=r"\.parquet (is missing|has \d+ bytes).* from a copy"):
            archive(spark, source=Fed({"t": [{}]}), **asked)
        assert holder.advanced == []
    file.write_bytes(whole)
    archive(spark, source=Fed({"t": [{}]}), **asked)
    assert holder.advanced == [1]


def test_a_directory_whose_name_looks_like_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    to = tmp_path / "x[1]{2,3}\\y"
    done = archive(spark, topics=["t"], to=to, source=Fed({"t": [{}] * 3}))
    assert (done.rows, read_archive(spark, to).count(), verify_archive(spark, to)) == (3, 3, 3)
    spark.createDataFrame([], FIGURES_SCHEMA).write.parquet(str(tmp_path / "figures[1]"))
    assert report(spark, tmp_path / "figures[1]", 0, 0.0).windows == 0


def test_a_message_in_parts_keeps_its_beginning(spark: SparkSession, tmp_path: Path) -> None:
    """I182, I184: the subscription waits until a run has all of the message."""
    data, to, value = tmp_path / "data", tmp_path / "archive", bytes(range(250)) * 10
    large = encode_messages([value], "p", 7, 1_700_000_000_000, key="k")[0]
    cut, (a, b, c) = parts(large, 1200), encode_messages([b"a", b"b", b"c"], "q", 0, 1_700_000_000_000)
    assert len(cut) == 3
    append_entries(data, "t", [a, cut[0]], roll_entries=1)
    asked: dict[str, Any] = {"topics": ["t"], "to": to, "path": str(data), "subscription": "s"}
    first = archive(spark, **asked)
    assert [(each.stop, each.rows, each.acked_to) for each in first.topics] == [(2, 1, 1)]
    assert "a chunked message is open from 1 on" in first.table()
    assert trim(data, "t") == 1
    append_entries(data, "t", [cut[1]], roll_entries=1)
    part = archive(spark, **asked)  # a run without rows
    assert [(each.stop, each.rows, each.acked_to) for each in part.topics] == [(3, 0, 1)]
    assert (part.run, part.files) == (2, 0)
    again = archive(spark, **asked)  # nothing is new, and it stays where it is
    assert (again.run, again.topics[0].acked_to) == (None, 1)
    append_entries(data, "t", [b, cut[2], c], roll_entries=1)
    last = archive(spark, **asked)
    assert [(each.start, each.rows, each.acked_to) for each in last.topics] == [(3, 3, 6)]
    assert trim(data, "t") >= 5
    rows = read_archive(spark, to).orderBy("position").collect()
    assert [(bytes(row["value"]), row["position"]) for row in rows] == [
        (b"a", 0),
        (b"b", 3),
        (value, 4),
        (b"c", 5),
    ]


def test_a_topic_that_is_made_anew_while_it_is_read(spark: SparkSession, tmp_path: Path) -> None:
    """Its positions are those that were planned, and its rows are another topic's."""
    data, to = tmp_path / "data", tmp_path / "archive"
    publish(data, "t", [b"old"] * 3)

    def told(step: str, words: str = "") -> None:
        if step == "write":
            with holdfast.Broker.open(data) as broker:
                broker.admin.delete_topic("t")
            publish(data, "t", [b"new"] * 3)

    with pytest.raises(Corrupt, match="deleted and created again while it was read; nothing was added"):
        archive(spark, topics=["t"], to=to, path=str(data), told=told)
    assert ArchiveDirectory(to).runs() == []
    archive(spark, topics=["t"], to=to, path=str(data))
    assert {bytes(row["value"]) for row in read_archive(spark, to).collect()} == {b"new"}


def test_retention_does_not_wait_and_a_subscription_does(spark: SparkSession, tmp_path: Path) -> None:
    """Entries that are trimmed while they are read never make half an archive."""
    data, to = tmp_path / "data", tmp_path / "archive"
    entries, trimmed = encode_messages([b"%d" % n for n in range(12)], "p", 0, 1), list[int]()
    other = DirectorySubscriptions(str(data))
    with holdfast.Broker.open(data) as broker:
        broker.admin.create_topic("t")
        broker.admin.create_subscription("t", "other", "earliest")

    def filled(count: int) -> dict[str, Any]:
        append_entries(data, "t", entries[:count], roll_entries=1)
        return {"topics": ["t"], "to": to, "path": str(data), "told": told}

    def told(step: str, words: str = "") -> None:
        """Another subscription has kept them until now."""
        if step == "write":
            at = other.progress("t", "other")
            other.advance("t", "other", at.visible, at.reset_number)
            trimmed.append(trim(data, "t"))

    with pytest.raises(Exception, match="entries 0 to 11 were trimmed"):
        archive(spark, **filled(12))
    assert ArchiveDirectory(to).runs() == []
    assert not list((to / "_holdfast/staging").iterdir())
    with pytest.raises(Corrupt, match="trimmed up to position 14 while it was read"):
        archive(spark, **filled(2), accept_loss=True)
    assert ArchiveDirectory(to).runs() == []
    held = archive(spark, **filled(12), subscription="s")
    assert (held.rows, held.topics[0].acked_to) == (12, 26)
    assert trimmed == [12, 14, 14]


def test_rows_are_those_of_each_partition(spark: SparkSession, tmp_path: Path) -> None:
    fed = {
        f"p-partition-{number}": [{"topic": f"{FULL}p", "partition": number}] * (number + 1)
        for number in (0, 1, 2)
    }
    done = archive(spark, topics=list(fed), to=tmp_path, source=Fed(fed))
    assert [(each.topic[-1], each.rows) for each in done.topics] == [("0", 1), ("1", 2), ("2", 3)]
    assert (done.rows, done.partitions) == (6, 1)
    fed["p-partition-1"].append({"topic": f"{FULL}p", "partition": 1, "position": 0})
    with pytest.raises(Corrupt, match="partition 1, returned positions 0 to 0; 2 to 2 were asked for"):
        archive(spark, topics=list(fed), to=tmp_path, source=Fed(fed))


def test_a_digest_tells_what_is_missing_and_where(spark: SparkSession) -> None:
    """Spark's own hash passes over NULL, and takes no map for an empty one."""
    rows: list[tuple[Any, ...]] = [
        (b"x", None, {}),
        (None, b"x", {}),
        (b"x", b"", {}),
        (b"x", None, None),
        (b"x", None, {"a": "b", "c": "d"}),
        (b"x", None, {"c": "d", "a": "b"}),
        (b"x", None, {"a": "d", "c": "b"}),
    ]
    frame = spark.createDataFrame(
        [(number, *row) for number, row in enumerate(rows)],
        "n INT, key BINARY, value BINARY, properties MAP<STRING, STRING>",
    )
    found = frame.groupBy("n").agg(*aggregates(["key", "value", "properties"])).orderBy("n").collect()
    digests = [str(Digest.of(row)) for row in found]
    assert digests[4] == digests[5]
    assert len(set(digests)) == 6


def test_a_file_that_is_no_parquet_any_more_is_named(spark: SparkSession, tmp_path: Path) -> None:
    times = [datetime(2026, 11, day, tzinfo=UTC) for day in (15, 16)]
    values = [{"publishTime": time, "value": bytes(range(256)) * 40} for time in times]
    archive(spark, topics=["t"], to=tmp_path, source=Fed({"t": values}))
    file = next(tmp_path.glob("topic=*/date=2026-11-16/*.parquet"))
    whole = file.read_bytes()
    words = f"run 1 cannot be read; restore .*2026-11-16/{file.name} from a copy"
    for keep in (4, 2000):
        file.write_bytes(whole[:keep] + bytes(len(whole) - keep))
        with pytest.raises(Corrupt, match=words):
            verify_archive(spark, tmp_path)


def test_a_server_that_has_the_directory_must_be_named(spark: SparkSession, tmp_path: Path) -> None:
    publish(tmp_path / "data", "t", [b"x"])
    with holdfast.Broker.open(tmp_path / "data"), pytest.raises(Locked, match="give broker"):
        archive(spark, topics=["t"], to=tmp_path / "a", path=str(tmp_path / "data"), subscription="s")


# -- kills --------------------------------------------------------------------------------------------


@pytest.fixture
def drivers(spark: SparkSession) -> Iterator[Drivers]:
    made = Drivers(spark)
    yield made
    made.close()


def test_killed_at_every_step(spark: SparkSession, tmp_path: Path, drivers: Drivers) -> None:
    """One archive through all kills: complete after each, and at the end each message once.

    Before each, the topics get a further schema. I180, I181, I182.
    """
    data, to = tmp_path / "data", tmp_path / "archive"
    sent: dict[str, list[bytes]] = {name: [] for name in TOPICS}
    for number, step in enumerate(pick(test=DISTINCT_STEPS, nightly=STEPS)):
        for name in TOPICS:
            more = [b"%s %d %d" % (name.encode(), number, n) for n in range(20 + number)]
            asyncio.run(TypedTopics(data).fill(name, [schema("Avro", definition((f"f{number}", "int")))], []))
            publish(data, name, more)
            sent[name] += more
        assert drivers.run(step, data, to) == "killed", step
        archive_kill.judge(spark, data, to, sent)
    done = archive(spark, topics=TOPICS, to=to, path=str(data), subscription=SUBSCRIPTION)
    archive_kill.judge(spark, data, to, sent)
    assert {len(known) for known in ArchiveDirectory(to).runs()[-1].schemas.values()} == {number + 1}
    assert read_archive(spark, to).count() == sum(map(len, sent.values()))
    assert [each.acked_to for each in done.topics] == [len(values) for values in sent.values()]
    assert verify_archive(spark, to) == sum(map(len, sent.values()))
    assert spark.read.parquet(str(to)).count() == sum(map(len, sent.values()))


@pytest.mark.parametrize(
    ("mutant", "step"),
    [("advance first", "write"), ("from the beginning", "move"), ("move first", "none")],
)
def test_the_judge_sees_mistakes(
    spark: SparkSession, tmp_path: Path, drivers: Drivers, mutant: str, step: str
) -> None:
    sent = {name: [b"a", b"b"] for name in TOPICS}
    for name, values in sent.items():
        publish(tmp_path / "data", name, values)
    if mutant == "from the beginning":
        assert drivers.run("none", tmp_path / "data", tmp_path / "to") == "ended"
        archive_kill.judge(spark, tmp_path / "data", tmp_path / "to", sent)
    assert drivers.run(step, tmp_path / "data", tmp_path / "to", mutant) == "killed"
    # Runs that overlap would show in any reader, also here.
    seen = Corrupt if mutant == "from the beginning" else AssertionError
    with pytest.raises(seen):
        archive_kill.judge(spark, tmp_path / "data", tmp_path / "to", sent)
