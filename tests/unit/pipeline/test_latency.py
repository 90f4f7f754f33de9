"""Test the latency of an audit: nothing is clamped; below 0 is clock skew."""

from __future__ import annotations

import importlib
import re

import pytest

from holdfast.pipeline.audit import clock_notes
from holdfast.pipeline.jobs.audit_counts import Bar
from holdfast.pipeline.jobs.audit_page import page
from tests.kit.spark.latency_world import account, drawn, require_unclamped

importlib.import_module("matplotlib.backends.backend_svg")  # else the first test that needs it takes the time


def test_nothing_is_clamped(monkeypatch: pytest.MonkeyPatch) -> None:
    """−4 ms and 3 µs are drawn as what they are."""
    require_unclamped(drawn(account(-4_000, 3, 0, 2_000_000), monkeypatch))


@pytest.mark.parametrize("took", [(-4_000, 900), (0, 3), (1, 2)])
def test_skew_is_called_so(took: tuple[int, ...]) -> None:
    found = account(*took)
    text = page(found)
    assert text.count("<svg") == 3
    skewed = sum(each < 0 for each in took)
    assert (">latency (below 0: clock skew)<" in text) == (skewed > 0)
    assert ("note: persistent://public/default/t: clock skew: " in found.table()) == (skewed > 0)
    assert found.sound, "clocks are no fault of the broker's"


def test_the_table_shows_the_least_and_microseconds() -> None:
    text = account(-4_000, 3, 250, 2_000_000).table()
    assert re.search(r"LATENCY +MESSAGES +LEAST +50 % +90 % +99 % +99\.9 % +MOST\n", text)
    assert re.search(r"t +4 +-4 ms +250 µs +250 µs +250 µs +250 µs +2 s\n", text)
    assert "1 of 4 messages were stored up to 4 ms before they were sent" in text
    assert "< 1 ms" not in text


def test_what_has_no_stored_time_is_said() -> None:
    assert list(clock_notes([], 0)) == []
    [note] = clock_notes([], 1_200)
    assert note.startswith("1,200 archived messages without storedTime")


def test_bars_are_mirrored() -> None:
    assert Bar.of("t", 0, 1) == Bar("t", 0.0, 1.0, 1)
    for tenth in (1, 2, 30, 31, 95):
        above, below = Bar.of("t", tenth, 1), Bar.of("t", -tenth, 1)
        assert (above.low, above.high) == (-below.high, -below.low)
        assert above.high == Bar.of("t", tenth + 1, 1).low
