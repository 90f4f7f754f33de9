"""Give the target topics of a replay their schemas, and each message its version there.

| the archive has                       | the message gets                                             |
|---------------------------------------|--------------------------------------------------------------|
| a version and its definition          | the version of the same definition in the target             |
| a version without a definition        | no version: its topic did not have it either                  |
| no version                            | no version                                                   |
| any, and the target is an exchange    | no version: an exchange has no schemas                        |

The schemas of a topic are added in their order, up to the last that a message names. So each one is compared
with those before it, as it once was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from holdfast.client import Client
from holdfast.errors import IncompatibleSchema, Misuse
from holdfast.names import topic_name
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Run
from holdfast.pipeline.jobs.archive_schemas import read_schema


class Version(NamedTuple):
    """A version of a schema that rows of a run name."""

    topic: str
    run: int
    version: int


def add_schemas(
    client: Client, there: ArchiveDirectory, runs: Mapping[int, Run], named: Sequence[Version], to: str
) -> dict[Version, int]:
    """Add the schemas of the rows to their target topics, and return their versions there.

    Args:
        client: of the broker with the target topics.
        there: the archive.
        runs: its runs by number.
        named: the versions that rows name.
        to: the target topic; a star stands for each message's own topic.

    Raises:
        IncompatibleSchema: a schema does not fit those of its target.
    """
    found, added = dict[Version, int](), dict[tuple[str, str], int | None]()
    last = {(each.run, each.topic): each.version for each in sorted(named)}
    for (number, topic), most in sorted(last.items()):
        target = target_of(to, topic)
        for version, file in sorted(runs[number].schemas.get(topic, {}).items()):
            if version > most:
                break
            if (target, file) not in added:
                schema = read_schema(there, runs[number], file)
                added[target, file] = _added(client, target, schema, f"version {version} of {topic}")
            if (known := added[target, file]) is not None:
                found[Version(topic, number, version)] = known
    return found


def _added(client: Client, target: str, schema: bytes, which: str) -> int | None:
    """Return the version of a schema in the target; None: an exchange has none."""
    try:
        return client.add_schema(target, schema)
    except Misuse:  # if it is not an exchange, the first piece is refused, too
        return None
    except IncompatibleSchema as error:
        raise IncompatibleSchema(
            f"the schema of {which} does not fit {target}: {error}. Replay to another topic, or set the "
            f"strategy there: holdfast schema strategy {target} ALWAYS_COMPATIBLE"
        ) from None


def with_versions(spark: SparkSession, rows: DataFrame, given: Mapping[Version, int]) -> DataFrame:
    """Replace the versions of rows by those of their targets; others become null."""
    if not given:
        return rows.withColumn("schemaVersion", F.lit(None).cast("bigint"))
    known = spark.createDataFrame(
        [(*each, version) for each, version in sorted(given.items())],
        "topic STRING, run INT, schemaVersion BIGINT, given BIGINT",
    )
    joined = rows.join(F.broadcast(known), ["topic", "run", "schemaVersion"], "left")
    return joined.drop("schemaVersion").withColumnRenamed("given", "schemaVersion")


def target_name(to: str, name: str) -> str:
    """Return the full name of a target topic.

    Raises:
        Misuse: it is not the name of a topic.
    """
    if to.count("*") > 1:
        raise Misuse(f"{to!r} has more than one star; use at most one")
    return topic_name(to.replace("*", name))


def target_of(to: str, topic: str) -> str:
    """Return the target of a topic's messages, as the rows have it.

    Example:
        >>> target_of("*-again", "persistent://a/b/orders")
        'persistent://a/b/orders-again'
        >>> target_of("c/d/*", "persistent://a/b/orders")
        'persistent://c/d/orders'
    """
    place, _, name = topic.rpartition("/")
    before, star, after = to.partition("*")
    if not star or "/" in before:
        return target_name(to, name)
    return f"{place}/{before}{name}{after}"
