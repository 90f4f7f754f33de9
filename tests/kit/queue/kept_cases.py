"""Cases of the hostile fuzzer that a night has found: reduced, kept, and replayed.

A kept case has the overwritten field, its state and moment, and the seed of the reader's calls. Values that
follow from the bytes of the file ("+ 1", "sealed -3") are computed again: another run has other times and
process ids there.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace

from holdfast.memory.queue import Checksum
from tests.kit import kept
from tests.kit.queue.hostile import STATES, Case, Scene, Target, targets, values

NAME = "hostile cases"
MOST = 10
"""A night keeps at most this many: one fault has many cases."""

Play = Callable[[Scene, list[Case]], list[str]]
"""Plays cases on a scene; returns the problems (kit/queue/fuzz.py)."""


def encoded(case: Case, checksum: Checksum, acts: int) -> kept.Case:
    return {**asdict(case), "data": case.data.hex(), "checksum": checksum, "acts": acts}


def decoded(entry: kept.Case, image: bytes) -> Case:
    """Return the case for these bytes."""
    target, data = Target(**entry["target"]), bytes.fromhex(entry["data"])
    for same in targets(image):
        if same.name == target.name and not entry["how"].startswith("random"):
            target = same
            data = dict(values(image, same, random.Random(0))).get(entry["how"], data)
    return Case(entry["state"], target, entry["how"], data, entry["when"], entry["acts"])


def scene_of(directory: str, state: str, checksum: Checksum) -> Scene:
    """Create a queue in a state, and keep its bytes; the caller ends it."""
    scene = Scene(directory, checksum, stall_limit=0.005 if state == "fenced" else None)
    scene.make(STATES[state])
    scene.keep()
    return scene


def play_again(entry: kept.Case, play: Play) -> list[str]:
    """Replay a kept case; return the problems."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="holdfast-fuzz.") as directory:
        scene = scene_of(directory, entry["state"], entry["checksum"])
        try:
            return play(scene, [decoded(entry, scene.image)])
        finally:
            scene.end()


def parts(entry: kept.Case) -> list[kept.Case]:
    """Return the case with the first and with the second half of its random bytes."""
    target, data = Target(**entry["target"]), bytes.fromhex(entry["data"])
    if not entry["how"].startswith("random") or not re.match(r"\d+ bytes at", target.name):
        return []
    half, found = len(data) // 2, []
    for start, piece in ((0, data[:half]), (half, data[half:])) if half else ():
        at = target.offset + start
        smaller = replace(target, name=f"{len(piece)} bytes at {at}", offset=at, width=len(piece))
        found.append({**entry, "target": asdict(smaller), "data": piece.hex()})
    return found


def shorter(entry: kept.Case, play: Play) -> kept.Case:
    """Return the case with as few bytes as still show a problem."""
    while smaller := next((part for part in parts(entry) if play_again(part, play)), None):
        entry = smaller
    return entry


def keep_cases(found: list[tuple[str, kept.Case]], play: Play) -> list[str]:
    """Keep one case of each kind of problem; return the kept ones in words."""
    by_kind: dict[str, kept.Case] = {}
    for problem, entry in found:
        by_kind.setdefault(re.sub(r"b'.*?'|\d+", "", problem), entry)
    words = []
    for entry in [*by_kind.values()][:MOST]:
        kept.add(NAME, short := shorter(entry, play))
        words.append(f"{NAME}: {short['state']}: {short['target']['name']} {short['how']} {short['when']}")
    return words
