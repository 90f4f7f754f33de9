"""`holdfast pipeline archive|compact|audit|replay|measure|init`: what the broker holds, as data, on Spark."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.cli.data import SERVER_VARIABLE, VARIABLE, data_directory, require_data, server_url
from holdfast.cli.output import print_json, tell
from holdfast.cli.parsing import Subparsers, Usage, bare_command, declare, seconds
from holdfast.cli.positions import AGO, SPANS, moment
from holdfast.cli.spark import add_session, require_spark, spark_for, wait_for
from holdfast.errors import BadConfiguration, HoldfastError, Misuse
from holdfast.formatting import plural

if TYPE_CHECKING:
    from holdfast.pipeline.audit import AuditReport
    from holdfast.pipeline.jobs.summary import Report

ARCHIVE = """\
Adds the new messages of topics to an archive of Parquet files, by topic and
day. A run adds all of them or none: the next run completes or removes the files
of a run that was killed. With --subscription the broker keeps all messages that
are not archived yet. The subscription is advanced after the files were read back
and compared."""

COMPACT = """\
Keeps the last message of each key, as Parquet; keys whose last message has no
value are left out. The next run continues there."""

AUDIT = """\
Accounts for every numbered message of topics, of an archive, or of both
together: lost, duplicated, out of order per key, damaged, latency. The exit
status is 1 if anything is wrong. --report writes a page with plots.

  audit rig --data DATA                        what is in the broker
  audit --archive DIR                          what is archived
  audit --archive DIR --data DATA              both, each position once"""

REPLAY = """\
Publishes an archive's messages again, in order and exactly once: the same --id
started again, after a kill or by mistake, sends nothing twice."""

MEASURE = """\
Computes figures per time window and key from JSON measurements. Late
measurements count; repeated ones count once. A batch processes all stored
messages. With --stream, each window is written once, when --late is over for it."""

INIT = """\
Writes a project to start from: a typed pipeline, its test, and the same as a
declarative pipeline. DIR must not exist or must be empty."""


class PageFailed(HoldfastError):
    """The page of an audit was not written; its account was told."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser(
        "pipeline", help="process topics on Spark: archive, compact, audit, replay, measure"
    )
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    _add_archive(verbs)
    _add_compact(verbs)
    _add_audit(verbs)
    _add_replay(verbs)
    _add_measure(verbs)
    parser, _ = bare_command(verbs, "init", "write a project to start from", INIT, init)
    parser.add_argument("directory", metavar="DIR")


def _command(
    verbs: Subparsers,
    name: str,
    summary: str,
    description: str,
    run: Callable[[argparse.Namespace], int],
    data: bool = True,
) -> argparse.ArgumentParser:
    parser, shared = bare_command(verbs, name, summary, description, run)
    add_session(shared)
    if data:
        shared.add_argument(
            "--data",
            dest="data_directory",
            metavar="DIR",
            help=f"data directory of the broker (default ${VARIABLE}); the server may run",
        )
        declare(shared)(f"""
            --server URL: instead: a running server, http://host:port (default ${SERVER_VARIABLE}); a token
                for it is taken from $HOLDFAST_TOKEN
            --no-partitions: read only the named topics, without their partitions
            """)
    return parser


def _add_archive(verbs: Subparsers) -> None:
    parser = _command(verbs, "archive", "write topics to Parquet", ARCHIVE, archive)
    declare(parser)("""
        topics TOPIC...
        --to! DIR: directory of the archive; created if missing
        --subscription NAME: created if missing; the broker may trim what it has acknowledged
        --broker URL: address of the server of this data directory: holdfast://host:port, or its HTTP address
        --accept-loss: continue where positions were already trimmed
        --verify: also read the whole archive again and compare
        --trust FILE: file of trusted certificates (default: the system's)
        """)


def _add_compact(verbs: Subparsers) -> None:
    parser = _command(verbs, "compact", "keep the last message of each key", COMPACT, compact)
    declare(parser)("""
        topics TOPIC...
        --to! DIR: directory of the result; created if missing
        --keep-keyless: keep all messages without a key
        --accept-loss: continue where positions were already trimmed
        --trust FILE: file of trusted certificates (default: the system's)
        """)


def _add_audit(verbs: Subparsers) -> None:
    parser = _command(verbs, "audit", "check that every message is there once, in order", AUDIT, audit)
    declare(parser)("""
        topics [TOPIC...]
        --archive DIR: also audit an archive; without topics: all topics in it
        --expected FILE: number of confirmed messages of each producer, as JSON: {"rig-1": 1000}, or by topic:
            {"orders": {"rig-1": 1000}}; null: unknown
        --allow-foreign: do not count messages without a number as faults
        --report FILE: write an HTML page with plots
        --trust FILE: file of trusted certificates (default: the system's)
        """)


def _add_replay(verbs: Subparsers) -> None:
    parser = _command(verbs, "replay", "publish an archive to topics", REPLAY, replay, data=False)
    declare(
        parser,
        types={"since": _moment_or_ago, "until": _moment_or_ago, "rate": seconds},
        broker="holdfast://localhost:6650",
    )("""
        archive ARCHIVE
        --id! NAME: name of this replay; a message is sent at most once under a name
        --to! TOPIC: target topic; * stands for the source topic's name: '*-again'
        --broker URL: binary or HTTP address (default holdfast://localhost:6650)
        --since TIME: published at or after TIME; -2h: two hours before the start
        --until TIME: published before TIME
        --where SQL: SQL condition, such as: key = 'smith' AND producer LIKE 'rig-%%'
        --rate N: at most N messages per second
        --trust FILE: file of trusted certificates (default: the system's)
        """)


def _add_measure(verbs: Subparsers) -> None:
    parser = _command(verbs, "measure", "compute figures per time window", MEASURE, measure)
    declare(parser, window="10 seconds", late="1 minute")("""
        topics [TOPIC...]
        --to! DIR: directory of the figures (Parquet)
        --archive DIR: read an archive instead of topics
        --window SPAN: length of a window (default 10 seconds)
        --slide SPAN: interval between windows (default: the length of a window)
        --late SPAN: wait for late messages of a stream (default 1 minute)
        --trust FILE: file of trusted certificates (default: the system's)
        """)
    fields = parser.add_argument_group("fields of the JSON")
    declare(fields, value="value", key="key", time="sent_ns", identity="producer,number")("""
        --value FIELD: field of the measurement (default value)
        --key FIELD: field of the measured object (default key)
        --time FIELD: field of the time in ns (default sent_ns)
        --identity FIELDS: fields that identify a measurement (default producer,number)
        """)
    stream = parser.add_argument_group("as a stream")
    declare(stream)("""
        --stream: append each window once, when it is complete
        --checkpoint DIR: directory of the checkpoint (default: beside --to)
        --every SPAN: repeat every SPAN until stopped (default: process what is stored, then end)
        """)


# -- running ------------------------------------------------------------------------------------------


def archive(options: argparse.Namespace) -> int:
    require_spark()
    from holdfast.pipeline import archive as library

    where = _where(options)
    with spark_for(options) as (spark, steps):
        found = library.archive(
            spark,
            topics=options.topics,
            to=options.to,
            **where,
            **_options(options),
            subscription=options.subscription,
            broker=options.broker,
            accept_loss=options.accept_loss,
            told=steps,
        )
        if options.verify:
            steps("verify", "all of it")
            library.verify_archive(spark, options.to)
    return _tell(options, found)


def compact(options: argparse.Namespace) -> int:
    require_spark()
    from holdfast.pipeline import compact as library

    where = _where(options)
    with spark_for(options) as (spark, steps):
        found = library.compact(
            spark,
            topics=options.topics,
            to=options.to,
            **where,
            **_options(options),
            keep_keyless=options.keep_keyless,
            accept_loss=options.accept_loss,
            told=steps,
        )
    return _tell(options, found)


def audit(options: argparse.Namespace) -> int:
    require_spark()
    from holdfast.pipeline import audit as library

    if not options.topics and options.archive is None:
        raise Usage("nothing to audit; name topics, or --archive DIR, or both")
    expected = None if options.expected is None else _expected(Path(options.expected))
    _require_archive(options.archive)
    where = _where(options) if options.archive is None or _live(options) else {}
    if options.report is not None:
        _require_place(Path(options.report))
    with spark_for(options) as (spark, steps):
        found = library.audit(
            spark,
            topics=options.topics,
            **where,
            **_options(options),
            archive=options.archive,
            expected=expected,
            foreign_allowed=options.allow_foreign,
            told=steps,
        )
    return _tell_account(options, found)


def replay(options: argparse.Namespace) -> int:
    require_spark()
    from holdfast.pipeline import replay as library

    _require_archive(options.archive)
    with spark_for(options) as (spark, steps):
        found = library.replay(
            spark,
            archive=options.archive,
            id=options.id,
            to=options.to,
            broker=options.broker,
            **_token(),
            **_options(options),
            since=options.since,
            until=options.until,
            where=options.where,
            rate=options.rate,
            told=steps,
        )
    return _tell(options, found)


def measure(options: argparse.Namespace) -> int:
    require_spark()
    import time

    from holdfast.pipeline import measure as library

    if bool(options.topics) == (options.archive is not None):
        raise Usage("nothing to measure; name topics, or --archive DIR")
    if options.stream and not options.topics:
        raise Usage("a stream reads topics")
    fields = library.Fields(options.value, options.key, options.time, tuple(options.identity.split(",")))
    windows = library.Windows(options.window, options.slide, options.late)
    if options.every is not None:
        library.require_span(options.every)
    where = _where(options) if options.topics else {}
    _require_archive(options.archive)
    with spark_for(options) as (spark, steps):
        if not options.stream:
            found = library.measure(
                spark,
                to=options.to,
                topics=options.topics,
                **where,
                **_options(options),
                archive=options.archive,
                fields=fields,
                windows=windows,
                told=steps,
            )
        else:
            began = time.monotonic()
            steps("measure", options.to)
            with steps.interrupts.held():  # the way to end one that goes on for ever
                query = library.measure_stream(
                    spark,
                    to=options.to,
                    checkpoint=options.checkpoint or f"{options.to.rstrip('/')}.checkpoint",
                    topics=options.topics,
                    **where,
                    **_options(options),
                    fields=fields,
                    windows=windows,
                    every=options.every,
                )
                wait_for(query, steps.interrupts)
                found = library.stream_report(spark, options.to, query, began)
    return _tell(options, found)


def init(options: argparse.Namespace) -> int:
    from holdfast.pipeline.init import write_project

    written = write_project(options.directory)
    made = f"{options.directory}: {plural(len(written), 'file')}: {', '.join(written)}"
    following = f"next: cd {options.directory} && python -m pytest, then see README.md"
    return tell(options, {"directory": options.directory, "files": written}, f"{made}\n{following}")


def _tell(options: argparse.Namespace, report: Report) -> int:
    return tell(options, report.record(), report.table())


def _tell_account(options: argparse.Namespace, found: AuditReport) -> int:
    """Print the account, even if its page cannot be written.

    Raises:
        PageFailed: there is no page.
    """
    if not options.json:
        _tell(options, found)
    page, failed = (None, "") if options.report is None else _written(found, options.report)
    if options.json:  # one value, with the page's path in it
        print_json({**found.record(), **({} if options.report is None else {"report": page})})
    elif page is not None:
        print(f"report: {page}")
    if failed:
        raise PageFailed(f"the page {options.report} was not written: {failed}")
    return 0 if found.sound else 1


def _written(found: AuditReport, place: str) -> tuple[str | None, str]:
    """Return the page's path, or the reason of the failure in one line."""
    from holdfast.pipeline.jobs.audit_page import write_report

    try:
        return str(write_report(found, place)), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}".strip().partition("\n")[0]


def _where(options: argparse.Namespace) -> dict[str, Any]:
    """Return path or url, and the token, as the pipelines take them."""
    url = server_url(options)
    if url is not None:
        return {"url": url, **_token()}
    directory = data_directory(options.data_directory)
    require_data(directory)
    if options.topics:  # are they there? Spark would take long to find out
        from holdfast.pipeline.audit import still_there
        from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory
        from holdfast.pipeline.jobs.inputs import Origin, full_names

        kept = getattr(options, "archive", None)
        archived = {} if kept is None else ArchiveDirectory.there(kept).positions()
        known = Origin(str(directory), more=_options(options)["options"])
        still_there(known, full_names(options.topics), archived)
    return {"path": str(directory), **_token()}


def _token() -> dict[str, Any]:
    """Return the token for a server, or for the broker of a subscription."""
    return {"token": os.environ.get("HOLDFAST_TOKEN")}


def _options(options: argparse.Namespace) -> dict[str, Any]:
    """Of the source, as the pipelines take them."""
    found = {} if options.trust is None else {"tlsTrustCertsFilePath": options.trust}
    if getattr(options, "no_partitions", False):  # a replay reads no topic
        found["partitions"] = "false"
    return {"options": found}


def _moment_or_ago(text: str) -> datetime | timedelta:
    """Read a time, or `-2h` as a span: it means the same replay tomorrow."""
    when, ago = moment(text), AGO.fullmatch(text.strip())
    return when if ago is None else timedelta(**{SPANS[ago[2]]: float(ago[1])})


def _live(options: argparse.Namespace) -> bool:
    """Tell whether live topics are read beside an archive: their place must be given."""
    named = options.data_directory is not None or options.server is not None
    return named or (bool(options.topics) and any(map(os.environ.get, (VARIABLE, SERVER_VARIABLE))))


def _require_archive(path: str | None) -> None:
    """Before Spark starts, which takes its time."""
    from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory

    if path is not None:
        ArchiveDirectory.there(path)


def _require_place(page: Path) -> None:
    """The same for a page that is written at the very end."""
    if page.is_dir():
        raise BadConfiguration(f"{page} is a directory; name a file for the page")
    page.absolute().parent.mkdir(parents=True, exist_ok=True)
    if not os.access(page.absolute().parent, os.W_OK):
        raise BadConfiguration(f"{page} cannot be written: {page.absolute().parent} is not ours to write to")


def _expected(path: Path) -> dict[str, Any]:
    from holdfast.pipeline.audit import require_counts

    try:
        found = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise BadConfiguration(f"{path} is not JSON: {error}") from None
    except Misuse as error:
        raise Misuse(f"{path}: {error}") from None
    parts = [found] if isinstance(found, dict) else []
    parts += [each for part in parts for each in part.values() if isinstance(each, dict)]
    deep = any(isinstance(each, dict) for part in parts[1:] for each in part.values())
    if not parts or deep:
        raise BadConfiguration(
            f'{path} must have the number of confirmed messages of each producer, as {{"rig-1": 1000}}, or '
            'by topic, as {"orders": {"rig-1": 1000}}'
        )
    try:
        require_counts(found)
    except Misuse as error:
        raise Misuse(f"{path}: {error}") from None
    return dict(found)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; Python would take the last of two fields with one name."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise Misuse(f"expected names {name!r} twice, as {found[name]} and as {value}; say it once")
        found[name] = value
    return found
