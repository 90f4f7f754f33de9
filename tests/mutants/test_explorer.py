"""The explorer's slice: each space is exhausted and clean; seeded bugs of toys are seen."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit.channel.mutants import MUTANTS as CHANNEL
from tests.kit.native import CHOICE
from tests.kit.queue import kept_spaces
from tests.kit.queue.mutants import BUILD, MUTANTS, build_broken, build_explorer
from tests.kit.service.mutants import MUTANTS as SERVICE

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True)
class Space:
    kind: str
    name: str
    programs: list[str]
    traits: list[str]
    crashes: int
    granules: int
    states: int
    transitions: int
    solo_steps: int
    buffered: int
    exhausted: bool
    partial: bool
    good: bool
    expected: str
    check: str
    violation: str
    seconds: float

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Space:
        return cls(**{field: entry[field] for field in cls.__dataclass_fields__})


@pytest.fixture(scope="module")
def spaces() -> list[Space]:
    """Return the results of the slice, which `make test` has just run, or run it."""
    explorer = build_explorer()
    report = BUILD / "slice.json"
    if not report.exists() or report.stat().st_mtime < explorer.stat().st_mtime:
        command = [str(explorer), "--slice", "--jobs", "2", "--json", str(report), *kept_spaces.options()]
        run = subprocess.run(command, capture_output=True, text=True)
        assert run.returncode in (0, 1), run.stderr
    return [Space.of(entry) for entry in json.loads(report.read_text())]


def test_toys_show_what_the_engine_sees(spaces: list[Space]) -> None:
    toys = [space for space in spaces if space.kind == "toy"]
    for toy in toys:
        assert toy.check == toy.expected, f"{toy.name}: {toy.check or 'nothing'} was seen"
    seen = {toy.expected for toy in toys}
    assert seen >= {
        "",
        "lost-update",
        "race",
        "deadlock",
        "lost",
        "progress",
        "cell",
        "bound",
        "both-missed",
        "stale",
    }


def test_every_space_is_exhausted_and_clean(spaces: list[Space], counts: Callable[[str], None]) -> None:
    queues = [space for space in spaces if space.kind == "queue"]
    for space in queues:
        print(
            f"{space.name:24} {space.states:12,} states {space.transitions:12,} moves {space.seconds:6.1f} s"
        )
    assert len(queues) >= 30
    for space in queues:
        assert not space.violation, f"{space.name}: {space.violation}"
        assert space.exhausted or space.partial, space.name
    total = sum(space.states for space in queues)
    counts(f"{len(queues)} spaces of the queue exhausted, {total:,} states")
    assert total > 10_000_000


def test_every_space_of_the_channel_is_exhausted_and_clean(
    spaces: list[Space], counts: Callable[[str], None]
) -> None:
    channels = [space for space in spaces if space.kind == "channel"]
    assert len(channels) >= 30
    for space in channels:
        assert not space.violation, f"{space.name}: {space.violation}"
        assert space.exhausted or space.partial, space.name
    assert {space.granules for space in channels} == {1, 2, 3}
    total = sum(space.states for space in channels)
    counts(f"{len(channels)} spaces of the channel exhausted, {total:,} states")
    assert total > 4_000_000


def test_every_space_of_services_is_exhausted_and_clean(
    spaces: list[Space], counts: Callable[[str], None]
) -> None:
    services = [space for space in spaces if space.kind == "service"]
    assert len(services) >= 40
    for space in services:
        assert not space.violation, f"{space.name}: {space.violation}"
        assert space.exhausted or space.partial, space.name
    assert {space.granules for space in services} >= {0, 4, 5, 6, 7}
    assert sum("store buffers" in space.traits for space in services) >= 3
    total = sum(space.states for space in services)
    counts(f"{len(services)} spaces of services exhausted, {total:,} states")
    assert total > 3_000_000


def test_the_slice_has_what_kills_a_mutant(spaces: list[Space]) -> None:
    """Without a mutant, the structures pass each of these."""
    assert {mutant.program for mutant in (*MUTANTS, *CHANNEL, *SERVICE)} <= {
        space.name for space in spaces if not space.violation
    }


# Each is covered by some exhausted space.
COVERED: dict[str, Callable[[Space], bool]] = {
    "three processes": lambda space: len(space.programs) >= 3,
    "two deaths": lambda space: space.crashes >= 2,
    "all processes may die": lambda space: space.crashes >= len(space.programs),
    "a slot is taken again": lambda space: any("@" in program for program in space.programs),
    "put_many": lambda space: any("many" in program for program in space.programs),
    "give back": lambda space: any("back" in program for program in space.programs),
    "end of stream": lambda space: any("close" in program for program in space.programs),
    "waiting": lambda space: any("wget" in program for program in space.programs),
    "fencing": lambda space: "fencing" in space.traits,
    "at most once": lambda space: "at-most-once" in space.traits,
    "store buffers": lambda space: "store buffers" in space.traits,
    "store buffers by cell, with deaths": (
        lambda space: "store buffers by cell" in space.traits and space.crashes >= 2
    ),
    "old values, with deaths": lambda space: "old values" in space.traits and space.crashes >= 1,
    "eight granules": lambda space: space.granules == 8,
    "a lap while an operation is under way": lambda space: space.name.startswith("laps"),
    "old age, with deaths": lambda space: space.name.startswith("aged") and space.crashes >= 2,
    "the last position, with deaths": lambda space: space.name.startswith("last") and space.crashes >= 2,
}


@pytest.mark.parametrize("what", COVERED)
def test_the_slice_covers(what: str, spaces: list[Space]) -> None:
    assert any(COVERED[what](space) and space.exhausted for space in spaces if space.kind == "queue")


def test_no_store_waits_for_room_in_a_buffer(spaces: list[Space]) -> None:
    """No space fills a buffer of four stores, so that limit hides nothing."""
    assert max(space.buffered for space in spaces if space.kind == "queue") == 3


def test_a_survivor_finishes_alone(spaces: list[Space]) -> None:
    """Lock-free: a process that runs alone finishes its operation within a bound, in every state."""
    most = max(space.solo_steps for space in spaces if space.kind == "queue")
    print(f"at most {most} accesses")
    assert 10 < most <= 100


def test_unknown_configuration_is_an_error() -> None:
    run = subprocess.run([build_explorer(), "--config", "no-such"], capture_output=True, text=True)
    assert run.returncode == 2
    assert "--list" in run.stderr


def test_list_names_every_space(spaces: list[Space]) -> None:
    listed = subprocess.run([build_explorer(), "--list"], capture_output=True, text=True, check=True).stdout
    assert all(space.name in listed for space in spaces if space.kind == "queue")


def test_report_is_written_where_asked(tmp_path: Path) -> None:
    report = tmp_path / "toys.json"
    subprocess.run([build_explorer(), "--toys", "--json", report], check=True, capture_output=True)
    assert all(entry["good"] for entry in json.loads(report.read_text()))


def test_a_violated_space_is_kept_and_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept with the number of states that found it; the queue passes."""
    broken, numbers = build_broken()
    [mutant] = [each for each in MUTANTS if each.name == "no-room"]
    report = tmp_path / "report.json"

    def explore(number: int, *options: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, CHOICE: str(number)}
        return subprocess.run(
            [broken, *options, "--json", report], env=environment, capture_output=True, text=True
        )

    monkeypatch.setenv("HOLDFAST_KEPT", str(tmp_path / "kept.json"))
    (tmp_path / "kept.json").write_text("{}")
    assert explore(numbers[mutant.name], "--config", mutant.program).returncode == 1
    [words] = kept_spaces.keep(report)
    also = kept_spaces.options()
    assert words.startswith(f"explorer: {mutant.program}, ")
    assert explore(numbers[mutant.name], "--toys", *also).returncode == 1
    assert json.loads(report.read_text())[-1]["check"]
    sound = explore(0, "--toys", *also)
    assert (sound.returncode, "clean as far as asked" in sound.stdout) == (0, True), sound.stdout
    assert explore(0, "--toys", "--also", "no-such=9").returncode == 2
