"""A compacted view over Flight: one number in all requests of a query."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Broker
from holdfast._core import Columns
from holdfast.broker.api.blocking import BlockingBroker
from holdfast.columns import NEWEST, decoding
from holdfast.columns.tickets import Read, Weighed, parsed
from holdfast.errors import Misuse, Outdated
from tests.kit.pipeline.compacted import COLUMNS, PRICES, SMALL, Prices, rows_of, through_newest
from tests.kit.server.breaking import Breaking, open_to_all
from tests.kit.slices import seeds


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BlockingBroker]:
    with Broker.open(tmp_path, roll_entries=7, retention_s=0, housekeeping_s=3600, **SMALL) as opened:
        yield opened


@pytest.mark.parametrize("seed", seeds("flight views", test=4))
def test_rows_of_a_view_go_on_where_they_were_cut(
    tmp_path: Path, broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """I160, I164, also while later compactions replace the view."""
    monkeypatch.setattr("holdfast.columns.remote.PAUSE_S", 0.0)
    monkeypatch.setattr(decoding, "Columns", functools.partial(Columns, rows_max=4))
    choose, prices = random.Random(seed), Prices(broker, str(tmp_path), seed)
    prices.send(40)
    horizon = prices.compact()
    prices.send(10)
    place = Breaking(open_to_all(tmp_path), seed)
    near, far = through_newest(str(tmp_path)), place.open(PRICES, NEWEST)
    first, visible = near.plan()
    assert (far.plan(), far.view, far.horizon) == ((first, visible), 1, horizon)
    for step in (0, 100):
        assert far.weights(0, visible, step) == near.weights(0, visible, step)
    for moment in (0, 1 << 50):
        assert far.at_time(moment) == near.at_time(moment)
    expected = prices.expected(horizon)
    prices.send(20)
    prices.compact()
    assert rows_of(far, 0, visible) == expected
    for _ in range(4):
        start, stop = sorted(choose.randrange(visible + 1) for _ in range(2))
        assert rows_of(far, start, stop) == [row for row in expected if start <= row["position"] < stop]
    assert place.breaks
    assert place.open(PRICES, NEWEST).view == 2
    prices.settle()
    for ask in (far.plan, lambda: far.weights(0, visible), lambda: rows_of(far, 0, visible)):
        with pytest.raises(Outdated, match=f"compacted view 1 of {PRICES} is gone"):
            ask()


def test_only_a_plan_asks_for_the_newest_view(tmp_path: Path, broker: BlockingBroker) -> None:
    """I314: tasks of one query would read different ones."""
    prices = Prices(broker, str(tmp_path))
    prices.send(5)
    reads = open_to_all(tmp_path)
    plain: Any = reads.actions["plan"](None, json.dumps({"topic": PRICES, "view": NEWEST}).encode())
    assert (plain.view, plain.horizon, plain.first) == (0, 0, 0), "there is none yet"
    ticket = Read(PRICES, "", NEWEST, start=0, stop=5, columns=list(COLUMNS))
    with pytest.raises(Misuse, match="send the one that `plan` has returned"):
        reads.rows(None, msgspec.json.encode(ticket))
    weighed = Weighed(PRICES, "", NEWEST, start=0, stop=5)
    with pytest.raises(Misuse, match="the number of a view is wanted"):
        reads.actions["weights"](None, msgspec.json.encode(weighed))
    for wrong in (-2, 1 << 63, "1", None):
        with pytest.raises(Misuse, match=r"malformed: .*view"):
            parsed(json.dumps({"topic": PRICES, "view": wrong}).encode(), type(weighed))


def test_a_request_without_a_view_is_that_of_an_older_client() -> None:
    """A server that does not know the field would refuse it."""
    told = json.loads(msgspec.json.encode(Weighed(PRICES, "00", start=0, stop=5)))
    assert told == {"topic": PRICES, "incarnation": "00", "start": 0, "stop": 5}
