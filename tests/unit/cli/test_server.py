"""Rates and bars of `holdfast top`."""

from __future__ import annotations

from holdfast.cli.progress import bar
from holdfast.cli.top import Difference, parse


def test_rates_of_counters_that_begin_anew() -> None:
    def page(count: int) -> str:
        return f'pulsar_in_messages_total{{cluster="c",namespace="n",topic="t \\"x\\""}} {count}'

    first, second, anew = (parse(page(count), at) for at, count in enumerate((100, 150, 3)))
    assert Difference(first, second).topics()[0]["in_per_s"] == 50.0
    assert Difference(first, second).topics()[0]["topic"] == 't "x"'
    assert Difference(second, anew).topics()[0]["in_per_s"] == 0.0


def test_the_bar() -> None:
    assert bar("x", 0, 10, 0.0).endswith("0 %  0 B of 10 B, some time left")
    assert "100 %" in bar("x", 10, 10, 1.0)
