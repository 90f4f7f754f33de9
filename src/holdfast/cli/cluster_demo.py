"""`holdfast cluster demo`: three brokers on this machine, one killed and one cut off."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from holdfast.cli.output import print_json
from holdfast.cli.parsing import Subparsers, bare_command, declare, rate, require_for_demo, seconds

DESCRIPTION = """\
Three brokers on this machine, each with a Corosync daemon in network, mount and
ipc namespaces of its own. Senders and receivers use the official Pulsar client;
each begins at another member. While they run, one broker is killed with SIGKILL
and started again, and one node is cut off and connected again. --faults chooses
others: kill, cut, corosync (its daemon is killed), pause (SIGSTOP), power (all
brokers and daemons are killed at once).

At the end all are stopped, and the account compares what was confirmed to the
senders with the files of every member, and with what the receivers got. The exit
status is 1 if a message is missing, duplicated, out of order, or received but
not stored, or if members differ.

It needs root, the package corosync, and namespaces; it says what is missing. It
changes nothing outside of its namespaces and its temporary directory."""

NEEDED = {"aiohttp": "holdfast[server]", "pulsar": "pulsar-client"}


def add(verbs: Subparsers) -> None:
    parser, _ = bare_command(verbs, "demo", "run three brokers while they are broken", DESCRIPTION, demo)
    declare(
        parser,
        types={"seconds": seconds, "rate": rate, "faults": faults},
        seconds=40.0,
        rate=1000.0,
        clients=4,
        faults=("kill", "cut"),
    )("""
        --seconds S: duration (default 40)
        --rate R: messages per second of all senders (default 1000)
        --clients N: number of senders, and of receivers (default 4)
        --faults LIST: what is broken, in this order (default kill,cut); none: nothing
        --keep: keep data, logs and records, and print their path
        """)


def faults(text: str) -> tuple[str, ...]:
    """Names of faults, separated by commas."""
    from holdfast.demo.cluster.breaking import FAULTS

    names = () if text == "none" else tuple(each.strip() for each in text.split(","))
    for name in names:
        if name not in FAULTS:
            raise argparse.ArgumentTypeError(f"{name!r} is not a fault; use {', '.join(FAULTS)}, or none")
    return names


def demo(options: argparse.Namespace) -> int:
    require_for_demo(NEEDED)
    from holdfast.demo.cluster.breaking import Settings, run
    from holdfast.demo.cluster.picture import account_lines, lines, picture
    from holdfast.demo.stage import shown

    settings = Settings(
        seconds=options.seconds,
        rate=options.rate,
        clients=options.clients,
        faults=options.faults,
        keep=options.keep,
    )
    with shown(options.json, picture, lines()) as view:
        outcome = run(settings, view)
    if options.json:
        print_json(
            {
                "good": outcome.good,
                "seconds": round(outcome.scene.elapsed, 3),
                **(asdict(outcome.account) if outcome.account is not None else {}),
                "faults": outcome.faults,
                "directory": str(outcome.root) if settings.keep or not outcome.good else None,
            }
        )
    else:
        print("\n".join(account_lines(outcome)))
        if settings.keep and outcome.good:
            print(f"kept: {outcome.root}")
    return 0 if outcome.good else 1
