"""`holdfast broker stats|options|quotas`: figures, settings and quotas of a running server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from holdfast.cli.asking import asking_command, server_of
from holdfast.cli.data import short
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, Usage
from holdfast.cli.values import near, setting
from holdfast.formatting import plural, size_words, text_table

if TYPE_CHECKING:
    from holdfast.cli.remote_http import Http

COUNTED = ("brk_topics_count", "brk_in_rate", "brk_out_rate", "brk_msg_backlog")
SETTINGS = "/admin/v2/brokers/configuration"

STATS = """\
Shows what a server does: addresses, processor, memory, clients and rates, and
the sums of each namespace. With --topics also each topic, the busiest first.
Rates are over the last 30 to 60 seconds."""

OPTIONS = """\
Shows the settings that may change while a server runs, or changes them:
NAME=VALUE. Sizes and spans of time may have units: broker.backlog_bytes=10G,
broker.ttl_s=7d. In a cluster a change applies to all members. It outlives restarts,
until --restore NAME lets the configuration apply again. With --all, shows all
settings that apply, without secrets; the others need a restart."""

QUOTAS = """\
Compares the backlogs of topics with their quotas now, instead of at the next
turn of housekeeping, and lists the topics whose producers are stopped. A member
of a cluster checks the topics that it owns."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("broker", help="show figures and settings of a server, and change settings")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    parser = asking_command(verbs, "stats", "show clients, rates and memory", STATS, stats)
    parser.add_argument("--topics", action="store_true", help="also each topic; the answer can be large")
    parser = asking_command(verbs, "options", "show or change settings at run time", OPTIONS, change)
    parser.add_argument("values", nargs="*", metavar="NAME=VALUE", type=setting)
    parser.add_argument("--restore", action="append", default=[], metavar="NAME", help="as configured")
    parser.add_argument("--all", action="store_true", help="also settings that need a restart")
    asking_command(verbs, "quotas", "check backlog quotas now", QUOTAS, quotas)


def stats(options: argparse.Namespace) -> int:
    http = server_of(options)
    load = http.get("/admin/v2/broker-stats/load-report")
    namespaces = http.get("/admin/v2/broker-stats/metrics")
    answer, words = {"load": load, "namespaces": namespaces}, lines(load, namespaces)
    if options.topics:
        answer["topics"] = topics_of(http)
        words += topic_lines(answer["topics"])
    return tell(options, answer, "\n".join(words))


def topics_of(http: Http) -> dict[str, dict[str, Any]]:
    """Return the stats of the topics that a server owns, by name."""
    return {
        topic: stats
        for bundles in http.get("/admin/v2/broker-stats/topics").values()
        for kinds in bundles.values()
        for topics in kinds.values()
        for topic, stats in topics.items()
    }


def quotas(options: argparse.Namespace) -> int:
    http = server_of(options)
    http.get("/admin/v2/brokers/backlog-quota-check")
    found = {name: each for name, each in topics_of(http).items() if each["backlogExceeded"]}
    answers = [
        {
            "name": name,
            "backlog_bytes": each["backlogSize"],
            "quota_bytes": max(0, each["backlogQuotaLimitSize"]),
            "oldest_s": each["oldestBacklogMessageAgeSeconds"],
            "quota_s": max(0, each["backlogQuotaLimitTime"]),
        }
        for name, each in sorted(found.items())
    ]
    rows = [
        (
            short(each["name"]),
            size_words(each["backlog_bytes"]),
            size_words(each["quota_bytes"]) if each["quota_bytes"] else "-",
            *(f"{each[name]} s" if each[name] > 0 else "-" for name in ("oldest_s", "quota_s")),
        )
        for each in answers
    ]
    head = ("TOPIC", "BACKLOG", "QUOTA", "OLDEST", "QUOTA BY AGE")
    return tell(options, answers, "\n".join(text_table(head, rows)) if rows else "no topic exceeds its quota")


def topic_lines(topics: dict[str, dict[str, Any]]) -> list[str]:
    """Return a table of topics, the busiest first."""
    rows = [
        (
            short(name),
            *(f"{each[rate]:,.0f}" for rate in ("msgRateIn", "msgRateOut")),
            sum(one["msgBacklog"] for one in each["subscriptions"].values()),
            size_words(each["storageSize"]),
        )
        for name, each in sorted(topics.items(), key=busy)
    ]
    return ["", *text_table(("TOPIC", "IN/S", "OUT/S", "BACKLOG", "SIZE"), rows)] if rows else []


def busy(of: tuple[str, dict[str, Any]]) -> tuple[float, str]:
    """Order topics by their rates, then by name."""
    return -(of[1]["msgRateIn"] + of[1]["msgRateOut"]), of[0]


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
    known, applied = http.get(SETTINGS), http.get(f"{SETTINGS}/runtime")
    for name in (*(name for name, _ in options.values), *options.restore):
        require_setting(name, known, applied)  # before the first one is changed
    for name, value in options.values:
        http.send("POST", f"{SETTINGS}/{quoted(name)}/{quoted(str(value))}")
    for name in options.restore:
        http.send("DELETE", f"{SETTINGS}/{quoted(name)}")
    applied, changed = http.get(f"{SETTINGS}/runtime"), http.get(f"{SETTINGS}/values")
    found = applied if options.all else {name: applied[name] for name in http.get(SETTINGS)}
    rows = [
        f"{name:34} {value}" + ("  (not as configured)" if name in changed else "")
        for name, value in found.items()
    ]
    return tell(options, {"settings": found, "changed": sorted(changed)}, "\n".join(rows))


def require_setting(name: str, known: list[str], all_of_them: dict[str, str]) -> None:
    """Raise Usage for a setting that a server cannot change while it runs."""
    keys = {name, f"broker.{name}"}
    if keys.intersection(known):
        return
    if keys.intersection(all_of_them):
        raise Usage(
            f"the setting {name} is read only at the start; change the configuration, and restart the server"
        )
    raise Usage(f"there is no setting {name!r} that can be changed at run time; {near(name, known)}")
