"""`holdfast backup`, `holdfast restore`, and `holdfast doctor DIR`: a data directory as a whole."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.cli.output import print_json, tell
from holdfast.cli.parsing import Subparsers, bare_command
from holdfast.cli.progress import progress
from holdfast.errors import NotFound
from holdfast.formatting import plural, size_words
from holdfast.ledger import FORMAT, LOCAL

if TYPE_CHECKING:
    from holdfast.ledger.files import backup as backups
    from holdfast.ledger.files import doctor as doctors

BACKUP = """\
Copies a data directory that no broker has open to TARGET, which must not exist
or must be empty. An unfinished backup is marked, and restore refuses it."""

RESTORE = """\
Creates a data directory from a backup. DIR must not exist or must be empty.
Every byte is checked during the copy, and the whole directory at the end."""

LISTED = 20
"""Findings that are told one by one; the others are only counted."""


def add(nouns: Subparsers) -> None:
    parser, _ = bare_command(nouns, "backup", "copy a data directory", BACKUP, backup)
    parser.add_argument("source", metavar="DIR")
    parser.add_argument("target", metavar="TARGET")

    parser, _ = bare_command(nouns, "restore", "create a data directory from a backup", RESTORE, restore)
    parser.add_argument("source", metavar="BACKUP")
    parser.add_argument("target", metavar="DIR")


def backup(options: argparse.Namespace) -> int:
    from holdfast.ledger.files import backup as library

    with progress("backing up", options.source):
        copied = library.backup(options.source, options.target)
    local = Path(options.source) / LOCAL
    note = f"\nnot in it: the unreplicated topics of this node; back up {local} apart"
    return told(copied, options, "backed up", note if (local / FORMAT).exists() else "")


def restore(options: argparse.Namespace) -> int:
    from holdfast.ledger.files import backup as library

    with progress("restoring", options.source):
        copied = library.restore(options.source, options.target)
    return told(copied, options, "restored")


def told(copied: backups.Copied, options: argparse.Namespace, done: str, note: str = "") -> int:
    parts = (plural(copied.ledgers, "ledger"), plural(copied.files, "file"), size_words(copied.bytes))
    words = f"{done} in {options.target}: {', '.join(parts)}, up to event {copied.last_d:,}"
    return tell(options, {"source": options.source, "target": options.target, **asdict(copied)}, words + note)


def is_directory(name: str) -> bool:
    """Tell a directory from the name of a queue, which has no slash."""
    return "/" in name or name in (".", "..") or Path(name).is_dir()


def repair_time(path: str, json: bool) -> int:
    """The answer of `holdfast doctor DIR --repair-time`."""
    from holdfast.broker import VISITING, Broker

    if not (Path(path) / "holdfast").exists():
        raise NotFound(f"{path} is not a data directory: it has no file named holdfast")
    with Broker.open(path, **VISITING) as broker:
        ahead_s = broker.admin.repair_time()
    if json:
        print_json({"directory": path, "was_ahead_s": ahead_s})
    elif ahead_s > 0:
        print(f"log time was {ahead_s:,.0f} s ahead of this machine's clock, and is set back")
    else:
        print("log time is not ahead of this machine's clock: nothing to repair")
    return 0


def examine(path: str, json: bool) -> int:
    """Run `holdfast doctor DIR`: exit status 1 if anything confirmed is damaged."""
    from holdfast.ledger.files import doctor as library

    with progress("examining", path):
        found = library.examine(path)
    if json:
        print_json(found.record())
    else:
        print("\n".join(lines(found)))
    return 0 if found.sound else 1


def lines(found: doctors.Examination) -> list[str]:
    again = max(0, found.last_d - found.snapshot_d)
    stopped = (
        "cleanly"
        if found.clean
        else f"not cleanly: {plural(again, 'event')} to be done again at the next start"
    )
    told = [
        f"directory      {found.directory}, {found.incarnation}",
        f"stopped        {stopped}",
        f"snapshots      {found.snapshots}, the newest after event {found.snapshot_d:,}",
        f"journal        {plural(found.journal_files, 'file')}, {plural(found.journal_rounds, 'round')} "
        f"behind the snapshot, up to event {found.last_d:,}; {found.spares} spare",
        f"ledgers        {found.ledgers:,} with {plural(found.entries, 'entry')}, "
        f"{size_words(found.ledger_bytes)}",
    ]
    for name, texts in (("note", found.notes), ("fault", found.faults)):
        told += [f"{name:14} {text}" for text in texts[:LISTED]]
        if len(texts) > LISTED:
            told.append(f"{'':14} and {len(texts) - LISTED:,} more")
    verdict = "sound" if found.sound else f"damaged: {plural(len(found.faults), 'fault')}"
    return [*told, f"verdict        {verdict}"]
