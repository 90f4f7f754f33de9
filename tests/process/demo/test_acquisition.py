"""Test the example of a loop: its account balances, and it notices each fault."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.acquisition.account import Account
from examples.acquisition.acquire import Calls, Report
from examples.acquisition.frame import read_numbers
from holdfast import Loop
from tests.kit import ROOT
from tests.kit.slices import pick

PERIOD_NS = 1000


@pytest.fixture(autouse=True)
def directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOLDFAST_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def test_no_buffer_leaks_while_the_analysing_process_is_killed(directory: Path) -> None:
    seconds = pick(test=4, nightly=60)
    command = [sys.executable, "-m", "examples.acquisition", "--rate", "50", "--seconds", str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100 + seconds, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    told = {
        name: int(count.replace(",", ""))
        for name, count in re.findall(r"^(\w.*?) {2,}([\d,]+) ", done.stdout, re.M)
    }
    assert told["frames acquired"] == 50 * seconds
    assert told["frames acquired"] == told["analysed"] + told["displaced"] + told["lost"]
    assert 0 <= told["lost"] <= told["kills"]
    assert told["kills"] >= 1
    assert told["analysed"] >= 1
    assert (told["deadlines missed"], told["waits"]) == (0, 0)
    assert re.search(r"^buffers leaked +0$", done.stdout, re.M)
    assert done.stdout.endswith("every frame and every buffer is accounted for\n")
    assert [*directory.iterdir()] == []


# -- the account can fail -----------------------------------------------------------------------------


def account() -> Account:
    """Four frames, of which one was displaced and one was lost."""
    with Loop.create("frames", slots=2, slot_size=8) as loop:
        stats = loop.stats()
    Loop.unlink("frames")
    return Account(Report(acquired=4), analysed=[1, 3], displaced=[0], kills=1, stats=stats, damage=[])


def test_a_sound_account_has_no_fault() -> None:
    assert account().faults() == []
    assert (account().lost, account().leaked) == (1, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda a: {"stats": dataclasses.replace(a.stats, free=a.stats.free - 1)}, "1 buffers leaked"),
        (lambda a: {"stats": dataclasses.replace(a.stats, ready=1)}, "1 frames are still in the ring"),
        (lambda a: {"analysed": [1, 1, 3]}, "a frame was analysed twice"),
        (lambda a: {"displaced": [0, 0]}, "a frame was displaced twice"),
        (lambda a: {"analysed": [3, 1]}, "frames were analysed out of order"),
        (lambda a: {"displaced": [0, 3]}, "frames were analysed and displaced: [3]"),
        (lambda a: {"analysed": [1, 3, 7]}, "frames were never acquired: [7]"),
        (lambda a: {"analysed": [3]}, "2 frames were lost by 1 kills"),
        (lambda a: {"report": Report(acquired=4, missed_by_channel=2)}, "the channel missed 2 deadlines"),
        (lambda a: {"report": Report(acquired=4, waits=3)}, "loan and push waited 3 times"),
        (lambda a: {"damage": ["slot 1 is not possible"]}, "slot 1 is not possible"),
    ],
)
def test_each_fault_is_noticed(change: Callable[[Account], dict[str, object]], words: str) -> None:
    sound = account()
    assert words in dataclasses.replace(sound, **change(sound)).faults()  # type: ignore[arg-type]


def test_a_record_that_a_kill_cut_off_is_read_without_its_end(directory: Path) -> None:
    assert read_numbers(directory / "none") == []
    (directory / "record").write_bytes((5).to_bytes(8, "little") + b"\x06\0\0")
    assert read_numbers(directory / "record") == [5]


# -- deadlines ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "late_ns", "by_channel", "by_kernel"),
    [
        (Calls(wall_ns=10, processor_ns=10), 900, 0, 0),
        (Calls(wall_ns=10, processor_ns=10), 1001, 0, 1),
        (Calls(wall_ns=5000, processor_ns=10, preempted=1), 6000, 0, 1),
        (Calls(wall_ns=2500, processor_ns=2400), 2500, 2, 0),
        (Calls(wall_ns=3000, processor_ns=10, waits=1), 3000, 3, 0),
    ],
)
def test_a_late_frame_is_counted_where_it_belongs(
    calls: Calls, late_ns: int, by_channel: int, by_kernel: int
) -> None:
    report = Report()
    report.add(0, 0, late_ns, calls, PERIOD_NS)
    assert (report.missed_by_channel, report.missed_by_kernel) == (by_channel, by_kernel)
