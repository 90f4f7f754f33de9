"""Test the account of the demo's frames: it balances, and each fault is noticed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Loop
from holdfast.demo.closing import Account
from holdfast.demo.frames import SLOTS, FrameRecord, Frames, Loops, account_of, read_frames
from holdfast.demo.settings import Places, Settings
from holdfast.demo.show import Outcome, Scene
from holdfast.demo.view import account_lines

SOUND = Frames(acquired=6, analysed=2, displaced=2, left=1, lost=1, lost_max=1, buffers=8)
"""Six frames: 0 and 2 were displaced, 1 and 4 analysed, 5 is left, 3 was lost."""


def test_every_frame_has_one_end() -> None:
    found = account_of([*range(6)], analysed=[1, 4], displaced=[0, 2], left=[5], lost_max=1)
    assert found == dataclasses.replace(SOUND, buffers=0)
    assert found.faults() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lost_max": 0}, "1 frames were lost; the kills explain at most 0"),
        ({"analysed": [1, 1, 4]}, "1 frames were analysed or displaced twice"),
        ({"displaced": [0, 2, 4]}, "1 frames were analysed or displaced twice"),
        ({"left": [5, 4]}, "1 frames were analysed or displaced twice"),
        ({"acquired": [0, 1, 2, 3, 4, 5, 5]}, "1 frames were analysed or displaced twice"),
        ({"analysed": [4, 1]}, "1 frames were analysed out of order"),
        ({"analysed": [1, 4, 9]}, "1 frames came from no sensor"),
    ],
)
def test_each_fault_is_noticed(change: dict[str, Any], words: str) -> None:
    records: dict[str, Any] = {"acquired": [*range(6)], "analysed": [1, 4], "displaced": [0, 2], "left": [5]}
    assert words in account_of(**{**records, "lost_max": 1, **change}).faults()


def test_a_leaked_buffer_is_a_fault() -> None:
    assert SOUND.faults() == []
    assert dataclasses.replace(SOUND, leaked=1).faults() == ["1 buffers leaked"]


def test_accounts_are_added() -> None:
    both = SOUND + SOUND
    assert (both.acquired, both.lost, both.lost_max, both.buffers) == (12, 2, 2, 16)


def test_a_record_that_a_kill_cut_off_is_read_without_its_end(tmp_path: Path) -> None:
    assert read_frames(tmp_path, "sensor-1", "acquired") == []
    record = FrameRecord(tmp_path, "sensor-1", "acquired")
    for number in (7, 8):
        record.add(number)
    with (tmp_path / "sensor-1.acquired").open("ab") as file:
        file.write(b"\x09\0")
    assert read_frames(tmp_path, "sensor-1", "acquired") == [7, 8]


# -- loops --------------------------------------------------------------------------------------------


@pytest.fixture
def loops(tmp_path: Path) -> Iterator[Loops]:
    made = Loops(tmp_path, tmp_path)
    made.create(["sensor-1"])
    yield made
    made.close()
    Loop.unlink("sensor-1", directory=tmp_path)


def pushed(loop: Loop, directory: Path, frames: int) -> None:
    """Push as a sensor does."""
    records = [FrameRecord(directory, "sensor-1", what) for what in ("acquired", "displaced")]
    with loop.producer() as producer:
        for number in range(frames):
            frame: Any = producer.loan()
            frame[0]["number"] = number
            records[0].add(number)
            displaced = producer.push(frame).displaced
            if displaced is not None:
                with displaced as gone:
                    records[1].add(int(gone.array[0]["number"]))


def test_frames_that_are_left_are_taken_and_counted(loops: Loops, tmp_path: Path) -> None:
    with Loop.open("sensor-1", directory=tmp_path) as loop:
        pushed(loop, tmp_path, SLOTS + 10)
        assert loops.moved() == (SLOTS + 10, 10)
        found, faults = loops.account({"sensor-1": (0, 0)})
        assert faults == []
        assert (found.acquired, found.displaced, found.left, found.lost) == (SLOTS + 10, 10, SLOTS, 0)
        assert (found.buffers, found.leaked) == (loop.stats().buffers, 0)


def test_frames_that_no_kill_explains_are_a_fault(loops: Loops, tmp_path: Path) -> None:
    with Loop.open("sensor-1", directory=tmp_path) as loop:
        pushed(loop, tmp_path, 5)
        with loop.consumer() as consumer:
            for _ in range(3):
                consumer.pop().release()  # and nothing is written down
    assert loops.account({"sensor-1": (1, 1)})[1] == []
    assert loops.account({"sensor-1": (1, 0)})[1] == [
        "5 frames were lost; the kills explain at most 2",
    ], "the first account has taken the other two"


def test_a_buffer_that_a_view_keeps_is_leaked(loops: Loops, tmp_path: Path) -> None:
    with Loop.open("sensor-1", directory=tmp_path) as loop:
        pushed(loop, tmp_path, 1)
        with loop.consumer() as consumer:
            item = consumer.pop()
            view = item.data
            item.release()
        assert "1 buffers leaked" in loops.account({"sensor-1": (0, 1)})[1]
        del view


# -- the account in words -----------------------------------------------------------------------------


def test_the_account_names_frames_and_buffers(tmp_path: Path) -> None:
    account = Account(8, 2, 10, 10, 20, 0, 0, 0, 0)
    outcome = Outcome(account, Scene(Settings(), []), [], Places(tmp_path), SOUND)
    text = "\n".join(account_lines(outcome))
    for words in ("frames acquired", "frames analysed", "frames displaced", "frames left", "frames lost"):
        assert words in text
    assert "buffers leaked                  0   of 8" in text
    assert text.endswith("out of order 0, buffers leaked 0")
    none_left = dataclasses.replace(outcome, frames=dataclasses.replace(SOUND, left=0))
    assert "frames left" not in "\n".join(account_lines(none_left))
    assert json.dumps(dataclasses.asdict(SOUND))
