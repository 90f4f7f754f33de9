"""What the demo shows while it runs: a picture that is redrawn in a terminal, a line a second elsewhere."""

from __future__ import annotations

import shutil
import time
from collections import deque
from typing import TextIO

from holdfast import QueueStats
from holdfast.demo.queue.show import Outcome, Scene, Worker

BAR = 20
HIDE, SHOW = "\033[?25l", "\033[?25h"


class Rates:
    """Messages per second over the last two seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int, int]] = deque()

    def add(self, put: int, delivered: int) -> tuple[float, float]:
        now = time.monotonic()
        self._seen.append((now, put, delivered))
        while now - self._seen[0][0] > 2.0:
            self._seen.popleft()
        since, put_then, delivered_then = self._seen[0]
        span = max(now - since, 1e-9)
        return (put - put_then) / span, (delivered - delivered_then) / span


class Quiet:
    """For `--json`: nothing but the account."""

    def draw(self, scene: Scene) -> None:
        pass


class Lines:
    """A line a second, for a log or a pipe."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._rates, self._next = out, Rates(), 0.0

    def draw(self, scene: Scene) -> None:
        stats = scene.stats
        if stats is None:
            return
        put, delivered = self._rates.add(stats.put, stats.delivered)
        if scene.elapsed < self._next and scene.phase != "over":
            return
        self._next = scene.elapsed + 1.0
        alive = sum(worker.alive for worker in scene.workers)
        print(
            f"{scene.elapsed:5.1f} s  {scene.phase:8}  put {stats.put:,} ({put:,.0f}/s)  "
            f"delivered {stats.delivered:,} ({delivered:,.0f}/s)  depth {stats.ready + stats.returned:,}  "
            f"alive {alive}/{len(scene.workers)}  killed {sum(scene.killed.values())}  "
            f"stopped {scene.stopped}  skipped {stats.skipped}  handed on {stats.handed_on}",
            file=self._out,
            flush=True,
        )


class Picture:
    """The whole scene, redrawn in place."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._rates, self._height = out, Rates(), 0

    def draw(self, scene: Scene) -> None:
        if scene.stats is None:
            return
        width, height = shutil.get_terminal_size()
        lines = [_cut(line, width - 1) for line in self._lines(scene)][: height - 1]
        up = f"\033[{self._height}A" if self._height else HIDE
        self._out.write(up + "".join(f"\r\033[K{line}\n" for line in lines) + "\033[J")
        if scene.phase == "over":
            self._out.write(SHOW)
        self._out.flush()
        self._height = len(lines)

    def _lines(self, scene: Scene) -> list[str]:
        stats, settings = scene.stats, scene.settings
        assert stats is not None
        put, delivered = self._rates.add(stats.put, stats.delivered)
        used = round(BAR * stats.used_bytes / stats.capacity_bytes)
        bar = "█" * used + "░" * (BAR - used)
        killed = scene.killed
        return [
            f"holdfast demo: one queue, {settings.producers} producers, {settings.consumers} consumers"
            + (", and kill -9" if settings.chaos else ""),
            f"{scene.phase}, {scene.elapsed:.1f} s of {settings.seconds:.0f} s",
            "",
            f"  put          {stats.put:>12,}   {put:>9,.0f}/s",
            f"  delivered    {stats.delivered:>12,}   {delivered:>9,.0f}/s",
            f"  redelivered  {stats.redelivered:>12,}",
            f"  depth        {stats.ready + stats.returned:>12,}   {bar} {stats.used_bytes / 2**20:.1f} of "
            f"{stats.capacity_bytes / 2**20:.0f} MiB, {stats.taken} in hands",
            "",
            f"  killed       {sum(killed.values()):>12,}   {killed['producer']} producers, "
            f"{killed['consumer']} consumers; {scene.stopped} held by SIGSTOP",
            f"  recovered    {stats.skipped + stats.handed_on:>12,}   {recovered_words(stats)}",
            "",
            "  producers    " + _row(scene.workers, "producer"),
            "  consumers    " + _row(scene.workers, "consumer"),
            "",
            *(f"  {event}" for event in scene.events),
        ]


def recovered_words(stats: QueueStats) -> str:
    return f"{stats.skipped} half-written skipped, {stats.handed_on} messages handed on"


def _row(workers: list[Worker], kind: str) -> str:
    marks = {"runs": "● {}", "stopped": "◌ {} stopped", "killed": "† {} killed", "left": "  {} left"}
    return "   ".join(marks[each.state].format(each.ident) for each in workers if each.kind == kind)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


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
    lines = [f"  {name:20} {count:>12,}   {words}".rstrip() for name, count, words in rows]
    verdict = (
        f"every message is accounted for: lost {account.lost}"
        if outcome.good
        else "SOMETHING IS WRONG: see above"
    )
    return ["", "the account", *lines, *(f"  fault: {fault}" for fault in outcome.faults), "", verdict]
