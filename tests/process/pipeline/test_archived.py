"""An archive's directory between processes."""

from __future__ import annotations

from pathlib import Path

from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory
from tests.kit.processes import Start, tell


def try_to_change(path: str) -> None:
    from holdfast.errors import Locked
    from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory

    try:
        with ArchiveDirectory(path).changing():
            tell("two at once")
    except Locked as error:
        tell(str(error))


def test_one_at_a_time(tmp_path: Path, start: Start) -> None:
    with ArchiveDirectory(tmp_path).changing():
        assert "another process" in start(try_to_change, str(tmp_path)).hear()
    assert start(try_to_change, str(tmp_path)).hear() == "two at once", "it is free again"
