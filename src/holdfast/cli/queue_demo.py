"""`holdfast queue demo`: the queue at work while its processes are being killed."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from holdfast.cli.output import print_json
from holdfast.cli.parsing import Subparsers, command, declare, seconds
from holdfast.demo.queue import Settings, run
from holdfast.demo.queue.view import account_lines, lines, picture
from holdfast.demo.stage import shown

DESCRIPTION = """\
Several producers and consumers share one queue, while a chaos loop kills them
with SIGKILL (and holds some with SIGSTOP) and starts others in their place.

Each producer writes down what it put after the put returned; each consumer
writes down what it got before it settles. At the end the queue is drained and
these records are compared: nothing that was confirmed may be missing, and
nothing may come twice without being marked as redelivered.

The exit status is 1 if anything is missing, doubled or damaged. Ctrl-C ends
the run early, with the account so far."""


def add(verbs: Subparsers) -> None:
    parser = command(verbs, "demo", "run the queue while its processes are killed", DESCRIPTION, demo)
    span = parser.add_mutually_exclusive_group()
    span.add_argument("--seconds", type=seconds, metavar="S", help="duration (default 20)")
    span.add_argument("--minutes", type=seconds, metavar="M", help="duration in minutes")
    declare(parser, types={"rate": seconds}, producers=4, consumers=3, rate=Settings.rate)(f"""
        --producers N: number of producers (default 4)
        --consumers N: number of consumers (default 3)
        --rate R: messages per second of all producers (default {Settings.rate:.0f}); 0: no limit
        --no-chaos: kill no process
        --keep: keep the queue and the records, and print their paths
        """)


def demo(options: argparse.Namespace) -> int:
    settings = Settings(
        seconds=options.minutes * 60
        if options.minutes is not None
        else 20.0
        if options.seconds is None
        else options.seconds,
        producers=options.producers,
        consumers=options.consumers,
        rate=options.rate,
        chaos=not options.no_chaos,
        keep=options.keep,
        directory=options.directory,
    )
    with shown(options.json, picture, lines()) as view:
        outcome = run(settings, view)
    if options.json:
        scene = outcome.scene
        print_json(
            {
                "good": outcome.good,
                "seconds": round(scene.elapsed, 3),
                **asdict(outcome.account),
                "killed": scene.killed,
                "stopped": scene.stopped,
                "recovered": None
                if scene.stats is None
                else {"skipped": scene.stats.skipped, "handed_on": scene.stats.handed_on},
                "faults": outcome.faults,
                "records": str(outcome.records) if settings.keep else None,
            }
        )
    else:
        print("\n".join(account_lines(outcome)))
        if settings.keep:
            print(f"\nkept: the records in {outcome.records}, the queue {outcome.queue}")
    return 0 if outcome.good else 1
