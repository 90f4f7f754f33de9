"""Show the queue's demo: a picture in a terminal, a line a second elsewhere."""

from __future__ import annotations

import sys
from typing import TextIO

from holdfast import QueueStats
from holdfast.demo.queue.show import Outcome, Scene
from holdfast.demo.stage import Lines, account_text, row
from holdfast.formatting import plural

BAR = 20


def lines(out: TextIO = sys.stdout) -> Lines:
    """A line a second."""
    return Lines(out, line, 1.0, events=False)


def line(scene: Scene) -> str | None:
    stats = scene.stats
    if stats is None:
        return None
    alive = sum(worker.alive for worker in scene.workers)
    return (
        f"{scene.elapsed:5.1f} s  {scene.phase:8}  put {stats.put:,} ({scene.put_rate:,.0f}/s)  "
        f"delivered {stats.delivered:,} ({scene.delivered_rate:,.0f}/s)  "
        f"depth {stats.ready + stats.returned:,}  "
        f"alive {alive}/{len(scene.workers)}  killed {sum(scene.killed.values())}  "
        f"stopped {scene.stopped}  skipped {stats.skipped}  handed on {stats.handed_on}"
    )


def picture(scene: Scene) -> list[str]:
    stats, settings = scene.stats, scene.settings
    if stats is None:
        return []
    used = round(BAR * stats.used_bytes / stats.capacity_bytes)
    bar = "█" * used + "░" * (BAR - used)
    killed = scene.killed
    return [
        f"holdfast demo: one queue, {plural(settings.producers, 'producer')}, "
        f"{plural(settings.consumers, 'consumer')}" + (", and kill -9" if settings.chaos else ""),
        f"{scene.phase}, {scene.elapsed:.1f} s of {settings.seconds:.0f} s",
        "",
        f"  put          {stats.put:>12,}   {scene.put_rate:>9,.0f}/s",
        f"  delivered    {stats.delivered:>12,}   {scene.delivered_rate:>9,.0f}/s",
        f"  redelivered  {stats.redelivered:>12,}",
        f"  depth        {stats.ready + stats.returned:>12,}   {bar} {stats.used_bytes / 2**20:.1f} of "
        f"{stats.capacity_bytes / 2**20:.0f} MiB, {stats.taken} in hands",
        "",
        f"  killed       {sum(killed.values()):>12,}   {plural(killed['producer'], 'producer')}, "
        f"{plural(killed['consumer'], 'consumer')}; {scene.stopped} held by SIGSTOP",
        f"  recovered    {stats.skipped + stats.handed_on:>12,}   {recovered_words(stats)}",
        "",
        "  producers    " + row(scene.workers, "producer"),
        "  consumers    " + row(scene.workers, "consumer"),
        "",
        *(f"  {event}" for event in scene.events),
    ]


def recovered_words(stats: QueueStats) -> str:
    return f"{stats.skipped} half-written skipped, {plural(stats.handed_on, 'message')} handed on"


def account_lines(outcome: Outcome) -> list[str]:
    """The account at the end, in words."""
    account, scene = outcome.account, outcome.scene
    stats = scene.stats
    rows = [
        ("put, confirmed", account.confirmed, "the put returned, and its producer wrote that down"),
        (
            "put, unconfirmed",
            account.unconfirmed,
            "delivered; its producer was killed before it wrote that down",
        ),
        ("delivered, distinct", account.delivered, ""),
        ("redelivered", account.redelivered, "each of them marked"),
    ]
    if stats is not None:
        rows.append(("recovered", stats.skipped + stats.handed_on, recovered_words(stats)))
    killed = sum(scene.killed.values())
    rows += [
        ("processes killed", killed, f"and {scene.stopped} held with SIGSTOP"),
        ("lost", account.lost, "confirmed and never delivered"),
        ("duplicated, unmarked", account.unmarked, "delivered again, looking like the first time"),
        ("damaged or invented", account.damaged + account.invented, ""),
    ]
    right = f"every message is accounted for: lost {account.lost}"
    return account_text(rows, outcome.faults, right if outcome.good else "SOMETHING IS WRONG: see above")
