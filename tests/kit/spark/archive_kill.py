"""Run drivers of jobs that get SIGKILL at a step, and check the archive afterwards.

Each driver is a process forked by this script, which has imported everything. It attaches to the Java of the
test's session. A Python driver that dies while Java lives is the worse case, because Java may still write.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.pipeline import archive as archiving
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory
from holdfast.pipeline.jobs.archive_schemas import read_schema
from tests.kit import module_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = (
    "recover",
    "hold",
    "plan",
    "write",
    "half",
    "verify",
    "commit",
    "linked",
    "move",
    "moving",
    "advance",
    "advancing",
    "done",
)
"""Where it dies. Behind the pipeline's own: half written, run's file linked, one file moved, one let go."""
DISTINCT_STEPS = ("write", "half", "commit", "linked", "moving", "advance", "advancing")
"""Of these each leaves another directory behind; what the others leave, one of these leaves, too."""
REPLAY_STEPS = ("plan", "begin", "send", "sending", "sent", "sending", "second")
"""Of a replay: also while Spark sends, and before the second piece."""
DISTINCT_REPLAY_STEPS = ("begin", "sending", "sent", "second")
TOPICS = ("one", "two")
SUBSCRIPTION = "archive"


class Drivers:
    """Starts drivers, one after the other."""

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        told = {
            "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
            "PYSPARK_GATEWAY_SECRET": gateway.gateway_parameters.auth_token,
        }
        self._process = subprocess.Popen(
            module_command(__file__),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | told,
            text=True,
        )

    def run(self, step: str, data: Path, to: Path, mutant: str = "") -> str:
        """`killed`, or what else became of it."""
        return self._ask("archive", step, data, to, mutant)

    def replay(self, step: str, url: str, archive: Path, topic: str, mutant: str = "") -> str:
        """The same of a replay, which has the name of its topic."""
        return self._ask("replay", step, url, archive, topic, mutant)

    def compact(self, step: str, data: Path, to: Path, *topics: str) -> str:
        """The same of a compaction."""
        return self._ask("compact", step, data, to, *topics)

    def measure(self, data: Path, to: Path, *topics: str) -> str:
        """The same of figures, which die while they are written."""
        return self._ask("measure", data, to, *topics)

    def _ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\t".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


def judge(spark: SparkSession, data: Path, to: Path, sent: dict[str, list[bytes]]) -> None:
    """Check the archive: a beginning of each topic, each message once, and only archived entries
    released.
    """
    from holdfast.pipeline.jobs.subscriptions import DirectorySubscriptions

    there = ArchiveDirectory(to)
    found: dict[str, list[bytes]] = {name: [] for name in sent}
    reached = there.positions() if to.exists() else {}
    if reached:
        for row in archiving.read_archive(spark, to).orderBy("topic", "position").collect():
            found[row["topic"].rpartition("/")[2]].append(bytes(row["value"]))
        # A plain reader of Parquet sees the same rows.
        runs = there.runs()
        named = {to / file for run in runs for file in run.files}
        assert set(to.glob("topic=*/date=*/*.parquet")) <= named
        # Schemas belong to runs, as rows do: each version that a run names is whole.
        assert set(to.glob("_schemas/*/*")) <= {to / file for run in runs for file in run.schema_files}
        for run in runs:
            for known in run.schemas.values():
                assert [*known] == [*range(len(known))], f"run {run.number} lacks versions"
                assert all(read_schema(there, run, file) for file in known.values())
    else:
        assert not list(to.glob("topic=*"))
        assert not list(to.glob("_schemas"))
    for name, values in sent.items():
        full = f"persistent://public/default/{name}"
        stop = reached[full].stop if full in reached else 0
        assert found[name] == values[:stop], name
        at = DirectorySubscriptions(str(data)).progress(full, SUBSCRIPTION, create=True, start="earliest")
        assert at.acked_to <= stop, f"{name} is let go of up to {at.acked_to}, and archived up to {stop}"


# -- a driver -----------------------------------------------------------------------------------------


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def attached() -> SparkSession:
    """Return the session of the parent process."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    launch: Any = launch_gateway
    gateway = launch()
    jvm = gateway.jvm
    context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    conf = SparkConf(_jconf=context.getConf())
    return SparkSession(SparkContext(conf=conf, gateway=gateway, jsc=context))


def arm(step: str, to: Path) -> Any:
    """Return the callback for the steps of a run."""

    seen: list[str] = []

    def told(reached: str, words: str = "") -> None:
        seen.append(reached)
        if reached == step or (reached == "verify" and step == "half"):  # at the latest
            die()
        if step == "advancing" and seen.count("advance") == 2:
            die()
        if reached == "write" and step == "half":
            threading.Thread(target=when_half, args=(to,), daemon=True).start()

    link, move = Path.hardlink_to, Path.replace

    def linked(self: Path, target: Any) -> None:
        link(self, target)
        die()

    def moved(self: Path, target: Any) -> Path:
        done = move(self, target)
        if self.suffix == ".parquet":
            die()
        return done

    if step == "linked":
        setattr(Path, "hardlink_to", linked)  # noqa: B010  # no type fits
    if step == "moving":
        setattr(Path, "replace", moved)  # noqa: B010
    return told


def when_half(to: Path) -> None:
    """Something is written, and it is not finished."""
    when_there(to / "_holdfast/staging", "**/*.parquet")


def when_there(directory: Path, pattern: str) -> None:
    while not any(directory.glob(pattern)):
        time.sleep(0.001)
    die()


def break_it(mutant: str, data: str) -> None:
    """A mistake that the judge must see."""
    from holdfast.pipeline.jobs.subscriptions import DirectorySubscriptions

    planned = archiving.plan

    def advance_first(*arguments: Any) -> Any:
        ranges = planned(*arguments)
        holder = DirectorySubscriptions(data)
        for name, reach in ranges.items():
            number = holder.progress(name, SUBSCRIPTION).reset_number
            holder.advance(name, SUBSCRIPTION, reach.stop, number)
        return ranges

    def from_the_beginning(_: Any, there: Any, accept_loss: bool) -> Any:
        return planned({}, there, accept_loss)

    def move_first(self: ArchiveDirectory, run: Any) -> None:
        self.place(run)
        die()

    if mutant == "advance first":
        setattr(archiving, "plan", advance_first)  # noqa: B010
    elif mutant == "from the beginning":
        setattr(archiving, "plan", from_the_beginning)  # noqa: B010
    elif mutant == "move first":
        setattr(ArchiveDirectory, "commit", move_first)  # noqa: B010
    elif mutant:
        raise ValueError(mutant)


def replay(at: str, url: str, to: str, topic: str, mutant: str) -> None:
    """In pieces of four."""
    from holdfast.pipeline import replay as replaying

    if mutant == "another name":  # each life has a name of its own at the broker

        def sink(self: Any) -> str:
            return f"replay-{os.getpid()}"

        setattr(replaying.Plan, "sink", property(sink))  # noqa: B010
    sent: list[str] = []

    def hear(step: str, words: str = "") -> None:
        if step == "send" and at == "sending":
            threading.Thread(target=soon, daemon=True).start()
        if step == at or (step == "sent" and at == "sending"):  # at the latest
            die()
        if step == "send" and sent and at == "second":
            die()
        sent.extend([words] if step == "sent" else [])

    replaying.PIECE_ROWS = 4
    replaying.replay(attached(), archive=to, id=topic, to=topic, broker=url, told=hear)


def soon() -> None:
    """Kill the driver while Spark works, at any step: the result must be right."""
    time.sleep(0.2)
    die()


def drive(step: str, data: str, to: str, mutant: str) -> None:
    break_it(mutant, data)
    spark = attached()
    archiving.archive(
        spark, topics=TOPICS, to=to, path=data, subscription=SUBSCRIPTION, told=arm(step, Path(to))
    )


def compact(step: str, data: str, to: str, *topics: str) -> None:
    from holdfast.pipeline.compact import compact

    compact(attached(), topics=topics, to=to, path=data, told=arm(step, Path(to)))


def measure(data: str, to: str, *topics: str) -> None:
    from holdfast.pipeline.measure import measure

    place = Path(to)
    threading.Thread(target=when_there, args=(place.parent, f".{place.name}.new-*"), daemon=True).start()
    measure(attached(), topics=topics, to=to, path=data)


JOBS: dict[str, Any] = {"archive": drive, "replay": replay, "compact": compact, "measure": measure}


def main() -> None:
    import pyspark.sql.functions  # noqa: F401  # now, not in each driver

    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                job, *words = line.rstrip("\n").split("\t")
                JOBS[job](*words)
            except BaseException as error:
                print(f"failed: {error!r}", flush=True)
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            print("killed", flush=True)
        elif status == 0:
            print("ended", flush=True)


if __name__ == "__main__":
    main()
