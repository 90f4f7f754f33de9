"""Spaces that a night found violated, kept with the number of states that shows it.

    python -m tests.kit.queue.kept_spaces --keep REPORT    # keep the violated spaces of the explorer's report
    python -m tests.kit.queue.kept_spaces                  # print them, as options of the explorer

The explorer goes depth first, always in the same order, so as many states find the same violation again.
After the mend they are other states of the same space, and `make nightly` explores all of it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.kit import kept

NAME = "explorer"
STATES_MAX = 10_000_000
"""`make test` has seconds for it. `make nightly` alone looks for a violation behind more states."""


def keep(report: Path) -> list[str]:
    """Keep the violated spaces of a report; return them in words."""
    words = []
    for space in json.loads(report.read_text()):
        if space["kind"] == "queue" and space["check"]:
            kept.add(NAME, {"space": space["name"], "states": space["found_after"] + 1})
            words.append(f"{NAME}: {space['name']}, {space['found_after']:,} states: {space['check']}")
    return words


def options() -> list[str]:
    """Return the options with which the explorer replays the kept spaces."""
    found: dict[str, int] = {}
    for entry in kept.load().get(NAME, []):
        if isinstance(entry, dict) and entry["states"] <= STATES_MAX:
            found[entry["space"]] = max(entry["states"], found.get(entry["space"], 0))
    return [word for name, states in found.items() for word in ("--also", f"{name}={states}")]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--keep"]:
        print("kept:", *keep(Path(sys.argv[2])), sep="\n  ")
    else:
        print(*options())
