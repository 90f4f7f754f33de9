"""Test replays through the real sink to a real server: each message once, despite faults."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast._core import encode_messages
from holdfast.cli import main
from holdfast.client import Client
from holdfast.columns.files import FilePlace
from holdfast.errors import Corrupt, IncompatibleSchema, Locked, Misuse
from holdfast.pipeline import replay as replaying
from holdfast.pipeline.archive import KEPT, archive, read_archive
from holdfast.pipeline.compact import compact
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, locked
from holdfast.pipeline.jobs.inputs import Origin, silent
from holdfast.pipeline.replay import replay
from holdfast.pipeline.sink.rows import null_entry
from tests.kit import KIT, module_command
from tests.kit.certificates import write_key, write_public_key
from tests.kit.pipeline.typed_world import TypedTopics, avro, definition, schema
from tests.kit.served import Served, served
from tests.kit.slices import pick
from tests.kit.spark.archive_kill import DISTINCT_REPLAY_STEPS, REPLAY_STEPS, Drivers
from tests.kit.spark.pipeline_world import Fed, publish, topic_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)  # for Spark on a busy machine

BEGAN = datetime(2026, 11, 15, 12, tzinfo=UTC)


class Clock:
    """A clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now, self.waits = 100.0, list[float]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


class Killed(BaseException):
    """As good as a kill: nothing of the replay runs behind it."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay") / "data"


@pytest.fixture(scope="module")
def server(data: Path) -> Iterator[Served]:
    served = Served("--data", str(data), "--port", "0", "--http-port", "0")
    yield served
    served.close()


def kept(spark: SparkSession, to: Path, count: int = 30) -> Path:
    rows = [
        {
            "key": b"k%d" % (n % 3),
            "value": b"%d" % n,
            "properties": {"n": str(n)},
            "eventTime": BEGAN,
            "publishTime": BEGAN + timedelta(seconds=n),
        }
        for n in range(count)
    ]
    archive(spark, topics=["one", "two"], to=to, source=Fed({"one": rows, "two": rows[:3]}))
    return to


def values(spark: SparkSession, data: Path, topic: str) -> list[bytes]:
    rows = topic_rows(spark, data, topic).orderBy("position", "messageId.batchIndex").collect()
    return [bytes(row["value"]) for row in rows]


def there(spark: SparkSession, data: Path, topic: str) -> list[bytes]:
    """The same; nothing, as long as there is no such topic."""
    known = f"persistent://public/default/{topic}" in FilePlace(str(data)).topics()
    return values(spark, data, topic) if known else []


def test_a_range_and_a_filter_in_order_once(
    spark: SparkSession, tmp_path: Path, data: Path, server: Served
) -> None:
    to = kept(spark, tmp_path / "a")
    asked = {
        "archive": to,
        "id": "first",
        "to": "again-*",
        "broker": server.url,
        "since": BEGAN + timedelta(seconds=1),
        "until": BEGAN + timedelta(seconds=20),
        "where": "key = 'k1'",
    }
    done = replay(spark, **asked)  # type: ignore[arg-type]
    assert (done.rows, done.sent, done.before) == (8, 8, 0)
    wanted = [b"%d" % n for n in range(1, 20, 3)]
    assert values(spark, data, "again-one") == wanted
    assert values(spark, data, "again-two") == [b"1"]
    row = topic_rows(spark, data, "again-one").orderBy("position").first()
    assert row is not None
    assert (bytes(row["key"]), row["properties"]) == (b"k1", {"n": "1"})
    assert row["eventTime"].replace(tzinfo=UTC) == BEGAN
    # Again, by mistake; after more was archived; and as another replay under the same name.
    assert replay(spark, **asked).sent == 0  # type: ignore[arg-type]
    assert values(spark, data, "again-one") == wanted
    with pytest.raises(Misuse, match="choose another name"):
        replay(spark, **{**asked, "where": None})  # type: ignore[arg-type]
    # Another archive may use the same name: it is another replay.
    other = {**asked, "archive": kept(spark, tmp_path / "b"), "to": "third-*"}
    assert replay(spark, **other).sent == 8  # type: ignore[arg-type]
    assert values(spark, data, "third-one") == wanted


def test_messages_keep_their_schemas(spark: SparkSession, tmp_path: Path, data: Path, server: Served) -> None:
    """Each has the version of its schema in the target, and becomes columns there."""
    source, to = tmp_path / "data", tmp_path / "archive"
    first = definition(("name", "string"), ("count", "int"))
    second = definition(("name", "string"), ("count", "int"), ("colour", ["null", "string"]))
    second["fields"][-1]["default"] = None
    made = [
        (avro(first, {"name": "nails", "count": 7}), 0),
        (avro(second, {"name": "rope", "count": 1, "colour": "grey"}), 1),
        (b"untyped", None),
        (avro(first, {"name": "tar", "count": 2}), 0),
        (b"\x00", 9),  # its topic has no such version
    ]
    asyncio.run(TypedTopics(source).fill("typed", [schema("Avro", first), schema("Avro", second)], made))
    archive(spark, topics=["typed"], to=to, path=str(source))

    def versions(topic: str) -> list[int | None]:
        reader = spark.read.format("holdfast").option("path", str(data)).option("topic", topic)
        rows = reader.schema("schemaVersion BIGINT, position BIGINT").load().orderBy("position")
        return [row["schemaVersion"] for row in rows.collect()]

    asked: dict[str, Any] = {"archive": to, "broker": server.url}
    assert replay(spark, **asked, id="new", to="*-again").sent == 5
    assert versions("typed-again") == [0, 1, None, 0, None]
    # Where the schemas have other numbers already.
    with Client(server.url) as client:
        assert client.add_schema("numbered", schema("Avro", second).SerializeToString()) == 0
        assert client.add_schema("taken", schema("String", None).SerializeToString()) == 0
    told: list[str] = []

    def killed(step: str, words: str = "") -> None:
        told.append(step)
        if step == "sent":
            raise Killed

    with pytest.raises(Killed):
        replay(spark, **asked, id="numbered", to="numbered", rate=0.5, told=killed, sleep=lambda _: None)
    assert told.index("schemas") < told.index("send")
    assert replay(spark, **asked, id="numbered", to="numbered", rate=0.5, sleep=lambda _: None).before > 0
    assert versions("numbered") == [1, 0, None, 1, None]
    typed = spark.read.format("holdfast").option("path", str(data)).option("topic", "numbered")
    rows = typed.option("valueFormat", "schema").option("mode", "permissive").load().orderBy("position")
    assert [row["value"] and row["value"].asDict() for row in rows.collect()] == [
        {"name": "nails", "count": 7},
        {"name": "rope", "count": 1},
        None,
        {"name": "tar", "count": 2},
        None,
    ], "the newest schema there is the first one here"
    # Where they do not fit nothing is sent.
    words = r"version 0 of .*/typed does not fit .*/taken: .*holdfast schema strategy"
    with pytest.raises(IncompatibleSchema, match=words):
        replay(spark, **asked, id="taken", to="taken")
    assert there(spark, data, "taken") == []


def test_in_pieces_no_faster_than_asked(
    spark: SparkSession, tmp_path: Path, data: Path, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I183: with a rate it is sent in pieces; it continues after the last one."""
    to, clock, sent = kept(spark, tmp_path / "a", 12), Clock(), list[str]()
    monkeypatch.setattr("holdfast.pipeline.replay.time", clock)

    def told(step: str, words: str = "") -> None:
        sent.extend([words] if step == "sent" else [])
        if len(sent) == 2:
            raise Killed

    asked: dict[str, Any] = {"archive": to, "id": "pieces", "to": "pieces", "broker": server.url}
    asked |= {"where": "topic LIKE '%/one'", "rate": 2.0, "sleep": clock.sleep}
    with pytest.raises(Killed):
        replay(spark, **asked, told=told)
    assert (replay(spark, **asked).sent, replay(spark, **asked).sent) == (4, 0)
    assert values(spark, data, "pieces") == [b"%d" % n for n in range(12)]
    assert clock.waits == [0.0, 2.0, 0.0]  # four are due in two seconds


def test_killed_by_sigkill_and_gone_on(
    spark: SparkSession, tmp_path: Path, data: Path, server: Served
) -> None:
    """I183: one replay through kills; after each, a beginning is published, each message once.

    Spark lives on when the driver dies, and may publish the piece that it was at.
    """
    to, drivers = kept(spark, tmp_path / "a", 30), Drivers(spark)
    expected = [b"%d" % n for n in range(30) for _ in range(1 if n > 2 else 2)]
    try:
        for step in pick(test=DISTINCT_REPLAY_STEPS, nightly=REPLAY_STEPS):
            assert drivers.replay(step, server.url, to, "killed") == "killed", step
            found = there(spark, data, "killed")
            assert sorted(found) == sorted(expected[: len(found)]), step
        assert 0 < len(there(spark, data, "killed")) < 33
        assert drivers.replay("none", server.url, to, "killed") == "ended"
    finally:
        drivers.close()
    assert sorted(values(spark, data, "killed")) == sorted(expected)
    again = replay(spark, archive=to, id="killed", to="killed", broker=server.url)
    assert (again.sent, again.rows, again.before) == (0, 33, 33)


def test_the_judge_of_replays_sees_mistakes(
    spark: SparkSession, tmp_path: Path, data: Path, server: Served
) -> None:
    """A replay that the broker does not know again sends twice."""
    to, drivers = kept(spark, tmp_path / "a", 4), Drivers(spark)
    try:
        assert drivers.replay("sent", server.url, to, "twice", "another name") == "killed"
        assert "no record of the replay" in drivers.replay("none", server.url, to, "twice", "another name")
        (to / "_holdfast/replays/twice.begun").unlink()
        assert drivers.replay("none", server.url, to, "twice", "another name") == "ended"
    finally:
        drivers.close()
    assert len(values(spark, data, "twice")) > 7


def test_another_broker_than_before(
    spark: SparkSession, tmp_path: Path, data: Path, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I185: a replay cannot continue at another broker."""
    monkeypatch.setattr("holdfast.pipeline.replay.PIECE_ROWS", 4)
    to = kept(spark, tmp_path / "a", 6)
    asked: dict[str, Any] = {"archive": to, "id": "moved", "to": "moved"}

    def told(step: str, words: str = "") -> None:
        if step == "sent":
            raise Killed

    with pytest.raises(Killed):
        replay(spark, **asked, broker=server.url, told=told)
    with served(tmp_path / "other") as other:
        with pytest.raises(Misuse, match=r"no record of the replay .*: another broker"):
            replay(spark, **asked, broker=other.url)
        assert FilePlace(str(tmp_path / "other")).topics() == []
    assert replay(spark, **asked, broker=server.url).rows == 9
    assert len(values(spark, data, "moved")) == 9


def test_a_topic_that_was_made_anew_and_each_file_read_once(
    spark: SparkSession, tmp_path: Path, data: Path, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions that were used twice are two messages; a piece reads only its own files."""
    monkeypatch.setattr("holdfast.pipeline.replay.PIECE_ROWS", 4)
    reads: list[set[str]] = []
    real = replaying.read_files  # type: ignore[attr-defined]

    def read_files(spark: Any, there: Any, files: Any, named: bool = False) -> Any:
        reads.append({file for _, file in files})
        return real(spark, there, files, named)

    monkeypatch.setattr(replaying, "read_files", read_files)
    to = tmp_path / "a"
    lives = [("aa", 0, 8), ("bb", 8, 12), ("bb", 8, 16)]
    for incarnation, start, stop in lives:
        rows = [{"value": b"%d" % n, "publishTime": BEGAN} for n in range(start, stop)]
        archive(spark, topics=["one"], to=to, source=Fed({"one": rows}, incarnation=incarnation))
    done = replay(spark, archive=to, id="anew", to="anew", broker=server.url)
    assert (done.rows, done.pieces) == (16, 4)
    assert values(spark, data, "anew") == [b"%d" % n for n in range(16)]
    files = {file for run in ArchiveDirectory(to).runs() for file in run.files}
    assert reads[0] == files
    assert sum(map(len, reads[1:])) <= len(files) + 2  # but for those that a piece begins or ends in


def test_rows_that_are_no_longer_there_are_not_called_sent(
    spark: SparkSession, tmp_path: Path, data: Path, server: Served
) -> None:
    to = kept(spark, tmp_path / "a", 9)
    asked: dict[str, Any] = {"archive": to, "id": "fewer", "to": "fewer", "broker": server.url}

    def told(step: str, words: str = "") -> None:
        if step == "begin":
            raise Killed

    with pytest.raises(Killed):
        replay(spark, **asked, told=told)
    plan = to / "_holdfast" / "replays" / "fewer.json"
    text = plan.read_text()
    mark = json.loads(text)["pieces"][0][3]
    plan.write_text(text.replace(str(mark), str(mark ^ 1)))  # as many rows, and others
    with pytest.raises(Corrupt, match=r"are not those of the plan\. 12 rows match now"):
        replay(spark, **asked)
    plan.write_text(text)
    whole = kept(spark, tmp_path / "b", 8)  # in the place of a file, another with fewer rows
    for run, other in zip(ArchiveDirectory(to).runs(), ArchiveDirectory(whole).runs(), strict=True):
        for part, less in zip(run.parts, other.parts, strict=True):
            for file in part.files:
                (to / file).with_name(f".{Path(file).name}.crc").unlink()
                (to / file).write_bytes((whole / less.files[0]).read_bytes())
    with pytest.raises(
        Corrupt, match=r"the 12 rows that the replay fewer is to send next are not those of the plan"
    ):
        replay(spark, **asked)
    assert there(spark, data, "fewer") == []


def test_compacted_again_while_it_is_replayed(
    spark: SparkSession, tmp_path: Path, server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked behind every section: what is read next may be gone."""
    monkeypatch.setattr("holdfast.pipeline.replay.PIECE_ROWS", 4)
    rows = [{"key": b"%d" % n, "value": b"%d" % n, "publishTime": BEGAN} for n in range(9)]
    to = tmp_path / "c"
    compact(spark, topics=["one"], to=to, source=Fed({"one": rows[:8]}))

    def told(step: str, words: str = "") -> None:
        if (step, words) == ("sent", "piece 1"):
            compact(spark, topics=["one"], to=to, source=Fed({"one": rows}))

    with pytest.raises(Misuse, match="was compacted again since the replay behind"):
        replay(spark, archive=to, id="behind", to="behind", broker=server.url, told=told)


def test_the_command(
    spark: SparkSession, tmp_path: Path, data: Path, server: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    to = kept(spark, tmp_path / "a", 6)
    since = (datetime.now(UTC) - BEGAN).days + 2
    command = ["pipeline", "replay", str(to), "--id", "c", "--to", "*-command", "--broker", server.url]
    command += [f"--since=-{since}d", "--where", "key LIKE 'k%' AND key <> 'k2'"]
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    told = json.loads(shown.out)
    assert (told["rows"], told["sent"], told["before"], told["pieces"]) == (6, 6, 0, 1)
    assert values(spark, data, "one-command") == [b"0", b"1", b"3", b"4"]
    # The same words again are the same replay, though `since` is another time by now.
    assert main([*command, "--rate", "1000"]) == 0
    shown = capsys.readouterr()
    assert "SENT NOW" in shown.out
    assert shown.out.split()[-8:-3] == ["c", "*-command", "6", "6", "0"]
    assert values(spark, data, "one-command") == [b"0", b"1", b"3", b"4"]
    assert main([*command[:-1], "key > 'k2'"]) == 1
    assert "planned as" in capsys.readouterr().err


def test_a_token_and_certificates_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By `archive` with a directory and a broker, too: it holds the subscription there."""
    given: list[dict[str, Any]] = []

    def shown(options: dict[str, Any], why: str) -> Any:
        given.append(options)
        raise Killed

    monkeypatch.setattr("holdfast.columns.address.Address.of", shown)
    monkeypatch.setattr("holdfast.cli.pipeline.spark_for", lambda _: contextlib.nullcontext((None, silent)))
    monkeypatch.setenv("HOLDFAST_TOKEN", "secret")
    publish(tmp_path / "data", "t", [b"x"])
    command = ["archive", "t", "--data", str(tmp_path / "data"), "--to", str(tmp_path / "a")]
    command += ["--subscription", "s", "--broker", "holdfast+ssl://h:1", "--trust", "ca.pem"]
    with pytest.raises(Killed):
        main(["pipeline", *command])
    wanted = {"token": "secret", "tlsTrustCertsFilePath": "ca.pem", "service.url": "holdfast+ssl://h:1"}
    assert given == [wanted]
    assert Origin(url="https://h", token="t", more={"tlsTrustCertsFilePath": "ca"}).options() == {
        "service.url": "https://h",
        "token": "t",
        "tlsTrustCertsFilePath": "ca",
    }


def test_what_a_client_reads_again_is_what_it_was(spark: SparkSession, tmp_path: Path, keys: Path) -> None:
    """I184: all kinds of the official client's messages, archived in two runs, and replayed."""
    data, to = tmp_path / "data", tmp_path / "a"
    settings = ["--set", "limits.message_bytes=65536", "--set", "broker.roll_entries=10"]
    with served(data, *settings) as server:
        run_client("publish", server, "orders", keys)
        asked: dict[str, Any] = {"to": to, "path": str(data), "broker": server.url, "subscription": "s"}
        with Client(server.url) as client:
            client.progress("orders", "keep", create=True, start="earliest")
            first = archive(spark, topics=["orders"], **asked)
            entries = [
                null_entry("p", 0, 1, b"\x00\xff", {"a": "b"}, 5, b"order"),
                null_entry("p", 1, 1, None, None, 0),
                *encode_messages([b"bytes"], "p", 2, 1, key=b"\xfe"),
                *encode_messages([b""], "p", 3, 1, key=b""),
            ]
            stage = client.stage()
            stage.append_entries("orders", entries)
            client.sink_commit("test", 1, [stage.close()])
            second = archive(spark, topics=["orders"], **asked)
            before = run_client("read", server, "orders", keys)
            end = client.progress("orders", "s").acked_to
            client.advance("orders", "keep", end, 0)
        assert (second.rows, end) == (4, second.topics[0].stop)
        done = replay(spark, archive=to, id="kinds", to="*-again", broker=server.url)
        assert done.sent == first.rows + 4
        after = run_client("read", server, "orders-again", keys)
    assert len(before) == 9 + 6 * 5 + 2 * 3 + 4
    assert after == before
    assert [row["null"] for row in after[-4:]] == [True, True, False, False]
    kinds = [name for name in KEPT if name not in ("topic", "messageId", "publishTime", "producer")]
    kinds = [name for name in kinds if name not in ("sequenceId", "position", "storedTime", "encryption")]
    frames = [
        read_archive(spark, to).orderBy("position", "messageId.batchIndex"),
        Origin(str(data)).messages(spark, ["orders-again"], columns=list(KEPT)).orderBy("position"),
    ]
    old, new = ([row.asDict() for row in frame.select(*kinds).collect()] for frame in frames)
    assert new == old


def run_client(verb: str, server: Served, topic: str, keys: Path) -> list[dict[str, Any]]:
    command = [*module_command(KIT / "spark/replay_client.py"), verb, server.url, topic, str(keys)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    from cryptography.hazmat.primitives.asymmetric import rsa

    folder = tmp_path / "keys"
    folder.mkdir()
    pair = rsa.generate_private_key(65537, 2048)
    write_key(folder / "private.pem", pair)
    write_public_key(folder / "public.pem", pair)
    return folder


def test_an_archive_over_the_network(spark: SparkSession, tmp_path: Path, data: Path, server: Served) -> None:
    """Neither the directory nor its files: reads by HTTP address, which knows the subscription's, too."""
    with Client(server.url) as client:
        stage = client.stage()
        stage.append("far", [b"a", b"b", b"c"])
        client.sink_commit("test", 1, [stage.close()])
        done = archive(
            spark,
            topics=["far"],
            to=tmp_path,
            url=server.http_url,
            subscription="s",
        )
        assert client.progress("far", "s").acked_to == 3
    assert [(each.rows, each.acked_to) for each in done.topics] == [(3, 3)]
    assert [bytes(row["value"]) for row in read_archive(spark, tmp_path).orderBy("position").collect()] == [
        b"a",
        b"b",
        b"c",
    ]


def test_what_cannot_be_replayed(spark: SparkSession, tmp_path: Path) -> None:
    to = kept(spark, tmp_path / "a", 3)
    asked = {"archive": to, "to": "t", "broker": "holdfast://127.0.0.1:1"}
    for wrong, words in (
        ({"id": "a/b"}, "cannot name a replay"),
        ({"id": "x", "rate": 0.0}, "more than 0"),
        ({"id": "x", "to": "a/b"}, "not the name of a topic"),
        ({"id": "x", "to": "a*b*c"}, "more than one star"),
        ({"id": "x", "since": datetime(2026, 11, 15)}, "no time zone"),
    ):
        with pytest.raises(Misuse, match=words):
            replay(spark, **{**asked, **wrong})  # type: ignore[arg-type]
    lock = to / "_holdfast/replays/x.lock"
    lock.parent.mkdir(exist_ok=True)
    with locked(lock, "runs it"), pytest.raises(Locked, match="another process"):
        replay(spark, **asked, id="x")  # type: ignore[arg-type]
    (to / "_holdfast/replays/x.json").write_text("{")
    with pytest.raises(Corrupt, match="does not decode"):
        replay(spark, **asked, id="x")  # type: ignore[arg-type]
