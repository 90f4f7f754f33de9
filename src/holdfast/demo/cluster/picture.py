"""Show the demo of a cluster: a picture in a terminal, lines elsewhere."""

from __future__ import annotations

import sys
from typing import TextIO

from holdfast.demo.cluster.breaking import MemberLook, Outcome, Scene
from holdfast.demo.stage import Lines, account_text, row
from holdfast.formatting import plural

KINDS = ("broker", "sender", "receiver")


def lines(out: TextIO = sys.stdout) -> Lines:
    """Print a line every two seconds, and each event."""
    return Lines(out, line, 2.0, events=True)


def line(scene: Scene) -> str:
    members = "  ".join(f"{each.node}: {each.state}" for each in scene.members)
    return (
        f"{scene.elapsed:6.1f} s  {scene.phase:14}  confirmed {scene.confirmed:,}  "
        f"received {scene.received:,}  backlog {scene.backlog:,}  owner {scene.owner}  [{members}]"
    )


def picture(scene: Scene) -> list[str]:
    return [
        "holdfast cluster demo: senders ─► any of three brokers ─► receivers at all of them",
        f"{scene.phase}, {scene.elapsed:.1f} s",
        "",
        *(f"  node {each.node}   {each.state:30}  {_share(each)}".rstrip() for each in scene.members),
        "",
        f"  confirmed    {scene.confirmed:>12,}   by a majority of the members",
        f"  received     {scene.received:>12,}   by one shared subscription; its owner is {scene.owner}",
        f"  backlog      {scene.backlog:>12,}",
        "",
        *(f"  {kind + 's':12} {row(scene.parts, kind)}" for kind in KINDS),
        "",
        *(f"  {event}" for event in scene.events),
    ]


def _share(member: MemberLook) -> str:
    """Return the view and the subscriptions of a member that serves."""
    if member.state != "serves":
        return ""
    return f"view {member.view}, owns {plural(member.owns, 'subscription')}"


def account_lines(outcome: Outcome) -> list[str]:
    """Return the account at the end, in words."""
    found = outcome.account
    rows: list[tuple[str, int, str]] = []
    if found is not None:
        rows = [
            ("confirmed", found.confirmed, "each sender wrote down what was confirmed to it"),
            ("stored", found.stored, "messages of the topic, the same on every member"),
            ("received", found.received, "each receiver wrote down what it got"),
            (
                "received again",
                found.again,
                "after their receiver's member had died or was cut off",
            ),
            ("lost", found.lost, "confirmed, and missing on a member"),
            ("duplicated", found.duplicated, "stored more than once"),
            ("out of order", found.out_of_order, "behind a later one of its sender"),
            ("not received", found.unreceived, "stored, and received by no receiver"),
            ("unknown", found.unknown, "received, and stored on no member"),
            ("members that differ", found.different, "in the content of the topic"),
        ]
    right = "every message is accounted for: lost 0, duplicated 0, out of order 0, unknown 0, different 0"
    wrong = f"SOMETHING IS WRONG: see above; everything is kept in {outcome.root}"
    return account_text(rows, outcome.faults, right if outcome.good else wrong)
