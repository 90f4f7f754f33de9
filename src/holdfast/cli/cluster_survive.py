"""`holdfast cluster survive`: let a directory continue although other nodes may have more."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, bare_command, declare
from holdfast.errors import Misuse, NotFound
from holdfast.ledger import FORMAT, INCOMPLETE, LIFE, LOCAL, LOCK
from holdfast.ledger.copies import is_survivor, request_survivor, survey, withdraw_survivor
from holdfast.system import SystemDisk

DESCRIPTION = """\
Chooses a directory as the survivor of its cluster, for the case that a majority
of the nodes is gone for good. When its node starts, the members of its view take
over its state, also if it is not the most advanced one.

THE RISK: messages and acknowledgements that were confirmed by other nodes, and
had not reached this one, are lost. Nodes that come back later discard such
messages, or wait for another choice, or refuse to be replaced. Use it only if
those nodes, or their disks, do not come back.

A view needs a majority of cluster.nodes. If this node is alone, list only the
remaining nodes there, on all of them. Without this choice such a list waits: it
lacks nodes of the last view. Nodes that are listed again later begin with empty
directories: with old ones, they could be a majority without this node.

Without --yes it only shows what the directory has. The choice counts for one
election; --withdraw takes it back before."""

NOT_CHOSEN = "Nothing was changed. Events that only other nodes have would be lost; --yes chooses it."
CHOSEN = "Nothing was changed. It is chosen already, for the next election; --withdraw takes it back."
AFTERWARDS = """\
chosen: start its broker now. It serves when a majority of cluster.nodes is there: if the
others do not come back, list only the remaining nodes first."""


def add(verbs: Subparsers) -> None:
    parser, _ = bare_command(
        verbs, "survive", "let a node continue after a majority is gone for good", DESCRIPTION, survive
    )
    declare(parser, types={"data": Path})("""
        --data! DIR: data directory of the node; its broker must not run
        --yes: choose it; the risk is understood
        --withdraw: undo the choice
        """)


def survive(options: argparse.Namespace) -> int:
    return asyncio.run(_survive(options))


async def _survive(options: argparse.Namespace) -> int:
    if not options.data.is_dir():
        raise NotFound(f"there is no directory {options.data}; name the data directory of the node")
    whole = options.data.resolve().parent
    if options.data.resolve().name == LOCAL and (whole / LIFE).exists():
        raise Misuse(f"{options.data} has only the unreplicated topics of a node; name {whole} instead")
    if not any((options.data / name).exists() for name in (FORMAT, INCOMPLETE)):  # nothing is written to it
        raise Misuse(f"{options.data} cannot survive: it is empty; choose another node, or restore a backup")
    disk = SystemDisk(options.data)
    lock = await disk.lock(LOCK)  # its broker must not run
    try:
        return await _choose(options, disk)
    finally:
        await lock.release()


async def _choose(options: argparse.Namespace, disk: SystemDisk) -> int:
    if options.withdraw:
        await withdraw_survivor(disk)
        return tell(options, {"survivor": False}, f"{options.data}: not chosen any more")
    found = await survey(disk)
    chosen = await is_survivor(disk)
    whole = not found.fresh and found.mark is None and not found.damage
    facts = {"whole": whole, "position": str(found.position), "events": found.last_d}
    words = f"{options.data}: {found.last_d:,} events, the last at {found.position}"
    if not whole:
        why = found.damage or "its copy of another node is incomplete"
        raise Misuse(f"{options.data} cannot survive: {why}; choose another node, or restore a backup")
    if not options.yes:
        hint = CHOSEN if chosen else NOT_CHOSEN
        tell(options, {"survivor": chosen, **facts}, f"{words}\n{hint}")
        return 1
    await request_survivor(disk)
    return tell(options, {"survivor": True, **facts}, f"{words}\n{AFTERWARDS}")
