"""`holdfast bench`: hands over to the benchmarks, which read their arguments themselves."""

from __future__ import annotations

import argparse

from holdfast.cli.parsing import Subparsers, Usage


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("bench", help="measure holdfast and its peers")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, summary, run in (
        ("queue", "the queue, and other ways between two processes", bench_queue),
        ("broker", "the broker, and a plain program with the same rounds", bench_broker),
        ("server", "the server, Redis, NATS and RabbitMQ", bench_server),
        ("pipeline", "the Spark source, Parquet, text, and a source from memory", bench_pipeline),
    ):
        # No options of its own: what follows the name, --help included, is the benchmark's to read.
        parser = verbs.add_parser(name, help=summary, add_help=False, prefix_chars="\0")
        parser.add_argument("rest", nargs=argparse.REMAINDER)
        parser.set_defaults(run=run)


def bench_queue(options: argparse.Namespace) -> int:
    from holdfast.bench import (
        queue,
    )  # brings multiprocessing and more, which no other command should wait for

    return queue.main(options.rest)


def bench_broker(options: argparse.Namespace) -> int:
    from holdfast.bench import broker

    return broker.main(options.rest)


def bench_server(options: argparse.Namespace) -> int:
    try:
        from holdfast.bench import server
    except ModuleNotFoundError as error:
        raise Usage(f"the server needs {error.name}: pip install 'holdfast[server]'") from None

    return server.main(options.rest)


def bench_pipeline(options: argparse.Namespace) -> int:
    try:
        from holdfast.bench import pipeline, pipeline_worker
    except ModuleNotFoundError as error:
        raise Usage(f"Spark's source needs {error.name}: pip install 'holdfast[spark]'") from None

    assert pipeline_worker.__name__  # what the benchmark starts is there, too
    return pipeline.main(options.rest)
