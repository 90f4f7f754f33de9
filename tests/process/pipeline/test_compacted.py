"""Compacted reads of files while their broker compacts, settles, trims and deletes files."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from holdfast import Broker
from holdfast.errors import Outdated
from tests.kit.pipeline.compacted import PRICES, SMALL, Prices, Row, rows_of, through_newest
from tests.kit.slices import pick


class Reader(threading.Thread):
    """Reads the topic through its newest view, again and again."""

    def __init__(self, data: str) -> None:
        super().__init__(daemon=True)
        self._data = data
        self.ended = threading.Event()
        self.found: list[tuple[int, int, list[Row]]] = []
        """Horizon, visible end and rows of each read."""
        self.gone = 0
        self.error: Exception | None = None

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                topic = through_newest(self._data)
                _, visible = topic.plan()
                self.found.append((topic.horizon, visible, rows_of(topic, 0, visible)))
            except Outdated:
                self.gone += 1
            except Exception as error:
                self.error = error
                return


def test_every_read_is_of_one_state(tmp_path: Path) -> None:
    """I314: of one view and what is behind it, or the view is gone."""
    data = str(tmp_path)
    options: dict[str, Any] = {"roll_entries": 9, "retention_s": 0, "compaction_grace_s": 0, **SMALL}
    with Broker.open(data, housekeeping_s=3600, **options) as broker:
        prices = Prices(broker, data)
        prices.send(20)
        prices.compact()
        readers = [Reader(data) for _ in range(2)]
        for each in readers:
            each.start()
        for _ in range(pick(15, 300)):
            prices.send(prices.random.randrange(1, 15))
            broker.admin.compact(PRICES, wait=True)
            prices.settle()
            broker._run(broker._twin.store.snapshot())
        for each in readers:
            each.ended.set()
            each.join(60)
    views = set()
    for each in readers:
        assert each.error is None
        assert len(each.found) > each.gone
        for horizon, visible, found in each.found:
            views.add(horizon)
            assert found == [row for row in prices.expected(horizon) if row["position"] < visible]
    assert len(views) > 3
