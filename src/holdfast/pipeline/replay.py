"""An archive back to a topic: a range of time, a filter, no faster than asked for, and each message once.

A replay has a name. What it is to send is cut into pieces once, and written down in the archive; each piece
is one batch of the sink under that name, which the broker publishes once. So the same replay may be started
again, after a kill or by mistake: what was sent is not sent again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.broker.names import topic_name
from holdfast.errors import Corrupt, Locked, Misuse
from holdfast.pipeline.archive import read_archive
from holdfast.pipeline.archived import INSIDE, ArchiveDirectory
from holdfast.pipeline.inputs import Told, silent
from holdfast.pipeline.words import text_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIECE_ROWS = 200_000
"""What is published at once without a rate."""
PIECE_S = 2.0
"""With a rate: what is due in this time."""
SLICE = 256
"""Positions that are never cut apart."""


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """Positions of a topic: from `start` up to, without, `stop`."""

    topic: str
    partition: int
    start: int
    stop: int


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """What is published at once."""

    rows: int
    cuts: list[Cut]


class Plan(msgspec.Struct, frozen=True):
    """What a replay of this name sends, for good."""

    id: str
    to: str
    """A topic; or, with a star in it, the name of each message's own topic in the star's place."""
    since: str | None
    until: str | None
    where: str | None
    runs: list[str]
    """Of the archive: those that were there when it was planned."""
    pieces: list[Piece]
    unique: str
    """Made with it: another archive may have a replay of the same name, and the broker tells them apart."""

    @property
    def asked(self) -> tuple[str | None, ...]:
        return self.to, self.since, self.until, self.where


@dataclass(frozen=True)
class ReplayReport:
    """What a run of `replay` did."""

    id: str
    archive: str
    to: str
    rows: int
    """Of the replay as a whole."""
    sent: int
    """By this run."""
    before: int
    """By earlier runs of the same name."""
    pieces: int
    seconds: float

    def record(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)

    def table(self) -> str:
        """For people."""
        row = (self.id, self.to, self.rows, self.before, self.sent, self.pieces, f"{self.seconds:.1f} s")
        return "\n".join(text_table(("REPLAY", "TO", "ROWS", "BEFORE", "SENT NOW", "PIECES", "TOOK"), [row]))


def replay(
    spark: SparkSession,
    *,
    archive: str | Path,
    id: str,  # noqa: A002  # what it is
    to: str,
    broker: str,
    token: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    where: str | None = None,
    rate: float | None = None,
    told: Told = silent,
    sleep: Callable[[float], None] = time.sleep,
) -> ReplayReport:
    """Publish archived messages again, in the order of their positions, exactly once per `id`.

    Args:
        spark: a session that knows `format("holdfast")`.
        archive: an archive's directory, or a compacted one.
        id: the replay's name. Another one sends everything again.
        to: the topic; with a star in it, each topic's own name stands there: `*-again`.
        broker: the server's address, such as holdfast://localhost:6650.
        token: who this is, for brokers that want to know.
        since, until: messages that were published from then on, and before then.
        where: which ones, as SQL over the archive's columns: `key = 'smith'`, `producer LIKE 'rig-%'`.
        rate: at most so many messages per second, on average.
        told: hears of every step.
        sleep: how to wait.

    Raises:
        Misuse: a replay of this name was planned otherwise.
    """
    began = time.monotonic()
    if re.fullmatch(r"[\w.-]{1,100}", id) is None:
        raise Misuse(f"{id!r} cannot name a replay: use letters, digits and . - _, up to 100")
    if rate is not None and rate <= 0:
        raise Misuse(f"a rate of {rate}: say how many messages per second, more than 0")
    there = ArchiveDirectory.there(archive)
    told("plan", id)
    asked = (_target(to, "x") and to, _moment(since), _moment(until), where)
    with _alone(there, id):
        plan = _planned(there, id, asked) or _keep(there, _plan(spark, there, id, asked, rate))
        done_file = _folder(there) / f"{id}.done"
        done = int(done_file.read_text()) if done_file.exists() else 0
        rows, sent, starts = _chosen(spark, there, plan), 0, time.monotonic()
        left = sum(each.rows for each in plan.pieces[done:])
        for number, piece in enumerate(plan.pieces[done:], done):
            if rate is not None:
                sleep(max(0.0, starts + sent / rate - time.monotonic()))
            told("send", f"{sent:,} of {left:,}")
            _send(rows, piece, plan, number, broker, token)
            sent += piece.rows
            told("sent", f"piece {number + 1}")
            _write(done_file, str(number + 1).encode())
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


@contextlib.contextmanager
def _alone(there: ArchiveDirectory, ident: str) -> Iterator[None]:
    """Two replays of one name at the same time would plan twice."""
    _folder(there).mkdir(parents=True, exist_ok=True)
    with (_folder(there) / f"{ident}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Locked(f"another process is at the replay {ident}; wait for it, or end it") from None
        yield


# -- the plan -----------------------------------------------------------------------------------------


def _planned(there: ArchiveDirectory, ident: str, asked: tuple[str | None, ...]) -> Plan | None:
    path = _folder(there) / f"{ident}.json"
    if not path.exists():
        return None
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{path} does not decode: {error}; restore it, or choose another name") from error
    if plan.asked != asked:
        raise Misuse(
            f"the replay {ident} was planned with to, since, until, where = {plan.asked}, not {asked}; "
            "choose another name (--id) for another replay"
        )
    return plan


def _plan(
    spark: SparkSession,
    there: ArchiveDirectory,
    ident: str,
    asked: tuple[str | None, ...],
    rate: float | None,
) -> Plan:
    """Cut what is to be sent into pieces: slices of positions, the oldest first.

    Within a topic the slices stay in the order of positions, whatever clocks did: so what a piece has of a
    topic lies between two positions, and nothing of another piece does.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    to, since, until, where = asked
    runs = [run.id for run in there.current()]
    plan = Plan(ident, str(to), since, until, where, runs, [], uuid.uuid4().hex)
    most = PIECE_ROWS if rate is None else max(1, min(PIECE_ROWS, int(rate * PIECE_S)))
    size = max(1, min(SLICE, most // 4))
    start = F.col("position") - F.col("position") % size
    so_far = Window.partitionBy("topic", "partition").orderBy("start")
    slices = (
        _chosen(spark, there, plan)
        .groupBy("topic", "partition", start.alias("start"))
        .agg(F.count("*").alias("rows"), F.min("publishTime").alias("time"))
        .withColumn("time", F.max("time").over(so_far))
        .orderBy("time", "topic", "partition", "start")
    )
    pieces, cuts, rows = list[Piece](), dict[tuple[str, int], Cut](), 0
    for row in slices.toLocalIterator():
        if rows and rows + row["rows"] > most:
            pieces.append(Piece(rows, list(cuts.values())))
            cuts, rows = {}, 0
        where_at, stop = (row["topic"], row["partition"]), row["start"] + size
        began_at = cuts[where_at].start if where_at in cuts else row["start"]
        cuts[where_at] = Cut(*where_at, began_at, stop)
        rows += row["rows"]
    if rows:
        pieces.append(Piece(rows, list(cuts.values())))
    return msgspec.structs.replace(plan, pieces=pieces)


def _keep(there: ArchiveDirectory, plan: Plan) -> Plan:
    _write(_folder(there) / f"{plan.id}.json", msgspec.json.encode(plan))
    return plan


def _write(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())  # after a power cut it may be one piece behind, and not more
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # a plan that was lost would be made anew, and sent again
    finally:
        os.close(folder)


def _folder(there: ArchiveDirectory) -> Path:
    return there.path / INSIDE / "replays"


def _moment(moment: datetime | None) -> str | None:
    if moment is not None and moment.tzinfo is None:
        raise Misuse(f"{moment} has no time zone; say which, such as 2026-11-15T08:30:00Z")
    return None if moment is None else moment.isoformat()


# -- the rows -----------------------------------------------------------------------------------------


def _chosen(spark: SparkSession, there: ArchiveDirectory, plan: Plan) -> DataFrame:
    """The rows of a replay: the same ones, whatever was archived since."""
    from pyspark.sql import functions as F  # noqa: N812

    runs = [run for run in there.runs(any_kind=True) if run.id in plan.runs]
    if len(runs) != len(plan.runs):
        raise Misuse(
            f"{there.path} was compacted again since the replay {plan.id} was planned; choose another "
            "name (--id)"
        )
    rows = read_archive(spark, there.path, runs=runs)
    if plan.since is not None:
        rows = rows.where(F.col("publishTime") >= F.lit(datetime.fromisoformat(plan.since)))
    if plan.until is not None:
        rows = rows.where(F.col("publishTime") < F.lit(datetime.fromisoformat(plan.until)))
    if plan.where is not None:
        rows = rows.withColumn("bytes", F.col("key")).withColumn("key", F.col("key").cast("string"))
        rows = rows.where(F.expr(plan.where)).withColumn("key", F.col("bytes")).drop("bytes")
    return rows


def _send(rows: DataFrame, piece: Piece, plan: Plan, number: int, broker: str, token: str | None) -> None:
    """One piece, as one batch of the sink."""
    from pyspark.sql import functions as F  # noqa: N812

    wanted = F.lit(False)
    for cut in piece.cuts:
        wanted |= (
            (F.col("topic") == cut.topic)
            & (F.col("partition") == cut.partition)
            & (F.col("position") >= cut.start)
            & (F.col("position") < cut.stop)
        )
    # One task: the order of positions is the order of publishing.
    ordered = (
        rows.where(wanted).coalesce(1).sortWithinPartitions("topic", "partition", "position", "messageId")
    )
    writer = (
        ordered.select("value", "key", "properties", "eventTime", _target_column(plan.to).alias("topic"))
        .write.format("holdfast")
        .option("service.url", broker)
        .option("sinkName", f"replay-{plan.id}-{plan.unique}")
        .option("batchId", number)
    )
    (writer if token is None else writer.option("token", token)).mode("append").save()


def _target(to: str, name: str) -> str:
    return topic_name(to.replace("*", name))


def _target_column(to: str) -> Any:
    """`*-again` of persistent://public/default/orders is persistent://public/default/orders-again."""
    from pyspark.sql import functions as F  # noqa: N812

    if "*" not in to:
        return F.lit(_target(to, ""))
    before, after = to.split("*", 1)
    place, name = (
        F.regexp_extract("topic", r"^(.*/)([^/]*)$", 1),
        F.regexp_extract("topic", r"^(.*/)([^/]*)$", 2),
    )
    if "/" in before:
        return F.concat(F.lit(topic_name(before + "x")[:-1]), name, F.lit(after))
    return F.concat(place, F.lit(before), name, F.lit(after))
