"""An archive's directory without Spark: what a kill leaves, and what is made of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.client import Progress
from holdfast.errors import Corrupt, Exists, Misuse, NotFound
from holdfast.pipeline.archive import ArchivedTopic, _advanced, partition_of, plan, require_folders
from holdfast.pipeline.jobs import archive_directory
from holdfast.pipeline.jobs.archive_completeness import (
    BUCKET,
    NEAR,
    SPAN,
    Span,
    gaps,
    require_in_range,
    spans,
)
from holdfast.pipeline.jobs.archive_digest import Digest
from holdfast.pipeline.jobs.archive_directory import ArchiveDirectory, Kind, Part, Range, Run
from holdfast.pipeline.jobs.inputs import Extent, Origin
from tests.kit.slices import seeds

PART = "topic=t/date=2026-11-15"


def staged(directory: ArchiveDirectory, number: int, count: int = 2, kind: Kind = "archive") -> Run:
    """A run whose files are written, and nothing more."""
    ident = f"run-{number}"
    files = [f"{PART}/{ident}-{index}.parquet" for index in range(count)]
    for file in files:
        path = directory.staging(ident) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.encode())
        path.with_name(f".{path.name}.crc").write_bytes(b"sum")
    assert [str(each) for each in directory.written(ident)] == files
    sizes = [len(file) for file in files]
    part = Part("t", "2026-11-15", count, 0, count - 1, str(Digest(count)), files, sizes)
    reach = Range("aa", (number - 1) * count, number * count)
    return Run(1, kind, number, ident, "now", {"t": reach}, [part])


def names(directory: ArchiveDirectory) -> list[str]:
    return sorted(path.name for path in (directory.path / PART).glob("*.parquet"))


def files(directory: ArchiveDirectory) -> list[Path]:
    return [directory.find(run, file) for run in directory.current() for file in run.files]


def test_a_run_is_there_from_its_commit_on(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path / "a")
    with directory.changing():
        run = staged(directory, 1)
        assert directory.runs() == []
        directory.commit(run)
        # Before its files have moved they are found where they are.
        assert all(file.exists() for file in files(directory))
        assert directory.positions()["t"].stop == 2
        assert directory.place(run) == 2
    assert names(directory) == ["run-1-0.parquet", "run-1-1.parquet"]
    assert (directory.path / PART / ".run-1-0.parquet.crc").exists()
    assert not directory.staging("run-1").exists()
    assert files(ArchiveDirectory.there(tmp_path / "a")) == files(directory)


def test_what_was_not_committed_goes(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path)
    with directory.changing():
        staged(directory, 1)
    (tmp_path / "_holdfast/runs/.half").write_bytes(b"{")
    with directory.changing() as recovered:
        assert (recovered.moved, recovered.removed) == (0, 1)
        assert not directory.staging("run-1").exists()
    assert list((tmp_path / "_holdfast/runs").iterdir()) == []


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_what_was_committed_is_finished(tmp_path: Path, moved: int) -> None:
    directory = ArchiveDirectory(tmp_path)
    with directory.changing():
        run = staged(directory, 1)
        directory.commit(run)
        for file in run.files[:moved]:  # and then it was killed
            (tmp_path / PART).mkdir(parents=True, exist_ok=True)
            (directory.staging(run.id) / file).replace(tmp_path / file)
    with directory.changing() as recovered:
        assert (recovered.moved, recovered.removed) == (2 - moved, 0)
    assert names(directory) == ["run-1-0.parquet", "run-1-1.parquet"]


def test_files_that_are_gone_are_missed(tmp_path: Path) -> None:
    """Also staged files; files of runs that are not needed are not checked."""
    directory = ArchiveDirectory(tmp_path)
    with directory.changing():
        for number in (1, 2):
            run = staged(directory, number)
            directory.commit(run)
            directory.require_files([run])  # before they have moved, too
            if number == 1:
                directory.place(run)
    for held, numbers in (
        ({"t": ("aa", 0)}, [1, 2]),
        ({"t": ("aa", 2), "u": ("aa", 0)}, [2]),
        ({"t": ("aa", 4)}, []),
        ({"t": ("bb", 0)}, []),
        ({}, []),
    ):
        assert [each.number for each in directory.reaching(held)] == numbers
    first, second = directory.runs()
    (directory.staging(second.id) / second.files[0]).unlink()  # killed while they moved, and then this
    with directory.changing(), pytest.raises(Corrupt, match=r"run-2-0\.parquet is missing"):
        directory.require_files(directory.reaching({"t": ("aa", 2)}))
    directory.require_files([first])
    (tmp_path / first.files[1]).write_bytes(b"short")
    with pytest.raises(Corrupt, match=r"run-1-1\.parquet has 5 bytes, and run 1 wrote"):
        directory.require_files([first])
    older = msgspec.structs.replace(first, parts=[msgspec.structs.replace(first.parts[0], sizes=[])])
    directory.require_files([older])  # which says nothing of sizes


def test_a_compacted_directory_has_its_last_run_only(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path, "compacted")
    for number in (1, 2):
        with directory.changing():
            run = staged(directory, number, kind="compacted")
            directory.commit(run)
            directory.place(run)  # killed before the old one is removed
    assert len(files(directory)) == 2
    assert len(names(directory)) == 4
    with directory.changing():
        assert [run.number for run in directory.runs()] == [2]
    assert names(directory) == ["run-2-0.parquet", "run-2-1.parquet"]
    with pytest.raises(Misuse, match="compacted, not archive"):
        ArchiveDirectory(tmp_path).runs()
    assert ArchiveDirectory.there(tmp_path).kind == "compacted"


def test_damage_is_named(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path)
    with directory.changing():
        for number in (1, 2, 3):
            run = staged(directory, number)
            directory.commit(run)
            directory.place(run)
        with pytest.raises(Exists, match="run 3 already"):
            directory.commit(run)
    (tmp_path / run.files[0]).unlink()
    with pytest.raises(Corrupt, match=r"run-3-0\.parquet is missing"):
        files(directory)
    runs = tmp_path / "_holdfast/runs"
    kept = (runs / "00000002.json").read_bytes()
    (runs / "00000002.json").unlink()
    with pytest.raises(Corrupt, match="run 3 after run 1"):
        directory.runs()
    for bytes_, words in (
        (kept[: len(kept) // 2], "does not decode"),
        (kept.replace(b'"version": 1', b'"version": 9'), "version 9"),
        (kept.replace(b'"number": 2', b'"number": 7'), "has the content of run 7"),
    ):
        (runs / "00000002.json").write_bytes(bytes_)
        with pytest.raises(Corrupt, match=words):
            directory.runs()


def committed(directory: ArchiveDirectory, *ranges: Range) -> None:
    with directory.changing():
        for number, reach in enumerate(ranges, 1):
            directory.commit(Run(1, "archive", number, f"run-{number}", "now", {"t": reach}, []))


def test_an_archive_without_its_first_run_is_not_whole(tmp_path: Path) -> None:
    directory = ArchiveDirectory(tmp_path)
    committed(directory, Range("aa", 0, 2), Range("aa", 2, 4))
    (tmp_path / "_holdfast/runs/00000001.json").unlink()
    with pytest.raises(Corrupt, match="begins with run 2"):
        directory.runs()
    with pytest.raises(Corrupt, match="begins with run 2"):
        ArchiveDirectory.there(tmp_path)


def test_a_topic_goes_on_where_it_was(tmp_path: Path) -> None:
    """Or behind what was lost, or it is another topic under the name."""
    whole = (Range("aa", 3, 5), Range("aa", 9, 12, lost=4), Range("bb", 1, 2))
    committed(ArchiveDirectory(tmp_path / "whole"), *whole)
    assert len(ArchiveDirectory(tmp_path / "whole").runs()) == 3
    for number, wrong in enumerate((Range("aa", 4, 7), Range("aa", 6, 7), Range("aa", 6, 7, lost=2))):
        directory = ArchiveDirectory(tmp_path / str(number))
        committed(directory, Range("aa", 3, 5), wrong)
        with pytest.raises(Corrupt, match="the runs before it end at 5"):
            directory.runs()


def test_every_folder_that_is_made_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = list[Path]()
    monkeypatch.setattr(archive_directory, "sync", synced.append)
    with ArchiveDirectory(tmp_path / "x/y/archive").changing():
        assert {tmp_path, tmp_path / "x", tmp_path / "x/y", tmp_path / "x/y/archive"} <= set(synced)


def test_only_here(tmp_path: Path) -> None:
    (tmp_path / "_holdfast").mkdir()
    with pytest.raises(NotFound, match="not an archive"):
        ArchiveDirectory.there(tmp_path)
    with pytest.raises(Misuse, match="mount it"):
        ArchiveDirectory("s3a://bucket/archive")
    assert ArchiveDirectory(f"file://{tmp_path}").path == tmp_path


def test_which_positions_are_new() -> None:
    there = {"t": Extent("aa", 5, 20)}
    assert plan({}, there, False) == {"t": Range("aa", 5, 20)}
    assert plan({"t": Range("aa", 0, 12)}, there, False) == {"t": Range("aa", 12, 20)}
    assert plan({"t": Range("aa", 0, 20)}, there, False) == {"t": Range("aa", 20, 20)}
    assert plan({"t": Range("bb", 0, 12)}, there, False) == {"t": Range("aa", 5, 20)}
    with pytest.raises(Corrupt, match="2 were trimmed"):
        plan({"t": Range("aa", 0, 3)}, there, False)
    assert plan({"t": Range("aa", 0, 3)}, there, True) == {"t": Range("aa", 5, 20, lost=2)}
    with pytest.raises(Corrupt, match="restored"):
        plan({"t": Range("aa", 0, 21)}, there, True)
    long = "persistent://public/default/" + "x" * 400
    assert plan({}, {long: there["t"]}, False), "an audit of a live topic makes no folder"


def test_a_name_that_is_too_long_for_a_folder() -> None:
    long = "persistent://a/b/" + "x" * 222
    require_folders([long])
    with pytest.raises(Misuse, match="a name of 256 bytes"):
        require_folders(["fine", f"{long}x"])


@pytest.mark.parametrize("entries", [10, 11])
def test_no_position_has_two_entries(entries: int) -> None:
    topic = "persistent://public/default/t"
    spans, ranges = {(topic, 0): Span(20, entries, 0, 9)}, {topic: Range("aa", 0, 10)}
    if entries == 10:
        require_in_range(spans, ranges)
        return
    with pytest.raises(Corrupt, match="11 entries at the positions 0 to 9"):
        require_in_range(spans, ranges)


@pytest.mark.parametrize("seed", seeds("gaps", test=1))
def test_positions_without_a_row(seed: int) -> None:
    """Against a plain count, across bitmaps; near gaps are looked up together."""
    chance = random.Random(seed)
    for _ in range(40):
        start = chance.randrange(3 * BUCKET)
        stop = start + chance.randrange(1, 2 * BUCKET)
        edges = sorted(chance.choices(range(start, stop), k=6))
        there = {at for low, high in zip(edges[::2], edges[1::2], strict=True) for at in range(low, high)}
        bits: dict[int, bytearray] = {}
        for at in there | {start - 1, stop} - {-1}:
            bits.setdefault(at // BUCKET, bytearray(BUCKET // 8))[at % BUCKET // 8] |= 1 << at % 8
        found = list(gaps(start, stop, {bucket: bytes(each) for bucket, each in bits.items()}))
        assert [at for low, high in found for at in range(low, high)] == [
            at for at in range(start, stop) if at not in there
        ]
        assert [gap for each in spans(found) for gap in each] == found
    far = [(0, 1), (5, 6), (6 + NEAR, 7 + NEAR), (8 + 2 * NEAR, 9 + 2 * NEAR), (SPAN, SPAN + 9)]
    assert [len(each) for each in spans(far)] == [3, 1, 1]
    assert Span(20, 10, 0, 9, 45).fills(Range("aa", 0, 10))
    assert not Span(20, 9, 0, 9, 45).fills(Range("aa", 0, 10))
    assert not Span(20, 10, 0, 9, 44).fills(Range("aa", 0, 10))


def test_digests_add_up() -> None:
    parts = [Digest(2, 7, -5), Digest(1, 3, 1 << 62), Digest()]
    total = Digest.total(parts)
    assert total == Digest(3, 10, -5 ^ 1 << 62)
    assert [Digest.parse(str(each)) for each in [*parts, total]] == [*parts, total]
    assert partition_of(Path("topic=persistent%3A%2F%2Fa%2Fb%2Fc%3D%25ü/date=2026-11-15/part.parquet")) == (
        "persistent://a/b/c=%ü",
        "2026-11-15",
    )


def test_where_topics_are_is_said_once() -> None:
    for path, url in ((None, None), ("a", "b")):
        with pytest.raises(Misuse, match="give either path"):
            Origin(path, url)


class Let:
    """A subscription and a topic, and what is asked of them."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.times: list[int] = []
        self.to: list[int] = []

    def free_below(self, name: str, since: int, position: int, now_ns: int) -> int:
        self.times.append(now_ns)
        self.asked.append((since, position))
        return 6

    def advance(self, topic: str, name: str, to: int, reset: int, incarnation: bytes = b"") -> Progress:
        assert incarnation == b"\xaa"
        self.to.append(to)
        return Progress(b"\xaa", reset, to, 0, 12)


@pytest.mark.parametrize(
    ("acked", "span", "asked", "to"),
    [
        (4, Span(30, 8, 4, 11), [], 12),  # each position has its row: nothing is open
        (4, Span(30, 7, 4, 11), [(4, 12)], 6),  # one has none: a part, perhaps of what is open
        (3, Span(30, 8, 4, 11), [(3, 12)], 6),  # it was held before: what was open may still be
        (4, Span(), [(4, 12)], 6),
    ],
)
def test_how_far_is_let_go_of(acked: int, span: Span, asked: list[tuple[int, int]], to: int) -> None:
    """I182."""
    let: Any = Let()
    row = ArchivedTopic("t", 4, 12, span.rows, 0)
    held = Progress(b"\xaa", 1, acked, 0, 12, log_time=77)
    done = _advanced(row, let, "s", held, Range("aa", 4, 12), let, span)
    assert (let.asked, let.to, done.acked_to) == (asked, [to], to)
    assert set(let.times) <= {77}, "the time is the broker's"
    assert ("chunked message" in done.note) == (to < 12)
    other = _advanced(row, let, "s", held, Range("bb", 4, 12), let, span)
    assert (other.acked_to, len(let.to)) == (None, 1)
