"""`holdfast broker stats|options`: figures and settings of a running server."""

from __future__ import annotations

import argparse
from typing import Any

from holdfast.cli.asking import asking_command, server_of
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers
from holdfast.formatting import plural, size_words, text_table

COUNTED = ("brk_topics_count", "brk_in_rate", "brk_out_rate", "brk_msg_backlog")
SETTINGS = "/admin/v2/brokers/configuration"

STATS = """\
Shows what a server does: addresses, processor, memory, clients and rates, and
the sums of each namespace. Rates are over the last 30 to 60 seconds."""

OPTIONS = """\
Shows the settings that may change while a server runs, or changes them:
NAME=VALUE. In a cluster a change applies to all members. It outlives restarts,
until --restore NAME lets the configuration apply again."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("broker", help="show figures and settings of a server, and change settings")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    asking_command(verbs, "stats", "show clients, rates and memory", STATS, stats)
    parser = asking_command(verbs, "options", "show or change settings at run time", OPTIONS, change)
    parser.add_argument("values", nargs="*", metavar="NAME=VALUE", type=assignment)
    parser.add_argument("--restore", action="append", default=[], metavar="NAME", help="as configured")


def assignment(text: str) -> tuple[str, str]:
    """A name and a value.

    Example:
        >>> assignment("broker.roll_entries=1000")
        ('broker.roll_entries', '1000')
    """
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def stats(options: argparse.Namespace) -> int:
    http = server_of(options)
    load = http.get("/admin/v2/broker-stats/load-report")
    namespaces = http.get("/admin/v2/broker-stats/metrics")
    return tell(options, {"load": load, "namespaces": namespaces}, "\n".join(lines(load, namespaces)))


def lines(load: dict[str, Any], namespaces: list[dict[str, Any]]) -> list[str]:
    clients = (plural(load["numProducers"], "producer"), plural(load["numConsumers"], "consumer"))
    rows = [
        (
            each["dimensions"]["namespace"],
            *(f"{each['metrics'][name]:,.0f}" for name in COUNTED),
            size_words(int(each["metrics"]["brk_storage_size"])),
        )
        for each in namespaces
    ]
    return [
        f"broker {load['pulsarServiceUrl'] or load['pulsarServiceUrlTls'] or '-'}, holdfast "
        f"{load['brokerVersionString']}",
        f"  holds    {plural(load['numTopics'], 'topic')}, {clients[0]}, {clients[1]}",
        f"  rates    {load['msgRateIn']:,.0f} messages/s in, {load['msgRateOut']:,.0f} messages/s out",
        f"  uses     {load['cpu']['usage']:.0f} % of a processor since the start, "
        f"at most {load['memory']['usage']:,.0f} MiB",
        *(text_table(("NAMESPACE", "TOPICS", "IN/S", "OUT/S", "BACKLOG", "SIZE"), rows) if rows else []),
    ]


def change(options: argparse.Namespace) -> int:
    from holdfast.cli.remote_http import quoted  # late: it needs the client

    http = server_of(options)
    for name, value in options.values:
        http.send("POST", f"{SETTINGS}/{quoted(name)}/{quoted(value)}")
    for name in options.restore:
        http.send("DELETE", f"{SETTINGS}/{quoted(name)}")
    applied, changed = http.get(f"{SETTINGS}/runtime"), http.get(f"{SETTINGS}/values")
    found = {name: applied[name] for name in http.get(SETTINGS)}
    rows = [
        f"{name:34} {value}" + ("  (not as configured)" if name in changed else "")
        for name, value in found.items()
    ]
    return tell(options, {"settings": found, "changed": sorted(changed)}, "\n".join(rows))
