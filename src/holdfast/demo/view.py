"""Show the demo: a picture in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from typing import TextIO

from holdfast.demo.show import Outcome, Scene
from holdfast.demo.stage import Lines, account_text, row

KINDS = ("sensor", "analyser", "gateway", "consumer", "broker", "spark")


def lines(out: TextIO = sys.stdout) -> Lines:
    """A line every two seconds, and each event."""
    return Lines(out, line, 2.0, events=True)


def line(scene: Scene) -> str | None:
    if scene.phase == "auditing":
        return None
    return (
        f"{scene.elapsed:6.1f} s  {scene.phase:14}  entries stored {scene.stored:,} "
        f"({scene.stored_rate:,.0f}/s)  calibrated {scene.calibrated:,}  backlog {scene.backlog:,}  "
        f"killed {sum(scene.kills.values())}"
    )


def picture(scene: Scene) -> list[str]:
    settings = scene.settings
    return [
        "holdfast demo: sensors ─► analysers, and Pulsar clients ─► broker ─► consumers, and Spark"
        + (", and kill -9 for all of them" if settings.chaos else ""),
        f"{scene.phase}, {scene.elapsed:.1f} s",
        "",
        f"  frames       {scene.frames:>12,}   through loops, {scene.displaced:,} displaced by newer ones",
        f"  stored       {scene.stored:>12,}   entries, {scene.stored_rate:,.0f}/s",
        f"  calibrated   {scene.calibrated:>12,}   by the Spark stream, exactly once",
        f"  backlog      {scene.backlog:>12,}   of the subscription `dashboard`",
        f"  killed       {sum(scene.kills.values()):>12,}   {kill_words(scene)}",
        "",
        *(f"  {kind + 's':12} {row(scene.parts, kind)}" for kind in KINDS),
        "",
        *(f"  {event}" for event in scene.events),
    ]


def kill_words(scene: Scene) -> str:
    return ", ".join(f"{scene.kills.get(kind, 0)} × {kind}" for kind in KINDS)


def account_lines(outcome: Outcome) -> list[str]:
    """The account at the end, in words."""
    account, scene, frames, levels = outcome.account, outcome.scene, outcome.frames, outcome.levels
    rows: list[tuple[str, int, str]] = []
    if account is not None:
        rows = [
            ("frames acquired", frames.acquired, "by the sensors, in buffers of their loops"),
            ("frames analysed", frames.analysed, "each once, in order; one reading of each"),
            ("frames displaced", frames.displaced, "newer ones took their places; the buffers came back"),
            ("frames lost", frames.lost, f"with a killed sensor or analyser: at most {frames.lost_max:,}"),
            ("buffers leaked", frames.leaked, f"of {frames.buffers:,}"),
            ("levels sent", levels.sent, "by the sensors, as events of their services"),
            ("levels stored", levels.stored, "by taps of the broker, in the topic `levels`"),
            ("levels missed", levels.missed, f"and {levels.away:,} were sent while the broker was away"),
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
        if frames.left:
            rows.insert(3, ("frames left", frames.left, "in the loops at the end"))
        if account.strange:
            rows.append(("strange", account.strange, "damaged, not numbered, or of an unknown producer"))
    good = outcome.good and account is not None
    wrong = f"SOMETHING IS WRONG: see above; everything is kept in {outcome.places.root}"
    right = "every message is accounted for: lost 0, duplicated 0, out of order 0, buffers leaked 0"
    lines = account_text(rows, outcome.faults, right if good else wrong)
    if outcome.places.report.exists():
        lines.insert(-1, f"report: {outcome.places.report}")
    return lines
