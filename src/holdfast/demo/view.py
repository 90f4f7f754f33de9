"""What the demo shows while it runs: a picture redrawn in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import shutil
from typing import TextIO

from holdfast.demo.places import Part
from holdfast.demo.show import Outcome, Scene

HIDE, SHOW = "\033[?25l", "\033[?25h"
KINDS = ("sensor", "gateway", "consumer", "broker", "spark")


class Quiet:
    """For `--json`: nothing but the account."""

    def draw(self, scene: Scene) -> None:
        pass


class Lines:
    """A line every two seconds, and each event, for a log or a pipe."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._next, self._told = out, 0.0, ""

    def draw(self, scene: Scene) -> None:
        fresh = scene.events
        if self._told in fresh:
            fresh = fresh[fresh.index(self._told) + 1 :]
        for event in fresh:
            print(f"  {event}", file=self._out)
        if scene.events:
            self._told = scene.events[-1]
        if scene.elapsed >= self._next and scene.phase != "auditing":
            self._next = scene.elapsed + 2.0
            print(
                f"{scene.elapsed:6.1f} s  {scene.phase:14}  entries stored {scene.stored:,} "
                f"({scene.stored_rate:,.0f}/s)  calibrated {scene.calibrated:,}  backlog {scene.backlog:,}  "
                f"killed {sum(scene.kills.values())}",
                file=self._out,
            )
        self._out.flush()


class Picture:
    """The whole scene, redrawn in place."""

    def __init__(self, out: TextIO) -> None:
        self._out, self._height = out, 0

    def draw(self, scene: Scene) -> None:
        width, height = shutil.get_terminal_size()
        lines = [_cut(line, width - 1) for line in _lines(scene)][: height - 1]
        up = f"\033[{self._height}A" if self._height else HIDE
        self._out.write(up + "".join(f"\r\033[K{line}\n" for line in lines) + "\033[J")
        if scene.phase == "over":
            self._out.write(SHOW)
        self._out.flush()
        self._height = len(lines)


def _lines(scene: Scene) -> list[str]:
    settings = scene.settings
    return [
        "holdfast demo: sensors in shared memory and Pulsar clients ─► broker ─► consumers, and Spark"
        + (", and kill -9 for all of them" if settings.chaos else ""),
        f"{scene.phase}, {scene.elapsed:.1f} s",
        "",
        f"  stored       {scene.stored:>12,}   entries, {scene.stored_rate:,.0f}/s",
        f"  calibrated   {scene.calibrated:>12,}   by the Spark stream, exactly once",
        f"  backlog      {scene.backlog:>12,}   of the subscription `dashboard`",
        f"  killed       {sum(scene.kills.values()):>12,}   {kill_words(scene)}",
        "",
        *(f"  {kind + 's':12} {_row(scene.parts, kind)}" for kind in KINDS),
        "",
        *(f"  {event}" for event in scene.events),
    ]


def kill_words(scene: Scene) -> str:
    return ", ".join(f"{scene.kills.get(kind, 0)} × {kind}" for kind in KINDS)


def _row(parts: list[Part], kind: str) -> str:
    marks = {"runs": "● {}", "killed": "† {} killed", "left": "  {} left"}
    return "   ".join(marks[part.state].format(part.name) for part in parts if part.kind == kind)


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: max(0, width - 1)] + "…"


def account_lines(outcome: Outcome) -> list[str]:
    """The account at the end, in words."""
    account, scene = outcome.account, outcome.scene
    lines = ["", "the account"]
    if account is not None:
        rows = [
            ("sent, confirmed", account.confirmed, "each producer wrote down what was confirmed to it"),
            ("sent, unconfirmed", account.unconfirmed, "stored; its producer was killed before it knew"),
            ("stored", account.stored, "messages of the topic `measurements`"),
            ("calibrated", account.calibrated, "by the Spark stream, through its exactly-once sink"),
            ("archived", account.archived, "rows of Parquet, both topics"),
            ("processes killed", sum(scene.kills.values()), kill_words(scene)),
            ("lost", account.lost, "confirmed and not there: stored, calibrated or archived"),
            ("duplicated", account.duplicated, "there more than once"),
            ("out of order", account.out_of_order, "behind a later one of its key"),
        ]
        if account.strange:
            rows.append(("strange", account.strange, "damaged, not numbered, or of an unknown producer"))
        lines += [f"  {name:20} {count:>12,}   {words}".rstrip() for name, count, words in rows]
    lines += [f"  fault: {fault}" for fault in outcome.faults]
    lines.append("")
    if outcome.places.report.exists():
        lines.append(f"report: {outcome.places.report}")
    if outcome.good and account is not None:
        lines.append("every message is accounted for: lost 0, duplicated 0, out of order 0")
    else:
        lines.append(f"SOMETHING IS WRONG: see above; everything is kept in {outcome.places.root}")
    return lines
