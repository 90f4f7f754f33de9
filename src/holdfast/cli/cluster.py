"""`holdfast cluster status|members|queues|options|leave|evict|free`: the cluster of a running server."""

from __future__ import annotations

import argparse
import json
from typing import Any

from holdfast.cli import cluster_demo, cluster_init, cluster_survive, parsing
from holdfast.cli.asking import asking_command, server_of
from holdfast.cli.data import short
from holdfast.cli.output import tell
from holdfast.cli.parsing import Subparsers, Usage, count
from holdfast.cli.values import near, setting
from holdfast.errors import Misuse
from holdfast.formatting import plural, text_table

STATUS = """\
Shows the cluster as one member sees it: its view, whether it has a majority,
and how far events are stored by a majority. Lists shared options that this
member's configuration has otherwise: the cluster's value applies. The exit
status is 1 if the member sees no majority."""

MEMBERS = """\
Lists the nodes of the cluster: addresses, program, and whether they are
present. An absent node is shown with what it announced before it left."""

QUEUES = """\
Lists topics with their owner, and subscriptions with the member that dispatches
them, their consumers by member, and their backlog."""

OPTIONS = """\
Shows the options that all members share, one of them (NAME), or changes them
(NAME=VALUE). They take precedence over the configuration of each member."""

LEAVE = """\
Lets a member leave the cluster in order: the one that --server names. Its
server stops. The others continue if they are a majority."""

EVICT = """\
Lets the cluster continue without a node that holds it back. Use it for a node
that hangs: a dead node is left out without this. The node may join again."""

FREE = """\
Frees the name of an unreplicated topic or exchange whose node is absent. If the
node returns with the topic, it takes the name again, if that is still free."""


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("cluster", help="inspect and administer the cluster of a server")
    verbs = noun.add_subparsers(title="verbs", metavar="VERB", required=True)
    cluster_init.add(verbs)
    cluster_demo.add(verbs)
    cluster_survive.add(verbs)
    asking_command(verbs, "status", "show the cluster as one member sees it", STATUS, status)
    asking_command(verbs, "members", "list the nodes", MEMBERS, members)
    asking_command(verbs, "queues", "list the owners of topics and subscriptions", QUEUES, queues)
    parser = asking_command(
        verbs, "options", "show or change options that all members share", OPTIONS, change
    )
    parser.add_argument("values", nargs="*", metavar="NAME[=VALUE]", type=assignment)
    asking_command(verbs, "leave", "let a member leave", LEAVE, leave)
    parser = asking_command(verbs, "evict", "continue without a node", EVICT, evict)
    parser.add_argument("node", metavar="NODE", type=count)
    parser = asking_command(verbs, "free", "free the name of an absent node's topic", FREE, free)
    parser.add_argument("name", metavar="NAME", type=parsing.topic, help="a topic or an exchange")


def assignment(text: str) -> tuple[str, Any]:
    """A name and a value: true, false, a number or a text; None without `=`.

    Example:
        >>> assignment("roll_entries=1000"), assignment("deduplication=true")
        (('roll_entries', 1000), ('deduplication', True))
        >>> assignment("backlog_action=producer_exception")
        ('backlog_action', 'producer_exception')
    """
    if text and "=" not in text:
        return text, None
    return setting(text)


def _get(options: argparse.Namespace, what: str) -> Any:
    return server_of(options).get(f"/admin/v2/cluster/{what}")


def status(options: argparse.Namespace) -> int:
    found = _get(options, "status")
    tell(options, found, "\n".join(status_lines(found)))
    return 0 if found["quorate"] else 1


def status_lines(found: dict[str, Any]) -> list[str]:
    majority = "has a majority" if found["quorate"] else "NO MAJORITY: nothing is confirmed"
    leader = f"the leader is node {found['leader']}" if found["leader"] else "no leader yet"
    lines = [
        f"cluster {found['cluster']}: view {found['view']}, {majority}",
        f"  here     member {found['member']}, owns {plural(found['ownedSubscriptions'], 'subscription')}",
        f"  members  {found['members']}, {leader}",
        f"  stable   {found['stable']}, delivered {found['delivered']}, held here {found['held']}",
    ]
    if found["note"]:
        lines.append(f"  note     {found['note']}")
    lines += [
        f"  differs  {name}: the cluster has {json.dumps(each['cluster'])}, the configuration here "
        f"{json.dumps(each['here'])}"
        for name, each in sorted(found["differing"].items())
    ]
    if found["differing"]:
        lines.append(
            "           the cluster's value applies; write it into the configuration, or set it back with "
            "`holdfast cluster options NAME=VALUE`"
        )
    return lines


def members(options: argparse.Namespace) -> int:
    found = _get(options, "members")
    rows = [
        (
            each["node"],
            each["member"],
            each["name"] or "-",
            _state(each) + (", leader" if each["leader"] else "") + (", here" if each["here"] else ""),
            each["program"] or "-",
            each["url"] or each["tlsUrl"] or "-",
            each["httpUrl"] or each["httpsUrl"] or "-",
        )
        for each in found
    ]
    head = ("NODE", "MEMBER", "NAME", "STATE", "VERSION", "PULSAR", "HTTP")
    return tell(options, found, "\n".join(text_table(head, rows)))


def _state(member: dict[str, Any]) -> str:
    lacking = member["lackingTopics"]
    return str(member["state"]) + (f" ({plural(lacking, 'topic')})" if lacking else "")


def queues(options: argparse.Namespace) -> int:
    found = _get(options, "queues")
    rows: list[tuple[object, ...]] = []
    for topic in found:
        mark = f"unreplicated, on node {topic['node']}" if topic["unreplicated"] else ""
        if mark and topic["owner"] is None:
            mark += ", which is absent"
        if topic["updating"]:
            mark = f"updating: {', '.join(topic['updating'])}"
        if topic["missingBytes"]:
            mark += f"; {topic['missingBytes']:,} bytes are missing here"
        rows.append((short(topic["topic"]), topic["owner"] or "-", "", "", "", mark))
        for each in topic["subscriptions"]:
            consumers = " ".join(f"{member}:{number}" for member, number in each["consumers"].items())
            owner = each["owner"] or "-"
            rows.append((f"  {each['name']}", owner, each["epoch"], consumers or "-", each["backlog"], ""))
    head = ("TOPIC", "OWNER", "EPOCH", "CONSUMERS", "BACKLOG", "")
    return tell(options, found, "\n".join(text_table(head, rows)) if rows else "no topics")


def change(options: argparse.Namespace) -> int:
    http = server_of(options)
    given = {name: value for name, value in options.values if value is not None}
    asked = [name for name, value in options.values if value is None]
    found = http.get("/admin/v2/cluster/status")["options"]
    if unknown := sorted({*asked, *given} - found.keys()):
        meant = near(unknown[0].removeprefix("broker."), list(found))
        raise Usage(f"{unknown[0]!r} is not an option of the cluster; {meant}")
    if given:
        http.send("POST", "/admin/v2/cluster/options", given)
    found = http.get("/admin/v2/cluster/status")["options"]
    if asked or given:
        found = {name: value for name, value in found.items() if name in asked or name in given}
    return tell(options, found, "\n".join(f"{name:32} {json.dumps(value)}" for name, value in found.items()))


def leave(options: argparse.Namespace) -> int:
    http = server_of(options)
    here = http.get("/admin/v2/cluster/status")["member"]
    http.send("POST", "/admin/v2/cluster/leave")
    return tell(options, {"left": here}, f"member {here} leaves the cluster, and its server stops")


def evict(options: argparse.Namespace) -> int:
    http = server_of(options)
    if http.get("/admin/v2/cluster/status")["node"] == options.node:
        raise Misuse(f"node {options.node} is this server; use `holdfast cluster leave`, or another --server")
    http.send("POST", f"/admin/v2/cluster/evict/{options.node}")
    words = f"the cluster continues without node {options.node}; if its broker runs, it joins again"
    return tell(options, {"evicted": options.node}, words)


def free(options: argparse.Namespace) -> int:
    server_of(options).send("POST", "/admin/v2/cluster/free", options.name)
    return tell(options, {"freed": options.name}, f"the name {options.name} is free")
