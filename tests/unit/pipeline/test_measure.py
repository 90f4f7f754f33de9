"""Figures per window: what is replaced, and what a stream goes on with; without Spark."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from holdfast.errors import Misuse
from holdfast.pipeline.measure import (
    Fields,
    Windows,
    replaced,
    require_figures,
    require_same,
    require_stream,
)


def test_figures_are_replaced_as_a_whole(tmp_path: Path) -> None:
    to = tmp_path / "w"

    def write(text: str) -> None:
        with replaced(to) as place:
            Path(place).mkdir()
            (Path(place) / "part-0").write_text(text)
            if text == "half":
                raise KeyboardInterrupt

    def there() -> tuple[str, list[str]]:
        return (to / "part-0").read_text(), sorted(each.name for each in tmp_path.iterdir())

    write("one")
    assert there() == ("one", ["w"])
    write("two")
    assert there() == ("two", ["w"])
    with pytest.raises(KeyboardInterrupt):
        write("half")
    assert there() == ("two", ["w"])
    # Killed between the two renames; and a run that is still at work, which is not disturbed.
    to.rename(tmp_path / ".w.old-1")
    (tmp_path / ".w.new-1/figures").mkdir(parents=True)
    (tmp_path / ".w.new-2").mkdir()
    lock = os.open(tmp_path / ".w.new-2", os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_SH)
    with pytest.raises(KeyboardInterrupt):
        write("half")
    assert there() == ("two", [".w.new-2", "w"])
    os.close(lock)
    write("three")
    assert there() == ("three", ["w"])
    with replaced("s3a://bucket/w") as place:
        assert place == "s3a://bucket/w"


def test_a_checkpoint_goes_on_as_it_was_begun(tmp_path: Path) -> None:
    at = tmp_path / "checkpoint"
    require_same(at, Windows(), Fields())
    require_same(at, Windows("1 hour"), Fields(value="v"))  # nothing was begun yet
    (at / "offsets").mkdir()
    (at / "offsets/0").touch()
    require_same(at, Windows("60 minutes", "1 hour"), Fields(value="v"))  # the same in other words
    for windows, fields, told in (
        (Windows("1 hour", "1 minute"), Fields(value="v"), "slide was 3600 and is 60. Use those"),
        (Windows("1 hour", late="2 minutes"), Fields(value="v"), "late was 60 and is 120. Use those"),
        (Windows("1 hour"), Fields(), "value was v and is value. Use those"),
        (Windows("1 hour"), Fields(value="v", identity=("id",)), "identity was"),
    ):
        with pytest.raises(Misuse, match=told):
            require_same(at, windows, fields)
    require_same("s3a://bucket/checkpoint", Windows(), Fields())


def test_a_stream_adds_only_to_its_own(tmp_path: Path) -> None:
    require_stream(tmp_path / "new")
    require_stream(tmp_path)
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(Misuse, match="not written by a stream"):
        require_stream(tmp_path)
    with pytest.raises(Misuse, match="is a file"):
        require_stream(tmp_path / "part-0.parquet")
    (tmp_path / "_spark_metadata").mkdir()
    require_stream(tmp_path)


def test_what_is_no_span() -> None:
    for wrong in ("10", "ten seconds", "10 parsecs", "-1 second", ""):
        with pytest.raises(Misuse, match="not a span of time"):
            Windows(wrong)


@pytest.mark.parametrize("what", ["_holdfast", "topic=a", "lock"])
def test_nothing_else_is_replaced(tmp_path: Path, what: str) -> None:
    """An archive, a broker's directory, another folder."""
    require_figures(tmp_path / "new")
    require_figures(tmp_path)
    for name in (
        "part-0-x.parquet",
        ".part-0-x.parquet.crc",
        "_SUCCESS",
        "._SUCCESS.crc",
    ):
        (tmp_path / name).touch()
    (tmp_path / "_temporary").mkdir()
    require_figures(tmp_path)
    (tmp_path / what).mkdir()
    with pytest.raises(Misuse, match=f"holds {what}, which is not a file of figures"):
        require_figures(tmp_path)
    with pytest.raises(Misuse, match="is a file"):
        require_figures(tmp_path / "_SUCCESS")
    with pytest.raises(Misuse, match="is a mount point"):
        require_figures("/proc")
