"""`holdfast bench`: hands over to the benchmarks, which read their arguments themselves."""

from __future__ import annotations

import argparse
import functools
import importlib
import os
import sys
from pathlib import Path

from holdfast.cli.parsing import Subparsers, Usage

_BENCHMARKS = {
    "queue": ("the queue, and other ways between two processes", ""),
    "channel": ("the channel, iceoryx2, and a cache line that changes cores", ""),
    "service": ("services, iceoryx2, and a Unix socket", ""),
    "broker": ("the broker, and a plain program with the same rounds", ""),
    "server": ("the server, Redis, NATS and RabbitMQ", "the server needs {}: pip install 'holdfast[server]'"),
    "cluster": (
        "three members, NATS and RabbitMQ with three replicas",
        "the server needs {}: pip install 'holdfast[server]'",
    ),
    "pipeline": (
        "the Spark source, Parquet, text, and a source from memory",
        "Spark's source needs {}: pip install 'holdfast[spark]'",
    ),
}
"""By name: the summary, and the words for a missing package."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("bench", help="measure holdfast and its peers")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, (summary, _) in _BENCHMARKS.items():
        # No options of its own: what follows the name, --help included, is the benchmark's to read.
        parser = verbs.add_parser(name, help=summary, add_help=False, prefix_chars="\0")
        parser.add_argument("rest", nargs=argparse.REMAINDER)
        parser.set_defaults(run=functools.partial(bench, name))


def bench(name: str, options: argparse.Namespace) -> int:
    """Run a benchmark of a checkout, here and in the processes that it starts."""
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
    try:  # only now: it brings more than other commands should wait for
        found = importlib.import_module(f"bench.{name}")
        if name == "pipeline":  # what it starts needs more
            importlib.import_module("bench.pipeline_worker")
    except ModuleNotFoundError as error:
        if not (words := _BENCHMARKS[name][1]):
            raise
        raise Usage(words.format(error.name)) from None
    return int(found.main(options.rest))
