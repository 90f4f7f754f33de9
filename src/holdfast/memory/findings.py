"""Faults of a segment in words, from the core's inspection; for `check`, `doctor` and `adopt`."""

from __future__ import annotations

from typing import Any


def faults_of(seen: dict[str, Any], stale_is_fine: bool = False) -> list[str]:
    """Return all faults of a segment; `seen` is the result of `_core.inspect`."""
    faults = list(seen["faults"])
    if stale_is_fine and not seen.get("this_boot", True):
        faults.pop()  # the last one says that it is from before the last boot
    queue = seen.get("queue")
    if queue is None:
        return faults
    fault = queue["fault"]
    if fault is not None:
        faults.append(f"{fault['what']} at position {fault['position']} holds {fault['value']:#018x}")
    if queue["overtaken"]:
        faults.append("the queue was too busy for a complete look; look again")
    for block in queue["list"]:
        if block.get("fault") is not None:
            where = f"the {block['state']} message at position {block['position']}"
            faults.append(f"{where}: {block['fault']} is wrong")
    return faults
