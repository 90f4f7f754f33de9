"""The disk's limit: three processes write the same bytes twice, and sync one copy."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from bench.answers import answer
from bench.server_load import Load

SYNCED_BYTES, OTHER_BYTES = 64 << 20, 256 << 20
"""Where each file begins again: a journal is used again, a ledger grows."""
MEMBERS = 3
LIMIT_S = 60.0


def work(control: Connection, directory: Path, round_bytes: int, seconds: float) -> None:
    """Write rounds until the time is over; answer how many, and the seconds."""
    data = os.urandom(round_bytes)
    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
    synced, other = (os.open(directory / name, flags, 0o600) for name in ("synced", "other"))
    os.posix_fallocate(synced, 0, SYNCED_BYTES)
    os.fsync(synced)
    control.send("ready")
    control.recv()
    begin, rounds = time.monotonic(), 0
    room, behind = max(1, SYNCED_BYTES // round_bytes), max(1, OTHER_BYTES // round_bytes)
    while time.monotonic() < begin + seconds:
        os.pwrite(synced, data, rounds % room * round_bytes)
        os.pwrite(other, data, rounds % behind * round_bytes)
        os.fdatasync(synced)
        rounds += 1
    control.send((rounds, time.monotonic() - begin))


def measure(directory: Path, round_bytes: int, seconds: float) -> Load:
    """Return rounds and seconds of the slowest of three processes."""
    context = multiprocessing.get_context("spawn")
    controls, processes = [], []
    for number in range(MEMBERS):
        place = directory / f"disk-{number}"
        place.mkdir(parents=True, exist_ok=True)
        ours, theirs = context.Pipe()
        process = context.Process(target=work, args=(theirs, place, round_bytes, seconds), daemon=True)
        process.start()
        theirs.close()
        controls.append(ours)
        processes.append(process)
    try:
        for control in controls:
            answer(control, "the disk", LIMIT_S)
        for control in controls:
            control.send("go")
        told = [answer(control, "the disk", seconds + LIMIT_S) for control in controls]
    finally:
        for process in processes:
            process.kill()
            process.join()
        for control in controls:
            control.close()
    return slowest(told)


def slowest(told: Sequence[tuple[int, float]]) -> Load:
    """Return rounds and seconds of the process that wrote fewest rounds a second.

    It may have written more rounds than another one: its last round may have taken long.
    """
    return Load(*min(told, key=lambda each: each[0] / each[1]))
