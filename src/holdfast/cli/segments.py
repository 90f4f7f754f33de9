"""Looking at segments from outside, without attaching; removing them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import Corrupt, Denied, Misuse, NotFound, Queue, _core
from holdfast.cli.data import nearest
from holdfast.cli.output import print_json
from holdfast.memory import QueueStats, faults_of, names_of, stats_of

PAGE = 4096
"""Blocks that are described in one look."""


def where(directory: str | None) -> str:
    return directory or _core.default_directory()


def nothing(nouns: str, directory: str | None) -> str:
    """Say that there are no such segments, and whether there is a directory at all."""
    place = where(directory)
    return f"no {nouns} in {place}" + ("" if Path(place).exists() else ": the directory does not exist")


def look(directory: str | None, name: str, **extent: int) -> dict[str, Any]:
    """Inspect a queue; again where a busy queue went on too fast."""
    return look_until_complete("queue", lambda: _core.inspect(where(directory), name, **extent))


def look_until_complete(kind: str, inspect: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Inspect a segment, up to five times while it changes too fast."""
    for _ in range(5):
        seen = inspect()
        if not (seen.get(kind) or {}).get("overtaken"):
            break
        time.sleep(0.01)
    return seen


def not_found(kind: str, directory: str | None, name: str) -> NotFound:
    """Make the error for a segment that does not exist; it names a similar one."""
    known = names_of(kind, directory)
    return NotFound(f"no {kind} named {name} in {where(directory)}; {nearest(name, known, kind)}")


def look_at_all(directory: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every queue with what it tells. Another user's may tell nothing: `denied`."""
    for name in Queue.list(directory=directory):
        try:
            yield name, look(directory, name)
        except NotFound:
            continue
        except Denied as error:
            yield name, {"faults": [str(error)], "denied": True}


def stats(directory: str | None, name: str) -> QueueStats:
    """As `Queue.stats()`, for a queue whose control words can be believed."""
    seen = look(directory, name)
    require_readable(name, seen)
    return stats_of(name, seen)


def require_readable(name: str, seen: dict[str, Any]) -> None:
    if "queue" not in seen:
        raise Corrupt(f"queue {name} cannot be read: {'; '.join(seen['faults'])}")
    if seen["queue"]["fault"] is not None:
        raise Corrupt(f"queue {name} is damaged: {faults_of(seen)[-1]}; run `holdfast doctor {name}`")


def blocks(directory: str | None, name: str, payload_max: int = 0) -> Iterator[dict[str, Any]]:
    """Every block that is in use, in order of position. Of a busy queue: about."""
    last = -1
    skip = 0
    while True:
        listed = look(directory, name, skip=skip, blocks_max=PAGE, payload_max=payload_max)
        page = listed["queue"]["list"] if "queue" in listed else []
        for block in page:
            if block["position"] > last:
                last = block["position"]
                yield block
        if len(page) < PAGE:
            return
        skip += PAGE


@dataclass(frozen=True)
class Left:
    """A block that a dead participant left unfinished, and what recovery makes of it."""

    position: int
    state: str
    slot: int
    pid: int
    bytes: int
    outcome: str
    """skip, hand_on or release, as recovery itself calls it."""
    dead_letter: str | None
    """Where it goes from there, because it was delivered too often."""

    @property
    def words(self) -> str:
        if self.dead_letter is not None:
            return f"taken and not settled, too often: goes to the dead-letter queue {self.dead_letter}"
        return {
            "skip": "a half-written message: consumers will pass over it",
            "hand_on": "taken and not settled: goes to another consumer, marked as redelivered",
            "release": "taken and not settled: let go, as at-most-once promises",
        }[self.outcome]


def outcome(state: str, delivery: str) -> str | None:
    """Return the outcome of a dead participant's block, as in native/holdfast/queue/recovery.hpp."""
    if state in ("RESERVED", "FENCED"):
        return "skip"
    if state == "TAKEN":
        return "hand_on" if delivery == "at-least-once" else "release"
    return None


def left_by_the_dead(directory: str | None, name: str) -> list[Left]:
    """All that a recovery would repair now."""
    seen = look(directory, name)
    if "queue" not in seen:
        return []
    people = {each["slot"]: each for each in seen["people"]}
    dead = {
        each["slot"] for each in seen["queue"]["holders"] if not people.get(each["slot"], {}).get("alive")
    }
    if not dead:
        return []
    found = []
    for block in blocks(directory, name):
        becomes = outcome(block["state"], seen["params"]["delivery"])
        if block["owner"] in dead and becomes is not None:
            pid = people[block["owner"]]["pid"] if block["owner"] in people else 0
            limit = seen["params"]["max_deliveries"]
            too_often = becomes == "hand_on" and limit and block["deliveries"] + 1 >= limit
            letters = seen["params"]["dead_letter"] if too_often else None
            found.append(
                Left(block["position"], block["state"], block["owner"], pid, block["bytes"], becomes, letters)
            )
    return found


def living(seen: dict[str, Any]) -> list[dict[str, Any]]:
    """The participants whose locks are held."""
    return [each for each in seen.get("people", []) if each["alive"]]


def dead(seen: dict[str, Any]) -> list[dict[str, Any]]:
    """Participants that are gone without having left."""
    return [each for each in seen.get("people", []) if each["active"] and not each["alive"]]


def process_name(pid: int) -> str:
    """Return the name of a program: more telling than its pid."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "of another pid namespace"


def remove(
    options: argparse.Namespace,
    kind: str,
    look_at: Callable[[str | None, str], dict[str, Any]],
    unlink: Callable[..., None],
) -> int:
    """Delete the segments that the options name.

    Raises:
        Misuse: a living process is attached, and `--force` is not given.
    """
    for name in options.names:
        pids = sorted({each["pid"] for each in living(look_at(options.directory, name))})
        if pids and not options.force:
            users = ", ".join(f"{pid} ({process_name(pid)})" for pid in pids)
            raise Misuse(
                f"{kind} {name} is in use by pid {users}; end these processes first, or use --force. "
                f"They then keep a {kind} that no other process can open"
            )
        unlink(name, directory=options.directory)
        if not options.json:
            print(f"removed {name}")
    if options.json:
        print_json({"removed": options.names})
    return 0


def state_words(seen: dict[str, Any]) -> str:
    """One word or two for a list."""
    if "denied" in seen:
        return "denied"
    if "queue" not in seen:
        return "damaged"
    if not seen["this_boot"]:
        return "before reboot"
    if faults_of(seen):
        return "busy" if seen["queue"]["overtaken"] else "damaged"
    return "closed" if seen["queue"]["closed"] else "open"
