"""Read all entries of a range from a broker's files."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._core import Batch, Entries
from holdfast.columns.files import FileTopic


def runs(files: FileTopic, start: int, stop: int) -> Iterator[Entries]:
    """The entries of a range that `plan` gave, as runs within ledgers."""
    while start < stop:
        run = files.run(start, stop)
        yield run
        start += len(run)


def numbers(files: FileTopic, start: int, stop: int) -> list[int]:
    """The payloads of a range, which are numbers."""
    return [int(message.data) for run in runs(files, start, stop) for message in Batch(run)]
