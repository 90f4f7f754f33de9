"""`holdfast top`: a server's live rates, backlogs and cursors."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.cli.data import SERVER_VARIABLE, short
from holdfast.cli.output import print_json
from holdfast.cli.parsing import Subparsers, Usage, bare_command, declare
from holdfast.errors import Closed, HoldfastError, NotFound
from holdfast.formatting import plural, size_words, text_table

if TYPE_CHECKING:
    from holdfast.cli.remote_http import Http

DESCRIPTION = """\
Reads the metrics of a running server every few seconds: rates of each topic,
backlog and cursor of each subscription. The busiest topics come first. Rates
are averages over the interval.

Ctrl-C ends it. --once reads twice, one interval apart, and prints the result."""

DEFAULT_SERVER = "http://127.0.0.1:8080"
HOME, CLEAR_LINE, CLEAR_BELOW = "\033[H", "\033[K", "\033[J"
CLEAR = "\033[2J"
HIDE, SHOW, BOLD, PLAIN = "\033[?25l", "\033[?25h", "\033[1m", "\033[0m"
SAMPLE = re.compile(r"([a-zA-Z_:][\w:]*)\{(.*)\} (\S+)")
ESCAPED = re.compile(r"\\(.)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def add(nouns: Subparsers) -> None:
    parser, shared = bare_command(nouns, "top", "show live rates, backlogs and cursors", DESCRIPTION, top)
    declare(parser, interval=2.0)("""
        --interval S: seconds between refreshes (default 2)
        --once: print once and exit
        --topics N: at most N topics (default: as many as fit)
        """)
    declare(shared)(f"--server URL: http://host:port (default ${SERVER_VARIABLE}, else {DEFAULT_SERVER})")


@dataclass
class Look:
    """The figures of a server at one moment."""

    at: float
    broker: dict[str, float] = field(default_factory=dict)
    topics: dict[str, dict[str, float]] = field(default_factory=dict)
    subscriptions: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)


def parse(text: str, at: float) -> Look:
    """The page of metrics.

    Example:
        >>> parse('pulsar_rate_in{cluster="c",topic="t"} 2.5', 0.0).topics
        {'t': {'pulsar_rate_in': 2.5}}
    """
    look = Look(at)
    for line in text.splitlines():
        found = SAMPLE.fullmatch(line)
        if found is None:
            continue
        labels = {name: ESCAPED.sub(_plain, value) for name, value in LABEL.findall(found[2])}
        name, value = found[1], float(found[3])
        if "subscription" in labels:
            look.subscriptions.setdefault((labels["topic"], labels["subscription"]), {})[name] = value
        elif "topic" in labels:
            look.topics.setdefault(labels["topic"], {})[name] = value
        elif "namespace" not in labels:
            look.broker[name] = value
    return look


def _plain(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


class Difference:
    """Two looks, and what happened between them."""

    def __init__(self, before: Look, now: Look) -> None:
        self.before, self.now = before, now
        self.seconds = max(1e-6, now.at - before.at)

    def rate(self, before: dict[str, float] | None, now: dict[str, float], name: str) -> float:
        """By a counter. One that was not there, or that began anew, tells nothing yet."""
        if before is None or name not in before or now.get(name, 0.0) < before[name]:
            return 0.0
        return (now[name] - before[name]) / self.seconds

    def topics(self) -> list[dict[str, Any]]:
        """The busiest first, then those with the largest backlog."""
        rows = []
        for name, now in self.now.topics.items():
            before = self.before.topics.get(name)
            subscriptions = [
                self.subscription(name, each) for topic, each in self.now.subscriptions if topic == name
            ]
            rows.append(
                {
                    "topic": name,
                    "in_per_s": round(self.rate(before, now, "pulsar_in_messages_total"), 1),
                    "in_bytes_per_s": round(self.rate(before, now, "pulsar_in_bytes_total"), 1),
                    "out_per_s": round(sum((each["out_per_s"] for each in subscriptions), 0.0), 1),
                    "size_bytes": int(now.get("pulsar_storage_size", 0)),
                    "producers": int(now.get("pulsar_producers_count", 0)),
                    "consumers": int(now.get("pulsar_consumers_count", 0)),
                    "backlog": int(now.get("pulsar_msg_backlog", 0)),
                    "stopped": bool(now.get("holdfast_topic_backlog_exceeded", 0)),
                    "subscriptions": sorted(subscriptions, key=lambda each: str(each["name"])),
                }
            )
        return sorted(
            rows, key=lambda row: (-(row["in_per_s"] + row["out_per_s"]), -row["backlog"], row["topic"])
        )

    def subscription(self, topic: str, name: str) -> dict[str, Any]:
        now = self.now.subscriptions[topic, name]
        before = self.before.subscriptions.get((topic, name))
        return {
            "name": name,
            "backlog": int(now.get("pulsar_subscription_back_log", 0)),
            "out_per_s": round(self.rate(before, now, "pulsar_out_messages_total"), 1),
            "unacked": int(now.get("pulsar_subscription_unacked_messages", 0)),
            "consumers": int(now.get("pulsar_subscription_consumers_count", 0)),
            "resets": int(now.get("pulsar_cursor_epoch_increase_count", 0)),
            "resetting": bool(now.get("pulsar_cursor_epoch_increase_task_state", 0)),
            "stuck": bool(now.get("holdfast_subscription_stuck", 0)),
        }

    def broker(self) -> dict[str, Any]:
        now, before = self.now.broker, self.before.broker
        return {
            "topics": int(now.get("pulsar_broker_topics_count", 0)),
            "connections": int(now.get("pulsar_active_connections", 0)),
            "cpu": round(self.rate(before, now, "process_cpu_seconds_total"), 4),
            "resident_bytes": int(now.get("process_resident_memory_bytes", 0)),
            "rounds_per_s": round(self.rate(before, now, "holdfast_rounds_total"), 1),
            "pending_bytes": int(now.get("holdfast_pending_bytes", 0)),
            "disk_free_bytes": int(now.get("holdfast_disk_free_bytes", 0)),
            "up": bool(now.get("holdfast_up", 0)),
        }


def top(options: argparse.Namespace) -> int:
    if options.interval == 0:
        raise Usage("--interval 0: rates are of the time between two looks")
    try:
        from holdfast.cli.remote_http import Http
    except ModuleNotFoundError as error:
        raise Usage(f"a server needs {error.name}: pip install 'holdfast[server]'") from None

    http = Http(options.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_SERVER)
    live = sys.stdout.isatty() and not options.once and not options.json
    before = look(http)
    try:
        if live:
            print(HIDE + CLEAR, end="")
        while True:
            time.sleep(options.interval)
            try:
                now = look(http)
                show(http, Difference(before, now), options, live)
            except Closed as error:  # it is being restarted, perhaps
                if not live:
                    raise
                print(
                    f"{HOME}{BOLD}{error}; looking again{PLAIN}{CLEAR_LINE}\n{CLEAR_BELOW}",
                    end="",
                    flush=True,
                )
                continue
            if options.once:
                return 0
            before = now
    finally:
        if live:
            print(SHOW, end="", flush=True)


def look(http: Http) -> Look:
    return parse(http.raw("GET", "/metrics", None, {})[0].decode(), time.monotonic())


def show(http: Http, found: Difference, options: argparse.Namespace, live: bool) -> None:
    rows = found.topics()
    height = shutil.get_terminal_size().lines if live else sys.maxsize
    limit = options.topics or (len(rows) if not live else max(1, height // 3))
    for row in rows[:limit]:
        cursors_into(http, row)
    if options.json:
        print_json({"server": http.url, **found.broker(), "shown": rows[:limit]})
        return
    text = lines(http.url, found.broker(), rows[:limit], len(rows))
    if live:
        width = shutil.get_terminal_size().columns
        shown = [f"{line[:width]}{CLEAR_LINE}" for line in text[: height - 1]]
        shown[0] = f"{BOLD}{shown[0]}{PLAIN}"
        print(HOME + "\n".join(shown) + CLEAR_BELOW, end="", flush=True)
    else:
        print("\n".join(text), flush=True)


def cursors_into(http: Http, row: dict[str, Any]) -> None:
    """Where the cursors of a topic stand: that is not among the metrics."""
    from holdfast.cli.remote_http import path_of

    try:
        cursors = http.get(path_of(row["topic"]) + "/internalStats")["cursors"]
    except NotFound:
        cursors = {}  # it was removed a moment ago
    except HoldfastError:
        cursors = {}  # a role that may see the metrics may not be allowed to see this
    for each in row["subscriptions"]:
        cursor = cursors.get(each["name"], {})
        each["acked_to"] = cursor.get("markDeletePosition", "")
        each["next"] = cursor.get("readPosition", "")


def lines(url: str, broker: dict[str, Any], rows: list[dict[str, Any]], topics: int) -> list[str]:
    state = "up" if broker["up"] else "CANNOT CONFIRM ANYTHING"
    told = [
        f"{url}: {state}; {plural(topics, 'topic')}, {plural(broker['connections'], 'connection')}",
        f"CPU {broker['cpu']:.0%}, memory {size_words(broker['resident_bytes'])}, "
        f"{broker['rounds_per_s']:.0f} rounds/s, free disk {size_words(broker['disk_free_bytes'])}",
        "",
    ]
    cells = []
    for row in rows:
        ends = (row["producers"], row["consumers"], size_words(row["size_bytes"]))
        rate = f"{size_words(int(row['in_bytes_per_s']))}/s"
        name = short(row["topic"])
        mark = "producers stopped" if row["stopped"] else ""
        cells.append((name, row["in_per_s"], rate, row["out_per_s"], row["backlog"], *ends, "", "", mark))
        for each in row["subscriptions"]:
            mark = "resetting" if each["resetting"] else "stuck" if each["stuck"] else ""
            cells.append(
                (
                    f"  {each['name']}",
                    *("", "", each["out_per_s"], each["backlog"], "", each["consumers"], ""),
                    *(each["acked_to"], each["next"], mark),
                )
            )
    head = ("TOPIC", "IN/S", "BYTES", "OUT/S", "BACKLOG", "PROD", "CONS", "SIZE", "ACKED TO", "NEXT", "")
    told += text_table(head, cells) if cells else ["no topics"]
    if len(rows) < topics:
        told.append(f"and {plural(topics - len(rows), 'more topic')}")
    return told
