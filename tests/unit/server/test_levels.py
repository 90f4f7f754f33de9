"""Test the demo's account of tapped levels: it notices each fault."""

from __future__ import annotations

import pytest

from holdfast.demo.levels import Levels, account_of, taps


def stored(*numbers: tuple[int, int], sensor: str = "sensor-1") -> list[dict[str, str]]:
    """Properties of messages, from (sequence, missed)."""
    return [
        {
            "holdfast.source": f"Sensor.{sensor}/level",
            "holdfast.sequence": str(sequence),
            "holdfast.missed": str(missed),
        }
        for sequence, missed in numbers
    ]


def test_each_level_is_in_one_place() -> None:
    """One sensor has a gap that a kill explains, the other one missed levels."""
    found = stored((3, 0), (4, 0), (9, 0)) + stored((1, 0), (5, 3), sensor="sensor-2")
    levels = account_of({"sensor-1": 10, "sensor-2": 5}, found, {"sensor-1": 1, "sensor-2": 1})
    assert levels == Levels(sent=15, stored=5, missed=3, away=7, twice=0, gaps=1, gaps_max=2)
    assert levels.faults() == []


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (((1, 0), (1, 0)), "1 levels were stored twice or out of order"),
        (((2, 0), (1, 0)), "1 levels were stored twice or out of order"),
        (((1, 0), (3, 0)), "1 gaps in the levels; the kills explain at most 0"),
        (((3, 2), (4, 0), (5, 0)), "1 levels were stored that no sensor sent"),
    ],
)
def test_each_fault_is_noticed(numbers: tuple[tuple[int, int], ...], words: str) -> None:
    assert account_of({"sensor-1": 4}, stored(*numbers), {"sensor-1": 0}).faults() == [words]


def test_every_sensor_has_a_tap() -> None:
    topic = "persistent://public/default/levels"
    assert taps(["a", "b"]) == ["--tap", f"Sensor.a/level={topic}", "--tap", f"Sensor.b/level={topic}"]
