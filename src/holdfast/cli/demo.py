"""`holdfast demo`: the whole of it at work, while everything in it is being killed."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from holdfast.cli.output import print_json
from holdfast.cli.parsing import Subparsers, bare_command, declare, rate, require_for_demo, seconds

DESCRIPTION = """\
An acquisition rig: sensors hand frames of samples to analysers, each through a
loop of buffers in which the newest frames displace the oldest. Analysers publish
their readings through shared memory, gateways with the official Pulsar client,
into a broker, which also taps the levels that the sensors offer as services;
consumers share a subscription, and a Spark stream writes every
reading, calibrated, to another topic, exactly once. Meanwhile all of them, the
broker and Spark too, are killed with SIGKILL at random, and started again.

Then Spark archives both topics to Parquet, aggregates the measurements, and
audits every number of every producer. At the end it prints the account
(sent, stored, archived, lost 0, duplicated 0, out of order 0; frames acquired,
analysed, displaced; buffers leaked 0) and writes a report page with plots.

Each producer writes down its confirmed messages. The account uses these records,
not the broker's counters. The exit status is 1 if a message is missing,
duplicated or out of order, or if a buffer leaked. Ctrl-C ends the run early, with
its account; a second one, or SIGTERM, ends everything at once.

The queue alone, at twenty times the rate: holdfast queue demo."""

NEEDED = {
    "pyspark": "holdfast[spark]",
    "pyarrow": "holdfast[spark]",
    "numpy": "holdfast[spark]",
    "aiohttp": "holdfast[server]",
    "pulsar": "pulsar-client",
}


def add(nouns: Subparsers) -> None:
    parser, _ = bare_command(
        nouns, "demo", "run everything while its processes are killed", DESCRIPTION, demo
    )
    declare(
        parser,
        types={"minutes": seconds, "rate": rate, "to": Path},
        minutes=1.0,
        sensors=3,
        gateways=2,
        consumers=2,
        rate=2000.0,
    )("""
        --minutes M: duration (default 1)
        --sensors N: number of sensors, each with an analyser (default 3)
        --gateways N: number of gateways (default 2)
        --consumers N: number of consumers (default 2)
        --rate R: frames and messages per second of all sensors and gateways (default 2000)
        --no-chaos: kill no process
        --keep: keep data, archive and records, and print their paths
        --to DIR: directory of the report page (default: a new one)
        """)


def demo(options: argparse.Namespace) -> int:
    require_for_demo(NEEDED)
    from holdfast.demo.settings import Settings
    from holdfast.demo.show import run
    from holdfast.demo.stage import shown
    from holdfast.demo.view import account_lines, lines, picture

    settings = Settings(
        seconds=options.minutes * 60,
        rate=options.rate,
        sensors=options.sensors,
        gateways=options.gateways,
        consumers=options.consumers,
        chaos=not options.no_chaos,
        keep=options.keep,
        to=options.to,
    )
    with shown(options.json, picture, lines()) as view:
        outcome = run(settings, view)
    if options.json:
        print_json(
            {
                "good": outcome.good,
                "seconds": round(outcome.scene.elapsed, 3),
                **(asdict(outcome.account) if outcome.account is not None else {}),
                "frames": asdict(outcome.frames),
                "levels": asdict(outcome.levels),
                "killed": outcome.scene.kills,
                "faults": outcome.faults,
                "report": str(outcome.places.report) if outcome.places.report.exists() else None,
                "directory": str(outcome.places.root) if settings.keep or not outcome.good else None,
            }
        )
    else:
        print("\n".join(account_lines(outcome)))
        if settings.keep and outcome.good:
            print(f"kept: {outcome.places.root}")
    return 0 if outcome.good else 1
