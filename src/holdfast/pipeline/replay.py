"""Publish an archive to a topic again: each message once, at most at a rate.

A replay has a name. Its rows are divided into pieces once, and the plan is stored in the archive. Each piece
is one batch of the sink under that name, which the broker publishes once. So a replay may be started again,
after a kill or by mistake: no piece is published twice.

    plan (ID.json) → register at the broker (ID.begun) → add schemas → send piece by piece; the broker counts

Each message has the version that its schema has in the target topic (`jobs/replay_schemas.py`).
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import msgspec
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from holdfast.columns import Address
from holdfast.errors import Corrupt, Misuse
from holdfast.formatting import text_table
from holdfast.names import topic_name
from holdfast.pipeline.archive import partition_of, read_files
from holdfast.pipeline.jobs.archive_directory import INSIDE, ArchiveDirectory, Run, locked, sync
from holdfast.pipeline.jobs.inputs import Told, settings, silent
from holdfast.pipeline.jobs.replay_schemas import Version, add_schemas, target_name, with_versions
from holdfast.pipeline.jobs.summary import Report

PIECE_ROWS = 200_000
"""Rows that are published at once without a rate. Also the rows that are read at once."""
PIECE_S = 2.0
"""With a rate, a piece has the rows of this time."""
SLICE = 256
"""Positions that are always in the same piece."""
ASK_S = 60.0
"""How long an unreachable broker is retried at the start."""
ORDER = ("topic", "partition", "run", "position", "messageId")
"""Run before position: in a topic that was created again, positions begin again."""
FLEETING = (
    r"\b(?:now|curdate|current_\w+|localtimestamp|rand\w*|uuid|shuffle|select)\b|\bunix_timestamp\(\s*\)"
)
"""Words of a condition that select other rows each time, or depend on other tables."""
WRITTEN = (
    "value", "key", "keyEncoding", "orderingKey", "encryption", "properties", "eventTime", "schemaVersion",
)  # fmt: skip


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """Positions of a topic in a run: from `start` up to `stop`, which is excluded."""

    topic: str
    partition: int
    run: int
    start: int
    stop: int


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Rows that are published at once."""

    rows: int
    cuts: list[Cut]
    files: list[int]
    """Indexes into the plan's list of files."""
    mark: int | None = None
    """Exclusive-or of the hashes of its rows' ids; None in plans of former versions."""


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """The arguments of a replay. Under one name they never change."""

    to: str
    since: str | None
    until: str | None
    """A time, or a span before the time of the plan."""
    where: str | None


class Plan(msgspec.Struct, frozen=True):
    """The rows of a replay, fixed under its name."""

    id: str
    asked: Asked
    since: str | None
    until: str | None
    """The resolved times."""
    zone: str
    """The session's time zone, which `where` may use."""
    runs: list[str]
    """Runs of the archive at the time of the plan."""
    files: list[str]
    pieces: list[Piece]
    unique: str
    """Random: by it the broker distinguishes replays of the same name from two archives."""
    versions: list[Version] = []
    """Versions of schemas that the rows name; empty in plans of former versions."""

    @property
    def to(self) -> str:
        """The target topic; a star stands for each message's own topic."""
        return self.asked.to

    @property
    def sink(self) -> str:
        return f"replay-{self.id}-{self.unique}"


@dataclass(frozen=True)
class ReplayReport(Report):
    """The result of a run of `replay`."""

    id: str
    archive: str
    to: str
    rows: int
    """Rows of the whole replay."""
    sent: int
    """Rows that this run sent."""
    before: int
    """Rows that earlier runs of the same name sent."""
    pieces: int
    seconds: float

    def table(self) -> str:
        row = (self.id, self.to, self.rows, self.before, self.sent, self.pieces, f"{self.seconds:.1f} s")
        return "\n".join(
            text_table(("REPLAY", "TO", "ROWS", "BEFORE", "SENT NOW", "PIECES", "TOOK"), [row], grouped=True)
        )


def replay(
    spark: SparkSession,
    *,
    archive: str | Path,
    id: str,  # noqa: A002  # a public name
    to: str,
    broker: str,
    token: str | None = None,
    options: Mapping[str, str] | None = None,
    since: datetime | timedelta | None = None,
    until: datetime | timedelta | None = None,
    where: str | None = None,
    rate: float | None = None,
    told: Told = silent,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplayReport:
    """Publish archived messages again, in the order of their positions, exactly once per `id`.

    Args:
        spark: a session that knows `format("holdfast")`.
        archive: an archive's directory, or a compacted one.
        id: the replay's name. Under another name, all messages are sent again.
        to: the topic; a star stands for each message's own topic: `*-again`.
        broker: the server's address, such as holdfast://localhost:6650, or its HTTP address.
        token: authentication token.
        options: other options of the sink to reach it, such as tlsTrustCertsFilePath.
        since, until: select messages published at or after `since`, and before `until`. A span counts back
            from the time of the plan.
        where: a condition in SQL over the archive's columns: `key = 'smith'`, `producer LIKE 'rig-%'`. It may
            depend only on the row, not on the time of day or on chance.
        rate: limit of messages per second, on average.
        told: called at every step.
        sleep: function that waits.

    Raises:
        Misuse: a replay of this name was planned with other arguments, or began at another broker.
    """
    began = time.monotonic()
    if re.fullmatch(r"[\w.-]{1,100}", id) is None:
        raise Misuse(f"{id!r} cannot name a replay: use letters, digits and . - _, up to 100")
    if rate is not None and rate <= 0:
        raise Misuse(f"rate {rate}: it must be more than 0 messages per second")
    if where is not None:
        require_lasting(where)
    reach = {"token": token, **(options or {})}
    sink = {"service.url": broker, **{name: each for name, each in reach.items() if each is not None}}
    there = ArchiveDirectory.there(archive)
    told("plan", id)
    asked = Asked(target_name(to, "x") and to, _asked(since), _asked(until), where)
    _folder(there).mkdir(parents=True, exist_ok=True)
    with locked(_folder(there) / f"{id}.lock", f"runs the replay {id}"):  # two would plan twice
        plan = _planned(there, id, asked) or _keep(there, _plan(spark, there, id, asked, rate))
        told("begin", id)
        address = Address.beside(sink, "a replay", None if "*" in to else to)
        sink["service.url"] = address.url  # resolved once, not for each piece
        done = _begin(there, plan, address)
        sent, starts = 0, time.monotonic()
        left = sum(each.rows for each in plan.pieces[done:])
        given: dict[Version, int] = {}
        if left and plan.versions:
            told("schemas")
            runs = {run.number: run for run in _runs(there, plan).values()}
            with address.client(ASK_S) as client:
                given = add_schemas(client, there, runs, plan.versions, plan.to)
        with settings(spark, {"spark.sql.session.timeZone": plan.zone}):
            for number, piece, rows in _sections(spark, there, plan, done, given):
                if rate is not None:
                    sleep(max(0.0, starts + sent / rate - time.monotonic()))
                told("send", f"{sent:,} of {left:,}")
                _send(rows, plan, number, sink)
                sent += piece.rows
                told("sent", f"piece {number + 1}")
    return ReplayReport(
        id=id,
        archive=str(there.path),
        to=to,
        rows=sum(piece.rows for piece in plan.pieces),
        sent=sent,
        before=sum(piece.rows for piece in plan.pieces[:done]),
        pieces=len(plan.pieces),
        seconds=time.monotonic() - began,
    )


def _begin(there: ArchiveDirectory, plan: Plan, broker: Address) -> int:
    """Return how many pieces the broker has.

    The broker stores the replay's name before the first piece. So another broker is recognised (I185).

    Raises:
        Misuse: the replay began at another broker.
    """
    begun = _folder(there) / f"{plan.id}.begun"
    with broker.client(ASK_S) as client:
        new, reached = client.sink_commit_at(f"batch/{plan.sink}", 0, [])
    if new and begun.exists():
        raise Misuse(
            f"no record of the replay {plan.id} at {broker.url}: another broker, a different role, a "
            "restored backup, or an expired record. Continue at the broker where the replay began, "
            "or choose another name (--id)"
        )
    if not begun.exists():
        _write(begun, b"")
    return reached


# -- the plan -----------------------------------------------------------------------------------------


def _planned(there: ArchiveDirectory, ident: str, asked: Asked) -> Plan | None:
    path = _folder(there) / f"{ident}.json"
    if not path.exists():
        return None
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{path} does not decode: {error}; restore it, or choose another name") from error
    if plan.asked != asked:
        raise Misuse(
            f"the replay {ident} was planned as {plan.asked}, and is now {asked}; choose another name (--id) "
            "for another replay"
        )
    return plan


def _plan(spark: SparkSession, there: ArchiveDirectory, ident: str, asked: Asked, rate: float | None) -> Plan:
    """Divide the rows into pieces: slices of positions, the oldest first.

    Within a topic the slices stay in the order of positions, also where clocks jumped. So the rows that a
    piece has of a topic's run lie between two positions, and rows of other pieces do not.
    """
    runs, now = there.current(), datetime.now(UTC)
    plan = Plan(
        id=ident,
        asked=asked,
        since=_resolved(asked.since, now),
        until=_resolved(asked.until, now),
        zone=str(spark.conf.get("spark.sql.session.timeZone")),
        runs=[run.id for run in runs],
        files=[file for run in runs for file in run.files],
        pieces=[],
        unique=uuid.uuid4().hex,
    )
    most = PIECE_ROWS if rate is None else max(1, min(PIECE_ROWS, int(rate * PIECE_S)))
    size = max(1, min(SLICE, most // 4))
    start = F.col("position") - F.col("position") % size
    so_far = Window.partitionBy("topic", "partition").orderBy("run", "start")
    slices = (
        _chosen(spark, there, plan, [(run, file) for run in runs for file in run.files])
        .groupBy("topic", "partition", "run", start.alias("start"))
        .agg(
            *_counted(),
            F.min("publishTime").alias("time"),
            F.collect_set("schemaVersion").alias("versions"),
            F.collect_set(F.struct("date", "file")).alias("files"),
        )
        .withColumn("time", F.max("time").over(so_far))
        .orderBy("time", "topic", "partition", "run", "start")
    )
    numbers = {(*partition_of(Path(file)), Path(file).name): at for at, file in enumerate(plan.files)}
    pieces, cuts, files, rows, mark = list[Piece](), dict[tuple[str, int, int], Cut](), set[int](), 0, 0
    named = set[Version]()
    for row in slices.toLocalIterator():
        if rows and rows + row["rows"] > most:
            pieces.append(Piece(rows, list(cuts.values()), sorted(files), mark))
            cuts, files, rows, mark = {}, set(), 0, 0
        place = (row["topic"], row["partition"], row["run"])
        began_at = cuts[place].start if place in cuts else row["start"]
        cuts[place] = Cut(*place, began_at, row["start"] + size)
        files |= {numbers[row["topic"], each["date"].isoformat(), each["file"]] for each in row["files"]}
        named |= {Version(row["topic"], row["run"], each) for each in row["versions"]}
        rows, mark = rows + row["rows"], mark ^ row["mark"]
    if rows:
        pieces.append(Piece(rows, list(cuts.values()), sorted(files), mark))
    return msgspec.structs.replace(plan, pieces=pieces, versions=sorted(named))


def _keep(there: ArchiveDirectory, plan: Plan) -> Plan:
    _write(_folder(there) / f"{plan.id}.json", msgspec.json.encode(plan))
    return plan


def _write(path: Path, data: bytes) -> None:
    """Write a file durably: a replay whose plan is lost would send rows twice."""
    new = path.with_suffix(".new")
    new.write_bytes(data)
    sync(new)
    new.replace(path)
    sync(path.parent)


def _folder(there: ArchiveDirectory) -> Path:
    return there.path / INSIDE / "replays"


def require_lasting(where: str) -> None:
    """Refuse a condition that clearly does not depend on the row alone.

    A condition that is not recognised here ends the replay when its rows change (`Piece.mark`).

    Raises:
        Misuse: it depends on the time of day, on chance or on another table.
    """
    code = re.sub(r"'(?:[^'\\]|\\.)*'|/\*.*?\*/|--[^\n]*", " ", where, flags=re.DOTALL)
    if found := re.search(FLEETING, code, re.IGNORECASE):
        raise Misuse(
            f"the condition {where!r} has {found[0]!r}, which selects other rows each time; a replay that "
            "was killed continues with the same rows: write the value itself"
        )


def _asked(moment: datetime | timedelta | None) -> str | None:
    """Write a time as the plan keeps it. A span stays a span."""
    if isinstance(moment, timedelta):
        return f"-{moment.total_seconds()}s"
    if moment is not None and moment.tzinfo is None:
        raise Misuse(f"{moment} has no time zone; say which, such as 2026-11-15T08:30:00Z")
    return None if moment is None else moment.astimezone(UTC).isoformat()


def _resolved(asked: str | None, now: datetime) -> str | None:
    """Resolve a span to a time."""
    if asked is None or not asked.startswith("-"):
        return asked
    return (now - timedelta(seconds=float(asked[1:-1]))).isoformat()


# -- the rows -----------------------------------------------------------------------------------------


def _chosen(
    spark: SparkSession, there: ArchiveDirectory, plan: Plan, files: Sequence[tuple[Run, str]]
) -> DataFrame:
    """Select the rows of a replay in these files, with their run's number."""
    numbers = sorted({(Path(file).name, run.number) for run, file in files})
    runs = spark.createDataFrame(numbers, "file STRING, run INT")
    rows = read_files(spark, there, files, named=True)
    if plan.since is not None:
        rows = rows.where(F.col("publishTime") >= F.lit(datetime.fromisoformat(plan.since)))
    if plan.until is not None:
        rows = rows.where(F.col("publishTime") < F.lit(datetime.fromisoformat(plan.until)))
    if (where := plan.asked.where) is not None:
        rows = rows.withColumn("bytes", F.col("key")).withColumn("key", F.col("key").cast("string"))
        rows = rows.where(F.expr(where)).withColumn("key", F.col("bytes")).drop("bytes")
    return rows.join(F.broadcast(runs), "file")


def _sections(
    spark: SparkSession, there: ArchiveDirectory, plan: Plan, done: int, given: Mapping[Version, int]
) -> Iterator[tuple[int, Piece, DataFrame]]:
    """Yield the remaining pieces, each with its rows in order.

    Small pieces are read together and kept on disk meanwhile. So the archive is read about once.
    """
    while done < len(plan.pieces):
        some = [plan.pieces[done]]
        while done + len(some) < len(plan.pieces):
            some.append(plan.pieces[done + len(some)])
            if sum(piece.rows for piece in some) > PIECE_ROWS:
                some.pop()
                break
        owner = _owners(there, plan)
        names = [plan.files[at] for at in sorted({at for piece in some for at in piece.files})]
        rows = _chosen(spark, there, plan, [(owner[name], name) for name in names])
        rows = with_versions(spark, rows, given)
        # One task: the order of positions is the order of publishing.
        rows = rows.where(_within(some)).coalesce(1).sortWithinPartitions(*ORDER)
        rows = rows.persist(StorageLevel.DISK_ONLY)
        try:
            found, wanted = rows.agg(*_counted()).first(), sum(piece.rows for piece in some)
            assert found is not None
            marks = [piece.mark for piece in some if piece.mark is not None]
            if found["rows"] != wanted or (marks and (found["mark"] or 0) != reduce(xor, marks)):
                raise Corrupt(
                    f"{there.path}: the {wanted} rows that the replay {plan.id} is to send next are not "
                    f"those of the plan. {found['rows']} rows match now, and the piece was not sent. Restore "
                    f"{', '.join(names)} from a copy. If the condition depends on the time, write the time "
                    "itself and choose another name (--id)"
                )
            for piece in some:
                yield done, piece, rows if len(some) == 1 else rows.where(_within([piece]))
                done += 1
        finally:
            rows.unpersist()


def _counted() -> list[Column]:
    """Count rows, and mark which ones they are (`Piece.mark`)."""
    place = F.xxhash64("topic", "partition", "run", "position", "messageId")
    return [F.count("*").alias("rows"), F.bit_xor(place).alias("mark")]


def _owners(there: ArchiveDirectory, plan: Plan) -> dict[str, Run]:
    """Map each file to its run, for each section: another process may compact meanwhile."""
    return {file: run for run in _runs(there, plan).values() for file in run.files}


def _runs(there: ArchiveDirectory, plan: Plan) -> dict[str, Run]:
    """Return the runs of the plan by their ids.

    Raises:
        Misuse: runs of the plan no longer exist.
    """
    runs = {run.id: run for run in there.runs(any_kind=True)}
    if not runs.keys() >= set(plan.runs):
        raise Misuse(
            f"{there.path} was compacted again since the replay {plan.id} was planned; choose another "
            "name (--id)"
        )
    return {ident: runs[ident] for ident in plan.runs}


def _within(pieces: Sequence[Piece]) -> Column:
    bounds: dict[tuple[str, int, int], tuple[int, int]] = {}
    for cut in (cut for piece in pieces for cut in piece.cuts):
        low, high = bounds.get((cut.topic, cut.partition, cut.run), (cut.start, cut.stop))
        bounds[cut.topic, cut.partition, cut.run] = min(low, cut.start), max(high, cut.stop)
    wanted = F.lit(False)
    for (topic, partition, run), (start, stop) in bounds.items():
        position = F.col("position")
        wanted |= (
            (F.col("topic") == topic)
            & (F.col("partition") == partition)
            & (F.col("run") == run)
            & (position >= start)
            & (position < stop)
        )
    return wanted


def _send(rows: DataFrame, plan: Plan, number: int, sink: Mapping[str, str]) -> None:
    """Send a piece as one batch of the sink; batch 0 began the replay."""
    writer = rows.select(*WRITTEN, _target_column(plan.to).alias("topic")).write.format("holdfast")
    writer = writer.options(**sink).option("sinkName", plan.sink).option("batchId", number + 1)
    writer.mode("append").save()


def _target_column(to: str) -> Any:
    """Map each topic to its target: `*-again` maps `a/b/orders` to `a/b/orders-again`."""
    if "*" not in to:
        return F.lit(target_name(to, ""))
    before, after = to.split("*", 1)
    place, name = (
        F.regexp_extract("topic", r"^(.*/)([^/]*)$", 1),
        F.regexp_extract("topic", r"^(.*/)([^/]*)$", 2),
    )
    if "/" in before:
        return F.concat(F.lit(topic_name(before + "x")[:-1]), name, F.lit(after))
    return F.concat(place, F.lit(before), name, F.lit(after))
