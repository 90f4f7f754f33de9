"""`holdfast bench`: hands over to the benchmarks, which read their arguments themselves."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

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


def require_checkout() -> None:
    """Make the benchmarks importable, here and in the processes that they start."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "bench/__init__.py").is_file():
        raise Usage(
            "the benchmarks are not part of the installed package; run them from a checkout: "
            "`make build` there, then `.venv/bin/holdfast bench ...`"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def bench_queue(options: argparse.Namespace) -> int:
    require_checkout()
    from bench import queue  # with multiprocessing and more, for which no other command should wait

    return queue.main(options.rest)


def bench_broker(options: argparse.Namespace) -> int:
    require_checkout()
    from bench import broker

    return broker.main(options.rest)


def bench_server(options: argparse.Namespace) -> int:
    require_checkout()
    try:
        from bench import server
    except ModuleNotFoundError as error:
        raise Usage(f"the server needs {error.name}: pip install 'holdfast[server]'") from None

    return server.main(options.rest)


def bench_pipeline(options: argparse.Namespace) -> int:
    require_checkout()
    try:
        from bench import pipeline, pipeline_worker
    except ModuleNotFoundError as error:
        raise Usage(f"Spark's source needs {error.name}: pip install 'holdfast[spark]'") from None

    assert pipeline_worker.__name__  # what the benchmark starts is there, too
    return pipeline.main(options.rest)
