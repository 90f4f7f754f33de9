"""Read all entries of a range from a broker's files."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._core import Batch, Entries
from holdfast.columns.files import FileTopic


def runs(files: FileTopic, start: int, stop: int) -> Iterator[Entries]:
    """Yield the entries of a range within `plan`, as runs within ledgers."""
    while start < stop:
        run = files.run(start, stop)
        yield run
        start += len(run)


def numbers(files: FileTopic, start: int, stop: int) -> list[int]:
    """Return the payloads of a range as numbers."""
    return [int(message.data) for run in runs(files, start, stop) for message in Batch(run)]
